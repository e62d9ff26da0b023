"""Tests for device types, as `torch.testing._internal.common_device_type`: the CPU, and the GPU where there is one.

`instantiate_device_type_tests(TestFoo, globals())` makes `TestFooCPU`, whose tests are named `test_x_cpu_float32`, and
`TestFooCUDA`.
"""

from __future__ import annotations

import copy
import inspect
import os
import unittest
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, NamedTuple

import rushlight
from rushlight._interface.base import absent_class
from rushlight.testing._internal.common_utils import TestCase
from rushlight.testing._internal.parametrizing import Parametrizer, compose_parametrize_fns, dtype_name

__all__ = [
    "CPUTestBase", "CUDATestBase", "DeviceTypeTestBase", "OpDTypes", "PYTORCH_CUDA_MEMCHECK", "deviceCountAtLeast", "dtypes", "dtypesIfCPU", "dtypesIfCUDA", "dtypesIfHPU",
    "dtypesIfMPS", "dtypesIfXPU", "expectedFailure", "expectedFailureCPU", "expectedFailureCUDA", "expectedFailureMPS", "expectedFailureMeta",
    "expectedFailureXLA", "expectedFailureXPU", "get_all_device_types", "get_device_type_test_bases", "instantiate_device_type_tests", "largeTensorTest",
    "onlyAccelerator", "onlyCPU", "onlyCUDA", "onlyMPS", "onlyNativeDeviceTypes", "onlyNativeDeviceTypesAnd", "onlyOn", "onlyXPU", "ops", "precisionOverride",
    "skipCPUIf", "skipCPUIfNoFFT", "skipCPUIfNoLapack", "skipCPUIfNoMkl", "skipCPUIfNoMklSparse", "skipCPUIfNoMkldnn", "skipCUDAIf", "skipCUDAIfNoCudnn",
    "skipCUDAIfNoCusolver", "skipCUDAIfNoMagma", "skipCUDAIfNoMagmaAndNoCusolver", "skipCUDAIfRocm", "skipIf", "skipLazy", "skipMPS", "skipMPSIf", "skipMeta",
    "skipMetaIf", "skipXLA", "skipXPU", "skipXPUIf", "tol", "toleranceOverride",
]  # fmt: skip

PYTORCH_CUDA_MEMCHECK = False
_WHY = "the database of operators that PyTorch's own tests go over is not here"

ops = absent_class("torch.testing._internal.common_device_type.ops", _WHY)
OpDTypes = absent_class("torch.testing._internal.common_device_type.OpDTypes", _WHY)


class DeviceTypeTestBase(TestCase):
    """A class of tests on one device type."""

    device_type = "generic_device_type"

    @classmethod
    def get_primary_device(cls) -> str:
        """The device that a test's argument `device` is."""
        return cls.device_type

    @classmethod
    def get_all_devices(cls) -> list[str]:
        """Values of an argument `devices`."""
        return [cls.get_primary_device()]

    @classmethod
    def instantiate_test(cls, name: str, test: Any, *, generic_cls: Any = None) -> None:
        """Put the cases of a test into the class."""
        cases: Any = getattr(
            test, "parametrize_fn", lambda test, generic_cls, device_cls: iter([(test, "", {}, lambda _: [])])
        )
        wanted = getattr(test, "dtypes", None)
        if wanted is not None:
            if "all" not in wanted:
                raise AssertionError(
                    f"@dtypes is mandatory when using @dtypesIf however '{test.__name__}' didn't specify it"
                )
            cases = compose_parametrize_fns(_over_dtypes(wanted.get(cls.device_type, wanted["all"])), cases)
        for case, suffix, arguments, decorators in cases(test, generic_cls, cls):
            dtypes = arguments.get("dtypes", arguments.get("dtype"))
            names = map(dtype_name, dtypes if isinstance(dtypes, (list, tuple)) else [dtypes] if dtypes else [])
            cls._add(
                "_".join(part for part in (name, suffix, cls.device_type, *names) if part),
                case,
                dict(arguments),
                decorators,
            )

    @classmethod
    def _add(cls, name: str, test: Any, arguments: dict[str, Any], decorators: Any) -> None:
        taken = inspect.signature(test).parameters
        if hasattr(test, "num_required_devices"):
            arguments["devices"] = cls.get_all_devices()
        elif "device" in taken:
            arguments["device"] = cls.get_primary_device()
        for decorate in decorators(arguments):
            test = decorate(test)
        if hasattr(cls, name):
            raise AssertionError(f"Redefinition of test {name}")

        @wraps(test)
        def case(self: Any) -> Any:
            before = self.precision, self.rel_tol
            try:
                self._use_tolerances(test, arguments)
                return test(self, **arguments)
            finally:
                self.precision, self.rel_tol = before

        del case.__wrapped__  # pytest would read the arguments of the test that was written
        setattr(cls, name, case)

    def _use_tolerances(self, test: Any, arguments: dict[str, Any]) -> None:
        """Those that `precisionOverride` and `toleranceOverride` have for the case's dtype."""
        dtype = arguments.get("dtypes", arguments.get("dtype"))
        if dtype:
            self.precision = getattr(test, "precision_overrides", {}).get(dtype, self.precision)
            self.precision, self.rel_tol = getattr(test, "tolerance_overrides", {}).get(
                dtype, (self.precision, self.rel_tol)
            )


class CPUTestBase(DeviceTypeTestBase):
    """Tests on the CPU."""

    device_type = "cpu"


class CUDATestBase(DeviceTypeTestBase):
    """Tests on the GPUs, the current one first."""

    device_type = "cuda"

    @classmethod
    def get_primary_device(cls) -> str:
        """The current GPU."""
        return f"cuda:{rushlight.cuda.current_device()}"

    @classmethod
    def get_all_devices(cls) -> list[str]:
        """All GPUs, the current one first."""
        first = cls.get_primary_device()
        return [first, *(name for n in range(rushlight.cuda.device_count()) if (name := f"cuda:{n}") != first)]


def _over_dtypes(dtypes: Any) -> Any:
    def cases(test: Any, generic_cls: Any, device_cls: Any) -> Iterator[Any]:
        for each in dtypes:
            yield test, "", {"dtypes" if isinstance(each, (list, tuple)) else "dtype": each}, lambda _: []

    return cases


def get_device_type_test_bases() -> list[Any]:
    """The classes that tests are made for."""
    return [CPUTestBase, CUDATestBase] if rushlight.cuda.is_available() else [CPUTestBase]


def get_all_device_types() -> list[str]:
    """Device types that there are."""
    return [base.device_type for base in get_device_type_test_bases()]


def instantiate_device_type_tests(
    generic_test_class: Any,
    scope: dict[str, Any],
    except_for: Any = None,
    only_for: Any = None,
    include_lazy: bool = False,
    allow_mps: bool = False,
    allow_xpu: bool = False,
) -> None:
    """Replace a class of tests in `scope` (`globals()`) by one for each device type: `TestFoo` by `TestFooCPU`."""
    del scope[generic_test_class.__name__]
    members = list(vars(generic_test_class))
    tests = [name for name in members if name.startswith("test")]
    for base in get_device_type_test_bases():
        if not _is_wanted(base.device_type, except_for, only_for):
            continue
        name = generic_test_class.__name__ + base.device_type.upper()
        made: Any = type(name, (base, generic_test_class), {"__module__": generic_test_class.__module__})
        for member in tests:
            made.instantiate_test(
                member, copy.deepcopy(vars(generic_test_class)[member]), generic_cls=generic_test_class
            )
        scope[name] = made
    for member in tests:
        delattr(generic_test_class, member)


def _is_wanted(kind: str, except_for: Any, only_for: Any) -> bool:
    if except_for and only_for:
        raise RuntimeError("except_for and only_for should not be used together")
    listed = [only_for] if isinstance(only_for, str) else only_for
    left_out = [except_for] if isinstance(except_for, str) else except_for
    return (listed is None or kind in listed) and (left_out is None or kind not in left_out)


# ***** marks *****


class skipIf:
    """Skip a test on one device type (all of them for None) where `dep` is true; text names an attribute of the test
    case.
    """

    def __init__(self, dep: Any, reason: str, device_type: str | None = None) -> None:
        self.dep, self.reason, self.device_type = dep, reason, device_type

    def __call__(self, fn: Any) -> Any:
        @wraps(fn)
        def checked(case: Any, *args: Any, **kwargs: Any) -> Any:
            if self.device_type in (None, case.device_type) and (
                getattr(case, self.dep, True) if isinstance(self.dep, str) else self.dep
            ):
                raise unittest.SkipTest(self.reason)
            return fn(case, *args, **kwargs)

        return checked


def _skip_on(kind: str) -> Any:
    return lambda dep, reason: skipIf(dep, reason, device_type=kind)


skipCPUIf, skipCUDAIf, skipMPSIf, skipMetaIf, skipXPUIf = map(_skip_on, ("cpu", "cuda", "mps", "meta", "xpu"))


def _never(kind: str) -> Any:
    """Tests that do not hold on a device type that is not here: they run as they are."""
    return skipIf(True, f"test doesn't work on {kind}", device_type=kind)


skipLazy, skipMPS, skipMeta, skipXLA, skipXPU = map(_never, ("lazy", "mps", "meta", "xla", "xpu"))


def _as_it_is(fn: Any) -> Any:
    """The test itself: what it needs (LAPACK, FFT, sparse products, factorisations on the GPU) is here."""
    return fn


skipCPUIfNoFFT = skipCPUIfNoLapack = skipCPUIfNoMkl = skipCPUIfNoMklSparse = skipCPUIfNoMkldnn = _as_it_is
skipCUDAIfNoCudnn = skipCUDAIfNoCusolver = skipCUDAIfNoMagma = skipCUDAIfNoMagmaAndNoCusolver = _as_it_is


def skipCUDAIfRocm(func: Any = None, *, msg: str = "") -> Any:
    """The test itself: GPUs here are NVIDIA's."""
    return _as_it_is if func is None else func


class onlyOn:
    """Run a test on some device types alone."""

    def __init__(self, device_type: str | list[str]) -> None:
        self.device_type = device_type

    def __call__(self, fn: Any) -> Any:
        wanted = [self.device_type] if isinstance(self.device_type, str) else self.device_type

        @wraps(fn)
        def checked(case: Any, *args: Any, **kwargs: Any) -> Any:
            if case.device_type not in wanted:
                raise unittest.SkipTest(f"Only runs on {self.device_type}")
            return fn(case, *args, **kwargs)

        return checked


onlyCPU, onlyCUDA, onlyMPS, onlyXPU = map(onlyOn, ("cpu", "cuda", "mps", "xpu"))
onlyNativeDeviceTypes = onlyOn(["cpu", "cuda", "xpu", "meta", "mps", "mtia"])
onlyAccelerator = onlyOn(["cuda", "xpu", "mps", "mtia"])


def onlyNativeDeviceTypesAnd(devices: Any = None) -> Any:
    """Run a test on PyTorch's own device types and on these."""
    return onlyOn(
        ["cpu", "cuda", "xpu", "meta", "mps", "mtia", *([devices] if isinstance(devices, str) else devices or [])]
    )


class deviceCountAtLeast:
    """A test that needs several devices; it takes `devices`."""

    def __init__(self, num_required_devices: int) -> None:
        self.num_required_devices = num_required_devices

    def __call__(self, fn: Any) -> Any:
        fn.num_required_devices = self.num_required_devices

        @wraps(fn)
        def checked(case: Any, devices: Any, *args: Any, **kwargs: Any) -> Any:
            if len(devices) < self.num_required_devices:
                raise unittest.SkipTest(f"fewer than {self.num_required_devices} devices detected")
            return fn(case, devices, *args, **kwargs)

        return checked


class expectedFailure:
    """A test that fails on a device type (on all for None)."""

    def __init__(self, device_type: str | None) -> None:
        self.device_type = device_type

    def __call__(self, fn: Any) -> Any:
        @wraps(fn)
        def checked(case: Any, *args: Any, **kwargs: Any) -> Any:
            if self.device_type not in (None, case.device_type):
                return fn(case, *args, **kwargs)
            try:
                fn(case, *args, **kwargs)
            except Exception:  # the failure that is expected may be any
                return None
            return case.fail("expected test to fail, but it passed")

        return checked


expectedFailureCPU, expectedFailureCUDA, expectedFailureMPS = map(expectedFailure, ("cpu", "cuda", "mps"))
expectedFailureMeta, expectedFailureXLA, expectedFailureXPU = map(expectedFailure, ("meta", "xla", "xpu"))


def _free_bytes(device: Any) -> int:
    if device.type == "cuda":
        return rushlight.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def largeTensorTest(size: int | str, device: Any = None, inductor: bool = False) -> Callable[[Any], Any]:
    """Skip a test where fewer bytes are free; a number, or text such as `"4GB"`."""
    wanted = (
        int(float(size[:-2]) * {"KB": 1e3, "MB": 1e6, "GB": 1e9}[size[-2:].upper()]) if isinstance(size, str) else size
    )

    def decorate(fn: Any) -> Any:
        @wraps(fn)
        def checked(case: Any, *args: Any, **kwargs: Any) -> Any:
            place = rushlight.device(device or getattr(case, "get_primary_device", lambda: "cpu")())
            if _free_bytes(place) < wanted:
                raise unittest.SkipTest(f"Insufficient {place.type} memory: {size} are needed")
            return fn(case, *args, **kwargs)

        return checked

    return decorate


# ***** dtypes and tolerances *****


class dtypes:
    """A case for each of these dtypes (or tuples of them), on all device types that have no list of their own."""

    def __init__(self, *args: Any, device_type: str = "all") -> None:
        self.args, self.device_type = args[0] if len(args) == 1 and isinstance(args[0], list) else args, device_type

    def __call__(self, fn: Any) -> Any:
        lists = getattr(fn, "dtypes", {})
        if self.device_type in lists:
            raise AssertionError(f"dtypes redefinition for {self.device_type}")
        fn.dtypes = {**lists, self.device_type: self.args}
        return fn


def _dtypes_on(kind: str) -> Any:
    return lambda *args: dtypes(*args, device_type=kind)


dtypesIfCPU, dtypesIfCUDA, dtypesIfHPU, dtypesIfMPS, dtypesIfXPU = map(_dtypes_on, ("cpu", "cuda", "hpu", "mps", "xpu"))


class tol(NamedTuple):
    """Tolerances of a dtype."""

    atol: float
    rtol: float


class precisionOverride:
    """Absolute tolerances for dtypes: `{torch.float16: 1e-2}`."""

    def __init__(self, d: dict[Any, float]) -> None:
        self.d = d

    def __call__(self, fn: Any) -> Any:
        fn.precision_overrides = self.d
        return fn


class toleranceOverride:
    """Tolerances for dtypes: `{torch.float16: tol(atol=1e-2, rtol=1e-3)}`."""

    def __init__(self, d: dict[Any, tol]) -> None:
        self.d = d

    def __call__(self, fn: Any) -> Any:
        fn.tolerance_overrides = self.d
        return fn


_TestParametrizer = Parametrizer

"""Names of `torch.testing._internal.common_utils` for tests of other packages: the test case, parametrized tests,
marks, flags, small tools.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import platform
import sys
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import rushlight as torch
from rushlight._interface.base import trace_marks
from rushlight.testing._internal.matrices import *  # noqa: F403
from rushlight.testing._internal.matrices import __all__ as _matrices
from rushlight.testing._internal.parametrizing import (
    Parametrizer,
    compose_parametrize_fns,
    decorateIf,
    dtype_name,
    instantiate_parametrized_tests,
    parametrize,
    reparametrize,
    subtest,
)
from rushlight.testing._internal.test_case import SEED, TestCase, noncontiguous_like, set_rng_seed
from rushlight.testing.creation import make_tensor

__all__ = [  # noqa: PLE0604
    "DeterministicGuard", "IS_ARM64", "IS_CI", "IS_FBCODE", "IS_JETSON", "IS_LINUX", "IS_MACOS", "IS_PPC", "IS_REMOTE_GPU", "IS_SANDCASTLE", "IS_WINDOWS", "IS_X86", "SEED",
    "TEST_ACCELERATOR", "TEST_CUDA", "TEST_HPU", "TEST_MKL", "TEST_MPS", "TEST_NUMPY", "TEST_SCIPY", "TEST_WITH_ASAN", "TEST_WITH_CROSSREF", "TEST_WITH_ROCM",
    "TEST_WITH_SLOW", "TEST_WITH_TORCHDYNAMO", "TEST_WITH_TORCHINDUCTOR", "TEST_WITH_TSAN", "TEST_WITH_UBSAN", "TEST_XPU", "TemporaryDirectoryName",
    "TemporaryFileName", "TestCase", "compose_parametrize_fns", "decorateIf", "disable_gc", "dtype_name", "find_free_port", "first_sample", "freeze_rng_state",
    "get_cycles_per_ms", "gradcheck", "gradgradcheck", "instantiate_parametrized_tests", "is_iterable", "is_iterable_of_tensors", "iter_indices", "load_tests",
    "make_tensor", "markDynamoStrictTest", "noncontiguous_like", "numpy_to_torch_dtype_dict", "parametrize", "reparametrize", "retry", "run_tests", "serialTest",
    "set_cwd", "set_default_dtype", "set_default_tensor_type", "set_rng_seed", "skipIfCompiledWithoutNumpy", "skipIfCrossRef", "skipIfMPS", "skipIfNoLapack", "skipIfNoSciPy",
    "skipIfRocm", "skipIfTorchDynamo", "skipIfTorchInductor", "skipIfWindows", "skipIfXpu", "slowTest", "subtest", "suppress_warnings", "torch_to_numpy_dtype_dict", "xfailIfTorchDynamo",
    *_matrices,
]  # fmt: skip


# ***** where the tests run *****

IS_LINUX, IS_WINDOWS, IS_MACOS = sys.platform == "linux", sys.platform == "win32", sys.platform == "darwin"
IS_X86, IS_ARM64, IS_PPC = (
    platform.machine() in each for each in (("x86_64", "i386", "AMD64"), ("arm64", "aarch64", "ARM64"), ("ppc64le",))
)
IS_CI = bool(os.getenv("CI"))
IS_FBCODE = IS_JETSON = IS_REMOTE_GPU = IS_SANDCASTLE = False
TEST_NUMPY, TEST_SCIPY = True, importlib.util.find_spec("scipy") is not None
TEST_MKL = torch.backends.mkl.is_available()
TEST_ACCELERATOR = TEST_CUDA = torch.cuda.is_available()
TEST_HPU = TEST_MPS = TEST_XPU = False
TEST_WITH_ASAN = TEST_WITH_CROSSREF = TEST_WITH_ROCM = TEST_WITH_TORCHDYNAMO = TEST_WITH_TORCHINDUCTOR = (
    TEST_WITH_TSAN
) = TEST_WITH_UBSAN = False
TEST_WITH_SLOW = os.getenv("PYTORCH_TEST_WITH_SLOW") == "1"

_DTYPES = {
    "bool_": torch.bool, "uint8": torch.uint8, "uint16": torch.uint16, "uint32": torch.uint32, "uint64": torch.uint64, "int8": torch.int8,
    "int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "float16": torch.float16, "float32": torch.float32, "float64": torch.float64,
    "complex64": torch.complex64, "complex128": torch.complex128,
}  # fmt: skip


def _numpy_dtypes() -> dict[Any, Any]:
    import numpy

    return {getattr(numpy, name): dtype for name, dtype in _DTYPES.items()}


numpy_to_torch_dtype_dict = _numpy_dtypes()
torch_to_numpy_dtype_dict = {value: key for key, value in numpy_to_torch_dtype_dict.items()}


# ***** running *****


def run_tests(argv: list[str] | None = None) -> None:
    """Run the tests of the program, as `unittest.main` does."""
    unittest.main(argv=argv or sys.argv)


def load_tests(loader: Any, tests: Any, pattern: Any) -> Any:
    """All tests, for modules that take this name over."""
    return unittest.TestSuite(case for group in tests for case in group)


# ***** marks *****


def _same(fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The test itself: what would skip it is not here."""
    return fn if callable(fn) else lambda function: function


skipIfCompiledWithoutNumpy = skipIfCrossRef = skipIfMPS = skipIfNoLapack = skipIfRocm = skipIfXpu = (
    markDynamoStrictTest
) = xfailIfTorchDynamo = _same
skipIfNoSciPy = unittest.skipUnless(TEST_SCIPY, "test require SciPy, but SciPy not found")
slowTest = unittest.skipUnless(TEST_WITH_SLOW, "test is slow; run with PYTORCH_TEST_WITH_SLOW to enable test")


def skipIfTorchDynamo(msg: Any = "") -> Any:
    """The test itself: nothing captures it."""
    return msg if callable(msg) else _same


def skipIfTorchInductor(msg: str = "", condition: bool = False) -> Any:
    """The test itself: nothing compiles it."""
    return _same


def skipIfWindows(func: Any = None, *, msg: str = "test doesn't currently work on the Windows stack") -> Any:
    """Skip a test on Windows."""
    mark = unittest.skipIf(IS_WINDOWS, msg)
    return mark if func is None else mark(func)


def serialTest(condition: bool = True) -> Any:
    """The test itself: tests run one after the other."""
    return _same


def suppress_warnings(fn: Any) -> Any:
    """A test during which warnings are silent."""

    @functools.wraps(fn)
    def silent(*args: Any, **kwargs: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fn(*args, **kwargs)

    return silent


def retry(ExceptionToCheck: Any, tries: int = 3, delay: float = 3, skip_after_retries: bool = False) -> Any:
    """Run a test again after an error of this class, up to `tries` times."""
    import time

    def decorate(fn: Any) -> Any:
        @functools.wraps(fn)
        def again(*args: Any, **kwargs: Any) -> Any:
            for left in range(tries - 1, -1, -1):
                try:
                    return fn(*args, **kwargs)
                except ExceptionToCheck as error:
                    if left == 0 and skip_after_retries:
                        raise unittest.SkipTest(f"Skipping after {tries} consecutive {error!r}") from error
                    if left == 0:
                        raise
                    time.sleep(delay)
            return None

        return again

    return decorate


# ***** contexts *****


@contextlib.contextmanager
def freeze_rng_state(*args: Any, **kwargs: Any) -> Iterator[None]:
    """Leave the generator as it was."""
    with torch.random.fork_rng(*args, **kwargs):
        yield


@contextlib.contextmanager
@trace_marks.changes_later_calls
def set_default_dtype(dtype: Any) -> Iterator[None]:
    """Another default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
@trace_marks.changes_later_calls
def set_default_tensor_type(tensor_type: Any) -> Iterator[None]:
    """Another default type of tensors."""
    before = torch.tensor([]).type()
    torch.set_default_tensor_type(tensor_type)
    try:
        yield
    finally:
        torch.set_default_tensor_type(before)


@contextlib.contextmanager
@trace_marks.changes_later_calls
def set_cwd(path: str) -> Iterator[None]:
    """Another current folder."""
    with contextlib.chdir(path):
        yield


@contextlib.contextmanager
@trace_marks.changes_later_calls
def disable_gc() -> Iterator[None]:
    """Without the cyclic collector."""
    import gc

    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class DeterministicGuard:
    """Deterministic algorithms, or not, while a block runs."""

    def __init__(self, deterministic: bool, *, warn_only: bool = False, fill_uninitialized_memory: bool = True) -> None:
        self.wanted = deterministic, warn_only

    def __enter__(self) -> None:
        self.before = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        torch.use_deterministic_algorithms(self.wanted[0], warn_only=self.wanted[1])

    def __exit__(self, *exc: object) -> None:
        torch.use_deterministic_algorithms(self.before[0], warn_only=self.before[1])


@contextlib.contextmanager
def TemporaryFileName(*args: Any, **kwargs: Any) -> Iterator[str]:
    """The name of a file that is removed at the end."""
    handle, name = tempfile.mkstemp(*args, **kwargs)
    os.close(handle)
    try:
        yield name
    finally:
        Path(name).unlink(missing_ok=True)


@contextlib.contextmanager
def TemporaryDirectoryName(suffix: str | None = None) -> Iterator[str]:
    """The name of a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(suffix=suffix) as name:
        yield name


# ***** small tools *****


def _checked_as_well(check: Callable[..., bool]) -> Callable[..., bool]:
    def run(*args: Any, **kwargs: Any) -> bool:
        for key in ("check_batched_grad", "fast_mode"):
            kwargs[key] = True if kwargs.get(key) is None else kwargs[key]
        return check(*args, **kwargs)

    run.__doc__ = f"`torch.autograd.{check.__name__}`, by default in fast mode and for batches of gradients too."
    return run


gradcheck, gradgradcheck = _checked_as_well(torch.autograd.gradcheck), _checked_as_well(torch.autograd.gradgradcheck)


def is_iterable(obj: Any) -> bool:
    """Whether a loop can go over it."""
    return hasattr(type(obj), "__iter__") or hasattr(type(obj), "__getitem__")


def is_iterable_of_tensors(iterable: Any, include_empty: bool = False) -> bool:
    """Whether it is a collection (not a tensor) of tensors."""
    if isinstance(iterable, torch.Tensor) or not hasattr(iterable, "__len__"):
        return False
    return all(isinstance(each, torch.Tensor) for each in iterable) if len(iterable) else include_empty


def iter_indices(tensor: Any) -> Iterable[Any]:
    """The indices of all elements: numbers for one dimension, tuples for several."""
    if tensor.dim() <= 1:
        return range(tensor.size(0) if tensor.dim() else 0)
    return itertools.product(*map(range, tensor.size()))


def first_sample(self: Any, samples: Iterable[Any]) -> Any:
    """The first of some samples; a test without any is skipped."""
    for sample in samples:
        return sample
    raise unittest.SkipTest("Skipped! Need at least 1 sample input")


def find_free_port() -> int:
    """A port of this machine that nobody listens on."""
    import socket

    with socket.socket() as made:
        made.bind(("localhost", 0))
        return int(made.getsockname()[1])


def get_cycles_per_ms(device: str = "cuda") -> float:
    """How many of the cycles that `torch.cuda._sleep` counts a GPU makes in a millisecond, as events measure it;
    RuntimeError without a GPU.
    """
    if device != "cuda" or not torch.cuda.is_available():
        raise RuntimeError(f"get_cycles_per_ms measures a GPU, and there is none of type {device}")
    cycles, found = 1_000_000, []
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        torch.cuda._sleep(cycles)
        end.record()
        end.synchronize()
        found.append(cycles / start.elapsed_time(end))
    return sorted(found)[2]


_TestParametrizer = Parametrizer

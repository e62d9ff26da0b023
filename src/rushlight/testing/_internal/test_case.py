"""The test case of PyTorch's tests: a seed before each test, and an `assertEqual` that knows tensors and nests of them."""

from __future__ import annotations

import contextlib
import enum
import gc
import textwrap
import unittest
import unittest.mock
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import rushlight as torch
from rushlight._interface.base import numpy, trace_marks
from rushlight.testing.comparison import assert_close, default_tolerances

__all__ = ["TestCase", "noncontiguous_like", "set_rng_seed"]

SEED = 1234
# Numbers are compared as coarsely as these
_NUMBERS = {bool: "bool", int: "int64", float: "float32", complex: "complex64"}


@trace_marks.changes_later_calls
def set_rng_seed(seed: int | None = None) -> None:
    """Seed torch, `random` and NumPy."""
    import random

    seed = SEED if seed is None else seed
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def noncontiguous_like(t: Any) -> Any:
    """A tensor with the same values whose last dimension has gaps, filled with NaN where there is one; `t` itself where
    it has gaps already.
    """
    if not t.is_contiguous():
        return t
    wide = t.new_empty((*t.shape, 2))
    wide[..., 0] = float("nan") if t.dtype.is_floating_point or t.dtype.is_complex else t.dtype == torch.bool or 12
    wide[..., 1] = t.detach()
    return wide[..., 1].requires_grad_(t.requires_grad)


@dataclass(frozen=True)
class _Rules:
    rtol: float | None
    atol: float | None
    least_rtol: float
    least_atol: float
    equal_nan: bool
    checks: dict[str, Any]


class TestCase(unittest.TestCase):
    """A `unittest.TestCase` for tensors.  `precision` and `rel_tol` are the least tolerances of `assertEqual`."""

    precision: float = 0.0
    rel_tol: float = 0.0
    maxDiff = None
    longMessage = True

    def setUp(self) -> None:
        """Seed the generators."""
        set_rng_seed()

    # ***** equality *****

    def assertEqual(
        self,
        x: Any,
        y: Any,
        msg: Any = None,
        *,
        atol: float | None = None,
        rtol: float | None = None,
        equal_nan: bool = True,
        exact_dtype: bool = True,
        exact_device: bool = False,
        exact_layout: bool = False,
        exact_stride: bool = False,
        exact_is_coalesced: bool = False,
    ) -> None:
        """Tensors and numbers within tolerances (NaN equal to NaN), sequences item by item, mappings key by key, all
        else by `==`.
        """
        __tracebackhide__ = True
        checks: dict[str, Any] = {
            "check_dtype": exact_dtype,
            "check_device": exact_device,
            "check_layout": exact_layout,
            "check_stride": exact_stride,
        }
        try:
            _compare(x, y, "", _Rules(rtol, atol, self.rel_tol, self.precision, equal_nan, checks))
        except AssertionError as error:
            text = str(error)
            raise AssertionError(msg(text) if callable(msg) else f"{text}\n{msg}" if msg else text) from None

    def assertNotEqual(self, x: Any, y: Any, msg: Any = None, **kwargs: Any) -> None:  # type: ignore[override]
        """`assertEqual` fails."""
        with self.assertRaises(AssertionError, msg=msg):
            self.assertEqual(x, y, msg, **kwargs)

    def assertEqualIgnoreType(self, *args: Any, **kwargs: Any) -> None:
        """`assertEqual` without a look at dtypes."""
        self.assertEqual(*args, exact_dtype=False, **kwargs)

    def assertEqualBroadcasting(self, x: Any, y: Any, *args: Any, **kwargs: Any) -> None:
        """`assertEqual` with `y`, a number or a sequence, spread over the shape of `x`."""
        y = (
            y
            if isinstance(y, torch.Tensor)
            else torch.ones_like(x) * (torch.tensor(y) if isinstance(y, Sequence) else y)
        )
        self.assertEqual(x, y, *args, **kwargs)

    def assertEqualTypeString(self, x: Any, y: Any) -> None:
        """The same device, dtype and sparseness."""
        self.assertEqual((x.device, x.dtype, x.is_sparse), (y.device, y.dtype, y.is_sparse))

    # ***** the rest *****

    def assertObjectIn(self, obj: Any, iterable: Any) -> None:
        """The object itself is among these."""
        if not any(obj is each for each in iterable):
            raise AssertionError("object not found in iterable")

    def assertExpectedInline(self, actual: str, expect: str, skip: int = 0) -> None:
        """A text is the one written in the test, whose indentation does not count."""
        super().assertEqual(textwrap.dedent(expect).strip("\n"), actual.strip("\n"))

    def assertExpectedRaisesInline(self, exc_type: Any, callable: Any, expect: str, *args: Any, **kwargs: Any) -> None:
        """A call raises this error, with the text written in the test."""
        with self.assertRaises(exc_type) as caught:
            callable(*args, **kwargs)
        self.assertExpectedInline(str(caught.exception), expect)

    def assertNoUnraisable(self, callable: Any, *args: Any, **kwargs: Any) -> None:
        """A call ends without an error in a destructor."""
        seen: list[Any] = []
        collects = gc.isenabled()
        gc.disable()
        try:
            with unittest.mock.patch("sys.unraisablehook", seen.append):
                callable(*args, **kwargs)
        finally:
            if collects:
                gc.enable()
        self.assertFalse(seen)

    @contextlib.contextmanager
    def assertLeaksNoCudaTensors(self, name: str | None = None) -> Iterator[None]:
        """A context behind which no GPU lends more memory to tensors than before."""
        devices = range(torch.cuda.device_count())
        gc.collect()
        before = [torch.cuda.memory_allocated(n) for n in devices]
        yield
        gc.collect()
        self.assertEqual(before, [torch.cuda.memory_allocated(n) for n in devices], f"{name or self.id()} leaks")


def _compare(x: Any, y: Any, place: str, rules: _Rules) -> None:
    """AssertionError where two values at one place of the nests differ."""
    x, y = _as_tensors(x, y)
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        _compare_tensors(x, y, place, rules)
    elif _is_number(x) and _is_number(y):
        _compare_tensors(
            *_number_tensors(x, y, place),
            place,
            replace(rules, checks={**rules.checks, "check_dtype": False}),
            _NUMBERS,
        )
    elif isinstance(x, Mapping) and isinstance(y, Mapping):
        if x.keys() != y.keys():
            _fail(f"The keys of the mappings do not match: {list(x)} != {list(y)}", place)
        for key in x:
            _compare(x[key], y[key], f"{place}[{key!r}]", rules)
    elif _is_sequence(x) and _is_sequence(y):
        if len(x) != len(y):
            _fail(f"The length of the sequences mismatch: {len(x)} != {len(y)}", place)
        for at, (a, b) in enumerate(zip(x, y, strict=True)):
            _compare(a, b, f"{place}[{at}]", rules)
    elif not x == y:
        _fail(f"{x!r} != {y!r}", place)


def _fail(text: str, place: str) -> None:
    raise AssertionError(f"{text}\n\nThe failure occurred for item {place}" if place else text)


def _as_tensors(x: Any, y: Any) -> tuple[Any, Any]:
    """Arrays as tensors, and a sequence beside a tensor as one too."""
    x, y = (
        torch.as_tensor(each) if type(each) is numpy.ndarray and each.dtype.kind in "biufc" else each for each in (x, y)
    )
    if isinstance(x, torch.Tensor) and _is_sequence(y):
        y = torch.as_tensor(y, dtype=x.dtype, device=x.device)
    elif isinstance(y, torch.Tensor) and _is_sequence(x):
        x = torch.as_tensor(x, dtype=y.dtype, device=y.device)
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        return (x.unbind() if x.is_nested else x), (y.unbind() if y.is_nested else y)
    return x, y


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex, torch.Tensor, numpy.generic, enum.IntEnum))


def _is_sequence(value: Any) -> bool:
    return isinstance(
        value, (Sequence, torch.nn.Sequential, torch.nn.ModuleList, torch.nn.ParameterList)
    ) and not isinstance(value, (str, bytes))


def _number_tensors(x: Any, y: Any, place: str) -> tuple[Any, Any]:
    """A number and a number, or a tensor of one element, as tensors without dimensions."""
    found = []
    for each in (x, y):
        if isinstance(each, torch.Tensor) and each.numel() != 1:
            raise ValueError(
                f"Only single element tensor-likes can be compared against a number. Got {each.numel()} elements instead.{place}"
            )
        number = each.item() if isinstance(each, (torch.Tensor, numpy.generic)) else each
        kind = next(k for k in _NUMBERS if isinstance(number, k))
        found.append(
            torch.tensor(
                kind(number),
                dtype={int: torch.int64, float: torch.float64, complex: torch.complex128, bool: torch.bool}[kind],
            )
        )
    return found[0], found[1]


def _compare_tensors(x: Any, y: Any, place: str, rules: _Rules, names: dict[type, str] | None = None) -> None:
    rtol, atol = rules.rtol, rules.atol
    if rtol is None and atol is None:
        kinds = [names[type(t.item())] for t in (x, y)] if names else [t.dtype.name for t in (x, y)]
        rtol, atol = default_tolerances(*kinds)
    if rtol is not None and atol is not None:
        rtol, atol = max(rtol, rules.least_rtol), max(atol, rules.least_atol)
    try:
        assert_close(x, y, rtol=rtol, atol=atol, equal_nan=rules.equal_nan, **rules.checks)
    except AssertionError as error:
        _fail(str(error), place)

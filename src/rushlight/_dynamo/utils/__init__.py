"""`torch._dynamo.utils`: counters of the compiler, comparisons, and whether a device has a compiler."""

from __future__ import annotations

import warnings
from typing import Any

import rushlight
from rushlight.compiler.journal import counters
from rushlight.utils._pytree import tree_flatten

__all__ = ["compile_times", "counters", "is_compile_supported", "same", "warn_once"]


_COMPILED = ("cpu",)


def is_compile_supported(device_type: Any) -> bool:
    """Whether programs on a device can be compiled: those on the CPU."""
    return str(device_type) in _COMPILED


def compile_times(repr: str = "str", aggregate: bool = False) -> Any:
    """Costs of compiling: a text, or with `repr="csv"` names and times."""
    return "TorchDynamo compilation metrics:\nFunction, Runtimes (s)\n" if repr == "str" else ([], [])


def same(ref: Any, res: Any, fp64_ref: Any = None, tol: float = 1e-4, equal_nan: bool = False) -> bool:
    """Whether two nested results agree: the same structure, tensors near each other, everything else equal."""
    (left, shape), (right, other) = tree_flatten(ref), tree_flatten(res)
    if shape != other:
        return False
    for one, two in zip(left, right, strict=True):
        if isinstance(one, rushlight.Tensor) and isinstance(two, (bool, int, float)):
            one, two = two, one
        if isinstance(one, rushlight.Tensor):
            if not isinstance(two, rushlight.Tensor) or one.dtype != two.dtype or one.shape != two.shape:
                return False
            if not rushlight.allclose(one, two, atol=tol, rtol=tol, equal_nan=equal_nan):
                return False
        elif isinstance(two, rushlight.Tensor) and isinstance(one, (bool, int, float)):
            if not same(rushlight.tensor(one, dtype=two.dtype).expand(two.shape), two, tol=tol, equal_nan=equal_nan):
                return False
        elif one != two:
            return False
    return True


_warned: set[str] = set()


def warn_once(msg: str, stacklevel: int = 1) -> None:
    """A warning, the first time that it is given."""
    if msg not in _warned:
        _warned.add(msg)
        warnings.warn(msg, stacklevel=stacklevel + 1)

"""`use_deterministic_algorithms`: new memory is filled, and operators for which PyTorch has no deterministic algorithm
are refused.

Every kernel here gives the same bits on every run.  Programs that ask for determinism still meet the rules that they
meet in PyTorch: memory nobody has written is NaN rather than whatever lay there, and the operators whose result PyTorch
leaves open raise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from rushlight._engine.core.memory import empty_spec
from rushlight._engine.core.tensor import Tensor
from rushlight._types.dtype import BOOL, DType
from rushlight._types.spec import Spec

__all__ = ["MODE", "alert", "alerting", "fill", "fresh", "grown"]


class _Mode:
    """Whether determinism is asked for, whether its absence only warns, and whether new memory is filled meanwhile."""

    __slots__ = ("fills", "on", "warns")

    def __init__(self) -> None:
        self.on = self.warns = False
        self.fills = True


MODE = _Mode()


def alert(name: str) -> None:
    """RuntimeError (or a warning) for an operator that PyTorch has no deterministic algorithm for, where one is asked
    for.
    """
    if not MODE.on:
        return
    text = f"{name} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True"
    if MODE.warns:
        warnings.warn(f"{text}, warn_only=True)'.", UserWarning, stacklevel=4)
        return
    raise RuntimeError(
        f"{text})'. You can turn off determinism just for this operation, or use the 'warn_only=True' option, if that's acceptable for your application."
    )


def alerting(name: str, plan: Callable[..., Any]) -> Callable[..., Any]:
    """A plan that calls `alert` first."""

    def run(*inputs: Any) -> Any:
        alert(name)
        return plan(*inputs)

    return run


def _filler(dtype: DType) -> Any:
    if dtype is BOOL:
        return True
    if dtype.is_integer:
        bits = dtype.itemsize * 8
        return (1 << (bits - dtype.is_signed)) - 1
    return float("nan")


def fill(tensor: Tensor) -> Tensor:
    """Fill a fresh tensor, where determinism is asked for."""
    if MODE.on and MODE.fills and tensor._storage is not None and tensor._spec.numel:
        tensor.fill_(_filler(tensor._spec.dtype))
    return tensor


def fresh(spec: Spec) -> Tensor:
    """A tensor with uninitialised elements, filled if determinism is asked for."""
    made = empty_spec(spec)
    return fill(made) if MODE.on else made


def grown(tensor: Tensor, before: int) -> None:
    """Fill the elements of a resized tensor's storage behind its first `before` bytes, where determinism is asked for."""
    storage, size = tensor._storage, tensor._spec.dtype.itemsize
    if not (MODE.on and MODE.fills) or storage is None or storage.nbytes // size <= before // size:
        return
    start, end = before // size, storage.nbytes // size
    fill(tensor.as_strided((end - start,), (1,), start))

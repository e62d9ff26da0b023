"""Tensors with tangents inside of a level that the program opens: `rushlight.autograd.forward_ad` shows this."""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight._engine.core.convert import as_alias_view
from rushlight._engine.core.state import STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.modes import _Mode
from rushlight._engine.functorch.dual import become_plain, dual, parts
from rushlight._engine.functorch.transformed import LEVELS, Level
from rushlight._surface.registry import SPACES
from rushlight._types.formats import STRIDED

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """The result of `unpack_dual`: the value, and the tangent or None."""

    primal: Tensor
    tangent: Tensor | None


def _open() -> list[Level]:
    """The levels that the program has opened."""
    return [level for level in LEVELS.stack if level.kind == "dual"]


def enter_dual_level() -> int:
    """Open a level and return its number, 0; RuntimeError inside of another: levels of forward mode do not nest here
    (see `func.jvp`).
    """
    if _open():
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    Level("dual").__enter__()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level: the tensors that were made in it lose their tangents."""
    levels = _open()
    if not levels:
        raise RuntimeError("Dual level must be a positive number.")
    become_plain(levels[-1].number)
    levels[-1].__exit__()


class dual_level(_Mode):
    """A context manager (and decorator) inside of which tensors can have tangents."""

    @staticmethod
    def current() -> int:
        """The number of the open level; -1 outside."""
        return len(_open()) - 1

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Any:
    """A view of `tensor` that moves along `tangent`, which has its shape.

    ValueError unless both are of float or complex dtype, RuntimeError outside of a level, for another shape, or where
    `tensor` or `tangent` has a tangent already.
    """
    levels = _open()
    if not levels:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for word, t in (("primal", tensor), ("tangent", tangent)):
        if not (t.is_floating_point() or t.is_complex()):
            raise ValueError(f"Expected {word} to be floating point or complex, but got: {t.dtype}")
    number = levels[-1].number
    if parts(tensor, number) is not None:
        raise RuntimeError(
            "Making a dual Tensor based on a Tensor that already has a forward gradient at the same level 0 is not supported."
        )
    if parts(tangent, number) is not None:
        raise RuntimeError(
            "Setting a forward grad that itself has a forward gradient at the same level0 is not supported."
        )
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not supported. Tensor is of size "
            f"{list(tensor.shape)} while the given forward gradient is of size {list(tangent.shape)}."
        )
    shown = tensor
    if type(tensor) is Tensor:
        seen = tensor.requires_grad or STATE.dispatch_modes
        shown = tensor.view_as(tensor) if seen else as_alias_view(tensor)
    return dual(shown, _laid_as(tensor, tangent), number)


def _laid_as(tensor: Tensor, tangent: Tensor) -> Tensor:
    """The tangent, copied where it does not lie in its storage as the tensor does: views of both agree then."""
    plain = type(tangent) is Tensor and tensor._storage is not None and tangent._storage is not None
    if not plain or tensor.layout is not STRIDED or tangent.layout is not STRIDED or tensor.dtype is not tangent.dtype:
        return tangent
    ours, room = _place(tensor)
    if _place(tangent) == (ours, room) and tensor.is_conj() == tangent.is_conj():
        return tangent
    fresh: Any = SPACES["torch"]["zeros"](room, dtype=tangent.dtype, device=tangent.device)
    moved: Tensor = fresh.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(tangent)
    return moved


def _place(tensor: Tensor) -> tuple[tuple[Any, ...], int]:
    """Offset and strides (of dims with several items), and the number of elements in the storage."""
    strides = tuple(s if n != 1 else None for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return (tensor.storage_offset(), *strides), tensor.untyped_storage().nbytes() // tensor.dtype.itemsize


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value and the tangent of a tensor; the tangent is None for those that have none."""
    levels = _open()
    if not levels:
        return UnpackedDualTensor(tensor, None)
    found = parts(tensor, levels[-1].number)
    return UnpackedDualTensor(tensor, None) if found is None else UnpackedDualTensor(*found)

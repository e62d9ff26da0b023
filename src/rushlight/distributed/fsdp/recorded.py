"""Sharded modules in compiled functions: gathering and reducing as one differentiable function of the parts.

A compiled program keeps what it gathered for its backward.  The messages are those of eager calls, so the numbers are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.sharding import RecordingError
from rushlight._interface.tensors import FUNCTION_MODE, STATE
from rushlight.autograd import Function
from rushlight.distributed.tensor import DTensor

__all__ = ["form", "gathered", "refusal", "unseen"]


def refusal(state: Any) -> str:
    """Why a compiled program does not follow a sharded module as it is now; empty where it does."""
    for group in state.groups:
        reduction = group.reduction
        hooks = (group.gatherer, reduction.scatterer, reduction.reducer, reduction.hook)
        if any(hook is not None for hook in hooks):
            return "a sharded module whose communication is replaced or hooked"
        if not (reduction.syncs and reduction.reduces_all) or reduction.held or reduction.partial:
            return "a sharded module that keeps gradients without reducing them"
        if group.near is not None:
            return "a sharded module that stays divided among neighbours"
        if group.memory is not None or group.pending is not None or group.placed:
            return "a sharded module whose parameters are gathered already"
        if any(part._parameters[key] is not m.sharded for m in group.managed for part, key in m.places):
            return "a sharded module whose parameters were replaced"
    return "" if len(state.modules) == 1 else "several modules that are sharded together"


def form(state: Any) -> tuple[Any, ...]:
    """The key of a recorded call of a sharded module, besides its tensors."""
    groups = [(g.axes.group, g.reduction.separate, g.reduction.factor, len(g.managed)) for g in state.groups]
    return refusal(state), state.policy, tuple(groups)


def gathered(group: Any, sharded: Sequence[Any]) -> tuple[Tensor, ...]:
    """The whole parameters of a group, computed from what this process has of each; their gradients are reduced
    together.
    """
    with unseen():
        found: tuple[Tensor, ...] = _Gathered.apply(group, *sharded)
    return found


@contextmanager
def unseen() -> Iterator[None]:
    """Inside, modes see no functions: a policy of checkpoints shall keep no whole parameters."""
    before = STATE.word
    STATE.word = before & ~FUNCTION_MODE
    try:
        yield
    finally:
        STATE.word = before


class _Gathered(Function):
    """All parameters of a group.  RecordingError in backward where one of them has no gradient: whether it has one on
    another process is not known while a program is recorded.
    """

    @staticmethod
    def forward(ctx: Any, group: Any, *sharded: Any) -> Any:
        ctx.group, ctx.layouts = group, [(x._mesh, x._placed, x.shape, x.stride()) for x in sharded]
        ctx.wanting = [k for k, x in enumerate(sharded) if x.requires_grad]
        ctx.set_materialize_grads(False)
        parts = group.whole_of([x._local_tensor for x in sharded])
        whole = [m._wrapped(x) for m, x in zip(group.managed, parts, strict=True)]
        ctx.whole = [x._gradient_context() if isinstance(x, DTensor) else None for x in whole]
        ctx.mark_non_differentiable(*[x for k, x in enumerate(whole) if k not in ctx.wanting])
        return tuple(whole)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        group, wanting = ctx.group, ctx.wanting
        managed = [group.managed[k] for k in wanting]
        missing = next((group.managed[k].name for k in wanting if grads[k] is None), None)
        if missing is not None:
            raise RecordingError(f"backward through a sharded module whose parameter {missing} has no gradient")
        found: list[Any] = [None] * len(grads)
        with rushlight.no_grad():
            held = [_local(grads[k], ctx.whole[k]) for k in wanting]
            for k, m, part in zip(wanting, managed, group.reduction.parts_of(managed, held), strict=True):
                found[k] = DTensor(m.own(part, group.managed[k].sharded.dtype), *ctx.layouts[k])
        return None, *found


def _local(grad: Any, context: Any) -> Tensor:
    """This process's part of a gradient that another axis of the mesh divides, too."""
    found: Tensor = grad if context is None else DTensor._as_gradient(grad, context)._local_tensor
    return found

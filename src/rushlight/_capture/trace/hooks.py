"""Hooks of tensors and nodes in a trace: backward calls that the trace records run them, instruction by instruction.

Hooks that a tensor brings along are guarded by what they are.  Hooks that the trace itself puts on its own tensors and
nodes may not outlive it: where a backward call behind the trace would have to run them, the trace ends before they are
put there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._base.handles import RemovableHandle
from rushlight._capture.recording.memory import InputBackward
from rushlight._capture.trace.guards.sources import Source
from rushlight._capture.trace.reports.events import Unbuildable
from rushlight._engine.autograd.node import AccumulateGrad, Node
from rushlight._engine.core.tensor import Tensor, meta_of

if TYPE_CHECKING:
    from rushlight._capture.trace.outside import Outside
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["FollowedHook", "HandleId", "given_hooks", "handle_tables", "is_own", "made_handle"]


class FollowedHook:
    """A hook that the engine calls while a backward call is recorded."""

    __slots__ = ("__name__", "function", "tracer")

    def __init__(self, tracer: Tracer, function: Any) -> None:
        self.tracer, self.function = tracer, function
        self.__name__ = getattr(function, "__name__", "hook")

    def __call__(self, *args: Any) -> Any:
        self.tracer.check_open(f"the hook '{self.__name__}' outlives the trace that put it there")
        return self.tracer.nested(self.function, args)


class HandleId(int):
    """The key of a hook that the trace puts somewhere: each call of its program has another one."""

    handle: RemovableHandle


def made_handle(tracer: Tracer, handle: RemovableHandle) -> RemovableHandle:
    """A handle that the trace made, whose key is told from numbers."""
    number = HandleId(handle.id)
    number.handle = handle
    handle.id = number
    tracer.kept.append(handle)
    return handle


def handle_tables(handle: RemovableHandle) -> list[dict[int, Any]]:
    """The tables of the trace that have the hook of a handle made by it."""
    tables = [ref() for ref in (handle.hooks_dict_ref, *handle.extra_dict_ref)]
    if any(table is None or any(type(hook) is FollowedHook for hook in table.values()) for table in tables):
        raise Unbuildable("the handle of a hook on what does not outlive the trace", handle)
    return tables


def is_own(tracer: Tracer, owner: Any) -> bool:
    """Whether a tensor or a node is one that the trace made, so that a hook there need not outlive the trace."""
    if isinstance(owner, Tensor):
        return tracer.rec.is_recorded(owner) and id(owner) not in tracer.outside.tensors
    if not isinstance(owner, Node) or tracer.outside.is_outside(owner):
        return False
    return not isinstance(owner, (InputBackward, AccumulateGrad))


def given_hooks(tracer: Tracer, outside: Outside, real: Tensor, made: Tensor, source: Source) -> None:
    """Give a stand-in the hooks of its tensor, guarded."""
    held = real._autograd_meta
    if held is None or not (held.hooks or held.post_hooks):
        return
    meta = meta_of(made)
    if held.hooks:
        followed = _followed(tracer, outside, held.hooks, outside.reads.source("{}._autograd_meta.hooks", source))
        if real._node is None:
            meta.hooks = followed
        else:
            assert made._node is not None
            made._node._more().tensor_hooks = {0: followed}
    if held.post_hooks:
        place = outside.reads.source("{}._autograd_meta.post_hooks", source)
        meta.post_hooks = _followed(tracer, outside, held.post_hooks, place)


def _followed(tracer: Tracer, outside: Outside, hooks: dict[int, Any], source: Source) -> dict[int, Any]:
    outside.reads.check(source, f"len({{}}) == {len(hooks)}")
    listed = outside.reads.source("[*{}.values()]", source)
    found = [outside.wrap(hook, outside.reads.source(f"{{}}[{n}]", listed)) for n, hook in enumerate(hooks.values())]
    return {n: FollowedHook(tracer, hook) for n, hook in enumerate(found)}

"""When a sharded module gathers, gives back and reduces: what happens around its forward and in its backward.

Reductions begin in the reverse order of the modules' forward calls, on every process, whatever gradients come first or
never: so collectives meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import queue_callback
from rushlight.distributed.fsdp import recorded
from rushlight.distributed.fsdp.groups import Group
from rushlight.distributed.fsdp.policies import MixedPrecisionPolicy
from rushlight.nn import Module
from rushlight.utils._pytree import tree_leaves, tree_map

__all__ = ["Context", "State", "root_context"]

# Below this many bytes waking the communication thread costs more than what overlaps.
AHEAD_BYTES = 1 << 18
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


class Context:
    """State that the sharded modules below one root share."""

    def __init__(self, root: State, states: list[State]) -> None:
        self.root, self.states = root, states
        self.active: State | None = None  # whose forward call began this iteration
        self.order: list[State] = []  # as forward calls began
        self.before: list[State] = []  # in the iteration before
        self.place = 0  # how many forward calls of the iteration have begun
        self.in_backward = False
        self.is_last = True
        self.todo: list[Group] = []  # groups to be reduced, the next one last
        self.complete: set[Group] = set()  # of these: those whose gradients have all come
        self.running: list[Group] = []
        self.opaque: set[State] = set()  # those with outputs in which tensors may be that nobody sees
        self.event: Any = None

    # ***** forward *****

    def begin_forward(self, state: State) -> None:
        """A module's forward call begins: maybe an iteration does."""
        if self.in_backward:
            return
        if self.active is None:
            self.active = state
            self.before, self.order, self.place = self.order, [], 0
            if self.event is not None:
                self.event.synchronize()
                self.event = None
            self.opaque = set()
            for other in self.states:
                other.to_run = set()
        if state not in self.order:
            self.order.append(state)

    def next_forward(self, state: State) -> Sequence[State]:
        """Whose parameters are gathered ahead: the ones asked for, else the next of the iteration before."""
        if state.forward_ahead is not None:
            return state.forward_ahead
        place = len(self.order)
        if self.in_backward or self.before[place - 1 : place] != [state]:
            return ()
        return [s for s in self.before[place : place + 1] if s.nbytes >= AHEAD_BYTES]

    def end_forward(self, state: State) -> None:
        if self.active is state:
            self.active = None
            for other in self.states:
                for group in other.groups:
                    group.drop()

    # ***** backward *****

    def begin_backward(self) -> None:
        """The first news of a backward call."""
        if self.in_backward:
            return
        queue_callback(self.end_backward)
        self.in_backward = True
        self.todo = [group for state in self.order for group in state.groups if group.reduction.wanting]
        self.complete = set()
        for state in self.order:
            if state in self.opaque:
                state.unshard_in_backward()

    def next_backward(self, state: State) -> Sequence[State]:
        """Whose parameters are gathered ahead: the ones asked for, else the one whose forward came before."""
        if state.backward_ahead is not None:
            return state.backward_ahead
        if state not in self.order:
            return ()
        place = self.order.index(state)
        return [s for s in self.order[max(place - 1, 0) : place] if s.nbytes >= AHEAD_BYTES]

    def ready(self, group: Group) -> None:
        """All gradients of a group have come: reduce those whose turn it is."""
        self.begin_backward()
        if group not in self.todo:
            self._reduce(group)
            return
        self.complete.add(group)
        while self.todo and self.todo[-1] in self.complete:
            self._reduce(self.todo.pop())

    def _reduce(self, group: Group) -> None:
        alone = not self.todo or group.nbytes < AHEAD_BYTES  # what is left to overlap with?
        if group.reduction.launch(ahead=not alone):
            if group not in self.running:
                self.running.append(group)
            while len(self.running) > group.state.buffers:
                self.running.pop(0).reduction.finish()
        if group.state.reshards_after_backward:
            group.reshard()

    def end_backward(self) -> None:
        """Reduce what has not come whole, wait for all reductions, and give all parameters back."""
        while self.todo:
            self._reduce(self.todo.pop())
        for state in self.states:
            for group in state.groups:
                if group.reduction.count:  # gradients after the reduction, or of a module whose forward is not known
                    self._reduce(group)
                elif state.reshards_after_backward and (group.memory is not None or group.pending is not None):
                    group.reshard()
            state.to_run = set()
        self.in_backward = False
        if self.is_last:
            for group in self.running:
                group.reduction.finish()
            self.running = []

    def reset(self) -> None:
        """As after a finished iteration; gradients that were not reduced are dropped."""
        for state in self.states:
            state.depth, state.to_run = 0, set()
            for group in state.groups:
                group.reduction.forget()
                group.reshard()
        self.active, self.in_backward, self.todo, self.running, self.order = None, False, [], [], []
        self.complete, self.opaque = set(), set()


class State:
    """One call of `fully_shard`: its modules, and the groups of their parameters."""

    def __init__(
        self, modules: Sequence[Module], groups: Sequence[Group], policy: MixedPrecisionPolicy, reshards: bool | None
    ) -> None:
        self.modules, self.groups, self.policy = list(modules), list(groups), policy
        self.decides = reshards is None  # whether to give back after forward depends on whether this is the root
        self.reshards = reshards is None or reshards
        self.reshards_after_backward = self.unshards_in_backward = True
        self.buffers = 1  # reductions that run at once
        self.context: Context | None = None
        self.forward_ahead: Sequence[State] | None = None
        self.backward_ahead: Sequence[State] | None = None
        self.depth = 0  # of nested calls
        self.to_run: set[Module] = set()  # of several modules: those not called yet in this iteration
        for group in self.groups:
            group.state = self

    @property
    def nbytes(self) -> int:
        """Bytes of all whole parameters."""
        return sum(group.nbytes for group in self.groups)

    def ready(self, group: Group) -> None:
        """All gradients of a group have come."""
        context = self.context
        assert context is not None
        context.ready(group)

    # ***** in compiled functions *****

    def form(self) -> tuple[Any, ...]:
        """See `recorded.form`."""
        return recorded.form(self)

    def gathered(self, number: int, sharded: Sequence[Any]) -> tuple[Tensor, ...]:
        """The whole parameters of a group, as functions of the parts."""
        return recorded.gathered(self.groups[number], sharded)

    def cast_inputs(self, args: Any, kwargs: Any) -> Any:
        """The arguments of a module in the dtype that its policy says; None where that says nothing."""
        dtype = self.policy.param_dtype
        if dtype is None or not self.policy.cast_forward_inputs:
            return None
        return tree_map(lambda x: _cast(x, dtype), (args, kwargs))

    def cast_outputs(self, outputs: Any) -> Any:
        """Its results in the dtype that the policy says."""
        dtype = self.policy.output_dtype
        return outputs if dtype is None else tree_map(lambda x: _cast(x, dtype), outputs)

    # ***** forward *****

    def enter(self, module: Module) -> None:
        """Gather, and let the module see its whole parameters."""
        context = root_context(self)
        context.begin_forward(self)
        if not self.depth and not self.to_run:
            self.to_run = set(self.modules)
        self.to_run.discard(module)
        self.depth += 1
        with recorded.unseen():
            for group in self.groups:
                group.unshard()
                group.place()
            for state in context.next_forward(self):
                for group in state.groups:
                    group.begin()

    def leave(self) -> None:
        """The module was called: give its parameters back, after the last of several modules."""
        self.depth -= 1
        context = self.context
        assert context is not None
        with recorded.unseen():
            if self.reshards and not self.depth and not self.to_run and not context.in_backward:
                for group in self.groups:
                    group.reshard(keep_near=group.near is not None and rushlight.is_grad_enabled())
            if not self.depth:
                context.end_forward(self)

    def before(self, module: Module, args: Any, kwargs: Any) -> Any:
        """Hook before a module's forward."""
        self.enter(module)
        return self.cast_inputs(args, kwargs)

    def after(self, module: Module, args: Any, outputs: Any) -> Any:
        """Hook after a module's forward, whatever happened."""
        self.leave()
        outputs = self.cast_outputs(outputs)
        if rushlight.is_grad_enabled():
            self.watch(outputs)
        return outputs

    # ***** backward *****

    def watch(self, outputs: Any) -> None:
        """Let the gradients of outputs begin the module's backward, or any gradient where an output may hide tensors."""
        for x in (outputs,) if isinstance(outputs, Tensor) else tree_leaves(outputs):
            if isinstance(x, Tensor):
                if x.requires_grad:
                    x.register_hook(self._begin_backward)
                    base = x._base  # a change of the view in place takes the node of the view out of the graph
                    if base is not None and base.requires_grad and not base.is_leaf:
                        base.register_hook(self._begin_backward)
            elif not isinstance(x, _PLAIN) and self.context is not None:
                self.context.opaque.add(self)

    def _begin_backward(self, grad: Any) -> None:
        context = self.context
        assert context is not None
        context.begin_backward()
        self.unshard_in_backward()
        for state in context.next_backward(self):
            if state.unshards_in_backward:
                for group in state.groups:
                    group.begin(backward=True)

    def unshard_in_backward(self) -> None:
        """Gather, for operators and for what is computed again."""
        if self.unshards_in_backward:
            for group in self.groups:
                group.unshard(backward=True)
                group.place()


def root_context(state: State) -> Context:
    """The context of a module; where it has none yet it is the root of those below."""
    if state.context is not None:
        return state.context
    found: list[State] = []
    for module in state.modules:
        for name, part in module.named_modules():
            other = getattr(part, "_fsdp_state", None)
            if other is not None and other not in found:
                found.append(other)
                for m in (m for group in other.groups for m in group.managed):
                    m.name = f"{name}.{m.name}" if name else m.name
    context = Context(state, found)
    for other in found:
        other.context = context
        if other.decides:
            other.reshards = other is not state
    return context


def _cast(x: Any, dtype: Any) -> Any:
    return x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x

"""Control flow over tensors in a trace: `cond` and `while_loop` become entries of the recording, both ways recorded.

A function given to them may read what it likes, and change nothing: neither tensors nor objects from outside.  Whatever
does not fit ends the trace, and the call runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._base.pytree import tree_flatten, tree_unflatten
from rushlight._capture.recording.control_flow import ONE_SIDED, BranchBackward, behind, closed, one_sided, results_of
from rushlight._capture.recording.log import Branch, Call, Check, Collective, Copy, Draw, Fill, Loop, Move, Read
from rushlight._capture.trace.outside import ABSENT
from rushlight._capture.trace.reports.events import Break
from rushlight._engine.autograd.node import next_sequence
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.functorch.transformed import LEVELS
from rushlight._types.spec import Spec

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["cond", "recorded_part", "while_loop"]


def cond(tracer: Tracer, pred: Any, true_fn: Any = None, false_fn: Any = None, operands: Any = (), **rest: Any) -> Any:
    """Record a `cond` on a recorded predicate; ABSENT where the call is to be followed."""
    if rest or not _is_open(tracer, pred) or not (callable(true_fn) and callable(false_fn)):
        return ABSENT
    if not isinstance(operands, (tuple, list)) or any(not isinstance(x, Tensor) for x in tree_flatten(operands)[0]):
        return ABSENT
    condition = tracer.native(_as_bool, pred)
    before = next_sequence()
    first, second = [recorded_part(tracer, "cond", function, tuple(operands)) for function in (true_fn, false_fn)]
    if first.tree != second.tree or first.constants != second.constants:
        raise Break("the functions of cond give other structures, or other constants")
    kinds = [[(x._spec.dtype, tuple(x._spec.shape)) for x in each.tensors] for each in (first, second)]
    if kinds[0] != kinds[1]:
        raise Break("the functions of cond give tensors of other shapes or dtypes")
    made = tracer.native(results_of, [x._spec for x in first.tensors])
    parts = (closed(first.part, first.tensors), closed(second.part, second.tensors))
    entry = Branch(condition._ptr, parts, [x._ptr for x in made])
    tracer.rec.note(entry)
    tracer.kept.append(condition)
    tracer.note_cond(pred, tree_flatten(operands)[0], [(each.document, each.tensors) for each in (first, second)], made)
    if STATE.word & GRAD and any(x._rg for x in (*first.tensors, *second.tensors)):
        zeros = bool(tracer.settings.options.get("allow_reordering")) or tracer.settings.backend is not None
        if not zeros and one_sided((first.tensors, second.tensors), before):
            raise Break(ONE_SIDED)
        behind(made, BranchBackward(tracer.rec, entry, (first.tensors, second.tensors), before, zeros))
    return first.with_tensors(made)


def while_loop(tracer: Tracer, cond_fn: Any, body_fn: Any = None, carried_inputs: Any = None, **rest: Any) -> Any:
    """Record a `while_loop` over recorded tensors; ABSENT where the call is to be followed."""
    if rest or not isinstance(carried_inputs, (tuple, list)) or not (callable(cond_fn) and callable(body_fn)):
        return ABSENT
    leaves, tree = tree_flatten(tuple(carried_inputs))
    if not leaves or LEVELS.stack or any(not (isinstance(x, Tensor) and tracer.rec.is_recorded(x)) for x in leaves):
        return ABSENT
    if any(not x._spec.contiguous or x._spec.conj for x in leaves):
        raise Break("while_loop carries tensors that are not row-major")
    if STATE.word & GRAD and any(x._rg for x in leaves):
        raise Break("gradients of while_loop go through the iterations that ran")
    held = [tracer.rec.cotangent(Spec.of(x._spec.dtype, x._spec.device, x._spec.shape)) for x in leaves]
    given = tree_unflatten(held, tree)
    ahead = recorded_part(tracer, "while_loop", cond_fn, given, as_bool=True)
    body = recorded_part(tracer, "while_loop", body_fn, given)
    if body.constants or [(x._spec.dtype, x._spec.shape) for x in body.tensors] != [
        (x._spec.dtype, x._spec.shape) for x in held
    ]:
        raise Break("the body of while_loop gives other tensors than it is given")
    if STATE.word & GRAD and any(x._rg for x in body.tensors):
        raise Break("gradients of while_loop go through the iterations that ran")
    made = tracer.native(results_of, [x._spec for x in held])
    parts = (closed(ahead.part, ahead.tensors), closed(body.part, body.tensors))
    carried = [(x._ptr, x._spec) for x in held]
    tracer.rec.note(Loop([x._ptr for x in leaves], carried, parts, [x._ptr for x in made]))
    tracer.kept += [held, leaves]
    return body.with_tensors(made)


class _Recorded:
    """A function that was recorded as a part, and what it gave."""

    def __init__(self, part: Any, leaves: Sequence[Any], tree: Any, document: Any) -> None:
        self.part, self.tree, self.document = part, tree, document
        self.leaves = list(leaves)
        self.tensors = [x for x in leaves if isinstance(x, Tensor)]
        self.constants = [(k, type(x), x) for k, x in enumerate(leaves) if not isinstance(x, Tensor)]

    def with_tensors(self, tensors: Sequence[Tensor]) -> Any:
        """The structure that the function gave, with other tensors."""
        left = iter(tensors)
        return tree_unflatten([next(left) if isinstance(x, Tensor) else x for x in self.leaves], self.tree)


def _is_open(tracer: Tracer, pred: Any) -> bool:
    """Whether a predicate is known when the program runs, and not before."""
    if not isinstance(pred, Tensor) or not tracer.rec.is_recorded(pred) or pred._spec.numel != 1 or LEVELS.stack:
        return False
    return tracer.rec.known_bytes(pred._ptr, pred._spec.dtype.itemsize) is None


def _as_bool(x: Tensor) -> Tensor:
    word, STATE.word = STATE.word, STATE.word & ~GRAD
    try:
        found: Tensor = x.detach().reshape(()).ne(0)
        return found
    finally:
        STATE.word = word


def recorded_part(
    tracer: Tracer, name: str, function: Callable[..., Any], args: tuple[Any, ...], as_bool: bool = False
) -> _Recorded:
    """Follow a function as a part of control flow."""
    before, word = _changes(tracer), STATE.word
    with tracer.rec.part() as part, tracer.documented() as document:
        leaves, tree = tree_flatten(found := tracer.nested(function, args))
        leaves = [tracer.real(x) for x in leaves]
        if document is not None and not isinstance(found, Tensor):
            for x in leaves:
                document.name("child", x)  # as in PyTorch's graphs
        if as_bool:
            if len(leaves) != 1 or not isinstance(leaves[0], Tensor) or leaves[0]._spec.numel != 1:
                raise Break(f"a function of {name} gives something else than a tensor of one element")
            leaves = [tracer.native(_as_bool, leaves[0])]
    if _changes(tracer) != before or STATE.word != word:
        raise Break(f"a function of {name} changes something outside of it")
    for x in leaves:
        if isinstance(x, Tensor):
            if not tracer.rec.is_recorded(x) or tracer.rec.memory_at(x._ptr).address not in part.own:
                raise Break(f"a function of {name} gives back a tensor that it was given, or a view of one")
            if not x._spec.contiguous or x._spec.conj:
                raise Break(f"a function of {name} gives a tensor that is not row-major")
        elif type(x) is not int:
            raise Break(f"a function of {name} gives a {type(x).__name__}")
    for entry in part.log:
        _check_entry(tracer, name, entry, part.own)
    return _Recorded(part, leaves, tree, document)


def _check_entry(tracer: Tracer, name: str, entry: Any, own: set[int]) -> None:
    if isinstance(entry, (Check, Collective, Draw, Move, Read)):
        what = {
            Check: "checks elements", Collective: "communicates", Draw: "draws random numbers", Read: "reads a number",
            Move: "copies a number of the host",
        }[type(entry)]  # fmt: skip
        raise Break(f"a function of {name} {what}")
    if isinstance(entry, Call):
        written = [entry.words[n] for n in entry.exe.aliased]
    else:
        written = [entry.address] if isinstance(entry, (Copy, Fill)) else []
    if any(tracer.rec.memory_at(address).address not in own for address in written):
        raise Break(f"a function of {name} changes a tensor in place")


def _changes(tracer: Tracer) -> tuple[Any, ...]:
    """Changes that a trace has made outside of it so far."""
    outside = tracer.outside
    waiting = [(key, sorted((name, id(x)) for name, x in held.items())) for key, held in outside.attributes.items()]
    spaces = [(key, sorted((name, id(x)) for name, x in held.items())) for key, held in outside.globals.items()]
    changed = [key for key, shadow in outside.shadows.items() if shadow.changed()]
    appended = sum(len(lazy.appended) for lazy in outside.lazies.values())
    return waiting, spaces, changed, appended, len(tracer.effects)

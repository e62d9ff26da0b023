"""Functions of functions in graphs for other backends: `while_loop`, `scan`, `map` and `associative_scan` are one node
each, as PyTorch's graphs have them, with a graph for each function.

Our own backend gets `while_loop` as an entry of the recording (`control_flow`), and what the others do step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._base.pytree import tree_flatten, tree_unflatten
from rushlight._capture.recording.control_flow import behind, results_of
from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.trace import control_flow
from rushlight._capture.trace.documents.document import Part
from rushlight._capture.trace.outside import ABSENT
from rushlight._capture.trace.reports.events import Break
from rushlight._engine.autograd.node import Node, edge_of
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.functorch.transformed import LEVELS
from rushlight._types.spec import Spec

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["associative_scan", "map_slices", "scan", "while_loop"]


class _Elsewhere(Node):
    """The history of results that only another backend computes."""

    def __init__(self, count: int, tensors: Sequence[Tensor]) -> None:
        self.count = count
        self._start([edge_of(x) for x in tensors if x._rg])

    @property
    def _n_outputs(self) -> int:  # type: ignore[override]
        return self.count

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """Not part of a graph."""
        raise RecordingError("backward through a function of functions cannot be part of a graph for another backend")


def while_loop(tracer: Tracer, cond_fn: Any, body_fn: Any = None, carried_inputs: Any = None, **rest: Any) -> Any:
    """A loop as a node, or as an entry of the recording; ABSENT where it is to be followed."""
    if not _is_for_others(tracer) or rest or not isinstance(carried_inputs, (tuple, list)):
        return control_flow.while_loop(tracer, cond_fn, body_fn, carried_inputs, **rest)
    leaves, tree = _tensors("while_loop", tuple(carried_inputs))
    held = [_stand_in(tracer, x._spec.shape, x) for x in leaves]
    given = tree_unflatten(held, tree)
    ahead = control_flow.recorded_part(tracer, "while_loop", cond_fn, given)
    body = control_flow.recorded_part(tracer, "while_loop", body_fn, given)
    if len(ahead.tensors) != 1 or ahead.constants:
        raise Break("the condition of while_loop gives something else than a tensor")
    _same("while_loop", body, held)
    parts = [("cond_fn", Part(ahead.document.calls, tuple(ahead.tensors), held)), _part("body_fn", body, held)]
    specs = [(x._spec.dtype, x._spec.shape) for x in held]
    return body.with_tensors(_node(tracer, "while_loop", parts, [tuple(leaves)], specs))


def scan(
    tracer: Tracer, combine_fn: Any, init: Any = None, xs: Any = None, *, dim: Any = 0, reverse: Any = False
) -> Any:
    """A scan as a node; ABSENT where it is to be followed."""
    if not _is_for_others(tracer) or not tree_flatten(xs)[0]:
        return ABSENT
    carry, carry_tree = _tensors("scan", init)
    slices, tree = _tensors("scan", xs)
    along = _along(tracer, slices, dim, reverse)
    held = [_stand_in(tracer, x._spec.shape, x) for x in carry]
    held += [_stand_in(tracer, x._spec.shape[1:], x) for x in along]
    given = tree_unflatten(held[: len(carry)], carry_tree), tree_unflatten(held[len(carry) :], tree)
    body = control_flow.recorded_part(tracer, "scan", combine_fn, given)
    if body.constants or len(body.tensors) < len(carry):
        raise Break("the function of scan gives something else than a carry and results")
    _same("scan", body, held[: len(carry)])
    count = along[0]._spec.shape[0]
    specs = [(x._spec.dtype, tuple(x._spec.shape)) for x in body.tensors]
    specs[len(carry) :] = [(dtype, (count, *shape)) for dtype, shape in specs[len(carry) :]]
    made = _node(tracer, "scan", [_part("scan_combine_fn", body, held)], [list(carry), list(along)], specs)
    made[len(carry) :] = _back(tracer, made[len(carry) :], dim, reverse)
    found: Any = body.with_tensors(made)
    return tuple(found)


def map_slices(tracer: Tracer, f: Any, xs: Any, *args: Any) -> Any:
    """`map` as a node; ABSENT where it is to be followed."""
    if not _is_for_others(tracer):
        return ABSENT
    slices, tree = _tensors("map", xs)
    held = [_stand_in(tracer, x._spec.shape[1:], x) for x in slices]
    body = control_flow.recorded_part(tracer, "map", f, (tree_unflatten(held, tree), *args))
    if body.constants:
        raise Break("the function of map gives something else than tensors")
    count = slices[0]._spec.shape[0]
    specs = [(x._spec.dtype, (count, *x._spec.shape)) for x in body.tensors]
    return body.with_tensors(_node(tracer, "map_impl", [_part("map_body", body, held)], [list(slices)], specs))


def associative_scan(
    tracer: Tracer, combine_fn: Any, xs: Any, dim: Any, reverse: Any = False, combine_mode: Any = "pointwise", **rest: Any
) -> Any:  # fmt: skip
    """An associative scan as a node; ABSENT where it is to be followed."""
    if not _is_for_others(tracer) or combine_mode not in ("pointwise", "generic"):
        return ABSENT
    leaves, tree = _tensors("associative_scan", xs)
    along = _along(tracer, leaves, dim, reverse)
    held = [_stand_in(tracer, x._spec.shape[1:], x) for x in (*along, *along)]
    given = tree_unflatten(held[: len(along)], tree), tree_unflatten(held[len(along) :], tree)
    body = control_flow.recorded_part(tracer, "associative_scan", combine_fn, given)
    _same("associative_scan", body, held[: len(along)])
    specs = [(x._spec.dtype, x._spec.shape) for x in along]
    part = _part("associative_scan_combine_fn", body, held)
    made = _node(tracer, "associative_scan", [part], [list(along)], specs)
    return tree_unflatten(_back(tracer, made, dim, reverse), tree)


def _is_for_others(tracer: Tracer) -> bool:
    return tracer.settings.backend is not None and not LEVELS.stack


def _tensors(name: str, tree: Any) -> tuple[list[Tensor], Any]:
    """The tensors of nested containers, and their structure."""
    leaves, spec = tree_flatten(tree)
    if not leaves or any(not isinstance(x, Tensor) for x in leaves):
        raise Break(f"{name} over something else than tensors in a graph for another backend")
    return leaves, spec


def _stand_in(tracer: Tracer, shape: Sequence[int], like: Tensor) -> Tensor:
    """A tensor inside of a part."""
    made: Tensor = tracer.rec.cotangent(Spec.of(like._spec.dtype, like._spec.device, tuple(shape)))
    return made


def _same(name: str, body: Any, held: Sequence[Tensor]) -> None:
    """Break where a function gives other tensors than it carries."""
    kinds = [[(x._spec.dtype, tuple(x._spec.shape)) for x in each] for each in (body.tensors[: len(held)], held)]
    if kinds[0] != kinds[1] or body.constants:
        raise Break(f"the function of {name} gives other tensors than it is given")


def _part(stem: str, body: Any, held: Sequence[Tensor]) -> tuple[str, Part]:
    return stem, Part(body.document.calls, tuple(body.tensors), held)


def _along(tracer: Tracer, leaves: Sequence[Tensor], dim: Any, reverse: Any) -> list[Tensor]:
    """Tensors with the dim of a scan in front, in its direction."""
    sizes = {x._spec.shape[dim] if -x._spec.ndim <= dim < x._spec.ndim else 0 for x in leaves}
    if type(dim) is not int or len(sizes) > 1 or not min(sizes):
        raise Break("a scan whose tensors have no common size")
    found = [x if not dim else tracer.nested(Tensor.movedim, (x, dim, 0)) for x in leaves]  # type: ignore[attr-defined]
    return [tracer.nested(Tensor.flip, (x, 0)) if reverse else x for x in found]  # type: ignore[attr-defined]


def _back(tracer: Tracer, made: Sequence[Tensor], dim: Any, reverse: Any) -> list[Tensor]:
    """Results of a scan, as the program wants them."""
    found = [tracer.nested(Tensor.flip, (x, 0)) if reverse else x for x in made]  # type: ignore[attr-defined]
    return [x if not dim else tracer.nested(Tensor.movedim, (x, 0, dim)) for x in found]  # type: ignore[attr-defined]


def _node(
    tracer: Tracer, target: str, parts: Sequence[tuple[str, Part]], groups: Sequence[Any], specs: Sequence[Any]
) -> list[Tensor]:
    """Write the node down; its results."""
    operands = [x for group in groups for x in group]
    device = operands[0]._spec.device
    made = tracer.native(results_of, [Spec.of(dtype, device, tuple(shape)) for dtype, shape in specs])
    tracer.note_higher(target, parts, groups, made)
    tracer.kept.append([part.inputs for _, part in parts])
    if STATE.word & GRAD and any(x._rg for x in (*operands, *(y for _, part in parts for y in part.results))):
        behind(made, _Elsewhere(len(made), operands))
    return list(made)

"""Views: other specs over the same storage, and what autograd remembers of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rushlight._backends.current_streams import CURRENT_STREAMS
from rushlight._backends.registry import backend_of
from rushlight._base.lazy import LazyModule
from rushlight._engine.autograd.hooks import retain, stop_retaining
from rushlight._engine.autograd.node import Node, next_sequence
from rushlight._engine.core.hooks import HOOKS, OPS
from rushlight._engine.core.integers import as_int, as_ints
from rushlight._engine.core.memory import has_memory
from rushlight._engine.core.state import FUNCTION_MODE, GRAD, INFERENCE, RECORDING, STATE, STREAMED
from rushlight._engine.core.tensor import (
    BOTH_SIDES,
    CHANGED,
    Tensor,
    add_view,
    dispatch_classes,
    edge_of,
    make,
    meta_of,
)
from rushlight._engine.dispatch.backward_spec import BackwardSpec, SizedBackward
from rushlight._engine.dispatch.graph_calls import GRAPH_CALLS
from rushlight._engine.dispatch.kept.plan_store import further_note, keep, packing, part_key, view_key
from rushlight._engine.dispatch.lower import Backward, Literal, differentiate, differentiate_graph, trace_operator
from rushlight._engine.dispatch.lowered_call import node_name
from rushlight._engine.dispatch.plans.native_lookup import RUNS, ran
from rushlight._engine.dispatch.plans.native_plans import Recast, retyped_plan
from rushlight._engine.dispatch.plans.native_plans import view_plan as native_view
from rushlight._engine.dispatch.plans.plan_templates import LazyFallback, ShowTemplate
from rushlight._engine.dispatch.plans.shape_classes import Found, ShapeClasses, abstracted, casting, symbolic
from rushlight._engine.dispatch_types.base import DispatchType
from rushlight._graph.core import Graph, GraphBuilder
from rushlight._graph.view_outputs import moved_layouts
from rushlight._ops.bodies import taken
from rushlight._ops.table import Operator
from rushlight._types.dtype import DType
from rushlight._types.layout import LARGEST, Cut, extent, numel, overflowed, overlaps_itself
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.spec import Spec, bytes_on

if TYPE_CHECKING:
    from rushlight._engine.dispatch.kept.plan_packing import ViewRecord

__all__ = ["as_strided", "link_view", "view_casting", "view_plan"]

kept_plans: Any = LazyModule("rushlight._engine.dispatch.kept.kept_plans")  # with the first plan

_new = object.__new__
# Operators whose views share one node and so may not be changed in place; others (`tensor_split`) make slices with a
# node each.
MULTIPLE = frozenset(("SplitBackward0", "SplitWithSizesBackward0", "UnbindBackward0", "ChunkBackward0"))
FEW = 16  # parts of a tensor for which a plan template of their views pays
MULTIPLE_OPERATORS = frozenset(("split", "split_with_sizes", "unbind", "chunk"))


class ViewPieces:
    """Contents of the plan of a view; sizes may be symbolic.

    `layouts`: shape, strides and offset of each result; `backwards`: the backward of all results together, or, with
    `apart`, of each.
    """

    __slots__ = ("apart", "backwards", "layouts", "name", "several")

    def __init__(self, op: Operator, template: Sequence[Any], spec: Any, wants: bool) -> None:
        graph, count = trace_operator(op, template, [spec])
        found = moved_layouts(graph, [spec, *[None] * (len(graph.inputs) - 1)])
        if found is None:
            raise RuntimeError(
                f"{op.name}: view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
                f"subspaces): input has shape {list(spec.shape)} and strides {list(spec.strides)}. Use .reshape(...) instead."
            )
        self.layouts = [(shape, strides, offset) for _, shape, strides, offset in found]
        if op.strides is not None:
            steps = op.strides(spec, *_further_arguments(template))
            self.layouts = [(shape, tuple(steps), offset) for shape, _, offset in self.layouts]
        if op.cut is not None:
            self.layouts = op.cut(spec, *_further_arguments(template)).layouts(spec.shape, spec.strides)
        self.several = op.schema.returns_list or len(op.schema.results) > 1
        self.backwards: list[Any] = []
        self.name, self.apart = "", False
        if not wants:
            return
        self.name = node_name(op, template, [spec])
        self.apart = self.several and self.name not in MULTIPLE
        if self.apart:
            singles = [Graph(graph.inputs, graph.nodes, [v]) for v in graph.outputs]
            self.backwards = [differentiate_graph(g, 1, [0], [True]) for g in singles]
        else:
            self.backwards = [differentiate(op, template, [spec], [0], [True] * count)]


def _further_arguments(template: Sequence[Any]) -> list[Any]:
    """The arguments of a call of a view after the tensor."""
    return [v.value if isinstance(v, Literal) else v for v in template[1:]]


class CutPieces:
    """The same as `ViewPieces` for a view of many parts: tracing costs more for each part than showing it, and these
    are traced for their derivatives alone, on the first use of one.
    """

    __slots__ = ("apart", "backwards", "layouts", "name", "several")

    def __init__(self, op: Operator, template: Sequence[Any], spec: Spec, wants: bool, cut: Cut) -> None:
        self.layouts, self.several = cut.layouts(spec.shape, spec.strides), True
        self.backwards: list[Any] = []
        self.name, self.apart = "", False
        if not wants:
            return
        count = len(cut.bounds)
        self.name = node_name(op, template, [spec])
        self.apart = self.name not in MULTIPLE
        if self.apart:
            self.backwards = [CutBackward(partial(_part_backward, spec, cut.part(k))) for k in range(count)]
        else:
            self.backwards = [CutBackward(lambda: differentiate(op, template, [spec], [0], [True] * count))]


class CutBackward:
    """The `Backward` of parts of a tensor, which saves nothing; its graphs are made on first use."""

    __slots__ = ("_derive", "_derived", "outputs", "parts", "saved")

    def __init__(self, derive: Callable[[], Backward]) -> None:
        self._derive = derive
        self._derived: Backward | None = None
        self.saved: list[tuple[str, int]] = []
        self.outputs: list[int | None] = [0]
        self.parts = False

    def _made(self) -> Backward:
        if self._derived is None:
            self._derived = self._derive()
        return self._derived

    @property
    def forward(self) -> Graph:
        """The forward graph."""
        return self._made().forward

    @property
    def graph(self) -> Graph:
        """The backward graph."""
        return self._made().graph


def _part_backward(spec: Spec, part: Cut) -> Backward:
    """The backward of one part of a tensor alone."""
    builder = GraphBuilder()
    x = builder.input(tuple(spec.shape), spec.dtype)
    with builder:
        outputs = taken(x, part)
    return differentiate_graph(builder.finish(outputs), 1, [0], [True])


class ViewTemplate(ShowTemplate):
    """The pieces of a view with symbolic sizes; `wants`: whether it records.

    `again`: copies the first native plan with other numbers; False if there is no native plan.
    """

    __slots__ = ("again", "backwards", "pieces", "wants")

    def __init__(self, pieces: ViewPieces, shape_env: ShapeEnv, wants: bool) -> None:
        super().__init__([(0, *layout) for layout in pieces.layouts])
        self.wants = wants
        self.pieces, self.backwards = pieces, [SizedBackward(b, shape_env) for b in pieces.backwards]
        self.again: Any = None

    def literal(self, values: Sequence[int], sizes: Sequence[int]) -> str:
        """The contents of a plan for these sizes, as text."""
        back = [line for b in self.backwards for line in b.literal(sizes)]
        return "\n".join(
            [f"{self.pieces.name} {self.pieces.several} {self.pieces.apart} {super().literal(values, sizes)}", *back]
        )


def view_plan(
    op: Operator, template: Sequence[Any], tensor: Tensor, shape_classes: ShapeClasses
) -> tuple[Callable[..., Any], Found | None]:
    """The plan of a view operator, which returns a tensor or a tuple of tensors; and the template it was cast from, if
    any.
    """
    spec, origin = tensor._spec, (op, template, [tensor._spec])
    wants = bool(STATE.word & GRAD) and tensor._rg
    cut = None if op.cut is None else op.cut(spec, *_further_arguments(template))
    if cut is not None and len(cut.bounds) > FEW:
        note = further_note(lambda: view_key(op, template, spec, wants)) if wants else None
        many, key = CutPieces(op, template, spec, wants, cut), None if note is None else note.key
        return _planned(origin, op, spec, many, many.layouts, many.backwards, None, key), None
    key = view_key(op, template, spec, wants)
    kept = None if key is None else kept_plans.kept_view(key, spec, lambda: ViewPieces(op, template, spec, wants))
    sizes: list[int] = []
    head = abstracted(tuple(template), sizes)
    if kept is not None:
        shape_classes.meet((head, STATE.word, wants), [spec], sizes)
        return _planned(origin, op, spec, kept, kept.layouts, kept.backwards, None, key), None
    found = (
        shape_classes.find((head, STATE.word, wants), [spec], _template_maker(op, head, wants), sizes)
        if backend_of(spec.device).symbolic
        else None
    )
    if found is not None:
        return _cast(op, spec, *found[:3], origin=origin, key=key), found
    pieces = ViewPieces(op, template, spec, wants)
    if key is not None:
        keep(key, lambda: packing.packed_view(pieces, pieces.layouts, pieces.backwards))
    return _planned(origin, op, spec, pieces, pieces.layouts, pieces.backwards, None, key), None


def _template_maker(op: Operator, head: Sequence[Any], wants: bool) -> Callable[[ShapeEnv, list[Any]], ViewTemplate]:
    """A function that makes the plan template of a view; `head` is the call's template without sizes."""

    def make(shape_env: ShapeEnv, symbolic_specs: list[Any]) -> ViewTemplate:
        return ViewTemplate(
            ViewPieces(op, symbolic(head, shape_env.symbols), symbolic_specs[0], wants), shape_env, wants
        )

    return make


def view_casting(
    op: Operator, template: Sequence[Any], spec: Spec, found: Found
) -> tuple[Callable[..., Any], bool] | None:
    """The arguments of `cache_shape_class` for this call of a view; None if a size may come from elsewhere than the
    arguments.
    """
    sizes: list[int] = []
    head = abstracted(tuple(template), sizes)
    if any(abstracted(a.default, []) != a.default for a in op.schema.arguments):
        return None
    make = _template_maker(op, head, found.plan_template.wants)

    def plan(
        plan_template: ViewTemplate, values: tuple[int, ...], sizes: Sequence[int], specs: Sequence[Spec]
    ) -> Callable[..., Any]:
        note = further_note(lambda: view_key(op, symbolic(head, sizes), specs[0], plan_template.wants))
        key = None if note is None else note.key
        return _cast(op, specs[0], plan_template, values, sizes, lambda: (op, symbolic(head, sizes), list(specs)), key)

    return (lambda known: casting(found, [spec], len(sizes), make, plan, known)), True


def _cast(
    op: Operator,
    spec: Spec,
    plan_template: ViewTemplate,
    values: tuple[int, ...],
    sizes: Sequence[int],
    origin: Any,
    key: bytes | None = None,
) -> Callable[..., Any]:
    """The plan of a view for one set of sizes; `origin` is the call that its backward spec belongs to, or makes it;
    `key` that of its record.
    """
    pieces, layouts = plan_template.pieces, [layout[1:] for layout in plan_template.layouts(values)]
    backwards = [b.at(sizes) for b in plan_template.backwards]
    if key is not None:
        keep(key, lambda: packing.packed_view(pieces, layouts, backwards))
    return _planned(origin, op, spec, pieces, layouts, backwards, (plan_template, values), key)


def _planned(
    origin: Any,
    op: Operator,
    spec: Spec,
    pieces: ViewPieces | CutPieces | ViewRecord,
    layouts: Sequence[Any],
    backwards: Sequence[Any],
    cast: tuple[ViewTemplate, tuple[int, ...]] | None,
    key: bytes | None,
) -> Callable[..., Any]:
    """The plan of a view with these layouts, `cast` from a plan template or not; `key` is that of its record."""
    word = STATE.word
    item, dtype = spec.dtype.itemsize, spec.dtype
    parts: list[tuple[Spec, int]] = []
    size, steps, shown = None, None, spec
    for shape, strides, offset in layouts:
        if shape is not size or strides is not steps:  # neighbours of one size share them; symbols are not compared
            size, steps = shape, strides
            shown = Spec.of(dtype, spec.device, shape, strides, spec.conj, spec.released)
        parts.append((shown, bytes_on(shown, offset)))
    several = pieces.several
    made = [
        BackwardSpec(
            pieces.name, b, (0,), [True] * (len(parts) if len(backwards) == 1 else 1), spec.device, GRAPH_CALLS
        )
        for b in backwards
    ]
    for number, one in enumerate(made):
        one.origin = origin
        one.record = None if key is None else part_key(key, number)
    backward_spec, backward_specs = (made[0], []) if len(made) == 1 and not pieces.apart else (None, made)
    creation = "" if word & GRAD else "no_grad"
    if several and op.name in MULTIPLE_OPERATORS and not creation:
        creation = "multi"
    streamed = word & STREAMED  # native plans note no streams
    if cast is not None and cast[0].again and not streamed:
        late = LazyFallback(lambda: _closure(parts, several, creation, backward_spec, backward_specs, False))
        return cast[0].again.cast(late, cast[1], tuple([spec for spec, _ in parts]), backward_spec)
    run = _closure(parts, several, creation, backward_spec, backward_specs, bool(word & INFERENCE))
    plain = all(type(step) is int for _, step in parts)
    native = plain and not (word & INFERENCE or backward_specs or streamed or not has_memory(spec))
    plan = native_view(run, parts, creation, several, backward_spec) if native else run
    if cast is not None and cast[0].again is None and not streamed:
        cast[0].again = Recast(plan, offsets=(cast[0].offsets, item)) if Recast.fits(plan) else False
    return plan


def _closure(
    parts: Sequence[tuple[Spec, int]],
    several: bool,
    creation: str,
    backward_spec: BackwardSpec | None,
    backward_specs: Sequence[BackwardSpec],
    inference: bool,
) -> Callable[..., Any]:
    """The plan of a view in Python.  `parts`: specs and byte offsets; `backward_spec` serves all views together,
    `backward_specs` one each.
    """

    def run_one(x: Tensor, *_: Any) -> Tensor:
        out = _new(Tensor)
        out._storage, out._spec, out._ptr, out._rg = x._storage, only, x._ptr + step, False
        out._node = out._autograd_meta = None
        if not inference:
            link_view(x, out, creation)
            if backward_spec is not None:
                record_view(x, (out,), backward_spec)
        else:
            link_inference(x, out)
        return out

    def run_many(x: Tensor, *_: Any) -> tuple[Tensor, ...]:
        outs = tuple([make(x._storage, spec, x._ptr + step) for spec, step in parts])
        for out in outs:
            if inference:
                link_inference(x, out)
            else:
                link_view(x, out, creation)
        if backward_spec is not None:
            record_view(x, outs, backward_spec)
        for out, own in zip(outs, backward_specs):
            record_view(x, (out,), own)
        return outs

    if not several:
        only, step = parts[0]
    return run_many if several else run_one


def link_inference(x: Tensor, out: Tensor) -> None:
    """In inference mode a view of a normal tensor is normal, and a view of an inference tensor is an inference tensor."""
    if x._autograd_meta is not None and x._autograd_meta.inference:
        meta_of(out).inference = True
    else:
        link_view(x, out, "no_grad")


def link_view(x: Tensor, out: Tensor, creation: str) -> None:
    """Link `out` as a view of `x`, or of the base of `x`."""
    out._autograd_meta = meta = HOOKS.new_meta()
    held = x._autograd_meta
    base = x
    if held is not None:
        if held.base is not None:
            base = held.base
            creation = creation or held.creation
        if held.inference:
            meta.inference = True
    meta.base = base
    mine, whole = out._spec.dtype, base._spec.dtype
    if base._rg and not STATE.word & GRAD and mine.to_real() is whole.to_real():
        out._rg = True  # no history of its own, but it wants gradients like its base
    if creation:
        meta.creation = creation
        if creation == "no_grad" and base._rg and out._storage is not None:
            meta.since = out._storage.version
    add_view(base, out)


def record_view(x: Tensor, outs: Sequence[Tensor], backward_spec: BackwardSpec) -> None:
    """Record a node for the views of `x`."""
    node = backward_spec.cls.__new__(backward_spec.cls)
    node.info, node.saved, node.versions, node.where = backward_spec, [], [], None
    edge = x._node
    node._edges = (
        edge if edge is not None and (x._autograd_meta is None or not x._autograd_meta.output_nr) else edge_of(x),
    )
    node._seq = next_sequence()
    node._extra = None
    if STATE.word & STREAMED:
        node._more().streams = CURRENT_STREAMS.side
    number = 0
    for out in outs:
        out._node, out._rg = node, True
        if number:
            meta_of(out).output_nr = number
        number += 1


class AsStridedBackward0(Node):
    """Gradient of a view given by strides: it is added to the elements of the base that the view shows."""

    __slots__ = ("_saved_storage_offset", "base", "geometry", "parts")

    def __init__(
        self,
        base: Spec,
        edge: Any,
        geometry: tuple[tuple[int, ...], tuple[int, ...], int],
        parts: bool = False,
        given: int | None = None,
    ) -> None:
        """`given` is the offset in the storage, where one was asked for."""
        self._start((edge,))
        self.base, self.geometry, self.parts, self._saved_storage_offset = base, geometry, parts, given

    @property
    def _saved_size(self) -> tuple[int, ...]:
        return self.geometry[0]

    @property
    def _saved_stride(self) -> tuple[int, ...]:
        return self.geometry[1]

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        grad = grads[0]
        if grad is None:
            return [None]
        if not self.parts and (STATE.word & FUNCTION_MODE or type(grad) in dispatch_classes):
            return [self._below_modes(grad)]
        if not self.parts:
            return [scatter_strided(grad, self.base, *self.geometry)]
        return [OPS["view_as_complex"](scatter_strided(grad, pairs_of(self.base), *self.geometry))]

    def _below_modes(self, grad: Any) -> Tensor:
        """The same by functions that dispatch modes and classes see."""
        shape, strides, step = self.geometry
        whole, steps = self.base.shape, self.base.strides
        span = 1 + sum((n - 1) * s for n, s in zip(whole, steps, strict=True)) if self.base.numel else 0
        memory = grad.new_zeros([span])
        memory.as_strided(shape, strides, step).copy_(grad)
        made: Tensor = memory.as_strided(whole, steps, 0)
        return made


class Window:
    """Position of a view in the memory of its base, and how its elements follow from the base's.

    `parts`: they are the real or imaginary parts of complex elements; `pairs`: complex ones made of two real elements
    each; `conj`: their conjugates, or negatives of real ones.  `geometry` is (shape, strides, step from the base's
    first element), of `pairs` that of the real elements.
    """

    __slots__ = ("conj", "geometry", "pairs", "parts")

    def __init__(self, view: Tensor, base: Tensor) -> None:
        spec, whole = view._spec, base._spec
        self.parts = whole.dtype.is_complex and not spec.dtype.is_complex
        self.pairs = spec.dtype.is_complex and not whole.dtype.is_complex
        self.conj = spec.conj if self.parts or self.pairs else spec.conj is not whole.conj
        if self.pairs:
            spec = pairs_of(spec)
        self.geometry = tuple(spec.shape), tuple(spec.strides), (view._ptr - base._ptr) // spec.dtype.itemsize

    def of(self, whole: Tensor) -> Tensor:
        """The same view of a tensor with the layout of the base."""
        shape, strides, step = self.geometry
        memory = OPS["view_as_real"](whole) if self.parts else whole
        part = as_strided(
            memory, shape, strides, (memory._ptr - memory._storage.ptr) // memory._spec.dtype.itemsize + step
        )
        if self.pairs:
            part = OPS["view_as_complex"](part)
        if not self.conj:
            return part
        found: Tensor = OPS["conj" if part._spec.dtype.is_complex else "neg_view"](part)
        return found


def pairs_of(spec: Spec) -> Spec:
    """A complex layout as a layout of real numbers: real and imaginary parts side by side."""
    return Spec.of(spec.dtype.to_real(), spec.device, (*spec.shape, 2), (*(2 * s for s in spec.strides), 1))


def scatter_strided(grad: Tensor, base: Spec, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Tensor:
    """Zeros like the base with `grad` added where the view (shape, strides, offset in the base's memory) lies.

    The view may begin before the base; elements outside the base are dropped.  Elements of the base at one address
    share its gradient.
    """
    first = max(0, -offset)  # where the base begins in the memory that both span
    span = max(
        [first + offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if n > 0)]
        + [first + 1 + sum((n - 1) * s for n, s in zip(base.shape, base.strides, strict=True))]
    )
    memory = OPS["zeros"]((span,), dtype=base.dtype, device=base.device)
    dense = OPS["as_strided_index"](shape, strides, first + offset)
    memory = OPS["index_put"](memory, (dense,), OPS["reshape"](grad, (-1,)), True)
    if overlaps_itself(base.shape, base.strides):
        places = OPS["as_strided_index"](base.shape, base.strides, first)
        ones = OPS["zeros"]((numel(base.shape),), dtype=base.dtype, device=base.device) + 1
        count = OPS["index_put"](OPS["zeros"]((span,), dtype=base.dtype, device=base.device), (places,), ones, True)
        memory = memory / count
    return as_strided(memory, base.shape, base.strides, first)


def as_strided(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """A view with any shape, strides and offset (in elements, from the start of the storage)."""
    if isinstance(input, DispatchType):
        return type(input).answer(as_strided, (input, size, stride, storage_offset), {})
    if not isinstance(input, Tensor):
        raise TypeError(f"as_strided(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    x, shape, strides = input, as_ints("as_strided", "size", size), as_ints("as_strided", "stride", stride)
    offset = None if storage_offset is None else as_int("as_strided", "storage_offset", storage_offset)
    if len(shape) != len(strides):
        raise RuntimeError(f"mismatch in length of strides and shape: {list(strides)} and {list(shape)}")
    if any(s < 0 for s in strides):
        raise RuntimeError(
            f"as_strided: Negative strides are not supported at the moment, got strides: {list(strides)}"
        )
    if STATE.word & RECORDING:
        STATE.recording.burn_in()
    itemsize = x._spec.dtype.itemsize
    storage = x._storage
    start = (x._ptr - storage.ptr) // itemsize if storage is not None else 0
    at = start if offset is None else offset
    last = at + extent(shape, strides) - 1 if 0 not in shape else 0
    if any(n < 0 for n in shape) or (last + 1) * itemsize > LARGEST:
        raise RuntimeError(overflowed(shape, strides))
    if at < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {at}")
    spec = Spec.of(x._spec.dtype, x._spec.device, shape, strides, x._spec.conj)
    if storage is not None and spec.numel and (last + 1) * itemsize > storage.nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(strides)}, storage offset {at}, and itemsize {itemsize} requiring a storage size of "
            f"{(last + 1) * itemsize} are out of bounds for storage of size {storage.nbytes}"
        )
    out = make(storage, spec, (storage.ptr if storage is not None else 0) + bytes_on(spec, at))
    if STATE.word & INFERENCE:
        link_inference(x, out)
        return out
    creation = "" if STATE.word & GRAD else "no_grad"
    link_view(x, out, creation)
    if STATE.word & GRAD and x._rg:
        out._node, out._rg = AsStridedBackward0(x._spec, edge_of(x), (shape, strides, at - start), given=offset), True
    if RUNS.now is not None:

        def again(x: Tensor) -> Tensor:
            return as_strided(x, shape, strides, offset)

        step, need = (
            (at * itemsize if offset is not None else 0),
            (last + 1 - (0 if offset is not None else at)) * itemsize,
        )
        span, whole = (need if spec.numel else 0), offset is not None
        ran(again if x._rg else native_view(again, [(spec, step)], creation, False, span=span, whole=whole), (x,), out)
    return out


def _check_other_size(x: Tensor, dtype: DType) -> None:
    """RuntimeError where the bytes of `x` are no elements of a dtype of another size."""
    held = x._spec
    how = f"to view {held.dtype.scalar} as {dtype.scalar} (different element sizes)"
    if not held.ndim:
        raise RuntimeError(f"self.dim() cannot be 0 {how}")
    ratio = dtype.itemsize // held.dtype.itemsize
    if ratio:
        start = (x._ptr - (0 if x._storage is None else x._storage.ptr)) // held.dtype.itemsize
        for what, found in (("self.size(-1)", held.shape[-1]), ("self.storage_offset()", start)):
            if found % ratio:
                raise RuntimeError(f"{what} must be divisible by {ratio} {how}, but got {found}")
    if held.strides[-1] != 1:
        raise RuntimeError(f"self.stride(-1) must be 1 {how}, but got {held.strides[-1]}")
    for d, stride in enumerate(held.strides[:-1]):
        if ratio and stride % ratio:
            raise RuntimeError(f"self.stride({d}) must be divisible by {ratio} {how}, but got {stride}")


def view_dtype(x: Tensor, dtype: DType) -> Tensor:
    """The same bytes as elements of another dtype, outside of the graph; the last dim grows or shrinks with the size of
    an element.
    """
    held = x._spec
    if held.conj and dtype is not held.dtype:
        what = "conjugate view tensors" if held.dtype.is_complex else "tensors with negative bit set"
        raise RuntimeError(f"torch.Tensor.view is not supported for {what} when converting to a different dtype.")
    old, new = held.dtype.itemsize, dtype.itemsize
    shape, strides = list(held.shape), list(held.strides)
    if old != new:
        _check_other_size(x, dtype)
        if old > new:
            shape[-1] *= old // new
            strides[:-1] = [s * (old // new) for s in strides[:-1]]
        else:
            shape[-1] //= new // old
            strides[:-1] = [s // (new // old) for s in strides[:-1]]
    shown = Spec.of(dtype, held.device, tuple(shape), tuple(strides), held.conj, held.released)
    out = make(x._storage, shown, x._ptr)
    if STATE.word & INFERENCE:
        link_inference(x, out)
    elif RUNS.now is not None:

        def again(x: Tensor) -> Tensor:
            return view_dtype(x, dtype)

        ran(again if old < new else retyped_plan(again, out._spec), (x,), out)
    return out  # shares memory and version counter, but is no view for autograd, as in PyTorch


# Reasons, by `creation`, why neither a view nor its base may be changed in place while recording.
_REFUSED = {
    "no_grad": BOTH_SIDES,
    "multi": "This view is the output of a function that returns multiple views. Such functions do not allow the output views to be modified inplace. "
    "You should replace the inplace operation by an out-of-place one.",
    "custom": "This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic to handle view+inplace "
    "would override the custom backward associated with the custom Function, leading to incorrect gradients. This behavior is forbidden. You can fix "
    "this by cloning the output of the custom Function.",
}


def refusal(view: Tensor, changed: str = "is") -> str:
    """The error text for a view whose history cannot follow an in-place change; `changed` is the subject with its verb."""
    meta = meta_of(view)
    if view._node is None:
        head = f"A view was created in no_grad mode and {changed} being modified inplace with grad mode enabled."
    else:
        name = view._node.name()
        stem = name[: name.rindex("Backward")] if "Backward" in name else name
        head = f"Output {meta.output_nr} of {stem} is a view"
        if meta.creation == "no_grad":
            head = f"{head} of a view which was created in no_grad mode and {changed} being modified inplace with grad mode enabled."
        else:
            head = f"{head} and {changed} being modified inplace."
    return f"{head.replace('been being', 'been')} {_REFUSED[meta.creation]}"


class Outdated(Node):
    """Node of a view whose history cannot follow an in-place change of its base: reading it, and backward, raise an
    error.
    """

    def __init__(self, view: Tensor, base: Tensor) -> None:
        self._start([edge_of(base)])
        self.former = "" if view._node is None else view._node.name()
        self._refusal = refusal(view, "its base or another view of its base has been")

    @property
    def _n_outputs(self) -> int:  # type: ignore[override]
        return 1

    def name(self) -> str:
        return self.former

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        raise RuntimeError(self._refusal)


class AsComplex(Node):
    """Turns the gradient of complex elements into that of their real parts, after an in-place change of the base."""

    def __init__(self, edges: Sequence[Any]) -> None:
        self._start(edges)

    def name(self) -> str:
        return "ViewAsComplexBackward0"

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        return [None if grads[0] is None else OPS["view_as_real"](OPS["resolve_conj"](grads[0]))]


class AsConjugate(Node):
    """Gradient of a conjugate or negative view, after an in-place change of the base."""

    def __init__(self, edges: Sequence[Any]) -> None:
        self._start(edges)

    def name(self) -> str:
        return "ConjBackward0"

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        if grads[0] is None:
            return [None]
        return [OPS["conj_physical"](grads[0]) if grads[0]._spec.dtype.is_complex else OPS["neg"](grads[0])]


def regenerate(view: Tensor, base: Tensor) -> None:
    """Point the history of a view at its base's present node, after the base's memory was changed in place."""
    if not base._rg:
        return
    meta = meta_of(view)
    if meta.creation == "no_grad" and view._node is None:
        meta.since, view._rg = CHANGED, True
        return
    if meta.creation:
        if not isinstance(view._node, Outdated):
            view._node, view._rg = Outdated(view, base), True
        return
    _attach(view, base)


def shown_through(window: Window, view: Tensor, base: Spec, edge: Any) -> Node:
    """The node of a view, through which its gradient goes to `edge`, that of its base."""
    storage = view._storage
    offset = 0 if storage is None else (view._ptr - storage.ptr) // view._spec.dtype.itemsize
    node: Node = AsStridedBackward0(base, edge, window.geometry, window.parts, offset)
    if window.pairs:
        node = AsComplex([node])
    return AsConjugate([node]) if window.conj else node


def _attach(view: Tensor, base: Tensor) -> None:
    """Let the gradient of a view go to the part of its base that it shows."""
    meta = meta_of(view)
    if view._spec.dtype.to_real() is not base._spec.dtype.to_real():
        return  # the bytes under another dtype: no gradient goes through
    retained = meta.retains and stop_retaining(view)
    view._node = shown_through(Window(view, base), view, base._spec, edge_of(base))
    view._rg = True
    meta.output_nr = 0
    if retained:
        retain(view)


def follow_leaf(base: Tensor) -> None:
    """Let views from before a leaf wanted gradients follow it, so that none is lost, and a change of one is refused."""
    for reference in list(meta_of(base).views or ()):
        view = reference()
        if view is None:
            continue
        if not base._rg:
            if view._node is None or isinstance(view._node, (AsStridedBackward0, AsComplex, AsConjugate)):
                view._node, view._rg = None, False
        elif view._node is None and not view._rg:
            meta = meta_of(view)
            if meta.creation == "no_grad":
                meta.since, view._rg = None if view._storage is None else view._storage.version, True
            else:
                _attach(view, base)


HOOKS.follow_leaf = follow_leaf

__all__ += ["Window", "pairs_of", "record_view", "refusal", "regenerate", "scatter_strided", "view_dtype"]

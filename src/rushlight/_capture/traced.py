"""Traced tensors: what a program is given while it is recorded.

A `TracedTensor` has a spec and no elements.  It shows a cell of the program's builder, whole or through views; an
operator writes its graph into the builder, an in-place operator writes to the cell, so that every tensor which shows
the same elements sees it.  Whoever asks for an element gets a `TraceError`.  Tensors that are not traced take part as
constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.errors import MissingFeatureError
from rushlight._engine.core.packing import check_number
from rushlight._engine.core.state import GRAD, STATE, VMAP
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.bind import bind, flatten
from rushlight._engine.dispatch.call import Caller
from rushlight._engine.dispatch.lower import trace_operator
from rushlight._engine.dispatch.lowered_call import bounds_of, common_device, result_specs
from rushlight._engine.functorch.aliasing import join, relatives
from rushlight._engine.functorch.batched import check_result
from rushlight._engine.functorch.transformed import LEVELS, Level, Transformed, table_function
from rushlight._engine.kinds.kinds import call_name, make_kind
from rushlight._graph.core import Graph, Value
from rushlight._graph.program import Cell, ProgramBuilder
from rushlight._graph.view_outputs import moved_layouts
from rushlight._prims import build
from rushlight._prims.effects import EFFECTS
from rushlight._prims.memory import VIEWS, Views
from rushlight._transforms.simplify import EXACT
from rushlight._transforms.vjp import carries_gradient
from rushlight._types.dtype import BOOL, COMPLEX128, FLOAT64, INT64, UINT8, DType
from rushlight._types.layout import contiguous_strides
from rushlight._types.promotion import can_cast
from rushlight._types.spec import Spec

__all__ = ["Recording", "TraceError", "TracedTensor", "recording"]

_NUMBERS: dict[type, DType] = {bool: BOOL, int: INT64, float: FLOAT64, complex: COMPLEX128}


class TraceError(RuntimeError):
    """A program cannot be recorded: it asks for the elements of a tensor, or does what the recording does not see."""


class Recording(Level):
    """A program that is being recorded: a level of function transforms, and the builder that writes the program down."""

    __slots__ = ("builder", "differentiable", "held", "overwritten", "wanted", "wanting")

    def __init__(self) -> None:
        super().__init__("program", given=())
        self.builder = ProgramBuilder(EXACT)
        self.held: list[Any] = []  # constants, so that their identities stay theirs
        self.wanting: set[Cell] = set()  # cells that want a gradient since they were written
        self.wanted: dict[int, bool] = {}  # of inputs that are written, whether they want a gradient then
        self.overwritten: set[Cell] = set()  # cells that want a gradient and were written without one
        self.differentiable = True

    # ***** tensors *****

    def traced(self, cell: Cell, spec: Spec, views: Views = (), wants: bool = False) -> TracedTensor:
        """A tensor that shows a cell."""
        made: TracedTensor = make_kind(TracedTensor, spec)
        made.level, made.recording, made.cell, made.views = self.number, self, cell, views
        made.wanted, made.detached = wants, False
        return made

    def fresh(self, value: Value, spec: Spec, wants: bool = False) -> TracedTensor:
        """A new tensor that holds an array."""
        return self.traced(Cell(value), spec, (), wants)

    def value(self, x: Any) -> Value:
        """The array that a tensor shows now, or that of a number."""
        if isinstance(x, TracedTensor):
            value = self.builder.read(x.cell, x.views)
            return self.stopped(value) if x.detached else value
        if isinstance(x, Tensor):
            return self.builder.read(self.constant(x))
        with self.builder:
            found: Value = build.full((), x, _NUMBERS[type(x)])
        return found

    def stopped(self, value: Value) -> Value:
        """The same array, through which no gradient goes."""
        if not carries_gradient(value.dtype):
            return value
        with self.builder:
            found: Value = EFFECTS["stop_gradient"](value)
        return found

    def constant(self, x: Tensor) -> Cell:
        """The cell of a tensor that is not traced: as it is now if the program has made it, else whatever it holds when
        the program runs.
        """
        if isinstance(x, Transformed):
            raise TraceError("a tensor of an outer function transform takes part in a program that is being recorded")
        storage = x._storage
        if storage is None:
            raise TraceError(f"a program that is being recorded uses a tensor without elements, of device {x.device}")
        if storage.born >= self.born:
            alike = _alike(x)
            if alike is not None:
                with self.builder:
                    return Cell(build.full(x._spec.shape, alike, x._spec.dtype))
            x = outside(lambda: x.detach().clone())
        self.held.append(x)
        return self.builder.constant(x, x._spec.shape, x._spec.dtype)

    def become_traced(self, x: Tensor) -> None:
        """Let a tensor that the program has made without traced ones be traced from now on, because a traced one is
        written to it.
        """
        if x._storage is None or x._storage.born < self.born:
            raise TraceError("the program writes to a tensor that it was not given; give it as an argument")
        if len(relatives(x)) > 1:
            raise MissingFeatureError(
                "a recorded program writes traced numbers to a tensor that has views and was made without traced ones"
            )
        cell, spec = self.constant(x), x._spec
        attributes = {
            "level": self.number,
            "recording": self,
            "cell": cell,
            "views": (),
            "wanted": False,
            "detached": False,
        }
        join([x], TracedTensor, lambda member, held: attributes)
        x._spec = spec


def recording() -> Recording:
    """The innermost program that is being recorded.  TraceError where there is none."""
    found = next((level for level in reversed(LEVELS.stack) if isinstance(level, Recording)), None)
    if found is None:
        raise TraceError("a traced tensor is used after its program was recorded")
    return found


def outside(function: Any) -> Any:
    """What `function` gives where no program is being recorded, outside of any graph."""
    stack, word = LEVELS.stack, STATE.word
    LEVELS.stack, STATE.word = [], word & ~(GRAD | VMAP)
    try:
        return function()
    finally:
        LEVELS.stack, STATE.word = stack, word


def _alike(x: Tensor) -> Any:
    """The number that every element of a small tensor is; None where they differ (or are zeros of both signs)."""
    if x._spec.numel == 0 or x._spec.dtype.kind not in "buif":
        return 0 if x._spec.numel == 0 else None
    items = outside(lambda: x.detach().reshape(-1).tolist())
    first = items[0]
    return first if all(repr(v) == repr(first) for v in items) else None


class TracedTensor(Transformed):
    """A tensor of a program that is being recorded: `views` of `cell`; `wants` is whether it would want a gradient.

    `detached`: it is outside of the graph in which the cell wants one.
    """

    __slots__ = ()

    backend = "Traced"
    recording: Recording
    cell: Cell
    views: Views
    wanted: bool
    detached: bool

    @property
    def wants(self) -> bool:
        return not self.detached and (self.wanted or self.cell in self.recording.wanting)

    @property  # type: ignore[misc]
    def requires_grad(self) -> bool:
        return self.wants

    @property
    def is_leaf(self) -> bool:
        return not self.wants

    @property
    def grad_fn(self) -> Any:
        return None

    @property  # type: ignore[misc]
    def grad(self) -> Any:
        return self.__dict__.get("held_grad")

    @property
    def inside(self) -> Tensor:
        raise TraceError("a traced tensor has no elements")

    @property
    def insides(self) -> tuple[Tensor, ...]:
        return ()

    @classmethod
    def at_level(cls, level: int, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if kwargs.get("inplace") and hasattr(function, "inplace_flag"):
            return cls.in_place(level, function.operator, args, {k: v for k, v in kwargs.items() if k != "inplace"})
        if kwargs.get("out") is not None:
            rest = {k: v for k, v in kwargs.items() if k != "out"}
            return _into(kwargs["out"], function(*args, **rest), call_name(function))
        return super().at_level(level, function, args, kwargs)

    @classmethod
    def operate(cls, level: int, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Write the operator's graph down."""
        rec = recording()
        template, tensors, numbers = flatten(op, bind(op, op.schema.name, args, kwargs))
        specs = [t._spec for t in tensors]
        if op.kind == "view" and isinstance(tensors[0], TracedTensor):
            return _view(rec, op, template, tensors[0])
        wants = _wants(op, template, tensors)
        graph, count = trace_operator(op, template, specs)
        device = common_device(op.schema.name, tensors)
        found = result_specs(op, graph.outputs[:count], specs, device, template)
        if numbers and bounds_of(op, template, found[0].dtype) is not None:
            for number in numbers:
                check_number(number, found[0].dtype)
        values = rec.builder.call(graph, [rec.value(x) for x in (*tensors, *numbers)])
        if not wants and any(t.requires_grad for t in tensors):
            values = [rec.stopped(v) for v in values]
        if wants and any(isinstance(t, TracedTensor) and t.cell in rec.overwritten for t in tensors):
            rec.differentiable = False
        pairs = zip(values, found, strict=True)
        return _returned(op, [rec.fresh(v, spec, wants and carries_gradient(spec.dtype)) for v, spec in pairs])

    @classmethod
    def in_place(cls, level: int, op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result, written to the first argument."""
        rec, (target, *rest) = recording(), args
        if not isinstance(target, TracedTensor):
            rec.become_traced(target)
        made = cls.operate(level, op, (target, *rest), kwargs)
        check_result(made, target)
        write(target, made)
        return target

    @classmethod
    def otherwise(cls, function: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        try:
            return super().otherwise(function, name, args, kwargs)
        except NotImplementedError as error:
            raise TraceError(f"{name} cannot be recorded: it is no operator of the table") from error

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"TracedTensor({self._spec.dtype.name}{list(self._spec.shape)})"


def _wants(op: Any, template: Sequence[Any], tensors: Sequence[Any]) -> bool:
    """Whether the results of an operator want a gradient; RuntimeError for an argument that can have none."""
    if not STATE.word & GRAD:
        return False
    names = [
        a.name for a, item in zip(op.schema.arguments, template, strict=True) if getattr(item, "kind", "") == "tensor"
    ]
    for name, x in zip(names, tensors, strict=False):
        if x.requires_grad and name in op.constants:
            raise RuntimeError(
                f"The function '{op.public}' is not differentiable with respect to argument '{name}'. This input cannot have requires_grad True."
            )
    choosing = {i for i, name in enumerate(names) if name in op.choosing}
    return any(x.requires_grad for i, x in enumerate(tensors) if i not in choosing)


def _returned(op: Any, made: Sequence[Any]) -> Any:
    """The results in the form that users get."""
    if op.schema.returns_list or len(made) > 1:
        wrap = Caller(op).result
        return tuple(made) if wrap is None else wrap(made)
    return made[0]


def write(target: TracedTensor, source: Any) -> None:
    """Put the elements of a tensor, or a number, where the target shows, in its dtype and broadcast to its shape."""
    rec, wants = recording(), isinstance(source, Tensor) and source.requires_grad
    value = rec.value(source)
    with rec.builder:
        value = build.broadcast_to(build.convert(value, target._spec.dtype), target._spec.shape)
    if wants and STATE.word & GRAD and not target.detached:
        rec.wanting.add(target.cell)
        if target.cell.number is not None:
            rec.wanted[target.cell.number] = True
    elif target.detached or (target.wants and not STATE.word & GRAD):
        rec.overwritten.add(target.cell)
        value = rec.stopped(value)
    elif wants:
        value = rec.stopped(value)
    rec.builder.write(target.cell, value, target.views)


# ***** views *****


def _view(rec: Recording, op: Any, template: Sequence[Any], x: TracedTensor) -> Any:
    graph, _ = trace_operator(op, template, [x._spec])
    layouts = moved_layouts(graph, [x._spec])
    paths = [_path(graph, v) for v in graph.outputs]
    if layouts is None or None in paths:
        raise MissingFeatureError(
            f"the view {op.name} cannot be recorded: it is not made of {', '.join(sorted(VIEWS))}"
        )
    if op.strides is not None:
        rest = [v.value if hasattr(v, "value") else v for v in template[1:]]
        layouts = [(i, shape, tuple(op.strides(x._spec, *rest)), at) for i, shape, _, at in layouts]
    wants = x.wants and bool(STATE.word & GRAD)
    made = [
        rec.traced(x.cell, Spec.of(x._spec.dtype, x._spec.device, shape, strides), (*x.views, *path), wants)
        for (_, shape, strides, _), path in zip(layouts, paths, strict=True)
        if path is not None
    ]
    for view in made:
        view.detached = x.detached or (x.wants and not wants)
    return _returned(op, made)


def _path(graph: Graph, value: Value) -> Views | None:
    """The views that lead from the input of a graph to a value."""
    path: list[Any] = []
    while value.node is not None:
        node = value.node
        if node.prim.name not in VIEWS:
            return None
        path.append((node.prim.name, tuple(node.params.items())))
        value = node.inputs[0]
    return tuple(path[::-1])


def _into(out: Any, made: Any, name: str) -> Any:
    """`out=`: the results are written to these tensors, which have their shapes."""
    rec = recording()
    pairs = zip(out, made, strict=True) if isinstance(out, (tuple, list)) else [(out, made)]
    for target, result in pairs:
        if not isinstance(target, TracedTensor):
            rec.become_traced(target)
        if target._spec.shape != result._spec.shape:
            raise MissingFeatureError(f"{name}() would resize its out=, which cannot be recorded")
        if not can_cast(result._spec.dtype, target._spec.dtype):
            names = result._spec.dtype.scalar, target._spec.dtype.scalar
            raise RuntimeError(f"result type {names[0]} can't be cast to the desired output type {names[1]}")
        write(target, result)
    return out


# ***** what is not an operator of the table *****


@TracedTensor.implements("type", "_type")
def _type(level: int, function: Any, x: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    return f"torch.{x._spec.dtype.scalar}Tensor" if dtype is None else x.to(dtype)


@TracedTensor.implements("copy_")
def _copy(level: int, function: Any, x: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(x, TracedTensor):
        recording().become_traced(x)
    write(x, source)
    return x


@TracedTensor.implements("zero_")
def _zero(level: int, function: Any, x: Any) -> Any:
    write(x, 0)
    return x


@TracedTensor.implements("fill_")
def _fill(level: int, function: Any, x: Any, value: Any) -> Any:
    write(x, value)
    return x


def _masks(index: Any) -> list[Any]:
    """The masks among what a tensor is indexed with."""
    items = index if isinstance(index, tuple) else (index,)
    return [i for i in items if isinstance(i, Tensor) and i._spec.dtype in (BOOL, UINT8)]


@TracedTensor.implements("__getitem__")
def _getitem(level: int, function: Any, x: Any, index: Any) -> Any:
    if _masks(index):
        raise TraceError(
            "a mask chooses as many elements as it says at run time, which is not known while a program is recorded"
        )
    return Transformed.handlers["__getitem__"](level, function, x, index)


@TracedTensor.implements("__setitem__")
def _setitem(level: int, function: Any, x: Any, index: Any, value: Any) -> None:
    if not isinstance(x, TracedTensor):
        recording().become_traced(x)
    masks = _masks(index)
    if not masks:
        Transformed.handlers["__setitem__"](level, function, x, index, value)
    elif len(masks) == 1 and masks[0] is index and (not isinstance(value, Tensor) or value.ndim == 0):
        mask = index.reshape((*index.shape, *[1] * (x.ndim - index.ndim)))
        value = value if isinstance(value, Tensor) else x.new_full((), value)
        write(x, table_function("where")(mask, value.to(x.dtype), x))
    else:
        raise TraceError(
            "a mask takes as many elements as it says at run time, which is not known while a program is recorded"
        )


@TracedTensor.implements("detach", "data", "detach_")
def _detach(level: int, function: Any, x: Any) -> Any:
    if call_name(function) == "detach_":
        raise MissingFeatureError("detach_() cannot be recorded yet; detach() can")
    made = recording().traced(x.cell, x._spec, x.views)
    made.detached = x.wants or x.detached
    return made


@TracedTensor.implements("contiguous")
def _contiguous(level: int, function: Any, x: Any, memory_format: Any = None) -> Any:
    if memory_format is None or str(memory_format) in ("torch.contiguous_format", "torch.preserve_format"):
        return x if x._spec.contiguous else _laid_out(x)
    raise MissingFeatureError(f"contiguous(memory_format={memory_format}) cannot be recorded yet")


def _laid_out(x: Any) -> Any:
    rec, spec = recording(), x._spec
    made = Spec.of(spec.dtype, spec.device, spec.shape, contiguous_strides(spec.shape))
    return rec.fresh(rec.value(x), made, x.wants and bool(STATE.word & GRAD))


@TracedTensor.implements("reshape")
def _reshape(level: int, function: Any, x: Any, *shape: Any) -> Any:
    """A view where strides can show it, else a copy."""
    try:
        return table_function("view")(x, *shape)
    except (RuntimeError, MissingFeatureError):
        return table_function("view")(_laid_out(x), *shape)


@TracedTensor.implements("stride", "storage_offset", "is_contiguous")
def _layout(level: int, function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    name = call_name(function)
    if name == "stride":
        return x._spec.strides if not args and not kwargs else x._spec.strides[args[0] if args else kwargs["dim"]]
    if name == "is_contiguous":
        return x._spec.contiguous
    raise TraceError("where a traced tensor lies in memory is not known")


@TracedTensor.implements("requires_grad_")
def _requires_grad(level: int, function: Any, x: Any, requires_grad: bool = True) -> Any:
    raise MissingFeatureError(
        "requires_grad_() cannot be recorded: gradients of a recorded program are those of its arguments"
    )


@TracedTensor.implements(
    "item", "tolist", "numpy", "__float__", "__int__", "__bool__", "__index__", "__complex__", "__contains__", "is_nonzero", "equal", "allclose",
    "nonzero", "unique", "unique_consecutive", "masked_select",
)  # fmt: skip
def _elements(level: int, function: Any, *args: Any, **kwargs: Any) -> Any:
    raise TraceError(
        f"{call_name(function)} asks for the elements of a traced tensor, which are not known while a program is recorded"
    )

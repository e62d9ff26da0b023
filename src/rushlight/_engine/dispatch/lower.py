"""From an operator and the specs of its arguments to graphs: forward, and backward.

Arguments are first made flat: tensors, then Python numbers, around a hashable `template` that holds all the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from rushlight._base.errors import DTypeError, NotDifferentiableError, OperandError
from rushlight._base.lazy import LazyModule
from rushlight._graph.core import Graph, GraphBuilder, Value
from rushlight._ops.dtypes import (
    ALIKE,
    CHECKED,
    CHECKED_ARGUMENTS,
    JOINED,
    REFUSED,
    check_alike,
    check_arguments,
    not_implemented,
    refuse_dtype,
)
from rushlight._ops.table import Operator
from rushlight._prims import build, not_differentiable, prim
from rushlight._types.dtype import BOOL, COMPLEX128, FLOAT8, FLOAT64, INT64, DType
from rushlight._types.promotion import default_dtype, join, number_dtype, result_type
from rushlight._types.spec import Spec
from rushlight._types.symbols import is_symbolic

# The transforms are loaded by the first call that wants a derivative.
transform: Any = LazyModule("rushlight._transforms.vjp")

__all__ = ["Backward", "Literal", "Slot", "differentiate", "scalar_dtype", "trace_operator"]

# Operators that PyTorch computes for floats of eight bits on the CPU: in float32.
_COMPUTES_FLOAT8 = frozenset((
    "eq", "ne", "isclose", "abs", "isnan", "isinf", "isfinite", "isreal", "all", "any", "count_nonzero", "mm", "addmm", "linear", "matmul", "linalg_multi_dot",
    "linalg_vector_norm",
))  # fmt: skip
# Primitives that only move elements: the ones allowed for floats of eight bits and for bits without meaning.
_MOVES = frozenset((
    "broadcast", "reshape", "transpose", "slice", "pad", "flip", "cat", "diagonal", "window", "gather", "scatter", "index", "index_put", "select",
    "convert", "bitcast", "full", "iota", "permutation",
))  # fmt: skip


class Slot:
    """Stands in a template for what is not part of the plan: a tensor, a list of tensors, or a Python number.  Equal
    ones are one object.
    """

    __slots__ = ("count", "kind")
    _made: ClassVar[dict[tuple[str, int], Slot]] = {}

    kind: str
    count: int

    def __new__(cls, kind: str, count: int = 1) -> Slot:
        found = cls._made.get((kind, count))
        if found is None:
            found = object.__new__(cls)
            found.kind, found.count = kind, count
            found = cls._made.setdefault((kind, count), found)
        return found

    def __reduce__(self) -> Any:
        return (Slot, (self.kind, self.count))

    def __repr__(self) -> str:
        return f"<{self.kind}{'' if self.count == 1 else self.count}>"


class Literal:
    """A Python number that is part of the plan; 1, 1.0 and True are told apart, and 0.0 from -0.0."""

    __slots__ = ("_hash", "key", "value")

    def __init__(self, value: Any) -> None:
        self.value, self.key = value, (type(value), repr(value), *_env(value))
        self._hash = hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.key == other.key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return repr(self.value)


def _env(value: Any) -> tuple[Any, ...]:
    """The `ShapeEnv` of a symbolic number, so that formulas of two traces differ; empty for others."""
    return (value.shape_env,) if is_symbolic(value) else ()


TENSOR = Slot("tensor")
NUMBERS = {t: Slot(t.__name__) for t in (bool, int, float, complex)}
_PLAIN = {kind.__name__: kind for kind in (bool, int, float, complex)}
_NUMBER_DTYPE = {"bool": BOOL, "int": INT64, "float": FLOAT64, "complex": COMPLEX128}
_NUMBER_ONE = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}


def plain_number(value: Any) -> Any:
    """The value of a number of a recorded program, which may raise that it is asked for; anything else as it is."""
    slot = NUMBERS.get(type(value))
    return value if slot is None else _PLAIN[slot.kind](value)


def ask_numbers(values: Iterable[Any]) -> None:
    """Ask numbers of a recorded program for their values: before a TypeError, which the program may catch."""
    for value in values:
        plain_number(value)


def scalar_dtype(kind: str) -> DType:
    """The dtype in which a Python number travels to a kernel."""
    return _NUMBER_DTYPE[kind]


def _compute_dtypes(op: Operator, template: Sequence[Any], specs: Sequence[Any]) -> tuple[DType | None, DType | None]:
    """(promoted dtype, dtype of the computation), or (None, None) where the operator promotes by itself."""
    if op.promote is None:
        return None, None
    tensors: list[tuple[DType, int]] = []
    numbers: list[DType] = []
    at = 0
    for argument, item in zip(op.schema.arguments, template, strict=True):
        takes_part = op.promote_over is None or argument.name in op.promote_over
        if isinstance(item, Slot):
            if item.kind in ("tensor", "list"):
                if takes_part:
                    tensors += [(s.dtype, len(s.shape)) for s in specs[at : at + item.count]]
                at += item.count
            elif takes_part:
                numbers.append(number_dtype(_NUMBER_ONE[item.kind]))
        elif (
            isinstance(item, Literal)
            and takes_part
            and argument.base in ("Tensor", "Scalar")
            and argument.name in op.static
        ):
            numbers.append(number_dtype(item.value))
    if "aligned" in op.tags:
        most = max((ndim for _, ndim in tensors), default=0)
        tensors = [(dtype, most) for dtype, _ in tensors]
    if op.promote == "opmath":
        if not tensors:
            return None, None
        promoted = tensors[0][0]
    else:
        promoted = result_type(tensors, numbers, join)
        if op.promote == "float" and not (promoted.is_floating_point or promoted.is_complex):
            promoted = default_dtype()
    computes = promoted not in FLOAT8 or op.name in _COMPUTES_FLOAT8
    return promoted, promoted.wide if computes else promoted


class _Call:
    """One operator call seen by its body: the flat values put back into the declared arguments."""

    __slots__ = ("compute", "op", "promoted", "template")

    def __init__(self, op: Operator, template: Sequence[Any], specs: Sequence[Any]) -> None:
        self.op, self.template = op, template
        self.promoted, self.compute = _compute_dtypes(op, template, specs)

    def _cast(self, value: Value, takes_part: bool) -> Value:
        if self.compute is None or not takes_part:
            return value
        if self.op.promote == "opmath":
            return build.convert(value, value.dtype.wide)
        return build.convert(value, self.compute)

    def arguments(self, tensors: Sequence[Value], scalars: Sequence[Value]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments for the body or the gradient rule."""
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        at = number = 0
        for argument, item in zip(self.op.schema.arguments, self.template, strict=True):
            over = self.op.promote_over
            part = over is None or argument.name in over
            value: Any = item.value if isinstance(item, Literal) else item
            if isinstance(item, Slot):
                if item.kind == "tensor":
                    value = self._cast(tensors[at], part)
                    at += 1
                elif item.kind == "list":
                    value = [self._cast(t, part) for t in tensors[at : at + item.count]]
                    at += item.count
                else:
                    value = scalars[number]
                    number += 1
            if argument.keyword_only:
                keywords[argument.name] = value
            else:
                positional.append(value)
        return positional, keywords

    def rounded(self, value: Value) -> Value:
        """A result in the dtype that users get."""
        given = self.promoted
        if given is None or given.wide is given:
            return value
        if value.dtype is given.wide:
            return build.convert(value, given)
        return build.convert(value, given.to_real()) if value.dtype is given.wide.to_real() else value


def _inputs(builder: GraphBuilder, template: Sequence[Any], specs: Sequence[Any]) -> tuple[list[Value], list[Value]]:
    tensors = [builder.input(tuple(s.shape), s.dtype) for s in specs]
    kinds = [i.kind for i in template if isinstance(i, Slot) and i.kind in _NUMBER_DTYPE]
    return tensors, [builder.input((), _NUMBER_DTYPE[k], weak=True) for k in kinds]


def trace_operator(
    op: Operator, template: Sequence[Any], specs: Sequence[Spec], residuals: bool = False
) -> tuple[Graph, int]:
    """The operator's graph for these arguments, and the number of its results.

    Graph inputs are the tensors in order, then the Python numbers (weak values).  With `residuals`, what a body returns
    beyond its results stands after them.
    """
    call = _Call(op, template, specs)
    if specs and (op.name in REFUSED or op.name in CHECKED or op.name in ALIKE or op.name in CHECKED_ARGUMENTS):
        _check_dtypes(op, call, template, specs)
    builder = GraphBuilder()
    tensors, scalars = _inputs(builder, template, specs)
    with builder:
        positional, keywords = call.arguments(tensors, scalars)
        try:
            returned = op.body(*positional, **keywords)
        except DTypeError as error:
            given = next((s.dtype for s in specs if s.dtype is error.dtype), specs[0].dtype if specs else error.dtype)
            raise not_implemented(op.public, given) from error
        except OperandError as error:
            found = ", ".join(f"{s.dtype.name}{list(s.shape)}" for s in specs)
            raise RuntimeError(
                f"{op.public}(): the shapes of its arguments do not go together: {found} ({error})"
            ) from error
        values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        count = len(values) if op.schema.returns_list else len(op.schema.results)
        results = [call.rounded(v) for v in values[:count]]
        outputs = results + (values[count:] if residuals else [])
    graph = builder.finish(outputs)
    if op.name not in _COMPUTES_FLOAT8:
        _refuse_arithmetic(op, graph, specs, call.promoted)
    return graph, count


def _check_dtypes(op: Operator, call: _Call, template: Sequence[Any], specs: Sequence[Spec]) -> None:
    """The errors of `_ops.dtypes` for this call."""
    dtype = call.promoted if op.promote == "same" and call.promoted is not None else specs[0].dtype
    if op.name in JOINED:
        dtype = result_type([(s.dtype, len(s.shape)) for s in specs], [])
    for table in (CHECKED, REFUSED):
        if op.name in table:
            refuse_dtype(op.public, table[op.name], dtype, checked=table is CHECKED)
    if op.name in ALIKE or op.name in CHECKED_ARGUMENTS:
        rest = iter(specs)
        given = {
            a.name: next(rest).dtype for a, item in zip(op.schema.arguments, template, strict=True) if item == TENSOR
        }
        if op.name in ALIKE:
            check_alike(op.name, given)
        if op.name in CHECKED_ARGUMENTS:
            check_arguments(op.name, given)


_SCALED = frozenset({"scaled_product", "scaled_grouped_product"})  # operators that are for numbers of eight bits


def _refuse_arithmetic(op: Operator, graph: Graph, specs: Sequence[Spec], promoted: DType | None) -> None:
    """NotImplementedError where an operator would compute with a dtype that is only stored; one that was promoted to
    another is not.
    """
    if op.name in _SCALED or (promoted is not None and promoted not in FLOAT8 and promoted.kind not in "xq"):
        return
    for spec in specs:
        if spec.dtype in FLOAT8 or spec.dtype.kind in "xq":
            for node in graph.nodes:
                if node.prim.name not in _MOVES and any(v.dtype is spec.dtype.wide for v in node.inputs):
                    raise NotImplementedError(f"\"{op.public}\" not implemented for '{spec.dtype.scalar}'")


class Backward:
    """How to differentiate one call: what the forward must also return, what to keep, and the backward graph.

    `forward` is the graph with residual outputs after the results; `saved` lists where the backward's first inputs come
    from: ("input", i), ("output", j) or ("residual", k), in the order of `graph.inputs`, which end with the cotangents
    of those results for which `ct_mask` is True; `graph.outputs[outputs[i]]` belongs to the i-th item of `wrt`, None
    where there is no gradient.

    `parts`: where some cotangents are missing the gradients of the other results are derived alone.
    """

    __slots__ = ("forward", "graph", "outputs", "parts", "saved")

    def __init__(self, forward: Graph, graph: Graph, saved: list[tuple[str, int]], outputs: list[int | None]) -> None:
        self.forward, self.graph, self.saved, self.outputs = forward, graph, saved, outputs
        self.parts = False


def differentiate(
    op: Operator,
    template: Sequence[Any],
    specs: Sequence[Spec],
    wrt: Sequence[int],
    ct_mask: Sequence[bool],
    overwritten: Sequence[int] = (),
    traced: tuple[Graph, int] | None = None,
) -> Backward:
    """The backward of one operator call with respect to the tensors numbered `wrt`.

    `overwritten` lists inputs whose memory the forward writes over (in-place): their values cannot be saved.  `traced`
    is the call's graph with its residuals and the number of its results, where it is known.
    """
    if op.underivable:
        raise NotDifferentiableError(op.underivable)
    if op.gradient_rule is None:
        graph, count = traced or trace_operator(op, template, specs)
        return differentiate_graph(graph, count, wrt, ct_mask, overwritten=overwritten)
    graph, count = traced or trace_operator(op, template, specs, residuals=True)
    call, n, gradient_rule = _Call(op, template, specs), len(specs), op.gradient_rule

    def rule(cts: Sequence[Any], outs: Sequence[Value], *inputs: Value) -> list[Any]:
        positional, keywords = call.arguments(inputs[:n], inputs[n:])
        wide = [_widen(call, o) for o in outs]
        wide_cts = [None if c is None else _widen(call, c) for c in cts[:count]]
        one_out = wide[0] if len(wide) == 1 else tuple(wide)
        grads = gradient_rule(wide_cts[0] if count == 1 else tuple(wide_cts), one_out, *positional, **keywords)
        found = _of_tensors(op, template, list(grads) if isinstance(grads, (tuple, list)) else [grads])
        found += [None] * (n - len(found))
        fitted = [
            g if g is None or isinstance(g, not_differentiable) else _fit(g, spec)
            for g, spec in zip(found[:n], specs, strict=True)
        ]
        return fitted + [None] * (len(inputs) - n)

    return differentiate_graph(graph, count, wrt, ct_mask, rule=rule, overwritten=overwritten)


def _of_tensors(op: Operator, template: Sequence[Any], grads: list[Any]) -> list[Any]:
    """A rule gives one cotangent for each declared tensor argument; drop those where a number, or nothing, was given."""
    kept: list[Any] = []
    at = 0
    for argument, item in zip(op.schema.arguments, template, strict=True):
        if argument.base != "Tensor":
            continue
        width = item.count if isinstance(item, Slot) and item.kind == "list" else 1
        if isinstance(item, Slot) and item.kind in ("tensor", "list"):
            kept += grads[at : at + width]
        at += width
    return kept


def _widen(call: _Call, value: Value) -> Value:
    return (
        build.convert(value, value.dtype.wide)
        if call.promoted is not None and call.promoted.wide is not call.promoted
        else value
    )


def differentiate_graph(
    graph: Graph, count: int, wrt: Sequence[int], ct_mask: Sequence[bool], **options: Any
) -> Backward:
    """The same, derived from a graph whose first `count` outputs are the results."""
    found = transform.vjp(graph, wrt, ct_mask, outputs=count, **options)
    backward = found.backward
    if any(node.prim.name == "border" for node in graph.nodes):
        backward = transform.as_one_call(backward)
    return Backward(found.forward, backward, list(found.saved), list(found.grads))


def _fit(grad: Value, spec: Spec) -> Value:
    """A cotangent in the shape and dtype of its input: summed over broadcast dims, real where the input is real."""
    if grad.shape != tuple(spec.shape):
        extra = len(grad.shape) - len(spec.shape)
        dims = tuple(range(extra)) + tuple(
            extra + d for d, size in enumerate(spec.shape) if size == 1 and grad.shape[extra + d] != 1
        )
        grad = build.reshape(build.total(grad, dims), spec.shape)
    if grad.dtype.is_complex and not spec.dtype.is_complex:
        grad = prim.real(grad)
    return build.convert(grad, spec.dtype)

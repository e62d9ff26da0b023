"""`Writer`: what a translation writes ONNX nodes with.

Equal calls are written once: a call of the same operator with the same operands and attributes gives the value that is
there already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.onnx.errors import UnsupportedOperatorError
from rushlight.onnx.exporting.values import Graph, Node, OnnxTensor, Value, element_type, numpy_dtype

__all__ = ["Writer"]

np: Any = LazyModule("numpy")
_IMPURE = frozenset(
    "RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial Dropout If Loop Scan".split()
)
# Results that are int64 or bool whatever goes in.
_INT64 = frozenset("Shape Size NonZero ArgMax ArgMin".split())
_BOOL = frozenset("Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor Not IsNaN IsInf".split())


class Writer:
    """Writes one graph: the model's, or that of a branch in it."""

    def __init__(self, opset: int, outer: Writer | None = None) -> None:
        self.opset, self.outer = opset, outer
        self.graph = Graph()
        self.source: Any = None  # the node that is translated
        self.domains: dict[str, int] = {} if outer is None else outer.domains
        self.functions: dict[Any, Any] = {} if outer is None else outer.functions  # of the model, by domain and name
        self._made: dict[Any, Any] = {} if outer is None else dict(outer._made)
        self._root: Writer = self if outer is None else outer._root
        self._constants: dict[Any, Value] = {} if outer is None else outer._constants
        self.count = 0

    # ***** values *****

    def fresh(self, dtype: Any, shape: Any = None, name: str = "") -> Value:
        """A new value; its name is made unique when the model is written."""
        self._root.count += 1
        return Value(name or f"val_{self._root.count}", dtype, shape)

    def tensor(self, tensor: Any, name: str) -> Value:
        """A tensor of the module as a constant of the graph."""
        value = self.fresh(tensor.dtype, tuple(tensor.shape), name)
        self._root.graph.constants[value] = OnnxTensor(tensor)
        return value

    def array(self, array: Any, dtype: Any = None) -> Value:
        """An array as a constant; equal ones are one."""
        dtype = dtype if dtype is not None else getattr(rushlight, str(array.dtype))
        key = dtype, array.shape, array.tobytes()
        value = self._constants.get(key)
        if value is None:
            value = self._constants[key] = self.fresh(dtype, array.shape)
            value.const = array
            self._root.graph.constants[value] = OnnxTensor(array=array)
        return value

    def const(self, number: Any, dtype: Any, shape: tuple[int, ...] = ()) -> Value:
        """A number, or nested lists of them, as a constant of a dtype."""
        array = np.asarray(number, dtype=numpy_dtype(dtype))
        return self.array(array.reshape(shape) if not array.ndim else array, dtype)

    def ints(self, items: Sequence[Any] | Value) -> Value:
        """A vector of int64 from numbers and symbolic numbers."""
        if isinstance(items, Value):
            return items
        if all(isinstance(i, int) or i.const is not None for i in items):
            found = [i if isinstance(i, int) else int(i.const.reshape(())) for i in items]
            return self.array(np.array(found, dtype=np.int64), rushlight.int64)
        parts = [self.vector(i) for i in items]
        made = parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0, shape=(len(parts),))
        return made

    def vector(self, item: Any, dtype: Any = rushlight.int64) -> Value:
        """A number as a vector of one element."""
        if not isinstance(item, Value):
            return self.const([item], dtype)
        if item.shape == (1,) or item.number:
            return self.cast(item, dtype)
        return self.cast(self.op("Reshape", item, self.array(np.array([1], np.int64)), shape=(1,)), dtype)

    def scalar(self, item: Any, dtype: Any) -> Value:
        """A number as a tensor without dims."""
        if not isinstance(item, Value):
            return self.const(item, dtype)
        if item.number:
            item = self.op("Squeeze", item, self.ints([0]), shape=())
        return self.cast(item, dtype)

    # ***** nodes *****

    def op(
        self,
        kind: str,
        *inputs: Value | None,
        dtype: Any = None,
        shape: tuple[int | str, ...] | None = None,
        domain: str = "",
        **attrs: Any,
    ) -> Value:
        """A call with one result, of `dtype` (that of the first operand, where ONNX's operator does not say it)."""
        if dtype is None:
            dtype = _result_dtype(kind, inputs)
        return self.ops(kind, *inputs, results=[(dtype, shape)], domain=domain, **attrs)[0]

    def ops(
        self, kind: str, *inputs: Value | None, results: Sequence[tuple[Any, Any]], domain: str = "", **attrs: Any
    ) -> list[Value]:
        """A call with several results: their dtypes and shapes."""
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        attrs = {k.rstrip("_"): v for k, v in attrs.items() if v is not None}
        key = None
        if kind not in _IMPURE or domain:
            key = (kind, domain, len(results), *map(id, given), *sorted((k, _key(v)) for k, v in attrs.items()))
            found = self._made.get(key)
            if found is not None:
                return list(found)
        made = [self.fresh(dtype, shape) for dtype, shape in results]
        node = Node(kind, domain, given, made, attrs, self.source)
        for i, value in enumerate(made):
            value.producer, value.index = node, i
        self.graph.nodes.append(node)
        if key is not None:
            self._made[key] = made
        return list(made)

    def subgraph(self) -> Writer:
        """A writer for a graph inside this one, which sees the values of this one."""
        inner = Writer(self.opset, self)
        inner.source = self.source
        return inner

    def need(self, opset: int, what: str, instead: str = "") -> None:
        """UnsupportedOperatorError below an opset."""
        if self.opset < opset:
            also = f", or {instead}" if instead else ""
            raise UnsupportedOperatorError(
                f"{what} needs opset {opset}, and opset_version is {self.opset}: give opset_version={opset}{also}"
            )

    # ***** the commonest calls *****

    def cast(self, value: Value, dtype: Any) -> Value:
        """The value in a dtype; itself where it has it."""
        if value.dtype == dtype or dtype is None:
            return value
        if value.const is not None:
            return self.array(value.const.astype(numpy_dtype(dtype)), dtype)
        number = value.number
        if value.dtype.is_floating_point and dtype in _NARROW:
            # Casts of floats outside of a narrow range are undefined: they wrap by way of int64.
            value = self.op("Cast", value, to=element_type(rushlight.int64), dtype=rushlight.int64, shape=value.shape)
        made = self.op("Cast", value, to=element_type(dtype), dtype=dtype, shape=value.shape)
        made.number = number
        return made

    def reshape(self, x: Value, dims: Sequence[Any] | Value, shape: Any = None, allowzero: int = 0) -> Value:
        """The elements in other dims; sizes may be symbolic numbers, and one of them -1."""
        if not isinstance(dims, Value):
            if shape is None and all(type(d) is int and d >= 0 for d in dims):
                shape = tuple(dims)
            if shape is not None and shape == x.shape and all(type(d) is int for d in shape):
                return x
            allowzero = allowzero or (1 if any(type(d) is int and d == 0 for d in dims) else 0)
        if allowzero and not isinstance(dims, Value) and any(type(d) is int and d == -1 for d in dims):
            dims = list(shape or dims)  # -1 beside 0 is not allowed: the size is known from the shape
        return self.op("Reshape", x, self.ints(dims), shape=shape, allowzero=allowzero or None)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """Dims in another order."""
        perm = [int(p) for p in perm]
        if perm == list(range(len(perm))):
            return x
        shape = None if x.shape is None else tuple([x.shape[p] for p in perm])
        return self.op("Transpose", x, perm=perm, shape=shape)

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """New dims of size 1 at these places of the result."""
        if not axes:
            return x
        shape = None
        if x.shape is not None:
            rank = len(x.shape) + len(axes)
            places = {a % rank for a in axes}
            rest = iter(x.shape)
            shape = tuple([1 if d in places else next(rest) for d in range(rank)])
        return self.op("Unsqueeze", x, self.ints([int(a) for a in axes]), shape=shape)

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Without these dims, which have size 1."""
        if not axes:
            return x
        shape = None
        if x.shape is not None:
            places = {a % len(x.shape) for a in axes}
            shape = tuple([s for d, s in enumerate(x.shape) if d not in places])
        return self.op("Squeeze", x, self.ints([int(a) for a in axes]), shape=shape)

    def reduce(self, kind: str, x: Value, axes: Sequence[int] | None, keepdim: bool = False) -> Value:
        """ReduceSum, ReduceMax, ...: over these dims, over all for None; x itself for no dims."""
        rank = x.ndim
        if axes is not None and not axes and rank:
            return x
        places = sorted({a % rank for a in axes}) if axes and rank else list(range(rank))
        shape: Any = tuple([1 if d in places else s for d, s in enumerate(x.shape or ()) if keepdim or d not in places])
        if not rank:
            return (
                self.op("Identity", x, shape=())
                if kind not in ("ReduceL1", "ReduceL2", "ReduceSumSquare")
                else self._lone(kind, x)
            )
        if kind == "ReduceSum" or self.opset >= 18:
            return self.op(kind, x, self.ints(places), keepdims=int(keepdim), shape=shape)
        return self.op(kind, x, axes=places, keepdims=int(keepdim), shape=shape)

    def _lone(self, kind: str, x: Value) -> Value:
        return self.op("Abs", x, shape=()) if kind != "ReduceSumSquare" else self.op("Mul", x, x, shape=())

    def slice(self, x: Value, axis: int, start: Any, end: Any, step: int = 1, shape: Any = None) -> Value:
        """Elements from `start` to `end` of one dim."""
        one = [self.ints([v]) for v in (start, end, axis, step)]
        return self.op("Slice", x, *one, shape=shape)

    def gather(self, x: Value, indices: Value, axis: int, shape: Any = None) -> Value:
        """Gather: whole slices at indices of one dim."""
        if shape is None and x.shape is not None and indices.shape is not None:
            shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        return self.op("Gather", x, indices, axis=axis, shape=shape)

    def concat(self, values: Sequence[Value], axis: int, shape: Any = None) -> Value:
        """Values one after another in a dim."""
        return values[0] if len(values) == 1 else self.op("Concat", *values, axis=axis, shape=shape)

    def dim(self, x: Value, d: int) -> Any:
        """The size of a dim: a number, or a symbolic number that is read from the value."""
        if x.shape is not None:
            d %= len(x.shape)
            size = x.shape[d]
            if type(size) is int:
                return size
        made = self.op("Shape", x, start=d, end=d + 1 if d != -1 else None, shape=(1,))
        made.number = True
        return made

    def dims(self, x: Value) -> list[Any]:
        """The sizes of all dims."""
        return [self.dim(x, d) for d in range(x.ndim)]

    def shape(self, x: Value) -> Value:
        """All sizes as one vector."""
        if x.shape is not None and all(type(s) is int for s in x.shape):
            return self.ints(list(x.shape))
        return self.op("Shape", x, shape=None if x.shape is None else (len(x.shape),))

    def product(self, items: Sequence[Any]) -> Any:
        """The product of sizes."""
        fixed = math.prod(i for i in items if isinstance(i, int))
        made: Any = None
        for item in items:
            if not isinstance(item, int):
                made = item if made is None else self._number("Mul", made, item)
        if made is None:
            return fixed
        return made if fixed == 1 else self._number("Mul", made, self.vector(fixed))

    def _number(self, kind: str, *inputs: Value) -> Value:
        made = self.op(kind, *inputs, shape=(1,))
        made.number = True
        return made

    def number(self, kind: str, *inputs: Any, dtype: Any = None) -> Value:
        """Arithmetic on numbers: a call on vectors of one element that gives one."""
        made = self.op(kind, *inputs, dtype=dtype, shape=(1,))
        made.number = True
        return made

    def expand(self, x: Value, dims: Sequence[Any] | Value, shape: Any = None) -> Value:
        """The value repeated along dims of size 1."""
        if not isinstance(dims, Value) and x.shape is not None and list(dims) == list(x.shape):
            return x
        return self.op("Expand", x, self.ints(dims), shape=shape)

    def full(self, dims: Sequence[Any] | Value, number: Any, dtype: Any, shape: Any = None) -> Value:
        """A tensor of one number."""
        if isinstance(number, Value):
            return self.op("Expand", self.scalar(number, dtype), self.ints(dims), dtype=dtype, shape=shape)
        fixed = not isinstance(dims, Value) and all(isinstance(d, int) for d in dims)
        if not isinstance(dims, Value) and fixed and math.prod(dims) <= 1024:
            return self.array(np.full(list(dims), number, numpy_dtype(dtype)), dtype)
        value = np.array([number]).astype(numpy_dtype(dtype))
        return self.op("ConstantOfShape", self.ints(dims), value=value, dtype=dtype, shape=shape)


def _result_dtype(kind: str, inputs: Sequence[Value | None]) -> Any:
    """The dtype of a result that the caller does not say: that of the first operand (of Where, of what it chooses from)."""
    if kind in _INT64:
        return rushlight.int64
    if kind in _BOOL:
        return rushlight.bool
    return next((v.dtype for v in inputs[kind == "Where" :] if v is not None), None)


_NARROW = frozenset((rushlight.int8, rushlight.uint8, rushlight.int16, rushlight.uint16))


def _key(attr: Any) -> Any:
    if isinstance(attr, (list, tuple)):
        return str(attr)
    if isinstance(attr, Graph):
        return str(id(attr))
    if hasattr(attr, "tobytes"):
        return f"{attr.dtype}{attr.shape}{attr.tobytes()!r}"
    return f"{type(attr).__name__}{attr!r}"

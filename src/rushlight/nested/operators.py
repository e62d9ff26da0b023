"""Operators on nested tensors: on the packed elements where that can be, else item by item."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import record
from rushlight._interface.dispatch_types import call_name
from rushlight._interface.operators import OPERATORS, composite, function_of
from rushlight._interface.tensors import wrap_dim
from rushlight.nested.tensors import (
    Jagged,
    Nested,
    StridedNested,
    adopt,
    from_items,
    item_sizes,
    items,
    like,
    make_jagged,
    strides_of,
    values_of,
    with_values,
)

__all__ = ["METHODS", "padded"]

METHODS: dict[str, Callable[..., Any]] = {}


def is_nested(x: Any) -> bool:
    """Whether `x` is a nested tensor."""
    return isinstance(x, Nested)


def _refused(name: str, x: Any) -> NotImplementedError:
    return NotImplementedError(f"Could not run 'aten::{name}' with arguments from the '{x.backend}' backend.")


# ***** what they are *****


@Nested.implements("__repr__")
def _(function: Any, self: Any, *, tensor_contents: Any = None) -> str:
    if type(self) is Jagged:
        graph = f", grad_fn={self.grad_fn}" if self._node is not None else ", requires_grad=True" if self._rg else ""
        shape = "(" + ", ".join(map(str, self.shape)) + ")"
        return f"NestedTensor(size={shape}, offsets={self._offsets}{graph}, contiguous={self._lengths is None})"
    tail = f", grad_fn=<{self._node.name()}>" if self._node is not None else ", requires_grad=True" if self._rg else ""
    shown = [t.requires_grad_() if self._rg else t for t in items(self.detach())]
    lines = ",\n".join("\n".join(f"  {line}" for line in repr(t).split("\n")) for t in shown)
    return f"nested_tensor([\n{lines}\n]{tail})"


@StridedNested.implements("size")
def _(function: Any, self: Any, dim: int | None = None) -> Any:
    if dim is None:
        return self.shape
    place = wrap_dim(dim, self._spec.ndim)
    if place == 0:
        return len(self._sizes)
    sizes = {s[place - 1] for s in self._sizes}
    if len(sizes) != 1:
        raise RuntimeError(f"Given dimension {place} is irregular and does not have a size.")
    return sizes.pop()


@Jagged.implements("size")
def _(function: Any, self: Any, dim: int | None = None) -> Any:
    return self.shape if dim is None else self.shape[wrap_dim(dim, self._spec.ndim)]


@Nested.implements("data_ptr")
def _(function: Any, self: Any) -> int:
    return self._held.data_ptr()


@Nested.implements("numel", "nelement")
def _(function: Any, input: Any) -> int:
    if type(input) is Jagged and input._lengths is not None:
        return int(
            rushlight.Size(
                [int(input._lengths.sum()), *[s for d, s in enumerate(input._held.shape) if d != input._ragged - 1]]
            ).numel()
        )
    return int(input._held.numel())


@StridedNested.implements("__len__")
def _(function: Any, self: Any) -> int:
    return len(self.shape)


@Jagged.implements("stride")
def _(function: Any, self: Any, dim: int | None = None) -> Any:
    found = strides_of(self)
    return found if dim is None else found[dim]


@StridedNested.implements("stride")
def _(function: Any, self: Any, dim: int | None = None) -> Any:
    raise RuntimeError("Internal error: NestedTensorImpl doesn't support strides. Please file an issue.")


@Nested.implements("is_contiguous")
def _(function: Any, self: Any, memory_format: Any = None) -> bool:
    return type(self) is StridedNested or self._lengths is None and self._held.is_contiguous()


@Nested.implements("is_same_size")
def _(function: Any, input: Any, other: Any) -> bool:
    return is_nested(input) and is_nested(other) and _same_structure(input, other)


@Nested.implements("numpy", "numpy_of", "tolist")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(f".{function.__name__.removesuffix('_of')}() is not supported for tensor subclasses.")


@Nested.implements("item", "__float__", "__int__")
def _(function: Any, self: Any) -> Any:
    if self.numel() != 1:
        raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    return function(self._held.reshape(()))


def _member(name: str) -> Callable[..., Any]:
    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        setattr(Nested, name, function)
        return function

    return put


@_member("values")
def values(self: Any) -> Tensor:
    """All elements as they are packed."""
    return values_of(self)


@_member("offsets")
def offsets(self: Any) -> Tensor:
    """Where each item begins, and where the last one ends."""
    if type(self) is not Jagged:
        raise AttributeError("'Tensor' object has no attribute 'offsets'")
    return self._offsets


@_member("lengths")
def lengths(self: Any) -> Tensor | None:
    """The sizes of the items in the ragged dim where there are holes between them, else None."""
    if type(self) is not Jagged:
        raise AttributeError("'Tensor' object has no attribute 'lengths'")
    return self._lengths


@_member("_nested_tensor_size")
def _nested_tensor_size(self: Any) -> Tensor:
    """The sizes of the items, one row each."""
    return rushlight.tensor([list(s) for s in item_sizes(self)], dtype=rushlight.int64)


# ***** copies *****


@Nested.implements("clone", "contiguous")
def _(function: Any, input: Any, *, memory_format: Any = None) -> Any:
    packed = call_name(function) == "contiguous"
    if packed and input.is_contiguous():
        return input
    if packed and type(input) is Jagged and input._lengths is not None:
        return _without_holes(input)
    values = input._held.clone(memory_format=rushlight.contiguous_format if packed else rushlight.preserve_format)
    return record("CloneBackward0", [input], like(input, values), lambda grad: (grad,))


def _without_holes(x: Any) -> Any:
    """A jagged tensor whose items lie end to end."""
    return x if x._lengths is None else from_items(items(x), x)


@Nested.implements("detach", "alias")
def _(function: Any, input: Any) -> Any:
    return like(input, input._held)


def _mapped(x: Any, function: Callable[[Tensor], Tensor], name: str = "NestedBackward0") -> Any:
    """A function of every element by itself."""
    return with_values(x, function(values_of(x)), name)


@Nested.implements("to")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    given = [a._held if is_nested(a) else a for a in args]
    held = function(self._held, *given, **kwargs)
    return self if held is self._held else _mapped(self, lambda v: function(v, *given, **kwargs), "ToCopyBackward0")


@Nested.implements("cuda")
def _(function: Any, self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
    return self.to(rushlight.device("cuda" if device is None else device), non_blocking=non_blocking)


def _caster(name: str) -> None:
    @Nested.implements(name)
    def _(function: Any, self: Any, memory_format: Any = None) -> Any:
        made = function(self._held)
        return self if made is self._held else _mapped(self, function, "ToCopyBackward0")


for _name in (
    "float",
    "double",
    "half",
    "bfloat16",
    "long",
    "int",
    "short",
    "char",
    "byte",
    "bool",
    "cfloat",
    "cdouble",
    "cpu",
):
    _caster(_name)


@Nested.implements("type_as")
def _(function: Any, self: Any, other: Any) -> Any:
    return self.to(other.dtype)


@Nested.implements("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "randint_like")
def _(function: Any, input: Any, *args: Any, layout: Any = None, requires_grad: bool = False, **options: Any) -> Any:
    made = like(input, function(input._held, *args, **options))
    return made.requires_grad_() if requires_grad else made


@Nested.implements("zero_", "fill_", "normal_", "uniform_", "bernoulli_")
def _(function: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    made = like(input, function(input._held.clone(), *args, **kwargs))
    return adopt(input, made)


@Nested.implements("copy_")
def _(function: Any, self: Any, src: Any, non_blocking: bool = False) -> Any:
    if not is_nested(self) or not is_nested(src) or item_sizes(self) != item_sizes(src):
        raise RuntimeError("copy_ only supports Nested tensors that have same size")
    return adopt(self, _mapped(src, lambda v: v.to(self.dtype).clone(), "CopyBackwards"))


# ***** elements *****

_MODULES = ("pointwise", "arithmetic", "compare", "activation", "special")
_NOT_BY_ELEMENTS = frozenset(("prelu", "glu", "special_frexp", "frexp", "running_average", "mvlgamma"))
ELEMENTWISE = frozenset(
    name
    for name, op in OPERATORS.items()
    if op.body.__module__.split(".")[-1] in _MODULES and name not in _NOT_BY_ELEMENTS
)
# What PyTorch has for items of any sizes.
STRIDED_UNARY = frozenset((
    "abs", "conj_physical", "cos", "gelu", "isinf", "isnan", "isneginf", "isposinf", "isreal", "logical_not", "neg", "positive", "relu", "sgn", "silu",
    "sin", "sqrt", "tanh",
))  # fmt: skip
STRIDED_BINARY = frozenset(("add", "sub", "mul", "div", "true_divide", "eq", "ge", "gt"))


def _same_structure(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if type(a) is StridedNested:
        return a._sizes == b._sizes
    return a._size == b._size and a._ragged == b._ragged and a._spec.ndim == b._spec.ndim


def _by_elements(name: str) -> None:
    plain = function_of(name)
    node = OPERATORS[name].node
    node = node if isinstance(node, str) else "".join(p.capitalize() for p in name.split("_")) + "Backward0"

    def apply(function: Any, *args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        nested = [a for a in given if is_nested(a)]
        first = nested[0]
        if type(first) is StridedNested:
            _check_strided(name, given, nested)
        for other in nested[1:]:
            if not _same_structure(first, other) and not _broadcasts(first, other):
                raise RuntimeError(
                    f"cannot call binary pointwise function {name}.Tensor with inputs of shapes {_shape_text(first)} and {_shape_text(other)}"
                )
        packed = [_operand(a, first) for a in args]
        named = {k: _operand(a, first) for k, a in kwargs.items()}
        if any(p is NotImplemented for p in (*packed, *named.values())):
            return _item_by_item(plain, first, args, kwargs)
        return with_values(first, plain(*packed, **named), str(node))

    def change(function: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_nested(input):
            raise _refused(name + "_", next(a for a in args if is_nested(a)))
        return adopt(input, apply(None, input, *args, **kwargs))

    Nested.implements(name)(apply)
    Nested.implements(name + "_")(change)


def _broadcasts(a: Any, b: Any) -> bool:
    """Jagged tensors over the same items with other dense dims, of which one may be 1."""
    if type(a) is not Jagged or type(b) is not Jagged:
        return False
    return a._size == b._size and a._ragged == b._ragged and a._spec.ndim == b._spec.ndim


def _shape_text(x: Any) -> str:
    return "(" + ", ".join(map(str, x.shape)) + ")" if type(x) is Jagged else str([list(s) for s in x._sizes])


def _check_strided(name: str, given: list[Any], nested: list[Any]) -> None:
    tensors = [a for a in given if isinstance(a, Tensor)]
    if len(tensors) == 1 and len(given) == 1 and name not in STRIDED_UNARY | STRIDED_BINARY:
        raise _refused(name, nested[0])
    if len(given) > 1 and name not in STRIDED_BINARY | STRIDED_UNARY:
        raise _refused(name, nested[0])
    plain = next((t for t in tensors if not is_nested(t) and t.dim()), None)
    if plain is not None:
        raise RuntimeError("Expected both self and other to be nested, but got a nested self and non-nested other")


def _operand(a: Any, template: Any) -> Any:
    """Form of an operand beside packed elements; NotImplemented where there is none."""
    if is_nested(a):
        return values_of(a)
    if not isinstance(a, Tensor) or not a.dim():
        return a
    held, ndim, ragged = template._held, template._spec.ndim, template._ragged
    if a.dim() > ndim:
        raise RuntimeError(f"cannot broadcast a tensor with {a.dim()} dims to a nested tensor with {ndim}")
    place = ragged - ndim + a.dim()  # the ragged dim, counted in `a`
    if place >= 0 and a.shape[place] != 1:
        raise RuntimeError(f"a plain tensor of shape {tuple(a.shape)} does not fit the ragged dim of a nested tensor")
    if a.dim() < ndim:
        return a
    if a.shape[0] == 1:
        return a[0]
    if ragged != 1 or template._lengths is not None:
        return NotImplemented
    counts = (template._offsets[1:] - template._offsets[:-1]).to(a.device)
    batch = rushlight.arange(a.shape[0], device=a.device).repeat_interleave(counts)
    return a.squeeze(1).index_select(0, batch).reshape(held.size(0), *a.shape[2:])


def _item_by_item(plain: Any, template: Any, args: Any, kwargs: Any) -> Any:
    count = len(item_sizes(template))

    def column(a: Any) -> Any:
        if is_nested(a):
            return items(a)
        if isinstance(a, Tensor) and a.dim() == template._spec.ndim:
            return a.expand(count, *a.shape[1:]).unbind(0)
        return [a] * count

    columns, named = [column(a) for a in args], {k: column(a) for k, a in kwargs.items()}
    return from_items(
        [plain(*[c[k] for c in columns], **{n: c[k] for n, c in named.items()}) for k in range(count)], template
    )


for _name in sorted(ELEMENTWISE):
    _by_elements(_name)


@Nested.implements("positive", "conj", "resolve_conj")
def _(function: Any, input: Any) -> Any:
    return (
        _mapped(input, rushlight.conj, "ConjBackward0")
        if input.is_complex() and call_name(function) == "conj"
        else input
    )


@Nested.implements("dropout")
def _(function: Any, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return _mapped(input, lambda v: rushlight.nn.functional.dropout(v, p, training), "DropoutBackward0")


# ***** items *****


@Nested.implements("unbind")
def _(function: Any, input: Any, dim: int = 0) -> Any:
    if wrap_dim(dim, input._spec.ndim) != 0:
        raise RuntimeError("unbind(): only supported for NestedTensor on dim=0")
    return items(input)


@Nested.implements("__iter__")
def _(function: Any, self: Any) -> Any:
    return iter(items(self))


def _each(x: Any, function: Callable[[Tensor], Tensor], ragged: int | None = None) -> Any:
    return from_items([function(t) for t in items(x)], x, ragged)


def _inner_dim(x: Any, dim: int, name: str) -> int:
    """A dim of the whole as one of the items; the batch dim is refused."""
    place = wrap_dim(dim, x._spec.ndim)
    if not place:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
    return place - 1


@Nested.implements("select")
def _select(function: Any, input: Any, dim: int, index: int) -> Any:
    place = wrap_dim(dim, input._spec.ndim)
    if place == 0:
        return items(input, "SelectBackwardAutogradNestedTensor0")[index]
    if type(input) is Jagged and place == input._ragged:
        raise RuntimeError("select(): not supported for NestedTensor on ragged dim")
    shift = type(input) is Jagged and place < input._ragged
    return _each(input, lambda t: t.select(place - 1, index), input._ragged - 1 if shift else None)


@Nested.implements("__getitem__")
def _(function: Any, self: Any, index: Any) -> Any:
    entries = index if isinstance(index, tuple) else (index,)
    first = entries[0]
    if isinstance(first, int) and not isinstance(first, bool):
        item = items(self, "SelectBackwardAutogradNestedTensor0")[first]
        return item[entries[1:]] if len(entries) > 1 else item
    raise RuntimeError("slice(): not supported for NestedTensor on dim=0")


def padded(x: Any, padding: float, output_size: Any = None) -> Tensor:
    """All items in one plain tensor, filled up with `padding`."""
    if not is_nested(x):
        raise NotImplementedError("Could not run 'aten::to_padded_tensor' with arguments from the 'CPU' backend.")
    if type(x) is Jagged and x._lengths is not None:
        raise RuntimeError("to_padded_tensor(): not supported for nested tensors with holes")
    sizes = item_sizes(x)
    widest = [max(column) for column in zip(*sizes, strict=True)]
    if output_size is not None:
        wanted = list(output_size)
        if len(wanted) != len(widest) + 1 or any(w < s for w, s in zip(wanted[1:], widest, strict=True)):
            raise RuntimeError(
                "Value in output_size is less than NestedTensor padded size. Truncation is not supported."
            )
        widest = wanted[1:]
    rows = []
    for item in items(x):
        pads: list[int] = []
        for size, wide in zip(reversed(item.shape), reversed(widest), strict=True):
            pads += [0, wide - size]
        rows.append(rushlight.nn.functional.pad(item, pads, value=padding))
    return rushlight.stack(rows)


@composite("to_padded_tensor", spaces=(), method=True, overridable=False)
def to_padded_tensor(self: Any, padding: float, output_size: Any = None) -> Tensor:
    """The items of a nested tensor in one plain tensor, filled up with `padding`."""
    return padded(self, padding, output_size)


METHODS["to_padded_tensor"] = to_padded_tensor


# ***** shapes *****


@Nested.implements("transpose", "swapaxes", "swapdims")
def _transpose(function: Any, input: Any, dim0: int, dim1: int) -> Any:
    a, b = sorted((wrap_dim(dim0, input._spec.ndim), wrap_dim(dim1, input._spec.ndim)))
    if a == b:
        return input
    if not a:
        if type(input) is Jagged:
            raise ValueError("Transpose is not supported on the batch dimension for jagged NT")
        raise RuntimeError("Nested tensor dimension 0 cannot be transposed")
    if type(input) is StridedNested:
        return _each(input, lambda t: t.transpose(a - 1, b - 1))
    ragged = {a: b, b: a}.get(input._ragged, input._ragged)
    moved = values_of(input).transpose(a - 1, b - 1)
    made = make_jagged(moved, input._offsets, input._lengths, ragged, input._size)
    return with_values(made, moved, "TransposeBackward0")


@Nested.implements("unsqueeze")
def _(function: Any, input: Any, dim: int) -> Any:
    place = wrap_dim(dim, input._spec.ndim + 1)
    if not place:
        raise RuntimeError("unsqueeze(): not supported for NestedTensor on dim=0")
    shift = type(input) is Jagged and place <= input._ragged
    return _each(input, lambda t: t.unsqueeze(place - 1), input._ragged + 1 if shift else None)


@Nested.implements("squeeze")
def _(function: Any, input: Any, dim: Any = None) -> Any:
    if dim is None:
        raise RuntimeError(
            "squeeze(): For nested tensors, squeeze without the dim argument is not supported at the moment"
        )
    place = _inner_dim(input, dim, "squeeze")
    if any(s[place] != 1 for s in item_sizes(input)):
        return input
    shift = type(input) is Jagged and place + 1 < input._ragged
    return _each(input, lambda t: t.squeeze(place), input._ragged - 1 if shift else None)


@Nested.implements("view", "reshape")
def _reshape(function: Any, input: Any, *shape: Any) -> Any:
    given = list(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else list(shape)
    name = call_name(function)
    if len(given) < 2 or int(given[0]) != input._spec.shape[0]:
        raise RuntimeError(f"{name}(): cannot view shape {_shape_text(input)} as {given}")
    rest = given[1:]
    if type(input) is StridedNested:
        sizes = item_sizes(input)
        return _each(input, lambda t: t.reshape([sizes[0][k] if r == -1 and k < 0 else r for k, r in enumerate(rest)]))
    places = [k for k, r in enumerate(rest) if isinstance(r, int) and (r == -1 or r == input._size)]
    if not places:
        raise RuntimeError(f"{name}(): cannot view shape {_shape_text(input)} as {given}")
    place = places[0]
    return _each(
        input,
        lambda t: t.reshape([t.shape[input._ragged - 1] if k == place else int(r) for k, r in enumerate(rest)]),
        place + 1,
    )


@Nested.implements("unflatten")
def _(function: Any, input: Any, dim: int, sizes: Any) -> Any:
    place = _inner_dim(input, dim, "unflatten")
    shift = type(input) is Jagged and place + 1 < input._ragged
    return _each(input, lambda t: t.unflatten(place, sizes), input._ragged + len(sizes) - 1 if shift else None)


@Nested.implements("flatten")
def _(function: Any, input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    first, last = _inner_dim(input, start_dim, "flatten"), _inner_dim(input, end_dim, "flatten")
    if type(input) is Jagged and first < input._ragged <= last + 1:
        raise RuntimeError("flatten(): not supported for NestedTensor on ragged dim")
    shift = type(input) is Jagged and last + 1 < input._ragged
    return _each(input, lambda t: t.flatten(first, last), input._ragged - (last - first) if shift else None)


@Nested.implements("cat", "concat", "concatenate")
def _(function: Any, tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    if not all(map(is_nested, tensors)):
        raise RuntimeError("Expected each tensor in given list to be nested.")
    first = tensors[0]
    if wrap_dim(dim, first._spec.ndim) == 0:
        return from_items([item for t in tensors for item in items(t)], first)
    place = wrap_dim(dim, first._spec.ndim) - 1
    rows = zip(*map(items, tensors), strict=True)
    return from_items([rushlight.cat(row, place) for row in rows], first)


@Nested.implements("stack")
def _(function: Any, tensors: Any, dim: int = 0, *, out: Any = None) -> Any:
    first = next(t for t in tensors if is_nested(t))
    place = wrap_dim(dim, first._spec.ndim + 1)
    if place == 0:
        raise RuntimeError("stack(): not supported for NestedTensor on dim=0")
    ragged = first._ragged + 1 if type(first) is Jagged and place <= first._ragged else None
    return from_items(
        [rushlight.stack(row, place - 1) for row in zip(*[items(t) for t in tensors], strict=True)], first, ragged
    )


def _pieces(name: str) -> None:
    @Nested.implements(name)
    def _(function: Any, input: Any, *args: Any, dim: int = 0, **kwargs: Any) -> Any:
        if len(args) > 1:
            args, dim = args[:1], args[1]
        place = wrap_dim(dim, input._spec.ndim)
        if not place:
            raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
        if type(input) is Jagged and place == input._ragged:
            raise RuntimeError(f"{name}(): not supported for NestedTensor on ragged dim")
        rows = [getattr(t, name)(*args, dim=place - 1, **kwargs) for t in items(input)]
        return tuple(from_items(column, input) for column in zip(*rows, strict=True))


for _name in ("chunk", "split", "split_with_sizes", "tensor_split"):
    _pieces(_name)


# ***** products and layers *****


@Nested.implements("linear")
def _(function: Any, input: Any, weight: Any, bias: Any = None) -> Any:
    if type(input) is Jagged and input._ragged < input._spec.ndim - 1:
        made = rushlight.nn.functional.linear(values_of(input), weight, bias)
        return with_values(
            make_jagged(made, input._offsets, input._lengths, input._ragged, input._size), made, "LinearBackward0"
        )
    return _each(input, lambda t: rushlight.nn.functional.linear(t, weight, bias))


@Nested.implements("matmul", "bmm")
def _matmul(function: Any, input: Any, other: Any, *, out: Any = None) -> Any:
    if type(input) is StridedNested or type(other) is StridedNested:
        if not (is_nested(input) and is_nested(other)):
            state = ("nested", "non-nested") if is_nested(input) else ("non-nested", "nested")
            raise RuntimeError(f"Expected both to be nested, but got a {state[0]} self and {state[1]} other")
        return from_items([a @ b for a, b in zip(items(input), items(other), strict=True)], input)
    if is_nested(input) and is_nested(other):
        return _jagged_products(input, other)
    template = input if is_nested(input) else other
    rows = [
        items(x) if is_nested(x) else x.unbind(0) if x.dim() == template._spec.ndim else [x] * len(item_sizes(template))
        for x in (input, other)
    ]
    ends = template._ragged == (template._spec.ndim - 1 if template is input else template._spec.ndim - 2)
    if ends:
        raise RuntimeError("matmul(): not supported for a sum over the ragged dim with a plain tensor")
    return from_items([a @ b for a, b in zip(*rows, strict=True)], template)


def _jagged_products(a: Any, b: Any) -> Any:
    """Products of items; where the ragged dims meet in the sum the result is plain."""
    ndim = a._spec.ndim
    made = [x @ y for x, y in zip(items(a), items(b), strict=True)]
    inner = a._ragged == ndim - 1 and b._ragged == ndim - 2
    if inner:
        return rushlight.stack(made)
    if a._ragged == ndim - 2 and b._ragged == ndim - 1:
        raise RuntimeError(f"matmul(): not supported between inputs of shapes {_shape_text(a)} and {_shape_text(b)}")
    return from_items(made, a, a._ragged)


@Nested.implements("softmax", "log_softmax")
def _softmax(function: Any, input: Any, dim: int, dtype: Any = None) -> Any:
    name = call_name(function)
    place = wrap_dim(dim, input._spec.ndim)
    if not place:
        raise RuntimeError(f"{name}(): not supported when reducing across the batch dimension for NestedTensor")
    plain = function_of(name)
    return _each(input, lambda t: plain(t, place - 1, dtype=dtype))


@Nested.implements("layer_norm")
def _(
    function: Any,
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *rest: Any,
) -> Any:
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    if type(input) is StridedNested and (weight is None or bias is None):
        raise ValueError("NestedTensor layer_norm requires weight and bias")
    if type(input) is Jagged and len(shape) >= input._spec.ndim - input._ragged:
        raise RuntimeError("layer_norm(): not supported when normalizing over the ragged dimension for NestedTensor")
    return _each(input, lambda t: rushlight.nn.functional.layer_norm(t, shape, weight, bias, eps))


@Nested.implements("rms_norm")
def _(function: Any, input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    return _each(input, lambda t: rushlight.nn.functional.rms_norm(t, normalized_shape, weight, eps))


@Nested.implements("embedding")
def _(function: Any, input: Any, weight: Any, *args: Any, **kwargs: Any) -> Any:
    if is_nested(weight):
        raise _refused("embedding", weight)
    return _each(input, lambda t: function(t, weight, *args, **kwargs))


@Nested.implements("scaled_dot_product_attention")
def _(
    function: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    if attn_mask is not None:
        raise RuntimeError("scaled_dot_product_attention(): attn_mask must be None for nested tensors")
    if not dropout_p and _reads_offsets(query, key, value, is_causal, enable_gqa):
        return _attention_by_offsets(query, key, value, is_causal, scale)
    count = len(item_sizes(next(x for x in (query, key, value) if is_nested(x))))
    rows = [items(x) if is_nested(x) else x.expand(count, *x.shape[1:]).unbind(0) for x in (query, key, value)]
    template = query if is_nested(query) else value
    options = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    made = [
        function(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), **options).squeeze(0)
        for q, k, v in zip(*rows, strict=True)
    ]
    return from_items(made, template)


def _reads_offsets(query: Any, key: Any, value: Any, is_causal: bool, enable_gqa: bool) -> bool:
    """Whether one kernel attends to all items: heads of jagged tensors on a GPU, with as many keys as values."""
    whole = (query, key, value)
    if any(type(x) is not Jagged or x._lengths is not None or x._ragged != 2 or x._spec.ndim != 4 for x in whole):
        return False
    dtypes, heads = {x.dtype for x in whole}, [x._held.shape[0] for x in whole]
    alike = heads[1] == heads[2] and (heads[0] == heads[1] or (enable_gqa and heads[1] and heads[0] % heads[1] == 0))
    same = key._offsets is value._offsets and (query._offsets is key._offsets or not is_causal)
    widths = query._held.shape[2] == key._held.shape[2] and query._offsets.shape == key._offsets.shape
    plain = len(dtypes) == 1 and query.dtype.is_floating_point and query.device.type == "cuda"
    return plain and alike and same and widths and all(x._held.numel() for x in whole)


def _attention_by_offsets(query: Any, key: Any, value: Any, is_causal: bool, scale: float | None) -> Any:
    q, k, v = (values_of(x).transpose(0, 1) for x in (query, key, value))
    offsets = query._offsets.to(q.device), key._offsets.to(q.device)
    result, _ = function_of("ragged_attention")(
        q, k, v, *offsets, None, max_q=query._max_seqlen, max_k=key._max_seqlen,
        scale=1.0 / math.sqrt(q.size(-1)) if scale is None else scale, right=0 if is_causal else -1,
    )  # fmt: skip
    made = result.transpose(0, 1)
    return with_values(make_jagged(made, query._offsets, None, 2, query._size), made)


# ***** reductions *****


def _reduce(name: str) -> None:
    def apply(function: Any, input: Any, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
        plain = getattr(rushlight, name)
        if type(input) is StridedNested:
            if name != "sum" or dim is None:
                raise _refused(name, input)
            if not keepdim:
                raise RuntimeError("NestedTensor always requires keepdim=True for now.")
            if [wrap_dim(d, input._spec.ndim) for d in ([dim] if isinstance(dim, int) else dim)] != [
                input._spec.ndim - 1
            ]:
                raise RuntimeError("NestedTensor only allows reduction of the last dimension for now.")
            return _each(input, lambda t: plain(t, -1, keepdim=True, **options))
        whole = _without_holes(input)
        if dim is None or isinstance(dim, (tuple, list)) and not dim:
            return plain(values_of(whole), **options)
        return _reduce_jagged(name, plain, whole, dim, keepdim, options)

    Nested.implements(name)(apply)


def _reduce_jagged(name: str, plain: Any, x: Any, dim: Any, keepdim: bool, options: dict[str, Any]) -> Any:
    dims = sorted({wrap_dim(d, x._spec.ndim) for d in ([dim] if isinstance(dim, int) else dim)})
    ragged = x._ragged
    _check_batch(name, x, dims)
    if ragged in dims and 0 not in dims and len(dims) > 1:
        raise RuntimeError(
            f"{name}(): reducing along a ragged and non-batch dimension is not supported for nested tensors"
        )
    given = dim if isinstance(dim, int) else None
    if 0 in dims:
        inner = [d - 1 for d in dims if d]
        made = plain(values_of(x), inner, keepdim=keepdim, **options)
        return made.unsqueeze(0) if keepdim else made
    if ragged in dims:
        rows = [plain(t, ragged - 1, keepdim=keepdim, **options) for t in items(x)]
        return rushlight.stack(rows)
    places: Any = [d - 1 for d in dims] if given is None else dims[0] - 1
    return _inside(name, x, plain(values_of(x), places, keepdim=keepdim, **options), dims, keepdim)


def _check_batch(name: str, x: Any, dims: list[int]) -> None:
    if 0 in dims and x._ragged not in dims:
        raise RuntimeError(
            f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for nested tensors"
        )


def _inside(name: str, x: Any, made: Any, dims: list[int], keepdim: bool) -> Any:
    """The jagged tensor of what its elements were reduced to along dims within the items."""
    moved = x._ragged if keepdim else x._ragged - sum(d < x._ragged for d in dims)
    return with_values(make_jagged(made, x._offsets, None, moved, x._size), made, f"{name.capitalize()}Backward0")


for _name in ("sum", "mean", "amax", "amin", "prod", "argmax", "argmin", "any", "all"):
    _reduce(_name)


def _extreme(name: str) -> None:
    @Jagged.implements(name + "_dim", name)
    def _(function: Any, input: Any, *args: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if args and is_nested(args[0]):
            return _item_by_item(getattr(rushlight, name), input, (input, *args), {})
        place, keepdim, whole = args[0] if args else dim, args[1] if len(args) > 1 else keepdim, _without_holes(input)
        if place is None:
            return getattr(rushlight, name)(values_of(whole))
        place = wrap_dim(place, input._spec.ndim)
        _check_batch(name, input, [place])
        if place != input._ragged:
            pair = getattr(values_of(whole), name)(place - 1, keepdim=keepdim)
            return type(pair)([_inside(name, whole, made, [place], keepdim) for made in pair])
        rows = [getattr(t, name)(input._ragged - 1, keepdim=keepdim) for t in items(input)]
        return type(rows[0])([rushlight.stack(column) for column in zip(*rows, strict=True)])


for _name in ("max", "min"):
    _extreme(_name)

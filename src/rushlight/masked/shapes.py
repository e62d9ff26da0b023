"""Operators on masked tensors: those that move elements and masks in the same way, conversions, copies, and
facts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import record
from rushlight._interface.dispatch_types import call_name
from rushlight.masked.masked_tensor import MaskedTensor, is_masked_tensor, make_masked
from rushlight.masked.operators import adopt, apply, node_name, pulled_through

__all__: list[str] = []

MOVES = (
    "__getitem__", "adjoint", "broadcast_to", "cat", "chunk", "col2im", "column_stack", "dsplit", "dstack", "expand", "expand_as", "flatten",
    "hsplit", "hstack", "im2col", "narrow", "ravel", "repeat_interleave", "reshape", "select", "slice", "split", "split_with_sizes", "stack",
    "swapaxes", "t", "tensor_split", "transpose", "unflatten", "unfold", "unsqueeze", "view", "view_as", "vsplit", "vstack",
)  # fmt: skip


def _moved(function: Any, *args: Any, **kwargs: Any) -> Any:
    """The same done to the elements and to the mask."""
    found: list[Any] = []
    pattern = _without_tensors([args, kwargs], found)
    if any(x.is_sparse for x in found if is_masked_tensor(x)):
        return _moved_sparse(function, args, kwargs)
    masks = [x._masked_mask if is_masked_tensor(x) else x for x in found]

    def move(*tensors: Tensor) -> Any:
        given, named = _with_tensors(pattern, iter(tensors))
        return function(*given, **named)

    moved = move(*masks)
    name = _indexing_node(args[1]) if call_name(function) == "__getitem__" else node_name(call_name(function))
    if isinstance(moved, Tensor):
        return _one(name, move, found, moved)
    return type(moved)([_one(name, lambda *t, k=k: move(*t)[k], found, mask) for k, mask in enumerate(moved)])


def _indexing_node(index: Any) -> str:
    last = index[-1] if isinstance(index, tuple) and index else index
    if isinstance(last, Tensor) or isinstance(last, (list, bool)):
        return "IndexBackward0"
    return "SelectBackward0" if isinstance(last, int) else "UnsqueezeBackward0" if last is None else "SliceBackward0"


def _one(name: str, move: Callable[..., Any], inputs: Sequence[Tensor], mask: Tensor) -> Any:
    return apply(name, move, inputs, mask, pulled_through(move, inputs), None)


def _moved_sparse(function: Any, args: Any, kwargs: Any) -> Any:
    """A sparse one is made dense, moved, and made sparse again."""
    found: list[Any] = []
    pattern = _without_tensors([args, kwargs], found)
    layout = next(x.layout for x in found if is_masked_tensor(x))
    given, named = _with_tensors(pattern, iter([x.to_dense() if is_masked_tensor(x) else x for x in found]))

    def back(x: Any) -> Any:
        return x.to_sparse_csr() if layout is rushlight.sparse_csr and x.dim() == 2 else x.to_sparse_coo()

    made = function(*given, **named)
    return back(made) if isinstance(made, Tensor) else type(made)([back(x) for x in made])


class _Place:
    """Where a tensor stood."""


def _without_tensors(value: Any, found: list[Any]) -> Any:
    """The arguments with their floating point and masked tensors taken out; indices stay."""
    if isinstance(value, Tensor) and (is_masked_tensor(value) or value.is_floating_point()):
        found.append(value)
        return _Place
    if isinstance(value, (list, tuple)):
        return type(value)([_without_tensors(v, found) for v in value])
    return {k: _without_tensors(v, found) for k, v in value.items()} if isinstance(value, dict) else value


def _with_tensors(value: Any, tensors: Any) -> Any:
    if value is _Place:
        return next(tensors)
    if isinstance(value, (list, tuple)):
        return type(value)([_with_tensors(v, tensors) for v in value])
    return {k: _with_tensors(v, tensors) for k, v in value.items()} if isinstance(value, dict) else value


MaskedTensor.implements(*MOVES)(_moved)


@MaskedTensor.implements("mT", "H")
def _(function: Any, self: Any) -> Any:
    return self.transpose(-2, -1)


@MaskedTensor.implements("atleast_1d", "atleast_2d", "atleast_3d", "broadcast_tensors")
def _(function: Any, *tensors: Any) -> Any:
    return function.__wrapped__(*tensors)


@MaskedTensor.implements("where")
def _(function: Any, condition: Any, input: Any = None, other: Any = None) -> Any:
    if input is None or other is None:
        raise TypeError("where(): MaskedTensor takes a condition and two operands")
    if is_masked_tensor(condition) or not isinstance(condition, Tensor):
        raise TypeError(f"where(): the condition must be a plain tensor, not {type(condition).__name__}")
    sides = [input, other]
    inputs = [x for x in sides if isinstance(x, Tensor)]
    masks = [x._masked_mask if is_masked_tensor(x) else rushlight.tensor(True) for x in sides]

    def choose(*tensors: Tensor) -> Any:
        left = iter(tensors)
        a, b = (next(left) if isinstance(x, Tensor) else x for x in sides)
        return rushlight.where(condition, a, b)

    mask = rushlight.where(condition, *masks)
    return apply("_MaskedWhereBackward", choose, inputs, mask, pulled_through(choose, inputs), None)


# ***** copies and conversions *****


def _same_form(name: str, x: Any, f: Callable[[Tensor], Tensor]) -> Any:
    """`f` of every element, under the mask of `x`."""
    mask = x._masked_mask if not x.is_sparse else x._masked_mask.values()
    return apply(name, f, [x], mask, lambda counts: [counts], x)


@MaskedTensor.implements("clone")
def _(function: Any, input: Any, *, memory_format: Any = None) -> Any:
    return _same_form("CloneBackward0", input, lambda v: v.clone())


@MaskedTensor.implements("detach", "alias")
def _(function: Any, input: Any) -> Any:
    return make_masked(input._masked_data, input._masked_mask)


@MaskedTensor.implements("detach_")
def _(function: Any, input: Any) -> Any:
    input._node, input._rg = None, False
    return input


@MaskedTensor.implements("contiguous")
def _(function: Any, input: Any, *, memory_format: Any = None) -> Any:
    if input.is_contiguous():
        return input
    made = make_masked(input._masked_data.contiguous(), input._masked_mask.contiguous())
    return record("_MaskedContiguousBackward", [input], made, lambda grad: (grad,))


@MaskedTensor.implements("to", "_type", "type_as")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    given = [a._masked_data if is_masked_tensor(a) else a for a in args]
    if call_name(function) == "_type" and not args and not kwargs:
        return f"torch.{self.dtype.name}"
    plain = self._masked_data if not self.is_sparse else self._masked_data.values()
    made = function(plain, *given, **kwargs)
    return self if made is plain else _same_form("ToCopyBackward0", self, lambda v: function(v, *given, **kwargs))


def _caster(name: str) -> None:
    @MaskedTensor.implements(name)
    def _(function: Any, self: Any, memory_format: Any = None) -> Any:
        dtype = function(rushlight.zeros((), dtype=self.dtype)).dtype
        return self.to(dtype)


for _name in ("float", "double", "half", "long", "int", "short", "char", "bool", "byte", "bfloat16", "cpu"):
    _caster(_name)


@MaskedTensor.implements("ones_like")
def _(function: Any, input: Any, *args: Any, requires_grad: bool = False, **options: Any) -> Any:
    plain = input._masked_data if not input.is_sparse else input._masked_data.values()
    ones = function(plain, *args, **options)
    made = _same_form("OnesLikeBackward0", input.detach(), lambda v: ones)
    return made.requires_grad_() if requires_grad else made


@MaskedTensor.implements("copy_")
def _(function: Any, self: Any, src: Any, non_blocking: bool = False) -> Any:
    if not is_masked_tensor(self):
        raise TypeError("copy_(): a MaskedTensor cannot be written into a plain tensor")
    inputs = [src]
    shape, dtype = tuple(self.shape), self.dtype
    if self.is_sparse or (is_masked_tensor(src) and src.is_sparse):
        raise TypeError("copy_(): only between strided MaskedTensors")

    def copied(v: Tensor) -> Tensor:
        return v.expand(shape).to(dtype).clone()

    return adopt(
        "copy", self, apply("CopyBackwards", copied, inputs, self._masked_mask, pulled_through(copied, inputs), None)
    )


def _member(*names: str) -> Callable[..., Any]:
    """A method of MaskedTensor itself: those of sparse tensors are put on Tensor when `rushlight.sparse` is loaded, and
    ask nobody.
    """

    def put(method: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            setattr(MaskedTensor, name, method)
        return method

    return put


@_member("to_sparse", "to_sparse_coo")
def to_sparse(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Elements and mask in coordinates: those that count."""
    if self.is_sparse_coo():
        return self
    if self.is_sparse:
        return self.to_dense().to_sparse_coo()
    mask = self._masked_mask.to_sparse_coo().coalesce()
    made = make_masked(self._masked_data.sparse_mask(mask), mask)
    return record("_MaskedToSparseBackward", [self], made, _dense_gradient)


@_member("to_sparse_csr")
def to_sparse_csr(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Elements and mask as CSR: those that count; of matrices only."""
    if self.dim() != 2:
        raise ValueError(f"Only 2D tensors can be converted to the SparseCsr layout but got shape: {tuple(self.shape)}")
    if self.is_sparse_csr():
        return self
    if self.is_sparse:
        return self.to_dense().to_sparse_csr()
    mask = self._masked_mask.to_sparse_csr()
    made = make_masked(self._masked_data.sparse_mask(mask), mask)
    return record("_MaskedToSparseCsrBackward", [self], made, _dense_gradient)


def _dense_gradient(grad: Any) -> tuple[Any]:
    return (grad.to_dense(),)


@_member("to_dense")
def to_dense(self: Any, dtype: Any = None, *, masked_grad: Any = None) -> Any:
    """Elements and mask as strided tensors."""
    if not self.is_sparse:
        return self
    coo = self.is_sparse_coo()
    made = make_masked(self._masked_data.to_dense(), self._masked_mask.to_dense())
    return record(
        "_MaskedToDenseBackward", [self], made, lambda grad: (grad.to_sparse_coo() if coo else grad.to_sparse_csr(),)
    )


def _refuse(name: str) -> None:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return MaskedTensor.otherwise(None, name, (self, *args), kwargs)

    method.__name__ = name
    _member(name)(method)


for _name in (
    "values",
    "indices",
    "crow_indices",
    "col_indices",
    "coalesce",
    "is_coalesced",
    "to_sparse_csc",
    "to_sparse_bsr",
    "to_sparse_bsc",
):
    _refuse(_name)


# ***** facts *****


@MaskedTensor.implements("imag")
def _(function: Any, self: Any) -> Any:
    raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")


@MaskedTensor.implements("item", "__float__", "__int__", "__bool__")
def _(function: Any, self: Any) -> Any:
    if self.numel() != 1:
        if function.__name__ == "__bool__":
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    dense = self.to_dense()
    if not bool(dense._masked_mask.reshape(())):
        raise ValueError(f"{function.__name__}(): the element does not count")
    return function(dense._masked_data.reshape(()))


@MaskedTensor.implements("numpy", "numpy_of", "tolist", "__array__")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(
        f".{function.__name__.removesuffix('_of')}() is not supported for tensor subclasses, got MaskedTensor"
    )


@MaskedTensor.implements("storage", "untyped_storage", "_typed_storage")
def _(function: Any, self: Any) -> Any:
    raise RuntimeError(
        f"{function.__name__}(): a MaskedTensor has no storage of its own; call get_data() or get_mask() first"
    )


@MaskedTensor.implements("data_ptr", "storage_offset")
def _(function: Any, self: Any) -> int:
    return 0


@MaskedTensor.implements("stride")
def _(function: Any, self: Any, dim: int | None = None) -> Any:
    return self._spec.strides if dim is None else self._spec.strides[dim]


@MaskedTensor.implements("is_contiguous")
def _(function: Any, self: Any, memory_format: Any = rushlight.contiguous_format) -> bool:
    if self.is_sparse:
        raise ValueError("MaskedTensors with sparse data do not have is_contiguous")
    return bool(self._masked_data.is_contiguous(memory_format=memory_format))


@MaskedTensor.implements("is_same_size")
def _(function: Any, input: Any, other: Any) -> bool:
    return bool(input.shape == other.shape)

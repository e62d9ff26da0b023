"""Methods of sparse tensors that look at them, copy them or change what they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import SPARSE_LAYOUTS, Tensor
from rushlight._interface.autograd import record
from rushlight._interface.dispatch_types import describe_sparse
from rushlight._interface.operators import composite
from rushlight._interface.tensors import as_shape
from rushlight.sparse import layouts, matrix_products, parts
from rushlight.sparse.construct import emptied, empty_parts, older
from rushlight.sparse.parts import by_rows, is_sparse, like, masked, values_of, with_parts
from rushlight.sparse.tensors import (
    COO,
    WORDS,
    CompressedTensor,
    SparseBase,
    SparseTensor,
    adopt,
    backend_of,
    bare,
    make_compressed,
    make_coo,
    take_parts,
)

__all__ = ["METHODS"]

METHODS: dict[str, Callable[..., Any]] = {}


def _member(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method of every tensor, strided ones included."""
    made = METHODS[function.__name__] = composite(function.__name__, spaces=(), method=True, overridable=False)(
        function
    )
    return made


def _word(x: Any) -> str:
    return WORDS[x.layout.name]


# ***** what they hold *****


def _wants(x: Any, name: str, what: str) -> None:
    raise RuntimeError(f"{name} expected {what} but got {_word(x)}")


def _missing(name: str, x: Any) -> NotImplementedError:
    return NotImplementedError(f"Could not run 'aten::{name}' with arguments from the '{backend_of(x)}' backend.")


@_member
def indices(self: Any) -> Tensor:
    """Coordinates (sparse dims, n) of a coalesced tensor."""
    if type(self) is not SparseTensor:
        _wants(self, "indices", "sparse coordinate tensor layout")
    if not self._sorted:
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return self._where.detach()


@_member
def values(self: Any) -> Tensor:
    """The values of a coalesced or compressed tensor; the gradient flows through."""
    if not is_sparse(self):
        _wants(self, "values", "sparse tensor layout")
    if type(self) is SparseTensor and not self._sorted:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    return values_of(self)


@_member
def _indices(self: Any) -> Tensor:
    """Coordinates as they are, coalesced or not."""
    if type(self) is not SparseTensor:
        raise _missing("_indices", self)
    return self._where.detach()


@_member
def _values(self: Any) -> Tensor:
    """Values as they are, coalesced or not, outside of the graph."""
    if type(self) is not SparseTensor:
        raise _missing("_values", self)
    return self._held.detach()


def _index_member(name: str, rows: bool, compressed: bool) -> None:
    def get(self: Any) -> Tensor:
        if type(self) is not CompressedTensor or by_rows(self) is not rows:
            _wants(self, name, f"sparse {'row' if rows else 'column'} compressed tensor layout")
        return (self._pointers if compressed else self._others).detach()

    get.__name__ = name
    get.__doc__ = f"The {'compressed' if compressed else 'plain'} indices of a tensor whose {'rows' if rows else 'columns'} are compressed."
    _member(get)


_index_member("crow_indices", True, True)
_index_member("col_indices", True, False)
_index_member("ccol_indices", False, True)
_index_member("row_indices", False, False)


@_member
def _nnz(self: Any) -> int:
    """Number of entries (blocks in blocked layouts, per batch)."""
    if not is_sparse(self):
        raise _missing("_nnz", self)
    return int(self._where.size(1) if type(self) is SparseTensor else self._others.size(-1))


@_member
def sparse_dim(self: Any) -> int:
    """Number of sparse dims; 0 for a strided tensor."""
    return 0 if not is_sparse(self) else int(self._where.size(0)) if type(self) is SparseTensor else 2


@_member
def dense_dim(self: Any) -> int:
    """Number of dense dims; all of them for a strided tensor."""
    if not is_sparse(self):
        return int(self.dim())
    return int(
        self._held.dim() - (1 if type(self) is SparseTensor else self._pointers.dim() + len(parts.block_shape(self)))
    )


@_member
def is_coalesced(self: Any) -> bool:
    """Whether the coordinates are known to be in order and distinct."""
    if type(self) is not SparseTensor:
        _wants(self, "is_coalesced", "sparse coordinate tensor layout")
    return bool(self._sorted)


@_member
def _coalesced_(self: Any, coalesced: bool) -> Any:
    """Say that the coordinates are (or are not) in order and distinct."""
    self._sorted = bool(coalesced)
    return self


@_member
def coalesce(self: Any) -> Tensor:
    """The same tensor with ordered, distinct coordinates; itself when it has them."""
    if type(self) is not SparseTensor:
        _wants(self, "coalesce", "sparse coordinate tensor layout")
    return parts.coalesce(self)


# ***** conversions *****


@_member
def to_dense(self: Any, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The strided tensor with the same elements; a strided one itself.

    With `masked_grad=False` the gradient is not confined to the places that `self` has.
    """
    made = parts.to_dense(self, masked_grad is not False)
    return made if dtype is None else made.to(dtype)


@_member
def to_sparse(
    self: Any, *args: Any, sparse_dim: Any = None, layout: Any = None, blocksize: Any = None, dense_dim: Any = None
) -> Tensor:
    """A sparse copy: `to_sparse(sparse_dim)` in coordinates, or in any `layout`.

    >>> import rushlight as torch
    >>> torch.eye(2).to_sparse()
    tensor(indices=tensor([[0, 1],
                           [0, 1]]),
           values=tensor([1., 1.]),
           size=(2, 2), nnz=2, layout=torch.sparse_coo)
    """
    if args:
        if len(args) > 1 or layout is not None or not isinstance(args[0], int):
            raise TypeError(f"to_sparse() takes 0 positional arguments but {len(args)} was given")
        sparse_dim = args[0]
    if layout is not None and layout.name == "strided":
        return to_dense(self)
    return layouts.to_sparse(self, layout or COO, sparse_dim, blocksize, dense_dim)


METHODS["_to_sparse"] = Tensor._to_sparse = to_sparse  # type: ignore[attr-defined]


@_member
def to_sparse_coo(self: Any) -> Tensor:
    """In coordinates."""
    return layouts.to_sparse(self, COO, None, None, None)


def _converter(name: str, blocked: bool) -> None:
    layout = SPARSE_LAYOUTS[name]
    if blocked:

        def to_blocks(self: Any, blocksize: Any, dense_dim: Any = None) -> Tensor:
            return layouts.to_sparse(self, layout, None, blocksize, dense_dim)

        made = to_blocks
    else:

        def to_layout(self: Any, dense_dim: Any = None) -> Tensor:
            return layouts.to_sparse(self, layout, None, None, dense_dim)

        made = to_layout
    made.__name__ = "to_" + name
    made.__doc__ = f"In layout `torch.{name}`" + (", in blocks of `blocksize`." if blocked else ".")
    _member(made)


for _name, _blocked in (("sparse_csr", False), ("sparse_csc", False), ("sparse_bsr", True), ("sparse_bsc", True)):
    _converter(_name, _blocked)


@_member
def sparse_mask(self: Any, mask: Any) -> Tensor:
    """`self` at the places of the sparse tensor `mask` alone."""
    if not is_sparse(mask):
        if type(self) is CompressedTensor:
            raise RuntimeError(
                f"sparse_mask_sparse_compressed expects mask to have sparse compressed layout, got {_word(mask)}"
            )
        raise _missing("_nnz", mask)
    if self.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size {list(mask.shape)}"
        )
    if type(self) is CompressedTensor:  # what only the mask has is left out
        return self * with_parts(mask, rushlight.ones_like(mask._held, dtype=self.dtype))
    return masked(self, mask)


# ***** resizing *****


def _resized(x: Any, size: Any, sparse_dim: int, dense_dim: int, clear: bool) -> Any:
    shape = as_shape((size,))
    if type(x) is not SparseTensor:
        raise _missing("sparse_resize_and_clear_" if clear else "sparse_resize_", x)
    if sparse_dim + dense_dim != len(shape):
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(shape)}, sparse_dim = {sparse_dim}, dense_dim = {dense_dim}"
        )
    if clear or not x._where.size(1):
        return take_and_return(x, empty_parts(shape, dense_dim, x.dtype, COO, x.device))
    for kind, now, then in (("sparse", x.sparse_dim(), sparse_dim), ("dense", x.dense_dim(), dense_dim)):
        if now != then:
            raise RuntimeError(
                f"changing the number of {kind} dimensions (from {now} to {then}) on a non-empty sparse tensor is not supported."
            )
    for kind, first, last in (("sparse", 0, sparse_dim), ("dense", sparse_dim, len(shape))):
        if any(b < a for a, b in zip(x.shape[first:last], shape[first:last], strict=True)):
            raise RuntimeError(
                f"shrinking the size of {kind} dimensions (from {list(x.shape[first:last])} to {list(shape[first:last])}) on a non-empty sparse "
                "tensor is not supported."
            )
    rest = shape[sparse_dim:]
    held = x._held
    if tuple(held.shape[1:]) != tuple(rest):
        grown = held.new_zeros((held.size(0), *rest))
        grown[tuple(slice(0, n) for n in held.shape)] = held
        held = grown
    return take_and_return(x, make_coo(x._where, held, shape, x._sorted))


def take_and_return(x: Any, made: Any) -> Any:
    """Let `x` hold what `made` holds."""
    take_parts(x, made)
    return x


@_member
def sparse_resize_(self: Any, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Change the size and the numbers of sparse and dense dims; a tensor with entries may only grow."""
    return _resized(self, size, sparse_dim, dense_dim, False)


@_member
def sparse_resize_and_clear_(self: Any, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Remove all entries, then `sparse_resize_`."""
    return _resized(self, size, sparse_dim, dense_dim, True)


@_member
def resize_as_sparse_(self: Any, the_template: Any) -> Tensor:
    """`sparse_resize_` to the size and dims of another sparse tensor."""
    if type(self) is CompressedTensor and is_sparse(the_template):
        return take_and_return(self, bare(the_template).clone())
    if not is_sparse(self):
        raise RuntimeError(f"resize_as_sparse_ expected sparse coordinate tensor layout but got {_word(self)}")
    if self.shape == the_template.shape and self.sparse_dim() == the_template.sparse_dim():
        return self
    return _resized(self, tuple(the_template.shape), the_template.sparse_dim(), the_template.dense_dim(), False)


# ***** handlers: facts *****

SparseBase.passes = frozenset(("svd_lowrank",))


@SparseBase.implements("__repr__")
def _(function: Any, self: Any, *, tensor_contents: Any = None) -> str:
    return describe_sparse(self)


@SparseTensor.implements("stride")
def _(function: Any, self: Any, dim: int | None = None) -> Any:
    return (0,) * self.dim() if dim is None else 0


@CompressedTensor.implements("stride", "is_contiguous", "contiguous", "dim_order")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    word = self._format.name.removeprefix("sparse_").upper()
    what = "is_contiguous" if function.__name__ in ("is_contiguous", "contiguous") else "strides"
    raise RuntimeError(f"Sparse {word} tensors do not have {what}")


@SparseTensor.implements("is_contiguous")
def _(function: Any, self: Any, memory_format: Any = None) -> bool:
    return False


@SparseTensor.implements("contiguous")
def _(function: Any, self: Any, memory_format: Any = None) -> Any:
    raise RuntimeError("unsupported memory format option Contiguous")


@SparseBase.implements("storage_offset")
def _(function: Any, self: Any) -> int:
    return 0


@SparseBase.implements("is_pinned")
def _(function: Any, self: Any, device: Any = None) -> bool:
    return function(self._held)


@SparseBase.implements("data_ptr", "tolist")
def _(function: Any, self: Any) -> Any:
    raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")


@SparseBase.implements("storage", "untyped_storage")
def _(function: Any, self: Any) -> Any:
    raise NotImplementedError("Cannot access storage of SparseTensorImpl")


@SparseBase.implements("numpy", "numpy_of", "__array__")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    raise TypeError(f"can't convert {_word(self)} layout tensor to numpy. Use Tensor.to_dense() first.")


@SparseBase.implements("item", "__float__", "__int__", "__complex__", "__index__")
def _(function: Any, self: Any) -> Any:
    if self.numel() != 1:
        raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
    return function(parts.to_dense(bare(self)).reshape(()))


@SparseBase.implements("__bool__", "is_nonzero")
def _(function: Any, self: Any) -> bool:
    if self.numel() != 1:
        raise RuntimeError(
            f"Boolean value of Tensor with {'no values' if not self.numel() else 'more than one value'} is ambiguous"
        )
    return bool(parts.to_dense(bare(self)).reshape(()))


@SparseBase.implements("_type", "type")
def _(function: Any, self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    if dtype is not None:
        return moved(self, function(self._held, dtype, non_blocking=non_blocking))
    if type(self) is CompressedTensor:
        raise RuntimeError(f"Unimplemented backend {backend_of(self)}")
    place, _, word = self._held.type().rpartition(".")
    return f"{place}.sparse.{word}"


@SparseBase.implements("detach_")
def _(function: Any, self: Any) -> Any:
    self._node, self._rg = None, False
    return self


# ***** handlers: copies *****


@SparseBase.implements("clone")
def _(function: Any, input: Any, *, memory_format: Any = None) -> Any:
    return record("CloneBackward0", [input], copied(input), lambda grad: (grad,))


def copied(x: Any) -> Any:
    """A copy with memory of its own, outside of any graph."""
    return rebuilt(x, lambda part: part.clone())


@SparseBase.implements("detach", "alias")
def _(function: Any, input: Any) -> Any:
    return input._copy_of_parts()  # one version, unlike `data`


def cast(x: Any, dtype: Any) -> Any:
    """Another dtype for the values; the gradient goes back to the first one."""
    return moved(x, x._held.to(dtype))


@SparseBase.implements("to")
def _(function: Any, self: Any, *args: Any, copy: bool = False, **kwargs: Any) -> Any:
    if any(isinstance(a, Tensor) and a.layout is not self.layout for a in args):
        raise RuntimeError("to(options) doesn't support converting to a different layout")
    wanted = [a._held if is_sparse(a) else a for a in args]
    if len(wanted) > 2 and isinstance(wanted[-1], bool):
        copy = bool(wanted.pop())
    made = moved(self, function(self._held, *wanted, **kwargs))
    return made.clone() if copy and made is self else made


@SparseBase.implements("cpu", "cuda")
def _(function: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    return moved(self, function(self._held, *args, **kwargs))


@SparseBase.implements("pin_memory")
def _(function: Any, self: Any, device: Any = None) -> Any:
    return rebuilt(self, function)


def moved(x: Any, held: Tensor) -> Any:
    """The tensor with these values, which are its own in another dtype or on another device; its indices follow them.

    The gradient goes back to the dtype and the device of `x`.
    """
    if held is x._held:
        return x
    if held.device == x.device:
        return record("ToCopyBackward0", [x], with_parts(x, held), lambda grad: (grad,))
    made = rebuilt(x, lambda part: held if part is x._held else part.to(held.device))
    return record("ToCopyBackward0", [x], made, lambda grad: (grad.to(x.device),))


def rebuilt(x: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A tensor of the same layout over changed parts, outside of any graph."""
    if type(x) is SparseTensor:
        return make_coo(change(x._where), change(x._held), x.shape, x._sorted)
    return make_compressed(x._format, change(x._pointers), change(x._others), change(x._held), x.shape)


def _caster(name: str) -> None:
    @SparseBase.implements(name)
    def _(function: Any, self: Any, memory_format: Any = None) -> Any:
        return moved(self, function(self._held))


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
):
    _caster(_name)


@SparseBase.implements("type_as")
def _(function: Any, self: Any, other: Any) -> Any:
    if self.layout is not other.layout:
        raise RuntimeError(
            f"to(options) doesn't support converting to a different layout, but got self.layout being {_word(self)} and options.layout set as "
            f"{_word(other)}"
        )
    return moved(self, self._held.to(other.device, other.dtype))


@SparseBase.implements("copy_")
def _(function: Any, self: Any, src: Any, non_blocking: bool = False) -> Any:
    if not is_sparse(src) or not is_sparse(self) or type(src) is not type(self):
        raise RuntimeError(
            "copy_() between dense and sparse Tensors is not implemented! "
            f"Found self type = {_type_word(self)} and src type = {_type_word(src)}"
        )
    if src.layout is not self.layout:
        raise RuntimeError(
            "torch.copy_: copy of sparse compressed tensors having different layouts is not supported. "
            f"self layout is {_word(self)} and src layout is {_word(src)}"
        )
    if self.shape != src.shape and (type(self) is CompressedTensor or self._nnz()):
        raise RuntimeError(
            f"copy_: a sparse tensor of size {list(self.shape)} with entries cannot become one of size {list(src.shape)}"
        )
    if type(self) is CompressedTensor and self._nnz() != src._nnz():
        raise RuntimeError(
            "torch.copy_: only sparse compressed tensors with the same number of specified elements are supported."
        )
    source = moved(bare(src), src._held.to(self.device, self.dtype, non_blocking=non_blocking))
    made = copied(source) if src.device == self.device else source
    record("CopyBackwards", [src], made, lambda grad: (grad.to(src.device),))
    return adopt(self, made)


def _type_word(x: Any) -> str:
    return "SparseCsr" if type(x) is CompressedTensor else str(x.type())


@SparseBase.implements("zero_")
def _(function: Any, input: Any) -> Any:
    return adopt(input, emptied(input))


@CompressedTensor.implements("normal_")
def _(function: Any, self: Any, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Any:
    return adopt(self, with_parts(bare(self), self._held.normal_(mean, std, generator=generator)))


@SparseBase.implements("resize_")
def _(function: Any, self: Any, *sizes: Any, memory_format: Any = None) -> Any:
    raise _missing("resize_", self)


@SparseBase.implements("resize_as_")
def _(function: Any, self: Any, other: Any, memory_format: Any = None) -> Any:
    if not is_sparse(other):
        raise _missing("resize_", self)
    return resize_as_sparse_(self, other)


@CompressedTensor.implements("fill_")
def _(function: Any, input: Any, value: Any) -> Any:
    if isinstance(value, Tensor):
        raise _missing("fill_", input)
    return adopt(input, with_parts(input, rushlight.full_like(input._held, value)))


# ***** handlers: tensors like this one *****


def _strided(layout: Any) -> bool:
    return layout is not None and layout.name == "strided"


def _dense_like(x: Any, device: Any) -> Tensor:
    """A strided tensor of the shape and dtype of `x`, to make others like it, on `device` or that of `x`."""
    return rushlight.empty(tuple(x.shape), dtype=x.dtype, device=x.device if device is None else device)


@SparseBase.implements("zeros_like", "empty_like")
def _(
    function: Any,
    input: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Any:
    place = rushlight.device(device) if device is not None else input.device
    if _strided(layout):
        return function(_dense_like(input, place), dtype=dtype, requires_grad=requires_grad)
    if layout is not None and layout is not input.layout:
        made = empty_parts(input.shape, 0, dtype or input.dtype, layout, place)
    elif type(input) is CompressedTensor and function.__name__ == "empty_like":
        made = like(input, rushlight.empty_like(input._held, dtype=dtype)).to(place)
    else:
        made = emptied(input, dtype).to(place)
    return made.requires_grad_() if requires_grad else made


@CompressedTensor.implements("ones_like", "full_like")
def _(
    function: Any,
    input: Any,
    *value: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    fill_value: Any = None,
    **options: Any,
) -> Any:
    value = value if fill_value is None else (fill_value,)
    place = rushlight.device(device) if device is not None else input.device
    if _strided(layout):
        return function(_dense_like(input, place), *value, dtype=dtype, requires_grad=requires_grad)
    made = like(input, function(input._held, *value, dtype=dtype)).to(place)
    return made.requires_grad_() if requires_grad else made


@SparseTensor.implements("ones_like", "full_like")
def _(
    function: Any,
    input: Any,
    *value: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    **options: Any,
) -> Any:
    if not _strided(layout):
        raise _missing("fill_", input)
    return function(_dense_like(input, device), *value, dtype=dtype, requires_grad=requires_grad)


@SparseBase.implements("rand_like", "randn_like", "randint_like")
def _(
    function: Any, input: Any, *args: Any, dtype: Any = None, layout: Any = None, device: Any = None, **options: Any
) -> Any:
    if not _strided(layout):
        name = function.__name__
        if name == "randn_like" and type(input) is CompressedTensor and layout in (None, input.layout):
            requires_grad = options.pop("requires_grad", False)
            made = with_parts(bare(input), rushlight.randn_like(input._held, dtype=dtype, device=device, **options))
            return made.requires_grad_(requires_grad)
        raise _missing({"rand_like": "uniform_", "randn_like": "normal_"}.get(name, "random_"), input)
    return function(_dense_like(input, device), *args, dtype=dtype, **options)


@SparseBase.implements("new_zeros", "new_empty")
def _(
    function: Any,
    self: Any,
    *size: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    **options: Any,
) -> Any:
    shape, dtype = as_shape(size), dtype or self.dtype
    place = self.device if device is None else rushlight.device(device)
    if _strided(layout):
        return rushlight.zeros(shape, dtype=dtype, device=place, requires_grad=requires_grad)
    return empty_parts(shape, 0, dtype, layout or self.layout, place, requires_grad)


@SparseBase.implements("new")
def _(function: Any, self: Any, *args: Any, device: Any = None) -> Any:
    return older(self.dtype, args, self.device if device is None else device)


@SparseBase.implements("new_tensor")
def _(
    function: Any, self: Any, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    place = self.device if device is None else rushlight.device(device)
    if is_sparse(data):
        return copied(data).to(place, dtype or data.dtype)
    return rushlight.tensor(data, dtype=dtype or self.dtype, device=place, requires_grad=requires_grad)


# ***** copies of parts, as functions *****

METHODS["smm"] = Tensor.smm = matrix_products.smm  # type: ignore[attr-defined]
METHODS["sspaddmm"] = Tensor.sspaddmm = matrix_products.sspaddmm  # type: ignore[attr-defined]


def _copy_function(name: str) -> Callable[..., Any]:
    def copy(input: Any, *, out: Any = None) -> Any:
        made = METHODS[name](input).clone()
        return made if out is None else out.resize_(made.shape).copy_(made)

    copy.__name__ = copy.__qualname__ = name + "_copy"
    copy.__doc__ = f"A copy of `input.{name}()`."
    return copy


indices_copy = _copy_function("indices")
values_copy = _copy_function("values")
crow_indices_copy = _copy_function("crow_indices")
col_indices_copy = _copy_function("col_indices")
ccol_indices_copy = _copy_function("ccol_indices")
row_indices_copy = _copy_function("row_indices")

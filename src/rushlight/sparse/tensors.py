"""Sparse tensors as objects: what they hold, how they are copied and pickled.

A tensor in coordinates (`SparseTensor`) holds indices (sparse dims, nnz) and values (nnz, *dense dims).  A compressed
one (`CompressedTensor`: CSR, CSC, BSR, BSC by its layout) holds compressed and plain indices and values; batch dims
stand first in all three.  The parts are plain tensors outside of any graph: a sparse tensor is one variable, and its
history is its own.

The other modules of this package say what operators do with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rushlight import SPARSE_LAYOUTS, Tensor, can_cast, is_grad_enabled
from rushlight import layout as Layout
from rushlight._interface.dispatch_types import DispatchType, form_there, make_dispatch_tensor
from rushlight._interface.tensors import Spec, alias, version_of

__all__ = [
    "CompressedTensor",
    "SparseBase",
    "SparseTensor",
    "adopt",
    "backend_of",
    "bare",
    "factors",
    "into_out",
    "make_compressed",
    "make_coo",
    "parts_of",
    "same_dtype",
    "take_parts",
]

COO = SPARSE_LAYOUTS["sparse_coo"]
# The names that PyTorch's messages use.
WORDS = {
    "strided": "Strided", "sparse_coo": "Sparse", "sparse_csr": "SparseCsr", "sparse_csc": "SparseCsc", "sparse_bsr": "SparseBsr",
    "sparse_bsc": "SparseBsc",
}  # fmt: skip


class SparseBase(DispatchType):
    """Base of both classes of sparse tensors."""

    __slots__ = ("_held", "_since")

    _held: Tensor  # the values
    _since: int  # what the version is beyond that of the memory of the values
    layout: Layout
    # Composites whose bodies need only what sparse tensors have.
    passes: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def otherwise(cls, function: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Composites were written for memory: those that do without it are named in `passes`, all others are refused."""
        if name in cls.passes or not hasattr(function, "__wrapped__"):
            return super().otherwise(function, name, args, kwargs)
        raise NotImplementedError(
            f"Could not run 'aten::{name}' with arguments from the '{cls.backend_among(args, kwargs)}' backend: "
            "rushlight has no such operator for sparse tensors."
        )

    @classmethod
    def backend_among(cls, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """The backend of the first sparse tensor of a call, in lists of tensors too."""
        for value in (*args, *kwargs.values()):
            for x in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(x, cls):
                    return backend_of(x)
        return cls.backend

    @property
    def _changed(self) -> int:
        """How often it was changed in place: its parts were exchanged, or its values were written."""
        return self._since + version_of(self._held)

    def _copy_of_parts(self) -> Any:
        made = bare(self)
        made._since = self._since
        return made

    @property
    def data(self) -> Any:
        """The same parts outside of the graph."""
        return bare(self)

    @data.setter
    def data(self, value: Any) -> None:
        if type(value) is not type(self) or value.layout is not self.layout:
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type."
            )
        changed = self._changed
        take_parts(self, value)
        self._since = changed - version_of(self._held)  # no change in place, as far as gradients are concerned

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self._node is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
            )
        found = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = bare(self).clone()
            found._rg = self._rg
            found.__dict__.update(self.__dict__)
            if self._autograd_meta is not None and self._autograd_meta.grad is not None:
                found.grad = self._autograd_meta.grad.__deepcopy__(memo)
        return found

    def __copy__(self) -> Any:
        made = bare(self)
        made._rg = self._rg
        made.__dict__.update(self.__dict__)
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        ours = (
            _rebuild,
            (type(self), self.layout, parts_of(self), tuple(self._spec.shape), self._rg, dict(self.__dict__)),
        )
        return form_there(self) or ours


class SparseTensor(SparseBase):
    """Coordinates and values; where `_sorted` is set the coordinates are in order and no two are the same."""

    __slots__ = ("_sorted", "_where")

    backend = "Sparse"
    is_sparse = True
    layout = COO
    _where: Tensor
    _sorted: bool

    @property
    def nbytes(self) -> int:
        """Raises: the parts have bytes of their own."""
        raise RuntimeError(
            "nbytes is not defined for sparse tensors.  If you want the size of the constituent tensors, add the nbytes of the indices and values. "
            " If you want the size of the  equivalent dense tensor, multiply numel() by element_size()"
        )


class CompressedTensor(SparseBase):
    """CSR, CSC, BSR or BSC: `_pointers` say where each row's (or column's) entries begin and end, `_others` their
    columns (or rows).
    """

    __slots__ = ("_format", "_others", "_pointers")

    backend = "SparseCsr"
    _pointers: Tensor
    _others: Tensor
    _format: Layout

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        return self._format

    @property
    def is_sparse_csr(self) -> bool:
        return self._format.name == "sparse_csr"


def backend_of(x: Any) -> str:
    """PyTorch's name for the kernels of a tensor's layout and device: `SparseCPU`, `SparseCsrCUDA`, `CPU`."""
    family = x.backend if isinstance(x, SparseBase) else ""
    return family + {"meta": "Meta"}.get(x.device.type, x.device.type.upper())


def make_coo(where: Tensor, values: Tensor, shape: Sequence[int], in_order: bool) -> Any:
    """A tensor in coordinates over these parts, which lose their history."""
    _check_devices(values, ("indices", where))
    made = make_dispatch_tensor(SparseTensor, Spec.of(values.dtype, values.device, tuple(shape)))
    made._where, made._held, made._sorted = _plain(where), _plain(values), in_order or where._spec.shape[1] < 2
    made._since = -version_of(values)
    return made


def make_compressed(layout: Layout, pointers: Tensor, others: Tensor, values: Tensor, shape: Sequence[int]) -> Any:
    """A compressed tensor over these parts, which lose their history."""
    _check_devices(values, ("compressed_indices", pointers), ("plain_indices", others))
    made = make_dispatch_tensor(CompressedTensor, Spec.of(values.dtype, values.device, tuple(shape)))
    made._pointers, made._others, made._held, made._format = _plain(pointers), _plain(others), _plain(values), layout
    made._since = -version_of(values)
    return made


def _check_devices(values: Tensor, *indices: tuple[str, Tensor]) -> None:
    """RuntimeError for parts on several devices."""
    for name, part in indices:
        if part._spec.device is not values._spec.device:
            raise RuntimeError(f"device of {name} (={part.device}) must match device of values (={values.device})")


def _plain(part: Tensor) -> Tensor:
    return alias(part) if part._rg or part._autograd_meta is not None or type(part) is not Tensor else part


def parts_of(x: Any) -> tuple[Any, Any, Any]:
    """The parts of a sparse tensor."""
    if type(x) is SparseTensor:
        return x._where, x._held, x._sorted
    return x._pointers, x._others, x._held


def bare(x: Any) -> Any:
    """The same parts as another tensor object, outside of any graph."""
    if type(x) is SparseTensor:
        return make_coo(x._where, x._held, x._spec.shape, x._sorted)
    if type(x) is CompressedTensor:
        return make_compressed(x._format, x._pointers, x._others, x._held, x._spec.shape)
    return alias(x)


def take_parts(x: Any, other: Any) -> None:
    """Let `x` hold what `other` holds: a change in place."""
    changed = x._changed
    for cls in type(x).__mro__[: type(x).__mro__.index(DispatchType)]:
        for name in cls.__dict__.get("__slots__", ()):
            setattr(x, name, getattr(other, name))
    x._spec, x._since = other._spec, changed + 1 - version_of(x._held)


def factors(a: Tensor, b: Tensor) -> list[Tensor]:
    """Those operands of a product that its backward reads: each for the gradient of the other."""
    return [factor for factor, other in ((a, b), (b, a)) if other._rg]


def into_out(made: Any, out: Any) -> Any:
    """The result, in `out=` if there is one: of the same layout, and of a dtype that it can be cast to and keeps."""
    if out is None:
        return made
    if made.layout is not out.layout:
        raise RuntimeError(f"expected out= to be a {WORDS[made.layout.name]} tensor, got {WORDS[out.layout.name]}")
    if made._rg or is_grad_enabled() and out._rg:
        raise RuntimeError(
            "functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad."
        )
    cast = same_dtype(made, out)
    if not isinstance(out, DispatchType):
        return out.resize_(cast.shape).copy_(cast)
    take_parts(out, cast)
    return out


def same_dtype(made: Any, x: Any) -> Any:
    """`made` in the dtype of `x`; a RuntimeError where that is of a lower kind."""
    if made.dtype is x.dtype:
        return made
    if not can_cast(made.dtype, x.dtype):
        raise RuntimeError(f"result type {_cpp(made)} can't be cast to the desired output type {_cpp(x)}")
    return made.to(x.dtype)


def _cpp(x: Any) -> str:
    return str((x._held if isinstance(x, DispatchType) else x).type()).removeprefix("torch.").removesuffix("Tensor")


def adopt(x: Any, made: Any) -> Any:
    """The end of an in-place operator: `x` becomes what was computed, history included."""
    if x._rg and x._node is None and is_grad_enabled():
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    take_parts(x, made)
    if made._node is not None:
        x._node, x._rg = made._node, True
        if x._autograd_meta is not None:
            x._autograd_meta.output_nr = 0
    return x


def _rebuild(
    cls: type,
    layout: Layout,
    parts: tuple[Any, Any, Any],
    shape: tuple[int, ...],
    requires_grad: bool,
    named: dict[str, Any],
) -> Any:
    first, second, third = parts
    made = (
        make_coo(first, second, shape, third)
        if cls is SparseTensor
        else make_compressed(layout, first, second, third, shape)
    )
    made._rg = requires_grad
    made.__dict__.update(named)
    return made

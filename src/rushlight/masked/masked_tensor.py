"""Masked tensors as objects: elements, and a mask of the same shape that says which of them count (True) and which do
not (False).

A masked tensor has a dispatch type (`_engine/dispatch_types/base.py`).  Its elements and its mask are two tensors outside of any graph,
both strided, both in coordinates or both CSR; what operators mean for it is said in `operators` and `shapes`.  The
gradient of a masked tensor is a masked tensor.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight import layout as Layout
from rushlight._interface.autograd import record
from rushlight._interface.dispatch_types import DispatchType, make_dispatch_tensor
from rushlight._interface.tensors import Spec, alias, version_of

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "make_masked", "masked_tensor", "payload", "payload_mask", "payload_of", "values_of",
           "with_payload"]  # fmt: skip

_PROTOTYPE = (
    "The API of MaskedTensor is a prototype in PyTorch and may change with it; docs/masked.md says what there is."
)
_WANTS_GRAD = "MaskedTensor: the elements require a gradient, and the new tensor will not pass one on to them; give data.detach().clone() instead."


def is_masked_tensor(obj: Any, /) -> bool:
    """Whether `obj` is a masked tensor.

    >>> import rushlight as torch
    >>> torch.masked.is_masked_tensor(torch.ones(2))
    False
    """
    return isinstance(obj, MaskedTensor)


class MaskedTensor(DispatchType):
    """Elements of which some do not count.

    `data` and `mask` are tensors of one shape and one layout (strided, sparse COO, sparse CSR); `mask` is of bools and
    True where an element counts.  Both are copied, and the result is a leaf of the graph.  The dtypes are float16,
    float32, float64, bool and the signed integers.

    Raises:
        TypeError: `data` or `mask` is no plain tensor, their layouts differ or are not among the three, or one has another dtype.
        ValueError: shapes, or the coordinates of sparse parts, differ.

    >>> import rushlight as torch, warnings
    >>> warnings.simplefilter("ignore")
    >>> x = torch.masked.MaskedTensor(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([True, False, True]))
    >>> x * 2
    MaskedTensor(
      [  2.0000,       --,   8.0000]
    )
    >>> x.mean()
    MaskedTensor(  2.5000, True)
    """

    __slots__ = ("_masked_data", "_masked_mask", "_since")

    backend = "MaskedTensor"
    _masked_data: Tensor
    _masked_mask: Tensor
    _since: int  # what the version is beyond that of the elements' memory

    @property
    def _changed(self) -> int:
        """How often it was changed in place: it was given other elements, or these were written."""
        return self._since + version_of(self._masked_data)

    def _copy_of_parts(self) -> Any:
        made = make_masked(self._masked_data, self._masked_mask, type(self))
        made._since = self._since
        return made

    def __new__(cls, data: Any, mask: Any, requires_grad: bool = False) -> MaskedTensor:
        made = _checked(cls, data, mask)
        warnings.warn(_PROTOTYPE, UserWarning, stacklevel=3)
        if data.requires_grad:
            warnings.warn(_WANTS_GRAD, UserWarning, stacklevel=3)
        made.requires_grad = requires_grad
        return made

    def __init__(self, data: Any, mask: Any, requires_grad: bool = False) -> None:
        """Everything is done by then; subclasses may have more to do."""

    @classmethod
    def unary(cls, fn: Callable[[Tensor], Tensor], data: Any, mask: Any) -> MaskedTensor:
        """The masked tensor of `fn(data)` under `mask`."""
        return MaskedTensor(fn(data), mask)

    @classmethod
    def otherwise(cls, function: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call without a handler: a fact, or PyTorch's warning and then an error."""
        if name in FACTS:
            return super().otherwise(function, name, args, kwargs)
        warnings.warn(f"{name} is not implemented for MaskedTensor.", UserWarning, stacklevel=2)
        raise TypeError(f"{name}(): neither rushlight nor PyTorch has this operator for MaskedTensor.")

    @property
    def layout(self) -> Layout:
        return self._masked_data.layout

    @property
    def is_sparse(self) -> bool:
        """Whether elements and mask are sparse, in coordinates or CSR."""
        return self.layout is not rushlight.strided

    def is_sparse_coo(self) -> bool:
        """Whether elements and mask are in coordinates."""
        return self.layout is rushlight.sparse_coo

    def is_sparse_csr(self) -> bool:
        """Whether elements and mask are CSR."""
        return self.layout is rushlight.sparse_csr

    @property
    def data(self) -> Any:
        """The same elements and mask outside of the graph."""
        return make_masked(self._masked_data, self._masked_mask)

    @data.setter
    def data(self, value: Any) -> None:
        if not is_masked_tensor(value) or value._spec.shape != self._spec.shape or value.dtype is not self.dtype:
            raise RuntimeError("the data of a masked tensor can only be those of one of the same shape and dtype")
        hold(self, value)

    def get_data(self) -> Tensor:
        """The elements, those that do not count included; gradients flow back as masked tensors."""
        return values_of(self, "GetDataBackward")

    def get_mask(self) -> Tensor:
        """The mask."""
        return self._masked_mask

    def to_tensor(self, value: Any) -> Tensor:
        """A plain tensor with `value` where elements do not count; of strided ones only."""
        if self.is_sparse:
            raise NotImplementedError(f"to_tensor(): MaskedTensor is {self.layout}; call to_dense() first")
        return self.get_data().masked_fill(~self._masked_mask, value)

    def __lt__(self, other: Any) -> Any:
        return with_payload(self, payload(self) < (payload(other) if is_masked_tensor(other) else other))

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        data, mask = self._masked_data, self._masked_mask
        if self.is_sparse:
            data, mask = data.to_dense(), mask.to_dense()
        if not self._spec.ndim:
            counts = bool(mask)
            return f"MaskedTensor({_shown(data.item()) if counts else '--'}, {counts})"
        inner = "\n".join(f"  {line}" for line in _lines(data.tolist(), mask.tolist(), self._spec.ndim).split("\n"))
        return f"MaskedTensor(\n{inner}\n)"

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError("unsupported format string passed to MaskedTensor.__format__")
        return repr(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self._node is not None:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
            )
        found = memo.get(id(self))
        if found is None:
            found = memo[id(self)] = make_masked(self._masked_data.clone(), self._masked_mask.clone(), type(self))
            found._rg = self._rg
            found.__dict__.update(self.__dict__)
        return found

    def __copy__(self) -> Any:
        return _rebuild(type(self), self._masked_data, self._masked_mask, self._rg, self.__dict__)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuild, (type(self), self._masked_data, self._masked_mask, self._rg, dict(self.__dict__))


# What comes from the spec and the graph alone.
FACTS = frozenset((
    "size", "dim", "ndimension", "numel", "nelement", "element_size", "is_floating_point", "is_complex", "is_signed", "is_conj", "is_neg",
    "is_inference", "requires_grad_", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "backward", "get_device", "is_shared",
    "__hash__", "__len__", "resolve_conj", "resolve_neg",
))  # fmt: skip


def masked_tensor(data: Any, mask: Any, requires_grad: bool = False) -> MaskedTensor:
    """A masked tensor of copies of `data` and `mask`, a leaf; see `MaskedTensor` for what they may be.

    >>> import rushlight as torch, warnings
    >>> warnings.simplefilter("ignore")
    >>> torch.masked.masked_tensor(torch.arange(3), torch.tensor([True, False, True]))
    MaskedTensor(
      [0,       --, 2]
    )
    """
    made = _checked(MaskedTensor, data, mask)
    warnings.warn(_PROTOTYPE, UserWarning, stacklevel=2)
    if data.requires_grad:
        warnings.warn(_WANTS_GRAD, UserWarning, stacklevel=2)
    made.requires_grad = requires_grad
    return made


def as_masked_tensor(data: Any, mask: Any) -> MaskedTensor:
    """A masked tensor of `data` and `mask` through which gradients reach `data`.

    The gradient of a leaf is then a masked tensor.  Behind what was computed from a leaf gradients are plain, with
    zeros where nothing counts.
    """
    made = _checked(MaskedTensor, data, mask)
    warnings.warn(_PROTOTYPE, UserWarning, stacklevel=2)
    return given_back("ConstructorBackward", data, made)


# ***** making them *****


_DTYPES = ("float16", "float32", "float64", "bool", "int8", "int16", "int32", "int64")


def _checked(cls: type[MaskedTensor], data: Any, mask: Any) -> MaskedTensor:
    """A masked tensor of copies of what the user gave."""
    for name, part in (("data", data), ("mask", mask)):
        if is_masked_tensor(part) or not isinstance(part, Tensor):
            raise TypeError(f"{name} must be a Tensor, not {type(part).__name__}")
    if data.layout is not mask.layout:
        raise TypeError(f"data and mask must have the same layout; they have {data.layout} and {mask.layout}")
    if data.layout not in (rushlight.strided, rushlight.sparse_coo, rushlight.sparse_csr):
        raise TypeError(f"data layout of {data.layout} is not supported.")
    _check_form(data, mask)
    if data.layout is rushlight.sparse_coo:
        data, mask = data.coalesce(), mask.coalesce()
    if data.layout is not rushlight.strided:
        if data._nnz() != mask._nnz():
            data = data.detach().sparse_mask(mask)
        _check_coordinates(data, mask)
    return make_masked(data.detach().clone(), mask.clone(), cls)


def _check_form(data: Any, mask: Any) -> None:
    if mask.dtype is not rushlight.bool:
        raise TypeError(f"mask must have dtype bool, not {mask.dtype}")
    if data.dtype.name not in _DTYPES:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    if data.dim() != mask.dim():
        raise ValueError(f"data.dim() must equal mask.dim(), but they are {data.dim()} and {mask.dim()}")
    if data.shape != mask.shape:
        raise ValueError(
            f"data.size() must equal mask.size(), but they are {tuple(data.shape)} and {tuple(mask.shape)}"
        )


def _check_coordinates(data: Any, mask: Any) -> None:
    if not same_coordinates(data, mask):
        text = "COO" if data.layout is rushlight.sparse_coo else "CSR"
        raise ValueError(f"data and mask are both sparse {text} tensors but do not have the same indices.")


def coordinates(x: Any) -> tuple[Tensor, ...]:
    """Where the values of a sparse tensor stand."""
    return (x.indices(),) if x.layout is rushlight.sparse_coo else (x.crow_indices(), x.col_indices())


def same_coordinates(a: Any, b: Any) -> bool:
    """Whether two sparse tensors of one layout hold values at the same places."""
    pairs = zip(coordinates(a), coordinates(b), strict=True)
    return all(p.shape == q.shape and rushlight.equal(p.to(rushlight.int64), q.to(rushlight.int64)) for p, q in pairs)


def make_masked(data: Tensor, mask: Tensor, cls: type[MaskedTensor] = MaskedTensor) -> Any:
    """A masked tensor over these parts, which lose their history."""
    if mask.dtype is not rushlight.bool:
        raise TypeError(f"mask must have dtype bool, not {mask.dtype}")
    if data.dtype.name not in _DTYPES:
        raise TypeError(f"{data.dtype} is not supported in MaskedTensor.")
    data = data.detach() if data._rg else data
    spec = data._spec if data.layout is rushlight.strided else Spec.of(data.dtype, data.device, tuple(data.shape))
    made = make_dispatch_tensor(cls, spec)
    made._masked_data, made._masked_mask, made._since = data, mask, -version_of(data)
    return made


def _rebuild(cls: type[MaskedTensor], data: Tensor, mask: Tensor, requires_grad: bool, named: dict[str, Any]) -> Any:
    made = make_masked(data, mask, cls)
    made._rg = requires_grad
    made.__dict__.update(named)
    return made


def hold(x: MaskedTensor, other: MaskedTensor) -> None:
    """Let `x` hold what `other` holds: a change in place."""
    changed = x._changed
    x._masked_data, x._masked_mask, x._spec = other._masked_data, other._masked_mask, other._spec
    x._since = changed + 1 - version_of(x._masked_data)


# ***** elements in a row: those of a sparse one are its values *****


def _part(x: Any) -> Tensor:
    return x if x.layout is rushlight.strided else x.values()


def payload(x: Any) -> Tensor:
    """The elements that are held, outside of any graph."""
    return _part(x._masked_data)


def payload_mask(x: Any) -> Tensor:
    """The mask of `payload`."""
    return _part(x._masked_mask)


def _refilled(like: Any, values: Tensor) -> Any:
    """A tensor with the coordinates of `like` and other values."""
    if like.layout is rushlight.strided:
        return values
    if like.layout is rushlight.sparse_coo:
        return rushlight.sparse_coo_tensor(like.indices(), values, tuple(like.shape), is_coalesced=True)
    return rushlight.sparse_csr_tensor(like.crow_indices(), like.col_indices(), values, tuple(like.shape))


def with_payload(like: MaskedTensor | None, values: Tensor, mask: Tensor | None = None) -> Any:
    """A masked tensor in the form of `like`, outside of any graph; without one, a strided one."""
    if like is None or (mask is not None and not like.is_sparse):
        assert mask is not None
        return make_masked(values, mask)
    return make_masked(
        _refilled(like._masked_data, values), like._masked_mask if mask is None else _refilled(like._masked_mask, mask)
    )


# ***** ways into the graph and out of it *****


def given_back(name: str, source: Tensor, made: Any) -> Any:
    """`made` as a node whose gradient is that of `source` as it is: masked for a leaf, plain with zeros behind a
    computed one.
    """

    def rule(grad: Any) -> tuple[Any]:
        return (filled(grad) if is_masked_tensor(grad) and source._node is not None else grad,)

    return record(name, [source], made, rule)


def filled(x: Any) -> Tensor:
    """The elements that count as a plain tensor with zeros at the others; part of the graph."""
    x = x.to_dense() if x.is_sparse else x
    return zeroed(payload_of(x), x._masked_mask)


def zeroed(values: Tensor, mask: Tensor) -> Tensor:
    """Zeros where the mask is False."""
    return rushlight.where(mask, values, rushlight.zeros((), dtype=values.dtype))


def payload_of(x: Any) -> Tensor:
    """The elements that are held, as part of the graph; their gradient is a masked tensor in the form of `x`."""
    return record("GetDataBackward", [x], alias(payload(x)), lambda grad: (from_payload(x, grad, payload_mask(x)),))


def from_payload(like: Any, values: Tensor, mask: Tensor) -> Any:
    """The way back from `payload_of`: a masked tensor in the form of `like`."""
    return record(
        "ConstructorBackward",
        [values],
        with_payload(like, values.detach(), mask),
        lambda g: (payload_of(g) if is_masked_tensor(g) else g,),
    )


def values_of(x: Any, name: str = "GetDataBackward") -> Tensor:
    """The elements in the layout of `x` as part of the graph; their gradient is a masked tensor with the mask of `x`."""

    def rule(grad: Any) -> tuple[Any]:
        if is_masked_tensor(grad):
            return (grad,)
        mask = x._masked_mask if grad.layout is x.layout else x._masked_mask.to_dense()
        made = make_masked(grad, mask)
        return (record("ConstructorBackward", [grad], made, lambda g: (values_of(g) if is_masked_tensor(g) else g,)),)

    return record(name, [x], x._masked_data.detach(), rule)


# ***** printing *****


def _shown(value: Any) -> str:
    return f"{value:8.4f}" if isinstance(value, float) else str(value)


def _lines(values: list[Any], mask: list[Any], ndim: int) -> str:
    if ndim == 1:
        texts = [_shown(v) for v in values]
        width = max((len(t) if counts else 8 for t, counts in zip(texts, mask, strict=True)), default=0)
        return "[" + ", ".join(t if counts else "--".rjust(width) for t, counts in zip(texts, mask, strict=True)) + "]"
    parts = [_lines(v, m, ndim - 1) for v, m in zip(values, mask, strict=True)]
    body = ",\n".join("\n".join(f"  {line}" for line in part.split("\n")) for part in parts)
    return f"[\n{body}\n]"

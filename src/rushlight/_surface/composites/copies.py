"""Views under other names: as copies (`*_copy`), as parts of complex numbers, and what is a view only where it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine.autograd.node import Node
from rushlight._engine.core import convert
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.memory import zeros_spec
from rushlight._engine.core.state import GRAD, INFERENCE, STATE
from rushlight._engine.core.tensor import Tensor, edge_of, make, meta_of
from rushlight._engine.dispatch.plans.native_lookup import RUNS, ran
from rushlight._engine.dispatch.plans.native_plans import view_plan
from rushlight._engine.dispatch_types.base import DispatchType
from rushlight._engine.indexing.view import link_view
from rushlight._ops.forms import forms
from rushlight._surface.composites.measures import into
from rushlight._surface.registry import SPACES, composite, function_of, into_given, row_named
from rushlight._types.dtype import INT64, DType
from rushlight._types.promotion import default_dtype
from rushlight._types.spec import Spec

__all__: list[str] = []


# ***** copies of what would be views *****


def _copy_of(name: str, make_view: Callable[..., Any], form: str = "") -> None:
    def function(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        found = make_view(*args, **kwargs)
        if isinstance(found, (tuple, list)):
            if out is not None:
                if not isinstance(out, (tuple, list)):
                    raise TypeError(f"{name}(): argument 'out' must be tuple of Tensors, not {type(out).__name__}")
                if len(out) != len(found):
                    raise RuntimeError(f"{name}(): expected an out= argument of size {len(found)}, got size {len(out)}")
                for target, part in zip(out, found, strict=True):
                    into(target, part, name, exact=True)
                return None
            return tuple(convert.call("clone_contiguous", part) for part in found)
        return convert.call("clone_contiguous", found) if out is None else into(out, found, name, exact=True)

    function.__doc__ = f"`{name.removesuffix('_copy')}` as a copy."
    if form:
        forms(form)(function)
    function.operator, function.takes_out = row_named(name.removesuffix("_copy")), True  # type: ignore[attr-defined]
    composite(name, method=name == "narrow_copy")(function)


for _name in (
    "expand",
    "diagonal",
    "permute",
    "t",
    "squeeze",
    "unsqueeze",
    "transpose",
    "unbind",
    "unfold",
    "split_with_sizes",
    "select",
    "slice",
):
    _copy_of(f"{_name}_copy", lambda *args, _of=_name, **kwargs: function_of(_of)(*args, **kwargs))


def _reshaped(input: Tensor, *size: Any, dtype: Any = None) -> Any:
    """`view`, for a copy, which need not be a view of what it copies."""
    if dtype is not None or (size and isinstance(size[0], DType)):
        return input.view(size[0] if dtype is None else dtype)
    return SPACES["torch"]["reshape"](input, *size)


_copy_of("view_copy", _reshaped)


def _narrowed(input: Tensor, dim: int, start: int, length: int) -> Any:
    """`narrow`, which has another class of error here."""
    if input._spec.ndim and dim >= input._spec.ndim:
        raise RuntimeError(f"narrow_copy(): expected dim < {input._spec.ndim}, but got {dim}")
    return function_of("narrow")(input, dim, start, length)


_OUT = "*, out: Tensor | None = None) -> Tensor"
_copy_of("narrow_copy", _narrowed, f"(input: Tensor, dim: int, start: int, length: int, {_OUT}")
_copy_of("alias_copy", lambda input: input, f"(input: Tensor, {_OUT}")
_copy_of("split_copy", lambda input, split_size, dim=0: function_of("split")(input, split_size, dim))
_copy_of(
    "as_strided_copy",
    lambda input, size, stride, storage_offset=None: input.as_strided(size, stride, storage_offset),
    f"(input: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None, {_OUT}",
)
_copy_of("view_as_real_copy", lambda input: view_as_real(input), f"(input: Tensor, {_OUT}")
_copy_of("view_as_complex_copy", lambda input: view_as_complex(input), f"(input: Tensor, {_OUT}")


# ***** parts that may be changed in place *****


class UnsafeSplitBackward0(Node):
    """The gradient of parts that share memory with the whole and yet count as tensors of their own."""

    __slots__ = ("_specs", "dim")

    _specs: list[Spec]
    dim: int

    @property
    def _n_outputs(self) -> int:  # type: ignore[override]
        return len(self._specs)

    @property
    def _saved_dim(self) -> int:
        return self.dim % 2**64  # PyTorch shows whole numbers without their sign

    @property
    def _saved_self_sym_sizes(self) -> tuple[int, ...]:
        whole, dim = list(self._specs[0].shape), self.dim
        whole[dim] = sum(spec.shape[dim] for spec in self._specs)
        return tuple(whole)

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        parts = [zeros_spec(spec) if g is None else g for g, spec in zip(grads, self._specs, strict=True)]
        return [function_of("cat")(parts, self.dim)]


class UnsafeSplitWithSizesBackward0(UnsafeSplitBackward0):
    """The same for parts of sizes that were given."""


def _unsafe(kind: type[UnsafeSplitBackward0], name: str, input: Tensor, sizes: Any, dim: int) -> tuple[Tensor, ...]:
    """The views that `name` gives, as tensors of their own: autograd takes them for copies, and each counts its own changes."""
    if isinstance(input, DispatchType):
        return function_of(name)(input, sizes, dim)
    outs = tuple([HOOKS.data_of(part) for part in function_of(name)(convert.detach(input), sizes, dim)])
    if input._rg and STATE.word & GRAD:
        node = kind()
        node._start([edge_of(input)])
        node.dim, node._specs = dim, [Spec.of(o._spec.dtype, o._spec.device, o._spec.shape) for o in outs]
        for number, out in enumerate(outs):
            out._node, out._rg = node, True
            meta_of(out).output_nr = number
    return outs


@composite("unsafe_chunk", method=True)
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`chunk`, of which the parts may be changed in place: their gradients are right if neither the whole nor another view of it is used then."""
    return _unsafe(UnsafeSplitBackward0, "chunk", input, chunks, dim)


@composite("unsafe_split", method=True)
def unsafe_split(input: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """`split`, of which the parts may be changed in place: their gradients are right if neither the whole nor another view of it is used then."""
    return _unsafe(UnsafeSplitBackward0, "split", input, split_size, dim)


@composite("unsafe_split_with_sizes", method=True)
def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`split_with_sizes`, of which the parts may be changed in place, as those of `unsafe_split`."""
    return _unsafe(UnsafeSplitWithSizesBackward0, "split_with_sizes", input, split_sizes, dim)


@composite("tensor_split", method=True, cached=True)
@forms(
    "(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor, dim: int = 0) -> tuple[Tensor, ...]",
    "(input: Tensor, *, sections: int, dim: int = 0) -> tuple[Tensor, ...]",
    "(input: Tensor, *, indices: Sequence[int] | Tensor, dim: int = 0) -> tuple[Tensor, ...]",
)
def tensor_split(
    input: Tensor, indices_or_sections: Any = None, dim: int = 0, *, sections: Any = None, indices: Any = None
) -> Any:
    """So many parts of sizes as equal as can be, or parts that end at the indices given, along dim."""
    where = next((v for v in (indices_or_sections, sections, indices) if v is not None), None)
    if isinstance(where, Tensor):
        what = "tensor_split expected tensor_indices_or_sections to"
        if where._spec.dtype is not INT64:
            raise RuntimeError(f"{what} have dtype of long, but got {where._spec.dtype.scalar}")
        if where._spec.ndim > 1:
            raise RuntimeError(
                f"{what} be a zero-dimensional or one-dimensional tensor, but got a tensor with {where._spec.ndim} dims"
            )
        where = where.tolist()
    return function_of("tensor_split")(input, where, dim)


# ***** the same tensor *****


@composite("positive", method=True, cached=True)
def positive(input: Tensor) -> Tensor:
    """+input: the tensor itself."""
    if input._spec.dtype.kind == "b":
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


class ConjBackward0(Node):
    """The gradient of a conjugate is the conjugate of its gradient."""

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        return [None if grads[0] is None else conj_physical(grads[0])]


@composite("conj", method=True, cached=True)
def conj(input: Tensor) -> Tensor:
    """The complex conjugate, as a view: nothing is computed until it is read.  A real tensor itself."""
    if not input._spec.dtype.is_complex:
        return input
    if isinstance(input, DispatchType):
        return convert.call("conj_physical", input)
    return _seen_as(input, input._spec.conjugated(), ConjBackward0)


@composite("conj_physical", method=True, cached=True)
def conj_physical(input: Tensor, *, out: Any = None) -> Tensor:
    """The complex conjugate as new numbers; a real tensor itself."""
    if out is not None:
        return function_of("conj_physical")(input, **into_given(out))
    return convert.call("conj_physical", input) if input._spec.dtype.is_complex else input


@composite("resolve_conj", method=True, cached=True)
def resolve_conj(input: Tensor) -> Tensor:
    """A copy with the conjugates written out where the tensor is a view that put them off (`is_conj`); else the tensor itself."""
    return convert.clone(input) if input._spec.conj and input._spec.dtype.is_complex else input


class NegViewBackward0(Node):
    """The gradient of a negative is the negative of its gradient."""

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        return [None if grads[0] is None else convert.call("neg", grads[0])]


@composite("_neg_view", method=True, cached=True)
def _neg_view(input: Tensor) -> Tensor:
    """The negatives of a real tensor, as a view: nothing is computed until it is read.  RuntimeError for bool and complex dtypes."""
    kind = input._spec.dtype
    if kind.kind == "b" or kind.is_complex:
        raise RuntimeError(f"_neg_view() is made of real numbers, not of {kind}")
    if isinstance(input, DispatchType):
        return convert.call("neg", input)
    return _seen_as(input, input._spec.conjugated(), NegViewBackward0)


@composite("resolve_neg", method=True, cached=True)
def resolve_neg(input: Tensor) -> Tensor:
    """A copy with the negatives written out where the tensor is a view that put them off (`is_neg`); else the tensor itself."""
    return convert.clone(input) if input._spec.conj and not input._spec.dtype.is_complex else input


def _polygamma(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of digamma: as a method the order comes second."""
    return function_of("polygamma")(n, self)


def _polygamma_(self: Tensor, n: int) -> Tensor:
    """`polygamma` in place; RuntimeError for a tensor that cannot hold its numbers."""
    if not self.is_floating_point():
        made, held = default_dtype(), self._spec.dtype
        raise RuntimeError(f"result type {made.scalar} can't be cast to the desired output type {held.scalar}")
    return self.copy_(_polygamma(convert.clone(self), n))


Tensor.polygamma, Tensor.polygamma_ = _polygamma, _polygamma_  # type: ignore[attr-defined]

# ***** complex numbers as pairs *****


class ViewAsRealBackward0(Node):
    """Pairs of gradients are complex gradients."""

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        return [None if grads[0] is None else view_as_complex(convert.contiguous(grads[0]))]


class ViewAsComplexBackward0(Node):
    """Complex gradients are pairs of gradients."""

    def apply(self, grads: list[Tensor | None]) -> list[Tensor | None]:
        return [None if grads[0] is None else view_as_real(grads[0])]


def _seen_as(x: Tensor, spec: Spec, node: type[Node], pairs: bool = False) -> Tensor:
    """The same memory with another spec; with `pairs`, which begin at an even place: no plan that reads the spec alone knows that."""
    if pairs and x.storage_offset() % 2:
        raise RuntimeError("Tensor must have a storage_offset divisible by 2")
    out, creation = make(x._storage, spec, x._ptr), "" if STATE.word & GRAD else "no_grad"
    link_view(x, out, creation)
    if STATE.word & GRAD and x._rg:
        made = node()
        made._start([edge_of(x)])
        out._node, out._rg = made, True
    if RUNS.now is not None:

        def again(x: Tensor) -> Tensor:
            return _seen_as(x, spec, node, pairs)

        ran(
            again if pairs or x._rg or STATE.word & INFERENCE else view_plan(again, [(spec, 0)], creation, False),
            (x,),
            out,
        )
    return out


@composite("view_as_real", cached=True)
def view_as_real(input: Tensor) -> Tensor:
    """A complex tensor (*) as real and imaginary parts (*, 2), over the same memory."""
    held = input._spec
    if not held.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    if held.conj:
        raise RuntimeError(
            "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it as real, use "
            "self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the original."
        )
    strides = (*(2 * s for s in held.strides), 1)
    spec = Spec.of(held.dtype.to_real(), held.device, (*held.shape, 2), strides, released=held.released)
    return _seen_as(input, spec, ViewAsRealBackward0)


@composite("view_as_complex", cached=True)
def view_as_complex(input: Tensor) -> Tensor:
    """Pairs (*, 2) as complex numbers (*), over the same memory; the pairs must lie side by side."""
    held = input._spec
    if held.dtype.name not in ("float16", "float32", "float64"):
        raise RuntimeError(
            f"view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: {held.dtype.scalar}"
        )
    if not held.ndim:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if held.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if held.strides[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % 2 for n, s in zip(held.shape[:-1], held.strides[:-1], strict=True) if n != 1):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if held.conj:
        return convert.call("neg", view_as_complex(_neg_view(input)))
    strides = tuple(s // 2 for s in held.strides[:-1])
    spec = Spec.of(held.dtype.to_complex(), held.device, held.shape[:-1], strides, released=held.released)
    return _seen_as(input, spec, ViewAsComplexBackward0, pairs=True)


@composite("real", cached=True)
def real(input: Tensor) -> Tensor:
    """The real parts, as a view; a real tensor itself."""
    plain = conj(input) if input._spec.conj else input
    return function_of("select")(view_as_real(plain), -1, 0) if input._spec.dtype.is_complex else input


@composite("imag", cached=True)
def imag(input: Tensor) -> Tensor:
    """The imaginary parts of a complex tensor, as a view; that of a conjugate (`is_conj`) has negatives in its memory (`is_neg`)."""
    if not input._spec.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    if input._spec.conj:
        return _neg_view(function_of("select")(view_as_real(conj(input)), -1, 1))
    return function_of("select")(view_as_real(input), -1, 1)

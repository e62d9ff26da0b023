"""Taking apart and putting together: split, chunk, meshgrid, einsum, broadcasting several tensors."""

from __future__ import annotations

from typing import Any

from rushlight._base.errors import warn_once
from rushlight._engine.core import convert
from rushlight._engine.core.creation import as_shape
from rushlight._engine.core.state import AUTOCAST, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._ops.bodies import not_implemented
from rushlight._ops.forms import forms
from rushlight._ops.linalg.einsum import parse_equation, without_repeats
from rushlight._surface.composites.measures import into
from rushlight._surface.registry import SPACES, composite, function_of
from rushlight._types.device import as_device
from rushlight._types.dtype import INT32, INT64
from rushlight._types.layout import broadcast_shapes
from rushlight._types.promotion import default_dtype, result_type

__all__: list[str] = []


def _tensors(values: tuple[Any, ...]) -> tuple[Tensor, ...]:
    if len(values) == 1 and isinstance(values[0], (list, tuple)):
        values = tuple(values[0])
    for value in values:
        if not isinstance(value, Tensor):
            raise TypeError(f"expected Tensor as element, but got {type(value).__name__}")
    return values


@composite("broadcast_tensors", cached=True)
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Views of the tensors in their common shape."""
    given = _tensors(tensors)
    shape = broadcast_shapes(*[t._spec.shape for t in given])
    return tuple([t.expand(shape) for t in given])


@composite("broadcast_to", method=True, cached=True)
@forms("(input: Tensor, *size: int) -> Tensor", "(input: Tensor, size: Sequence[int]) -> Tensor")
def broadcast_to(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """`expand` under its NumPy name."""
    return input.expand(as_shape(sizes if size is None else (size,)))


@composite("meshgrid", cached=True)
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Grids of coordinates from vectors of them."""
    given = _tensors(tensors)
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    if indexing is None:
        warn_once("torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.")
    if not given:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for t in given:
        if t._spec.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {list(t.shape)}")
    if any(t.dtype is not given[0].dtype for t in given):
        raise RuntimeError("torch.meshgrid expects all tensors to have the same dtype")
    if any(t.device is not given[0].device for t in given):
        raise RuntimeError("torch.meshgrid expects all tensors to have the same device")
    swap = indexing == "xy" and len(given) >= 2
    order = [given[1], given[0], *given[2:]] if swap else list(given)
    shape = tuple(t.numel() for t in order)
    grids = []
    for place, t in enumerate(order):
        view = t.view(tuple(-1 if d == place else 1 for d in range(len(shape))))
        grids.append(view.expand(shape))
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


_NO_OPERAND = "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"


@composite("einsum", cached=True)
def einsum(equation: Any, *operands: Any) -> Tensor:
    """Sums of products by Einstein's convention: `einsum("ij,jk->ik", a, b)`."""
    if not isinstance(equation, str):
        equation, operands = _from_sublists(equation, operands)
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not operands:
        raise ValueError(_NO_OPERAND)
    if len(operands) == 1:
        labels, names = parse_equation(equation, [operands[0].shape])
        if set(names) == set(labels[0]):  # no sums: a view of the operand
            found, order = without_repeats(operands[0], labels[0], diagonal=function_of("diagonal"))
            return found.permute([order.index(name) for name in names])
    if len(operands) > 2 and STATE.word & AUTOCAST:
        return _einsum_by_pairs(equation, list(operands))
    return convert.call("einsum_core", equation, tuple(operands))


def _einsum_by_pairs(equation: str, operands: list[Any]) -> Tensor:
    """From left to right: where operators choose their dtypes, each pair of operands is a product of its own."""
    labels, result = parse_equation(equation, [tuple(x.shape) for x in operands])
    alphabet = [chr(ord(start) + i) for start in "aA" for i in range(26)]
    letters = dict(zip(sorted({n for each in (*labels, result) for n in each}), alphabet, strict=False))
    words = ["".join(letters[n] for n in each) for each in labels]
    end = "".join(letters[n] for n in result)
    found, word = operands[0], words[0]
    for i in range(1, len(operands)):
        later = set(end).union(*words[i + 1 :])
        both = "".join(dict.fromkeys(word + words[i]))
        target = end if i == len(operands) - 1 else "".join(n for n in both if n in later)
        found = convert.call("einsum_core", f"{word},{words[i]}->{target}", (found, operands[i]))
        word = target
    return found


def _from_sublists(first: Any, rest: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The form einsum(a, [0, 1], b, [1, 2], [0, 2])."""
    if len(rest) < 1:
        raise ValueError(_NO_OPERAND)
    items = [first, *rest]

    def letters(places: Any) -> str:
        return "".join("..." if p is Ellipsis else chr(ord("A") + p if p < 26 else ord("a") + p - 26) for p in places)

    pairs = len(items) // 2
    if any(p is not Ellipsis and not 0 <= p < 52 for places in [*items[1::2], *items[2 * pairs :]] for p in places):
        raise ValueError("einsum(): subscript in subscript list is not within the valid range [0, 52)")
    equation = ",".join(letters(items[2 * i + 1]) for i in range(pairs))
    if len(items) % 2:
        equation += "->" + letters(items[-1])
    return equation, tuple(items[2 * i] for i in range(pairs))


_BLOCKS = 16  # put together by one kernel, whose code grows with them


@composite("block_diag", cached=True)
def block_diag(*tensors: Any) -> Tensor:
    """The matrices along the diagonal of one large matrix."""
    if not tensors:
        return SPACES["torch"]["empty"](1, 0)
    given = _tensors(tensors)
    for i, x in enumerate(given):
        if x._spec.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {x._spec.ndim} dimensions"
            )
    if len(given) > _BLOCKS:
        dtype = result_type([(x._spec.dtype, x._spec.ndim) for x in given], [])
        given = [x.to(dtype) for x in given]
    while len(given) > _BLOCKS:
        given = [convert.call("block_diag_core", tuple(given[i : i + _BLOCKS])) for i in range(0, len(given), _BLOCKS)]
    return convert.call("block_diag_core", tuple(given))


@composite("tensordot", cached=True)
def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Any = None) -> Tensor:
    """Products summed over `dims`: a number of last and first dims, or two lists of dims."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a._spec.ndim, b._spec.ndim):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        left, right = list(range(a._spec.ndim - dims, a._spec.ndim)), list(range(dims))
    else:
        left, right = ([d] if isinstance(d, int) else list(d) for d in dims)
    found = convert.call("tensordot_core", a, b, tuple(left), tuple(right))
    return into(out, found, "tensordot", exact=True)


@composite("repeat_interleave", method=True, cached=True)
def repeat_interleave(
    input: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (along `dim`) several times; `repeats` is one number or one for each."""
    if repeats is None:  # repeat_interleave(repeats): the numbers 0.. as often as repeats says
        counts = input
        if counts._spec.ndim != 1:
            raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
        if counts._spec.dtype not in (INT32, INT64):
            raise not_implemented("repeat_interleave_cpu", counts._spec.dtype)
        places = SPACES["torch"]["arange"](counts.numel(), device=counts.device)
        return repeat_interleave(places, counts)
    if dim is not None and input._spec.ndim == 0:
        raise IndexError(
            "Dimension specified as 0 but tensor has no dimensions"
            if isinstance(repeats, Tensor)
            else "Dimension out of range (expected to be in range of [-1, 0], but got 1)"
        )
    if isinstance(repeats, Tensor):
        if repeats._spec.ndim > 1:
            raise RuntimeError("repeats must be 0-dim or 1-dim tensor")
        if repeats._spec.dtype not in (INT32, INT64):
            raise not_implemented("repeat_interleave_cpu", repeats._spec.dtype)
    if isinstance(repeats, Tensor) and repeats.numel() == 1 and repeats._spec.ndim == 0:
        repeats = int(repeats.item())
    if isinstance(repeats, int):
        return convert.call("repeat_interleave_core", input, repeats, dim)
    torch = SPACES["torch"]
    counts = (repeats.detach() if isinstance(repeats, Tensor) else torch["tensor"](repeats, device=input.device)).long()
    if counts._spec.numel and convert.item(counts.min()) < 0:
        raise RuntimeError("repeats can not be negative")
    if dim is None:
        input, dim = input.reshape(-1), 0
    size = input.shape[dim]
    if counts._spec.numel == 1:
        counts = counts.expand(size)
    if counts._spec.numel != size:
        raise RuntimeError(
            f"repeats must have the same size as input along dim, but got repeats.size(0) = {counts._spec.numel} and input.size({dim}) = {size}"
        )
    if size and convert.item(counts.max()) > (2**63 - 1) // size:
        raise RuntimeError(
            f"repeat_interleave(): the repeats, {size} numbers up to {convert.item(counts.max())}, do not add up to a size"
        )
    ends = counts.cumsum(0)
    total = convert.item(ends[-1]) if size else 0
    if output_size is not None and output_size != total:
        raise RuntimeError(f"repeat_interleave(): output_size is {output_size}, but the repeats add up to {total}")
    return input.index_select(dim, torch["searchsorted"](ends, torch["arange"](total, device=ends.device), right=True))


@composite("bucketize", cached=True)
@forms(
    "(input: Tensor | Scalar, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Tensor | None = None) -> Tensor"
)
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Any = None
) -> Tensor:
    """The bucket of each value between sorted boundaries."""
    values = input if isinstance(input, Tensor) else SPACES["torch"]["tensor"](input, device=boundaries.device)
    if boundaries._spec.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries._spec.ndim})")
    found = convert.call("bucketize_core", values, boundaries, right)
    return into(out, found.int() if out_int32 else found, "bucketize", exact=True)


_AT_LEAST = forms(
    "(tensor: Tensor, /) -> Tensor",
    "(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]",
    "() -> tuple[Tensor, ...]",
    "(first: Tensor, second: Tensor, /, *tensors: Tensor) -> tuple[Tensor, ...]",
)


@composite("atleast_1d", cached=True)
@_AT_LEAST
def atleast_1d(*tensors: Any) -> Any:
    """0-dim tensors get one dim."""
    return _at_least(tensors, lambda t: t.reshape(1) if t._spec.ndim == 0 else t)


@composite("atleast_2d", cached=True)
@_AT_LEAST
def atleast_2d(*tensors: Any) -> Any:
    """Fewer than two dims become two."""
    return _at_least(
        tensors, lambda t: t.reshape(1, 1) if t._spec.ndim == 0 else t.unsqueeze(0) if t._spec.ndim == 1 else t
    )


@composite("atleast_3d", cached=True)
@_AT_LEAST
def atleast_3d(*tensors: Any) -> Any:
    """Fewer than three dims become three."""

    def grow(t: Any) -> Any:
        n = t._spec.ndim
        return (
            t.reshape(1, 1, 1)
            if n == 0
            else t.unsqueeze(0).unsqueeze(-1)
            if n == 1
            else t.unsqueeze(-1)
            if n == 2
            else t
        )

    return _at_least(tensors, grow)


def _at_least(tensors: tuple[Any, ...], grow: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return grow(tensors[0])
    return tuple([grow(t) for t in _tensors(tensors)])


@composite("cartesian_prod", cached=True)
def cartesian_prod(*tensors: Any) -> Tensor:
    """All combinations of one element from each."""
    given = _tensors(tensors)
    for t in given:
        if t._spec.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(t.shape)}")
    if len(given) == 1:
        return given[0]
    return SPACES["torch"]["stack"]([g.reshape(-1) for g in meshgrid(*given, indexing="ij")], 1)


@composite("chain_matmul", cached=True)
def chain_matmul(*matrices: Any, out: Tensor | None = None) -> Tensor:
    """The product of several matrices, from the left."""
    warn_once(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use torch.linalg.multi_dot instead, which accepts a list of "
        "two or more tensors rather than multiple parameters."
    )
    given = _tensors(matrices)
    if not given:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    made = given[0]
    for matrix in given[1:]:
        made = function_of("mm")(made, matrix)
    return into(out, made, "chain_matmul")


def _window(name: str, coefficients: Any) -> None:
    def function(
        window_length: int,
        periodic: bool = True,
        *args: Any,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        layout: Any = None,
        pin_memory: bool = False,
        **kwargs: Any,
    ) -> Tensor:
        kind = dtype or default_dtype()
        if layout is not None and layout.name != "strided":
            raise RuntimeError(f"{name} is not implemented for sparse types, got: {layout!r}")
        if not kind.is_floating_point:
            raise RuntimeError(f"{name} expects floating point dtypes, got: {kind!r}")
        if window_length < 0:
            raise RuntimeError(f"{name} requires non-negative window_length, got window_length={window_length}")
        if coefficients is None:
            made = convert.call("bartlett_window_core", window_length, periodic, kind)
        else:
            made = convert.call("cosine_window_core", window_length, periodic, coefficients(*args, **kwargs), kind)
        made = made.to(as_device(device))
        return made.requires_grad_() if requires_grad else made

    extra = "alpha: float = 0.54, beta: float = 0.46, " if name == "hamming_window" else ""
    forms(f"(window_length: int, periodic: bool = True, {extra}*, **options: Like) -> Tensor")(function)
    function.__doc__ = f"The {name.removesuffix('_window')} window of this length; periodic for spectral analysis."
    composite(name)(function)


_window("hann_window", lambda: (0.5, 0.5))
_window("hamming_window", lambda alpha=0.54, beta=0.46: (float(alpha), float(beta)))
_window("blackman_window", lambda: (0.42, 0.5, 0.08))
_window("bartlett_window", None)

"""Operators on masked tensors: element by element, and over rows.

An operation computes with all elements and looks at the masks alone to say what counts in the result.  Its gradient is
the plain operation's, made when backward asks for it; what does not count in the result passes nothing on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor, is_grad_enabled
from rushlight._interface.autograd import as_it_is, record
from rushlight._interface.operators import OPERATORS, function_of
from rushlight.masked import reductions
from rushlight.masked.masked_tensor import (
    MaskedTensor,
    from_payload,
    hold,
    is_masked_tensor,
    make_masked,
    payload,
    payload_mask,
    payload_of,
    same_coordinates,
    with_payload,
    zeroed,
)

__all__ = ["apply", "node_name", "pulled_through"]

Function = Callable[..., Any]
# From the mask of a result's gradient to those of its inputs.
Masks = Callable[[Tensor], Sequence[Tensor]]


def node_name(name: str) -> str:
    """The class of the backward node of an operator."""
    op = OPERATORS.get(name)
    found = op.node if op is not None else None
    return found if isinstance(found, str) else "".join(p.capitalize() for p in name.split("_")) + "Backward0"


# ***** an operation and its gradient *****

# Nodes whose backward has the same values whatever the operands are.
_LINEAR = frozenset(("AddBackward0", "CopyBackwards", "NegBackward0", "SubBackward0"))


def apply(
    name: str, f: Function, inputs: Sequence[Tensor], mask: Tensor, masks: Masks, form: Any, by_elements: bool = False
) -> Any:
    """`f` of the inputs' elements under `mask`, as a node `name` of the graph and in the form of `form` (None:
    strided).

    `masks` is for the gradient; `by_elements` where `f` broadcasts its operands.
    """
    with rushlight.no_grad():
        values = f(*[payload(x) if is_masked_tensor(x) else x for x in inputs])
    if by_elements and mask.shape != values.shape:
        mask = mask.expand(values.shape)
    out = with_payload(form, values, mask)
    kept = [as_it_is(x) for x in inputs]

    def rule(grad: Any) -> Sequence[Any]:
        counts = payload_mask(grad) if is_masked_tensor(grad) else mask
        slope = zeroed(payload_of(grad) if is_masked_tensor(grad) else grad, counts)
        found = pulled(f, kept, slope, counts if by_elements else None)
        return [None if g is None else _returned(x, g, m) for x, g, m in zip(kept, found, masks(counts), strict=True)]

    return record(name, inputs, out, rule, () if name in _LINEAR else kept)


def _returned(x: Any, grad: Tensor, mask: Tensor) -> Any:
    """The gradient of an input: masked for a masked tensor and for a leaf, plain with zeros behind what was computed."""
    if is_masked_tensor(x):
        return from_payload(x, grad, mask)
    return zeroed(grad, mask) if x._node is not None else from_payload(x, grad, mask)


def pulled(f: Function, inputs: Sequence[Tensor], slope: Tensor, counts: Tensor | None) -> Sequence[Tensor | None]:
    """The gradients of `f` with respect to those inputs that want one; `counts` where `f` works by elements and
    broadcasts.
    """
    again = is_grad_enabled()  # this backward is recorded in turn
    wanted = [x._rg for x in inputs]
    if again:
        given = [payload_of(x) if is_masked_tensor(x) else x for x in inputs]
    else:
        given = [
            (payload(x) if is_masked_tensor(x) else x).detach().requires_grad_(w)
            for x, w in zip(inputs, wanted, strict=True)
        ]
    with rushlight.enable_grad():
        wide = (
            given
            if counts is None
            else [_widened(g, given, counts) if w else g for g, w in zip(given, wanted, strict=True)]
        )
        made = f(*wide)
        asked = [x for x, w in zip(wide, wanted, strict=True) if w]
        found = iter(rushlight.autograd.grad(made, asked, slope, create_graph=again, allow_unused=True))
    grads = [next(found) if w else None for w in wanted]
    if counts is None:
        return grads
    return [None if g is None else _narrowed(g, x, counts) for g, x in zip(grads, given, strict=True)]


def _widened(x: Tensor, given: Sequence[Tensor], counts: Tensor) -> Tensor:
    """An operand in the shape of the result, so that its gradient can leave out what does not count before it is
    summed.
    """
    if x.shape == counts.shape:
        return x
    if not x.dim():  # a number promotes less than a tensor with dims
        kinds = [g for g in given if g.dim()]
        joined = rushlight.result_type(kinds[0], kinds[-1])
        x = x.to(joined) if joined.is_floating_point else x
    return x.expand(counts.shape)


def _narrowed(grad: Tensor, x: Tensor, counts: Tensor) -> Tensor:
    if grad.shape == x.shape:
        return grad.to(x.dtype)
    return zeroed(grad, counts).sum_to_size(tuple(x.shape)).to(x.dtype)


def _narrowed_mask(mask: Tensor, x: Any) -> Tensor:
    """Whether anything counts of what an operand was broadcast to."""
    shape = (payload(x) if is_masked_tensor(x) else x).shape
    return mask if mask.shape == shape else mask.to(rushlight.int64).sum_to_size(tuple(shape)) > 0


def pulled_through(f: Function, inputs: Sequence[Tensor]) -> Masks:
    """The masks for a linear `f` that moves or adds elements: what it would send back along the mask of its result."""
    shapes = [tuple((payload(x) if is_masked_tensor(x) else x).shape) for x in inputs]

    def masks(counts: Tensor) -> Sequence[Tensor]:
        with rushlight.enable_grad():
            leaves = [rushlight.zeros(s, requires_grad=True) for s in shapes]
            found = rushlight.autograd.grad(f(*leaves), leaves, counts.to(rushlight.float32), allow_unused=True)
        return [
            rushlight.zeros(s, dtype=rushlight.bool) if g is None else g.detach() > 0
            for s, g in zip(shapes, found, strict=True)
        ]

    return masks


# ***** element by element *****

UNARY = (
    "abs", "acos", "acosh", "angle", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "clamp", "conj_physical", "cos", "cosh", "deg2rad",
    "digamma", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "float_power", "floor", "frac", "i0", "isfinite", "isnan", "isreal", "lgamma",
    "log", "log10", "log1p", "log2", "logit", "nan_to_num", "neg", "pow", "rad2deg", "reciprocal", "round", "rsqrt", "sgn", "sigmoid", "sign",
    "signbit", "sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
)  # fmt: skip
BINARY = (
    "add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "div", "eq", "floor_divide",
    "fmax", "fmin", "fmod", "ge", "gt", "isclose", "le", "logaddexp", "logaddexp2", "lt", "maximum", "minimum", "mul", "ne", "nextafter",
    "remainder", "sub", "true_divide",
)  # fmt: skip
# Options that only their defaults may have.
_OPTIONS = {"alpha": 1, "decimals": 0, "rounding_mode": None, "out": None}


def _by_elements(name: str, count: int) -> None:
    plain, node = function_of(name), node_name(name)

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        for option in set(kwargs) & set(_OPTIONS):
            if kwargs.pop(option) != _OPTIONS[option]:
                raise ValueError(f"{name}(): MaskedTensor takes no '{option}'")
        return _elements(name, node, plain, count, args, kwargs)

    def change(function: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_masked_tensor(input):
            raise TypeError(f"{name}_(): a MaskedTensor cannot be written into a plain tensor")
        return adopt(name, input, call(None, input, *args, **kwargs))

    MaskedTensor.implements(name)(call)
    MaskedTensor.implements(name + "_")(change)


def _elements(name: str, node: str, plain: Function, count: int, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    named = list(kwargs)
    values = [*args, *kwargs.values()]
    places = [k for k, v in enumerate(values) if isinstance(v, Tensor)]
    inputs = [values[k] for k in places]
    if any(k >= count for k in places):
        raise TypeError(f"{name}(): MaskedTensor takes no tensors beyond the first {count}")
    first = _check_masks(name, inputs)
    given = _operands(name, inputs, first)

    def f(*tensors: Tensor) -> Any:
        filled_in = list(values)
        for k, t in zip(places, tensors, strict=True):
            filled_in[k] = t
        return plain(*filled_in[: len(args)], **dict(zip(named, filled_in[len(args) :], strict=True)))

    return apply(
        node,
        f,
        given,
        payload_mask(first),
        lambda counts: [_narrowed_mask(counts, x) for x in given],
        first,
        by_elements=True,
    )


def _check_masks(name: str, inputs: Sequence[Any]) -> Any:
    """The first masked tensor; the masks of all must be the same, up to sizes of 1."""
    masked = [x for x in inputs if is_masked_tensor(x)]
    first = masked[0]
    for other in masked[1:]:
        a, b = first._masked_mask, other._masked_mask
        if a.layout is not b.layout:
            raise ValueError(f"{name}(): masks must have one layout; found {a.layout} and {b.layout}")
        if a.layout is not rushlight.strided:
            same = same_coordinates(a, b) and rushlight.equal(a.values(), b.values())
        else:
            same = a.dim() == b.dim() and bool((a == b).all())
        if not same:
            raise ValueError(f"{name}(): the masks of all MaskedTensors must match")
    return first


def _operands(name: str, inputs: Sequence[Any], first: Any) -> list[Any]:
    """The operands beside the values of a sparse tensor, where `first` is one; else as they are."""
    found = []
    for x in inputs:
        if is_masked_tensor(x) or (x.layout is rushlight.strided and (not first.is_sparse or not x.dim())):
            found.append(x)
            continue
        if x.layout is not first.layout:
            raise RuntimeError(
                f"{name}(): a MaskedTensor of layout {first.layout} goes with no tensor of layout {x.layout}"
            )
        if x.shape != first.shape or not same_coordinates(first._masked_data, x):
            raise ValueError(f"{name}(): the indices of sparse operands must match")
        found.append(x.values())
    return found


def adopt(name: str, x: Any, made: Any) -> Any:
    """The end of an in-place operator: `x` becomes what was computed, history included."""
    if x._rg and x._node is None and is_grad_enabled():
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    if not rushlight.can_cast(made.dtype, x.dtype):
        raise RuntimeError(f"{name}_(): result type {made.dtype} can't be cast to the desired output type {x.dtype}")
    if made.shape != x.shape:
        raise RuntimeError(
            f"{name}_(): output with shape {list(x.shape)} doesn't match the broadcast shape {list(made.shape)}"
        )
    made = made.to(x.dtype)
    hold(x, made)
    if made._node is not None:
        x._node, x._rg = made._node, True
    return x


for _name in UNARY:
    _by_elements(_name, 1)
for _name in BINARY:
    _by_elements(_name, 2)


@MaskedTensor.implements("_invert")
def _(function: Any, self: Any) -> Any:
    return rushlight.bitwise_not(self)


@MaskedTensor.implements("_divide_number")
def _(function: Any, self: Any, other: Any) -> Any:
    return rushlight.reciprocal(self) * other


@MaskedTensor.implements("positive", "real", "conj", "resolve_conj", "resolve_neg")
def _(function: Any, input: Any) -> Any:
    return input


@MaskedTensor.implements("max", "min")
def _(function: Any, input: Any, other: Any = None) -> Any:
    name = function.__name__
    if not isinstance(other, Tensor):
        return MaskedTensor.otherwise(None, name, (), {})
    return getattr(rushlight, name + "imum")(input, other)


# ***** over rows *****


def _reduction(name: str) -> None:
    masked = getattr(reductions, name)

    def call(function: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("arg"):  # a place has no derivative
            input = input.detach()
        if not args and not kwargs and name.startswith("arg") and input.is_sparse_coo():
            return _flat_place(input, masked)
        if args or kwargs:
            return _along(masked, input, *args, **kwargs)
        mask = payload_mask(input)
        return _reduced(lambda v: masked(v, mask=mask), input, mask.any(), lambda v: v.sum())

    MaskedTensor.implements(name)(call)


def _along(masked: Function, input: Any, dim: Any, keepdim: bool = False, dtype: Any = None) -> Any:
    """A reduction over some dims; the result counts where any element did."""
    if input.is_sparse:
        raise TypeError(
            f"{masked.__name__}(): there is no reduction along a dim for a MaskedTensor of layout {input.layout}"
        )
    dims = dim if isinstance(dim, int) else tuple(dim)
    mask = input._masked_mask
    options = {"keepdim": keepdim} if masked is reductions.all else {"keepdim": keepdim, "dtype": dtype}

    def total(v: Tensor) -> Tensor:
        return v.sum(dims, keepdim)

    counts = total(mask.to(rushlight.int64)) > 0
    return _reduced(lambda v: masked(v, dim=dims, mask=mask, **options), input, counts, total)


def _reduced(f: Function, input: Any, mask: Tensor, total: Function) -> Any:
    """The result of `f`; what counts in the gradient is what counts in the input and `total` leads to something that
    counts.
    """
    held, back = payload_mask(input), pulled_through(total, [input])
    return apply("ConstructorBackward", f, [input], mask, lambda counts: [back(counts)[0] & held], None)


def _flat_place(input: Any, masked: Function) -> Any:
    """Where the extreme stands among all elements of a tensor in coordinates."""
    data = input._masked_data
    at = int(masked(data.values(), mask=payload_mask(input)))
    place = 0
    for index, size in zip(data.indices()[:, at].tolist(), data.shape, strict=False):
        place = place * size + index
    return make_masked(rushlight.tensor(float(place)), payload_mask(input).any())


for _name in ("all", "amax", "amin", "argmax", "argmin", "mean", "prod", "std", "sum", "var"):
    _reduction(_name)


@MaskedTensor.implements("norm", "_norm_method")
def _(
    function: Any,
    input: Any,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    out: Any = None,
    dtype: Any = None,
) -> Any:
    order = 2.0 if p in ("fro", None) else float(p)

    def normed(v: Tensor, **options: Any) -> Any:
        return reductions.norm(v, order, **options)

    if dim is not None:
        return _along(normed, input, dim, keepdim, dtype)
    mask = payload_mask(input)
    return _reduced(lambda v: normed(v, mask=mask, dtype=dtype), input, mask.any(), lambda v: v.sum())


@MaskedTensor.implements("softmax", "_functional_softmax")
def _(function: Any, input: Any, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    if input.is_sparse:
        raise TypeError(f"softmax(): there is none for a MaskedTensor of layout {input.layout}")
    mask = input._masked_mask
    return apply(
        "SoftmaxBackward0",
        lambda v: reductions.softmax(v, dim, dtype=dtype, mask=mask),
        [input],
        mask,
        lambda counts: [counts & mask],
        input,
    )

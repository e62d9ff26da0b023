"""Element by element: functions that keep zero, sums, products, quotients and powers of sparse tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor, broadcast_shapes, enable_grad, is_grad_enabled
from rushlight._interface.autograd import as_it_is, record
from rushlight._interface.operators import OPERATORS, function_of
from rushlight.autograd import grad as gradients
from rushlight.sparse.layouts import convert
from rushlight.sparse.parts import (
    block_shape,
    coalesce,
    flat_places,
    gather,
    is_sparse,
    needs_dtype,
    pick,
    to_dense,
    values_of,
    with_parts,
    with_values,
)
from rushlight.sparse.tensors import (
    COO,
    WORDS,
    CompressedTensor,
    SparseBase,
    SparseTensor,
    adopt,
    backend_of,
    bare,
    factors,
    into_out,
    make_coo,
    same_dtype,
)

__all__: list[str] = []

# Functions with f(0) = 0: what is not stored stays so.
KEEPING_ZERO = (
    "abs", "asin", "asinh", "atan", "atanh", "ceil", "conj_physical", "deg2rad", "erf", "erfinv", "expm1", "floor", "frac", "isinf", "isnan",
    "isneginf", "isposinf", "log1p", "nan_to_num", "neg", "positive", "rad2deg", "relu", "round", "sgn", "sign", "signbit", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
)  # fmt: skip
LINEAR = frozenset(("neg", "positive", "conj", "conj_physical"))  # true of the entries that meet as of their sum


def elementwise(name: str, x: Any, function: Callable[[Tensor], Tensor], node: str) -> Any:
    """`function` of every entry, at the same places."""
    if type(x) is SparseTensor and name not in LINEAR:
        x = coalesce(x)
    held = function(x._held)
    inputs, pattern, x = [x], bare(x), as_it_is(x)

    def rule(grad: Any) -> tuple[Any]:
        found = pick(grad, pattern)
        create = is_grad_enabled()
        with enable_grad():
            values = values_of(x) if create else pattern._held.detach().requires_grad_()
            inner = gradients((function(values),), (values,), (found,), create_graph=create, allow_unused=True)[0]
        return (None if inner is None else with_values(pattern, inner),)

    return record(node, inputs, with_parts(x, held), rule, () if name in LINEAR else (x,))


def _node(name: str) -> str:
    node = OPERATORS[name].node
    return node if isinstance(node, str) else "".join(p.capitalize() for p in name.split("_")) + "Backward0"


def _unary(name: str) -> None:
    @SparseBase.implements(name)
    def apply(function: Any, input: Any, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        plain = function_of(name)
        return into_out(elementwise(name, input, lambda v: plain(v, *args, **kwargs), _node(name)), out)

    @SparseBase.implements(name + "_")
    def change(function: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        if type(input) is SparseTensor and not input._sorted and name not in LINEAR:
            raise RuntimeError(f"{name}_ requires coalesced input")
        made = apply(None, input, *args, **kwargs)
        return adopt(input, same_dtype(made, input))


for _name in KEEPING_ZERO:
    if _name in OPERATORS:
        _unary(_name)


@SparseBase.implements("positive")
def _(function: Any, input: Any) -> Any:
    return input


@SparseBase.implements("dropout")
def _(function: Any, input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if training and p > 0:
        raise NotImplementedError(
            f"Could not run 'aten::bernoulli_.float' with arguments from the '{backend_of(input)}' backend."
        )
    return input


@CompressedTensor.implements("angle")
def _(function: Any, input: Any) -> Any:
    return elementwise("angle", input, function_of("angle"), "AngleBackward0")


@SparseBase.implements("conj", "resolve_conj")
def _(function: Any, input: Any) -> Any:
    return elementwise("conj", input, rushlight.conj, "ConjBackward0") if input.is_complex() else input


@SparseBase.implements("real", "imag")
def _(function: Any, input: Any) -> Any:
    if not input.is_complex():
        if call_of(function) == "imag":
            raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
        return input
    part = rushlight.real if call_of(function) == "real" else rushlight.imag
    return elementwise("conj", input, lambda v: part(v).clone(), call_of(function).capitalize() + "Backward0")


def call_of(function: Any) -> str:
    """The plain name of what was called."""
    return str(getattr(function, "__name__", "")).rstrip("_")


@SparseTensor.implements("square")
def _(function: Any, input: Any, *, out: Any = None) -> Any:
    return into_out(_power(input, 2), out)


@SparseBase.implements("threshold_backward")
def _(function: Any, grad: Any, input: Any, threshold: float) -> Any:
    return grad * (input > threshold)


# ***** refusals of compressed tensors *****


def _refused(name: str) -> None:
    @CompressedTensor.implements(name)
    def _(function: Any, *args: Any, **kwargs: Any) -> Any:
        x = next(a for a in (*args, *kwargs.values()) if type(a) is CompressedTensor)
        raise RuntimeError(f"unsupported tensor layout: {WORDS[x.layout.name]}")


for _name in ("sub", "div", "floor_divide", "true_divide", "pow", "square", "cos", "exp", "log", "sigmoid", "reciprocal", "rsqrt", "eq", "ne", "lt", "le",
              "gt", "ge", "remainder", "maximum", "minimum", "allclose", "isclose", "acos", "acosh", "cosh", "clamp_min", "clamp_max", "bitwise_and",
              "bitwise_or", "bitwise_xor", "bitwise_not", "atan2", "xlogy", "digamma", "erfc", "exp2", "dist"):  # fmt: skip
    for _each in (_name, _name + "_"):
        _refused(_each)


# ***** sums *****


def _sizes_match(a: Any, b: Any, name: str) -> None:
    if a.shape != b.shape:
        raise RuntimeError(
            f"{name}: expected sizes of 'self' and 'other' to match, but {list(a.shape)} != {list(b.shape)}"
        )


def _scaled(values: Tensor, alpha: Any) -> Tensor:
    return values if type(alpha) in (int, float) and alpha == 1 else values * alpha


def _sum_coo(a: Any, b: Any, alpha: Any) -> Any:
    """a + alpha * b in coordinates, outside of any graph."""
    dtype = rushlight.result_type(a._held, b._held)
    left, right = a._held.to(dtype), _scaled(b._held.to(dtype), alpha)
    if a._where is b._where or a._where.shape == b._where.shape and bool((a._where == b._where).all()):
        if left.shape == right.shape:
            return make_coo(a._where, left + right, a.shape, a._sorted and b._sorted)
    for empty, x, held in ((b, a, left), (a, b, right)):  # which has any sparse dims
        if not empty._where.size(1):
            return make_coo(x._where, held, a.shape, x._sorted)
    n = a._where.size(0)
    if n != b._where.size(0):
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same number of sparse dimensions, but 'self' has {n} sparse dimensions while 'other' has "
            f"{b._where.size(0)} sparse dimensions"
        )
    made = make_coo(rushlight.cat([a._where, b._where], 1), rushlight.cat([left, right], 0), a.shape, False)
    return coalesce(made) if a._sorted and b._sorted else made


def _add_sparse(a: Any, b: Any, alpha: Any) -> Any:
    _sizes_match(a, b, "add")
    if a.layout is not b.layout:
        raise RuntimeError(
            f"add: expected both operands to have one layout, got {WORDS[a.layout.name]} and {WORDS[b.layout.name]}"
        )
    if a.layout is COO:
        needs_dtype(
            "cadd_sparse",
            a._held.new_empty(0, dtype=rushlight.result_type(a._held, b._held)),
            never=("bool", "float16"),
        )
        made = _sum_coo(bare(a), bare(b), alpha)
    else:
        block = block_shape(a)
        if block != block_shape(b):
            raise RuntimeError(f"add: expected both operands to have one blocksize, got {block} and {block_shape(b)}")
        made = convert(_sum_coo(convert(bare(a), COO), convert(bare(b), COO), alpha), a.layout, block)
        made._pointers, made._others = made._pointers.to(a._pointers.dtype), made._others.to(a._others.dtype)
    return record(
        "AddBackward0", [a, b], made, lambda grad: (grad, lambda: grad if alpha == 1 else grad * alpha.conjugate())
    )


def _add_to_dense(dense: Tensor, sparse: Any, alpha: Any, inplace: bool) -> Tensor:
    if dense.shape != sparse.shape:
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {list(dense.shape)} while other has size {list(sparse.shape)} "
            "(FYI: dense-sparse addition does not currently support broadcasting)"
        )
    if type(sparse) is CompressedTensor and block_shape(sparse):
        raise RuntimeError(
            f"add: expected 'other' to be in layout SparseCsr or SparseCsc, got {WORDS[sparse.layout.name]}"
        )
    if sparse._rg and is_grad_enabled():  # all elements of a sum have a gradient, those of a sparse term too
        addend: Any = record("ToDenseBackward0", [sparse], to_dense(bare(sparse)), lambda grad: (grad,))
        return dense.add_(addend, alpha=alpha) if inplace else dense.add(addend, alpha=alpha)
    if type(sparse) is CompressedTensor or not sparse._where.size(0):
        addend = to_dense(bare(sparse))
        return dense.add_(addend, alpha=alpha) if inplace else dense.add(addend, alpha=alpha)
    values = _scaled(sparse._held.to(rushlight.result_type(dense, sparse._held)), alpha)
    dtype = dense.dtype if inplace else rushlight.result_type(dense, values)
    where = tuple(sparse._where)
    if inplace:
        if not rushlight.can_cast(values.dtype, dtype):
            raise RuntimeError(f"result type {values.dtype} can't be cast to the desired output type {dtype}")
        return dense.index_put_(where, values.to(dtype), accumulate=True)
    return dense.to(dtype).index_put(where, values.to(dtype), accumulate=True)


def _as_operand(x: Any) -> Any:
    return x if isinstance(x, Tensor) else rushlight.tensor(x)


@SparseBase.implements("add")
def add(function: Any, input: Any, other: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    """Sparse + sparse, or strided + sparse; compressed + strided too."""
    a, b = _as_operand(input), _as_operand(other)
    if is_sparse(a) and is_sparse(b):
        return into_out(_add_sparse(a, b, alpha), out)
    if is_sparse(a):
        if type(a) is SparseTensor:
            raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
        made = _add_to_dense(_scaled(b.to(rushlight.result_type(a._held, b)), alpha), a, 1, False)
        return into_out(made, out)
    if not isinstance(input, Tensor):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    return into_out(_add_to_dense(a, b, alpha, False), out)


@SparseBase.implements("add_")
def _add_(function: Any, input: Any, other: Any, *, alpha: Any = 1) -> Any:
    if not is_sparse(input):
        return _add_to_dense(input, other, alpha, True)
    if not is_sparse(other):
        if type(input) is CompressedTensor:
            raise RuntimeError(f"Sparse {input.layout.name[7:].upper()} tensors do not have is_contiguous")
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    return adopt(input, same_dtype(_add_sparse(input, other, alpha), input))


@SparseTensor.implements("sub")
def _(function: Any, input: Any, other: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    if input.dtype is rushlight.bool and other.dtype is rushlight.bool:
        return function(input._held, other._held)  # raises
    return add(None, input, other, alpha=-alpha, out=out)


@SparseTensor.implements("sub_")
def _(function: Any, input: Any, other: Any, *, alpha: Any = 1) -> Any:
    return _add_(None, input, other, alpha=-alpha)


@SparseBase.implements("rsub")
def _(function: Any, input: Any, other: Any, *, alpha: Any = 1) -> Any:
    return rushlight.sub(_as_operand(other), input, alpha=alpha)


# ***** products *****


def _is_scalar(x: Any) -> bool:
    return not isinstance(x, Tensor) or not is_sparse(x) and x.dim() == 0


def _scale(x: Any, factor: Any, function: Any, node: str) -> Any:
    """Each entry with a number, by a function that is linear in the entry."""
    plain = factor.detach() if isinstance(factor, Tensor) else factor
    made = with_parts(x, _apply(function, x, plain))
    inputs, x = [x, factor] if isinstance(factor, Tensor) else [x], as_it_is(x)

    def rule(grad: Any) -> list[Any]:
        conjugate = (
            factor.conj()
            if isinstance(factor, Tensor)
            else factor.conjugate()
            if isinstance(factor, complex)
            else factor
        )
        found = [lambda: function(grad, conjugate)]
        if isinstance(factor, Tensor):
            found.append(lambda: (to_dense(grad) * to_dense(x).conj()).sum())
        return found

    return record(node, inputs, made, rule, factors(x, factor) if isinstance(factor, Tensor) else ())


def _apply(function: Any, x: Any, factor: Any) -> Tensor:
    """The function of the values, whose number of dims must not decide the dtype."""
    held = x._held
    if isinstance(factor, Tensor) and not held.dim():
        return function(held.reshape(1), factor).reshape(())
    return function(held, factor)


def _multiply(a: Any, b: Any) -> Any:
    """a * b where at least one is sparse."""
    if _is_scalar(b):
        return _scale(a, b, rushlight.mul, "MulBackward0")
    if _is_scalar(a):
        return _scale(b, a, rushlight.mul, "MulBackward0")
    if is_sparse(a) and is_sparse(b):
        made = _meet(bare(a), bare(b))
    else:
        x, dense = (a, b) if is_sparse(a) else (b, a)
        if type(x) is CompressedTensor and (block_shape(x) or dense.shape != x.shape):
            word = WORDS[x.layout.name]
            if block_shape(x):
                raise RuntimeError(
                    f"empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got {word}"
                )
            raise RuntimeError(
                f"sparse_mask(): operands have incompatible sizes; self has size {list(dense.shape)} but mask has size {list(x.shape)}"
            )
        made = _times_dense(bare(x), dense.detach())
    inputs, a, b = [a, b], as_it_is(a), as_it_is(b)
    return record(
        "MulBackward0",
        inputs,
        made,
        lambda grad: (lambda: _factor_grad(grad, b, a), lambda: _factor_grad(grad, a, b)),
        factors(a, b),
    )


def _factor_grad(grad: Any, factor: Any, wanted: Any) -> Any:
    """The gradient for `wanted` in a product with `factor`."""
    if is_sparse(grad) and is_sparse(factor) and grad.layout is not factor.layout:
        grad, factor = to_dense(grad), to_dense(factor)
    found = grad * factor.conj()
    if found.shape != wanted.shape:
        return to_dense(found).sum_to_size(wanted.shape)
    return found


def _times_dense(x: Any, dense: Tensor) -> Any:
    shape = tuple(broadcast_shapes(tuple(x.shape), tuple(dense.shape)))
    if shape != tuple(x.shape):
        x = _expanded(x, shape)
    return with_parts(x, x._held * gather(dense.expand(shape), x))


def _expanded(x: Any, shape: tuple[int, ...]) -> Any:
    """A tensor in coordinates with new leading dims and with dims of size 1 stretched."""
    where, held, n = x._where, x._held, x._where.size(0)
    extra = len(shape) - x.dim()
    rows = [where[d] for d in range(n)]
    for dim in range(n - 1, -1, -1):
        size = shape[extra + dim]
        if x.shape[dim] == 1 and size != 1:
            rows, held = _repeated(rows, held, size)
            rows[dim] = rushlight.arange(size, device=held.device).repeat_interleave(rows[dim].numel() // size)
    for dim in range(extra - 1, -1, -1):
        size = shape[dim]
        rows, held = _repeated(rows, held, size)
        rows.insert(
            0, rushlight.arange(size, device=held.device).repeat_interleave(held.size(0) // size if size else 0)
        )
    held = held.expand(held.size(0), *shape[extra + n :])
    return make_coo(rushlight.stack(rows), held, shape, x._sorted and shape[extra : extra + n] == tuple(x.shape[:n]))


def _repeated(rows: list[Tensor], held: Tensor, times: int) -> tuple[list[Tensor], Tensor]:
    return [r.repeat(times) for r in rows], held.repeat(times, *[1] * (held.dim() - 1))


def _meet(a: Any, b: Any) -> Any:
    """The product of two sparse tensors: the places that both have, in the layout of the first."""
    if a.shape != b.shape and not (type(a) is type(b) is SparseTensor and _same_places(a, b)):
        raise RuntimeError(
            f"mul: expected 'self' and 'other' to have same sizes when both are sparse, but {list(a.shape)} != {list(b.shape)}"
        )
    if type(a) is CompressedTensor:
        if block_shape(a):
            raise RuntimeError(
                f"empty_sparse_compressed expected sparse compressed (non-block) tensor layout but got {WORDS[a.layout.name]}"
            )
        return convert(_meet(convert(a, COO), b if b.layout is COO else convert(b, COO)), a.layout)
    if type(b) is CompressedTensor:
        raise RuntimeError("Expected result Tensor to be of format CSR")
    if a.dtype is b.dtype:
        needs_dtype("mul_out_sparse", a, never=("bool",))
    a, b = coalesce(a), coalesce(b)
    n = min(a._where.size(0), b._where.size(0))
    if a._where.size(0) != b._where.size(0):
        dense = to_dense(a if a._where.size(0) == n else b)
        return _times_dense(b if a._where.size(0) == n else a, dense)
    sizes = tuple(a.shape[:n])
    shape = (*sizes, *rushlight.broadcast_shapes(a.shape[n:], b.shape[n:]))
    left, right = flat_places(a._where, sizes), flat_places(b._where, sizes)
    if not right.numel() or not left.numel():
        dtype = rushlight.result_type(a._held, b._held)
        return make_coo(a._where[:, :0], (a._held[:0] * b._held[:0]).to(dtype), shape, True)
    place = rushlight.searchsorted(right, left).clamp(max=right.numel() - 1)
    kept = (right[place] == left).nonzero().reshape(-1)
    return make_coo(a._where[:, kept], a._held[kept] * b._held[place[kept]], shape, True)


def _same_places(a: Any, b: Any) -> bool:
    """Whether two tensors in coordinates differ in dense dims alone: values broadcast."""
    n = a._where.size(0)
    return a.dim() == b.dim() and n == b._where.size(0) and a.shape[:n] == b.shape[:n]


@SparseBase.implements("mul")
def _mul(function: Any, input: Any, other: Any, *, out: Any = None) -> Any:
    return into_out(_multiply(input, other), out)


@SparseBase.implements("mul_")
def _(function: Any, input: Any, other: Any) -> Any:
    if not is_sparse(input):
        if type(other) is CompressedTensor:
            raise RuntimeError("Expected result Tensor to be of format CSR")
        return input.mul_(to_dense(other))
    return adopt(input, same_dtype(_multiply(input, other), input))


# ***** quotients and powers *****


def _divide(name: str, word: str) -> None:
    def apply(function: Any, input: Any, other: Any, *, rounding_mode: Any = None, out: Any = None) -> Any:
        if is_sparse(other) or not _is_scalar(other):
            raise RuntimeError(
                f"Sparse {word} requires a scalar or zero-dim dense tensor divisor (got shape {list(_as_operand(other).shape)} for divisor)"
            )
        plain = function_of(name)
        options = {} if rounding_mode is None else {"rounding_mode": rounding_mode}
        if name == "div" and rounding_mode is None:
            if isinstance(other, Tensor) and other._rg:
                return into_out(_multiply(input, other.reciprocal()), out)
            return into_out(_scale(input, other, rushlight.div, "DivBackward0"), out)
        factor = other.detach() if isinstance(other, Tensor) else other
        whole = input.to(rushlight.int64) if input.dtype is rushlight.bool else input
        return into_out(elementwise(name, whole, lambda v: plain(v, factor, **options), "DivBackward1"), out)

    def change(function: Any, input: Any, other: Any, *, rounding_mode: Any = None) -> Any:
        made = apply(None, input, other, rounding_mode=rounding_mode)
        return adopt(input, same_dtype(made, input))

    for each in (name, "true_divide") if name == "div" else (name,):
        SparseTensor.implements(each)(apply)
        SparseTensor.implements(each + "_")(change)


_divide("div", "division")
_divide("floor_divide", "floor division")


def _power(x: Any, exponent: Any) -> Any:
    if isinstance(exponent, Tensor) and (is_sparse(exponent) or exponent.dim()):
        raise NotImplementedError(
            f"Could not run 'aten::pow.Tensor_Tensor' with arguments from the '{backend_of(x)}' backend."
        )
    if exponent == 0:
        raise RuntimeError("pow: cannot raise to zeroth power on sparse tensor; it would make the result tensor dense")
    if x.dtype is rushlight.bool:
        raise RuntimeError("result type Long can't be cast to the desired output type Bool")
    return elementwise("pow", x, lambda v: v**exponent, "PowBackward0")


@SparseTensor.implements("pow")
def _(function: Any, input: Any, exponent: Any, *, out: Any = None) -> Any:
    if not is_sparse(input):
        raise NotImplementedError(
            f"Could not run 'aten::pow.Scalar' with arguments from the '{backend_of(exponent)}' backend."
        )
    return into_out(_power(input, exponent), out)


@SparseTensor.implements("float_power")
def _(function: Any, input: Any, exponent: Any, *, out: Any = None) -> Any:
    wide = input.to(rushlight.complex128 if input.is_complex() else rushlight.float64)
    return into_out(_power(wide, exponent), out)

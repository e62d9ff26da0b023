"""Functions of NumPy for the arrays of a trace: by the function of NumPy, what is done in its place.

Each takes NumPy's arguments; TypeError where it is given others, which ends the trace.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rushlight._capture.trace.arrays.arrays import (
    METHODS,
    TracedArray,
    computed,
    like,
    operand,
    refused,
    sample,
    tensor_dtype,
)
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.core.tensor import Tensor

__all__ = ["CREATING", "FUNCTIONS"]

# Functions of elements: NumPy's name, and the name of ours where that differs.
_ELEMENTS = {
    name: name for name in (
        "add negative positive sign exp exp2 log log2 log10 expm1 log1p sqrt square reciprocal gcd lcm sin cos tan hypot sinh cosh tanh deg2rad "
        "rad2deg bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor logical_not maximum minimum fmax fmin isfinite isinf isnan "
        "signbit copysign nextafter ldexp floor ceil trunc heaviside logaddexp logaddexp2 fmod"
    ).split()
} | {
    "subtract": "sub", "multiply": "mul", "divide": "true_divide", "power": "pow", "float_power": "pow", "remainder": "remainder",
    "floor_divide": "floor_divide", "absolute": "abs", "fabs": "abs", "invert": "bitwise_not", "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift", "rint": "round", "conjugate": "conj_physical", "greater": "gt", "greater_equal": "ge", "less": "lt",
    "less_equal": "le", "equal": "eq", "not_equal": "ne", "degrees": "rad2deg", "radians": "deg2rad", "arcsin": "asin", "arccos": "acos",
    "arctan": "atan", "arctan2": "atan2", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
}  # fmt: skip
_DIVIDING = ("remainder", "floor_divide", "fmod", "power")  # NumPy gives something where we raise an error
FUNCTIONS: dict[int, Callable[..., Any]] = {}
CREATING: set[int] = set()  # those that make arrays of plain values
_HELD: list[Any] = []  # NumPy's functions, whose identities are keys


def _kernel(name: str) -> Callable[..., Any]:
    def run(*tensors: Any) -> Any:
        if not isinstance(tensors[0], Tensor):
            tensors = (HOOKS.public.tensor(tensors[0], dtype=tensors[1].dtype), *tensors[1:])
        function = getattr(HOOKS.public, name)
        try:
            found: Any = function(*tensors)
        except TypeError:  # not all take numbers
            dtype = tensors[0].dtype
            found = function(
                *[HOOKS.public.tensor(x, dtype=dtype) if not isinstance(x, Tensor) else x for x in tensors]
            )
        return found

    return run


def _element_function(name: str) -> Callable[..., Any]:
    ufunc, kernel = getattr(np, name), _kernel(_ELEMENTS[name])

    def function(*operands: Any, out: Any = None) -> Any:
        if name in _DIVIDING and _is_whole(operands) and (type(operands[1]) is not int or operands[1] <= 0):
            raise refused(f"{name}() of integers")
        made = computed(ufunc, kernel, *operands)
        return made if out is None else _put(out, made)

    return function


def _is_whole(operands: Sequence[Any]) -> bool:
    kinds = [np.asarray(sample(x)).dtype.kind for x in operands]
    return all(kind in "biu" for kind in kinds)


def _put(out: Any, made: TracedArray) -> Any:
    if not np.can_cast(made.dtype, out.dtype, "same_kind"):
        raise refused("an output of another kind")
    out.torch.copy_(made.tensor)
    return out


# ***** reductions *****


def _axes(array: TracedArray, axis: Any) -> Any:
    if axis is None:
        return tuple(range(array.ndim))
    return tuple(axis) if isinstance(axis, (tuple, list)) else (operator.index(axis),)


def _reduced(
    name: str, array: Any, reduce: Callable[..., Any], axis: Any, dtype: Any, keepdims: Any, **rest: Any
) -> Any:
    array = like(array)
    asked = {"axis": axis, "keepdims": keepdims} | rest | ({} if dtype is None else {"dtype": dtype})
    if axis is None and name in ("cumsum", "cumprod"):
        array, asked["axis"] = TracedArray(array.torch.reshape(-1)), 0
    if name in ("cumsum", "cumprod"):
        del asked["keepdims"]
    found = np.asarray(getattr(np, name)(np.ones((2,) * array.ndim, array.dtype), **asked)).dtype
    wide = array.torch
    if found.kind in "fc" or name in ("sum", "prod", "cumsum", "cumprod"):
        wide = wide.to(tensor_dtype(found))
    made = reduce(wide, asked["axis"]).to(tensor_dtype(found))
    if made._spec.ndim == array.ndim and not keepdims and name not in ("cumsum", "cumprod") and array.ndim:
        raise refused(f"{name}() along this axis")
    return TracedArray(made, made._spec.ndim == 0)


def _reduction(name: str, ours: str, several: bool = True) -> Callable[..., Any]:
    def function(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        def reduce(x: Any, axis: Any) -> Any:
            axes = _axes(TracedArray(x), axis)
            if not axes:
                return x
            if several or len(axes) == 1:
                return getattr(x, ours)(axes if several else axes[0], keepdim=keepdims)
            for each in sorted([d % x.dim() for d in axes], reverse=True):
                x = getattr(x, ours)(each, keepdim=keepdims)
            return x

        made = _reduced(name, a, reduce, axis, dtype, keepdims)
        return made if out is None else _put(out, made)

    return function


def _spread(name: str) -> Callable[..., Any]:
    def function(
        a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False
    ) -> Any:
        if dtype is not None or out is not None:
            raise refused(f"{name}() with a dtype or an output")

        def reduce(x: Any, axis: Any) -> Any:
            return getattr(x, name)(_axes(TracedArray(x), axis), correction=ddof, keepdim=keepdims)

        return _reduced(name, a, reduce, axis, None, keepdims, ddof=ddof)

    return function


def _place(name: str) -> Callable[..., Any]:
    def function(a: Any, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        if out is not None or (keepdims and axis is None):
            raise refused(f"{name}() with an output")
        reduce = lambda x, axis: getattr(x, name)(axis, keepdim=keepdims)
        return _reduced(name, a, reduce, axis, None, keepdims)

    return function


def _running(name: str) -> Callable[..., Any]:
    def function(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        if out is not None:
            raise refused(f"{name}() with an output")
        return _reduced(name, a, lambda x, axis: getattr(x, name)(axis), axis, dtype, False)

    return function


# ***** shapes *****


def _reshape(a: Any, *shape: Any, order: str = "C", newshape: Any = None) -> Any:
    if order != "C":
        raise refused("an order of elements")
    return TracedArray(like(a).torch.reshape(*shape))


def _transpose(a: Any, *axes: Any) -> Any:
    array = like(a)
    if len(axes) == 1 and not isinstance(axes[0], int):
        axes = tuple(axes[0] or ())
    return TracedArray(array.torch.permute(axes or tuple(reversed(range(array.ndim)))))


def _squeeze(a: Any, axis: Any = None) -> Any:
    array = like(a)
    return TracedArray(array.torch.squeeze() if axis is None else array.torch.squeeze(_axes(array, axis)))


def _expand_dims(a: Any, axis: Any) -> Any:
    array = like(a)
    found, axes = array.torch, axis if isinstance(axis, tuple) else (axis,)
    for each in sorted([d % (array.ndim + len(axes)) for d in axes]):
        found = found.unsqueeze(each)
    return TracedArray(found)


def _ravel(a: Any, order: str = "C") -> Any:
    return _reshape(a, -1, order=order)


def _flatten(a: Any, order: str = "C") -> Any:
    return TracedArray(_reshape(a, -1, order=order).torch.clone())


def _copy(a: Any, order: str = "K") -> Any:
    return TracedArray(like(a).torch.clone())


def _astype(a: Any, dtype: Any, *, copy: bool = True) -> Any:
    return TracedArray(a.torch.to(tensor_dtype(dtype), copy=copy), a.scalar)


def _fill(a: Any, value: Any) -> None:
    a[...] = value


def _item(a: Any) -> Any:
    return a.torch.item()


def _joined(function: str) -> Callable[..., Any]:
    def join(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None) -> Any:
        if out is not None or axis is None:
            raise refused(f"{function}() with an output")
        rows = [like(x) for x in arrays]
        wanted = tensor_dtype(np.result_type(*[sample(row) for row in rows]) if dtype is None else dtype)
        return TracedArray(getattr(HOOKS.public, function)([row.torch.to(wanted) for row in rows], axis))

    return join


def _stacked(function: str) -> Callable[..., Any]:
    def stack(arrays: Any) -> Any:
        rows = [like(x) for x in arrays]
        wanted = tensor_dtype(np.result_type(*[sample(row) for row in rows]))
        return TracedArray(getattr(HOOKS.public, function)([row.torch.to(wanted) for row in rows]))

    return stack


def _split(a: Any, parts: Any, axis: int = 0) -> Any:
    array = like(a)
    if isinstance(parts, int) and array.shape[axis] % parts:
        raise ValueError("array split does not result in an equal division")
    return [TracedArray(x) for x in array.torch.tensor_split(parts, axis)]


def _where(condition: Any, *both: Any) -> Any:
    if len(both) != 2:
        raise refused("where() without values")
    wanted = tensor_dtype(np.result_type(*[sample(x) for x in both]))
    one, two = [like(x).torch.to(wanted) for x in both]
    return TracedArray(HOOKS.public.where(like(condition).torch.to(HOOKS.public.bool), one, two))


def _clip(a: Any, a_min: Any = None, a_max: Any = None, out: Any = None, *, min: Any = None, max: Any = None) -> Any:
    low, high = a_min if min is None else min, a_max if max is None else max
    made = like(a)
    for bound, name in ((low, "maximum"), (high, "minimum")):
        made = made if bound is None else FUNCTIONS[id(getattr(np, name))](made, bound)
    return made if out is None else _put(out, made)


# ***** products *****


def _product(name: str, ours: str) -> Callable[..., Any]:
    def function(a: Any, b: Any) -> Any:
        one, two = like(a), like(b)
        wanted = tensor_dtype(np.result_type(one.dtype, two.dtype))
        if wanted is HOOKS.public.bool:
            raise refused("a product of bools")
        pair = one.torch.to(wanted), two.torch.to(wanted)
        if name == "dot" and (one.ndim == 0 or two.ndim == 0):
            made = pair[0] * pair[1]
        elif name == "dot" and two.ndim > 2:
            raise refused("dot() of three dims")
        elif name in ("outer", "vdot"):
            made = getattr(HOOKS.public, ours)(pair[0].reshape(-1), pair[1].reshape(-1))
        else:
            made = getattr(HOOKS.public, ours)(*pair)
        return TracedArray(made, made._spec.ndim == 0)

    return function


def _einsum(text: str, *operands: Any, optimize: Any = False) -> Any:
    arrays = [like(x) for x in operands]
    wanted = tensor_dtype(np.result_type(*[x.dtype for x in arrays]))
    made = HOOKS.public.einsum(text, *[x.torch.to(wanted) for x in arrays])
    return TracedArray(made, made._spec.ndim == 0)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    array = like(x)
    wide = array.torch if array.dtype.kind in "fc" else array.torch.to(HOOKS.public.float64)
    made = HOOKS.public.linalg.norm(wide, ord, axis, keepdims)
    return TracedArray(made, made._spec.ndim == 0)


# ***** making arrays *****


def _filled(name: str) -> Callable[..., Any]:
    def make(shape: Any, *value: Any, dtype: Any = None, order: str = "C") -> Any:
        found = value[-1] if name != "full" and value else dtype
        if name == "full":
            held = like(value[0])
            wanted = tensor_dtype(held.dtype if dtype is None else dtype)
            return TracedArray(HOOKS.public.zeros(shape, dtype=wanted).copy_(held.tensor))
        return TracedArray(getattr(HOOKS.public, name)(shape, dtype=tensor_dtype(float if found is None else found)))

    return make


def _filled_like(name: str) -> Callable[..., Any]:
    def make(a: Any, *value: Any, dtype: Any = None, shape: Any = None) -> Any:
        array = like(a)
        sizes = array.shape if shape is None else shape
        wanted = tensor_dtype(array.dtype if dtype is None else dtype)
        if name == "full_like":
            return TracedArray(HOOKS.public.zeros(sizes, dtype=wanted).copy_(like(value[0]).tensor))
        return TracedArray(getattr(HOOKS.public, name.removesuffix("_like"))(sizes, dtype=wanted))

    return make


def _array(values: Any, dtype: Any = None, *, copy: Any = True, ndmin: int = 0) -> Any:
    if ndmin:
        raise refused("array() with ndmin")
    made = like(values, dtype)
    return TracedArray(made.torch.clone()) if made is values or type(values) is TracedArray else made


def _asarray(values: Any, dtype: Any = None) -> Any:
    return like(values, dtype)


def _arange(*bounds: Any, dtype: Any = None) -> Any:
    made = np.arange(*bounds, dtype=dtype)
    if made.dtype.kind != "i":
        return like(made)
    steps = (*bounds, 1) if len(bounds) == 2 else (0, *bounds, 1) if len(bounds) == 1 else bounds
    return TracedArray(HOOKS.public.arange(*steps, dtype=tensor_dtype(made.dtype)))


def _computed_by_numpy(function: Any) -> Callable[..., Any]:
    """Arrays of a few plain arguments are constants of the program."""
    return lambda *args, **kwargs: like(function(*args, **kwargs))


def _simple(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, *rest, **named: TracedArray(function(like(a).torch, *rest, **named))


def _sort(a: Any, axis: int = -1) -> Any:
    return TracedArray(like(a).torch.sort(axis).values)


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    array = like(a)
    if out is not None or array.dtype.kind not in "f":
        raise refused("round() of integers")
    return TracedArray(array.torch.round(decimals=decimals), array.scalar)


def _register(functions: dict[Any, Callable[..., Any]], creating: bool = False) -> None:
    for function, ours in functions.items():
        FUNCTIONS[id(function)] = ours
        _HELD.append(function)
        if creating:
            CREATING.add(id(function))


def _fill_tables() -> None:
    reductions = {
        "sum": _reduction("sum", "sum"), "prod": _reduction("prod", "prod", several=False), "mean": _reduction("mean", "mean"),
        "max": _reduction("max", "amax"), "min": _reduction("min", "amin"), "amax": _reduction("amax", "amax"), "amin": _reduction("amin", "amin"),
        "all": _reduction("all", "all"), "any": _reduction("any", "any"), "std": _spread("std"), "var": _spread("var"),
        "argmax": _place("argmax"), "argmin": _place("argmin"), "cumsum": _running("cumsum"), "cumprod": _running("cumprod"),
    }  # fmt: skip
    shapes: dict[str, Callable[..., Any]] = {
        "reshape": _reshape, "transpose": _transpose, "squeeze": _squeeze, "ravel": _ravel, "copy": _copy,
        "swapaxes": _simple(lambda x, a, b: x.transpose(a, b)), "round": _round, "clip": _clip, "dot": _product("dot", "matmul"),
        "repeat": _simple(lambda x, n, axis=None: x.repeat_interleave(n, axis)), "diagonal": _simple(lambda x: x.diagonal()),
        "trace": lambda a: TracedArray(like(a).torch.trace(), scalar=True),
    }  # fmt: skip
    _register({getattr(np, name): _element_function(name) for name in _ELEMENTS})
    _register({getattr(np, name): function for name, function in (reductions | shapes).items()})
    _register({
        np.expand_dims: _expand_dims, np.concatenate: _joined("cat"), np.stack: _joined("stack"), np.vstack: _stacked("vstack"),
        np.hstack: _stacked("hstack"), np.dstack: _stacked("dstack"), np.column_stack: _stacked("column_stack"), np.split: _split, np.where: _where,
        np.matmul: _product("matmul", "matmul"), np.outer: _product("outer", "outer"), np.vdot: _product("vdot", "dot"), np.einsum: _einsum,
        np.linalg.norm: _norm, np.moveaxis: _simple(lambda x, a, b: x.movedim(a, b)), np.flip: _flip, np.sort: _sort,
        np.tril: _simple(lambda x, k=0: x.tril(k)),
        np.triu: _simple(lambda x, k=0: x.triu(k)), np.roll: _simple(lambda x, shift, axis=None: x.roll(shift, axis)),
        np.tile: _simple(lambda x, reps: x.tile(reps)), np.broadcast_to: _simple(lambda x, shape: x.broadcast_to(shape)),
        np.shape: lambda a: like(a).shape, np.ndim: lambda a: like(a).ndim, np.size: lambda a: like(a).size,
        np.zeros_like: _filled_like("zeros_like"), np.ones_like: _filled_like("ones_like"), np.empty_like: _filled_like("zeros_like"),
        np.full_like: _filled_like("full_like"), np.ascontiguousarray: _simple(lambda x: x.contiguous()),
    })  # fmt: skip
    _register({
        np.zeros: _filled("zeros"), np.ones: _filled("ones"), np.empty: _filled("zeros"), np.full: _filled("full"), np.array: _array,
        np.asarray: _asarray, np.arange: _arange, np.linspace: _computed_by_numpy(np.linspace), np.eye: _computed_by_numpy(np.eye),
    }, creating=True)  # fmt: skip
    METHODS.update(reductions | shapes | {"flatten": _flatten, "astype": _astype, "fill": _fill, "item": _item})


def _flip(a: Any, axis: Any = None) -> Any:
    array = like(a)
    return TracedArray(array.torch.flip(_axes(array, axis)))


def _reflected(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, other: function(other, self)


def _in_place(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, other: Any) -> Any:
        if self.scalar:
            return function(self, other)
        getattr(operator, name)(sample(self), sample(other))  # raises what NumPy raises
        self.torch.copy_(operand(function(self, other)))
        return self

    return run


def _give_operators() -> None:
    names = {
        "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide", "mod": "remainder", "pow": "power",
        "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift", "matmul": "matmul",
    }  # fmt: skip
    for name, of_numpy in names.items():
        function = FUNCTIONS[id(getattr(np, of_numpy))]
        setattr(TracedArray, f"__{name}__", lambda self, other, f=function: f(self, other))
        setattr(TracedArray, f"__r{name}__", _reflected(function))
        setattr(TracedArray, f"__i{name}__", _in_place(f"i{name}", function))
    for name, of_numpy in {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}.items():
        setattr(TracedArray, f"__{name}__", lambda self, f=FUNCTIONS[id(getattr(np, of_numpy))]: f(self))
    compared = {
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
        "eq": "equal",
        "ne": "not_equal",
    }
    for name, of_numpy in compared.items():
        setattr(TracedArray, f"__{name}__", lambda self, other, f=FUNCTIONS[id(getattr(np, of_numpy))]: f(self, other))


_fill_tables()
_give_operators()

"""Random tensors: the in-place fills, the functions that make tensors, and the dropout family.

All stand on the streams of `_engine.random.random`.  A tensor is filled in the order of its memory (`fill_order`); the
gradient of whatever a random number replaced is zero.
"""

from __future__ import annotations

import math
import struct
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._engine.autograd.node import Node
from rushlight._engine.core import convert
from rushlight._engine.core.convert import deferred
from rushlight._engine.core.hooks import HOOKS, OPS, bump
from rushlight._engine.core.integers import as_flag, as_int
from rushlight._engine.core.memory import empty_spec, from_address, has_memory, own, zeros_spec
from rushlight._engine.core.state import FUNCTION_MODE, GRAD, RECORDING, STATE, TRANSFORMS, VMAP, new_plan_table
from rushlight._engine.core.tensor import Tensor, edge_of, make, plain_classes
from rushlight._engine.dispatch.plans.bind import only_tensors
from rushlight._engine.dispatch.plans.native_lookup import RUNS, ran
from rushlight._engine.indexing.inplace import check_captured, check_writable, rebase
from rushlight._engine.random import random as streams
from rushlight._engine.random.random import Generator, fill_order
from rushlight._ops.bodies import C_NAME
from rushlight._ops.forms import forms
from rushlight._types.device import Device
from rushlight._types.dtype import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64, INT64, UINT64, DType
from rushlight._types.layout import dense_strides, is_contiguous, overlaps_itself
from rushlight._types.spec import Spec, check_memory

__all__ = ["METHODS", "NOISES", "ZeroGradient", "overridable", "quick", "write_random"]

METHODS: dict[str, Callable[..., Any]] = {}  # what `_surface` puts on Tensor


def overridable(function: Callable[..., Any], public: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Let subclasses and modes take a call over, as they may for every operator; they are shown `public`, the function
    itself where there is none.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        asks = STATE.word & FUNCTION_MODE
        if STATE.word & VMAP:
            return TRANSFORMS["draw"](call, args, kwargs)
        for a in args:
            if type(a) not in plain_classes and hasattr(a, "__torch_function__"):
                asks = True
        if asks:
            handled, made = HOOKS.override(shown[0], args, kwargs)
            if handled:
                return made
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = function.__name__
    call.__doc__ = function.__doc__
    call.__wrapped__ = function  # type: ignore[attr-defined]
    call.touches_memory = True  # type: ignore[attr-defined]
    # What overrides are shown; its cached or guard, where there is one
    shown: list[Any] = [call if public is None else public]
    call.shown = shown  # type: ignore[attr-defined]
    call.guards = FUNCTION_MODE | VMAP, True  # type: ignore[attr-defined]
    return call


def method(function: Callable[..., Any]) -> Callable[..., Any]:
    """A Tensor method."""
    found = METHODS[function.__name__] = overridable(function)
    return found


# ***** history *****


class ZeroGradient(Node):
    """The node of numbers that no input influences: its inputs' gradients are zeros."""

    __slots__ = ("specs",)

    specs: list[Spec]

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        return [zeros_spec(spec) for spec in self.specs]


_NODES: dict[str, type[ZeroGradient]] = {}


def zero_gradient(name: str, inputs: Sequence[Tensor]) -> ZeroGradient:
    """A node called `name` with an edge to each of `inputs`."""
    cls = _NODES.get(name)
    if cls is None:
        cls = _NODES[name] = type(name, (ZeroGradient,), {"__slots__": ()})
    node = cls()
    node._start([edge_of(x) for x in inputs])
    node.specs = [Spec.of(x._spec.dtype, x._spec.device, x._spec.shape) for x in inputs]
    return node


def recorded(out: Tensor, name: str, *inputs: Any) -> Tensor:
    """`out`, a new tensor, as a result of `inputs` with gradient zero."""
    if STATE.word & GRAD:
        found = [x for x in inputs if isinstance(x, Tensor) and x._rg]
        if found:
            out._node, out._rg = zero_gradient(name, found), True
    return out


# ***** writing in place *****

Fill = Callable[[int, int, DType, bool], Any]


def write_random(x: Tensor, name: str, fill: Fill, *sources: Tensor, kernel: tuple[Any, ...] | None = None) -> Tensor:
    """Overwrite `x` by `fill(address, count, dtype, contiguous)`; complex tensors are filled as pairs of real numbers.

    `name` is that of the node which the write gets where `x` (or one of `sources`) has a history.  `kernel` says what
    `fill` does to contiguous tensors of floats, where that is one draw: the kernel's name, the generator, parameters.
    """
    spec = x._spec
    recording = (x._rg or (sources and any(s._rg for s in sources))) and STATE.word & GRAD
    check_writable(x, bool(recording))
    check_memory(spec)
    if not spec.contiguous and overlaps_itself(spec.shape, spec.strides):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please clone() the "
            "tensor before performing the operation."
        )
    if HOOKS.lazy_clones:
        own(x)
    check_captured(x, name)
    if x._storage is not None:
        if spec.numel:
            dtype, count = spec.dtype, spec.numel
            if dtype.is_complex:
                dtype, count = dtype.to_real(), 2 * count
            if spec.contiguous and not spec.conj:
                fill(x._ptr, count, dtype, True)
            else:
                _fill_strided(x, fill, dtype, count)
        bump(x._storage)
    if RUNS.now is not None and not sources:
        ran(_writing(name, fill, spec, kernel), (x,), x)
    if recording and spec.dtype.is_floating_point | spec.dtype.is_complex:
        inputs = [t for t in (x, *sources) if t._rg]
        rebase(x, zero_gradient(name, inputs), 0 if x._rg else None)
    return x


def _writing(name: str, fill: Fill, spec: Spec, kernel: tuple[Any, ...] | None) -> Callable[[Tensor], Tensor]:
    """The plan that does the same once more to a tensor of this spec."""
    dtype, count = spec.dtype, spec.numel
    plain = bool(spec.contiguous and count and not dtype.is_complex and has_memory(spec))
    if kernel is not None and plain:
        word, generator, *parameters = kernel
        draw = streams.drawing(_by_size(word, count), dtype, count, *parameters, device=spec.device)
        more: tuple[Any, ...] = (generator,)
    else:
        draw, more = fill, (count, dtype, True)

    def write(x: Tensor) -> Tensor:
        storage = x._storage
        if not plain or storage is None or x._rg or x._autograd_meta is not None or storage.born < 0:
            return write_random(x, name, fill)
        check_captured(x, name)
        draw(x._ptr, *more)
        bump(storage)
        return x

    return write


def _by_size(kernel: str, count: int) -> str:
    """Normal numbers come in blocks of 16 where there are as many, one by one below."""
    return "normal_serial" if kernel == "normal" and count < 16 else kernel


def _permuted(spec: Spec) -> Spec:
    """The spec of the same memory with its dims in the order in which it is filled."""
    order = fill_order(spec.shape, spec.strides)
    shape, strides = [spec.shape[d] for d in order], [spec.strides[d] for d in order]
    return Spec.of(spec.dtype, spec.device, shape, strides, spec.conj, spec.released)


def _fill_strided(x: Tensor, fill: Fill, dtype: DType, count: int) -> None:
    spec = _permuted(x._spec)
    if is_contiguous(spec.shape, spec.strides) and not spec.conj:
        fill(x._ptr, count, dtype, False)
        return
    values = empty_spec(Spec.of(spec.dtype, x.device, spec.shape))
    fill(values._ptr, count, dtype, False)
    before = STATE.word
    STATE.word = before & ~GRAD
    try:
        OPS["copy_"](make(x._storage, spec, x._ptr), values)
    finally:
        STATE.word = before


def quick(kernel: str, spec: Spec, *parameters: Any) -> Callable[..., Tensor]:
    """A plan that makes a tensor of this spec filled from a generator, by default the default one."""
    draw = streams.drawing(_by_size(kernel, spec.numel), spec.dtype, spec.numel, *parameters, device=spec.device)
    alloc, nbytes, new = backend_of(spec.device).allocator(spec.device), spec.nbytes, object.__new__

    def plan(generator: Generator | None = None) -> Tensor:
        made = new(Tensor)
        storage = made._storage = alloc(nbytes)
        made._spec, made._rg, made._node, made._autograd_meta = spec, False, None, None
        ptr = made._ptr = storage.ptr
        draw(ptr, generator)
        return made

    return plan


@lru_cache(maxsize=512)
def _kept_spec(dtype: DType, device: Device, shape: tuple[int, ...]) -> Spec:
    return Spec.of(dtype, device, shape)


def fresh(dtype: DType, device: Device, shape: tuple[int, ...]) -> Tensor:
    """Contiguous memory; specs of results that come again and again are kept, because making one takes longer than
    drawing.
    """
    return empty_spec(_kept_spec(dtype, device, shape))


def check_generator(name: str, generator: Any, device: Device | None = None) -> Generator | None:
    """The generator for a device: None for the host's default.  Without a device the type alone is checked.

    TypeError for a `generator` that is none, RuntimeError for one of another type of device.
    """
    if generator is not None and not isinstance(generator, Generator):
        raise TypeError(f"{name}(): argument 'generator' must be torch.Generator, not {type(generator).__name__}")
    return generator if device is None else streams.generator_for(generator, device)


def as_float(name: str, argument: str, value: Any) -> float:
    """A real number given as such or as a 0-dim tensor, which must not want a gradient: it would get none."""
    if type(value) is float or type(value) is int:
        return float(value)
    if isinstance(value, Tensor) and not value._spec.ndim and not value._rg and not value._spec.dtype.is_complex:
        value = value.item()
    if isinstance(value, (str, complex, Tensor)) or not hasattr(value, "__float__"):
        raise TypeError(f"{name}(): argument '{argument}' must be float, not {type(value).__name__}")
    return float(value)


def number(value: float) -> str:
    """A number as PyTorch's messages show it."""
    return f"{value:.6g}"


def not_implemented(kernel: str, dtype: DType) -> NotImplementedError:
    return NotImplementedError(f"\"{kernel}\" not implemented for '{dtype.scalar}'")


def _refuse(x: Tensor, kernel: str, takes: bool) -> None:
    """NotImplementedError for a dtype that the kernel does not take; a tensor without elements reaches no kernel."""
    if not takes and x._spec.numel:
        raise not_implemented(kernel, x._spec.dtype)


# The largest number of each dtype that is drawn as real numbers.
LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}
# Integers that have no kernels of their own.
_BARE = ("uint16", "uint32", "uint64")


def _takes_counts(dtype: DType) -> bool:
    """Whether whole numbers are drawn in this dtype."""
    return dtype.name in LARGEST or (dtype.is_integer and dtype.name not in _BARE)


@method
@forms("(self: Tensor, from_: float = 0, to: float = 1, *, generator: Generator | None = None) -> Tensor")
def uniform_(
    self: Tensor, from_: Any = 0.0, to: Any = 1.0, *, generator: Generator | None = None, **kwargs: Any
) -> Tensor:
    """Fill with uniform numbers from [from, to).

    RuntimeError if `to` < `from` or a bound does not fit the dtype; NotImplementedError for integer dtypes.

        >>> _ = torch.empty(2).uniform_(-1, 1)
    """
    if "from" in kwargs:  # a keyword of Python cannot be the name of an argument
        from_ = kwargs.pop("from")
    if kwargs:
        _no_more("uniform_", kwargs)
    generator = check_generator("uniform_", generator, self.device)
    low, high = as_float("uniform_", "from", from_), as_float("uniform_", "to", to)
    dtype = self._spec.dtype
    if dtype.is_complex:
        dtype = dtype.to_real()
    elif dtype.name not in LARGEST:
        raise not_implemented("check_uniform_bounds", dtype)
    largest = LARGEST[dtype.name]
    if not (-largest <= low <= high <= largest and high - low <= largest):
        raise _bad_interval(low, high, dtype)
    return write_random(
        self,
        "UniformBackward0",
        lambda p, n, d, _: streams.fill_uniform(generator, p, n, d, low, high),
        kernel=("uniform", generator, low, high),
    )


def _bad_interval(low: float, high: float, dtype: DType) -> RuntimeError:
    largest = LARGEST[dtype.name]
    for word, bound in (("from", low), ("to", high)):
        if not -largest <= bound <= largest:
            return RuntimeError(f"{word} is out of bounds for {C_NAME[dtype.name]}")
    if low > high:
        return RuntimeError(
            f"uniform_ expects to return a [from, to) range, but found from={number(low)} > to={number(high)}"
        )
    return RuntimeError(
        f"uniform_ expects to-from <= std::numeric_limits<{dtype.scalar}>::max(), but found to={number(high)} and "
        f"from={number(low)} which result in to-from to exceed the limit"
    )


def _no_more(name: str, kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")


def check_std(std: float) -> None:
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {number(std)}")


@method
def normal_(self: Tensor, mean: Any = 0.0, std: Any = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers; for complex dtypes the variance is shared by both parts.

    >>> _ = torch.empty(2).normal_(mean=1.0, std=0.1)
    """
    generator = check_generator("normal_", generator, self.device)
    mu, sigma = as_float("normal_", "mean", mean), as_float("normal_", "std", std)
    check_std(sigma)
    dtype = self._spec.dtype
    if dtype.is_complex:
        sigma /= math.sqrt(2)
    else:
        _refuse(self, "normal_kernel_cpu", dtype.name in LARGEST)

    def fill(p: int, n: int, d: DType, contiguous: bool) -> None:
        (streams.fill_normal if contiguous else streams.fill_normal_serial)(generator, p, n, d, mu, sigma)

    return write_random(self, "NormalBackward0", fill, kernel=("normal", generator, mu, sigma))


@method
def log_normal_(self: Tensor, mean: Any = 1.0, std: Any = 2.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with numbers whose logarithm is normal with this mean and std (> 0)."""
    generator = check_generator("log_normal_", generator, self.device)
    mu, sigma = as_float("log_normal_", "mean", mean), as_float("log_normal_", "std", std)
    if not sigma > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={number(sigma)}")
    _refuse(self, "log_normal_cpu", self._spec.dtype.name in LARGEST)
    return write_random(
        self, "LogNormalBackward0", lambda p, n, d, _: streams.fill_log_normal(generator, p, n, d, mu, sigma)
    )


@method
def exponential_(self: Tensor, lambd: Any = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exponential numbers of rate `lambd` (> 0)."""
    generator = check_generator("exponential_", generator, self.device)
    rate = as_float("exponential_", "lambd", lambd)
    if not rate > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={number(rate)}")
    if not self._spec.dtype.is_floating_point and self._spec.numel:
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you specified "
            f"{self._spec.dtype.scalar}"
        )
    _refuse(self, "exponential_cpu", self._spec.dtype.name in LARGEST)
    return write_random(
        self, "ExponentialBackward0", lambda p, n, d, _: streams.fill_exponential(generator, p, n, d, rate)
    )


@method
def cauchy_(self: Tensor, median: Any = 0.0, sigma: Any = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with Cauchy numbers of this median and scale (> 0)."""
    generator = check_generator("cauchy_", generator, self.device)
    middle, scale = as_float("cauchy_", "median", median), as_float("cauchy_", "sigma", sigma)
    if not scale > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={number(scale)}")
    dtype = self._spec.dtype
    if not dtype.is_floating_point:
        name = C_NAME.get(dtype.name, f"c10::complex<{C_NAME.get(dtype.to_real().name)}>")
        raise RuntimeError(
            f"Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you specified {name}"
        )
    _refuse(self, "cauchy_cpu", dtype.name in LARGEST)
    return write_random(
        self, "CauchyBackward0", lambda p, n, d, _: streams.fill_cauchy(generator, p, n, d, middle, scale)
    )


@method
def geometric_(self: Tensor, p: Any, *, generator: Generator | None = None) -> Tensor:
    """Fill with the number of trials until the first success, each succeeding with probability p in (0, 1)."""
    generator = check_generator("geometric_", generator, self.device)
    chance = as_float("geometric_", "p", p)
    if not 0 < chance < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={number(chance)}")
    dtype = self._spec.dtype
    _refuse(self, "geometric_cpu", dtype is not BOOL and _takes_counts(dtype))
    return write_random(
        self, "GeometricBackward0", lambda q, n, d, _: streams.fill_geometric(generator, q, n, d, chance)
    )


# ***** Bernoulli *****


@method
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 and 0; `p` is the probability of 1, a number or a tensor that broadcasts to this one."""
    generator = check_generator("bernoulli_", generator, self.device)
    dtype = self._spec.dtype
    if isinstance(p, Tensor):
        return _bernoulli_each(self, p, generator)
    chance = as_float("bernoulli_", "p", p)
    if not 0 <= chance <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={number(chance)}")
    _refuse(self, "bernoulli_scalar_cpu_", dtype is BOOL or _takes_counts(dtype))
    return write_random(
        self, "BernoulliBackward2", lambda q, n, d, _: streams.fill_bernoulli(generator, q, n, d, chance)
    )


def _bernoulli_each(x: Tensor, p: Tensor, generator: Generator | None) -> Tensor:
    dtype = x._spec.dtype
    _refuse(x, "bernoulli_tensor_cpu_self_", dtype is BOOL or _takes_counts(dtype))
    _refuse(p, "bernoulli_tensor_cpu_p_", p._spec.dtype.name in LARGEST)

    def fill(address: int, n: int, d: DType, _: bool) -> None:
        chances = _in_fill_order(p, x._spec, FLOAT64 if p._spec.dtype is FLOAT64 else FLOAT32)
        _fill_each(generator, address, n, d, chances)

    return write_random(x, "BernoulliBackward1", fill, p)


def _fill_each(generator: Generator | None, address: int, n: int, dtype: DType, chances: Tensor) -> None:
    """Draw with chances that lie as float32 or float64 in the order of what is filled."""
    check_memory(chances._spec)
    if STATE.word & RECORDING:
        _record_each(generator, address, n, dtype, chances)
    elif not streams.fill_bernoulli_each(generator, address, n, dtype, chances._ptr, chances._spec.dtype is FLOAT64):
        raise RuntimeError("bernoulli: expected every probability to be in [0, 1]")


def _record_each(generator: Generator | None, address: int, n: int, dtype: DType, chances: Tensor) -> None:
    """The same as operators, for a program that is recorded: uniform numbers below the chances."""
    deferred(chances, lambda p: ((p >= 0) & (p <= 1)).logical_not())
    held, device = chances._spec.dtype, chances._spec.device
    uniform = fresh(held, device, (n,))
    streams.fill_uniform(generator, uniform._ptr, n, held)
    target = from_address(address, Spec.of(dtype, device, (n,)), n * dtype.itemsize, chances)
    convert.copy_(target, uniform < chances.detach().reshape(-1))


def _in_fill_order(p: Tensor, target: Spec, dtype: DType) -> Tensor:
    """The values of `p` broadcast to `target`, in the order in which `target` is filled, contiguous and in `dtype`."""
    held = p._spec
    check_memory(held)
    if (
        held.dtype is dtype
        and held.shape == target.shape
        and held.contiguous
        and target.contiguous
        and not held.conj
        and type(p) is Tensor
    ):
        return p
    before = STATE.word
    STATE.word = before & ~GRAD
    try:
        values: Any = p.expand(target.shape)
        if not target.contiguous:
            values = values.permute(fill_order(target.shape, target.strides))
        found: Tensor = values.to(dtype).contiguous()
        return found
    finally:
        STATE.word = before


@method
def bernoulli(input: Tensor, p: Any = None, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor:
    """1 and 0 shaped like `input`, drawn with its elements as the probabilities of 1; or all with probability `p`.

    >>> torch.bernoulli(torch.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    if p is not None and out is not None:
        raise TypeError(
            "bernoulli() received an invalid combination of arguments: out= cannot be given together with p"
        )
    only_tensors("bernoulli", input=input)
    spec = input._spec
    if (
        p is None
        and out is None
        and type(input) is Tensor
        and not input._rg
        and spec.contiguous
        and spec.numel
        and input._storage is not None
    ):
        if spec.dtype is FLOAT32 or spec.dtype is FLOAT64:
            generator = check_generator("bernoulli", generator, spec.device)
            drawn = fresh(spec.dtype, spec.device, spec.shape)
            _fill_each(generator, drawn._ptr, spec.numel, spec.dtype, input)
            return drawn
    name = "BernoulliBackward0" if p is None else "BernoulliBackward2"
    if out is not None:
        fit(out, input._spec.shape)
        return METHODS["bernoulli_"](out, input, generator=generator)
    made = fresh(input._spec.dtype, input._spec.device, input._spec.shape)
    with_p = p if p is not None else input.detach() if input._rg else input
    METHODS["bernoulli_"](made, with_p, generator=generator)
    return recorded(made, name, input)


def fit(out: Tensor, shape: Sequence[int]) -> None:
    """Resize `out` to `shape` where it differs."""
    if tuple(out._spec.shape) != tuple(shape):
        out.resize_(tuple(shape))


# ***** integers *****


def _rounded(value: int, digits: int) -> int:
    """An integer rounded to a float with so many digits, half to even."""
    drop = abs(value).bit_length() - digits
    if drop <= 0:
        return value
    sign, magnitude = (-1 if value < 0 else 1), abs(value)
    kept, rest = magnitude >> drop, magnitude & ((1 << drop) - 1)
    half = 1 << (drop - 1)
    return sign * ((kept + (rest > half or (rest == half and kept & 1))) << drop)


_DIGITS = {FLOAT32: 24, FLOAT64: 53, FLOAT16: 11, BFLOAT16: 8}


def _float_bounds(low: int, high: int | None, digits: int) -> tuple[int, int | None]:
    """Bounds moved inwards so that no number in between is rounded onto or over them."""
    above = _rounded(low + 1, digits)
    if above < low:
        low = above + (1 << (abs(low + 1).bit_length() - digits))
    if high is not None:
        below = _rounded(high - 1, digits)
        if below >= high:
            high = below - (1 << (abs(high - 1).bit_length() - digits))
    return low, high


def _check_bounds(low: int, last: int, dtype: DType) -> None:
    """RuntimeError if the dtype cannot hold `low` and `last`; a warning if a float dtype has gaps between them."""
    if dtype.is_floating_point:
        largest = LARGEST[dtype.name]
        smallest: float = -largest
    elif dtype is BOOL:
        smallest, largest = 0, 1
    elif dtype.is_integer:
        bits = dtype.itemsize * 8 - dtype.is_signed
        smallest, largest = (
            (-(1 << bits) if dtype.is_signed else 0),
            (1 << bits) - 1 if dtype is not UINT64 else 2**63 - 1,
        )
    else:
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    for name, bound in (("from", low), ("to - 1", last)):
        if not smallest <= bound <= largest:
            raise RuntimeError(f"{name} is out of bounds for {C_NAME[dtype.name]}")
    if dtype.is_floating_point:
        digits = _DIGITS[dtype]
        for name, bound in (("from", low), ("to - 1", last)):
            if abs(bound) > 1 << digits:
                warnings.warn(
                    f"{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations {C_NAME[dtype.name]} can support "
                    "discrete uniform distribution only within this range. This warning will become an error in version 1.7 release, please "
                    "fix the code in advance",
                    UserWarning,
                    stacklevel=4,
                )


_MISSING: Any = object()
LOWEST = -(2**63)


@method
@forms(
    "(self: Tensor, *, generator: Generator | None = None) -> Tensor",
    "(self: Tensor, to: int, *, generator: Generator | None = None) -> Tensor",
    "(self: Tensor, from_: int, to: int | None, *, generator: Generator | None = None) -> Tensor",
)
def random_(
    self: Tensor, from_: Any = _MISSING, to: Any = _MISSING, *, generator: Generator | None = None, **kwargs: Any
) -> Tensor:
    """Fill with integers: `random_()` from [0, largest], `random_(to)` from [0, to), `random_(from, to)` from [from,
    to).

    With `to=None` the range ends with the largest integer of the dtype (for floats the largest up to which all are
    there).
    """
    if "from" in kwargs:
        from_ = kwargs.pop("from")
    _no_more("random_", kwargs)
    generator = check_generator("random_", generator, self.device)
    if from_ is _MISSING and to is _MISSING:
        dtype = self._spec.dtype
        _refuse(self, "random_kernel_cpu", dtype is BOOL or _takes_counts(dtype))
        return write_random(self, "RandomBackward2", lambda p, n, d, _: streams.fill_random(generator, p, n, d))
    if to is _MISSING:
        from_, to = 0, from_
    low = 0 if from_ is _MISSING else as_int("random_", "from", from_)
    return _random_between(self, low, None if to is None else as_int("random_", "to", to), generator)


def _random_between(x: Tensor, low: int, high: int | None, generator: Generator | None) -> Tensor:
    dtype = x._spec.dtype
    if high is None and low == LOWEST:  # all of the 64 bits
        if dtype not in (INT64, FLOAT64, FLOAT32, BFLOAT16):
            raise RuntimeError("random_full_64_bits_range_kernel_cpu handles only int64, double, float and bfloat16")
        return write_random(
            x, "RandomBackward0", lambda p, n, d, _: streams.fill_integers(generator, p, n, d, LOWEST, 2**63)
        )
    if high is not None and low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if dtype.is_floating_point:
        if dtype not in _DIGITS:
            raise not_implemented("random_update_from_to", dtype)
        low, high = _float_bounds(low, high, _DIGITS[dtype])
        if high is not None and low >= high:
            raise RuntimeError(
                f"random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from={low} >= to={high}"
            )
    if high is None:
        if dtype.is_complex:
            raise RuntimeError("random_from_to_impl handles only integral, floating-point and boolean types")
        last = (
            1 << _DIGITS[dtype]
            if dtype.is_floating_point
            else 1
            if dtype is BOOL
            else (1 << dtype.itemsize * 8 - dtype.is_signed) - 1
        )
        high = last + 1
        if dtype.is_floating_point and low >= last:
            raise RuntimeError(
                f"random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' casted to dtype, but got from={low} > to_inc={last}"
            )
    _check_bounds(low, high - 1, dtype)
    first, end = low, high
    return write_random(x, "RandomBackward0", lambda p, n, d, _: streams.fill_integers(generator, p, n, d, first, end))


# ***** the dropout family *****


def to_f32(value: float) -> float:
    """The nearest float32."""
    narrow: float = struct.unpack("f", struct.pack("f", value))[0]
    return narrow


def _scaled(dtype: DType, keep: float) -> float:
    """1 / keep as the dtype divides: float16 and bfloat16 in float32."""
    return 1.0 / keep if dtype is FLOAT64 else to_f32(1.0 / to_f32(keep))


NOISES = new_plan_table()  # (spec of the input, p) -> a function without arguments: noise for an element-wise dropout


def _noise(input: Tensor, p: float, channels: int, value: float) -> Tensor:
    """Noise for a dropout: `value` or 0; one for each place in the first `channels` dims, if any.

    Noise for every element has the memory order of the input.
    """
    spec = input._spec
    if channels:
        if spec.ndim < channels:
            raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
        spec = Spec.of(spec.dtype, spec.device, (*spec.shape[:channels], *[1] * (spec.ndim - channels)))
    elif not spec.contiguous:
        spec = Spec.of(
            spec.dtype, spec.device, spec.shape, dense_strides(spec.shape, fill_order(spec.shape, spec.strides))
        )
    if STATE.word & VMAP and "noise" in TRANSFORMS:
        noise: Any = TRANSFORMS["noise"](spec, 1 - p, value)
        if noise is not NotImplemented:
            return noise
    if input._storage is None or not spec.numel:
        return empty_spec(spec)
    plan = quick("bernoulli", spec, 1 - p, streams.pattern(spec.dtype, value))
    if not channels and value != 1.0:
        NOISES[input._spec, p] = plan
    return plan()


def dropout_with(name: str, input: Any, p: Any, train: bool, channels: int, alpha: bool, inplace: bool) -> Any:
    """All dropouts: of single elements (`channels` = 0) or of all that share their place in the first dims.

    The results are products, so the gradient is the noise times the gradient of the result.
    """
    only_tensors(name, input=input)
    p, train = as_float(name, "p", p), as_flag(name, "train", train)
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {number(p)}")
    if p == 0 or not train or input._spec.numel == 0:
        return input
    multiply = input.mul_ if inplace else input.mul
    dtype = input._spec.dtype
    if p == 1:
        return multiply(zeros_spec(Spec.of(dtype, input._spec.device, ())))
    if not dtype.is_floating_point:
        raise RuntimeError(f"result type Float can't be cast to the desired output type {dtype.scalar}")
    if not alpha:
        return multiply(_noise(input, p, channels, _scaled(dtype, 1 - p)))
    noise: Any = _noise(input, p, channels, 1.0)
    k = 1.7580993408473766
    a = 1.0 / math.sqrt((k * k * p + 1) * (1 - p))
    shift = noise.add(-1).mul_(k * a).add_(k * a * p)
    return multiply(noise.mul_(a)).add_(shift)

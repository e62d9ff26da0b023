"""Random streams: generators, their states, and the filling of memory with random numbers.

The functions `fill_*` write contiguous memory given by its address; they know nothing of tensors.  `rushlight.random`'s
public functions and the tensor methods stand on them.  For one seed the numbers are PyTorch's, bit for bit.
"""

from __future__ import annotations

import math
import os
import struct
import threading
from array import array
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rushlight._backends.registry import backend_of
from rushlight._base.forking import free_after_fork
from rushlight._base.trace_marks import changes_later_calls
from rushlight._engine.core.memory import empty_spec, is_host_memory
from rushlight._engine.core.state import RECORDING, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._host.random_state import DOUBLE_VALID, FLOAT_VALID, OFFSET, SEED, SEEDED, STATE_BYTES, TAKE
from rushlight._types.device import CPU, META, Device, as_device, on_removed_type
from rushlight._types.dtype import UINT8, ByName
from rushlight._types.spec import Spec, check_memory

if TYPE_CHECKING:
    from rushlight._types.dtype import DType

__all__ = [
    "DEFAULT_SEED", "STATE_SIZE", "Generator", "default_generator", "drawing", "fill_bernoulli", "fill_binomial", "fill_bernoulli_each", "fill_cauchy", "fill_choice",
    "fill_exponential", "fill_geometric", "fill_integers", "fill_leaks", "fill_log_normal", "fill_multinomial", "fill_normal", "fill_normal_serial",
    "fill_permutation", "fill_poisson", "fill_random", "fill_uniform", "default_generators", "fresh_seed", "fill_order", "generator_for", "generator_of", "integer_parameters", "keep_states",
    "pattern",
    "seed_all", "weights_status",
]  # fmt: skip

DEFAULT_SEED = 67280421310721  # what a new generator starts from, in PyTorch too
STATE_SIZE = 5056  # bytes of a saved state
_STATE_SPEC = Spec.of(UINT8, CPU, (STATE_SIZE,))
_COUNTED_SIZE = 16  # of a state that is a seed and an offset

_KINDS = ByName({
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "uint8": "u8", "int8": "i8", "int16": "i16",
    "int32": "i32", "int64": "i64", "uint16": "u16", "uint32": "u32", "uint64": "u64", "bool": "u8",
})  # fmt: skip
_FORMATS = ByName({"float32": "<f", "float64": "<d", "float16": "<e"})
# how many consecutive integers from 0 a float dtype can hold: 2 to the power of its digits
_DIGITS = {"float32": 24, "float64": 53, "float16": 11, "bfloat16": 8}


def fresh_seed() -> int:
    """A seed that nobody can foresee, of 53 bits, so that it survives a float64."""
    return int.from_bytes(os.urandom(8), "little") >> 11


class Generator:
    """A source of random numbers with a state of its own.

    `Generator(device="cpu")` starts from the same seed each time; `manual_seed` sets another one.  All random functions
    take `generator=`; without it they draw from `rushlight.default_generator`.

        >>> g = rushlight.Generator().manual_seed(42)
        >>> rushlight.rand(2, generator=g)
        tensor([0.8823, 0.9150])
    """

    __slots__ = ("__weakref__", "_address", "_device", "_doubles", "_kernels", "_lock", "_longs", "_ready", "_words")

    def __init__(self, device: Any = "cpu") -> None:
        if STATE.word & RECORDING:
            raise STATE.recording.refused("a new random generator")
        self._device = as_device(device)
        if self._device is META:  # no question to a backend: the first generator is made by the import
            raise RuntimeError(f"there are no random generators for device '{device}'")
        self._kernels: dict[tuple[str, str], Callable[..., Any]] = {}
        block = array("Q", bytes(STATE_BYTES))
        view = memoryview(block).cast("B")
        self._address = block.buffer_info()[0]
        self._longs, self._words, self._doubles = block, view.cast("I"), view.cast("d")
        # kernels run without the GIL: two threads that draw from one generator take turns
        self._lock = free_after_fork(threading.RLock())  # a signal's handler may draw in the middle of a draw
        self._ready = False
        self._reseed(DEFAULT_SEED)

    def _reseed(self, seed: int) -> None:
        """Start again from `seed`; the words are made by the first draw."""
        words = self._words
        words[SEEDED] = words[FLOAT_VALID] = words[DOUBLE_VALID] = 0
        self._longs[SEED], self._longs[OFFSET] = seed, 0

    @property
    def _counted(self) -> bool:
        """Whether the stream is a seed and an offset, as on CUDA devices."""
        return backend_of(self._device).counted_streams

    @property
    def device(self) -> Device:
        return self._device

    def kernel(self, name: str, kind: str) -> Callable[..., Any]:
        """The kernel of the generator's device that fills memory with elements of a kind; loaded by its first use."""
        if STATE.word & RECORDING:
            raise STATE.recording.refused(f"the state of a random generator ('{name}')")
        found = self._kernels.get((name, kind))
        if found is None:
            found = self._kernels[name, kind] = backend_of(self._device).random_kernel(name, kind)
        return found

    def _is_captured(self) -> bool:
        """Whether work of the generator's device becomes a graph, whose replays go on from the state of that moment."""
        if not self._counted:
            return False
        backend = backend_of(self._device)
        return bool(backend.is_capturing(backend.current_stream(self._device)))

    def _refuse_in_capture(self, what: str) -> None:
        if self._is_captured():
            raise RuntimeError(
                f"{what}() of a random generator is not allowed while a graph is captured: each replay draws from the state "
                "that the generator has then; graphsafe_get_state() and graphsafe_set_state() are allowed"
            )

    @changes_later_calls
    def manual_seed(self, seed: int) -> Generator:
        """Start again from `seed`, an integer from -2**63 to 2**64 - 1 (negative ones wrap); returns the generator.

        RuntimeError while a graph is captured on the generator's device, unless it is the seed that it has: replays go
        on from where the generator is, and seeding is no part of them.
        """
        if type(seed) is not int and (isinstance(seed, (bool, float, str)) or not hasattr(seed, "__index__")):
            raise RuntimeError(f"manual_seed expected a long, but got {type(seed).__name__}")
        if STATE.word & RECORDING:
            raise STATE.recording.refused("seeding a random generator")
        seed = int(seed)
        if not -(2**63) <= seed < 2**64:
            raise ValueError("Overflow when unpacking long long")
        if self._is_captured():
            if seed % 2**64 != self._longs[SEED]:
                raise RuntimeError(
                    "manual_seed() was called while a graph is captured, with another seed than the generator has: no replay "
                    "would seed it"
                )
            return self
        with self._lock:
            self._reseed(seed % 2**64)
        return self

    @changes_later_calls
    def seed(self) -> int:
        """Start again from a seed that the operating system makes up, and return it."""
        self._refuse_in_capture("seed")
        seed = fresh_seed()
        self.manual_seed(seed)
        return seed

    @changes_later_calls
    def initial_seed(self) -> int:
        """The seed from which the generator last started."""
        self._refuse_in_capture("initial_seed")
        return self._longs[SEED]

    def get_offset(self) -> int:
        """How many words each subsequence has given; RuntimeError where streams have no offset."""
        if not self._counted:
            raise RuntimeError("CPU Generator does not use offset")
        self._refuse_in_capture("get_offset")
        return self._longs[OFFSET]

    def set_offset(self, offset: int) -> None:
        """Continue from an offset, a multiple of 4."""
        if not self._counted:
            raise RuntimeError("CPU Generator does not use offset")
        if offset < 0 or offset % 4:
            raise RuntimeError(f"offset must be a multiple of 4, got {offset}")
        self._refuse_in_capture("set_offset")
        with self._lock:
            self._longs[OFFSET] = offset

    def graphsafe_get_state(self) -> Generator:
        """A generator that shares this one's state."""
        if not self._counted:
            raise NotImplementedError("graphsafe_get_state is not supported in this Generator")
        other = object.__new__(Generator)
        for name in Generator.__slots__[1:]:
            setattr(other, name, getattr(self, name))
        return other

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Share the state of another generator of the device from now on."""
        if not self._counted:
            raise NotImplementedError("graphsafe_set_state is not supported in this Generator")
        if state._device != self._device:
            raise RuntimeError(f"the state is of device '{state._device}', the generator of '{self._device}'")
        self._longs, self._words, self._doubles = state._longs, state._words, state._doubles
        self._address, self._lock = state._address, state._lock
        return self

    def state_memory(self) -> tuple[int, Any]:
        """Where the state is on the host, and what keeps it there."""
        return self._address, self._longs

    def clone_state(self) -> Generator:
        """A new generator that will draw the same numbers as this one."""
        other = Generator(self._device)
        with self._lock:
            other._longs[:] = self._longs
            other._ready = self._ready
        return other

    def _make_ready(self) -> int:
        """Give the kernels their way to the engine, before the first draw; returns the generator's address."""
        self._longs[TAKE] = backend_of(self._device).stream_entry()
        self._ready = True
        return self._address

    def get_state(self) -> Tensor:
        """The state as a uint8 tensor in PyTorch's format: 5056 elements; 16 on CUDA devices, seed and offset."""
        if STATE.word & RECORDING:
            recorded: Tensor = STATE.recording.stream_state(self)
            return recorded
        self._refuse_in_capture("get_state")
        if self._counted:
            made = empty_spec(Spec.of(UINT8, CPU, (_COUNTED_SIZE,)))
            with self._lock:
                memoryview(made._storage).cast("B")[:] = struct.pack("<QQ", self._longs[SEED], self._longs[OFFSET])
            return made
        made = empty_spec(_STATE_SPEC)
        with self._lock:
            _state_kernel("save")(self._address, made._ptr)
        return made

    def set_state(self, new_state: Tensor) -> Generator:
        """Continue from a state that `get_state` (here or in PyTorch) returned.

        TypeError if it is no uint8 tensor, RuntimeError if it is no state.
        """
        if not isinstance(new_state, Tensor):
            raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
        if STATE.word & RECORDING:
            STATE.recording.set_stream_state(self, new_state)
            return self
        self._refuse_in_capture("set_state")
        spec = new_state._spec
        if spec.dtype is not UINT8 or not is_host_memory(spec):
            raise TypeError("RNG state must be a torch.ByteTensor")
        check_memory(spec)
        if not spec.contiguous:
            new_state = new_state.contiguous()
        self._restore(new_state._ptr, spec.numel)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        offset = self.get_offset() if self._counted else None
        return Generator, (str(self._device),), (self.initial_seed(), offset, self.get_state())

    def __setstate__(self, state: tuple[int, int | None, Tensor]) -> None:
        """Restore a generator from PyTorch's pickled form: seed, offset (None on the CPU), state."""
        self.set_state(state[2])

    def state_bytes(self) -> bytes:
        """The state as `get_state` gives it, the bytes that PyTorch would give."""
        if STATE.word & RECORDING:
            raise STATE.recording.refused("the state of a random generator as bytes")
        return bytes(memoryview(self.get_state()._storage))

    def set_state_bytes(self, data: bytes) -> None:
        """Continue from a state that `state_bytes` (or PyTorch) gave.  RuntimeError when it is none."""
        held = array("B", data)
        self._restore(held.buffer_info()[0], len(held))

    def _restore(self, address: int, nbytes: int) -> None:
        if self._counted:
            self._restore_counted(address, nbytes)
            return
        if nbytes != STATE_SIZE:
            raise RuntimeError(
                f"Expected a CPUGeneratorImplState of size {STATE_SIZE} but found the input RNG state size to be {nbytes}"
            )
        with self._lock:
            failed = _state_kernel("restore")(self._address, address)
        if failed:
            raise RuntimeError("Invalid mt19937 state")

    def _restore_counted(self, address: int, nbytes: int) -> None:
        """From a seed, and an offset (0 where there is none)."""
        if nbytes not in (8, _COUNTED_SIZE):
            raise RuntimeError("RNG state is wrong size")
        seed, *offset = struct.unpack(f"<{nbytes // 8}Q", backend_of(CPU).window(address, nbytes))
        if offset and offset[0] % 4:
            raise RuntimeError("offset must be a multiple of 4")
        with self._lock:
            self._reseed(seed)
            self._longs[OFFSET] = offset[0] if offset else 0


default_generator = Generator()
default_generator._reseed(fresh_seed())


# The generators that draw for devices where none is given; the host's is the one above.
_BY_DEVICE: dict[Device, Generator] = {CPU: default_generator}


@on_removed_type
def _forget(type: str) -> None:
    for device in [d for d in _BY_DEVICE if d.type == type]:
        del _BY_DEVICE[device]


def generator_of(device: Device) -> Generator:
    """The default generator of a device."""
    device = device.real
    found = _BY_DEVICE.get(device)
    if found is None:
        word = STATE.word
        STATE.word &= ~RECORDING  # it is made for all programs, whichever draws first
        try:
            found = _BY_DEVICE[device] = Generator(device)
            found._reseed(default_generator.initial_seed())
        finally:
            STATE.word = word
    return found


def generator_for(generator: Generator | None, device: Device) -> Generator | None:
    """The generator for a tensor on a device: None for the host's default; RuntimeError for a generator of another type
    of device.
    """
    if generator is None:
        if backend_of(device).shapes_only:
            return None
        found = generator_of(device)
        return None if found is default_generator else found
    if generator._device.type != device.type and not backend_of(device).shapes_only:
        raise RuntimeError(f"Expected a '{device.type}' device type for generator but found '{generator._device.type}'")
    return generator


def seed_all(seed: int) -> Generator:
    """Seed the default generators of all devices alike; returns the host's."""
    for other in _BY_DEVICE.values():
        other.manual_seed(seed)
    return default_generator


def default_generators(devices: Iterable[Device] = ()) -> list[Generator]:
    """The default generators that there are, and those of `devices`, the CPU's first."""
    for device in devices:
        generator_of(device)
    return list(_BY_DEVICE.values())


def keep_states() -> Callable[[], None]:
    """A function that puts all default generators back to their present states, and those that are made meanwhile to
    their first.
    """
    kept, seed = [(g, g.state_bytes()) for g in default_generators()], default_generator.initial_seed()

    def restore() -> None:
        for generator, state in kept:
            generator.set_state_bytes(state)
        for generator in default_generators()[len(kept) :]:
            generator._reseed(seed)

    return restore


# ***** kernels *****


def _state_kernel(name: str) -> Callable[..., Any]:
    """The kernel that reads or writes a state, which is in host memory for every device."""
    return default_generator.kernel(name, "")


def _of(generator: Generator | None) -> Generator:
    return default_generator if generator is None else generator


def _draw(name: str, kind: str, generator: Generator | None, *args: Any) -> Any:
    g = default_generator if generator is None else generator
    if STATE.word & RECORDING:
        return STATE.recording.draw(g, name, kind, args)
    run = g._kernels.get((name, kind)) or g.kernel(name, kind)
    with g._lock:
        return run(g._address if g._ready else g._make_ready(), *args)


def drawing(kernel: str, dtype: DType, n: int, *parameters: Any, device: Device = CPU) -> Callable[..., None]:
    """The function of an address, and of a generator (by default that of the device), that fills n elements there."""
    kind = str(dtype.itemsize) if kernel == "bernoulli" else _KINDS[dtype.name]
    if STATE.word & RECORDING:
        own = generator_of(device)
        return lambda ptr, generator=None: _draw(kernel, kind, generator or own, ptr, n, *parameters)
    default = generator_of(device)
    run = default.kernel(kernel, kind)

    def draw(ptr: int, generator: Generator | None = None) -> None:
        g = default if generator is None else generator
        if g._device is not device:
            generator_for(g, device)
        with g._lock:
            run(g._address if g._ready else g._make_ready(), ptr, n, *parameters)

    return draw


@lru_cache(maxsize=256)
def pattern(dtype: DType, value: float) -> int:
    """The bits of `value` in `dtype`, as a signed 64-bit integer."""
    if dtype.name == "bfloat16":
        b = struct.unpack("<I", struct.pack("<f", value))[0]
        return (b + 0x7FFF + (b >> 16 & 1)) >> 16
    if not dtype.is_floating_point:
        return int(value)
    return int.from_bytes(struct.pack(_FORMATS[dtype.name], value), "little", signed=True)


def fill_uniform(
    generator: Generator | None, ptr: int, n: int, dtype: DType, low: float = 0.0, high: float = 1.0
) -> None:
    """Fill n elements of a float dtype with uniform numbers from [low, high)."""
    _draw("uniform", _KINDS[dtype.name], generator, ptr, n, float(low), float(high))


def fill_normal(
    generator: Generator | None, ptr: int, n: int, dtype: DType, mean: float = 0.0, std: float = 1.0
) -> None:
    """Fill a contiguous tensor's n elements with normal numbers: in blocks of 16 where there are as many, one by one
    below.
    """
    _draw("normal" if n >= 16 else "normal_serial", _KINDS[dtype.name], generator, ptr, n, float(mean), float(std))


def fill_normal_serial(
    generator: Generator | None, ptr: int, n: int, dtype: DType, mean: float = 0.0, std: float = 1.0
) -> None:
    """The numbers that a tensor which is not contiguous gets, whatever its size: one by one."""
    _draw("normal_serial", _KINDS[dtype.name], generator, ptr, n, float(mean), float(std))


def fill_log_normal(
    generator: Generator | None, ptr: int, n: int, dtype: DType, mean: float = 1.0, std: float = 2.0
) -> None:
    """Fill with the exponential of normal numbers."""
    _draw("log_normal", _KINDS[dtype.name], generator, ptr, n, float(mean), float(std))


def fill_exponential(generator: Generator | None, ptr: int, n: int, dtype: DType, rate: float = 1.0) -> None:
    """Fill with exponential numbers of density rate * exp(-rate * x)."""
    _draw("exponential", _KINDS[dtype.name], generator, ptr, n, -1.0 / rate, 0.0)


def fill_cauchy(
    generator: Generator | None, ptr: int, n: int, dtype: DType, median: float = 0.0, sigma: float = 1.0
) -> None:
    """Fill with Cauchy numbers."""
    _draw("cauchy", _KINDS[dtype.name], generator, ptr, n, float(median), float(sigma))


def fill_geometric(generator: Generator | None, ptr: int, n: int, dtype: DType, p: float) -> None:
    """Fill with the number of trials until the first success, 0 < p < 1; any dtype but bool."""
    _draw("geometric", _KINDS[dtype.name], generator, ptr, n, math.log1p(-p), 0.0)


def fill_bernoulli(generator: Generator | None, ptr: int, n: int, dtype: DType, p: float, value: float = 1.0) -> None:
    """`value` with probability p, else 0.  `value` = 1 / p makes the mask of a dropout that keeps with probability p."""
    _draw("bernoulli", str(dtype.itemsize), generator, ptr, n, float(p), pattern(dtype, value))


def fill_bernoulli_each(generator: Generator | None, ptr: int, n: int, dtype: DType, p_ptr: int, double: bool) -> bool:
    """1 with the probability at p_ptr (n of float64 if `double`, else of float32), else 0.

    False, and nothing is drawn, if a probability is outside of [0, 1].
    """
    p_kind = "f64" if double else "f32"
    if _of(generator).kernel("outside_unit", p_kind)(p_ptr, n):
        return False
    _draw("bernoulli_each", f"{dtype.itemsize}_{p_kind}", generator, ptr, n, p_ptr, pattern(dtype, 1))
    return True


def fill_integers(generator: Generator | None, ptr: int, n: int, dtype: DType, low: int, high: int) -> None:
    """Integers from [low, high), cast to the dtype; ranges of 2**28 and more take 64 random bits each, 2**64 all of
    them.
    """
    _draw("integers", _KINDS[dtype.name], generator, ptr, n, *integer_parameters(low, high))


def integer_parameters(low: int, high: int) -> tuple[int, int, int]:
    """Arguments of the kernel for integers from [low, high): range, base, and how a word is drawn."""
    span = high - low
    if span >= 2**64:
        return 0, 0, 2  # all 64 bits; the base is part of them
    return _signed(span), low, int(span >= 2**28)


def fill_random(generator: Generator | None, ptr: int, n: int, dtype: DType) -> None:
    """Fill as `random_()` without bounds does: [0, largest value], for floats [0, 2**digits]."""
    if dtype.is_floating_point:
        span = 2 ** _DIGITS[dtype.name] + 1
    elif dtype.kind == "b":
        span = 2
    else:
        span = 2 ** (dtype.itemsize * 8 - int(dtype.is_signed))
    _draw("integers", _KINDS[dtype.name], generator, ptr, n, _signed(span), 0, int(dtype.itemsize == 8))


def _signed(value: int) -> int:
    """The same 64 bits as a signed integer."""
    return (value + 2**63) % 2**64 - 2**63


def fill_permutation(generator: Generator | None, ptr: int, n: int, dtype: DType) -> None:
    """A permutation of 0 .. n-1; n must fit the dtype."""
    _draw("permutation", _KINDS[dtype.name], generator, ptr, n)


def fill_multinomial(
    generator: Generator | None, ptr: int, p_ptr: int, dtype: DType, rows: int, categories: int, samples: int
) -> int:
    """int64 [rows, samples]: indices drawn with replacement by weights [rows, categories] of float32 or float64.

    0; or 1 if a weight is negative or not finite, 2 if a row's weights are all 0 (nothing is drawn then).
    """
    sums = array("d", bytes(8 * categories))
    return int(
        _draw(
            "multinomial", _KINDS[dtype.name], generator, ptr, p_ptr, rows, categories, samples, sums.buffer_info()[0]
        )
    )


def fill_choice(generator: Generator | None, ptr: int, p_ptr: int, dtype: DType, rows: int, categories: int) -> int:
    """int64 [rows]: one index by weights [rows, categories], as `multinomial` draws one without replacement; result as
    above.
    """
    return int(_draw("choice", _KINDS[dtype.name], generator, ptr, p_ptr, rows, categories))


def weights_status(generator: Generator | None, p_ptr: int, dtype: DType, rows: int, categories: int) -> int:
    """The check alone of the two functions above, on the device of the generator."""
    return int(_of(generator).kernel("weights_status", _KINDS[dtype.name])(p_ptr, rows, categories))


def fill_poisson(generator: Generator | None, ptr: int, n: int, dtype: DType, rates_ptr: int) -> bool:
    """Poisson counts for n rates held as float64.  False, and nothing is drawn, if a rate is negative or NaN."""
    return not _draw("poisson", _KINDS[dtype.name], generator, ptr, n, rates_ptr)


def fill_leaks(
    generator: Generator | None, ptr: int, n: int, dtype: DType, x_ptr: int, low: float, high: float
) -> None:
    """Slopes for n float32 or float64 numbers: uniform in [low, high) for those <= 0, else 1.  Only the former draw."""
    _draw("leaks", _KINDS[dtype.name], generator, ptr, n, x_ptr, float(low), float(high))


def fill_binomial(generator: Generator | None, ptr: int, n: int, dtype: DType, counts_ptr: int, p_ptr: int) -> None:
    """Binomial numbers for n counts and n probabilities held as float32 or float64."""
    _draw("binomial", _KINDS[dtype.name], generator, ptr, n, counts_ptr, p_ptr)


def fill_gamma(generator: Generator | None, ptr: int, n: int, dtype: DType, shapes_ptr: int, smallest: float) -> None:
    """Gamma numbers of rate 1, at least `smallest`, for n shapes held as float32 or float64, the dtype of the result."""
    _draw("gamma", _KINDS[dtype.name], generator, ptr, n, shapes_ptr, smallest)


# ***** order *****


def fill_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """The dimensions from the outermost to the innermost in the order in which PyTorch walks a tensor's memory.

    A tensor is filled in this order, not in the order of its indices: `empty(2, 3).t().uniform_()` has the numbers of
    `empty(2, 3).uniform_()`.  Dimensions are sorted by stride; equal strides by size; the order of a dimension with
    stride 0 is left as it is.
    """
    order = list(range(len(shape) - 1, -1, -1))  # innermost first
    for i in range(1, len(order)):
        here = i
        for before in range(i - 1, -1, -1):
            a, b = order[before], order[here]
            if strides[a] == 0 or strides[b] == 0:
                continue
            if strides[a] > strides[b] or (strides[a] == strides[b] and shape[a] > shape[b]):
                order[before], order[here] = b, a
                here = before
            elif strides[a] < strides[b]:
                break
    return order[::-1]

"""The random kernels of a CUDA device as functions: `(state, address, count, *parameters)`, the protocol's.

The state of a generator is the host's: a seed and an offset, which each draw moves on by what it took of every
subsequence.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.immediate import Immediate, Placed
from rushlight._backends.cuda.program.steps import Memory, Operand, Step
from rushlight._backends.cuda.random import choices, rejection
from rushlight._backends.cuda.random.fill import DISTRIBUTIONS, Drawn, each_launch, fill_launch
from rushlight._backends.cuda.sort.radix import radix_steps
from rushlight._host.random_state import OFFSET, SEED
from rushlight._types.dtype import (
    BFLOAT16,
    BY_NAME,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
)  # fmt: skip

if TYPE_CHECKING:
    from rushlight._backends.cuda.backend import CudaBackend
    from rushlight._types.device import Device

__all__ = ["random_kernel"]

_KINDS: dict[str, DType] = {
    "f32": FLOAT32, "f64": FLOAT64, "f16": FLOAT16, "bf16": BFLOAT16,
    **{f"{k}{8 * n}": BY_NAME[f"{'u' if k == 'u' else ''}int{8 * n}"] for k in "iu" for n in (1, 2, 4, 8)},
}  # fmt: skip
_OF_SIZE = {"1": UINT8, "2": UINT16, "4": UINT32, "8": UINT64}


class _State:
    """The seed and the offset of a generator, at an address of the host."""

    def __init__(self, address: int) -> None:
        self.longs = (ctypes.c_uint64 * (OFFSET + 1)).from_address(address)

    @property
    def seed(self) -> int:
        return self.longs[SEED]

    @property
    def offset(self) -> int:
        return self.longs[OFFSET]

    def move(self, by: int) -> None:
        self.longs[OFFSET] = self.longs[OFFSET] + by


def random_kernel(backend: CudaBackend, device_of: Callable[[int], Device], name: str, kind: str) -> Callable[..., Any]:
    """The kernel of a name and a kind (see `_engine.random.random`); NotImplementedError for one that there is not."""
    maker = _MAKERS.get(name)
    if maker is None and name in DISTRIBUTIONS:
        maker = _filling(name)
    if maker is None:
        raise NotImplementedError(f"device type 'cuda' draws no random numbers of the distribution '{name}'")
    return maker(backend, device_of, kind)


def _give(backend: CudaBackend, device: Device, state: _State, drawn: Drawn, more: Sequence[Step] = ()) -> None:
    """Launch a draw, and move the stream on.  NotImplementedError while a graph is captured: the seed and the offset are
    numbers of the launch, so every replay would draw the same.
    """
    if backend.is_capturing(backend.current_stream(device)):
        raise NotImplementedError(
            "random numbers are not drawn while a CUDA graph is captured: every replay would give the same ones; draw "
            "before the capture, into a tensor that the graph reads"
        )
    Immediate(backend, device).run([drawn.launch, *more])
    state.move(drawn.offset)


def _drawing(draw: Callable[..., Drawn | None]) -> Any:
    """A kernel of one launch: `draw(kind, state, address, ...)`."""

    def make(backend: CudaBackend, device_of: Callable[[int], Device], kind: str) -> Callable[..., Any]:
        def run(state: int, address: int, *arguments: Any) -> int:
            given = _State(state)
            drawn = draw(kind, given, address, *arguments)
            if drawn is not None:
                _give(backend, device_of(address), given, drawn)
            return 0

        return run

    return make


def _filling(name: str) -> Any:
    def draw(kind: str, state: _State, address: int, count: int, *parameters: Any) -> Drawn | None:
        dtype = _OF_SIZE[kind] if name == "bernoulli" else _KINDS[kind]
        which = name
        if name == "integers":
            which = ("integers", "long_integers", "all_integers")[parameters[2]]
            parameters = parameters[:2]
        if not count:
            return None
        return fill_launch(which, dtype, Placed(address), count, state.seed, state.offset, parameters)

    return _drawing(draw)


def _each(kind: str, state: _State, address: int, count: int, p: int, pattern: int) -> Drawn | None:
    size, _, of_p = kind.partition("_")
    if not count:
        return None
    places = Placed(address), Placed(p)
    return each_launch(_OF_SIZE[size], _KINDS[of_p], *places, count, state.seed, state.offset, pattern)


def _leaks(kind: str, state: _State, address: int, count: int, x: int, low: float, high: float) -> Drawn | None:
    if not count:
        return None
    return choices.leaks_launch(Placed(address), Placed(x), _KINDS[kind], count, low, high, state.seed, state.offset)


def _gamma(kind: str, state: _State, address: int, count: int, shapes: int, smallest: float) -> Drawn | None:
    if not count:
        return None
    places = Placed(address), _KINDS[kind], Placed(shapes)
    return rejection.gamma_launch(*places, count, smallest, state.seed, state.offset)


def _binomial(kind: str, state: _State, address: int, count: int, counts: int, chances: int) -> Drawn | None:
    if not count:
        return None
    places = Placed(address), _KINDS[kind], Placed(counts), Placed(chances)
    return rejection.binomial_launch(*places, count, state.seed, state.offset)


def _make_poisson(backend: CudaBackend, device_of: Callable[[int], Device], kind: str) -> Callable[..., Any]:
    status = _make_status(backend, device_of, "f64")

    def poisson(state: int, address: int, count: int, rates: int) -> int:
        if not count or status(rates, 1, count) == 1:
            return int(count > 0)
        given = _State(state)
        drawn = rejection.poisson_launch(Placed(address), _KINDS[kind], Placed(rates), count, given.seed, given.offset)
        _give(backend, device_of(address), given, drawn)
        return 0

    return poisson


def _make_outside(backend: CudaBackend, device_of: Callable[[int], Device], kind: str) -> Callable[..., Any]:
    def outside(p: int, count: int) -> int:
        if not count:
            return 0
        now, blocks = Immediate(backend, device_of(p)), -(-count // choices.BLOCK)
        storage, flags = now.allocate(4 * blocks)
        now.run([choices.outside_launch(Placed(p), _KINDS[kind], flags, count)])
        found = sum(struct.unpack(f"<{blocks}i", now.read(flags, 4 * blocks)))
        del storage
        return found

    return outside


def _make_status(backend: CudaBackend, device_of: Callable[[int], Device], kind: str) -> Callable[..., Any]:
    def status(p: int, rows: int, categories: int) -> int:
        if not rows:
            return 0
        now = Immediate(backend, device_of(p))
        storage, found = now.allocate(4 * rows)
        now.run([choices.status_launch(Placed(p), _KINDS[kind], found, rows, categories)])
        each = struct.unpack(f"<{rows}i", now.read(found, 4 * rows))
        del storage
        return 1 if 1 in each else max(each)

    return status


def _checked(launch: Callable[..., Drawn]) -> Any:
    """A choice by weights: the weights' status, and a draw where that is 0."""

    def make(backend: CudaBackend, device_of: Callable[[int], Device], kind: str) -> Callable[..., Any]:
        status = _make_status(backend, device_of, kind)

        def run(state: int, address: int, p: int, rows: int, categories: int, *more: int) -> int:
            found = status(p, rows, categories)
            samples = more[:1]  # a host's room for sums follows, which no device needs
            if found or not rows or 0 in samples:
                return int(found)
            given, places = _State(state), (Placed(address), Placed(p))
            drawn = launch(*places, _KINDS[kind], rows, categories, *samples, given.seed, given.offset)
            _give(backend, device_of(address), given, drawn)
            return 0

        return run

    return make


def _make_permutation(backend: CudaBackend, device_of: Callable[[int], Device], kind: str) -> Callable[..., Any]:
    def permutation(state: int, address: int, count: int) -> int:
        if not count:
            return 0
        given, keys = _State(state), Memory(8 * count, "keys")
        drawn = choices.words_launch(keys, count, given.seed, given.offset)
        source = Operand(keys, UINT64, (count,), (1,))
        results = (
            Operand(Memory(8 * count), UINT64, (count,), (1,)),
            Operand(Placed(address), _KINDS[kind], (count,), (1,)),
        )
        steps = radix_steps(ExternCall("permutation", [source], [], {}), source, *results, 0, False)
        _give(backend, device_of(address), given, drawn, steps)
        return 0

    return permutation


_MAKERS: dict[str, Any] = {
    "bernoulli_each": _drawing(_each),
    "leaks": _drawing(_leaks),
    "outside_unit": _make_outside,
    "weights_status": _make_status,
    "multinomial": _checked(choices.multinomial_launch),
    "choice": _checked(choices.choice_launch),
    "permutation": _make_permutation,
    "gamma": _drawing(_gamma),
    "binomial": _drawing(_binomial),
    "poisson": _make_poisson,
}

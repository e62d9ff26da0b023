"""The random kernels of a CUDA device as functions: `(state, address, count, *parameters)`, the protocol's.

The state of a generator is the host's: a seed and an offset, which each draw moves on by what it took of every
subsequence.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.immediate import Immediate, Placed
from rushlight._backends.cuda.program.steps import Memory, Operand, Step
from rushlight._backends.cuda.random import choices, rejection
from rushlight._backends.cuda.random.fill import DISTRIBUTIONS, Drawn, each_launch, fill_launch
from rushlight._backends.cuda.random.philox import Stream
from rushlight._backends.cuda.random.state import StreamState
from rushlight._backends.cuda.sort.radix import radix_steps
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


class _Draw:
    """One draw from the stream of a generator, whose seed and offset are at an address of the host.

    While a graph is captured the launch gets an offset within the graph: where it counts from is told before each replay.
    """

    def __init__(self, backend: CudaBackend, device: Device, address: int) -> None:
        self.backend, self.device = backend, device
        self.state = StreamState(address)
        graph = backend.capturing(device)
        self.recorded = None if graph is None else graph.stream_of(address)
        self.stream = self.state.stream if self.recorded is None else self.recorded.stream

    @property
    def may_read(self) -> bool:
        """Whether the host may look at what the device has computed: not while a graph is captured."""
        return self.recorded is None

    def give(self, drawn: Drawn, more: Sequence[Step] = ()) -> None:
        """Launch it, and move the stream on."""
        Immediate(self.backend, self.device).run([drawn.launch, *more])
        (self.recorded or self.state).move(drawn.offset)


def random_kernel(backend: CudaBackend, device_of: Callable[[int], Device], name: str, kind: str) -> Callable[..., Any]:
    """The kernel of a name and a kind (see `_engine.random.random`); NotImplementedError for one that there is not."""
    maker = _MAKERS.get(name)
    if maker is None and name in DISTRIBUTIONS:
        maker = _filling(name)
    if maker is None:
        raise NotImplementedError(f"device type 'cuda' draws no random numbers of the distribution '{name}'")
    return maker(backend, device_of, kind)


def _drawing(launch: Callable[..., Drawn]) -> Any:
    """A kernel of one launch: `launch(kind, stream, address, count, ...)`."""

    def make(backend: CudaBackend, device_of: Callable[[int], Device], kind: str) -> Callable[..., Any]:
        def run(state: int, address: int, count: int, *arguments: Any) -> int:
            if count:
                draw = _Draw(backend, device_of(address), state)
                draw.give(launch(kind, draw.stream, address, count, *arguments))
            return 0

        return run

    return make


def _filling(name: str) -> Any:
    def launch(kind: str, stream: Stream, address: int, count: int, *parameters: Any) -> Drawn:
        dtype = _OF_SIZE[kind] if name == "bernoulli" else _KINDS[kind]
        which = name
        if name == "integers":
            which = ("integers", "long_integers", "all_integers")[parameters[2]]
            parameters = parameters[:2]
        return fill_launch(which, dtype, Placed(address), count, stream, parameters)

    return _drawing(launch)


def _each(kind: str, stream: Stream, address: int, count: int, p: int, pattern: int) -> Drawn:
    size, _, of_p = kind.partition("_")
    return each_launch(_OF_SIZE[size], _KINDS[of_p], Placed(address), Placed(p), count, stream, pattern)


def _leaks(kind: str, stream: Stream, address: int, count: int, x: int, low: float, high: float) -> Drawn:
    return choices.leaks_launch(Placed(address), Placed(x), _KINDS[kind], count, low, high, stream)


def _gamma(kind: str, stream: Stream, address: int, count: int, shapes: int, smallest: float) -> Drawn:
    return rejection.gamma_launch(Placed(address), _KINDS[kind], Placed(shapes), count, smallest, stream)


def _binomial(kind: str, stream: Stream, address: int, count: int, counts: int, chances: int) -> Drawn:
    return rejection.binomial_launch(Placed(address), _KINDS[kind], Placed(counts), Placed(chances), count, stream)


def _make_poisson(backend: CudaBackend, device_of: Callable[[int], Device], kind: str) -> Callable[..., Any]:
    status = _make_status(backend, device_of, "f64")

    def poisson(state: int, address: int, count: int, rates: int) -> int:
        if not count:
            return 0
        draw = _Draw(backend, device_of(address), state)
        if draw.may_read and status(rates, 1, count) == 1:
            return 1
        draw.give(rejection.poisson_launch(Placed(address), _KINDS[kind], Placed(rates), count, draw.stream))
        return 0

    return poisson


def _make_outside(backend: CudaBackend, device_of: Callable[[int], Device], kind: str) -> Callable[..., Any]:
    def outside(p: int, count: int) -> int:
        if not count or backend.capturing(device_of(p)) is not None:  # nobody can read it there
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
            samples = more[:1]  # a host's room for sums follows, which no device needs
            if not rows or 0 in samples:
                return int(status(p, rows, categories))
            draw = _Draw(backend, device_of(address), state)
            found = status(p, rows, categories) if draw.may_read else 0
            if found:
                return int(found)
            draw.give(launch(Placed(address), Placed(p), _KINDS[kind], rows, categories, *samples, draw.stream))
            return 0

        return run

    return make


def _make_permutation(backend: CudaBackend, device_of: Callable[[int], Device], kind: str) -> Callable[..., Any]:
    def permutation(state: int, address: int, count: int) -> int:
        if not count:
            return 0
        draw, keys = _Draw(backend, device_of(address), state), Memory(8 * count, "keys")
        source = Operand(keys, UINT64, (count,), (1,))
        results = (
            Operand(Memory(8 * count), UINT64, (count,), (1,)),
            Operand(Placed(address), _KINDS[kind], (count,), (1,)),
        )
        steps = radix_steps(ExternCall("permutation", [source], [], {}), source, *results, 0, False)
        draw.give(choices.words_launch(keys, count, draw.stream), steps)
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

"""Library calls as kernels that run one after another and pass each other memory.

    types, shape = ProductTypes(FLOAT32, FLOAT32), ProductShape(2000, 2000, 2000)
    launches = product_call(types, shape)     # one kernel packs the operands, one multiplies
    run = joined(launches)
    storage = run(a, b)

A program runs these kernels among its own steps (`compile`). No Python runs between them, and their constants can be
formulas over sizes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = ["Constants", "Launch", "PinnedWords", "joined", "unlocks"]

UNLOCKED_WORK = 1 << 20  # multiplications that take about 20 us: other Python threads run meanwhile
UNLOCKED_BYTES = 1 << 18  # bytes whose reading or writing does


def unlocks(work: int = 0, nbytes: int = 0) -> bool:
    """Whether a call with so many multiplications, which moves so many bytes, lets other Python threads run."""
    return work > UNLOCKED_WORK or nbytes > UNLOCKED_BYTES


class PinnedWords(NamedTuple):
    """Which of the ints is the address of the operand's PINNED (0: it is not); the bytes that it takes packed, and the
    most pieces; which of the words it is, -1 where it is read packed; and what the packed form depends on beside the
    kernel.
    """

    address: int
    nbytes: int
    pieces: int
    operand: int
    form: tuple[int, ...]


class Launch:
    """One kernel of a library call: `call(address of ints, *words)`. `ints` is None for a Python function, which is
    called with 0.

    `words` says what it takes: numbers from 0 on are words of the library call, -1, -2... buffers that earlier kernels
    of the call allocated, in order. The first `results` of its own buffers are results of the call (None: all); the
    others are for later kernels. `keep` keeps objects alive whose addresses are among the ints.

    `pinned`, of kernels that pack an operand which may stay so, and of those that read it, says where that is told.
    `host` kernels call a Python function; `halves`, of a collective, are the launches that begin it and wait for it;
    `there` is a collective whose result takes the place of its operand.
    """

    __slots__ = ("call", "halves", "host", "ints", "keep", "pinned", "results", "there", "words")

    def __init__(
        self,
        call: Callable[..., Any],
        ints: Sequence[int] | None,
        words: Sequence[int],
        results: int | None = None,
        keep: Any = None,
        pinned: PinnedWords | None = None,
    ) -> None:
        self.call, self.ints, self.words, self.results, self.keep = call, ints, words, results, keep
        self.pinned = pinned
        self.host = False
        self.halves: tuple[Launch, Launch] | None = None
        self.there: Launch | None = None

    def constants(self) -> Constants:
        """The ints as an array.  RuntimeError for sizes beyond 63 bits."""
        try:
            made = Constants("q", self.ints or ())
        except OverflowError:
            raise RuntimeError(
                f"sizes of a kernel go beyond 63 bits: {[n for n in self.ints or () if n.bit_length() > 63]}"
            ) from None
        made.keep = self.keep
        return made


class Constants(array):
    """The constants of a kernel.  `keep` lives as long as they do."""

    __slots__ = ("keep",)

    keep: Any


def joined(launches: Sequence[Launch]) -> Callable[..., Any]:
    """The library call as one function of its words, which returns the Storage of the result, a tuple of them, or
    None.
    """
    held = [launch.constants() for launch in launches]

    def run(*words: Any) -> Any:
        made: list[Any] = []
        results: list[Any] = []
        for launch, ints in zip(launches, held, strict=True):
            out = launch.call(
                ints.buffer_info()[0] if launch.ints is not None else 0,
                *[words[w] if w >= 0 else made[-1 - w] for w in launch.words],
            )
            buffers = list(out) if isinstance(out, tuple) else [] if out is None else [out]
            made += buffers
            results += buffers[: launch.results]
        return results[0] if len(results) == 1 else tuple(results) if results else None

    return run

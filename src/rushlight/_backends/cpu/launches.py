"""Library calls as kernels that run one after another, and hand each other memory.

    types, shape = ProductTypes(FLOAT32, FLOAT32), ProductShape(2000, 2000, 2000)
    launches = product_call(types, shape)     # one kernel packs the operands, one multiplies
    run = joined(launches)
    storage = run(a, b)

A program lays these kernels out among its own steps (`compile`): nothing of a call is left to Python, and the constants of each kernel can be
formulas over sizes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["Constants", "Launch", "joined"]


class Launch:
    """One kernel of a library call: `call(address of ints, *words)`; `ints` is None for what is no kernel, which gets 0 and makes the call's results.

    `words` say what it takes: from 0 on words of the call, and below 0 buffers that kernels of the call made before: -1 is the first.  Of the
    buffers that it makes the first `results` are the call's results (None: all); the others are for kernels that follow.  `keep` is what lies at
    addresses among the ints.
    """

    __slots__ = ("call", "ints", "keep", "results", "words")

    def __init__(
        self,
        call: Callable[..., Any],
        ints: Sequence[int] | None,
        words: Sequence[int],
        results: int | None = None,
        keep: Any = None,
    ) -> None:
        self.call, self.ints, self.words, self.results, self.keep = call, ints, words, results, keep

    def constants(self) -> Constants:
        """The ints as they are given to the kernel."""
        try:
            made = Constants("q", self.ints or ())
        except OverflowError:
            raise RuntimeError(
                f"sizes of a kernel go beyond 63 bits: {[n for n in self.ints or () if n.bit_length() > 63]}"
            ) from None
        made.keep = self.keep
        return made


class Constants(array):
    """The constants of a kernel; `keep` must live as long as they are used."""

    __slots__ = ("keep",)

    keep: Any


def joined(launches: Sequence[Launch]) -> Callable[..., Any]:
    """The call as a function of its words: it returns the Storage of the result, a tuple of them, or None."""
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

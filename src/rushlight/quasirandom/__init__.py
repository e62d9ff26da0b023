"""Points that fill a cube more evenly than random ones, as `torch.quasirandom`.

Sobol sequences with the direction numbers of S. Joe and F. Y. Kuo (2008), in the order of Gray codes (I. A. Antonov and
V. M. Saleev, 1979); scrambled by random triangular matrices and a digital shift (J. Matousek, 1998).  The numbers are
PyTorch's, scrambled ones too for one seed.
"""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight._interface.base import numpy as np
from rushlight.quasirandom.directions import DIMENSIONS, directions

__all__ = ["SobolEngine"]

_BITS = 30


class SobolEngine:
    """A Sobol sequence of points in [0, 1)^dimension.

    Args:
        dimension: from 1 to 21201; beyond 1111 the direction numbers are not here, which raises NotImplementedError.
        scramble: permute the points at random, without losing their evenness.
        seed: of the scrambling; by default the random generator's state decides.

        >>> import rushlight as torch
        >>> torch.quasirandom.SobolEngine(2).draw(4)
        tensor([[0.0000, 0.0000],
                [0.5000, 0.5000],
                [0.7500, 0.2500],
                [0.2500, 0.7500]])
    """

    MAXBIT = _BITS
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        if dimension > DIMENSIONS:
            raise NotImplementedError(
                f"SobolEngine: rushlight has the direction numbers of {DIMENSIONS} dimensions, and was asked for {dimension}"
            )
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self._directions = _direction_numbers(dimension)
        self._shift = np.zeros(dimension, np.int64)
        if scramble:
            self._scramble()
        self._now = self._shift.copy()
        self.num_generated = 0

    @property
    def sobolstate(self) -> Any:
        """The direction numbers (dimension, 30), scrambled or not."""
        return rushlight.from_numpy(self._directions)

    @property
    def shift(self) -> Any:
        """The shift of every point, added bit by bit; zeros without scrambling."""
        return rushlight.from_numpy(self._shift)

    @property
    def quasi(self) -> Any:
        """The last point, as integers of 30 bits."""
        return rushlight.from_numpy(self._now)

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Any:
        """The next `n` points (n, dimension), in the default dtype unless another is given."""
        rows = np.empty((n, self.dimension), np.int64)
        for k in range(n):
            if self.num_generated:
                self._step(self.num_generated)
            self.num_generated += 1
            rows[k] = self._now
        found = rushlight.from_numpy(rows.astype(np.float64) * 2.0**-_BITS).to(dtype or rushlight.get_default_dtype())
        return found if out is None else out.resize_(found.shape).copy_(found)

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Any:
        """The next 2**m points, which are balanced only where the count of all points so far is a power of 2
        (ValueError else).
        """
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                f"The balance properties of Sobol' points require n to be a power of 2. {self.num_generated} points have been previously generated, "
                f"then: n={self.num_generated}+2**{m}={total}. If you still want to do this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Start again."""
        self._now, self.num_generated = self._shift.copy(), 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Skip `n` points."""
        for _ in range(n):
            if self.num_generated:
                self._step(self.num_generated)
            self.num_generated += 1
        return self

    def _step(self, count: int) -> None:
        """From point `count - 1` to point `count`: one direction, that of the lowest bit of `count`."""
        self._now ^= self._directions[:, (count & -count).bit_length() - 1]

    def _scramble(self) -> None:
        generator = None if self.seed is None else rushlight.Generator().manual_seed(self.seed)
        bits = rushlight.randint(2, (self.dimension, _BITS), generator=generator).numpy()
        self._shift = (bits << np.arange(_BITS)).sum(1)
        matrices = rushlight.randint(2, (self.dimension, _BITS, _BITS), generator=generator).tril().numpy().copy()
        matrices[:, np.arange(_BITS), np.arange(_BITS)] = 1
        rows = (matrices << np.arange(_BITS - 1, -1, -1)).sum(2)  # each row of bits as a number, the first bit highest
        scrambled = np.zeros_like(self._directions)
        for place in range(_BITS):
            scrambled |= _parity(rows[:, place, None] & self._directions) << (_BITS - 1 - place)
        self._directions = scrambled

    def __repr__(self) -> str:
        words = [f"dimension={self.dimension}"]
        words += ["scramble=True"] if self.scramble else []
        words += [f"seed={self.seed}"] if self.seed is not None else []
        return f"{type(self).__name__}({', '.join(words)})"


def _parity(x: Any) -> Any:
    """The parity of the bits of every integer."""
    for shift in (32, 16, 8, 4, 2, 1):
        x = x ^ (x >> shift)
    return x & 1


def _direction_numbers(dimension: int) -> Any:
    """The integers (dimension, 30) whose exclusive ors are the points."""
    found = np.ones((dimension, _BITS), np.int64)
    for row, (polynomial, first) in zip(found, directions()[:dimension], strict=True):
        degree = len(first)
        numbers = list(first) if degree else [1] * _BITS
        for j in range(len(numbers), _BITS):
            value = numbers[j - degree] ^ (numbers[j - degree] << degree)
            for k in range(1, degree):
                if polynomial >> (degree - k) & 1:
                    value ^= numbers[j - k] << k
            numbers.append(value)
        row[:] = numbers
    return found << np.arange(_BITS - 1, -1, -1)

"""The Fourier transform of a few numbers, written out: additions and multiplications of vectors, in LLVM text."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["RADICES", "Complex", "Writer"]

RADICES = (31, 29, 23, 19, 17, 16, 13, 11, 8, 7, 5, 4, 3, 2)

Complex = tuple[str, str]


class Writer:
    """The lines of a function, and arithmetic on vectors in them."""

    __slots__ = ("_constant", "_count", "_element", "_fma", "_lines", "_vector")

    def __init__(self, vector: str, element: str, fma: bool, constant: Callable[[float], str]) -> None:
        self._vector, self._element, self._fma, self._constant = vector, element, fma, constant
        self._lines: list[str] = []
        self._count = 0

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    def say(self, *lines: str) -> None:
        """Append lines; those that end with a colon are labels."""
        self._lines += [line if line.endswith(":") else f"  {line}" for line in lines]

    def let(self, value: str) -> str:
        self._count += 1
        name = f"%v{self._count}"
        self._lines.append(f"  {name} = {value}")
        return name

    # ***** vectors *****

    def add(self, a: str, b: str) -> str:
        return self.let(f"fadd {self._vector} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.let(f"fsub {self._vector} {a}, {b}")

    def mul(self, a: str, b: str) -> str:
        return self.let(f"fmul {self._vector} {a}, {b}")

    def negated(self, a: str) -> str:
        return self.let(f"fneg {self._vector} {a}")

    def number(self, value: float) -> str:
        return f"splat ({self._element} {self._constant(value)})"

    def fused(self, a: str, b: str, c: str, minus: bool = False) -> str:
        """a b + c, or a b - c; with one rounding where the machine has a fused instruction."""
        v = self._vector
        if not self._fma:
            product = self.mul(a, b)
            return self.sub(product, c) if minus else self.add(product, c)
        if minus:
            c = self.negated(c)
        kind = "f32" if self._element == "float" else "f64"
        lanes = v[1 : v.index(" ")]
        return self.let(f"call {v} @llvm.fma.v{lanes}{kind}({v} {a}, {v} {b}, {v} {c})")

    # ***** complex numbers *****

    def times(self, x: Complex, w: Complex) -> Complex:
        re = self.fused(x[0], w[0], self.mul(x[1], w[1]), minus=True)
        return re, self.fused(x[0], w[1], self.mul(x[1], w[0]))

    def plus(self, x: Complex, y: Complex) -> Complex:
        return self.add(x[0], y[0]), self.add(x[1], y[1])

    def minus(self, x: Complex, y: Complex) -> Complex:
        return self.sub(x[0], y[0]), self.sub(x[1], y[1])

    def transform(self, x: list[Complex]) -> list[Complex]:
        """y[k] = sum over j of x[j] exp(-2 pi i j k / r)."""
        r = len(x)
        if r == 1:
            return x
        if r == 2:
            return [self.plus(*x), self.minus(*x)]
        if r == 4:
            return self._four(x)
        if r % 2:
            return self._odd(x)
        inner = 2 if r == 8 else 4  # r = inner * 4, decimation in time
        outer = r // inner
        columns = [self.transform(x[q::inner]) for q in range(inner)]
        y: list[Complex] = [("", "")] * r
        for k in range(outer):
            row = [self._rotated(columns[q][k], q * k, r) for q in range(inner)]
            for p, value in enumerate(self.transform(row)):
                y[p * outer + k] = value
        return y

    def _four(self, x: list[Complex]) -> list[Complex]:
        a, b, c, d = self.plus(x[0], x[2]), self.minus(x[0], x[2]), self.plus(x[1], x[3]), self.minus(x[1], x[3])
        return [
            self.plus(a, c),
            (self.add(b[0], d[1]), self.sub(b[1], d[0])),
            self.minus(a, c),
            (self.sub(b[0], d[1]), self.add(b[1], d[0])),
        ]

    def _rotated(self, x: Complex, power: int, r: int) -> Complex:
        """x exp(-2 pi i power / r)."""
        power %= r
        if power == 0:
            return x
        if 4 * power == r:
            return x[1], self.negated(x[0])
        if 8 * power == r:  # (1 - i) / sqrt 2
            c = self.number(math.sqrt(0.5))
            return self.mul(self.add(x[0], x[1]), c), self.mul(self.sub(x[1], x[0]), c)
        if 8 * power == 3 * r:  # (-1 - i) / sqrt 2
            c = self.number(math.sqrt(0.5))
            return self.mul(self.sub(x[1], x[0]), c), self.mul(self.add(x[0], x[1]), self.number(-math.sqrt(0.5)))
        angle = 2 * math.pi * power / r
        return self.times(x, (self.number(math.cos(angle)), self.number(-math.sin(angle))))

    def _odd(self, x: list[Complex]) -> list[Complex]:
        """Sums and differences of the pairs j, r - j: the sums take the cosines, the differences the sines."""
        r, half = len(x), len(x) // 2
        sums = [self.plus(x[j], x[r - j]) for j in range(1, half + 1)]
        gaps = [self.minus(x[j], x[r - j]) for j in range(1, half + 1)]
        first = x[0]
        for s in sums:
            first = self.plus(first, s)
        y: list[Complex] = [first] + [("", "")] * (r - 1)
        for k in range(1, half + 1):
            even, odd = x[0], ("", "")
            for j in range(1, half + 1):
                angle = 2 * math.pi * (j * k % r) / r
                c, s = self.number(math.cos(angle)), self.number(math.sin(angle))
                (sr, si), (gr, gi) = sums[j - 1], gaps[j - 1]
                even = self.fused(sr, c, even[0]), self.fused(si, c, even[1])
                odd = (
                    (self.mul(gr, s), self.mul(gi, s))
                    if j == 1
                    else (self.fused(gr, s, odd[0]), self.fused(gi, s, odd[1]))
                )
            y[k] = self.add(even[0], odd[1]), self.sub(even[1], odd[0])  # even - i odd
            y[r - k] = self.sub(even[0], odd[1]), self.add(even[1], odd[0])
        return y

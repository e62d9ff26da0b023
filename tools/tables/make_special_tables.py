"""Writes src/rushlight/_ops/elementwise/special_tables.py: Chebyshev coefficients of Bessel and error functions, computed with mpmath.

python tools/tables/make_special_tables.py > src/rushlight/_ops/elementwise/special_tables.py
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from mpmath import (
    airyai,
    airybi,
    besseli,
    besselj,
    besselk,
    bessely,
    cos,
    erfc,
    euler,
    exp,
    log,
    mp,
    mpf,
    pi,
    sin,
    sqrt,
)  # fmt: skip

mp.dps = 40
SMALL = mpf(10) ** -18


def coefficients(function: Callable[[Any], Any], low: Any, high: Any, count: int = 48) -> list[float]:
    """Chebyshev coefficients of `function` on [low, high], cut where they no longer count in double precision."""
    middle, half = (mpf(high) + low) / 2, (mpf(high) - low) / 2
    nodes = [cos(pi * (k + mpf(1) / 2) / count) for k in range(count)]
    values = [function(middle + half * t) for t in nodes]
    found = []
    for j in range(count):
        total = sum(v * cos(pi * j * (k + mpf(1) / 2) / count) for k, v in enumerate(values))
        found.append(total * (1 if j == 0 else 2) / count)
    scale = max(abs(c) for c in found)
    while len(found) > 1 and abs(found[-1]) < scale * SMALL * 10:
        found.pop()
    return [float(c) for c in found]


def inverse(function: Callable[[Any], Any], limit: Any) -> Callable[[Any], Any]:
    """function(1 / t), with its limit at t = 0."""
    return lambda t: mpf(limit) if t < mpf(10) ** -12 else function(1 / t)


def amplitude(order: int) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """P and Q of Hankel's expansion: J = sqrt(2 / pi x) (P cos c - Q sin c), Y = sqrt(2 / pi x) (P sin c + Q cos c)."""

    def angle(x: Any) -> Any:
        return x - (2 * order + 1) * pi / 4

    def p(x: Any) -> Any:
        c = angle(x)
        return sqrt(pi * x / 2) * (besselj(order, x) * cos(c) + bessely(order, x) * sin(c))

    def q(x: Any) -> Any:
        c = angle(x)
        return sqrt(pi * x / 2) * (bessely(order, x) * cos(c) - besselj(order, x) * sin(c)) * x

    return p, q


def tables() -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for n in (0, 1):
        found[f"I{n}_NEAR"] = coefficients(
            lambda x, n=n: exp(-x) * (besseli(0, x) if n == 0 else besseli(1, x) / x if x else mpf(1) / 2), 0, 8
        )
        found[f"I{n}_FAR"] = coefficients(
            inverse(lambda x, n=n: exp(-x) * sqrt(x) * besseli(n, x), 1 / sqrt(2 * pi)), 0, mpf(1) / 8
        )
    # K0 = -(log(x / 2) + gamma) I0 + ..., K1 = log(x / 2) I1 + 1 / x + ...: what remains is smooth in x^2.
    found["K0_NEAR"] = coefficients(
        lambda s: besselk(0, sqrt(s)) + log(sqrt(s) / 2) * besseli(0, sqrt(s)) if s else -euler, 0, 4
    )
    found["K1_NEAR"] = coefficients(
        lambda s: (besselk(1, sqrt(s)) - log(sqrt(s) / 2) * besseli(1, sqrt(s))) * sqrt(s) if s > SMALL else mpf(1),
        0,
        4,
    )
    for n in (0, 1):
        found[f"K{n}_FAR"] = coefficients(
            inverse(lambda x, n=n: exp(x) * sqrt(x) * besselk(n, x), sqrt(pi / 2)), 0, mpf(1) / 2
        )
    found["J0_NEAR"] = coefficients(lambda s: besselj(0, sqrt(s)), 0, 64)
    found["J1_NEAR"] = coefficients(lambda s: besselj(1, sqrt(s)) / sqrt(s) if s else mpf(1) / 2, 0, 64)
    found["Y0_NEAR"] = coefficients(
        lambda s: (
            bessely(0, sqrt(s)) - 2 / pi * log(sqrt(s)) * besselj(0, sqrt(s))
            if s > SMALL
            else 2 / pi * (euler - log(2))
        ),
        0,
        64,
    )
    found["Y1_NEAR"] = coefficients(
        lambda s: (
            (bessely(1, sqrt(s)) - 2 / pi * log(sqrt(s)) * besselj(1, sqrt(s))) * sqrt(s) if s > SMALL else -2 / pi
        ),
        0,
        64,
    )
    for n in (0, 1):
        p, q = amplitude(n)
        found[f"P{n}_FAR"] = coefficients(lambda s, p=p: p(1 / sqrt(s)) if s > SMALL else mpf(1), 0, mpf(1) / 64)
        limit = mpf(-1) / 8 if n == 0 else mpf(3) / 8
        found[f"Q{n}_FAR"] = coefficients(
            lambda s, q=q, limit=limit: q(1 / sqrt(s)) if s > SMALL else limit, 0, mpf(1) / 64
        )

    # erfcx on [0, inf) in t = (x - 3.75) / (x + 3.75), times 1 + 2 x, which takes away its decay.
    def scaled(t: Any) -> Any:
        x = mpf(15) / 4 * (1 + t) / (1 - t)
        return (1 + 2 * x) * exp(x * x) * erfc(x) if x < 10**6 else 2 / sqrt(pi)

    found["ERFCX"] = coefficients(scaled, -1, 1)
    return found


def airy() -> dict[str, list[float]]:
    """Ai between -6 and 2 by itself; beyond by its asymptotic forms."""
    found = {"AI_NEAR": coefficients(airyai, -6, 2, 64)}
    found["AI_FAR"] = coefficients(
        inverse(lambda z: 2 * sqrt(pi) * (3 * z / 2) ** (mpf(1) / 6) * exp(z) * airyai((3 * z / 2) ** (mpf(2) / 3)), 1),
        0, 1 / (mpf(2) / 3 * mpf(2) ** (mpf(3) / 2)),
    )  # fmt: skip
    # Ai(-x) = (sin c P - cos c Q) / (sqrt(pi) x^(1/4)) with c = z + pi / 4, z = 2/3 x^(3/2); P and Q z are smooth in 1 / z^2.
    edge = mpf(2) / 3 * mpf(6) ** (mpf(3) / 2)

    def parts(s: Any) -> tuple[Any, Any, Any]:
        z = 1 / sqrt(s)
        x = (3 * z / 2) ** (mpf(2) / 3)
        c, scale = z + pi / 4, sqrt(pi) * x ** (mpf(1) / 4)
        a, b = airyai(-x), airybi(-x)
        return scale * (a * sin(c) + b * cos(c)), scale * (b * sin(c) - a * cos(c)), z

    found["AI_P"] = coefficients(lambda s: parts(s)[0] if s > SMALL else mpf(1), 0, 1 / edge**2)
    found["AI_Q"] = coefficients(lambda s: parts(s)[1] * parts(s)[2] if s > SMALL else mpf(5) / 72, 0, 1 / edge**2)
    return found


def main() -> None:
    out = sys.stdout
    out.write(
        '"""Chebyshev coefficients of special functions; written by tools/tables/make_special_tables.py."""\n\nfrom __future__ import annotations\n'
    )
    for name, values in {**tables(), **airy()}.items():
        rows = ["    " + ", ".join(repr(v) for v in values[i : i + 4]) + "," for i in range(0, len(values), 4)]
        out.write(f"\n{name} = (\n" + "\n".join(rows) + "\n)\n")


if __name__ == "__main__":
    main()

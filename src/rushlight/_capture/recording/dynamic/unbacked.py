"""Sizes that are unknown while a program is traced: `u0`, `u1`, ..., the lengths of what `nonzero` gives, numbers of tensors.

Such a symbol has bounds and no value.  A condition on it is decided by bounds and by what was required before; where these
do not tell, the program gets the condition itself, whose truth nobody can ask for.  `torch._check` requires it.

>>> from rushlight._capture.recording.dynamic.shape_env import ShapeEnv
>>> env = ShapeEnv()
>>> n = env.create_unbacked_symint()
>>> n > 3, n + 1
(u0 > 3, u0 + 1)
>>> (n > 3).require()
>>> n >= 2, n == 0
(True, False)
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any

from rushlight._base.errors import PACKAGE
from rushlight._capture.recording.dynamic.sizes import MOST
from rushlight._types import shape_env
from rushlight._types.shape_env import Undecided
from rushlight._types.symbols import Integer, Real, Terms

__all__ = ["UnbackedSizes", "asked_by_operators"]

_FIRST_HINT = 100_003  # how large an unknown size is to operators that ask about polynomials of it
_NEVER = 1 << 62  # numbers that sizes do not reach
_OWN_FILES = tuple(
    PACKAGE + os.path.join(*path)
    for path in (
        ("_types", "symbols.py"), ("_types", "shape_env.py"), ("_capture", "recording", "dynamic", "unbacked.py"),
        ("_capture", "recording", "dynamic", "shape_env.py"), ("export", "_shapes.py"),
    )
)  # fmt: skip


class UnbackedSizes(shape_env.ShapeEnv):
    """A `ShapeEnv` some of whose symbols have no value."""

    def __init__(self) -> None:
        super().__init__(())
        self.by_program = False  # whether the program itself asks, through an interpreter of ours
        self.unbacked_names: dict[str, None] = {}
        self._unknown: set[int] = set()  # atoms that depend on such symbols

    def create_unbacked_symint(self, least: int = 0) -> Integer:
        """A size that is unknown; with `least` of -2**63 any integer."""
        number = sum(name.startswith("u") for name in self.unbacked_names)
        made = self.symbol(_FIRST_HINT + 2 * number, MOST, least, f"u{number}")
        self.unbacked_names[f"u{number}"] = None
        self._unknown.add(made.terms[0][0][0])
        return made

    def create_unbacked_symfloat(self) -> Real:
        """A float that is unknown."""
        name = f"zuf{sum(name.startswith('zuf') for name in self.unbacked_names)}"
        self.unbacked_names[name] = None
        return Real(self, _FIRST_HINT + 0.5, name)

    def is_unknown(self, terms: Terms) -> bool:
        """Whether a sum depends on sizes without a value."""
        return bool(self._unknown) and any(a in self._unknown for atoms, _ in terms for a in atoms)

    def atom(self, key: Any, value: int, text: str, lo: float, hi: float) -> Integer:
        """As in the base; what is computed of unknown sizes is unknown."""
        made = super().atom(key, value, text, lo, hi)
        if any(type(part) is tuple and self.is_unknown(part) for part in key[1:]):
            self._unknown.add(made.terms[0][0][0])
        return made

    def check_known(self, number: Integer) -> None:
        """GuardOnDataDependentSymNode for an integer without a value that is read as a plain number."""
        if self.is_unknown(number.terms):
            text = self.shown(number)
            raise shape_env.GuardOnDataDependentSymNode(
                f"Could not extract specialized integer from data-dependent expression {text} (unhinted: {text})."
            )

    def sign(self, difference: Integer, wanted: str) -> Any:
        """As in the base; a condition on unknown sizes is decided by what is known, or is `Undecided`."""
        if not self.is_unknown(difference.terms):
            return super().sign(difference, wanted)
        found = self._told(difference.terms, wanted)
        if found is None and not self.by_program and asked_by_operators():
            found = self._in_general(difference.terms, wanted)
        return Undecided(difference, wanted) if found is None else found

    def known_sign(self, difference: Any, wanted: str) -> bool | None:
        """As `sign` of any number, without what operators take for granted; None for a condition that nothing decides."""
        if type(difference) is not Integer:
            return difference < 0 if wanted == "<" else difference <= 0 if wanted == "<=" else difference == 0
        if self.is_unknown(difference.terms):
            return self._told(difference.terms, wanted)
        return self.sign(difference, wanted)

    def assume(self, difference: Any, wanted: str) -> None:
        """Know that a condition is true, which no program has to check."""
        if type(difference) is Integer:
            UnbackedSizes.require(self, difference, wanted, True)

    def _told(self, terms: Terms, wanted: str) -> bool | None:
        """The answer that holds for all sizes within the bounds; None where there is none."""
        rest, const, flip = shape_env.apart(terms)
        lo, hi = self.known_bounds(terms)
        if wanted == "==":
            excluded = (const if flip else -const) in self._unequal.get(rest, ())
            return True if lo == hi == 0 else False if lo > 0 or hi < 0 or excluded else None
        if wanted == "<":
            return True if hi < 0 else False if lo >= 0 else None
        return True if hi <= 0 else False if lo > 0 else None

    def known_bounds(self, terms: Terms) -> tuple[float, float]:
        """Bounds of a sum, with what was required of it."""
        rest, const, flip = shape_env.apart(terms)
        lo, hi = self.bounds(rest)
        least, most = self._ranges.get(rest, (lo, hi))
        lo, hi = max(lo, least), min(hi, most)
        return (const - hi, const - lo) if flip else (lo + const, hi + const)

    def _in_general(self, terms: Terms, wanted: str) -> bool | None:
        """How operators see unknown sizes: as large ones, neither 0 nor 1, beside numbers; and as different from those
        of which it is only known that they are not less, or not more.
        """
        lo, hi = self.known_bounds(terms)
        if lo == 0 or hi == 0:
            return wanted != "==" and hi == 0
        rest, const, flip = shape_env.apart(terms)
        if abs(const) >= _NEVER or len({a for atoms, _ in rest for a in atoms}) == 1 < len(rest):
            value = sum(c * math.prod([self.values[a] for a in atoms]) for atoms, c in terms)
            return value == 0 if wanted == "==" else value < 0 if wanted == "<" else value <= 0
        least, most = self.known_bounds(rest)
        if most <= 0:  # less a size
            return wanted != "==" and not flip
        grows = least >= 0 or all(
            c > 0 and all(a in self._unknown or self._bounds[a][0] >= 0 for a in atoms) for atoms, c in rest
        )
        return (wanted != "==" and flip) if grows else None

    def require(self, difference: Integer, wanted: str, held: bool) -> None:
        """Take a condition to be true from now on; RuntimeError where it is known to be false."""
        found = self._told(difference.terms, wanted)
        if found is not None and found is not held:
            raise RuntimeError(
                f"Runtime assertion failed for expression {self.told_condition(difference, wanted, held)}"
            )
        rest, const, flip = shape_env.apart(difference.terms)
        at = const if flip else -const
        lo, hi = self._ranges.get(rest, self.bounds(rest))
        if wanted == "==":
            if held:
                lo = hi = at
            else:
                self._unequal.setdefault(rest, set()).add(at)
        else:
            strict = (wanted == "<") == held
            if held != flip:
                hi = min(hi, at - strict)
            else:
                lo = max(lo, at + strict)
        self._ranges[rest] = [lo, hi]

    def text_of(self, number: Integer) -> str:
        """The formula of a number, whatever was decided of it."""
        return self.text(number.terms)

    def told_condition(self, difference: Integer, wanted: str, held: bool) -> str:
        """A condition as text."""
        raise NotImplementedError


def asked_by_operators() -> bool:
    """Whether an operator's code asks, and not the program itself."""
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename in _OWN_FILES:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(PACKAGE)

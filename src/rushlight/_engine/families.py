"""Families: what was derived for one set of sizes, used again for others.

Two signatures are of one family where they differ in nothing but the values of sizes and strides: which of them are 0, 1 or 2, which are
equal, and which strides follow from other sizes is alike.  The second call of a family is derived with symbolic sizes (`_types.symbols`), by
the very code that derives it otherwise, and what comes out is kept as a *mould*: kernels that are there, and the sizes, strides and constants
of their calls as formulas, under the conditions by which everything was decided.  A further call for which the conditions hold is cast from it.

Where they do not hold, another mould is made, up to a few; a family that hardly ever uses a mould again gives up.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.knobs import Knob
from rushlight._base.log import LOG, log
from rushlight._engine.lower import Literal
from rushlight._engine.state import PlanTable, new_plan_table
from rushlight._engine.watch import RECORDER
from rushlight._types.device import CPU
from rushlight._types.dtype import DType
from rushlight._types.layout import contiguous_strides, numel
from rushlight._types.spec import Spec
from rushlight._types.symbols import Unfollowed
from rushlight._types.trail import LEAST, Trail

__all__ = ["CHECK", "FAMILIES", "Families", "Outline", "abstracted", "symbolic"]

FAMILIES: Knob[bool] = Knob(
    "families", env="RUSHLIGHT_FAMILIES", kind=bool, default=True, doc="Use what was derived for one set of sizes again for others.",
)  # fmt: skip
CHECK: Knob[bool] = Knob(
    "check_families", env="RUSHLIGHT_CHECK_FAMILIES", kind=bool, default=False,
    doc="Derive every plan that was cast from a mould anew as well, and raise AssertionError where they differ.",
)  # fmt: skip

MAX_MOULDS = 64  # of one family: layers of a network differ in sizes that decide how their kernels are cut, and so do short and long inputs
MAX_NEAR = 256  # magnitudes of sizes that a family tells apart
TRIES = 12  # moulds made before a family is asked whether they were of use
MAX_HELD = 4096  # moulds in all: a mould takes some 10 to 50 kB
FOLLOWS = 1 << 20  # in a key: the stride is that of another dim times its size


class Outline:
    """A spec whose sizes may be symbolic; it is not interned."""

    __slots__ = ("conj", "contiguous", "device", "dtype", "shape", "strides")

    def __init__(self, dtype: DType, shape: Sequence[Any], strides: Sequence[Any], contiguous: bool, conj: bool) -> None:
        self.dtype, self.device, self.conj = dtype, CPU, conj
        self.shape, self.strides, self.contiguous = tuple(shape), tuple(strides), contiguous

    @staticmethod
    def of(dtype: DType, device: Any, shape: Sequence[Any], strides: Sequence[Any] | None = None) -> Outline:
        """As `Spec.of`."""
        assert device is CPU
        plain = contiguous_strides(shape)
        return Outline(dtype, shape, plain if strides is None else strides, strides is None or tuple(strides) == plain, False)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Any:
        return numel(self.shape)

    @property
    def nbytes(self) -> Any:
        return self.numel * self.dtype.itemsize


def describe(specs: Sequence[Spec | None], sizes: list[int], key: list[Any]) -> None:
    """Append to `key` what specs are apart from the values of sizes, and to `sizes` (all of which differ) those values, each once.

    A size below 3 stands for itself, any other for its place in `sizes`.
    """
    places = {n: k for k, n in enumerate(sizes, LEAST)}
    place, first = places.setdefault, LEAST
    for spec in specs:
        if spec is None:
            key.append(None)
            continue
        key.append(spec.dtype)
        shape = spec.shape
        key += [place(n, len(places) + first) if n >= first else n for n in shape]
        if spec.plain:
            key.append(-1 - spec.conj - 2)
            continue
        key.append(-5 - spec.conj - 2 * spec.contiguous)
        strides = spec.strides
        reached = {step * n: d for d, (n, step) in enumerate(zip(shape, strides, strict=True)) if n > 1 and step}
        for step in strides:
            key.append(step if step < first else FOLLOWS + reached[step] if step in reached else place(step, len(places) + first))
    sizes[:] = places


def outlines(specs: Sequence[Spec | None], key: Sequence[Any], symbols: Sequence[Any]) -> list[Outline | None]:
    """The specs with symbols for sizes, as `key` (of `describe`) says."""
    parts = iter(key)
    made: list[Outline | None] = []

    def size(code: int) -> Any:
        return symbols[code - LEAST] if code >= LEAST else code

    for spec in specs:
        dtype = next(parts)
        if spec is None:
            made.append(None)
            continue
        shape = [size(next(parts)) for _ in spec.shape]
        how = next(parts)
        strides: Sequence[Any] = contiguous_strides(shape)
        if how < -4:
            codes = [next(parts) for _ in shape]
            found: dict[int, Any] = {}

            def stride(d: int, codes: list[int] = codes, shape: list[Any] = shape, found: dict[int, Any] = found) -> Any:
                if d not in found:
                    code = codes[d]
                    found[d] = stride(code - FOLLOWS) * shape[code - FOLLOWS] if code >= FOLLOWS else size(code)
                return found[d]

            strides = [stride(d) for d in range(len(shape))]
        made.append(Outline(dtype, shape, strides, spec.contiguous, spec.conj))
    return made


def abstracted(value: Any, sizes: list[int]) -> Any:
    """A template with its sizes taken out: whole numbers from 3 on become their places in `sizes`, to which new ones are appended."""
    kind = type(value)
    if kind is tuple:
        return tuple([abstracted(v, sizes) for v in value])
    if kind is Literal and type(value.value) is int:
        return Literal(abstracted(value.value, sizes))
    if kind is not int or value < LEAST:
        return value
    if value not in sizes:
        sizes.append(value)
    return sizes.index(value) + LEAST


def symbolic(abstract: Any, symbols: Sequence[Any]) -> Any:
    """What was abstracted, with symbols in the places."""
    kind = type(abstract)
    if kind is tuple:
        return tuple([symbolic(v, symbols) for v in abstract])
    if kind is Literal and type(abstract.value) is int:
        return Literal(symbolic(abstract.value, symbols))
    return symbols[abstract - LEAST] if kind is int and abstract >= LEAST else abstract


class Family:
    """The moulds of one family, the one used last in front.

    `near` has those that served sizes of the same magnitudes, and the one that served last in front, so that finding one takes no longer where there
    are many.  `made` and `used` count, `seen` is what `used` was when tables were thinned out last.
    """

    __slots__ = ("made", "moulds", "near", "seen", "used")

    def __init__(self) -> None:
        self.moulds: list[tuple[Callable[..., Any], Any]] = []
        self.near: dict[tuple[int, ...], list[tuple[Callable[..., Any], Any]]] = {}
        self.made = self.used = self.seen = 0

    def found(self, sizes: Sequence[int]) -> tuple[Any, tuple[Any, ...]] | None:
        """The mould for these sizes and the values of its `numbers`, if there is one."""
        magnitudes = tuple([n.bit_length() for n in sizes])
        near = self.near.get(magnitudes)
        if near is None:
            if len(self.near) >= MAX_NEAR:
                self.near.clear()
            near = self.near[magnitudes] = []
        for moulds in (near, self.moulds):
            for at, entry in enumerate(moulds):
                values = entry[0](*sizes)
                if values is not None:
                    self.used += 1
                    if at:
                        moulds.insert(0, moulds.pop(at))
                    if moulds is not near:
                        near.insert(0, entry)
                    return entry[1], values
        return None

    def keep(self, entry: tuple[Callable[..., Any], Any], sizes: Sequence[int]) -> None:
        """Have a mould that was made for these sizes; the one that was used least recently goes where there are too many."""
        self.moulds.insert(0, entry)
        self.near.setdefault(tuple([n.bit_length() for n in sizes]), []).insert(0, entry)
        if len(self.moulds) > MAX_MOULDS:
            gone = self.moulds.pop()
            for magnitudes, near in list(self.near.items()):
                self.near[magnitudes] = [kept for kept in near if kept is not gone]

    @property
    def worthwhile(self) -> bool:
        """Whether one more mould should be made: those that were made before have been of use about as often as it cost to make them."""
        return self.made < TRIES + self.used


class _Table(PlanTable):
    """Families by their signatures.  Moulds cost more than plans: those that were of use since it was thinned out last stay."""

    __slots__ = ()

    def thin(self) -> None:
        for signature, family in list(self.items()):
            if family.used == family.seen:
                self.pop(signature, None)
            family.seen = family.used


class Families:
    """The families of one operator, or of one backward graph."""

    __slots__ = ("__weakref__", "_known")

    def __init__(self) -> None:
        self._known = new_plan_table(_Table)
        _all.add(self)

    def clear(self) -> None:
        """Forget them all."""
        self._known.clear()

    def thin(self) -> int:
        """Forget those that were of no use since this was done last; how many moulds are left."""
        self._known.thin()
        return sum(len(family.moulds) for family in list(self._known.values()))

    def find(self, head: tuple[Any, ...], specs: Sequence[Spec | None], make: Callable[[Trail, list[Outline | None]], Any],
             sizes: Sequence[int] = (), again: bool = False) -> tuple[Any, tuple[Any, ...], list[int]] | None:  # fmt: skip
        """(mould, the values of its `numbers`, sizes) for these specs, or None where it is to be derived in full.

        `head` is what else tells signatures apart; `make(trail, outlines)` gives a mould (it has `numbers`, and `literal(values, sizes)`, a text of
        all that is cast from it); `sizes` come before those of the specs.  With `again` it is known that this is not the first of its family.
        """
        if RECORDER[0] is not None or LOG.get() or not FAMILIES.get():
            return None
        found, key = [*sizes], [*head]
        describe(specs, found, key)
        signature = tuple(key)
        family = self._known.get(signature)
        if family is None:
            family = self._known[signature] = Family()
            if not again:
                return None
        known = family.found(found)
        if known is not None:
            mould, values = known
            if CHECK.get():
                _check(mould, values, make, specs, signature[len(head) :], found)
            return mould, values, found
        return _derive(family, signature[len(head) :], specs, make, found) if family.worthwhile else None


_held = [0]
_all: weakref.WeakSet[Families] = weakref.WeakSet()


def _forget() -> None:
    """Drop moulds, which can be made again: those of no use since this was done last, or all where that is too few of them."""
    _held[0] = sum(families.thin() for families in list(_all))
    if _held[0] > MAX_HELD // 2:
        for families in list(_all):
            families.clear()
        _held[0] = 0


def _derive(
    family: Family, key: Sequence[Any], specs: Sequence[Spec | None], make: Callable[[Trail, list[Outline | None]], Any], sizes: list[int]
) -> tuple[Any, tuple[Any, ...], list[int]] | None:
    """Make a mould for these sizes and keep it."""
    trail = Trail(sizes)
    family.made += 1
    try:
        mould = make(trail, outlines(specs, key, trail.symbols))
        cast = trail.compiled(mould.numbers)
    except Unfollowed as reason:
        log("plan", f"no mould, every new size is derived in full: {reason}")
        return None
    except Exception as error:
        if CHECK.get():
            raise
        # Sizes that do not fit: what is derived in full says so in the words that users know.
        log("plan", f"no mould, every new size is derived in full: {type(error).__name__}: {error}")
        return None
    values = cast(*sizes)
    if values is None:
        raise AssertionError(f"conditions that do not hold where they were found: {trail.guards()}")
    if _held[0] >= MAX_HELD:
        _forget()
    _held[0] += 1
    family.keep((cast, mould), sizes)
    return mould, values, sizes


def _check(
    mould: Any, values: tuple[Any, ...], make: Callable[[Trail, list[Outline | None]], Any], specs: Sequence[Spec | None], key: Sequence[Any],
    sizes: list[int],
) -> None:  # fmt: skip
    """AssertionError where what is cast for these sizes differs from what is derived for them."""
    trail = Trail(sizes)
    fresh = make(trail, outlines(specs, key, trail.symbols))
    found = trail.compiled(fresh.numbers)(*sizes)
    if found is None:
        raise AssertionError(f"conditions that do not hold where they were found: {trail.guards()}")
    made, wanted = mould.literal(values, sizes), fresh.literal(found, sizes)
    if made != wanted:
        raise AssertionError(f"for {list(specs)} is cast\n{made}\nbut derived\n{wanted}")

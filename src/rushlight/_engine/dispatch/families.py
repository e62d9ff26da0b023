"""Families: what was derived for one set of sizes, used again for others.

Two signatures are of one family where they differ in nothing but the values of sizes and strides: which of them are 0, 1 or 2, which are
equal, and which strides follow from other sizes is alike.  The second call of a family is derived with symbolic sizes (`_types.symbols`), by
the very code that derives it otherwise, and what comes out is kept as a *mould*: kernels that are there, and the sizes, strides and constants
of their calls as formulas, under the conditions by which everything was decided.  A further call for which the conditions hold is cast from it.

Where they do not hold, another mould is made, up to a few; a family that hardly ever uses a mould again gives up.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._base.knobs import Knob
from rushlight._base.log import LOG, log
from rushlight._engine.core.state import PlanTable, count_plan, forget_calls, new_plan_table
from rushlight._engine.dispatch.lower import Literal
from rushlight._engine.dispatch.native_plans import ready
from rushlight._engine.dispatch.watch import RECORDER
from rushlight._types.device import CPU
from rushlight._types.dtype import DType
from rushlight._types.layout import contiguous_strides, numel
from rushlight._types.spec import Spec
from rushlight._types.symbols import Unfollowed
from rushlight._types.trail import FOLLOWS, LEAST, Trail

__all__ = ["CHECK", "FAMILIES", "Families", "Found", "Outline", "abstracted", "casting", "symbolic"]

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
MAX_SPECIAL = 6  # of moulds under more conditions, from which plans are cast faster
ASKED = 8  # uses of moulds that look things up before the first of those is made, and uses of each of those before the next one is
MAX_HELD = 4096  # moulds in all: a mould takes some 10 to 50 kB


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


def outlines(specs: Sequence[Spec | None], key: bytes, symbols: Sequence[Any]) -> list[Outline | None]:
    """The specs with symbols for sizes, as `key` (of the native `describe`) says."""
    parts = iter(array("q", key))
    made: list[Outline | None] = []

    def size(code: int) -> Any:
        return symbols[code - LEAST] if code >= LEAST else code

    for spec in specs:
        next(parts)  # its dtype
        if spec is None:
            made.append(None)
            continue
        next(parts)  # its device
        shape = [size(next(parts)) for _ in spec.shape]
        next(parts)  # what its strides are
        strides: Sequence[Any] = contiguous_strides(shape)
        if not spec.plain:
            codes = [next(parts) for _ in shape]
            found: dict[int, Any] = {}

            def stride(d: int, codes: list[int] = codes, shape: list[Any] = shape, found: dict[int, Any] = found) -> Any:
                if d not in found:
                    code = codes[d]
                    found[d] = stride(code - FOLLOWS) * shape[code - FOLLOWS] if code >= FOLLOWS else size(code)
                return found[d]

            strides = [stride(d) for d in range(len(shape))]
        made.append(Outline(spec.dtype, shape, strides, spec.contiguous, spec.conj))
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
    are many.  The `general` ones, which look up for each set of sizes what depends on them in many ways, come last; where they are of use (`asked`)
    `special` ones are made that do not, as long as these are (`spared`).  `made` and `used` count, `seen` is what `used` was when tables were thinned
    out last.
    """

    __slots__ = ("asked", "general", "made", "moulds", "near", "seen", "spared", "special", "used")

    def __init__(self) -> None:
        self.moulds: list[tuple[Callable[..., Any], Any]] = []
        self.general: list[tuple[Callable[..., Any], Any]] = []
        self.near: dict[tuple[int, ...], list[tuple[Callable[..., Any], Any]]] = {}
        self.made = self.used = self.seen = self.asked = self.spared = self.special = 0

    def found(self, sizes: Sequence[int]) -> tuple[Any, tuple[Any, ...]] | None:
        """The mould for these sizes and the values of its `numbers`, if there is one and no special one is due."""
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
                    self.spared += self.special > 0
                    if at:
                        moulds.insert(0, moulds.pop(at))
                    if moulds is not near:
                        near.insert(0, entry)
                    return entry[1], values
        for at, entry in enumerate(self.general):
            values = entry[0](*sizes)
            if values is not None:
                self.asked += 1
                if self.due:
                    return None
                self.used += 1
                if at:
                    self.general.insert(0, self.general.pop(at))
                return entry[1], values
        return None

    def keep(self, entry: tuple[Callable[..., Any], Any], sizes: Sequence[int], general: bool) -> None:
        """Have a mould that was made for these sizes; the one that was used least recently goes where there are too many."""
        if general:
            self.general.insert(0, entry)
            del self.general[MAX_MOULDS:]
            return
        self.moulds.insert(0, entry)
        self.near.setdefault(tuple([n.bit_length() for n in sizes]), []).insert(0, entry)
        if len(self.moulds) > MAX_MOULDS:
            gone = self.moulds.pop()
            for magnitudes, near in list(self.near.items()):
                self.near[magnitudes] = [kept for kept in near if kept is not gone]

    @property
    def due(self) -> bool:
        """Whether general moulds were of so much use that one more special one should be made."""
        return self.asked >= ASKED and self.spared >= ASKED * self.special and self.special < MAX_SPECIAL and self.worthwhile

    @property
    def worthwhile(self) -> bool:
        """Whether one more mould should be made: those that were made before have been of use about as often as it cost to make them."""
        return self.made < TRIES + self.used


class Found(NamedTuple):
    """A mould that serves, the values of its `numbers`, the sizes for which they are, and the family that it is of."""

    mould: Any
    values: tuple[Any, ...]
    sizes: Sequence[int]
    family: Family


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
        return sum(len(family.moulds) + len(family.general) for family in list(self._known.values()))

    def find(self, head: tuple[Any, ...], specs: Sequence[Spec | None], make: Callable[[Trail, list[Outline | None]], Any],
             sizes: Sequence[int] = (), again: bool = False) -> Found | None:  # fmt: skip
        """The mould for these specs with the values of its `numbers`, or None where it is to be derived in full.

        `head` is what else tells signatures apart; `make(trail, outlines)` gives a mould (it has `numbers`, and `literal(values, sizes)`, a text of
        all that is cast from it); `sizes` come before those of the specs.  With `again` it is known that this is not the first of its family.
        """
        if RECORDER[0] is not None or LOG.get() or not FAMILIES.get():
            return None
        key, found = ready().describe(tuple(specs), tuple(sizes))
        signature = (head, key)
        family = self._known.get(signature)
        if family is None:
            family = self._known[signature] = Family()
            if not again:
                return None
        known = family.found(found)
        if known is not None:
            mould, values = known
            if CHECK.get():
                _check(mould, values, make, specs, key, found)
            return Found(mould, values, found, family)
        return _derive(family, key, specs, make, found) if family.worthwhile else None


def casting(
    found: Found, specs: Sequence[Spec], leading: int, make: Callable[[Trail, list[Outline | None]], Any], plan: Callable[..., Any],
    known: tuple[Sequence[Spec], Sequence[int]],
) -> Callable[..., Any] | None:  # fmt: skip
    """What makes plans for further sizes of a family: called natively, with what the native `family` says of a call; it gives None where there is no
    mould.

    `known` is what it says of the call with `specs` for which `found` is.  `plan(mould, values, sizes, specs)` makes one; the `leading` of the sizes
    are none of the specs'.  None where it does not say everything of that call, or in another order.
    """
    family, given, sizes = found.family, *known
    if len(given) != len(specs) or any(a is not b for a, b in zip(given, specs, strict=True)) or sorted(sizes) != sorted(found.sizes):
        return None
    order = None if tuple(sizes) == tuple(found.sizes) else [sizes.index(n) for n in found.sizes]

    def cast(specs: tuple[Spec, ...], *sizes: int) -> Any:
        if RECORDER[0] is not None or LOG.get() or not FAMILIES.get():
            return None
        values = sizes if order is None else tuple([sizes[k] for k in order])
        found = family.found(values)
        if found is None:
            return None
        if CHECK.get():
            key, same = ready().describe(specs, values[:leading])
            assert same == values, f"sizes {values} of {specs} are {same}"
            _check(*found, make, specs, key, same)
        count_plan()
        return plan(*found, values, specs)

    return cast


_held = [0]
_all: weakref.WeakSet[Families] = weakref.WeakSet()


def _forget() -> None:
    """Drop moulds, which can be made again: those of no use since this was done last, or all where that is too few of them."""
    forget_calls()  # what casts plans has its family
    _held[0] = sum(families.thin() for families in list(_all))
    if _held[0] > MAX_HELD // 2:
        for families in list(_all):
            families.clear()
        _held[0] = 0


def _derive(
    family: Family, key: bytes, specs: Sequence[Spec | None], make: Callable[[Trail, list[Outline | None]], Any], sizes: Sequence[int]
) -> Found | None:
    """Make a mould for these sizes and keep it."""
    trail = Trail(sizes)
    trail.general = not family.due
    family.special += not trail.general
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
    family.keep((cast, mould), sizes, trail.left_out)
    return Found(mould, values, sizes, family)


def _check(
    mould: Any, values: tuple[Any, ...], make: Callable[[Trail, list[Outline | None]], Any], specs: Sequence[Spec | None], key: bytes,
    sizes: Sequence[int],
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

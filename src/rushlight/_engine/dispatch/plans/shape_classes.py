"""ShapeClasses: what was derived for one set of sizes, used again for others.

Two signatures are of one shape class where they differ in nothing but the values of sizes and strides: which of them
are 0, 1 or 2, which are equal, and which strides follow from other sizes is alike.  The second call of a shape class is
derived with symbolic sizes (`_types.symbols`), by the very code that derives it otherwise, and what comes out is kept
as a *plan template*: kernels that are there, and the sizes, strides and constants of their calls as formulas, under the
conditions by which everything was decided.  A further call for which the conditions hold is cast from it.

Where they do not hold, another plan template is made, up to a few; a shape class that hardly ever uses a plan template
again gives up.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._base.knobs import Knob
from rushlight._base.log import LOG, log
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import PlanTable, count_plan, forget_calls, new_plan_table
from rushlight._engine.dispatch.lower import Literal
from rushlight._engine.dispatch.plans.native_plans import ready
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.layout import contiguous_strides, numel
from rushlight._types.shape_env import FOLLOWS, LEAST, ShapeEnv
from rushlight._types.spec import Spec
from rushlight._types.symbols import SpecializationError

__all__ = ["CHECK", "SHAPE_CLASSES", "ShapeClasses", "Found", "SymbolicSpec", "abstracted", "casting", "symbolic"]

SHAPE_CLASSES: Knob[bool] = Knob(
    "shape_classes",
    env="RUSHLIGHT_SHAPE_CLASSES",
    former="RUSHLIGHT_FAMILIES",
    kind=bool,
    default=True,
    doc="Use what was derived for one set of sizes again for others.",
)
CHECK: Knob[bool] = Knob(
    "check_shape_classes",
    env="RUSHLIGHT_CHECK_SHAPE_CLASSES",
    former="RUSHLIGHT_CHECK_FAMILIES",
    kind=bool,
    default=False,
    doc="Derive every plan that was cast from a plan template anew as well, and raise AssertionError where they differ.",
)

MAX_TEMPLATES = 64  # of one shape class: layers of a network differ in sizes that decide how their kernels are cut, and so do short and long inputs
MAX_NEAR = 256  # magnitudes of sizes that a shape class tells apart
TRIES = 12  # plan templates made before a shape class is asked whether they were of use
MAX_SPECIAL = 6  # of plan templates under more conditions, from which plans are cast faster
ASKED = 8  # uses of plan templates that look things up before the first of those is made, and uses of each of those before the next one is
MAX_HELD = 4096  # plan templates in all: a plan template takes some 10 to 50 kB


class SymbolicSpec:
    """A spec whose sizes may be symbolic; it is not interned."""

    __slots__ = ("conj", "contiguous", "device", "dtype", "shape", "strides")

    released = False  # `ShapeClasses.find` takes no others

    def __init__(
        self, dtype: DType, device: Device, shape: Sequence[Any], strides: Sequence[Any], contiguous: bool, conj: bool
    ) -> None:
        self.dtype, self.device, self.conj = dtype, device, conj
        self.shape, self.strides, self.contiguous = tuple(shape), tuple(strides), contiguous

    @staticmethod
    def of(dtype: DType, device: Any, shape: Sequence[Any], strides: Sequence[Any] | None = None) -> SymbolicSpec:
        """As `Spec.of`."""
        plain = contiguous_strides(shape)
        dense = strides is None or tuple(strides) == plain
        return SymbolicSpec(dtype, device, shape, plain if strides is None else strides, dense, False)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> Any:
        return numel(self.shape)

    @property
    def nbytes(self) -> Any:
        return self.numel * self.dtype.itemsize


def symbolic_specs(specs: Sequence[Spec | None], key: bytes, symbols: Sequence[Any]) -> list[SymbolicSpec | None]:
    """The specs with symbols for sizes, as `key` (of the native `describe`) says."""
    parts = iter(array("q", key))
    made: list[SymbolicSpec | None] = []

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

            def stride(
                d: int, codes: list[int] = codes, shape: list[Any] = shape, found: dict[int, Any] = found
            ) -> Any:
                if d not in found:
                    code = codes[d]
                    found[d] = stride(code - FOLLOWS) * shape[code - FOLLOWS] if code >= FOLLOWS else size(code)
                return found[d]

            strides = [stride(d) for d in range(len(shape))]
        made.append(SymbolicSpec(spec.dtype, spec.device, shape, strides, spec.contiguous, spec.conj))
    return made


def abstracted(value: Any, sizes: list[int]) -> Any:
    """A template with its sizes taken out: whole numbers from 3 on become their places in `sizes`, to which new ones
    are appended.
    """
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
    """The abstract value with symbols put in."""
    kind = type(abstract)
    if kind is tuple:
        return tuple([symbolic(v, symbols) for v in abstract])
    if kind is Literal and type(abstract.value) is int:
        return Literal(symbolic(abstract.value, symbols))
    return symbols[abstract - LEAST] if kind is int and abstract >= LEAST else abstract


class ShapeClass:
    """The plan templates of one shape class, the one used last in front.

    `near` has those that served sizes of the same magnitudes, and the one that served last in front, so that finding
    one takes no longer where there are many.  The `general` ones, which look up for each set of sizes what depends on
    them in many ways, come last; where they are of use (`asked`) `special` ones are made that do not, as long as these
    are (`spared`).  `made` and `used` count, `seen` is what `used` was when tables were thinned out last.
    """

    __slots__ = ("asked", "general", "made", "plan_templates", "near", "seen", "spared", "special", "used")

    def __init__(self) -> None:
        self.plan_templates: list[tuple[Callable[..., Any], Any]] = []
        self.general: list[tuple[Callable[..., Any], Any]] = []
        self.near: dict[tuple[int, ...], list[tuple[Callable[..., Any], Any]]] = {}
        self.made = self.used = self.seen = self.asked = self.spared = self.special = 0

    def found(self, sizes: Sequence[int]) -> tuple[Any, tuple[Any, ...]] | None:
        """The plan template for these sizes and the values of its `numbers`, if there is one and no special one is due."""
        magnitudes = tuple([n.bit_length() for n in sizes])
        near = self.near.get(magnitudes)
        if near is None:
            if len(self.near) >= MAX_NEAR:
                self.near.clear()
            near = self.near[magnitudes] = []
        for plan_templates in (near, self.plan_templates):
            for at, entry in enumerate(plan_templates):
                values = entry[0](*sizes)
                if values is not None:
                    self.used += 1
                    self.spared += self.special > 0
                    if at:
                        plan_templates.insert(0, plan_templates.pop(at))
                    if plan_templates is not near:
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
        """Have a plan template that was made for these sizes; the one that was used least recently goes where there are
        too many.
        """
        if general:
            self.general.insert(0, entry)
            del self.general[MAX_TEMPLATES:]
            return
        self.plan_templates.insert(0, entry)
        self.near.setdefault(tuple([n.bit_length() for n in sizes]), []).insert(0, entry)
        if len(self.plan_templates) > MAX_TEMPLATES:
            gone = self.plan_templates.pop()
            for magnitudes, near in list(self.near.items()):
                self.near[magnitudes] = [kept for kept in near if kept is not gone]

    @property
    def due(self) -> bool:
        """Whether general plan templates were of so much use that one more special one should be made."""
        return (
            self.asked >= ASKED
            and self.spared >= ASKED * self.special
            and self.special < MAX_SPECIAL
            and self.worthwhile
        )

    @property
    def worthwhile(self) -> bool:
        """Whether one more plan template should be made: those that were made before have been of use about as often as
        it cost to make them.
        """
        return self.made < TRIES + self.used


class Found(NamedTuple):
    """A plan template that serves, the values of its `numbers`, the sizes for which they are, and the shape class that
    it is of.
    """

    plan_template: Any
    values: tuple[Any, ...]
    sizes: Sequence[int]
    shape_class: ShapeClass


class _Table(PlanTable):
    """Shape classes by signature.  Thinning keeps those whose templates were used since the last time: templates cost
    more than plans.
    """

    __slots__ = ()

    def thin(self) -> None:
        for signature, shape_class in list(self.items()):
            if shape_class.used == shape_class.seen:
                self.pop(signature, None)
            shape_class.seen = shape_class.used


class ShapeClasses:
    """The shape classes of one operator, or of one backward graph."""

    __slots__ = ("__weakref__", "_known")

    def __init__(self) -> None:
        self._known = new_plan_table(_Table)
        _all.add(self)

    def clear(self) -> None:
        """Forget them all."""
        self._known.clear()

    def thin(self) -> int:
        """Forget those that were of no use since this was done last; how many plan templates are left."""
        self._known.thin()
        return sum(
            len(shape_class.plan_templates) + len(shape_class.general) for shape_class in list(self._known.values())
        )

    def meet(self, head: tuple[Any, ...], specs: Sequence[Spec | None], sizes: Sequence[int] = ()) -> None:
        """Note a plan that an earlier process derived: the next one of its shape class is not the first, and is made as
        a plan template.
        """
        if SHAPE_CLASSES.get() and not any(s is not None and s.released for s in specs):
            key, _ = ready().describe(tuple(specs), tuple(sizes))
            if (head, key) not in self._known:
                self._known[head, key] = ShapeClass()

    def find(
        self,
        head: tuple[Any, ...],
        specs: Sequence[Spec | None],
        make: Callable[[ShapeEnv, list[SymbolicSpec | None]], Any],
        sizes: Sequence[int] = (),
        again: bool = False,
    ) -> Found | None:
        """The plan template for these specs with the values of its `numbers`, or None where it is to be derived in
        full.

        `head` is what else tells signatures apart; `make(shape_env, symbolic specs)` gives a plan template (it has
        `numbers`, and `literal(values, sizes)`, a text of all that is cast from it); `sizes` come before those of the
        specs.  With `again` it is known that this is not the first of its shape class.
        """
        if HOOKS.recorder is not None or LOG.get() or not SHAPE_CLASSES.get():
            return None
        if any(s is not None and s.released for s in specs):  # symbolic specs have no such flag
            return None
        key, found = ready().describe(tuple(specs), tuple(sizes))
        signature = (head, key)
        shape_class = self._known.get(signature)
        if shape_class is None:
            shape_class = self._known[signature] = ShapeClass()
            if not again:
                return None
        known = shape_class.found(found)
        if known is not None:
            plan_template, values = known
            if CHECK.get():
                _check(plan_template, values, make, specs, key, found)
            return Found(plan_template, values, found, shape_class)
        return _derive(shape_class, key, specs, make, found) if shape_class.worthwhile else None


def casting(
    found: Found,
    specs: Sequence[Spec],
    leading: int,
    make: Callable[[ShapeEnv, list[SymbolicSpec | None]], Any],
    plan: Callable[..., Any],
    known: tuple[Sequence[Spec], Sequence[int]],
) -> Callable[..., Any] | None:
    """A function that makes plans for other sizes of a shape class: called natively, with what the native `shape_class`
    says of a call; it gives None where there is no plan template.

    `known` is what it says of the call with `specs` for which `found` is.
    `plan(plan_template, values, sizes, specs)` makes one; the `leading` of the sizes
    are none of the specs'.  None where it does not say everything of that call, or in another order.
    """
    shape_class, given, sizes = found.shape_class, *known
    if (
        len(given) != len(specs)
        or any(a is not b for a, b in zip(given, specs, strict=True))
        or sorted(sizes) != sorted(found.sizes)
    ):
        return None
    order = None if tuple(sizes) == tuple(found.sizes) else [sizes.index(n) for n in found.sizes]

    def cast(specs: tuple[Spec, ...], *sizes: int) -> Any:
        if HOOKS.recorder is not None or LOG.get() or not SHAPE_CLASSES.get():
            return None
        values = sizes if order is None else tuple([sizes[k] for k in order])
        found = shape_class.found(values)
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
_all: weakref.WeakSet[ShapeClasses] = weakref.WeakSet()


def _forget() -> None:
    """Drop plan templates, which can be made again: those of no use since this was done last, or all where that is too
    few of them.
    """
    forget_calls()  # what casts plans has its shape class
    _held[0] = sum(shape_classes.thin() for shape_classes in list(_all))
    if _held[0] > MAX_HELD // 2:
        for shape_classes in list(_all):
            shape_classes.clear()
        _held[0] = 0


def _derive(
    shape_class: ShapeClass,
    key: bytes,
    specs: Sequence[Spec | None],
    make: Callable[[ShapeEnv, list[SymbolicSpec | None]], Any],
    sizes: Sequence[int],
) -> Found | None:
    """Make a plan template for these sizes and keep it."""
    shape_env = ShapeEnv(sizes)
    shape_env.general = not shape_class.due
    shape_class.special += not shape_env.general
    shape_class.made += 1
    try:
        plan_template = make(shape_env, symbolic_specs(specs, key, shape_env.symbols))
        cast = shape_env.compiled(plan_template.numbers)
    except SpecializationError as reason:
        log("plan", f"no plan template, every new size is derived in full: {reason}")
        return None
    except Exception as error:
        if CHECK.get():
            raise
        # Sizes that do not fit: what is derived in full says so in the words that users know.
        log("plan", f"no plan template, every new size is derived in full: {type(error).__name__}: {error}")
        return None
    values = cast(*sizes)
    if values is None:
        raise AssertionError(f"conditions that do not hold where they were found: {shape_env.conditions()}")
    if _held[0] >= MAX_HELD:
        _forget()
    _held[0] += 1
    shape_class.keep((cast, plan_template), sizes, shape_env.left_out)
    return Found(plan_template, values, sizes, shape_class)


def _check(
    plan_template: Any,
    values: tuple[Any, ...],
    make: Callable[[ShapeEnv, list[SymbolicSpec | None]], Any],
    specs: Sequence[Spec | None],
    key: bytes,
    sizes: Sequence[int],
) -> None:
    """AssertionError where what is cast for these sizes differs from what is derived for them."""
    shape_env = ShapeEnv(sizes)
    fresh = make(shape_env, symbolic_specs(specs, key, shape_env.symbols))
    found = shape_env.compiled(fresh.numbers)(*sizes)
    if found is None:
        raise AssertionError(f"conditions that do not hold where they were found: {shape_env.conditions()}")
    made, wanted = plan_template.literal(values, sizes), fresh.literal(found, sizes)
    if made != wanted:
        raise AssertionError(f"for {list(specs)} is cast\n{made}\nbut derived\n{wanted}")

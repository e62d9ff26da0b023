"""The world outside of a trace: what the traced code reads of it, and how it comes in.

`Outside.wrap` takes a real value and where it comes from.  It guards what the trace will rely on, and gives the value
that the trace works on:

- tensors become stand-ins on the memoryless device;
- plain lists, tuples, dicts, sets and the like become copies of the trace's own, whose items are wrapped in turn; what
  is changed in a copy is put back when the trace ends;
- numbers, texts, dtypes, functions, classes and modules are themselves, and guarded as such;
- every other object is itself, guarded by its type.  Its attributes are wrapped when they are read, and writes to them
  wait for the end of the trace.
"""

from __future__ import annotations

import enum
import operator
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, cast

from rushlight._base.by_class import by_class
from rushlight._base.own_names import own_module
from rushlight._capture.bytecode import Generator
from rushlight._capture.bytecode.operations import in_python
from rushlight._capture.trace import wrappers
from rushlight._capture.trace.guards.sources import Reads, Source
from rushlight._capture.trace.guards.varying import NOTHING_VARIES, Tracing
from rushlight._capture.trace.objects import iterators
from rushlight._capture.trace.package_code import is_foreign_class
from rushlight._capture.trace.reports.events import Break
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.core.tensor import Tensor, was_changed
from rushlight._engine.dispatch.override import DisableTorchFunctionSubclass, has_override
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.layout import Size

__all__ = [
    "ABSENT",
    "CONTAINERS",
    "Append",
    "Lazy",
    "Outside",
    "Shadow",
    "grad_condition",
    "autograd_facts",
    "bound_to",
    "has_values",
    "has_end",
    "has_users_metaclass",
    "is_getter",
    "is_suspended",
    "is_plain",
    "is_traced_array",
    "Instead",
    "type_attribute",
]

ABSENT: Any = types.SimpleNamespace(name="absent")

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range, DType, Device)
# How a user's object of a class of plain values gives one of exactly that class: a method, further arguments.
_EXACT: dict[type, tuple[str, str]] = {
    int: ("__pos__", ""), float: ("__pos__", ""), complex: ("__pos__", ""), str: ("__str__", ""), bytes: ("__getitem__", ", slice(None)"),
}  # fmt: skip
_SINGLE = (
    type, types.ModuleType, types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.CodeType, types.GenericAlias, types.UnionType, property, staticmethod, classmethod,
)  # fmt: skip
# Of these modules' classes objects never change, and are guarded by what they are equal to.
_VALUE_MODULES = frozenset(("datetime", "decimal", "uuid", "fractions", "re", "pathlib", "ipaddress", "zoneinfo"))
_VALUE_CLASSES = frozenset((("optree", "PyTreeSpec"),))
CONTAINERS = (list, tuple, dict, set, frozenset, OrderedDict, defaultdict, deque)


_READ_NATIVELY = (list, tuple, dict, set, frozenset, deque, BaseException)


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a text or the like, with nothing inside that could change."""
    return _is_plain_value(value) or isinstance(value, slice)


def _is_plain_value(value: Any) -> bool:
    """Whether a number or text is plain, also a symbolic one, which only `isinstance` knows."""
    return isinstance(value, _PLAIN) and not _has_attributes(cast("Any", type(value)))


@by_class
def _has_attributes(kind: type) -> bool:
    """Whether a class is a user's own of numbers or texts, whose objects have attributes that change."""
    return issubclass(kind, _PLAIN) and in_python(kind) and is_foreign_class(kind) and not issubclass(kind, enum.Enum)


def exact_value(value: Any) -> Any:
    """The number or text of exactly a class of Python's that an object of a user's class of these is."""
    base = next(each for each in type(value).__mro__ if each in _EXACT)
    method = getattr(base, _EXACT[base][0])
    return method(value, slice(None)) if base is bytes else method(value)


def is_traced_array(value: Any) -> bool:
    """Whether a value is an array of the trace (`arrays.TracedArray`, whose file needs NumPy)."""
    return type(value).__name__ == "TracedArray"


def is_getter(value: Any) -> bool:
    """Whether this is an `itemgetter`, `attrgetter` or `methodcaller` with plain arguments: an object without state."""
    if type(value) not in (operator.itemgetter, operator.attrgetter, operator.methodcaller):
        return False
    kind, args = value.__reduce__()[:2]
    return kind is type(value) and all(is_plain(x) for x in args)


@by_class
def is_native_kind(kind: type) -> bool:
    """Whether objects of a class hold what only native code can read: an array, a file, a lock."""
    for each in kind.__mro__:
        if each in (bytearray, memoryview):
            return True
        if each is object or each in CONTAINERS or each in _PLAIN or each.__module__ == "builtins":
            continue
        if not in_python(each):
            return True
        own = vars(each)
        native = (types.MethodDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType)
        if any(isinstance(x, native) and name not in ("__dict__", "__weakref__") for name, x in own.items()):
            return True
    return False


def has_users_metaclass(kind: type) -> bool:
    """Whether operations on a class may run a user's Python code."""
    meta = type(kind)
    root = own_module(getattr(meta, "__module__", None)).partition(".")[0]
    return meta is not type and root != "rushlight" and root not in sys.stdlib_module_names


def is_suspended(value: Any) -> bool:
    """Whether a value is a generator or the like that waits somewhere behind its beginning."""
    if type(value) is Generator:
        return value.started and value.frame is not None
    return isinstance(value, types.GeneratorType) and type(value) is types.GeneratorType and bool(value.gi_frame)


def has_end(value: Any) -> bool:
    """Whether an object does something when it is let go of."""
    return is_suspended(value) or hasattr(type(value), "__del__")


def grad_condition(x: Tensor) -> str:
    """A condition that a tensor has a gradient or none, without the warning of `x.grad`."""
    if x._node is None:
        return f"({{}}.grad is None) is {x.grad is None}"
    meta = x._autograd_meta
    if meta is None or meta.grad is None:
        return "{}._autograd_meta is None or {}._autograd_meta.grad is None"
    return "{}._autograd_meta.grad is not None"


def autograd_facts(x: Tensor) -> int:
    """Autograd state of a tensor on which a trace relies, besides its flags.

    1 with hooks, 2 with hooks after accumulation, 4 made in inference mode.  `words` knows in which words of the tensor
    this is.
    """
    meta = x._autograd_meta
    if meta is None:
        return 0
    return (bool(meta.hooks) + 2 * bool(meta.post_hooks) if x._rg else 0) + 4 * meta.inference


def _flags(x: Tensor) -> tuple[bool, bool]:
    """Whether a tensor requires a gradient and is a leaf, asked of no override of its class."""
    with DisableTorchFunctionSubclass():
        return x.requires_grad, x.is_leaf


class Lazy:
    """A value from outside that nobody has looked at: it is wrapped, and guarded, when somebody does.

    What was appended to a list meanwhile is in `appended`: to append, nobody has to know what a list holds.  `dropped`,
    if not None, is called when the program lets go of the value.
    """

    __slots__ = ("__weakref__", "appended", "dropped", "outside", "real", "source", "value")

    def __init__(self, outside: Outside, real: Any, source: Source) -> None:
        self.outside, self.real, self.source = outside, real, source
        self.value: Any = ABSENT
        self.appended: list[Any] = []
        self.dropped: Callable[[Any], None] | None = None

    def __del__(self) -> None:
        if self.dropped is not None:
            self.dropped(self.real)

    def realise(self) -> Any:
        """The traced object in its place, wrapped on first use."""
        if self.value is ABSENT:
            self.value = self.outside.wrap(self.real, self.source)
            if self.appended:
                self.value.extend([x.realise() if type(x) is Lazy else x for x in self.appended])
                self.appended = []
        return self.value


class Append:
    """`append` of a list from outside that nobody has looked at."""

    __slots__ = ("lazy",)

    def __init__(self, lazy: Lazy) -> None:
        self.lazy = lazy


class Shadow:
    """A container from outside: `real`, the copy that the trace works on, and what the copy held at first."""

    __slots__ = ("before", "copy", "real", "source")

    def __init__(self, real: Any, copy: Any, source: Source) -> None:
        self.real, self.copy, self.source = real, copy, source
        self.before = _items(copy)

    def changed(self) -> bool:
        """Whether the trace has changed the copy."""
        now = _items(self.copy)
        return len(now) != len(self.before) or any(a is not b for a, b in zip(now, self.before, strict=True))


def _items(container: Any) -> list[Any]:
    if isinstance(container, dict):
        return [x for item in container.items() for x in item]
    return list(container)


def _is_numpy_number(value: Any) -> bool:
    return "numpy" in sys.modules and isinstance(value, sys.modules["numpy"].generic)


def _no_host_number(value: float, source: Source) -> Any:
    """Outside of a trace no number is passed on."""
    raise LookupError(f"no trace takes {source} as a number that calls pass on")


class Outside:
    """Objects from outside of a trace: their sources, stand-ins and changes."""

    def __init__(self, reads: Reads, stand_in: Callable[..., Tensor], internal: Callable[[Any], bool]) -> None:
        self.reads, self.stand_in, self.internal = reads, stand_in, internal
        self.sources: dict[int, Source] = {}  # of objects from outside, by identity
        self.values: dict[int, Any] = {}  # what the trace works on in the place of a real object
        self.shadows: dict[int, Shadow] = {}  # by the identity of the copy
        self.tensors: dict[int, tuple[Tensor, Source]] = {}  # by the identity of the stand-in
        self.begun: dict[int, tuple[Tensor, Any, int, Any]] = {}  # stand-ins, how they lay in memory, and in which
        self.attributes: dict[int, dict[str, Any]] = {}  # writes that wait: object -> name -> value
        self.recreated: set[tuple[int, str]] = set()  # those of them that were deleted before: they come last
        self.globals: dict[int, dict[str, Any]] = {}
        self.lazies: dict[int, Lazy] = {}
        self.opaque: set[int] = (
            set()
        )  # identities of objects that only native code can read, so that nothing of them is guarded
        self.unread: set[int] = set()  # of those of which native code would read what is not guarded
        self.changing: frozenset[str] = frozenset()  # places of numbers that are not guarded by their values
        self.numbers: dict[str, float] = {}  # places and values of those that are
        self.varying: Tracing = NOTHING_VARIES.tracing()
        self.hosted: dict[str, tuple[Source, Any, float]] = {}  # numbers that calls pass on, and what they are now
        self.host_number: Callable[[float, Source], Any] = _no_host_number
        self.hooks: Callable[[Tensor, Tensor, Source], None] = lambda real, made, source: None
        self.wrappers: list[wrappers.Given] = []
        self.behind: Callable[[Tensor], list[Any]] = lambda real: []  # edges to what lies in the history of a tensor
        self.spread: Callable[[], None] = lambda: None  # called when a wrapper comes in
        self.kept: list[Any] = []
        self.arrays: dict[int, Source] = {}  # of NumPy's arrays in the trace, by identity
        self.array: Callable[[Any, Source], Any] = lambda value, source: None
        self.iterators: dict[int, tuple[Any, Source, Any]] = {}  # the trace's, their sources and the real ones
        self.followed: Callable[[Any], Any] = lambda function: function
        # Of objects that do something when they are let go of: `dropped` is called when the trace does.
        self.ending: weakref.WeakValueDictionary[int, Lazy] = weakref.WeakValueDictionary()
        self.dropped: Callable[[Any], None] | None = None
        self.repeats: Any = None  # hears of what comes in (see `repeats`)
        self.came: dict[int, tuple[Any, Source]] = {}  # objects that have an identity, and where they came in first
        self.seen: dict[int, Source] = {}  # of objects whose conditions are there, though nobody wrapped them

    def release(self) -> None:
        """Forget all that came in."""
        self.repeats = None
        self.host_number, self.dropped, self.array = _no_host_number, None, lambda value, source: None
        self.spread, self.followed = lambda: None, lambda function: function
        self.behind = lambda real: []
        self.wrappers.clear()
        self.came.clear()
        self.arrays.clear()
        self.iterators.clear()
        for lazy in list(self.ending.values()):
            lazy.dropped = None
        for held in (
            self.sources, self.values, self.shadows, self.tensors,
            self.begun, self.attributes, self.recreated, self.globals, self.lazies, self.kept, self.opaque, self.unread, self.seen,
        ):  # fmt: skip
            held.clear()

    # ***** coming in *****

    def lazy(self, value: Any, source: Source) -> Any:
        """`wrap`, put off until somebody looks at the value."""
        if isinstance(value, types.CellType):
            return self.wrap(value, source)
        if _is_plain_value(value):
            return Lazy(self, value, source)
        if self.repeats is not None:
            self.repeats.bar(source)
        ends = has_end(value)
        known = (self.ending if ends else self.lazies).get(id(value))
        if known is None:
            if id(value) in self.values:
                return self.wrap(value, source)
            self.kept.append(value)
            known = Lazy(self, value, source)
            if ends:
                known.dropped, self.ending[id(value)] = self.dropped, known
            else:
                self.lazies[id(value)] = known
        elif known.source is not source:
            self.reads.load(known.source)
            self.reads.check(source, f"{{}} is {known.source.variable}")
        return known

    def wrap(self, value: Any, source: Source) -> Any:
        """The traced stand-in for `value`, which comes from `source`."""
        if _is_plain_value(value):
            if (type(value) is int or type(value) is float) and not source.is_constant:
                return self._wrap_number(value, source)
            self.guard_plain(value, source)
            return value
        known = self.values.get(id(value), ABSENT)
        if known is ABSENT and (waiting := self.lazies.pop(id(value), None)) is not None:
            known = waiting.realise()  # it may have been appended to
        if known is not ABSENT:
            first = self.sources[id(value)]
            if self.repeats is not None:
                self.repeats.came_in(value, source, known)
            if first is not source and not source.is_constant:
                self.reads.load(first)
                self.reads.require(source, f"{{}} is {first.variable}")
            return known
        if (first := self.seen.get(id(value), source)) is not source and not source.is_constant:
            self.reads.load(first)
            self.reads.require(source, f"{{}} is {first.variable}")
        start = 0 if self.repeats is None else len(self.repeats.heard)
        wrapped = self._wrap_new(value, source)
        self.kept.append(value)
        self.values[id(value)], self.sources[id(value)] = wrapped, source
        if not self._is_value(value, wrapped):
            self.came.setdefault(id(value), (value, source))
        if self.repeats is not None:
            self.repeats.came_in(value, source, wrapped, start)
        return wrapped

    def first_source(self, value: Any) -> Source | None:
        """Where an object came in first; None for one that did not."""
        return self.sources.get(id(value)) or self.seen.get(id(value))

    def adopt(self, value: Any, source: Source) -> None:
        """Note where an object comes from that needs no other condition than its source's."""
        if self.repeats is not None:
            self.repeats.bar(source)
        if id(value) not in self.sources:
            self.kept.append(value)
            self.values[id(value)], self.sources[id(value)] = value, source
            if isinstance(value, types.CellType):
                self.came.setdefault(id(value), (value, source))

    def saw(self, value: Any, source: Source) -> None:
        """Note where an object comes from whose conditions are there, though nobody wrapped it."""
        self.seen.setdefault(id(value), source)
        self.came.setdefault(id(value), (value, source))

    def require_distinct(self, *values: Any) -> None:
        """The trace tells objects apart by their identity: of those that never change too."""
        for value in values:
            if (source := self.sources.get(id(value))) is not None and self._is_value(value, value):
                self.came.setdefault(id(value), (value, source))

    def identities(self) -> list[tuple[Any, Source]]:
        """Objects that must not become one, and where they came in first."""
        appended = [(each.real, each.source) for each in self.lazies.values() if each.appended]
        return [*self.came.values(), *appended]

    def _is_value(self, value: Any, wrapped: Any) -> bool:
        """Whether an object never changes and is guarded by what it is equal to."""
        if isinstance(value, (tuple, slice, frozenset)):
            return wrapped is value or isinstance(value, frozenset)
        kind = type(value)
        return has_values(kind) or _is_numpy_number(value) or kind.__module__ == "numpy.dtypes"

    def _wrap_new(self, value: Any, source: Source) -> Any:
        kind = type(value)
        if isinstance(value, Tensor):
            return self._wrap_tensor(value, source)
        if is_suspended(value):
            raise Break("goes on with a generator from outside")
        if kind in CONTAINERS or kind is Size or (isinstance(value, tuple) and hasattr(kind, "_fields")):
            return self._wrap_container(value, source)
        if kind is types.MappingProxyType:
            held = self.wrap(dict(value), self.reads.source("dict({})", source))
            copy = types.MappingProxyType(held)
            self.kept.append(copy)
            self.shadows[id(copy)] = Shadow(value, copy, source)
            return copy
        if isinstance(value, slice):
            self.reads.check(source, f"{{}} == {self.reads.constants.name(value)}")
            return value
        if kind is types.BuiltinFunctionType and bound_to(value) is not None:
            return self._wrap_method(value, source)
        if isinstance(value, (*_SINGLE, enum.Enum)) or self.internal(value):
            self.reads.check(source, f"{{}} is {self.reads.constants.name(value)}")
            return value
        if kind is types.FunctionType:
            self._guard_function(value, source)
            return value
        if kind is types.MethodType:
            self.reads.check(source, "type({}) is " + self.reads.constants.name(kind))
            function = self.wrap(value.__func__, self.reads.source("{}.__func__", source))
            return types.MethodType(function, self.wrap(value.__self__, self.reads.source("{}.__self__", source)))
        name = self.reads.constants.name
        if kind.__module__ in ("numpy", "numpy.dtypes"):
            found = self._wrap_of_numpy(value, kind, source)
            if found is not ABSENT:
                return found
        if has_values(kind) or own_module(kind.__module__) in HOOKS.values or _is_numpy_number(value):
            self.reads.check(source, f"type({{}}) is {name(kind)} and {{}} == {name(value)}")
            return value
        if is_getter(value):
            self.reads.check(
                source, f"type({{}}) is {name(kind)} and {{}}.__reduce__()[1] == {name(value.__reduce__()[1])}"
            )
            return value
        self.reads.check(source, "type({}) is " + name(kind))
        if isinstance(value, _PLAIN):
            base = next(each for each in kind.__mro__ if each in _EXACT)
            exact = self.reads.source(f"{name(base)}.{_EXACT[base][0]}({{}}{_EXACT[base][1]})", source)
            self.guard_plain(exact_value(value), exact)
        if iterators.is_followed(value):
            found = iterators.given(self, self.followed, value, source)
            if found is not None:
                self.kept.append(found)
                self.iterators[id(found)] = (found, source, value)
                return found
        if kind is types.SimpleNamespace:
            self.unread.add(id(value))
        elif is_native_kind(cast("Any", kind)):
            self.opaque.add(id(value))
        elif isinstance(value, _READ_NATIVELY) or hasattr(kind, "__next__"):
            self.unread.add(id(value))
        return value

    def _wrap_of_numpy(self, value: Any, kind: type, source: Source) -> Any:
        """An array, a function or a dtype of NumPy; ABSENT for other objects, and for arrays that are not traced."""
        if kind.__name__ == "ndarray":
            found = self.array(value, source)
            return ABSENT if found is None else found
        if kind.__module__ == "numpy.dtypes":
            self.reads.check(source, f"{{}} == {self.reads.constants.name(value)}")
            return value
        if kind.__name__ in ("ufunc", "_ArrayFunctionDispatcher"):
            self.reads.check(source, f"{{}} is {self.reads.constants.name(value)}")
            return value
        return ABSENT

    def _wrap_method(self, value: Any, source: Source) -> Any:
        """A native method, which is made anew whenever it is looked up, bound to what the trace works on."""
        if not source.is_constant:  # nobody changes the name of one
            kind = self.reads.constants.name(type(value))
            self.reads.check(source, f"type({{}}) is {kind} and {{}}.__name__ == {value.__name__!r}")
        owner = self.lazy(value.__self__, self.reads.source("{}.__self__", source))
        if type(owner) is Lazy:
            if value.__name__ == "append" and type(owner.real) is list and owner.value is ABSENT:
                return Append(owner)
            owner = owner.realise()
        if is_traced_array(owner):
            raise Break(f"calls the method '{value.__name__}' of a NumPy array")
        return getattr(owner, value.__name__)

    def _wrap_number(self, value: float, source: Source) -> Any:
        """An int or float: guarded by its value, or a number that each call passes on where its value is known to
        change, or a symbol where it is used as a size.
        """
        place = str(source)
        symbol = self.varying.integer(value, place, source) if type(value) is int else None
        if symbol is not None:
            self.reads.check(source, f"type({{}}) is int and {{}} == {self.reads.constants.name(symbol)}")
            return symbol
        if place not in self.changing:
            self.numbers[place] = value
            if self.repeats is not None:
                self.repeats.number(source)
            self.guard_plain(value, source)
            return value
        self.reads.check(source, f"type({{}}) is {type(value).__name__}")
        if place not in self.hosted:
            self.hosted[place] = source, self.host_number(value, source), value
        return self.hosted[place][1]

    def guard_plain(self, value: Any, source: Source) -> None:
        """Require that a plain value is what it is."""
        if source.is_constant:
            return
        name, check = self.reads.constants.name, self.reads.check
        if value is None or isinstance(value, (bool, DType, type(Ellipsis), type(NotImplemented))):
            check(source, f"{{}} is {name(value)}")
        elif isinstance(value, Device):
            check(source, f"{{}} is {name(value)}")
        elif isinstance(value, float) and (value != value or value == 0):
            check(source, f"type({{}}) is {name(type(value))} and repr({{}}) == {repr(value)!r}")
        elif isinstance(value, (int, float, str, bytes)) and type(value) in (int, float, str, bytes):
            literal = (
                repr(value)
                if isinstance(value, (int, str)) and len(repr(value)) < 40 and "{" not in repr(value)
                else name(value)
            )
            check(source, f"type({{}}) is {type(value).__name__} and {{}} == {literal}")
        else:
            check(source, f"type({{}}) is {name(type(value))} and {{}} == {name(value)}")

    def _guard_function(self, value: types.FunctionType, source: Source) -> None:
        """A function is what its code is; its closure and its defaults are read when it is called."""
        constants = self.reads.constants
        held = value.__dict__
        if held.get("_torchdynamo_wrapper_id") == id(value) and "_torchdynamo_disable" not in held:
            self.reads.check(source, f"{{}} is {constants.name(value)}")  # the code of compiled functions is not theirs
            return
        self.reads.check(source, "type({}) is " + constants.name(types.FunctionType))
        self.reads.check(source, f"{{}}.__code__ is {constants.name(value.__code__)}")
        self.reads.check(source, f"{{}}.__globals__ is {constants.name(value.__globals__)}")

    def _wrap_tensor(self, value: Tensor, source: Source, varies: bool = True) -> Tensor:
        if was_changed(value):
            raise Break("uses a view made without gradients whose memory was changed since")
        constants, place = self.reads.constants, str(source)
        facts = wrappers.facts(value)
        layout = self.varying.layout(value, place, source) if varies and facts is None else value._spec
        with DisableTorchFunctionSubclass():
            flags = f"{{}}.requires_grad is {value.requires_grad} and {{}}.is_leaf is {value.is_leaf}"
        if has_override((value,), {}) and (
            type_attribute(type(value), "__torch_function__") is not type_attribute(Tensor, "__torch_function__")
        ):  # whoever asks for its flags runs a user's code
            flags = f"{constants.name(_flags)}({{}}) == {_flags(value)}"
        self.reads.check(
            source,
            f"type({{}}) is {constants.name(type(value))} and {{}}._spec is {constants.name(layout)} and {flags}"
            f" and {constants.name(autograd_facts)}({{}}) == {autograd_facts(value)}",
        )
        if facts is None:
            made = self.stand_in(value, layout=layout)
        else:
            self.spread()
            if autograd_facts(value):
                raise Break(f"a {type(value).__name__} with hooks, or made in inference mode")
            made = wrappers.stand_in(self, value, source, facts, grad_condition(value))
        self.kept.append(made)
        self.tensors[id(made)] = (value, source)
        self.begun[id(made)] = made, made._spec, made._ptr, made._storage
        self.hooks(value, made, source)
        return made

    def is_changed(self, made: Tensor) -> bool:
        """Whether a tensor from outside has another shape, other strides or other memory than it came in with."""
        known = self.begun.get(id(made))
        return known is not None and (made._spec is not known[1] or made._ptr != known[2])

    def is_relaid(self, made: Tensor) -> bool:
        """Whether a changed tensor is another view of the memory that it came in with, outside of any graph: the
        segment can do the same.
        """
        real, _ = self.tensors[id(made)]
        storage, numbers = made._storage, (*made._spec.shape, *made._spec.strides)
        inside = storage is not None and storage.ptr <= made._ptr < storage.ptr + max(1, storage.nbytes)
        return (
            inside
            and storage is self.begun[id(made)][3]
            and not (made._rg or real._rg)
            and all(type(n) is int for n in numbers)
            and type(made) is type(real) is Tensor
        )

    def part(self, value: Tensor, source: Source) -> Tensor:
        """The traced stand-in for a tensor inside of a wrapper, with constant sizes."""
        known = self.values.get(id(value))
        if known is None:
            known = self._wrap_tensor(value, source, False)
            self.kept.append(value)
            self.values[id(value)], self.sources[id(value)] = known, source
            self.came.setdefault(id(value), (value, source))
        return cast("Tensor", known)

    def _wrap_container(self, value: Any, source: Source) -> Any:
        constants, kind = self.reads.constants, type(value)
        check = self.reads.check
        if kind is OrderedDict and vars(value):
            raise Break("an OrderedDict from outside that has attributes")
        size = f"len({{}}) == {len(value)}" if value else "not {}"
        check(source, f"type({{}}) is {constants.name(kind)} and {size}")
        if isinstance(value, (set, frozenset)):
            if not all(isinstance(item, (*_PLAIN, *_SINGLE)) for item in value):
                raise Break(f"a {kind.__name__} from outside holds objects: {_short(value)}")
            if value:
                check(source, f"{{}} == {constants.name(frozenset(value))}")
            copy: Any = kind(value)
        elif isinstance(value, dict):
            if "__builtins__" in value or ("__spec__" in value and "__loader__" in value):
                raise Break("a module's namespace is used as a dict")
            copy = self._wrap_dict(value, source)
        elif kind is deque:
            copy = deque(
                [self.wrap(x, self.reads.source(f"{{}}[{i}]", source)) for i, x in enumerate(value)], value.maxlen
            )
        else:
            items = [self.wrap(x, self.reads.source(f"{{}}[{i}]", source)) for i, x in enumerate(value)]
            copy = items if kind is list else kind._make(items) if hasattr(kind, "_make") else kind(items)
            if kind is not Size and isinstance(value, tuple) and all(a is b for a, b in zip(items, value, strict=True)):
                return value
        self.kept.append(copy)
        self.shadows[id(copy)] = Shadow(value, copy, source)
        return copy

    def _wrap_dict(self, value: dict[Any, Any], source: Source) -> dict[Any, Any]:
        name, keys = self.reads.constants.name, list(value)
        if isinstance(value, defaultdict):
            self.reads.check(source, f"{{}}.default_factory is {name(value.default_factory)}")
        if not keys:
            return defaultdict(value.default_factory) if isinstance(value, defaultdict) else type(value)()
        plain = all(
            isinstance(k, (*_PLAIN, *_SINGLE, types.FunctionType, enum.Enum))
            or (type(k) is tuple and all(map(is_plain, k)))
            for k in keys
        )
        if plain:
            self.reads.check(source, f"[*{{}}] == {name(keys)}")
            places = [name(k) if not isinstance(k, (str, int)) else repr(k) for k in keys]
            sources = [self.reads.source(f"{{}}[{place}]", source) for place in places]
            wrapped_keys = keys
        else:  # tensors and objects as keys: by their order
            values = self.reads.source("[*{}.values()]", source)
            listed = self.reads.source("[*{}]", source)
            sources = [self.reads.source(f"{{}}[{i}]", values) for i in range(len(keys))]
            wrapped_keys = [self.wrap(k, self.reads.source(f"{{}}[{i}]", listed)) for i, k in enumerate(keys)]
        copy: Any = defaultdict(value.default_factory) if isinstance(value, defaultdict) else type(value)()
        for key, real, place in zip(wrapped_keys, value.values(), sources, strict=True):
            copy[key] = self.wrap(real, place)
        return copy

    # ***** questions *****

    def source_of(self, value: Any) -> Source | None:
        """Where an object comes from that the trace works on; None for one that it made."""
        found = self.tensors.get(id(value))
        if found is not None:
            return found[1]
        shadow = self.shadows.get(id(value))
        if shadow is not None:
            return shadow.source
        if id(value) in self.iterators:
            return self.iterators[id(value)][1]
        return self.sources.get(id(value))

    def is_outside(self, value: Any) -> bool:
        """Whether this is an object from outside whose attributes are read and written through this room."""
        return id(value) in self.sources and id(value) not in self.shadows


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."


class Instead:
    """The result of a call in the place of what its frame returns."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, returned: Any) -> Any:
        if returned is not None and not isinstance(self.value, type(None)):
            raise TypeError(f"__init__() should return None, not '{type(returned).__name__}'")
        return self.value


def has_values(kind: type) -> bool:
    """Whether objects of a class never change, and are guarded by what they are equal to."""
    return kind.__module__ in _VALUE_MODULES or (kind.__module__, kind.__name__) in _VALUE_CLASSES


def bound_to(function: Any) -> Any:
    """The object whose method a native function is; None for functions of modules, and for those whose `__self__` does
    not name them: the functions of an extension may keep a record of their signatures there.
    """
    owner = getattr(function, "__self__", None)
    if owner is None or isinstance(owner, types.ModuleType):
        return None
    if type(function) is types.BuiltinFunctionType:
        kinds = (type(owner), owner) if isinstance(owner, type) else (type(owner),)
        if all(type_attribute(kind, function.__name__) is ABSENT for kind in kinds):
            return None
    return owner


def type_attribute(kind: type, name: str) -> Any:
    """An attribute of a class as its dictionaries have it; ABSENT where there is none."""
    for each in kind.__mro__:
        if name in each.__dict__:
            return each.__dict__[name]
    return ABSENT

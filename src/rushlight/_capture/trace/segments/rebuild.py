"""Making values anew after a program has run: expressions for what the trace holds, and the statements that bring the
world to the same state.

Tensors that the program made are its outputs.  What came from outside is found where it came from.  Containers and
objects that the trace made are made again, each once, so that two names of one object still name one.
"""

from __future__ import annotations

import enum
import gc
import inspect
import sys
import types
import warnings
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any

from rushlight._base.handles import RemovableHandle
from rushlight._capture.bytecode import NULL, Frame, Generator, Operations
from rushlight._capture.bytecode.operations import in_python
from rushlight._capture.bytecode.tracebacks import entries, traceback_of
from rushlight._capture.recording import HostNumber, shown
from rushlight._capture.recording.element_numbers import ElementNumber
from rushlight._capture.trace import wrappers
from rushlight._capture.trace.calls import Followed
from rushlight._capture.trace.hooks import HandleId, handle_tables
from rushlight._capture.trace.numbers.unknown_sizes import is_unknown
from rushlight._capture.trace.objects.instances import DELETED, InstanceDict, name_in_dict
from rushlight._capture.trace.objects.iterators import Ahead, Numbered, indexed, stepped, stepping
from rushlight._capture.trace.outside import (
    ABSENT,
    Append,
    Instead,
    Lazy,
    bound_to,
    exact_value,
    has_end,
    has_values,
    is_getter,
    is_plain,
    is_traced_array,
    type_attribute,
)
from rushlight._capture.trace.reports.events import Unbuildable
from rushlight._capture.trace.reports.warned import Caught
from rushlight._capture.trace.tracer import Tracer, gives_itself, is_empty, own_dict
from rushlight._engine.autograd.node import Node
from rushlight._engine.core.tensor import Tensor
from rushlight._types.device import Device
from rushlight._types.shape_env import Undecided
from rushlight._types.spec import Spec

__all__ = ["PLAIN", "Rebuild"]

_ONE_OF_EACH: list[Any] = [
    iter([]), iter(()), iter(range(0)), iter({}), iter({}.values()), iter({}.items()), iter(set()), iter(""), enumerate([]), zip(), reversed([]),
    iter(reversed({})), map(str, ()), filter(None, ()),
]  # fmt: skip
_ITERATORS = tuple(type(x) for x in _ONE_OF_EACH)

_STEPPING = (stepping.__code__, indexed.__code__)

PLAIN = Operations()  # what runs instructions that are not traced, and generators that go on with them


def begun(template: Frame, places: list[Any], stack: list[Any], started: bool) -> Generator:
    """A generator that goes on with a frame."""
    frame = template.copy()
    frame.locals, frame.stack = places, stack
    made = Generator(frame, PLAIN)
    made.started = started
    return made


def relay(x: Tensor, spec: Any, step: int) -> None:
    """Let a tensor show other elements of its memory, the first of them `step` bytes behind the one that it showed."""
    x._spec, x._ptr = spec, x._ptr + step


def _stays(value: Any) -> bool:
    """Whether a local that nobody reads any more has to live as long as its frame."""
    return type(value) is types.CellType or _reaches_end(value)


def _reaches_end(value: Any, depth: int = 4) -> bool:
    """Whether a value does something when it is let go of, or holds one that does."""
    if type(value) is Lazy:
        value = value.real if value.value is ABSENT else value.value
    if has_end(value):
        return True
    if value is None or isinstance(value, (str, int, float, Tensor, type, types.ModuleType)) or not depth:
        return False
    return any(_reaches_end(each, depth - 1) for each in _held(value))


def _held(value: Any) -> Iterable[Any]:
    """Direct contents of a container, a function or an object."""
    if isinstance(value, dict):
        return [*dict.keys(value), *dict.values(value)]
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return list(value)
    if isinstance(value, types.FunctionType):
        return [*(value.__closure__ or ()), *(value.__defaults__ or ())]
    if isinstance(value, types.MethodType):
        return [value.__self__]
    if isinstance(value, types.CellType):
        return () if is_empty(value) else [value.cell_contents]
    if type(value) is Generator:
        return () if value.frame is None else [*value.frame.locals, *value.frame.stack]
    if gives_itself(type(value)):
        return gc.get_referents(value)
    return list(own_dict(value).values())


def _is_python(kind: type) -> bool:
    """Whether objects of a class hold nothing but attributes, and the items or the value of a known class: classes in
    Python over one of these.
    """
    if kind is types.SimpleNamespace:
        return True
    for each in kind.__mro__:
        if not in_python(each):
            return each in (object, dict, OrderedDict, list, set, deque, int, float, complex, str, bytes)
        if any(
            isinstance(x, (types.MethodDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType))
            and x.__objclass__ is each
            for name, x in vars(each).items()
            if name not in ("__dict__", "__weakref__")
        ):
            return False
    return False


class Rebuild:
    """Writes statements that make values anew; `outputs` are the tensors that the program has to return."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer, self.outside, self.made_classes = tracer, tracer.outside, tracer.made_classes
        self.lines: list[str] = []
        self.outputs: list[Any] = []
        self.left: list[tuple[Tensor, Any]] = []  # wrappers with histories, each with the form of its gradient
        self.inner: set[int] = set()  # which of these others are computed from
        self.inside: dict[int, str] = {}  # what the program is given in the place of inputs inside of wrappers
        self.places: dict[int, str] = {}
        self.kept: list[Any] = []
        self.count = 0
        self.leaves = False  # whether the function ends with the segment

    def constant(self, value: Any) -> str:
        """An object that is the same at every call."""
        return self.tracer.constants.name(value)

    def source(self, source: Any) -> str:
        """The value of a source."""
        return str(self.tracer.reads.need(source))

    def variable(self, text: str, value: Any) -> str:
        """A variable with the value of an expression, which stands for `value` from now on."""
        self.count += 1
        name = f"r{self.count}"
        self.lines.append(f"{name} = {text}")
        self.places[id(value)] = name
        self.kept.append(value)
        return name

    def value(self, value: Any) -> str:
        """An expression for a value of the trace."""
        if value is None or value is True or value is False or value is Ellipsis:
            return repr(value)
        if self.made_classes:
            kind = value if isinstance(value, type) else type(value)
            if id(kind) in self.made_classes:
                raise Unbuildable(f"the class {kind.__name__}, which the function makes at each call", kind)
        if isinstance(value, Device):
            return self.constant(shown(value))
        if type(value) is Undecided and id(value) not in getattr(self.tracer, "numbered", ()):
            raise Unbuildable("a condition on sizes that elements tell, which no node of a graph computes", value)
        if type(value) is Undecided or is_unknown(value):
            return self.number(value)
        if type(value) is HandleId:
            return f"{self.value(value.handle)}.id"
        if is_plain(value) and not isinstance(value, slice):
            return repr(value) if type(value) in (int, str) and len(repr(value)) < 30 else self.constant(value)
        if type(value) is Lazy:
            return self.source(value.source) if value.value is ABSENT else self.value(value.value)
        known = self.places.get(id(value))
        if known is not None:
            return known
        if isinstance(value, Tensor):
            return self.tensor(value)
        if isinstance(value, HostNumber):
            return self.number(value)
        shadow = self.outside.shadows.get(id(value))
        if shadow is not None:
            return self.source(shadow.source)
        if id(value) in self.outside.iterators:
            return self.source(self.outside.iterators[id(value)][1])
        source = self.outside.sources.get(id(value))
        if source is not None and self.outside.values.get(id(value)) is value:
            return self.source(source)
        return self.made(value)

    def tensor(self, value: Tensor) -> str:
        known = self.outside.tensors.get(id(value))
        if known is not None:
            return self.source(known[1])
        if not self.tracer.rec.is_recorded(value):
            raise Unbuildable("a tensor that was not recorded", value)
        if wrappers.facts(value) is not None:
            return wrappers.expression(self, value)
        self.outputs.append(value)
        name = f"o[{len(self.outputs) - 1}]"
        self.places[id(value)] = name
        self.kept.append(value)
        held = dict(getattr(value, "__dict__", {}).items())
        for attribute, each in held.items():
            self.lines.append(f"{name}.{attribute} = {self.value(each)}")
        return name

    def number(self, value: Any) -> str:
        """A number that the program computes: on the host, an element of a tensor, or a size that elements tell."""
        tensor = self.tracer.as_output(value) if isinstance(value, ElementNumber) else None
        if tensor is not None:
            return self.variable(f"{self.tensor(tensor)}.item()", value)
        if id(value) in self.places:  # a size of several tensors
            return self.places[id(value)]
        self.outputs.append(value)
        name = self.places[id(value)] = f"o[{len(self.outputs) - 1}]"
        self.kept.append(value)
        return name

    # ***** what the trace made *****

    def made(self, value: Any) -> str:
        kind = type(value)
        if isinstance(value, InstanceDict):
            return f"{self.value(value.owner)}.__dict__"
        if kind is types.MethodType and isinstance(value.__self__, InstanceDict):
            return f"{self.value(value.__self__)}.{name_in_dict(value.__func__)}"
        if isinstance(value, enum.Enum) and is_member(value):
            return self.constant(value)  # which native code of the enumeration gave
        if kind in (list, set, deque):
            return self.mutable(value, kind)
        if kind in (tuple, frozenset):
            items = "".join(f"{self.value(x)}, " for x in value)
            return f"({items})" if kind is tuple else f"frozenset(({items}))"
        if kind is slice:
            return f"slice({self.value(value.start)}, {self.value(value.stop)}, {self.value(value.step)})"
        if is_traced_array(value):
            return self.array(value)
        if kind.__name__ == "ArrayMethod" and self.tracer.follows_numpy:
            return f"{self.value(value.array)}.{value.name}"
        if isinstance(value, tuple):
            return self.tuple_of_class(value, kind)
        if kind in (dict, OrderedDict, defaultdict):
            return self.mapping(value, kind)
        if kind is types.MethodType:
            return f"{self.constant(types.MethodType)}({self.value(value.__func__)}, {self.value(value.__self__)})"
        if kind is types.FunctionType:
            name = name_in_dict(value)
            return self.function(value) if name is None else self.constant(getattr(dict, name))
        if kind is types.CellType:
            return self.cell(value)
        if isinstance(value, (types.BuiltinFunctionType, types.MethodWrapperType)):
            owner = bound_to(value)
            if owner is None:
                return self.constant(value)
            return f"{self.value(owner)}.{value.__name__}"
        if kind is Caught:  # one that was entered is left in the same trace
            return self.variable(f"{self.constant(warnings.catch_warnings)}()", value)
        if kind is weakref.ref:
            return self.variable(f"{self.constant(kind)}({self.value(value())})", value)
        if isinstance(value, Node):
            raise Unbuildable("a node of a history", value)
        if kind is RemovableHandle:
            table, *more = [self.value(each) for each in handle_tables(value)]
            return self.variable(f"{self.constant(kind)}({table}, extra_dict=[{', '.join(more)}])", value)
        if self.outside.internal(value) or is_getter(value) or has_values(kind):
            return self.constant(value)
        if kind is Append:
            return f"{self.source(value.lazy.source)}.append"
        if kind is Followed:
            return self.value(value.function)
        if isinstance(
            value, (type, types.ModuleType, types.WrapperDescriptorType, types.MethodDescriptorType, types.CodeType)
        ):
            return self.constant(value)
        if kind in _ITERATORS:
            return self.iterator(value)
        if kind is Instead:
            return f"{self.constant(Instead)}({self.value(value.value)})"
        if type(value) is Generator:
            return self.generator(value)
        if kind is types.GeneratorType and value.gi_code in _STEPPING:
            return self.stepping(value)
        if _is_python(kind):
            return self.instance(value, kind)
        if isinstance(value, BaseException):
            return self.instance(value, kind)
        raise Unbuildable(f"an object of {kind.__module__}.{kind.__qualname__}", value)

    def array(self, value: Any) -> str:
        """An array of NumPy, or the number that NumPy has in the place of one without dims."""
        source = self.outside.arrays.get(id(value))
        if source is not None:
            return self.source(source)
        return self.variable(f"{self.tensor(value.tensor)}.numpy(){'[()]' if value.scalar else ''}", value)

    def mutable(self, value: Any, kind: type) -> str:
        name = self.variable(f"{kind.__name__ if kind is not deque else self.constant(deque)}()", value)
        if kind is deque and value.maxlen is not None:
            self.lines[-1] = f"{name} = {self.constant(deque)}((), {value.maxlen})"
        items = [self.value(x) for x in value]
        if items:
            self.lines.append(f"{name}.{'update' if kind is set else 'extend'}(({''.join(f'{x}, ' for x in items)}))")
        return name

    def mapping(self, value: Any, kind: type) -> str:
        if kind is defaultdict:
            name = self.variable(f"{self.constant(kind)}({self.value(value.default_factory)})", value)
        else:
            name = self.variable("{}" if kind is dict else f"{self.constant(kind)}()", value)
        for key, each in value.items():
            self.lines.append(f"{name}[{self.value(key)}] = {self.value(each)}")
        return name

    def function(self, value: types.FunctionType) -> str:
        if id(value) in self.tracer.unbuildable:
            raise Unbuildable(self.tracer.unbuildable[id(value)], value)
        if id(value) not in self.tracer.made_functions and not self._holds_values(value):
            return self.constant(value)
        cells = "".join(f"{self.value(cell)}, " for cell in value.__closure__ or ())
        if id(value) in self.places:  # it closes over itself: its cell made it
            return self.places[id(value)]
        name = self.variable(
            f"{self.constant(types.FunctionType)}({self.constant(value.__code__)}, {self.constant(value.__globals__)}, {value.__name__!r}, "
            f"{self.value(value.__defaults__)}, ({cells}))",
            value,
        )
        self.lines.append(f"{name}.__qualname__ = {value.__qualname__!r}")
        for attribute in ("__kwdefaults__", "__annotations__", "__doc__"):
            held = getattr(value, attribute)
            if held:
                self.lines.append(f"{name}.{attribute} = {self.value(held)}")
        if value.__dict__:
            for attribute, held in value.__dict__.items():
                self.lines.append(f"{name}.__dict__[{attribute!r}] = {self.value(held)}")
        return name

    def _holds_values(self, function: types.FunctionType) -> bool:
        """Whether native code made a function in the trace that closes over values of the trace: `func.grad(f)`."""
        todo, seen = list[Any](function.__closure__ or ()), set[int]()
        while todo:
            held = todo.pop()
            if id(held) in seen:
                continue
            seen.add(id(held))
            if type(held) is types.CellType:
                try:
                    todo.append(held.cell_contents)
                except ValueError:
                    continue
            elif type(held) in (Followed, Lazy) or id(held) in self.tracer.made_functions:
                return True
            elif isinstance(held, Tensor) and self.tracer.rec.is_recorded(held):
                return True
            elif type(held) in (tuple, list):
                todo += held
            elif type(held) is types.FunctionType and id(held) not in self.outside.sources:
                todo += held.__closure__ or ()
        return False

    def cell(self, value: Any) -> str:
        name = self.variable(f"{self.constant(types.CellType)}()", value)
        try:
            contents = value.cell_contents
        except ValueError:
            return name
        self.lines.append(f"{name}.cell_contents = {self.value(contents)}")
        return name

    def iterator(self, value: Any) -> str:
        parts = value.__reduce__()
        made, args, *state = parts
        text = f"{self.constant(made)}({', '.join(self.value(x) for x in args)})"
        if len(args) == 1 and isinstance(args[0], list) and id(args[0]) not in self.outside.shadows:
            self.kept.append(args[0])
        name = self.variable(text, value)
        if state and state[0] is not None:
            self.lines.append(f"{name}.__setstate__({self.value(state[0])})")
        self.kept.append(parts)
        return name

    def stepping(self, value: types.GeneratorType[Any, Any, Any]) -> str:
        """Rebuild the generator that the tracer made of a Python iterator, or of an object with items, for native code."""
        if value.gi_frame is None:
            return "iter(())"
        held = value.gi_frame.f_locals
        if value.gi_code is stepping.__code__:
            return self.value(held["iterator"])
        name = self.variable(f"iter({self.value(held['obj'])})", value)
        started = inspect.getgeneratorstate(value) != inspect.GEN_CREATED
        self.lines.append(f"{name}.__setstate__({held['number'] + 1 if started else 0})")
        return name

    def generator(self, value: Generator) -> str:
        """A generator whose frame waits."""
        if value.frame is None or value.running:
            raise Unbuildable("a generator that is running, or has ended, is still in use")
        frame = value.frame
        if self.leaves and not value.started and type(frame.function) is types.FunctionType:
            return self.variable(self.call_of(frame), value)
        template = frame.template()
        places, stack = self.frame_values(frame)
        return self.variable(
            f"{self.constant(begun)}({self.constant(template)}, {places}, {stack}, {value.started})", value
        )

    def call_of(self, frame: Frame) -> str:
        """The call that makes a generator at its beginning: outside of the function CPython goes on with it."""
        code = frame.code
        values = [x.cell_contents if type(x) is types.CellType else x for x in frame.locals[: len(code.co_varnames)]]
        count, named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
        texts = [self.value(x) for x in values[:count]]
        rest = iter(values[named:])
        if code.co_flags & inspect.CO_VARARGS:
            texts.append(f"*{self.value(next(rest))}")
        words = [f"{word!r}: {self.value(values[k])}" for k, word in enumerate(code.co_varnames[count:named], count)]
        texts += [f"**{{{', '.join(words)}}}"] if words else []
        if code.co_flags & inspect.CO_VARKEYWORDS:
            texts.append(f"**{self.value(next(rest))}")
        return f"{self.value(frame.function)}({', '.join(texts)})"

    def check_generators(self) -> None:
        """Unbuildable where a generator waits that nothing leads to which is made anew: it would never be closed."""
        for waiting in self.tracer.suspended():
            if id(waiting) not in self.places:
                raise Unbuildable("a generator is held by something that cannot be made anew", waiting)

    def frame_values(self, frame: Frame) -> tuple[str, str]:
        """The locals that are still of use, or do something when they are let go of, and the stack."""
        live = frame.live_locals()
        places = [x if i in live or _stays(x) else NULL for i, x in enumerate(frame.locals)]
        return self.row(places), self.row(frame.stack)

    def row(self, values: Sequence[Any]) -> str:
        """A list of values, some of which may be NULL."""
        return f"[{', '.join(self.constant(NULL) if x is NULL else self.value(x) for x in values)}]"

    def tuple_of_class(self, value: tuple[Any, ...], kind: type) -> str:
        """A named tuple, or an object of a user's class of tuples with its dictionary."""
        items = f"({''.join(f'{self.value(x)}, ' for x in value)})"
        make = f"{self.constant(kind)}._make(" if hasattr(kind, "_fields") else f"tuple.__new__({self.constant(kind)}, "
        held = getattr(value, "__dict__", {})
        if not held:
            return f"{make}{items})"
        name = self.variable(f"{make}{items})", value)
        for attribute, each in held.items():
            self.lines.append(f"{name}.__dict__[{attribute!r}] = {self.value(each)}")
        return name

    def instance(self, value: Any, kind: type) -> str:
        """An object of a user's class: its elements, its dictionary, its slots."""
        new = self.constant(kind)
        if isinstance(value, (dict, list, set, deque)):
            base = next(each for each in kind.__mro__ if each in (dict, OrderedDict, defaultdict, list, set, deque))
            name = self.variable(f"{self.constant(base)}.__new__({new})", value)
            if isinstance(value, dict):
                for key in dict.keys(value):
                    self.lines.append(
                        f"{self.constant(base)}.__setitem__({name}, {self.value(key)}, {self.value(dict.__getitem__(value, key))})"
                    )
            else:
                items = "".join(f"{self.value(x)}, " for x in value)
                method = "update" if isinstance(value, set) else "extend"
                self.lines.append(f"{self.constant(base)}.{method}({name}, ({items}))")
        elif isinstance(value, BaseException):
            name = self.variable(f"{new}.__new__({new}, {', '.join(self.value(x) for x in value.args)})", value)
        elif isinstance(value, (int, float, complex, str, bytes)):
            exact = exact_value(value)
            name = self.variable(f"{self.constant(type(exact))}.__new__({new}, {self.value(exact)})", value)
        elif isinstance(value, tuple):
            raise Unbuildable(f"an object of {kind.__qualname__}, which is a {kind.__base__.__name__}", value)  # type: ignore[union-attr]
        else:
            base = new if kind is types.SimpleNamespace else "object"
            name = self.variable(f"{base}.__new__({new})", value)
        if isinstance(value, BaseException):
            self.history(value, name)
        for attribute, held in getattr(value, "__dict__", {}).items():
            self.lines.append(f"{name}.__dict__[{attribute!r}] = {self.value(held)}")
        for each in kind.__mro__:
            for attribute, raw in each.__dict__.items():
                if (
                    isinstance(raw, types.MemberDescriptorType)
                    and attribute not in ("__dict__", "__weakref__")
                    and hasattr(value, attribute)
                ):
                    self.lines.append(
                        f"object.__setattr__({name}, {attribute!r}, {self.value(getattr(value, attribute))})"
                    )
        return name

    def history(self, value: BaseException, name: str) -> None:
        """Where an exception was raised, and of which others it tells."""
        found = entries(value.__traceback__)
        if found:
            held = self.held_by_frames(value)
            self.lines.append(f"{name}.__traceback__ = {self.constant(traceback_of)}({self.constant(found)}{held})")
        for attribute in ("__cause__", "__context__"):
            other = getattr(value, attribute)
            if other is not None:
                outer = other is sys.exc_info()[1]  # the one that the caller is handling
                text = f"{self.constant(sys)}.exc_info()[1]" if outer else self.value(other)
                self.lines.append(f"{name}.{attribute} = {text}")

    def held_by_frames(self, value: BaseException) -> str:
        """Locals that live as long as an exception, because frames of its traceback hold them, as an argument."""
        rows, entry = [], value.__traceback__
        while entry is not None:
            names = {name: each for name, each in entry.tb_frame.f_locals.items() if _reaches_end(each)}
            rows.append(", ".join(f"{name!r}: {self.value(each)}" for name, each in names.items()))
            entry = entry.tb_next
        return f", ({''.join(f'{{{row}}}, ' for row in rows)})" if any(rows) else ""

    def layouts(self) -> None:
        """Statements that give tensors from outside the layouts that the trace gave them in place."""
        for made, _, place, _ in self.outside.begun.values():
            if not self.outside.is_changed(made):
                continue
            if self.tracer.settings.backend is not None or not self.outside.is_relaid(made):
                raise Unbuildable("a tensor from outside has its layout changed in place")
            real, source = self.outside.tensors[id(made)]
            lies = made._spec  # on the device without memory
            spec = Spec.of(lies.dtype, real._spec.device, lies.shape, lies.strides, lies.conj)
            self.lines.append(
                f"{self.constant(relay)}({self.source(source)}, {self.constant(spec)}, {made._ptr - place})"
            )

    # ***** effects *****

    def effects(self) -> None:
        """Statements that change outside what the trace has changed."""
        self.steps()
        for function, args in self.tracer.effects:
            self.lines.append(f"{self.constant(function)}({', '.join(self.value(x) for x in args)})")
        self.attribute_writes()
        wrappers.write_gradients(self)
        if self.tracer.settings.backend is not None:  # programs of ours set gradients themselves
            for made, now in self.tracer.rec.new_gradients():
                self.lines.append(f"{self.value(made)}.grad = {self.value(now)}")
        for lazy in self.outside.lazies.values():
            if lazy.value is ABSENT and lazy.appended:
                owner = self.source(lazy.source)
                self.lines += [f"{owner}.append({self.value(x)})" for x in lazy.appended]
        for shadow in list(self.outside.shadows.values()):
            if shadow.changed():
                self.write_back(shadow)
        for key, names in self.outside.globals.items():
            space = next(x for x in self.tracer.kept if id(x) == key)
            for name, value in names.items():
                if value is DELETED:
                    self.lines.append(f"{self.constant(space)}.pop({name!r}, None)")
                else:
                    self.lines.append(f"{self.constant(space)}[{name!r}] = {self.value(value)}")
        self.layouts()
        for function, args in self.tracer.last_effects:
            self.lines.append(f"{self.constant(function)}({', '.join(self.value(x) for x in args)})")

    def steps(self) -> None:
        """Take the steps of iterators; an `enumerate` takes those of the iterators below it along."""
        stands = [made for made, *_ in self.outside.iterators.values() if type(made) in (Ahead, Numbered)]
        for made in sorted(stands, key=lambda made: type(made) is Ahead):
            if made.steps > made.through:
                steps = made.steps - made.through
                self.lines.append(f"{self.constant(stepped)}({self.source(made.source)}, {steps})")

    def attribute_writes(self) -> None:
        for key, names in self.outside.attributes.items():
            owner = self.source(self.outside.sources[key])
            real = next(x for x in self.outside.kept if id(x) == key)
            for name, value in names.items():
                hidden = not isinstance(real, types.CellType) and _is_hidden(real, name)
                if (key, name) in self.outside.recreated and name in getattr(real, "__dict__", ()):
                    self.lines.append(f"{owner}.__dict__.pop({name!r}, None)")
                if hidden and value is DELETED:
                    text = f"{owner}.__dict__.pop({name!r}, None)"
                elif hidden:
                    text = f"{owner}.__dict__[{name!r}] = {self.value(value)}"
                elif isinstance(real, types.CellType):
                    text = (
                        f"del {owner}.cell_contents"
                        if value is DELETED
                        else f"{owner}.cell_contents = {self.value(value)}"
                    )
                elif value is DELETED:
                    text = f"object.__delattr__({owner}, {name!r})" if _has_own(real, name) else "pass"
                else:
                    text = f"object.__setattr__({owner}, {name!r}, {self.value(value)})"
                self.lines.append(text)

    def write_back(self, shadow: Any) -> None:
        """Give a container from outside the elements that the trace's copy has."""
        owner, copy = self.source(shadow.source), shadow.copy
        if isinstance(copy, dict):
            pairs = [(self.value(k), self.value(v)) for k, v in copy.items()]
            self.lines.append(f"{owner}.clear()")
            self.lines += [f"{owner}[{k}] = {v}" for k, v in pairs]
        elif isinstance(copy, list):
            self.lines.append(f"{owner}[:] = ({''.join(f'{self.value(x)}, ' for x in copy)})")
        else:
            items = "".join(f"{self.value(x)}, " for x in copy)
            self.lines.append(f"{owner}.clear()")
            self.lines.append(f"{owner}.{'update' if isinstance(copy, set) else 'extend'}(({items}))")


def is_member(value: enum.Enum) -> bool:
    """Whether an object is the one of its enumeration that has its value, as all are that a program comes by."""
    kind = type(value)
    return kind._member_map_.get(value._name_) is value or kind._value2member_map_.get(value._value_) is value


def _has_own(obj: Any, name: str) -> bool:
    """Whether an object itself, not its class, has an attribute."""
    slot = type_attribute(type(obj), name)
    return name in getattr(obj, "__dict__", ()) or (isinstance(slot, types.MemberDescriptorType) and hasattr(obj, name))


def _is_hidden(obj: Any, name: str) -> bool:
    """Whether a property or the like of the class stands before what an object's dictionary has under a name."""
    raw = type_attribute(type(obj), name)
    native = (types.MemberDescriptorType, types.GetSetDescriptorType)
    return raw is not ABSENT and hasattr(type(raw), "__set__") and not isinstance(raw, native)

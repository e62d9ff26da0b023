"""The operations of bytecode while a function is traced: what is read is guarded, what is written outside waits,
tensors are recorded.
"""

from __future__ import annotations

import enum
import functools
import importlib
import operator
import sys
import threading
import types
import typing
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rushlight._base.by_class import by_class
from rushlight._base.own_names import own_module
from rushlight._capture.bytecode import Enter, Generator, Interpreter, Interrupt, Operations
from rushlight._capture.bytecode.operations import in_python
from rushlight._capture.bytecode.real_frames import HERE
from rushlight._capture.recording import DataDependentError, HostNumber, Recording, RecordingError
from rushlight._capture.recording.element_numbers import ElementNumber
from rushlight._capture.trace import calls, process_groups, process_settings
from rushlight._capture.trace.documents.document import Undocumented
from rushlight._capture.trace.entering import enter
from rushlight._capture.trace.guards import checks
from rushlight._capture.trace.guards.sources import Constants, Reads, Source
from rushlight._capture.trace.hooks import given_hooks
from rushlight._capture.trace.numbers.element_sizes import is_own_loop, numbers_among, runs_between
from rushlight._capture.trace.objects import attributes, classes, special_methods
from rushlight._capture.trace.objects.instances import DELETED, InstanceDict
from rushlight._capture.trace.objects.iterators import Ahead, Numbered, indexed, stepping
from rushlight._capture.trace.outside import (
    ABSENT,
    CONTAINERS,
    Append,
    Lazy,
    Outside,
    has_users_metaclass,
    is_plain,
    is_suspended,
    is_traced_array,
    type_attribute,
)
from rushlight._capture.trace.package_code import PACKAGE
from rushlight._capture.trace.repeats import Repeats
from rushlight._capture.trace.reports.events import Break
from rushlight._capture.trace.reports.failures import TracerError, is_own
from rushlight._capture.trace.reports.warned import Listening
from rushlight._capture.trace.settings import HOOKS, CompileSettings
from rushlight._capture.trace.sharded import Sharded
from rushlight._engine.core.hooks import HOOKS as ENGINE_HOOKS
from rushlight._engine.core.state import STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._types.device import Device
from rushlight._types.layout import Size
from rushlight._types.symbols import SpecializationError, is_symbolic

__all__ = ["Cell", "Tracer"]

Cell = types.CellType
_DUNDERS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul", "&": "and", "|": "or",
    "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
_COMPARED = {
    "<": ("lt", "gt"),
    "<=": ("le", "ge"),
    "==": ("eq", "eq"),
    "!=": ("ne", "ne"),
    ">": ("gt", "lt"),
    ">=": ("ge", "le"),
}
# `__class_getitem__` of generic classes, from 3.12 on of generic named tuples: it looks at frames, so it runs as it is.
_OF_GENERIC = (
    getattr(typing.Generic.__class_getitem__, "__func__", None),
    getattr(typing, "_generic_class_getitem", None),
)
_UNARY = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}


def symbolic_among(values: Iterable[Any]) -> bool:
    """Whether one of some values, or of the items of a sequence among them, has symbolic sizes."""
    return any(
        is_symbolic(x)
        or (isinstance(x, Tensor) and type(x._spec.numel) is not int)
        or (type(x) in (list, tuple, Size) and symbolic_among(x))
        for x in values
    )


class Tracer(Undocumented, Operations):
    """See the module's text.  `rec` is the recording of what happens to tensors."""

    def __init__(self, settings: CompileSettings, rec: Recording, internal: Callable[[Any], bool]) -> None:
        self.settings, self.rec = settings, rec
        self.constants = Constants()
        self.reads = Reads(self.constants)
        self.outside = Outside(self.reads, rec.stand_in, internal)
        self.outside.hooks = functools.partial(given_hooks, self, self.outside)
        self.outside.spread = functools.partial(process_groups.depends, self)
        self.outside.followed = functools.partial(calls.Followed, self)
        self.outside.behind, rec.wrapped = rec.inputs_behind, self.outside.wrappers
        self.follow = functools.partial(calls.followed, self)
        rec.keeps_hooks, rec.defers = True, settings.backend is None
        rec.captures_elements = settings.captures_elements()
        self.follows_numpy = settings.backend is None and HOOKS.public is not None and HOOKS.follows_numpy()
        if self.follows_numpy:
            self.outside.array = self.given_array
        self.last_effects: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []  # behind all writes
        self.stale: set[int] = set()  # objects and dicts, by identity, that calls of `last_effects` change
        self.place: Any = (0, None)  # where the trace could end last, and the instruction at hand
        self.made_at: dict[int, Any] = {}  # where native code made leaves, and objects
        self.unbuildable: dict[int, str] = {}  # what some values are, by identity, that live within one program alone
        self.even_at: Any = (0, None)  # the last `place` where the same regions were open as when the trace began
        self.strided: list[Tensor] = []  # what `as_strided` gave
        self.unseen: set[int] = set()  # tensors from outside whose gradients were replaced without a look at them
        self.hooked_at: Any = None  # `place` when the trace put a hook on a tensor of its own, or made the node of one
        self.applied_at: Any = None  # `place` when the trace first applied an `autograd.Function`
        self.node_at: dict[int, Any] = {}  # where the nodes of results were made, by their ids
        self.closed = False  # whether the followed functions may run no longer
        self.made_functions: dict[int, Any] = {}
        self.made_classes: dict[int, type] = {}
        self.sharded = Sharded()
        self.calls: list[Any] = []  # records of calls, for backends that take an fx graph
        self.numbered: set[int] = set()  # of numbers of tensors that have nodes in a graph for another backend
        self.budget = settings.budget
        self.resumed = False  # whether the trace goes on with frames behind an instruction that ran as it is
        self.begun_casts = process_settings.casts_now()
        self.begun_word = 0  # the dispatch state with which the trace began
        self.begun_regions: list[Any] = []  # and what else was open
        self.depth = 0
        self.unkept = ""  # why the trace is of no use to other processes
        self.recorded, self.only_reads = 0, False  # entries of the log, and whether these only read, when it ended
        self.searched = 0  # attributes that `__getattr__` found
        self.leaves_traces = False  # whether it leaves a history or changed its inputs
        self.wants_history = False  # whether it leaves a history
        self.differs = False  # whether the program, as it is, would do something else, or call functions in Python
        self.kept: list[Any] = []
        self.named: set[int] = set()  # classes whose names are guarded
        self.interpreters: list[Interpreter] = []  # outermost first
        self.outside.dropped = self.dropped
        self.interrupted: Break | None = None  # found where no exception could be raised
        self.generators: list[weakref.ref[Generator]] = []
        self.listening = Listening(self)
        self.effects: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []  # calls that wait for the end of the trace
        self.caught = 0  # open regions with filters of warnings of their own
        self.repeats: Repeats | None = None

    def begin(self, start: Any) -> None:
        """Learn what the trace begins with: a partial function that puts frames into an interpreter."""
        self.resumed = not isinstance(start.args[0], types.FunctionType)

    def repeat_calls(self, regions: Callable[[], Any]) -> None:
        """Follow calls that are alike once, from now on; `regions()` tells what is open in the thread's state."""
        self.repeats = self.outside.repeats = Repeats(self, regions)
        self.reads.heard = self.repeats.check

    def mark_unrepeatable(self) -> None:
        """Mark the calls being followed as unfit for repetition."""
        if self.repeats is not None:
            self.repeats.mark_unrepeatable()

    def opaque(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of an operator that nobody looks into: it runs between two segments."""
        if ENGINE_HOOKS.operators_compiled is not None:
            ENGINE_HOOKS.operators_compiled((str(operator).replace(".", "::", 1),))
        raise Break(f"calls the operator {operator}", kind="opaque")

    def interpreter(self) -> Interpreter:
        """An interpreter for this trace."""
        return Interpreter(self)

    def nested_interpreter(self) -> Interpreter:
        """An interpreter for calls inside of one instruction."""
        return Interpreter(self)

    def dropped(self, value: Any) -> None:
        """The program lets go of an object that does something then: the real one has to, at this instruction."""
        self.interrupted = Break(f"lets go of a {type(value).__name__} from outside")

    def check_error(self, error: BaseException) -> None:
        if isinstance(error, RecordingError):  # an instruction itself asked for what is not known
            raise Break(f"{error}", kind="data" if isinstance(error, DataDependentError) else "break")
        if is_own(error) or (isinstance(error, KeyboardInterrupt) and not _is_raised(HERE.frame)):
            raise TracerError(error)

    def interrupt(self, found: Interrupt) -> None:
        self.interrupted = found if isinstance(found, Break) else self.interrupted

    def append(self, items: Any, value: Any) -> None:
        if type(items) is Lazy:
            self.mark_unrepeatable()
        if type(items) is Lazy and items.value is ABSENT and type(items.real) is list:  # as `items.append`
            self.reads.check(items.source, f"type({{}}) is {self.constants.name(list)}")
            items.appended.append(value)
        else:
            super().append(items, value)

    def never_awaited(self, name: str) -> None:
        self.interrupted = Break(f"lets go of the coroutine {name}, which nobody awaited")

    def release(self) -> None:
        """Let go, when the trace is over, of the program's objects: what holds the tracer would keep them alive."""
        for generator in [found for held in self.generators if (found := held()) is not None]:
            generator.forget()  # or its `finally` would run when it is let go of
        for interpreter in self.interpreters:
            interpreter.frames.clear()
        for held in (
            self.generators,
            self.interpreters,
            self.effects,
            self.kept,
            self.strided,
            self.made_functions,
            self.made_classes,
            self.calls,
        ):
            held.clear()
        self.repeats, self.reads.heard = None, None
        self.outside.release()

    # ***** helpers *****

    def native(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run native code; what it asks of elements, and of objects that cannot be guarded, ends the trace."""
        if self.repeats is None:
            return self._native(function, *args, **kwargs)
        return self.repeats.native(self._native, function, args, kwargs)

    def _native(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        if self.stale and any(id(value) in self.stale for value in args):
            raise Break("uses what a scheduler has changed in the same trace")
        if self.outside.opaque or self.outside.unread:
            self.check_read(args)
        name = getattr(function, "__name__", "")
        if name == "detach_":
            self.check_no_view(getattr(function, "__self__", None), *args)
        listens = self.listening.go_on()
        before, STATE.follow = STATE.follow, self.follow
        try:
            made = self.noted(function(*args, **kwargs))
            if name == "as_strided":
                self.made_at.setdefault(id(made), self.place)
                self.strided.append(made)
            return made
        except DataDependentError as error:
            given = (getattr(function, "__self__", None), *args, *kwargs.values())
            raise Break(f"{error}", kind="opaque" if runs_between(self, function, given) else "data") from None
        except RecordingError as error:
            raise Break(f"{error}") from None
        except StopIteration:
            raise
        except Exception as error:  # perhaps because a size is a symbol: no handler of the program may see that
            given = (getattr(function, "__self__", None), *args, *kwargs.values())
            if self.has_numbers and numbers_among(given):
                kind = "opaque" if runs_between(self, function, given) else "break"
                raise Break(
                    f"a number of the program is given to native code: {type(error).__name__}: {error}", kind=kind
                ) from None
            if isinstance(error, SpecializationError) or (self.outside.varying.sizes and symbolic_among(given)):
                raise Break(f"{type(error).__name__}: {error}", kind="sizes") from None
            raise
        finally:
            STATE.follow = before
            if listens:
                self.listening.pause()

    def check_no_view(self, *values: Any) -> None:
        """Break where one of these is a tensor from outside that is a view: what the trace has in its place is none."""
        for value in values:
            real, _ = self.outside.tensors.get(id(value), (None, None))
            if real is not None and real._autograd_meta is not None and real._autograd_meta.base is not None:
                raise Break("detaches a view from outside in place")

    def check_read(self, values: Sequence[Any]) -> None:
        """Break where one of these, or an item of one, holds what native code would read and no guard tells of."""
        opaque, unread = self.outside.opaque, self.outside.unread
        for value in values:
            for part in value if type(value) in (list, tuple) else (value,):
                if id(part) in opaque or id(part) in unread:
                    raise Break(f"uses what is inside of a {type(part).__name__} from outside")

    def check_methods(self, *values: Any, printing: bool = True, depth: int = 4) -> None:
        """Break where one of these is, or holds, an object from outside that has methods in Python, which native code
        that compares, hashes or (with `printing`) prints would run.
        """
        for value in values:
            kind: Any = type(value)
            if isinstance(value, (list, tuple, dict, set, frozenset, deque)) and depth:
                self.check_methods(*value, printing=printing, depth=depth - 1)
                if isinstance(value, dict):
                    self.check_methods(*value.values(), printing=printing, depth=depth - 1)
            elif self.outside.is_outside(value) and self.is_user_object(value) and has_methods(kind, printing):
                raise Break(f"native code would run methods of a {kind.__name__} from outside")

    def noted(self, made: Any) -> Any:
        """Results of native code; their place is noted where it may be a reason to end the trace before them."""
        if isinstance(made, Tensor):
            if made._node is not None:
                self.node_at.setdefault(id(made._node), self.place)
            if self.rec.streams.states and self.rec.streams.shows(made._ptr):
                self.made_at.setdefault(id(made), self.place)
            if made._rg and made._node is None and id(made) not in self.outside.tensors:
                self.made_at.setdefault(id(made), self.place)
            elif self.outside.is_changed(made) and (
                self.settings.backend is not None or not self.outside.is_relaid(made)
            ):
                raise Break("changes the layout of a tensor from outside in place")
        elif isinstance(made, tuple):
            for each in made:
                self.noted(each)
        elif not is_plain(made) and type(made) not in CONTAINERS:
            self.made_at[id(made)] = self.place  # it is not kept: its end may be heard of
        return made

    def check_open(self, reason: str) -> None:
        """Break where the trace has ended, and its program is being made."""
        if self.closed:
            raise Break(reason)

    def nested(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Any:
        """Interpret a call inside of one instruction, as native code that calls back needs it."""
        found = self.call(function, tuple(args), dict(kwargs or {}))
        return self.real(self.finished(found))

    def nested_call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """`nested`, with the arguments as they are given."""
        return self.nested(function, args, kwargs)

    def finished(self, found: Any) -> Any:
        """The value of an operation, interpreted here where it asks for a frame."""
        if not isinstance(found, Enter):
            return found
        if self.depth > 150:
            raise Break("calls from native code are too deep")
        interpreter = self.nested_interpreter()
        interpreter.enter(found)
        self.depth += 1
        self.interpreters.append(interpreter)
        listened = self.listening.pause()
        try:
            return interpreter.run()
        finally:
            self.depth -= 1
            self.interpreters.pop()
            if listened:
                self.listening.go_on()

    @property
    def has_numbers(self) -> bool:
        """Whether elements of tensors may be numbers of the program."""
        return self.rec.captures_elements or bool(self.numbered)

    def outside_of_trace(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run native code for what it keeps: nothing that it does to tensors is recorded."""
        self.mark_unrepeatable()
        self.rec.__exit__()
        try:
            return function(*args, **kwargs)
        finally:
            self.rec.__enter__()

    def constant_source(self, value: Any) -> Source:
        """Where an object comes from, a constant if nothing else is known."""
        return self.outside.source_of(value) or self.reads.constant(value)

    def wrap_constant(self, value: Any) -> Any:
        """A real object that is the same at every call."""
        return self.outside.wrap(value, self.reads.constant(value))

    def is_user_object(self, value: Any) -> bool:
        """Whether operations on this value may run a user's Python code."""
        kind = type(value)
        return (
            (in_python(kind) or kind is types.SimpleNamespace)
            and not isinstance(value, (Tensor, HostNumber))
            and kind not in (Ahead, Numbered)
            and not is_plain(value)
            and not isinstance(value, type)
            and own_module(kind.__module__) not in HOOKS.values
            and own_module(kind.__module__) != "rushlight"  # the package's own functions
        )

    def is_iterated_by_user(self, value: Any) -> bool:
        """Whether native code that goes through this value may run a user's Python code: of its class or metaclass."""
        return has_users_metaclass(value) if isinstance(value, type) else self.is_user_object(value)

    def method_of(self, value: Any, name: str) -> Any:
        """A special method of a user's class that is written in Python, bound; None where there is none."""
        if not self.is_iterated_by_user(value):
            return None
        found = type_attribute(type(value), name)
        attributes.guard_names(self, type(value))
        if found is not ABSENT:
            attributes.guard_class(self, type(value), name, found)
        if isinstance(found, types.FunctionType):
            return types.MethodType(found, value)
        if found is None:
            raise Break(f"uses {type(value).__name__}.{name}, which is None")
        return None

    # ***** names *****

    def load_global(self, frame: Any, name: str) -> Any:
        space = frame.globals
        waiting = self.outside.globals.get(id(space))
        if waiting is not None and name in waiting:
            if waiting[name] is DELETED:
                raise NameError(f"name '{name}' is not defined")
            return waiting[name]
        if name in space:
            return self.wrap_global(space, name, space[name])
        if not self.is_internal_space(space):
            self.reads.check(self.reads.constant(space), f"{name!r} not in {{}}")
        found = super().load_global(frame, name)
        if not self.is_internal_space(space):
            self.reads.check(self.reads.constant(frame.builtins), f"{{}}.get({name!r}) is {self.constants.name(found)}")
        return found if is_plain(found) else self.wrap_constant(found)

    def is_internal_space(self, space: dict[str, Any]) -> bool:
        """Whether these are the globals of one of our own modules, whose functions and classes nobody changes."""
        name = space.get("__name__")
        return isinstance(name, str) and own_module(name).partition(".")[0] == PACKAGE

    def wrap_global(self, space: dict[str, Any], name: str, value: Any) -> Any:
        if self.is_internal_space(space) and isinstance(
            value, (types.FunctionType, type, types.ModuleType, types.BuiltinFunctionType)
        ):
            return self.wrap_constant(value)
        place = self.reads.source(f"{{}}[{name!r}]", self.reads.constant(space))
        return (self.outside.lazy if type(value) is list else self.outside.wrap)(value, place)

    def store_global(self, frame: Any, name: str, value: Any) -> None:
        self.keep_space(frame.globals)[name] = value

    def delete_global(self, frame: Any, name: str) -> None:
        self.load_global(frame, name)
        self.keep_space(frame.globals)[name] = DELETED

    def keep_space(self, space: dict[str, Any]) -> dict[str, Any]:
        self.kept.append(space)
        self.reads.constant(space)
        return self.outside.globals.setdefault(id(space), {})

    def load_cell(self, frame: Any, cell: Any) -> Any:
        source = self.outside.sources.get(id(cell))
        if source is None:
            return cell.cell_contents
        waiting = self.outside.attributes.get(id(cell))
        if waiting and "cell_contents" in waiting:
            if waiting["cell_contents"] is DELETED:
                raise ValueError("Cell is empty")
            return waiting["cell_contents"]
        if is_empty(cell):
            self.reads.check(source, f"{self.constants.name(is_empty)}({{}})")
            raise ValueError("Cell is empty")
        contents = self.reads.source("{}.cell_contents", source)
        self.reads.check(contents, f"type({{}}) is {self.constants.name(type(cell.cell_contents))}")  # it is not empty
        return self.outside.lazy(cell.cell_contents, contents)

    def store_cell(self, frame: Any, cell: Any, value: Any) -> None:
        if id(cell) in self.outside.sources:
            self.outside.attributes.setdefault(id(cell), {})["cell_contents"] = value
        else:
            cell.cell_contents = value

    def delete_cell(self, frame: Any, cell: Any) -> None:
        if id(cell) in self.outside.sources:
            self.outside.attributes.setdefault(id(cell), {})["cell_contents"] = DELETED
        else:
            del cell.cell_contents

    # ***** attributes *****

    def real(self, value: Any) -> Any:
        return value.realise() if type(value) is Lazy else value

    def load_attr(self, obj: Any, name: str) -> Any:
        if type(obj) is Lazy:
            if name == "append" and type(obj.real) is list and obj.value is ABSENT:
                self.reads.check(obj.source, f"type({{}}) is {self.constants.name(list)}")
                return Append(obj)
            obj = obj.realise()
        if self.stale and id(obj) in self.stale:
            raise Break("looks at what a scheduler has changed in the same trace")
        if obj is STATE:  # the trace has the state that the program would have
            return getattr(obj, name)
        if isinstance(obj, Tensor):
            return attributes.tensor_attribute(self, obj, name)
        if isinstance(obj, InstanceDict) or is_plain(obj):
            return getattr(obj, name)
        if is_traced_array(obj):
            return calls.numpy_calls().attribute(self, obj, name)
        if isinstance(obj, HostNumber) and name == "__class__":
            return obj.kind
        try:
            return attributes.known_attribute(self, obj, name)
        except AttributeError:
            if not self.is_user_object(obj):
                attributes.require_missing(self, obj, name)
            raise

    def given_array(self, value: Any, source: Source) -> Any:
        """The array of the trace for one of NumPy from outside, or None."""
        calls.numpy_calls()
        return importlib.import_module("rushlight._capture.trace.arrays.arrays").given(self, value, source)

    # ----- objects of users' classes -----

    def instance_attribute(self, obj: Any, name: str) -> Any:
        """An entry of an object's dictionary; ABSENT where it has no such name."""
        if not self.outside.is_outside(obj):
            return own_dict(obj).get(name, ABSENT)
        waiting = self.outside.attributes.get(id(obj))
        if waiting and name in waiting:
            return ABSENT if waiting[name] is DELETED else waiting[name]
        held = getattr(obj, "__dict__", None)
        source = self.outside.sources[id(obj)]
        if held is None:
            return ABSENT
        if name in held:
            place = self.reads.source(f"{{}}.__dict__[{name!r}]", source)
            return (self.outside.lazy if type(held[name]) is list else self.outside.wrap)(held[name], place)
        self.reads.check(source, f"{name!r} not in {{}}.__dict__")
        return ABSENT

    def instance_names(self, obj: Any) -> list[str]:
        """The names in the dictionary of an object, in order."""
        names = list(obj.__dict__)
        self.reads.check(self.outside.sources[id(obj)], f"[*{{}}.__dict__] == {self.constants.name([*names])}")
        for name, value in self.outside.attributes.get(id(obj), {}).items():
            if name in names and (value is DELETED or (id(obj), name) in self.outside.recreated):
                names.remove(name)
            if value is not DELETED and name not in names:
                names.append(name)
        return names

    def write_attribute(self, obj: Any, name: str, value: Any) -> None:
        """Let an object have an attribute, at once if the trace made it, else when the trace ends."""
        if self.outside.is_outside(obj):
            if name in ("__class__", "__dict__"):  # what its attributes are, and what `type` gives, changes at once
                raise Break(f"writes {name} of a {type(obj).__name__} from outside")
            if isinstance(obj, threading.local):  # it has its own way to be written
                raise Break(f"writes the attribute '{name}' of a {type(obj).__name__} of this thread")
            written = self.outside.attributes.setdefault(id(obj), {})
            if written.get(name) is DELETED and value is not DELETED:  # it comes after all others in the object's dict
                del written[name]
                self.outside.recreated.add((id(obj), name))
            written[name] = value
            return
        self.mark_unrepeatable()
        if value is DELETED:
            object.__delattr__(obj, name)
        else:
            object.__setattr__(obj, name, value)

    def store_attr(self, obj: Any, name: str, value: Any) -> Any:
        obj = self.real(obj)
        if obj is STATE:
            if name != "word":
                raise Break(f"changes the dispatch state '{name}'")
            STATE.word = value
            return None
        if isinstance(obj, Tensor):
            return attributes.store_tensor_attribute(self, obj, name, value)
        if isinstance(obj, (types.ModuleType, type)):
            if id(obj) in self.made_functions:
                self.mark_unrepeatable()
                setattr(obj, name, self.real(value))
                return None
            raise Break(f"writes the attribute '{name}' of {obj!r}")
        if not self.is_user_object(obj):
            if self.outside.is_outside(obj) or id(obj) in self.outside.shadows:
                raise Break(f"writes the attribute '{name}' of a {type(obj).__name__} from outside")
            self.mark_unrepeatable()
            setattr(obj, name, self.real(value))
            return None
        setter = type_attribute(type(obj), "__setattr__")
        attributes.guard_names(self, type(obj))
        if isinstance(setter, types.FunctionType):
            attributes.guard_class(self, type(obj), "__setattr__", setter)
            return enter(self, setter, (obj, name, value), {})
        if getattr(setter, "__objclass__", object) is not object and self.outside.is_outside(obj):
            raise Break(f"writes the attribute '{name}' of a {type(obj).__name__}, whose class does that natively")
        return attributes.set_object_attribute(self, obj, name, value)

    def delete_attr(self, obj: Any, name: str) -> None:
        obj = self.real(obj)
        if isinstance(obj, (types.ModuleType, type, Tensor)) and id(obj) not in self.made_functions:
            raise Break(f"deletes the attribute '{name}' of {type(obj).__name__}")
        if not self.is_user_object(obj):
            if id(obj) in self.outside.shadows:
                raise Break(f"deletes the attribute '{name}' of a {type(obj).__name__} from outside")
            self.mark_unrepeatable()
            delattr(obj, name)
            return
        deleter = type_attribute(type(obj), "__delattr__")
        if isinstance(deleter, types.FunctionType):
            self.nested(types.MethodType(deleter, obj), (name,))
            return
        attributes.delete_object_attribute(self, obj, name)

    # ***** items *****

    def load_item(self, obj: Any, index: Any) -> Any:
        obj, index = self.real(obj), self.real(index)
        if self.stale and id(obj) in self.stale:
            if index == "params":
                return operator.getitem(obj, index)
            raise Break("reads what a scheduler has changed in the same trace")
        if isinstance(obj, type) and type_attribute(type(obj), "__getitem__") is ABSENT:
            held = type_attribute(obj, "__class_getitem__")
            held = getattr(held, "__func__", held)
            if isinstance(held, types.FunctionType) and held not in _OF_GENERIC:
                return self.call(self.load_attr(obj, "__class_getitem__"), (index,), {})
        if isinstance(obj, type) and not has_users_metaclass(obj):
            return self.native(operator.getitem, obj, index)
        if type(obj).__module__ == "typing" and isinstance(index, type):  # `List[Tensor]`
            return self.wrap_constant(self.outside_of_trace(operator.getitem, obj, index))
        method = self.method_of(obj, "__getitem__")
        if method is not None:
            return self.call(method, (index,), {})
        if self.outside.is_outside(obj) and self.is_user_object(obj) and isinstance(obj, (dict, list)):
            value = operator.getitem(obj, index)
            return self.outside.wrap(
                value, self.reads.source(f"{{}}[{self.constants.name(index)}]", self.outside.sources[id(obj)])
            )
        self.check_methods(index, printing=False)
        if self.repeats is not None:
            self.repeats.by_identity(index)
        return self.native(operator.getitem, obj, index)

    def store_item(self, obj: Any, index: Any, value: Any) -> Any:
        obj, index, value = self.real(obj), self.real(index), self.real(value)
        if isinstance(value, ElementNumber) and isinstance(obj, Tensor):
            value = value.tensor
        method = self.method_of(obj, "__setitem__")
        if method is not None:
            return self.call(method, (index, value), {})
        self.check_writable(obj)
        if self.repeats is not None:
            self.repeats.changes(obj)
        self.check_methods(index, printing=False)
        self.native(self._put, obj, index, value)
        return None

    @staticmethod
    def _put(obj: Any, index: Any, value: Any) -> None:
        obj[index] = value

    def check_writable(self, obj: Any) -> None:
        """A container from outside that the trace does not hold a copy of cannot be written."""
        if (
            self.outside.is_outside(obj)
            and not isinstance(obj, (Tensor, InstanceDict))
            and id(obj) not in self.outside.shadows
        ):
            raise Break(f"writes items of a {type(obj).__name__} from outside")

    def delete_item(self, obj: Any, index: Any) -> None:
        obj, index = self.real(obj), self.real(index)
        method = self.method_of(obj, "__delitem__")
        if method is not None:
            self.nested(method, (index,))
            return
        self.check_writable(obj)
        if self.repeats is not None:
            self.repeats.changes(obj)
        del obj[index]

    # ***** operators *****

    def binary(self, op: str, a: Any, b: Any) -> Any:
        a, b = self.real(a), self.real(b)
        name = _DUNDERS[op]
        left, right = self.method_of(a, f"__{name}__"), self.method_of(b, f"__r{name}__")
        if left is None and right is None:
            if op == "%" and isinstance(a, (str, bytes)):
                self.check_methods(b)
            return self.native(super().binary, op, a, b)
        return self.by_methods(op, a, b, left, right)

    def by_methods(self, op: str, a: Any, b: Any, left: Any, right: Any) -> Any:
        """Operands with methods in Python: in the order in which CPython asks them."""
        if is_traced_array(b) and not self.is_user_object(a):
            if isinstance(a, Tensor):
                raise Break("computes with a tensor and a NumPy array")
            return self.nested(right, (a,))
        order = [(left, a, b), (right, b, a)]
        if right is not None and type(a) is not type(b) and isinstance(b, type(a)):
            order.reverse()
        for method, one, other in order:
            if method is not None:
                found = self.nested(method, (other,))
            elif one is a and not self.is_user_object(a):
                found = getattr(type(a), f"__{_DUNDERS[op]}__", lambda x, y: NotImplemented)(a, b)
            else:
                continue
            if found is not NotImplemented:
                return found
        raise TypeError(f"unsupported operand type(s) for {op}: '{type(a).__name__}' and '{type(b).__name__}'")

    def inplace(self, op: str, a: Any, b: Any) -> Any:
        a, b = self.real(a), self.real(b)
        method = self.method_of(a, f"__i{_DUNDERS[op[:-1]]}__")
        if method is not None:
            found = self.nested(method, (b,))
            if found is not NotImplemented:
                return found
        if self.is_user_object(a) or self.is_user_object(b):
            return self.binary(op[:-1], a, b)
        if self.repeats is not None:
            self.repeats.changes(a)
        return self.native(super().inplace, op, a, b)

    def unary(self, op: str, a: Any) -> Any:
        a = self.real(a)
        method = self.method_of(a, _UNARY[op])
        return self.call(method, (), {}) if method is not None else self.native(super().unary, op, a)

    def hosted(self, value: HostNumber) -> tuple[Source, Any] | None:
        """Where a number comes from that each call passes on, and what it is now; None for numbers made of others."""
        for source, number, now in self.outside.hosted.values():
            if number is value:
                return source, now
        return None

    def compare(self, op: str, a: Any, b: Any) -> Any:
        a, b = self.real(a), self.real(b)
        if isinstance(a, Device) and isinstance(b, Device):
            same = (a.type, a.index) == (b.type, b.index)
            return same if op == "==" else not same
        for value, other, asked in ((a, b, "({{}} {0} {1})"), (b, a, "({1} {0} {{}})")):
            if isinstance(value, HostNumber) and type(other) in (int, float, bool):
                known = self.hosted(value)
                if known is not None:
                    source, now = known
                    pair = (now, other) if value is a else (other, now)
                    result = bool(super().compare(op, *pair))
                    self.reads.check(source, f"{asked.format(op, self.constants.name(other))} is {result}")
                    return result
        names = _COMPARED[op]
        left, right = self.method_of(a, f"__{names[0]}__"), self.method_of(b, f"__{names[1]}__")
        if left is None and right is None:
            self.check_methods(a, b)
            return self.native(super().compare, op, a, b)
        if self.repeats is not None:
            self.repeats.by_identity(a, b)
        for method, other in ((left, b), (right, a)):
            found = NotImplemented if method is None else self.nested(method, (other,))
            if found is not NotImplemented:
                return found
        if op in ("==", "!="):
            return (a is b) is (op == "==")
        raise TypeError(f"'{op}' not supported between instances of '{type(a).__name__}' and '{type(b).__name__}'")

    def contains(self, item: Any, container: Any) -> bool:
        item, container = self.real(item), self.real(container)
        if self.repeats is not None:
            self.repeats.by_identity(item)
        method = self.method_of(container, "__contains__")
        if method is not None:
            return self.truth(self.nested(method, (item,)))
        if isinstance(container, dict) and id(container) in self.outside.unread and is_plain(item):
            return bool(calls.entry(self, container, self.outside.sources[id(container)], "__contains__", item))
        if self.is_user_object(container) and self.method_of(container, "__iter__") is not None:
            return self.contained(item, list(self.unpack(container)))
        if isinstance(container, (list, tuple)) and any(
            self.is_user_object(x) or isinstance(x, Tensor) for x in (*container, item)
        ):
            return self.contained(item, container)
        self.check_methods(item, printing=False)
        return bool(self.native(super().contains, item, container))

    def contained(self, item: Any, items: Sequence[Any]) -> bool:
        for each in items:
            if each is item:
                return True
            found = self.compare("==", each, item)
            if self.truth(found):
                return True
        return False

    def same(self, a: Any, b: Any) -> bool:
        a, b = self.real(a), self.real(b)
        if self.repeats is not None:
            self.repeats.by_identity(a, b)
        if a is not b:
            self.outside.require_distinct(a, b)
        return a is b

    def negate(self, value: Any) -> Any:
        return not self.truth(value)

    def has_type_flag(self, value: Any, flag: int) -> bool:
        return super().has_type_flag(self.real(value), flag)

    def unpack_mapping(self, obj: Any) -> Mapping[Any, Any]:
        return super().unpack_mapping(calls.as_dict(self, self.real(obj)))

    def look_at_frames(self, function: Any, args: Sequence[Any], kwargs: Any) -> bool:
        self.mark_unrepeatable()
        if function in _EAGER_LOOKS:
            raise Break(f"{function.__name__}() looks at frames")
        return function is not warnings.warn

    def make_exception(self, raised: Any) -> Any:
        return super().make_exception(self.real(raised))

    def build_list(self, items: list[Any]) -> Any:
        return [self.real(x) for x in items]

    def build_tuple(self, items: tuple[Any, ...]) -> Any:
        return tuple([self.real(x) for x in items])

    def build_set(self, items: Sequence[Any]) -> Any:
        return {self.real(x) for x in items}

    def build_map(self, items: dict[Any, Any]) -> Any:
        return {self.real(k): self.real(v) for k, v in items.items()}

    def build_slice(self, *parts: Any) -> Any:
        return slice(*[self.real(x) for x in parts])

    def truth(self, value: Any) -> bool:
        if type(value) is bool or value is None:
            return value is True
        value = self.real(value)
        if isinstance(value, Tensor):
            self.mark_unrepeatable()
        if isinstance(value, ElementNumber) or (isinstance(value, Tensor) and self.rec.is_recorded(value)):
            taken = checks.taken(self, value)
            if taken is not None:
                return taken
        known = self.hosted(value) if isinstance(value, HostNumber) else None
        if known is not None:
            result = bool(known[1])
            self.reads.check(known[0], f"(not {{}}) is {not result}")
            return result
        for name in ("__bool__", "__len__"):
            method = self.method_of(value, name)
            if method is not None:
                return bool(special_methods.called(self, value, method, name, bool))
            if self.is_user_object(value) and type_attribute(type(value), name) is not ABSENT:
                break
        if id(value) in self.outside.unread and isinstance(value, (list, tuple, dict, set, frozenset, deque)):
            return bool(calls.length(self, value))
        return bool(self.native(bool, value))

    # ***** iteration *****

    def iterate(self, obj: Any) -> Any:
        if type(obj) is Lazy and obj.value is ABSENT and gives_itself(type(obj.real)):
            self.reads.check(obj.source, f"type({{}}) is {self.constants.name(type(obj.real))}")
            return obj  # nobody has looked at it yet
        obj = self.real(obj)
        method = self.method_of(obj, "__iter__")
        if method is not None:
            return special_methods.iterator(self, self.nested(method, ()))
        if (
            self.outside.is_outside(obj)
            and not isinstance(obj, (Tensor, tuple, str, bytes, range, type))
            and id(obj) not in self.outside.shadows
        ):
            raise Break(f"iterates over a {type(obj).__name__} from outside")
        if self.is_user_object(obj) and self.method_of(obj, "__getitem__") is not None:
            return indexed(self, obj)
        if type(obj) in (list, tuple):
            return self.noted(iter(obj))  # it looks into no item
        return self.native(iter, obj)

    def advance(self, iterator: Any) -> Any:
        iterator = self.real(iterator)
        method = self.method_of(iterator, "__next__")
        if method is not None:
            return self.nested(method, ())
        followed = self.outside.iterators.get(id(iterator))
        if followed is not None or self.outside.is_outside(iterator):
            real = iterator if followed is None else followed[2]
            own = is_own_loop(self, real)
            if own or followed is None or not self.settings.fullgraph:  # the body of a loop is a segment of its own
                raise Break(f"advances a {type(real).__name__} from outside", kind="opaque" if own else "break")
        return self.native(next, iterator)

    def next_item(self, iterator: Any) -> Any:
        """`next()` of an iterator."""
        iterator = self.real(iterator)
        return self.native(next, iterator) if id(iterator) in self.outside.iterators else self.advance(iterator)

    def unpack(self, obj: Any) -> Iterator[Any]:
        obj = self.real(obj)
        iterator = self.iterate(obj)
        method = self.method_of(iterator, "__next__")
        return stepping(self, iterator) if method is not None else self._checked(iterator)

    def _checked(self, iterator: Any) -> Iterator[Any]:
        if self.outside.is_outside(iterator):
            raise Break(f"advances a {type(iterator).__name__} from outside")
        return iterator

    # ***** calls *****

    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return calls.call(self, function, tuple(args), kwargs)

    def special_method(self, obj: Any, name: str) -> Any:
        obj = self.real(obj)
        kind = type(obj)
        raw = type_attribute(kind, name)
        if raw is ABSENT:
            return None
        attributes.guard_class(self, kind, name, raw)
        attributes.adopt(self, raw)
        bind = getattr(type(raw), "__get__", None)
        return raw if bind is None else bind(raw, obj, kind)

    def enter_context(self, manager: Any) -> tuple[Any, Any]:
        manager = self.real(manager)
        enter, leave = self.special_method(manager, "__enter__"), self.special_method(manager, "__exit__")
        if enter is None or leave is None:
            raise TypeError(f"'{type(manager).__name__}' object does not support the context manager protocol")
        return leave, self.call(enter, (), {})

    # ***** making things *****

    def import_module(self, frame: Any, name: str, fromlist: Any, level: int) -> Any:
        import sys

        package = frame.globals.get("__package__") or ""
        full = (
            name
            if not level
            else ".".join([*package.split(".")[: len(package.split(".")) - level + 1], *([name] if name else [])])
        )
        if full not in sys.modules and full.partition(".")[0] in (PACKAGE, "torch"):
            self.outside_of_trace(importlib.import_module, full)
        if full not in sys.modules:
            raise Break(f"imports {full or name}, which is not loaded yet")
        if full.partition(".")[0] not in (PACKAGE, "torch") and full.partition(".")[0] not in sys.stdlib_module_names:
            if any(each.real is sys.modules for each in self.outside.shadows.values()):
                raise Break("imports a module where sys.modules is looked at, too")
            held = self.constants.name(sys.modules[full])
            self.reads.check(self.reads.constant(sys.modules), f"{{}}.get({full!r}) is {held}")
        return self.wrap_constant(super().import_module(frame, name, fromlist, level))

    def import_from(self, module: Any, name: str) -> Any:
        module = self.real(module)
        if not hasattr(module, name):
            return super().import_from(module, name)
        return self.load_attr(module, name)

    def format(self, value: Any, conversion: str, spec: str) -> str:
        return self.native(super().format, self._formatted(value), conversion, spec)

    def convert(self, value: Any, conversion: str) -> Any:
        return self.native(super().convert, self._formatted(value), conversion)

    def _formatted(self, value: Any) -> Any:
        value = self.real(value)
        if isinstance(value, Tensor) or (self.is_user_object(value) and not isinstance(value, Size)):
            raise Break(f"formats a {type(value).__name__}")
        self.check_methods(value)
        return value

    def build_interpolation(self, value: Any, text: str, conversion: str | None, spec: str) -> Any:
        raise Break("makes a template string")

    def build_template(self, texts: tuple[str, ...], parts: tuple[Any, ...]) -> Any:
        raise Break("makes a template string")

    def build_string(self, parts: Sequence[Any]) -> str:
        return "".join([self.real(x) for x in parts])

    def make_generator(self, generator: Generator) -> Generator:
        self.generators.append(weakref.ref(generator))
        self.made_at[id(generator)] = self.place
        return generator

    def suspended(self) -> list[Generator]:
        """Generators of the trace that wait: they do something when they are let go of."""
        return [made for held in self.generators if (made := held()) is not None and is_suspended(made)]

    def make_function(self, function: types.FunctionType) -> Any:
        self.made_functions[id(function)] = function
        if self.repeats is not None:
            self.repeats.made_function(function)
        return function

    def build_class(self, frame: Any, body: Any, name: str, bases: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        real = {key: self.real(value) for key, value in kwargs.items()}
        return classes.build(self, self.real(body), self.real(name), tuple([self.real(x) for x in bases]), real)

    def store_name(self, frame: Any, names: Any, name: str, value: Any) -> None:
        names[name] = self.real(value)


def _is_raised(frame: Any) -> bool:
    """Whether the program raises at the instruction that a frame is at; what comes elsewhere, as Ctrl-C does, would not
    come again where the function runs as it is.
    """
    return frame is not None and frame.decoded.opnames[frame.ip - 1] in ("RAISE_VARARGS", "RERAISE")


_EAGER_LOOKS = frozenset((globals, eval, exec, sys._getframe))  # functions that run between segments


@by_class
def has_methods(kind: type, printing: bool) -> bool:
    """Whether a class compares or hashes its objects, or with `printing` adds or prints them, by code in Python."""
    names: tuple[str, ...] = ("__eq__", "__hash__", "__lt__", "__gt__")
    if printing:
        names = (*names, "__add__", "__radd__", "__repr__", "__str__", "__format__")
    return not issubclass(kind, enum.Enum) and any(
        isinstance(type_attribute(kind, name), types.FunctionType) for name in names
    )


def is_empty(cell: types.CellType) -> bool:
    """Whether a variable of an outer function is unbound."""
    try:
        cell.cell_contents  # noqa: B018 - asked for whether it is there
    except ValueError:
        return True
    return False


def own_dict(obj: Any) -> dict[str, Any]:
    """The dictionary of an object, whatever its class does for attributes that are not there."""
    try:
        found: dict[str, Any] = object.__getattribute__(obj, "__dict__")
        return found
    except AttributeError:
        return {}


def gives_itself(kind: type) -> bool:
    """Whether `iter()` of objects of a class gives the object: generators and other native iterators."""
    return kind.__module__ in ("builtins", "itertools") and hasattr(kind, "__next__")

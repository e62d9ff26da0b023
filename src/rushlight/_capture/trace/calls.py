"""Calls in a traced function: which are followed, which run as they are, and which end the trace.

Functions of tensors and our own functions run as they are: tensors are recorded below them.  A user's Python code is
followed, instruction by instruction, and so are modules, optimizers and whatever else of ours is written like a user's
code.  Native functions of the standard library run if they are known to have no effect but on their arguments.
Everything else ends the trace.
"""

from __future__ import annotations

import abc
import enum
import functools
import importlib
import inspect
import operator
import re
import sys
import types
import warnings
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from rushlight._base.handles import RemovableHandle
from rushlight._base.own_names import own_module
from rushlight._base.trace_marks import ADDRESS, ADDS_HOOK, reason_to_break
from rushlight._capture.bytecode import Enter, Generator
from rushlight._capture.bytecode.operations import in_python
from rushlight._capture.recording import HostNumber
from rushlight._capture.trace import (
    control_flow,
    higher_order,
    library,
    process_groups,
    process_settings,
    schedules,
    sharded,
    trees,
)
from rushlight._capture.trace.entering import enter, with_defaults
from rushlight._capture.trace.hooks import FollowedHook, is_own, made_handle
from rushlight._capture.trace.numbers import element_checks
from rushlight._capture.trace.objects import attributes, classes, special_methods
from rushlight._capture.trace.objects.instances import InstanceDict
from rushlight._capture.trace.objects.iterators import Ahead, Numbered
from rushlight._capture.trace.outside import (
    ABSENT,
    Append,
    Instead,
    bound_to,
    is_getter,
    is_plain,
    is_traced_array,
    type_attribute,
)
from rushlight._capture.trace.package_code import PACKAGE, is_foreign, is_inlined, is_leaf, module_of_class
from rushlight._capture.trace.reports.events import Break
from rushlight._capture.trace.reports.warned import caught
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.autograd.api import zero_gradients
from rushlight._engine.autograd.function import Function
from rushlight._engine.core.integers import is_numpy_scalar
from rushlight._engine.core.state import STATE
from rushlight._engine.core.storage import TypedStorage, UntypedStorage
from rushlight._engine.core.tensor import Tensor

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer
from rushlight._engine.dispatch.lower import plain_number
from rushlight._types.symbols import as_double, is_symbolic, truncated

__all__ = ["Followed", "call", "entry", "followed", "length", "opened", "real_arguments", "runs_followed"]

# Of the standard library, what is followed although it is not the user's.
_FOLLOWED = frozenset((
    "collections", "functools", "contextlib", "dataclasses", "typing", "abc", "_collections_abc", "operator", "heapq", "bisect", "string",
    "numbers", "fractions", "statistics", "types", "enum", "textwrap", "keyword", "reprlib", "graphlib", "colorsys", "__future__",
))  # fmt: skip
# Native modules whose functions have no effect but on their arguments.
_PURE = frozenset((
    "math", "cmath", "_operator", "operator", "itertools", "_functools", "_collections", "_bisect", "_heapq", "_struct", "_statistics", "binascii",
))  # fmt: skip
_PURE_BUILTINS = frozenset((
    "abs", "all", "any", "ascii", "bin", "chr", "divmod", "format", "hash", "hex", "max", "min", "oct", "ord", "pow", "round", "sorted", "sum",
    "aiter", "anext",
))  # fmt: skip
# Native functions, and methods of containers, that compare, hash or print what they are given.
_RUN_METHODS = frozenset(("sorted", "min", "max", "sum", "hash", "ascii", "format", "pow", "divmod"))
_COMPARING = frozenset((
    "index", "count", "remove", "sort", "get", "pop", "setdefault", "add", "discard", "fromkeys", "__contains__", "__eq__", "__ne__", "__repr__",
    "__str__", "__format__", "__getitem__", "__setitem__",
))  # fmt: skip
_KEYED = frozenset(("get", "pop", "setdefault", "__setitem__"))  # of dicts: a key and a value
_CONTAINER_TYPES = (list, tuple, dict, set, frozenset, deque, OrderedDict, defaultdict)
_NATIVE_TYPES = (
    int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, slice, enumerate, zip, reversed, map, filter, object,
    property, staticmethod, classmethod, OrderedDict, defaultdict, deque, types.MethodType, memoryview, functools.partial, weakref.ref,
)  # fmt: skip


def call(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call, or an `Enter` for a call that is followed."""
    if id(function) in HOOKS.breaks:
        raise Break(HOOKS.breaks[id(function)][1])
    if isinstance(function, types.FunctionType) and (why := getattr(function, "_runs_apart", None)) is not None:
        raise Break(why)
    if id(function) in HOOKS.replaced:
        tracer.differs = True
        return call(tracer, HOOKS.replaced[id(function)][1], args, kwargs)
    for each in HOOKS.compiling:
        if function is each:
            tracer.differs = True
            return True
    if id(function) in HOOKS.constant:
        return _kept_result(tracer, function, args, kwargs)
    if id(function) in HOOKS.leaves:
        tracer.unkept = "it runs a function that is not followed"
        return _run_leaf(tracer, function, args, kwargs)
    kind = type(function)
    if tracer.follows_numpy and str(getattr(function, "__module__", "")).startswith("numpy"):
        found = numpy_calls().call(tracer, function, args, kwargs)
        if found is not ABSENT:
            tracer.mark_unrepeatable()
            return found
    if kind is types.FunctionType:
        return _function(tracer, function, args, kwargs)
    if kind is Append:
        tracer.mark_unrepeatable()
        lazy = function.lazy  # which somebody may have looked at since
        (lazy.appended if lazy.value is ABSENT else lazy.value).append(*args)
        return None
    if kind is types.MethodType:
        return call(tracer, function.__func__, (function.__self__, *args), kwargs)
    if isinstance(function, type):
        return _class(tracer, function, args, kwargs)
    if kind is functools.partial:
        return _partial(tracer, function, args, kwargs)
    if kind.__name__ == "_lru_cache_wrapper":
        tracer.mark_unrepeatable()
        found = library.memoized(tracer, function, args, kwargs)
        if found is not ABSENT:
            return found
        if not tracer.outside.is_outside(function):
            raise Break("calls a memoized function with objects")
        return call(tracer, tracer.load_attr(function, "__wrapped__"), args, kwargs)
    if own_module(kind.__module__) == PACKAGE or isinstance(function, Generator):
        return _run(tracer, function, args, kwargs)
    if isinstance(
        function,
        (types.BuiltinFunctionType, types.MethodWrapperType, types.MethodDescriptorType, types.WrapperDescriptorType),
    ):
        return _builtin(tracer, function, args, kwargs)
    return _instance(tracer, function, args, kwargs)


def _run_leaf(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function that `allow_in_graph` marks: a graph holds tensors and lists of them, and breaks for other results
    of a user's function, which then runs at each call.
    """
    if tracer.settings.backend is not None:
        for x in real_arguments(tracer, (*args, *kwargs.values()), {})[0]:
            if tracer.is_user_object(x) and not isinstance(x, tuple):
                raise Break(f"{getattr(function, '__qualname__', function)}() in a graph is given a {type(x).__name__}")
    made = _run(tracer, function, args, kwargs)
    users = own_module(getattr(function, "__module__", None)).partition(".")[0] != PACKAGE
    held = (Tensor, list, tuple) if tracer.settings.backend is not None else (Tensor, list, tuple, dict)
    if users and made is not None and not isinstance(made, held):
        raise Break(f"{getattr(function, '__qualname__', function)}() in a graph gives a {type(made).__name__}")
    return made


@functools.cache
def autograd_functions() -> Any:
    """The file about `autograd.Function`, which calls this one."""
    return importlib.import_module("rushlight._capture.trace.autograd_functions")


@functools.cache
def numpy_calls() -> Any:
    """The file about NumPy, which not every program needs."""
    return importlib.import_module("rushlight._capture.trace.arrays.numpy_calls")


def _kept_result(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function whose result becomes a constant of the trace."""
    if any(tracer.rec.is_recorded(x) for x in (*args, *kwargs.values()) if isinstance(x, Tensor)):
        raise Break(f"the kept result of {getattr(function, '__qualname__', function)}() depends on a tensor")
    tracer.unkept = "it holds the result of a function that is not followed"
    if tracer.settings.backend is not None:  # a tensor is an input of the graph
        return tracer.wrap_constant(tracer.outside_of_trace(function, *args, **kwargs))
    return tracer.wrap_constant(tracer.native(function, *args, **kwargs))


# ***** functions in Python *****


def _function(tracer: Tracer, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    held = function.__dict__
    if held.get("_torchdynamo_disable") and held.get("_torchdynamo_wrapper_id", id(function)) == id(function):
        raise Break(held.get("_torchdynamo_disable_msg") or f"{function.__qualname__} is not to be compiled")
    # `functools.wraps` copies the attributes of a compiled function to what a user wraps it with.
    original = held.get("_torchdynamo_orig_callable")
    if original is not None and held.get("_torchdynamo_wrapper_id", id(function)) == id(function):
        return call(tracer, original, args, kwargs)
    name = HOOKS.handled.get((own_module(function.__globals__.get("__name__")), function.__name__))
    if name is not None:
        tracer.mark_unrepeatable()
    if name in _CHECKS and tracer.settings.backend is not None:
        found = element_checks.noted(tracer, function, *real_arguments(tracer, args, kwargs))
        if found is not ABSENT:
            return found
    elif name is not None and (tracer.settings.backend is None or name in _IN_DOCUMENTS):
        given, named = real_arguments(tracer, args, kwargs)
        found = _HANDLED[name](tracer, *given, **named) if _takes(function, given, named) else ABSENT
        if found is not ABSENT:
            return found
    if tracer.settings.backend is not None and function.__name__ == "step" and _is_optimizer(function):
        raise Break("calls the step of an optimizer, which no node of an fx graph is")
    if HOOKS.communicating and process_groups.communicates(function):
        tracer.mark_unrepeatable()
        args, kwargs = real_arguments(tracer, args, kwargs)
        return process_groups.called(tracer, function, args, kwargs)
    if is_leaf(function):
        return _leaf(tracer, function, args, kwargs)
    found = library.instead(tracer, function, args, kwargs)
    if found is not ABSENT:
        tracer.mark_unrepeatable()
        return found
    if function.__code__ is library.DISPATCH:
        tracer.mark_unrepeatable()
        return library.dispatched(tracer, function, *args)
    module = own_module(function.__globals__.get("__name__")).partition(".")[0]
    if module in sys.stdlib_module_names and module not in _FOLLOWED:
        raise Break(f"calls {module}.{function.__qualname__}(), which is not followed")
    code = function.__code__
    if code.co_flags & 0x0C:  # the tuple and the dict of further arguments are looked at
        args, kwargs = real_arguments(tracer, args, kwargs)
    tracer.differs = True
    if any(type(_contents(cell)) is Followed for cell in function.__closure__ or ()):
        tracer.make_function(function)  # native code made it in this trace: its cells are no constants
    return enter(tracer, function, args, kwargs)


def _leaf(tracer: Tracer, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a function of ours that runs as it is: where it may not run in a trace, the graph breaks."""
    if function.__name__ == "tolist" and args:
        found = element_checks.listed(tracer, tracer.real(args[0]))
        if found is not ABSENT:
            return found
    if args and hasattr(function, "_tells_offset"):
        offset = _offset(tracer, tracer.real(args[0]))
        if offset is not None:
            return offset
    why = reason_to_break(function)
    if why is ADDRESS:
        raise Break(f"{function.__name__}() {why}")
    if args and isinstance(args[0], (UntypedStorage, TypedStorage)):
        raise Break(f"{function.__name__}() of a storage reads or changes memory that a trace does not follow")
    if why is ADDS_HOOK and len(args) == 2 and is_own(tracer, args[0]):
        # Behind a program its own node stands for all nodes in it: whoever wants one gets it made as it is.
        before = tracer.node_at.get(id(args[0]), tracer.place)
        if tracer.settings.backend is not None:
            raise Break(f"calls {function.__name__}() of a node in a graph for another backend", at=before)
        tracer.hooked_at = min(before, tracer.hooked_at or before, key=operator.itemgetter(0))
        return tracer.native(function, args[0], FollowedHook(tracer, tracer.real(args[1])))
    if function in (RemovableHandle.remove, RemovableHandle.__exit__) and tracer.outside.is_outside(args[0]):
        raise Break("takes a hook away that was put there outside of the trace")
    if why is not None:
        raise Break(f"calls {function.__name__}(), which {why}")
    if function.__closure__ and id(function) in tracer.outside.sources:
        if _holds_tensors(function, set()):
            raise Break(f"calls {function.__qualname__}(), which holds tensors that a trace does not see")
        function = opened(tracer, function)
    return _run(tracer, function, args, kwargs)


def _takes(function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function has parameters for these arguments: if not, its call raises the TypeError."""
    try:
        inspect.signature(function, follow_wrapped=False).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _holds_users(function: Any, seen: set[int]) -> bool:
    """Whether a function is a user's, or closes over one, directly or through functions of ours."""
    if not isinstance(function, types.FunctionType) or id(function) in seen:
        return False
    seen.add(id(function))
    return not is_leaf(function) or any(_holds_users(_contents(cell), seen) for cell in function.__closure__ or ())


def _holds_tensors(value: Any, seen: set[int]) -> bool:
    """Whether a value is a tensor or holds one: in containers, and in closures of functions of ours, as `vjp` gives
    them.
    """
    if isinstance(value, Tensor):
        return True
    if id(value) in seen:
        return False
    seen.add(id(value))
    if isinstance(value, types.FunctionType):
        return is_leaf(value) and any(_holds_tensors(_contents(cell), seen) for cell in value.__closure__ or ())
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, (list, tuple)) and any(_holds_tensors(each, seen) for each in value)


def opened(tracer: Tracer, function: types.FunctionType) -> types.FunctionType:
    """A function of ours from outside that closes over functions of a user, as `func.grad(f)` does: those are followed."""
    if not _holds_users(function, set()):
        return function
    cells = list(function.__closure__ or ())
    place = tracer.reads.source("{}.__closure__", tracer.constant_source(function))
    for number, cell in enumerate(cells):
        held = _contents(cell)
        if held is not function and _holds_users(held, {id(function)}):
            inner = tracer.outside.wrap(held, tracer.reads.source(f"{{}}[{number}].cell_contents", place))
            cells[number] = types.CellType(opened(tracer, inner) if is_leaf(inner) else Followed(tracer, inner))
    made = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, tuple(cells)
    )
    made.__kwdefaults__, made.__qualname__ = function.__kwdefaults__, function.__qualname__
    tracer.kept.append(made)
    return made


def _is_optimizer(function: types.FunctionType) -> bool:
    return own_module(function.__globals__.get("__name__")).startswith(f"{PACKAGE}.optim.")


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def runs_followed(function: Any) -> bool:
    """Whether a function of ours closes over one that is followed, as a decorated function does."""
    waiting, seen = [function], set[int]()
    while waiting:
        held = waiting.pop()
        if type(held) is Followed:
            return True
        if isinstance(held, types.FunctionType) and id(held) not in seen and is_leaf(held):
            seen.add(id(held))
            waiting += [_contents(cell) for cell in held.__closure__ or ()]
    return False


def _partial(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not tracer.outside.is_outside(function):
        return call(tracer, function.func, (*function.args, *args), {**function.keywords, **kwargs})
    source = tracer.outside.sources[id(function)]
    wrap, place = tracer.outside.wrap, tracer.reads.source
    inner = wrap(function.func, place("{}.func", source))
    first = wrap(function.args, place("{}.args", source))
    named = wrap(function.keywords, place("{}.keywords", source))
    return call(tracer, inner, (*first, *args), {**named, **kwargs})


def _instance(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    original = getattr(type(function), "compiled_function", None)
    if original is not None:  # a compiled function within another: what it compiles is followed
        return call(tracer, function.function, args, kwargs)
    operator = HOOKS.opaque(function)
    if operator is not None:
        return tracer.opaque(operator, *real_arguments(tracer, args, kwargs))
    if is_getter(function) and len(args) == 1:
        return _got(tracer, function, tracer.real(args[0]))
    if type(function).__name__ == "ArrayMethod" and tracer.follows_numpy:
        found = numpy_calls().method_called(tracer, function, args, kwargs)
        if found is not ABSENT:
            return found
    found = type_attribute(type(function), "__call__")
    if isinstance(found, types.FunctionType):
        attributes.guard_class(tracer, type(function), "__call__", found)
        attributes.adopt(tracer, found)
        return _object(tracer, found, function, args, kwargs)
    if found is ABSENT:
        raise TypeError(f"'{type(function).__name__}' object is not callable")
    if type(function) is weakref.ref and not args and not kwargs:
        source = tracer.outside.source_of(function)
        if source is not None:
            return tracer.outside.wrap(function(), tracer.reads.source("{}()", source))
        held = function()
        if sys.getrefcount(held) - sum(x is held for x in tracer.kept) <= _UNHELD and not tracer.outside.is_outside(
            held
        ):
            raise Break("asks a weak reference for what the program let go of")
        return held
    if type(function).__module__ == "numpy" and type(function).__name__ == "ufunc" and not kwargs:
        given = [plain_number(x) for x in real_arguments(tracer, args, kwargs)[0]]
        made = function(*given) if all(type(x) in (int, float, bool) for x in given) else None
        if is_plain(made) and made is not None:
            return made
    raise Break(f"calls a native {type(function).__name__} object")


_UNHELD = 2  # references to an object that only a local variable has, while they are counted


def _object(tracer: Tracer, found: Any, obj: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of an object by the method `found` of its class: followed, where it repeats no earlier one."""
    if tracer.repeats is None:
        return call(tracer, found, (obj, *args), kwargs)
    made, link = tracer.repeats.called(obj, args, kwargs)
    if made is not ABSENT:
        return made
    entered = call(tracer, found, (obj, *args), kwargs)
    if type(entered) is Enter and entered.then is None and entered.caught is None:
        entered.link = link
    return entered


def _got(tracer: Tracer, getter: Any, obj: Any) -> Any:
    """Apply an `itemgetter`, `attrgetter` or `methodcaller` to an object."""
    names = getter.__reduce__()[1]
    if type(getter) is operator.methodcaller:
        return call(tracer, tracer.finished(tracer.load_attr(obj, names[0])), names[1:], {})
    found = []
    for name in names:
        one = obj
        for part in name.split(".") if type(getter) is operator.attrgetter else (name,):
            load = tracer.load_attr if type(getter) is operator.attrgetter else tracer.load_item
            one = tracer.finished(load(one, part))
        found.append(one)
    return tuple(found) if len(found) > 1 else found[0]


# ***** our own functions *****


def _offset(tracer: Tracer, x: Any) -> int | None:
    """Where a tensor from outside begins, which is guarded; None for memory of the program, whose views know it."""
    outside = tracer.outside
    known = outside.tensors.get(id(x))
    if known is not None:
        real, source = known
        offset: int = real.storage_offset()
        tracer.reads.check(source, f"{{}}.storage_offset() == {offset}")
        return offset
    if any(outside.values[id(real)]._storage is x._storage for real, _ in outside.tensors.values()):
        raise Break("storage_offset() of a view of a tensor from outside")
    return None


def _run(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function as it is."""
    args, kwargs = real_arguments(tracer, args, kwargs)
    if tracer.follows_numpy and (_is_numpy(function) or any(map(is_traced_array, (*args, *kwargs.values())))):
        found = numpy_calls().handed(tracer, function, args, kwargs)
        if found is not ABSENT:
            return found
    if not tracer.unkept and any(_has_users_code(x) for x in (function, *args, *kwargs.values())):
        tracer.unkept = "it runs code that is not followed"
    called = function
    if tracer.has_numbers and getattr(function, "__name__", "") in element_checks.FILLED:
        called = element_checks.filling(function)
    if tracer.made_classes:
        for x in (*args, *kwargs.values(), getattr(function, "__self__", None)):
            classes.open_cells(tracer, x)
    given = [_handed(tracer, x, function) for x in args]
    named = {name: _handed(tracer, x, function) for name, x in kwargs.items()}
    if function is Function.apply.__func__:  # type: ignore[attr-defined]
        autograd_functions().guard_function(tracer, args[0])
        tracer.applied_at = tracer.applied_at or tracer.place
    if function is zero_gradients:
        given[0] = list(given[0])
        _guard_gradients(tracer, given[0], (given[1] if len(given) > 1 else named.get("set_to_none")) is True)
    made = tracer.native(called, *given, **named)
    _check_recorded(tracer, function, made)
    if id(function) not in HOOKS.leaves:
        process_settings.guard_setting(tracer, function, args, kwargs, made)
    if tracer.settings.backend is not None:
        tracer.record_call(function, args, kwargs, made)
    return made


def _is_numpy(function: Any) -> bool:
    """Whether this is `Tensor.numpy`."""
    return getattr(function, "__func__", function) is HOOKS.public.Tensor.numpy


def _guard_gradients(tracer: Tracer, tensors: Any, dropped: bool) -> None:
    """Native code asks whether tensors from outside have gradients, or only drops those that there are."""
    for x in tensors:
        known = tracer.outside.tensors.get(id(x))
        if known is not None:
            if dropped:
                attributes.replace_gradient(tracer, x)
            attributes.guard_gradient(tracer, x, *known)


def _has_users_code(value: Any) -> bool:
    """Whether a function that runs as it is, or a class or a tensor that it is given, may run a user's code."""
    if isinstance(value, types.MethodType):
        return _has_users_code(value.__func__) or _has_users_code(value.__self__)
    if isinstance(value, Tensor):
        value = type(value)
    elif not isinstance(value, (type, types.FunctionType)):
        return False
    root = own_module(getattr(value, "__module__", None)).partition(".")[0]
    return root != PACKAGE and root not in sys.stdlib_module_names


def _check_recorded(tracer: Tracer, function: Any, made: Any) -> None:
    """Only tensors of the program may come out of a call: real ones would be what they are now, at every call."""
    if type(made) is bool or made is None:
        return
    parts = made if isinstance(made, (tuple, list)) else (made,)
    if any(isinstance(x, Tensor) and not tracer.rec.is_recorded(x) for x in parts):
        raise Break(f"{getattr(function, '__qualname__', repr(function))}() gives a tensor that is not recorded")


def _handed(tracer: Tracer, value: Any, function: Any) -> Any:
    """An argument for native code: functions that it may call are followed when it does."""
    if isinstance(value, (types.FunctionType, types.MethodType)) and not _is_ours(value):
        return Followed(tracer, value)
    kind = type(value)
    if kind in (list, tuple) or (kind is dict and id(value) not in tracer.outside.shadows):
        items = value.values() if kind is dict else value
        if any(not is_plain(x) and not isinstance(x, Tensor) for x in items):
            if kind is dict:
                return {k: _handed(tracer, x, function) for k, x in value.items()}
            return kind([_handed(tracer, x, function) for x in value])
        return value
    if (
        tracer.outside.is_outside(value)
        and tracer.is_user_object(value)
        and not tracer.outside.internal(value)
        and not isinstance(value, enum.Enum)
    ):
        if callable(value) and function is Function.apply.__func__:  # type: ignore[attr-defined]
            return Followed(tracer, value)  # `Function.apply` of a module, as in a checkpoint
        name = getattr(function, "__qualname__", repr(function))
        raise Break(f"{name}() is given a {kind.__name__} from outside")
    return value


def _is_ours(value: Any) -> bool:
    function = value.__func__ if isinstance(value, types.MethodType) else value
    return isinstance(function, types.FunctionType) and is_leaf(function)


class Followed:
    """A function that native code calls, followed when it does: with the parameters that sharded modules have now."""

    __slots__ = ("__name__", "function", "parameters", "tracer")  # `functools.wraps` copies what is in a `__dict__`

    def __init__(self, tracer: Tracer, function: Any) -> None:
        self.tracer, self.function = tracer, function
        self.__name__ = getattr(function, "__name__", "function")
        self.parameters = tracer.sharded.gathered()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if not self.parameters:
            return self.tracer.nested(self.function, args, kwargs)
        with sharded.placed(self.parameters):
            return self.tracer.nested(self.function, args, kwargs)


def followed(tracer: Tracer, function: Any) -> Any:
    """The function that native code calls instead: users' functions are followed while the trace goes on."""
    held = function.__func__ if isinstance(function, types.MethodType) else function
    users = isinstance(held, types.FunctionType) and is_foreign(held)
    if isinstance(function, types.MethodType) and not tracer.closed:  # an override of a mode or of a class of tensors
        owner = function.__self__ if isinstance(function.__self__, type) else type(function.__self__)
        attributes.guard_class(tracer, owner, held.__name__, type_attribute(owner, held.__name__))
    return Followed(tracer, function) if users and tracer.settings.backend is None and not tracer.closed else function


# ***** classes *****


def _class(tracer: Tracer, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    args, kwargs = real_arguments(tracer, args, kwargs)
    if kind is type:
        return _type(tracer, args, kwargs)
    if kind is super:
        return super(*args)
    if kind in _NATIVE_TYPES:
        return _native_class(tracer, kind, args, kwargs)
    if issubclass(kind, enum.Enum):
        return tracer.wrap_constant(kind(*args, **kwargs))
    if kind is RemovableHandle:
        return made_handle(tracer, _run(tracer, kind, args, kwargs))
    module = own_module(getattr(kind, "__module__", ""))
    package = module.partition(".")[0]
    if (why := reason_to_break(kind.__init__)) is not None:
        raise Break(f"makes a {kind.__name__}, which {why}")
    if issubclass(kind, Tensor) and package == PACKAGE:
        return _run(tracer, kind, args, kwargs)
    if package == PACKAGE and not is_inlined(module_of_class(kind)):
        return _run(tracer, kind, args, kwargs)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        if isinstance(kind.__new__, types.FunctionType) and kind.__new__.__defaults__:
            (_, *args), kwargs = with_defaults(tracer, kind.__new__, (kind, *args), kwargs)
        return kind(*args, **kwargs)
    if kind.__module__ in ("itertools", "builtins", "functools", "collections") and not in_python(kind):
        return _native_class(tracer, kind, args, kwargs)
    return _construct(tracer, kind, args, kwargs)


def _type(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 3 and not kwargs:
        return classes.by_type(tracer, *args)
    if len(args) != 1 or kwargs:
        raise Break("makes a class by type()")
    kind = args[0].kind if isinstance(args[0], HostNumber) else type(args[0])
    if is_symbolic(args[0]) or kind in (Ahead, Numbered):
        kind = args[0].__class__
    if is_traced_array(args[0]):
        kind = _array_type(args[0])
    return kind if is_plain(args[0]) else tracer.wrap_constant(kind)


def _native_class(tracer: Tracer, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A class of containers, numbers or iterators."""
    if kind is weakref.ref and args and not (tracer.outside.is_outside(args[0]) or type(args[0]) is type(STATE.task)):
        if len(args) > 1 or not tracer.is_user_object(args[0]):
            raise Break(f"makes a weak reference to a {type(args[0]).__name__}")
        tracer.mark_unrepeatable()
    if kind is reversed and len(args) == 1 and tracer.is_user_object(args[0]):
        method = tracer.method_of(args[0], "__reversed__")
        if method is not None:
            return tracer.call(method, (), {})
        if not isinstance(args[0], tuple):
            raise Break(f"reversed() of a {type(args[0]).__name__}")
    given: list[Any] = []
    for x in args:
        if (isinstance(x, (types.FunctionType, types.MethodType)) or is_getter(x)) and kind in (map, filter):
            x = Followed(tracer, x)
        elif (
            kind in (map, filter)
            and not given
            and x is not None
            and x not in _NATIVE_TYPES
            and not isinstance(x, types.BuiltinFunctionType)
        ):
            x = Followed(tracer, x)
        elif issubclass(kind, dict) and not isinstance(x := as_dict(tracer, x), dict) and tracer.is_user_object(x):
            x = tracer.unpack(x)
        elif kind in (
            list,
            tuple,
            set,
            frozenset,
            enumerate,
            zip,
            map,
            filter,
            deque,
            reversed,
        ) and tracer.is_iterated_by_user(x):
            x = tracer.unpack(x) if not isinstance(x, dict) else x
            x = list(x) if kind is reversed else x
        elif isinstance(x, type) and kind.__module__ == "itertools" and tracer.method_of(x, "__iter__") is not None:
            raise Break(f"itertools.{kind.__name__} goes through the class {x.__name__}")
        elif kind in (int, float) and is_traced_array(x) and len(args) == 1:
            return _native_class(tracer, kind, (x.tensor,), {})
        elif kind in (int, float) and isinstance(x, (HostNumber, Tensor)) and len(args) == 1:
            number = tracer.native(cast("Any", Tensor).item, x) if isinstance(x, Tensor) else x
            if isinstance(number, HostNumber) and (number.computed or number.kind in (int, kind)):
                return number if number.kind is kind else number._made(kind, number)
        elif kind in (int, float, complex, bool, str) and tracer.is_user_object(x):
            return _converted(tracer, kind, x)
        given.append(x)
    if kind is bool and len(given) == 1:
        return tracer.truth(given[0])
    if kind in (str, set, frozenset):
        tracer.check_methods(*given, printing=kind is str)
    elif kind is dict and given:  # of values nothing is asked
        pairs = given[0] if type(given[0]) in (list, tuple) else ()
        keys = [pair[0] for pair in pairs if type(pair) in (list, tuple) and pair]
        tracer.check_methods(*keys, printing=False)
    if kind in (int, float) and len(given) == 1 and is_symbolic(given[0]):
        return truncated(given[0]) if kind is int else as_double(given[0])
    return tracer.native(kind, *given, **kwargs)


def _converted(tracer: Tracer, kind: type, x: Any) -> Any:
    names = {
        int: ("__int__", "__index__"),
        float: ("__float__", "__index__"),
        complex: ("__complex__",),
        str: ("__str__", "__repr__"),
        bool: (),
    }
    if kind is bool:
        return tracer.truth(x)
    for name in names[kind]:
        method = tracer.method_of(x, name)
        if method is not None:
            return special_methods.called(tracer, x, method, name, kind)
        if kind is not str and type_attribute(type(x), name) is not ABSENT:
            break  # a native one, which Python asks before the next
    if isinstance(x, (int, float, str, complex)) or (isinstance(x, BaseException) and not tracer.outside.is_outside(x)):
        return kind(x)
    raise Break(f"{kind.__name__}() of a {type(x).__name__}")


def _are_values(args: tuple[Any, ...]) -> bool:
    """Whether these are plain values, classes, and scalars and dtypes of NumPy."""
    return all(
        is_plain(x) or isinstance(x, type) or type(x).__module__ == "numpy.dtypes" or is_numpy_scalar(x) for x in args
    )


def _construct(tracer: Tracer, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An object of a user's class: `__new__`, then `__init__` in a frame of its own."""
    meta_call = type_attribute(type(kind), "__call__")
    attributes.guard_names(tracer, type(kind))
    attributes.guard_names(tracer, kind)
    if isinstance(meta_call, types.FunctionType):
        attributes.guard_class(tracer, type(kind), "__call__", meta_call)
        return call(tracer, meta_call, (kind, *args), kwargs)
    new, init = type_attribute(kind, "__new__"), type_attribute(kind, "__init__")
    new = new.__func__ if isinstance(new, staticmethod) else new
    if getattr(kind, "__abstractmethods__", None):
        return kind(*args, **kwargs)  # raises the TypeError
    if type_attribute(kind, "__del__") is not ABSENT:
        raise Break(f"makes an object of {kind.__name__}, which has a __del__")
    if kind is library.MEMO:
        return library.memo(tracer, *args, **kwargs)
    if kind is warnings.catch_warnings:
        return caught(tracer, *args, **kwargs)
    if kind in (
        functools.cached_property,
        types.SimpleNamespace,
        operator.itemgetter,
        operator.attrgetter,
        operator.methodcaller,
    ):
        return tracer.native(kind, *args, **kwargs)
    if kind.__module__ == "numpy" and kind.__name__ != "ndarray" and _are_values((*args, *kwargs.values())):
        return tracer.native(kind, *args, **kwargs)  # a scalar or a dtype
    if isinstance(new, types.FunctionType):
        attributes.guard_class(tracer, kind, "__new__", type_attribute(kind, "__new__"))
        attributes.adopt(tracer, new)
        made = tracer.nested(new, (kind, *args), kwargs)
    elif new is object.__new__:
        if init is object.__init__ and (args or kwargs):
            raise TypeError(f"{kind.__name__}() takes no arguments")
        made = object.__new__(kind)
    elif issubclass(kind, (BaseException, dict, list, set, tuple, int, float, str, deque)):
        made = cast("Any", kind).__new__(kind, *args, **kwargs)
    elif (leaves := trees.iterated(tracer, kind, args, kwargs)) is not ABSENT:
        return leaves
    else:
        raise Break(f"makes an object of the native class {kind.__name__}")
    if not isinstance(made, kind):
        return made
    tracer.kept.append(made)
    if isinstance(init, types.FunctionType):
        attributes.guard_class(tracer, kind, "__init__", init)
        attributes.adopt(tracer, init)
        found = call(tracer, init, (made, *args), kwargs)
        if isinstance(found, Enter):
            return Enter(found.function, found.args, found.kwargs, Instead(made))
        return made
    if init is not object.__init__:
        init(made, *args, **kwargs)
    return made


# ***** native functions *****


def _builtin(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    owner = bound_to(function)
    if owner is None:
        handler = _HANDLERS.get(function)
        if handler is None:
            found = library.instead(tracer, function, args, kwargs)
            if found is ABSENT:
                found = trees.called(tracer, function, args, kwargs)
            if found is not ABSENT:
                tracer.mark_unrepeatable()
                return found
            return _native_function(tracer, function, args, kwargs)
        args, kwargs = real_arguments(tracer, args, kwargs)
        return handler(tracer, *args, **kwargs)
    args, kwargs = real_arguments(tracer, args, kwargs)
    return _native_method(tracer, function, owner, args, kwargs)


def real_arguments(
    tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that are going to be looked at."""
    return tuple([tracer.real(x) for x in args]), {key: tracer.real(x) for key, x in kwargs.items()}


def _native_function(tracer: Tracer, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    module = (
        getattr(function, "__module__", None)
        or getattr(getattr(function, "__objclass__", None), "__module__", "")
        or ""
    )
    name = getattr(function, "__name__", "")
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        args, kwargs = real_arguments(tracer, args, kwargs)
        if not args:
            return function(*args, **kwargs)
        return _native_method(tracer, function.__get__(args[0], type(args[0])), args[0], args[1:], kwargs)
    if module == "builtins" and name not in _PURE_BUILTINS:
        raise Break(f"calls {name}()")
    if module != "builtins" and module.partition(".")[0] != PACKAGE and module not in _PURE:
        raise Break(f"calls the native function {module}.{name}()")
    args, kwargs = real_arguments(tracer, args, kwargs)
    if (
        name in ("any", "all", "sum", "sorted", "min", "max")
        and args
        and tracer.is_iterated_by_user(args[0])
        and len(args) == 1
    ):
        args = (tracer.unpack(args[0]), *args[1:])
    if name in _RUN_METHODS and not kwargs.get("key"):
        tracer.check_methods(*args)
    given = [_callback(tracer, x, name) for x in args]
    named = {key: _callback(tracer, x, name) for key, x in kwargs.items()}
    return tracer.native(function, *given, **named)


def _callback(tracer: Tracer, value: Any, name: str) -> Any:
    if isinstance(value, (types.FunctionType, types.MethodType)) or is_getter(value):
        return Followed(tracer, value)
    if tracer.is_user_object(value) and tracer.outside.is_outside(value) and name not in ("hash",):
        raise Break(f"{name}() is given a {type(value).__name__} from outside")
    return value


def _native_method(tracer: Tracer, function: Any, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = function.__name__
    if isinstance(owner, Tensor):
        return _run(tracer, function, args, kwargs)
    if isinstance(function, types.MethodWrapperType) or name in (
        "__setattr__",
        "__getattribute__",
        "__delattr__",
        "__init__",
        "__init_subclass__",
    ):
        found = _slot_call(tracer, name, owner, args)
        if found is not ABSENT:
            return found
    if name == "__get__" and isinstance(owner, types.FunctionType) and args:
        return owner if args[0] is None else types.MethodType(owner, args[0])
    if name == "fromkeys" and tracer.is_iterated_by_user(args[0]):
        args = (tracer.unpack(args[0]), *args[1:])
    if isinstance(owner, type) and name in ("fromkeys", "__new__", "maketrans", "fromhex", "from_bytes", "mro"):
        if name == "__new__" and args and isinstance(args[0], type):
            made = function(*args, **kwargs)
            tracer.kept.append(made)
            return made
        return tracer.native(function, *args, **kwargs)
    if (
        tracer.outside.is_outside(owner)
        and id(owner) not in tracer.outside.shadows
        and not is_plain(owner)
        and not isinstance(owner, (tuple, type))
    ):
        return _outside_method(tracer, function, owner, args, kwargs)
    if name in _KEYED and isinstance(owner, dict):
        tracer.check_methods(*args[:1], printing=False)  # the value is stored or given as it is
    elif name in _COMPARING or (isinstance(owner, (str, bytes)) and name == "format"):
        whole = (owner,) if name in ("__repr__", "__str__", "sort") else ()
        printing = isinstance(owner, (str, bytes)) or name in ("__repr__", "__str__")
        tracer.check_methods(*args, *kwargs.values(), *whole, printing=printing)
    given = list(args)
    if isinstance(owner, dict) and name in ("update", "__init__", "__ior__", "__or__"):
        given = [as_dict(tracer, x) for x in given]
    if name in ("extend", "update", "__init__", "intersection", "union", "difference", "join"):
        given = [tracer.unpack(x) if tracer.is_iterated_by_user(x) and not isinstance(x, dict) else x for x in given]
    named = {key: _callback(tracer, x, name) for key, x in kwargs.items()}
    return tracer.native(function, *given, **named)


def _outside_method(tracer: Tracer, function: Any, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A native method of an object from outside: reading a dict's or list's subclass is guarded, all else ends the
    trace.
    """
    name, source = function.__name__, tracer.outside.sources[id(owner)]
    place = tracer.reads.source
    if isinstance(owner, dict) and name in ("get", "__getitem__", "__contains__") and args and is_plain(args[0]):
        return entry(tracer, owner, source, name, *args)
    if isinstance(owner, dict) and name in (
        "keys",
        "values",
        "items",
        "__iter__",
        "get",
        "__getitem__",
        "__len__",
        "__contains__",
    ):
        copy = tracer.outside.wrap(entries(owner), place(f"{tracer.constants.name(entries)}({{}})", source))
        return tracer.native(getattr(copy, name), *args, **kwargs)
    if isinstance(owner, re.Pattern) and all(is_plain(x) for x in (*args, *kwargs.values())):  # guarded by its value
        return tracer.native(function, *args, **kwargs)
    raise Break(f"calls the native method {type(owner).__name__}.{name}() of an object from outside")


def entries(owner: dict[Any, Any]) -> dict[Any, Any]:
    """Entries of a dict in order, past methods that its class overrides."""
    keys = OrderedDict.__iter__(owner) if isinstance(owner, OrderedDict) else dict.__iter__(owner)
    return {key: dict.__getitem__(owner, key) for key in keys}


def as_dict(tracer: Tracer, value: Any) -> Any:
    """The entries of a mapping as native code copies them: through `keys` and `__getitem__` of a user's class, guarded
    where a dict from outside has a class of its own.  What is no such mapping is given back.
    """
    if isinstance(value, InstanceDict):
        return value.copy()
    if isinstance(value, dict) and type_attribute(type(value), "__iter__") in _NATIVE_ITERATION:
        if id(value) not in tracer.outside.unread:
            return value
        name = tracer.constants.name(entries)
        return tracer.outside.wrap(
            entries(value), tracer.reads.source(f"{name}({{}})", tracer.outside.sources[id(value)])
        )
    if not tracer.is_user_object(value):
        return value
    try:
        keys = tracer.finished(tracer.load_attr(value, "keys"))
    except AttributeError:
        return value
    names = [tracer.real(key) for key in tracer.unpack(tracer.nested(keys, ()))]
    return {key: tracer.real(tracer.finished(tracer.load_item(value, key))) for key in names}


_NATIVE_ITERATION = (dict.__iter__, OrderedDict.__iter__)


def entry(tracer: Tracer, owner: dict[Any, Any], source: Any, name: str, key: Any, *default: Any) -> Any:
    """One entry of a dict from outside whose class has methods of its own."""
    held, said = dict.__contains__(owner, key), tracer.constants.name(key)
    tracer.reads.check(source, f"{tracer.constants.name(dict.__contains__)}({{}}, {said}) is {held}")
    if name == "__contains__":
        return held
    if held:
        place = tracer.reads.source(f"{tracer.constants.name(dict.__getitem__)}({{}}, {said})", source)
        return tracer.outside.wrap(dict.__getitem__(owner, key), place)
    if name == "get":
        return default[0] if default else None
    missing = tracer.method_of(owner, "__missing__")
    if missing is None:
        if hasattr(type(owner), "__missing__"):
            raise Break(f"asks a {type(owner).__name__} from outside for what it does not hold")
        raise KeyError(key)
    return tracer.nested(missing, (key,))


def _slot_call(tracer: Tracer, name: str, owner: Any, args: tuple[Any, ...]) -> Any:
    """Call a slot of `object` for objects whose attributes go through the trace."""
    if isinstance(owner, (type, types.ModuleType)):
        return ABSENT
    if name == "__setattr__" and tracer.is_user_object(owner):
        found = attributes.set_object_attribute(tracer, owner, *args)
        return None if found is None else found
    if name == "__getattribute__" and tracer.is_user_object(owner):
        return attributes.generic_attribute(tracer, owner, args[0], attributes.no_attribute)
    if name == "__delattr__" and tracer.is_user_object(owner):
        attributes.delete_object_attribute(tracer, owner, *args)
        return None
    if name in ("__init__", "__init_subclass__") and not tracer.outside.is_outside(owner):
        return getattr(owner, name)(*args) if name not in type(owner).__dict__ else ABSENT
    return ABSENT


# ***** builtins that ask about objects *****


def _isinstance(tracer: Tracer, value: Any, kinds: Any) -> bool:
    if isinstance(value, HostNumber):
        return issubclass(value.kind, kinds)
    if is_traced_array(value):
        return issubclass(_array_type(value), kinds)
    if type(kinds) is tuple:
        return any(_isinstance(tracer, value, kind) for kind in kinds)
    if isinstance(kinds, type) and (method := tracer.method_of(kinds, "__instancecheck__")) is not None:
        return tracer.truth(tracer.nested(method, (value,)))
    _guard_registration(tracer, type(value), kinds)
    return isinstance(value, kinds)


def _guard_registration(tracer: Tracer, kind: type, abstract: Any) -> None:
    """Guard whether a user's class counts as one of an abstract class: it may be registered later."""
    if isinstance(abstract, abc.ABCMeta) and attributes.is_users_class(tracer, abstract) and in_python(kind):
        name = tracer.constants.name
        found = issubclass(kind, abstract)
        tracer.reads.check(tracer.reads.constant(abstract), f"{name(issubclass)}({name(kind)}, {{}}) is {found}")


def _array_type(array: Any) -> Any:
    """The class that NumPy gives an array of the trace."""
    return array.dtype.type if array.scalar else sys.modules["numpy"].ndarray


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"attribute name must be string, not '{type(name).__name__}'")


def _getattr(tracer: Tracer, obj: Any, name: str, *default: Any) -> Any:
    _check_name(name)
    if not default:
        return tracer.load_attr(obj, name)
    try:
        return tracer.finished(tracer.load_attr(obj, name))
    except AttributeError:
        return default[0]


def _hasattr(tracer: Tracer, obj: Any, name: str) -> bool:
    _check_name(name)
    try:
        tracer.finished(tracer.load_attr(obj, name))
    except AttributeError:
        return False
    return True


def _setattr(tracer: Tracer, obj: Any, name: str, value: Any) -> Any:
    _check_name(name)
    return tracer.store_attr(obj, name, value)


def _delattr(tracer: Tracer, obj: Any, name: str) -> None:
    _check_name(name)
    tracer.delete_attr(obj, name)


def length(tracer: Tracer, obj: Any) -> Any:
    """`len(obj)`."""
    method = tracer.method_of(obj, "__len__")
    if method is not None:
        found = tracer.nested(method, ())
        if isinstance(found, HostNumber) and tracer.truth(tracer.finished(tracer.compare("<", found, 0))):
            raise ValueError("__len__() should return >= 0")
        return as_length(found)
    if tracer.outside.is_outside(obj) and tracer.is_user_object(obj):
        tracer.reads.check(tracer.outside.sources[id(obj)], f"len({{}}) == {len(obj)}")
        return len(obj)
    if isinstance(obj, Tensor) and obj._spec.ndim and is_symbolic(obj._spec.shape[0]):
        return obj._spec.shape[0]  # `len` itself gives plain numbers
    return tracer.native(len, obj)


def as_length(found: Any) -> Any:
    """Check the result of a `__len__`, as `len()` does."""
    if not isinstance(found, (int, float, str, type(None))):  # numbers that are not known yet among them
        return found
    size = operator.index(cast("Any", found))
    if size < 0:
        raise ValueError("__len__() should return >= 0")
    return size


def _iter(tracer: Tracer, obj: Any, *sentinel: Any) -> Any:
    if sentinel:
        return _until(tracer, obj, sentinel[0])
    return tracer.iterate(obj)


def _until(tracer: Tracer, function: Any, sentinel: Any) -> Iterator[Any]:
    """`iter()` with a sentinel: what a function gives, until that is equal to it."""
    while True:
        item = tracer.nested(function, ())
        if tracer.truth(tracer.finished(tracer.compare("==", item, sentinel))):
            return
        yield item


def _exc_info(tracer: Tracer) -> Any:
    """`sys.exc_info()`: the interpreter has the exception handled that its frame handles."""
    found = sys.exc_info()
    if tracer.interpreters[-1].frames[-1].handled is None:
        if found[1] is not None:
            raise Break("asks for an exception that the caller handles")
        tracer.reads.check(tracer.reads.constant(sys), "{}.exc_info()[1] is None")
    return found


def _exception(tracer: Tracer) -> Any:
    """`sys.exception()`: the second of `sys.exc_info()`."""
    return _exc_info(tracer)[1]


def _next(tracer: Tracer, iterator: Any, *default: Any) -> Any:
    try:
        return tracer.next_item(iterator)
    except StopIteration:
        if not default:
            raise
        return default[0]


def _callable(tracer: Tracer, obj: Any) -> bool:
    return callable(obj)


def _issubclass(tracer: Tracer, kind: Any, kinds: Any) -> bool:
    if type(kinds) is tuple:
        return any(_issubclass(tracer, kind, each) for each in kinds)
    if isinstance(kinds, type) and (method := tracer.method_of(kinds, "__subclasscheck__")) is not None:
        return tracer.truth(tracer.nested(method, (kind,)))
    if isinstance(kind, type):
        _guard_registration(tracer, kind, kinds)
    return issubclass(kind, kinds)


def _repr(tracer: Tracer, obj: Any) -> Any:
    method = tracer.method_of(obj, "__repr__")
    if method is not None:
        return special_methods.called(tracer, obj, method, "__repr__", repr)
    if isinstance(obj, Tensor) or tracer.is_user_object(obj):
        raise Break(f"repr() of a {type(obj).__name__}")
    tracer.check_methods(obj)
    return tracer.native(repr, obj)


def _id(tracer: Tracer, obj: Any) -> int:
    """The identity of an object from outside, which the trace belongs to from now on."""
    if isinstance(obj, (Tensor, HostNumber)) or is_plain(obj) or not tracer.outside.is_outside(obj):
        raise Break(f"calls id() of a {type(obj).__name__} that is not the same object at every call")
    source = tracer.outside.sources[id(obj)]
    if not source.is_constant:
        tracer.reads.check(source, f"{{}} is {tracer.constants.name(obj)}")
    return id(obj)


def _vars(tracer: Tracer, *args: Any) -> Any:
    if not args:
        raise Break("vars() without an object")
    try:
        return tracer.load_attr(args[0], "__dict__")
    except AttributeError:
        raise TypeError("vars() argument must have __dict__ attribute") from None


_HANDLED: dict[str, Callable[..., Any]] = {
    "check": element_checks.check, "check_with": element_checks.check_with, "check_is_size": element_checks.check_is_size,
    "cond": control_flow.cond, "while_loop": higher_order.while_loop, "scheduler_step": schedules.scheduler_step,
    "shard_before": sharded.before, "shard_after": sharded.after, "scan": higher_order.scan, "map": higher_order.map_slices, "associative_scan": higher_order.associative_scan,
}  # fmt: skip
_CHECKS = frozenset(("check", "check_with", "check_is_size"))
_IN_DOCUMENTS = frozenset(("associative_scan", "cond", "map", "scan", "while_loop"))  # of graphs for other backends
_HANDLERS: dict[Any, Callable[..., Any]] = {
    isinstance: _isinstance, issubclass: _issubclass, getattr: _getattr, hasattr: _hasattr, setattr: _setattr, delattr: _delattr,
    id: _id, len: length, iter: _iter, next: _next, callable: _callable, repr: _repr, vars: _vars,
    sys.exc_info: _exc_info, sys.exception: _exception,
}  # fmt: skip

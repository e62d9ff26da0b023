"""The native dispatcher and native plans, seen from Python: types made known, calls taught, plans described.

What is native is in `_backends.cpu` (`dispatch_native`, `plan_native`, `node_native`, `tensor_native`); it is loaded when the first function is
made.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import update_wrapper
from itertools import count
from types import FunctionType
from typing import Any

from rushlight._base import errors
from rushlight._base.lazy import require
from rushlight._base.tracebacks import shorten
from rushlight._engine.core.state import GRAD, STATE, count_plan, forget, forgetful
from rushlight._engine.core.tensor import (
    AutogradMeta,
    Tensor,
    add_view,
    data_of,
    edge_of,
    new_meta,
    plain_classes,
    plain_hook,
)
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.formats import Layout, MemoryFormat
from rushlight._types.layout import Size
from rushlight._types.spec import Spec

__all__ = [
    "DYNAMIC", "EITHER", "INPLACE", "LIST", "STATIC", "VIEW", "Bounds", "Recast", "choose_plan", "constant_plan", "constants_plan", "detach_plan", "found", "fresh_plan", "identity_plan", "inplace_plan", "is_function", "item_plan",
    "kernel_plan", "known", "learn", "learn_shape_class", "make_dispatcher", "make_guard", "next_sequence", "nested_reader", "out_plan", "part_plan", "readable", "ready", "retyped_plan", "shifted_plan", "show_plan", "sequence_plan",
    "view_plan",
]  # fmt: skip

STATIC, DYNAMIC, LIST, EITHER = 0, 1, 2, 3
KERNEL, VIEW, INPLACE, DETACH, IDENTITY, CONSTANT, FRESH, ITEM, CHOOSE, SHOW, SEQUENCE = range(11)
NUMBER_CODES = {"float32": 0, "float64": 1, "int64": 2, "int32": 3, "int16": 4, "int8": 5, "uint8": 6, "bool": 7}

_numbers = count()
next_sequence = _numbers.__next__
_NOTHING = object()  # stands for "no default": equal to nothing, of no known type
_READY: list[Any] = []
_KEEP: list[Any] = []


def _slots(table: Any, first: int, cls: type, names: Sequence[str]) -> None:
    offset_of = require("rushlight._native.objects").slot_offset
    for k, name in enumerate(names):
        table[first + k] = offset_of(next(c for c in cls.__mro__ if name in c.__dict__), name)


def _objects(table: Any, first: int, values: Sequence[Any]) -> None:
    _KEEP.extend(values)
    for k, value in enumerate(values):
        table[first + k] = id(value)


def ready() -> Any:
    """The runtime, which knows the engine's types from now on."""
    if _READY:
        return _READY[0]
    from rushlight._engine.autograd.node import OpNode
    from rushlight._engine.dispatch.backward_spec import BackwardSpec

    runtime = require("rushlight._host.runtime").runtime()
    d, t = require("rushlight._host.dispatch_words"), require("rushlight._host.tensor_native")
    table = runtime.fast
    _objects(table, d.TENSOR_TYPE, [Tensor, Size])
    _objects(table, d.SETTINGS, [DType, Device, Layout, MemoryFormat])
    _slots(
        table, d.SPEC_DTYPE, Spec, ("dtype", "device", "shape", "strides", "plain", "contiguous", "conj", "released")
    )
    _slots(table, d.O_STORAGE, Tensor, ("_storage", "_spec", "_ptr", "_rg", "_node", "_autograd_meta"))
    _objects(table, d.STATE_OBJECT, [STATE, "word", "__dict__"])
    table[d.THREAD] = -1
    _objects(table, d.NEW_TUPLE, [tuple.__new__, shorten])
    _slots(table, t.O_EDGES, OpNode, ("_edges", "_extra", "_seq", "info", "saved", "versions", "where"))
    _objects(
        table, t.META_TYPE, [AutogradMeta, _numbers, edge_of, add_view, "co_filename", errors.PACKAGE, "", data_of[0]]
    )
    _slots(table, t.O_OUTPUT_NR, AutogradMeta, ("output_nr", "accumulator", "base", "views", "creation", "inference"))
    _slots(table, t.R_SPEC, BackwardSpec, ("last_spec", "last_word", "last_plan", "last_map"))
    sample = AutogradMeta()
    table[t.META_SLOTS] = len(AutogradMeta.__slots__)
    for k, name in enumerate(AutogradMeta.__slots__):
        _slots(table, t.META_TABLE + 2 * k, AutogradMeta, (name,))
        _objects(table, t.META_TABLE + 2 * k + 1, [getattr(sample, name)])
    _READY.append(runtime)
    _take_items(runtime, t.TUPLE_ITEM)
    forget[0] = runtime.forget
    plain_hook[0] = _plain
    for cls in plain_classes:
        _plain(cls)
    new_meta[0] = runtime.new_meta
    data_of[0], errors.USER_CODE[0] = runtime.data, runtime.user_place
    _dress(runtime.Dispatcher)
    return runtime


_AS_MAPPING, _SUBSCRIPT = 112, 8  # where a type has its mapping functions, and where among them the one for `x[key]` is


def _take_items(runtime: Any, place: int) -> None:
    """Let items of a `torch.Size` be taken natively: shapes are asked for their sizes all the time.

    A class with a `__getitem__` in Python has a function there that calls it, the same for all classes; where that is not so, types lie otherwise
    in this interpreter, and everything stays as it is.
    """
    pointer = require("ctypes").c_void_p

    def subscript(cls: type) -> Any:
        return pointer.from_address(pointer.from_address(id(cls) + _AS_MAPPING).value + _SUBSCRIPT)

    class Other(dict[Any, Any]):
        def __getitem__(self, key: Any) -> Any:
            return dict.__getitem__(self, key)

    own, usual = subscript(tuple).value, subscript(Size).value
    if subscript(Other).value != usual or own == usual or subscript(list).value == own:
        return
    # In the class stands a callable that is no function in Python, of which the interpreter would make a short cut of its own.
    Size.__getitem__ = make_dispatcher(Size.__getitem__, (STATIC, STATIC), (..., ...), ("self", "item"))  # type: ignore[method-assign]
    runtime.fast[place] = own
    subscript(Size).value = runtime.address("size_item")


def _plain(cls: type) -> None:
    """Let calls with tensors of this class be looked up as those with tensors are (a few classes; others go the longer way)."""
    d, table = require("rushlight._host.dispatch_words"), _READY[0].fast
    if cls is not Tensor and table[d.PLAIN_COUNT] < d.PLAIN_MAX:
        _objects(table, d.PLAIN + table[d.PLAIN_COUNT], [cls])
        table[d.PLAIN_COUNT] += 1


def _dress(cls: Any) -> None:
    """What Python expects of a function."""
    cls.__module__, cls.__name__ = "rushlight", "operator_function"
    cls.__repr__ = lambda self: f"<function {self.__qualname__}>"
    cls.__reduce__ = _named
    cls.__signature__ = property(_signature)
    # Composites are functions in Python: what they take by name, with its defaults, can be asked of them as of any other.
    cls.__kwdefaults__ = property(lambda self: self.__wrapped__.__kwdefaults__)
    cls.__defaults__ = property(lambda self: self.__wrapped__.__defaults__)


def _signature(function: Any) -> Any:
    """What `inspect.signature` says of a dispatcher: the parameters of its row, or those of the function in Python."""
    inspect = require("inspect")

    row = vars(function).get("operator")
    if row is None:
        wrapped = getattr(function, "__wrapped__", None)
        return None if wrapped is None else inspect.signature(inspect.unwrap(wrapped))
    if vars(function).get("inplace_flag"):
        return schema_signature(
            row, inspect, inspect.Parameter("inplace", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=False)
        )
    return schema_signature(row, inspect)


def schema_signature(row: Any, inspect: Any, *more: Any) -> Any:
    """The parameters of a row of the operator table as the module `inspect` has them, with `more` after those that may stand by place."""
    parameter = inspect.Parameter
    kinds = (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    made = [
        parameter(a.name, kinds[a.keyword_only], default=parameter.empty if a.required else a.default)
        for a in row.schema.arguments
    ]
    made[row.schema.positional : row.schema.positional] = more
    return inspect.Signature(made)


def _named(function: Callable[..., Any]) -> Any:
    """Where pickle finds a dispatcher: by its name on its page, or as a method."""
    page = sys.modules.get(function.__module__)
    if getattr(page, function.__qualname__, None) is function:
        return function.__qualname__
    for name in (function.__name__, *vars(Tensor)):
        if Tensor.__dict__.get(name) is function:
            return getattr, (Tensor, name)
    return function.__qualname__


def is_function(value: Any) -> bool:
    """Whether a value is a function, be it in Python or a dispatcher."""
    return isinstance(value, FunctionType) or bool(_READY) and isinstance(value, _READY[0].Dispatcher)


def make_dispatcher(fallback: Callable[..., Any], kinds: Sequence[int], defaults: Sequence[Any], names: Sequence[str],
    count: int | None = None) -> Any:  # fmt: skip
    """A callable that finds plans by what it is called with; what it does not know goes to `fallback`.

    `kinds`, `defaults` (`...` for none) and `names` belong to the declared arguments: STATIC ones are part of a signature by value, of
    DYNAMIC ones (tensors, numbers) the kind is, LISTs are lists of tensors, EITHER is a tensor or a value.  Those after the first `count`
    are given by name alone.
    """
    values = tuple(_NOTHING if v is ... else v for v in defaults)
    made = ready().dispatcher(
        fallback, bytes(kinds), values, tuple(map(sys.intern, names)), len(names) if count is None else count
    )
    forgetful.append(made)
    return made


_ANY = 1 << 40  # arguments by place


def make_guard(
    asking: Callable[..., Any], function: Callable[..., Any], mask: int, most: int = _ANY, named: bool = True
) -> Any:
    """`function` for calls of the usual kind, found natively; all others go to `asking`.

    Usual are those with at most `most` arguments by place, with some by name only if `named`, in a state without the bits of `mask`, where no
    argument, nor an item of a sequence among them, is of a class with a say.
    """
    made = ready().guard(asking, function, most, int(named), mask)
    update_wrapper(made, asking)
    made.__wrapped__ = function
    return made


def learn(
    dispatcher: Any, args: Sequence[Any], kwargs: dict[str, Any], plan: Any, picks: Sequence[Any], wrap: Any = None
) -> bool:
    """Keep `plan` for calls like this one.  `picks` says where the plan's arguments are: positions, names, or (either, place in a list)."""
    names = list(kwargs)
    values = (*args, *kwargs.values())
    keep: list[Any] = []
    for value in values:
        if not _keep(value, keep):
            return False
    runtime = _READY[0]
    places = tuple([_place(p, len(args), names) for p in picks])
    found = runtime.learn(dispatcher, values, tuple(names) if names else None, plan, places, wrap, tuple(keep))
    if found:
        count_plan()
    return found


def found(dispatcher: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]] | None:
    """The plan that a dispatcher has learnt, or casts, for a call, and what it is called with; None where it has none."""
    made: tuple[Any, tuple[Any, ...]] | None = _READY[0].found(
        dispatcher, (*args, *kwargs.values()), tuple(kwargs) or None
    )
    return made


def learn_shape_class(
    dispatcher: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    picks: Sequence[Any],
    wrap: Any,
    casting: Callable[..., Any],
    sized: bool,
) -> None:
    """Keep what was learnt with `learn`, and how plans for calls are made that differ from this one in sizes alone; ints are sizes if `sized`.

    `casting(known)` gives a function that makes them, or None; see `_engine.dispatch.shape_classes`.
    """
    names = tuple(kwargs) or None
    values = (*args, *kwargs.values())
    known = _READY[0].shape_class(dispatcher, values, names, int(sized))
    made = None if known is None else casting(known)
    if made is not None:
        keep: list[Any] = []
        for value in values:
            _keep(value, keep)
        places = tuple([_place(p, len(args), list(kwargs)) for p in picks])
        _READY[0].learn(dispatcher, values, names, made, places, wrap, tuple(keep), int(sized))


def known(dispatcher: Any) -> int:
    """How many signatures a dispatcher has learnt."""
    return ready().known(dispatcher)


def readable(dispatcher: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call is of those whose plans can be learnt: no subclass with a say, no number beyond 60 bits, ..."""
    names = tuple(kwargs) or None
    return _READY[0].learn(dispatcher, (*args, *kwargs.values()), names, None, (), None, ())


def _place(pick: Any, n: int, names: Sequence[str]) -> int:
    """A pick as the number that the dispatcher reads."""
    if type(pick) is tuple:
        return _place(pick[0], n, names) | (pick[1] + 1) << 32
    return pick if type(pick) is int else n + names.index(pick)


def _keep(value: Any, keep: list[Any]) -> bool:
    """Collect the objects whose addresses stand for an argument; False for those that are not unique."""
    kind = type(value)
    if isinstance(value, Tensor):
        keep.append(value._spec)
    elif kind is list or kind is tuple:
        return not [v for v in value if not _keep(v, keep)]
    elif kind is str:
        if sys.intern(value) is not value:
            return False
        keep.append(value)
    elif kind is DType or kind is Device or kind is Layout or kind is MemoryFormat:
        keep.append(value)
    return True


# ***** descriptions of plans *****


def _program(exe: Any) -> tuple[list[list[int]], int, list[int]] | None:
    """(steps, words held, places of the results) of an executable, or None where a step is not a kernel."""
    calls = getattr(exe, "calls", None)
    if not calls:
        return None
    address, program = _READY[0].kernel_address, exe.program
    first = program.n_inputs + program.n_args
    results = list(exe.results)
    if any(0 <= r < first for r in results) or len({r for r in results if r >= 0}) != sum(r >= 0 for r in results):
        return None
    steps: list[list[int]] = []
    after = first
    last: dict[int, int] = {}
    for k, (call, ints, words, outputs) in enumerate(calls):
        handle = getattr(call, "__self__", None)
        where = address(handle) if handle is not None and ints else None
        if where is None or outputs > 5:
            return None
        steps.append([where, ints, len(words), outputs, 0, *words])
        for place in [*words, *range(after, after + outputs)]:
            last[place] = k
        after += outputs
    for place, k in last.items():
        if place >= first and place not in results:
            steps[k][4] += 1
            steps[k].append(place)
    return steps, after, results


def _describe(parts: dict[int, Any], size: int) -> array[int]:
    """The words of a description: numbers in their places, lists behind them with their offsets in their places."""
    words = [0] * size
    for place, value in parts.items():
        if isinstance(value, list):
            words[place] = len(words)
            words += value
        else:
            words[place] = value
    return array("q", words)


def _plan(kind: int, fallback: Callable[..., Any], parts: dict[int, Any], keep: Sequence[Any]) -> Any:
    held = _describe(parts, require("rushlight._host.plan_words").DESCRIPTION_WORDS)
    return _READY[0].plan(kind, fallback, (*keep, held), held.buffer_info()[0])


_EMPTY: list[int] = [0]  # a list of which nothing is read


def _of_program(exe: Any, in_specs: Sequence[Any]) -> dict[int, Any] | None:
    p = require("rushlight._host.plan_words")
    ready()
    found = _program(exe)
    if found is None:
        return None
    steps, total, results = found
    tensors = [i for i, s in enumerate(in_specs) if s is not None]
    numbers = [i for i, s in enumerate(in_specs) if s is None]
    return {
        p.N_GIVEN: len(in_specs), p.N_INPUTS: len(in_specs), p.N_TENSORS: len(tensors), p.ORDER: [*tensors, *numbers] or _EMPTY,
        p.N_STEPS: len(steps),
        p.STEPS: [w for step in steps for w in step], p.N_WORDS: total, p.LARGEST: max(s[2] + s[3] for s in steps),
        p.N_RESULTS: len(results), p.RESULTS: results,
    }  # fmt: skip


def kernel_plan(
    exe: Any, fallback: Callable[..., Any], in_specs: Sequence[Spec | None], specs: Sequence[Spec], n_shown: int = 0, backward_spec: Any = None,
    edges: Sequence[int] = (), mask: Sequence[bool] = (), several: bool = False, bounds: Bounds = None,
) -> Any:  # fmt: skip
    """A native plan that runs `exe` and makes tensors with `specs`, or `fallback` where that cannot be: tensors may no longer have `in_specs`.

    With a backward spec it records a node whose edges lead to the arguments numbered `edges`; `mask` says which of the results that are shown
    (the first `n_shown`) have gradients.  Numbers that are not ints within `bounds`, where there are any, go to `fallback`.
    """
    p = require("rushlight._host.plan_words")
    parts = _of_program(exe, in_specs)
    if parts is None or len(parts[p.RESULTS]) != len(specs) or not 0 < len(specs) <= 60:
        return fallback
    parts |= _bounded(p, bounds)
    wanted = [s for s in in_specs if s is not None]
    places = [*parts[p.RESULTS], *[0] * len(wanted)]
    parts[p.RESULTS] = [w for place, spec in zip(places, [*specs, *wanted], strict=True) for w in (place, id(spec))]
    parts[p.N_SHOWN], parts[p.SEVERAL] = n_shown or len(specs), int(several)
    parts[p.SAVED] = _EMPTY
    if backward_spec is not None:
        parts |= _recording(p, backward_spec, edges, mask)
        saved = []
        for kind, number in backward_spec.sources:
            if kind == "input":
                saved += [p.FROM_NUMBER if in_specs[number] is None else p.FROM_TENSOR, number]
            else:
                saved += [p.FROM_RESULT, number if kind == "output" else backward_spec.n_results + number]
        parts[p.N_SAVED], parts[p.SAVED] = len(saved) // 2, saved or _EMPTY
    return _plan(KERNEL, fallback, parts, (exe, *specs, *wanted, backward_spec))


class Recast:
    """Native plans that differ from one (of `kernel_plan` or `view_plan`) in the constants of their steps, in specs and places of views, and in the
    backward spec alone.
    """

    __slots__ = ("_first", "_held", "_recipe", "_results", "_specs", "_steps", "_words", "layout")

    def __init__(
        self,
        plan: Any,
        constants: Sequence[tuple[int, int]] | None = None,
        offsets: tuple[Sequence[int], int] | None = None,
    ) -> None:
        """`constants`: which of the values that `cast` takes are those of each step; `offsets`: which say where each view begins, in elements of so
        many bytes.  Without either there is no `cast`.
        """
        p = require("rushlight._host.plan_words")
        self._first = plan.keep[0]  # it keeps the kernels
        self._words: array[int] = plan.keep[-1]
        words, at = self._words, self._words[p.STEPS]
        self._steps: list[int] = []
        for _ in range(words[p.N_STEPS]):
            self._steps.append(at + 1)
            at += 5 + words[at + 2] + words[at + 4]
        # Pairs of where and a spec, for each result, then each tensor that goes in; a change in place has that of its target, where it has any.
        self._results = words[p.RESULTS] if words[p.N_RESULTS] or words[p.N_SHOWN] else p.TARGET_SPEC - 1
        if words[p.N_RESULTS]:
            self._specs = words[p.N_RESULTS] + words[p.N_TENSORS]
        else:
            self._specs = words[p.N_SHOWN] or int(words[p.TARGET_SPEC] != 0)
        self._recipe = p.BACKWARD_SPEC if words[p.RECORDS] else None
        self._held = words.tobytes()
        self.layout: bytes | None = None
        if constants is not None or offsets is not None:
            lists = [w for place, part in zip(self._steps, constants or (), strict=True) for w in (place, *part)]
            places, item = offsets or ((), 0)
            taken = sum(stop - start for start, stop in constants or ())
            head = [len(words), taken, self._results, self._specs, self._recipe or 0, len(self._steps), item]
            self.layout = array("q", [*head, *lists, *places]).tobytes()

    @staticmethod
    def fits(plan: Any) -> bool:
        """Whether a plan is one that can be cast again."""
        return type(plan) is _READY[0].Plan

    def cast(
        self,
        fallback: Callable[..., Any],
        values: tuple[int, ...],
        specs: tuple[Spec, ...],
        backward_spec: Any,
        kind: int = KERNEL,
    ) -> Any:
        """The plan with the constants, or the places of views, that are among these values; `specs`: of the results, then of what goes in."""
        return _READY[0].cast(kind, fallback, self._first, self._held, self.layout, values, specs, backward_spec)

    def plan(
        self, fallback: Callable[..., Any], constants: Sequence[array[int]], specs: Sequence[Spec], backward_spec: Any
    ) -> Any:
        """The plan with these."""
        words = self._words[:]
        for place, held in zip(self._steps, constants, strict=True):
            words[place] = held.buffer_info()[0]
        for k, spec in enumerate(specs):
            words[self._results + 2 * k + 1] = id(spec)
        if self._recipe is not None:
            words[self._recipe] = id(backward_spec)
        return _READY[0].plan(
            KERNEL, fallback, (self._first, *constants, *specs, backward_spec, words), words.buffer_info()[0]
        )


def _recording(p: Any, backward_spec: Any, edges: Sequence[int], mask: Sequence[bool]) -> dict[int, Any]:
    return {
        p.RECORDS: 1, p.BACKWARD_SPEC: id(backward_spec), p.NODE_TYPE: id(backward_spec.cls), p.N_EDGES: len(edges), p.EDGES: list(edges) or _EMPTY,
        p.DIFFERENTIABLE: sum(1 << k for k, m in enumerate(mask) if m),
    }  # fmt: skip


Bounds = tuple[int, int] | None  # the least and the largest int that may be put into memory as it is


def _bounded(p: Any, bounds: Bounds) -> dict[int, Any]:
    return {} if bounds is None else {p.BOUNDED: 1, p.LEAST: bounds[0], p.MOST: bounds[1]}


def constants_plan(exe: Any, fallback: Callable[..., Any], spec: Spec, numbers: Sequence[Any]) -> Any:
    """A native plan without arguments that runs `exe` with these numbers and makes one tensor, or `fallback` where that cannot be."""
    p = require("rushlight._host.plan_words")
    parts = _of_program(exe, [None] * len(numbers))
    if parts is None or len(parts[p.RESULTS]) != 1:
        return fallback
    words = [w for n in numbers for w in struct.unpack("q", struct.pack("d" if type(n) is float else "q", n))]
    parts |= {
        p.N_GIVEN: 0,
        p.ORDER: [-1 - k for k in range(len(words))] or _EMPTY,
        p.CONSTANTS: words or _EMPTY,
        p.SAVED: _EMPTY,
    }
    parts |= {p.RESULTS: [parts[p.RESULTS][0], id(spec)], p.N_SHOWN: 1}
    return _plan(KERNEL, fallback, parts, (exe, spec))


def shifted_plan(plan: Any, fallback: Callable[..., Any], step: int) -> Any:
    """A native plan of a kernel for a view as one of the tensor that it is a view of, `step` bytes before; outside of any graph.

    None where `plan` is no such plan.
    """
    p = require("rushlight._host.plan_words")
    if type(plan) is not ready().Plan:
        return None
    words = array("q", plan.keep[-1])
    if len(words) <= p.RECORDS or not words[p.N_STEPS] or words[p.RECORDS]:
        return None
    words[p.OFFSET] = step
    words[words[p.RESULTS] + 2 * words[p.N_RESULTS] + 1] = 0  # it reads a tensor with another spec
    return _READY[0].plan(KERNEL, fallback, (*plan.keep, words), words.buffer_info()[0])


def inplace_plan(
    exe: Any, fallback: Callable[..., Any], in_specs: Sequence[Spec | None], bounds: Bounds = None, alone: bool = False
) -> Any:
    """A native plan that runs `exe`, which changes its first argument and has no results, or `fallback` where that cannot be.

    Numbers that are not ints within `bounds`, where there are any, go to `fallback`, and operands that share memory with the first argument, unless
    they are the same elements and it need not be `alone`.
    """
    p = require("rushlight._host.plan_words")
    parts = _of_program(exe, in_specs)
    if parts is None or parts[p.N_RESULTS]:
        return fallback
    parts |= _bounded(p, bounds)
    parts[p.RESULTS], parts[p.QUIET] = _EMPTY, int(not STATE.word & GRAD)
    parts[p.TARGET_SPEC] = 0 if alone else id(in_specs[0])
    return _plan(INPLACE, fallback, parts, (exe, in_specs[0]))


def out_plan(exe: Any, fallback: Callable[..., Any], tensors: int, numbers: int) -> Any:
    """A native plan that runs `exe` on (tensors, numbers, out) and writes into `out`; `fallback` where that cannot be."""
    p = require("rushlight._host.plan_words")
    parts = _of_program(exe, [*[Spec] * (tensors + 1), *[None] * numbers])
    if parts is None or parts[p.N_RESULTS]:
        return fallback
    last = tensors + numbers
    parts[p.ORDER] = [*range(tensors), last, *range(tensors, last)]
    parts[p.RESULTS], parts[p.QUIET], parts[p.TARGET] = _EMPTY, int(not STATE.word & GRAD), last
    return _plan(INPLACE, fallback, parts, (exe,))


def view_plan(
    fallback: Callable[..., Any], views: Sequence[tuple[Spec, int]], creation: str, several: bool, backward_spec: Any = None, span: int | None = None,
    whole: bool = False,
) -> Any:  # fmt: skip
    """A native plan that shows its first argument's memory under these specs, so many bytes on; with a backward spec it records a node.

    With a `span` there must be so many bytes from there on, else `fallback` is asked; bytes count from the start of the storage if it is the
    `whole` of it that is shown, and from the argument's first element otherwise.
    """
    p = require("rushlight._host.plan_words")
    ready()
    if not 0 < len(views) <= 60:
        return fallback
    text = next((t for t in _CREATIONS if t == creation), None)
    parts: dict[int, Any] = {
        p.N_SHOWN: len(views), p.RESULTS: [w for spec, step in views for w in (step, id(spec))], p.SEVERAL: int(several), p.CREATION: id(text),
    }  # fmt: skip
    if span is not None:
        parts |= {p.BOUNDED: 1, p.LEAST: span, p.MOST: int(whole)}
    if backward_spec is not None:
        parts |= _recording(p, backward_spec, (0,), [True] * len(views))
    return _plan(VIEW, fallback, parts, (*[s for s, _ in views], backward_spec))


_CREATIONS = ("", "no_grad", "multi", "custom")


def detach_plan(fallback: Callable[..., Any]) -> Any:
    """A native plan that gives its argument's memory outside of the graph."""
    ready()
    return _plan(DETACH, fallback, {}, ())


def choose_plan(fallback: Callable[..., Any], picks: Sequence[int]) -> Any:
    """A native plan that gives a tuple of the arguments at these places."""
    p = require("rushlight._host.plan_words")
    ready()
    return _plan(CHOOSE, fallback, {p.N_RESULTS: len(picks), p.RESULTS: list(picks)}, ())


def show_plan(fallback: Callable[..., Any], parts: Sequence[tuple[int, Spec, int]]) -> Any:
    """A native plan that shows arguments (by number) under these specs, so many bytes on, outside of any graph; it gives a tuple."""
    p = require("rushlight._host.plan_words")
    ready()
    words = [w for i, spec, step in parts for w in (i, step, id(spec))]
    return _plan(SHOW, fallback, {p.N_RESULTS: len(parts), p.RESULTS: words}, [spec for _, spec, _ in parts])


SEQUENCE_PLACES, SEQUENCE_INPUTS = (
    128,
    64,
)  # the most that a plan sequence may hold, and the most that a step of it may take


def sequence_plan(steps: Sequence[tuple[Any, Sequence[int], int, int, Sequence[int]]], given: int, places: int, constants: Sequence[Any],
              results: Sequence[int], several: bool) -> Any:  # fmt: skip
    """A native plan that runs other plans; None where there is more of something than one can hold.

    A step is (plan, where its arguments are, how many results it gives as a tuple or 0 for one, where they go, which places nobody reads after
    it).  Places count from the `given` arguments on; below zero they are `constants`: -1 is the first.  The plan gives what is at `results`, as a
    tuple if `several`.
    """
    p = require("rushlight._host.plan_words")
    if places > SEQUENCE_PLACES or any(len(inputs) > SEQUENCE_INPUTS for _, inputs, _, _, _ in steps):
        return None
    ready()
    words = [
        w for plan, inputs, n, at, dead in steps for w in (id(plan), len(inputs), n, at, len(dead), *inputs, *dead)
    ]
    parts = {
        p.N_GIVEN: given, p.N_STEPS: len(steps), p.STEPS: words or _EMPTY, p.N_WORDS: places, p.N_RESULTS: len(results),
        p.RESULTS: list(results) or _EMPTY, p.SEVERAL: int(several),
    }  # fmt: skip
    return _plan(SEQUENCE, len, parts, (*constants, *[step[0] for step in steps]))


def retyped_plan(fallback: Callable[..., Any], spec: Spec) -> Any:
    """A native plan that shows its argument's memory under another spec, outside of any graph and as no view of it."""
    p = require("rushlight._host.plan_words")
    ready()
    return _plan(SHOW, fallback, {p.N_RESULTS: 1, p.RESULTS: [0, 0, id(spec)], p.SILENT: 1}, [spec])


def identity_plan() -> Any:
    """A native plan that gives its argument itself."""
    ready()
    return _plan(IDENTITY, len, {}, ())


def constant_plan(value: Any) -> Any:
    """A native plan that gives one object, whatever its arguments."""
    ready()
    return _plan(CONSTANT, value, {}, ())


def fresh_plan(spec: Spec, zeros: bool) -> Any:
    """A native plan that makes a tensor over new memory."""
    p = require("rushlight._host.plan_words")
    ready()
    return _plan(FRESH, len, {p.RESULTS: [id(spec), spec.nbytes], p.SILENT: int(zeros)}, (spec,))


def item_plan(fallback: Callable[..., Any], spec: Spec) -> Any:
    """A native plan that reads the only element of a tensor, or `fallback` for the rarer dtypes."""
    p = require("rushlight._host.plan_words")
    ready()
    code = NUMBER_CODES.get(spec.dtype.name)
    return fallback if code is None or spec.conj else _plan(ITEM, fallback, {p.N_TENSORS: code}, ())


def nested_reader(spec: Spec) -> Callable[[int], Any] | None:
    """A function from the address of the first element to nested lists of Python numbers; None for the rarer dtypes, and where there are no dims."""
    code = NUMBER_CODES.get(spec.dtype.name)
    if code is None or spec.conj or not spec.ndim:
        return None
    size, nested = spec.dtype.itemsize, ready().nested
    steps = [
        w for n, s in zip(spec.shape, spec.strides, strict=True) for w in (n, s * size if n > 1 and spec.numel else 0)
    ]
    layout = array("q", [spec.ndim, code, *steps])
    where = layout.buffer_info()[0]

    def read(address: int, _held: Any = layout) -> Any:
        return nested(address, where)

    return read


def part_plan(plan: Any, fallback: Callable[..., Any], step: int) -> Any:
    """The native in-place plan of a view as a plan of the tensor that it is a view of, `step` bytes before; it returns None.

    None where `plan` is not native.
    """
    p = require("rushlight._host.plan_words")
    if type(plan) is not ready().Plan:
        return None
    words = array("q", plan.keep[-1])
    words[p.OFFSET], words[p.SILENT] = step, 1
    return _READY[0].plan(INPLACE, fallback, (*plan.keep, words), words.buffer_info()[0])

"""The native dispatcher and native plans, seen from Python: types are made known, plans cached, tables packed.

What is native is in `_host` (`dispatch_native`, `plan_native`, `node_native`, `tensor_native`); it is loaded when the
first function is made.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import cache, update_wrapper
from itertools import count
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._backends.registry import backend_of
from rushlight._base import errors
from rushlight._base.lazy import require
from rushlight._base.tracebacks import shorten
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import GRAD, STATE, add_dispatcher, count_plan
from rushlight._engine.core.tensor import AutogradMeta, Tensor, add_view, edge_of, plain_classes
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.formats import Layout, MemoryFormat
from rushlight._types.layout import Size
from rushlight._types.spec import Spec

if TYPE_CHECKING:
    from rushlight._host.device_records import NativeDevice

__all__ = [
    "DYNAMIC", "EITHER", "LIST", "STATIC", "Bounds", "Recast", "Recording", "Results", "choose_plan", "constant_plan", "constants_plan", "detach_plan", "find_plan", "fresh_plan", "identity_plan", "inplace_plan", "is_function", "item_plan",
    "cache_plan", "cache_shape_class", "cacheable", "cached_plans", "kernel_plan", "make_dispatcher", "make_guard", "native_device", "next_sequence", "nested_reader", "out_plan", "part_plan", "ready", "register_slots", "retyped_plan", "shifted_plan", "show_plan", "sequence_plan",
    "view_plan",
]  # fmt: skip

STATIC, DYNAMIC, LIST, EITHER = 0, 1, 2, 3

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


# Word of the native tables -> a class, and its slots that stand there from this word on.
_REGISTERED: dict[str, tuple[type, Sequence[str]]] = {}


def register_slots(word: str, cls: type, names: Sequence[str]) -> None:
    """Let native code know where these slots of a class lie: `word` is the first of them in `_host.tensor_native`."""
    _REGISTERED[word] = cls, names


def ready() -> Any:
    """The runtime, which knows the engine's types from now on."""
    if _READY:
        return _READY[0]
    absent = {"O_EDGES", "R_SPEC"} - _REGISTERED.keys()
    if absent:
        raise RuntimeError(
            f"the native dispatcher was asked for before {sorted(absent)} were registered: see `register_slots`"
        )
    runtime = require("rushlight._host.runtime").runtime()
    d, t = require("rushlight._host.dispatch_words"), require("rushlight._host.tensor_native")
    table = runtime.words
    _objects(table, d.TENSOR_TYPE, [Tensor, Size])
    _objects(table, d.SETTINGS, [DType, Device, Layout, MemoryFormat])
    _slots(
        table, d.SPEC_DTYPE, Spec, ("dtype", "device", "shape", "strides", "plain", "contiguous", "conj", "released")
    )
    _slots(table, d.O_STORAGE, Tensor, ("_storage", "_spec", "_ptr", "_rg", "_node", "_autograd_meta"))
    _objects(table, d.STATE_OBJECT, [STATE, "word", "__dict__"])
    table[d.THREAD] = -1
    _objects(table, d.NEW_TUPLE, [tuple.__new__, shorten])
    _objects(
        table,
        t.META_TYPE,
        [AutogradMeta, _numbers, edge_of, add_view, "co_filename", errors.PACKAGE, "", HOOKS.data_of],
    )
    _slots(table, t.O_OUTPUT_NR, AutogradMeta, ("output_nr", "accumulator", "base", "views", "creation", "inference"))
    for word, (cls, names) in _REGISTERED.items():
        _slots(table, getattr(t, word), cls, names)
    sample = AutogradMeta()
    table[t.META_SLOTS] = len(AutogradMeta.__slots__)
    for k, name in enumerate(AutogradMeta.__slots__):
        _slots(table, t.META_TABLE + 2 * k, AutogradMeta, (name,))
        _objects(table, t.META_TABLE + 2 * k + 1, [getattr(sample, name)])
    _READY.append(runtime)
    _take_items(runtime, t.TUPLE_ITEM)
    HOOKS.forget_calls_of = runtime.forget
    HOOKS.plain_class_added = _plain
    for cls in plain_classes:
        _plain(cls)
    HOOKS.new_meta = runtime.new_meta
    HOOKS.data_of, HOOKS.user_code = runtime.data, runtime.user_place
    _dress(runtime.Dispatcher)
    return runtime


_AS_MAPPING, _SUBSCRIPT = 112, 8  # where a type has its mapping functions, and where among them the one for `x[key]` is


def _take_items(runtime: Any, place: int) -> None:
    """Let items of a `torch.Size` be taken natively: shapes are asked for their sizes all the time.

    A class with a `__getitem__` in Python has a function there that calls it, the same for all classes; where that is
    not so, types lie otherwise in this interpreter, and everything stays as it is.
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
    # In the class stands a callable that is no function in Python, of which the interpreter would make a short cut of
    # its own.
    Size.__getitem__ = make_dispatcher(Size.__getitem__, (STATIC, STATIC), (..., ...), ("self", "item"))  # type: ignore[method-assign]
    runtime.words[place] = own
    subscript(Size).value = runtime.address("size_item")


def _plain(cls: type) -> None:
    """Let calls with tensors of this class be looked up as those with tensors are (a few classes; others go the longer
    way).
    """
    d, table = require("rushlight._host.dispatch_words"), _READY[0].words
    if cls is not Tensor and table[d.PLAIN_COUNT] < d.PLAIN_MAX:
        _objects(table, d.PLAIN + table[d.PLAIN_COUNT], [cls])
        table[d.PLAIN_COUNT] += 1


def _dress(cls: Any) -> None:
    """Give the class the attributes of a Python function."""
    cls.__module__, cls.__name__ = "rushlight", "operator_function"
    cls.__repr__ = _printed
    cls.__reduce__ = _named
    cls.__signature__ = property(_signature)
    # Composites are functions in Python: what they take by name, with its defaults, can be asked of them as of any
    # other.
    cls.__kwdefaults__ = property(lambda self: self.__wrapped__.__kwdefaults__)
    cls.__defaults__ = property(lambda self: self.__wrapped__.__defaults__)


def _printed(function: Any) -> str:
    """As PyTorch prints functions: programs that rewrite graphs know `torch.flatten` by this text."""
    if function.__module__ in ("rushlight", "torch"):
        return f"<built-in method {function.__qualname__} of type object at {id(type(function)):#x}>"
    return f"<function {function.__qualname__} at {id(function):#x}>"


def _signature(function: Any) -> Any:
    """The `inspect.signature` of a dispatcher: the parameters of its row, or those of the function in Python."""
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
    """The parameters of a row of the operator table as the module `inspect` has them, with `more` after those that may
    stand by place.
    """
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


def make_dispatcher(
    fallback: Callable[..., Any],
    kinds: Sequence[int],
    defaults: Sequence[Any],
    names: Sequence[str],
    count: int | None = None,
) -> Any:
    """A callable that finds plans by what it is called with; what it does not know goes to `fallback`.

    `kinds`, `defaults` (`...` for none) and `names` belong to the declared arguments: STATIC ones are part of a
    signature by value, of DYNAMIC ones (tensors, numbers) the kind is, LISTs are lists of tensors, EITHER is a tensor
    or a value.  Those after the first `count` are given by name alone.
    """
    values = tuple(_NOTHING if v is ... else v for v in defaults)
    made = ready().dispatcher(
        fallback, bytes(kinds), values, tuple(map(sys.intern, names)), len(names) if count is None else count
    )
    add_dispatcher(made)
    return made


_ANY = 1 << 40  # positional arguments


def make_guard(
    asking: Callable[..., Any], function: Callable[..., Any], mask: int, most: int = _ANY, named: bool = True
) -> Any:
    """Call `function` where nothing can override the call, which is checked natively, and `asking` otherwise.

    A call goes to `function` with at most `most` positional arguments, with keywords only if `named`, in a state
    without the bits of `mask`, and where no argument, nor an item of a sequence among them, is of a class that may
    override it.
    """
    made = ready().guard(asking, function, most, int(named), mask)
    update_wrapper(made, asking)
    made.__wrapped__ = function
    return made


def cache_plan(
    dispatcher: Any, args: Sequence[Any], kwargs: dict[str, Any], plan: Any, picks: Sequence[Any], wrap: Any = None
) -> bool:
    """Cache `plan` for calls like this one.  `picks` says which arguments the plan takes: positions, names, or (either,
    index in a list).
    """
    names = list(kwargs)
    values = (*args, *kwargs.values())
    keep: list[Any] = []
    for value in values:
        if not _keep(value, keep):
            return False
    runtime = _READY[0]
    places = tuple([_place(p, len(args), names) for p in picks])
    found = runtime.cache_plan(dispatcher, values, tuple(names) if names else None, plan, places, wrap, tuple(keep))
    if found:
        count_plan()
    return found


def find_plan(dispatcher: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...]] | None:
    """The plan that a dispatcher has cached, or casts, for a call, and the plan's arguments; None where it has none."""
    made: tuple[Any, tuple[Any, ...]] | None = _READY[0].find_plan(
        dispatcher, (*args, *kwargs.values()), tuple(kwargs) or None
    )
    return made


def cache_shape_class(
    dispatcher: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    picks: Sequence[Any],
    wrap: Any,
    casting: Callable[..., Any],
    sized: bool,
) -> None:
    """Cache how plans are made for calls that differ from a cached one in sizes alone; ints are sizes if `sized`.

    `casting(specs and sizes)` gives a function that makes them, or None; see `_engine.dispatch.plans.shape_classes`.
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
        _READY[0].cache_plan(dispatcher, values, names, made, places, wrap, tuple(keep), int(sized))


def cached_plans(dispatcher: Any) -> int:
    """How many plans a dispatcher has cached."""
    return ready().cached_plans(dispatcher)


def cacheable(dispatcher: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether plans of such calls can be cached: not with a subclass that overrides, a number beyond 60 bits, ..."""
    names = tuple(kwargs) or None
    return _READY[0].cache_plan(dispatcher, (*args, *kwargs.values()), names, None, (), None, ())


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


@cache
def native_device(device: Device) -> NativeDevice | None:
    """The native half of a device; None where its calls cannot run without Python."""
    backend = backend_of(device)
    return backend.native_device_of(device) if backend.native else None


class _Steps:
    """The kernels of an executable, as rows of records STEP, and the slots that they fill."""

    __slots__ = ("largest", "results", "rows", "slots")

    def __init__(self, first: int, results: list[int]) -> None:
        self.rows: list[list[Any]] = []
        self.slots, self.results, self.largest = first, results, 0

    def add(self, kernel: int, constants: int, words: Sequence[int], fresh: int) -> None:
        self.rows.append([kernel, constants, len(words), list(words), fresh, 0, []])
        self.slots += fresh
        self.largest = max(self.largest, len(words) + fresh)

    def free_slots(self, first: int) -> None:
        """Let each step free the slots, from `first` on, that nobody reads after it."""
        last: dict[int, int] = {}
        after = first
        for k, row in enumerate(self.rows):
            for slot in [*row[3], *range(after, after + row[4])]:
                last[slot] = k
            after += row[4]
        for slot, k in last.items():
            if slot >= first and slot not in self.results:
                self.rows[k][5] += 1
                self.rows[k][6].append(slot)


def _steps(exe: Any) -> _Steps | None:
    """The steps of an executable; None where one is not a kernel."""
    rows = getattr(exe, "native_rows", None)
    if rows is not None:
        return _device_steps(exe, rows)
    calls = getattr(exe, "calls", None)
    if not calls:
        return None
    address, program = _READY[0].kernel_address, exe.program
    first = program.n_inputs + program.n_args
    results = list(exe.results)
    if any(0 <= r < first for r in results) or len({r for r in results if r >= 0}) != sum(r >= 0 for r in results):
        return None
    steps = _Steps(first, results)
    for call, constants, words, fresh in calls:
        handle = getattr(call, "__self__", None)
        kernel = address(handle) if handle is not None and constants else None
        if kernel is None or fresh > 5:
            return None
        steps.add(kernel, constants, words, fresh)
    steps.free_slots(first)
    return steps


def _device_steps(exe: Any, rows: Sequence[tuple[int, int, Sequence[int], int]]) -> _Steps:
    """Those of an executable that says itself what its device launches; see `Executable.native_rows`."""
    steps = _Steps(exe.native_inputs, list(exe.native_results))
    for row in rows:
        steps.add(*row)
    steps.free_slots(exe.native_inputs)
    return steps


def _plan(record: str, fallback: Callable[..., Any], values: dict[str, Any], keep: Sequence[Any] = ()) -> Any:
    """A plan object of a kind of `plan_records`, which keeps what its table points to, and `keep` before it."""
    records = require("rushlight._host.plans.plan_records")
    table, objects = records.packed(getattr(records, record), values)
    return _READY[0].plan(fallback, (*keep, *objects, table), table.buffer_info()[0])


Bounds = tuple[int, int] | None  # the least and the largest int that may be put into memory as it is


def _program(exe: Any, in_specs: Sequence[Any], bounds: Bounds = None) -> dict[str, Any] | None:
    """The values of a record PROGRAM, or None where a step is not a kernel of a device with native plans."""
    ready()
    device = getattr(exe, "native_device", None)
    steps = None if device is None else _steps(exe)
    if device is None or steps is None or getattr(exe, "native_inputs", len(in_specs)) != len(in_specs):
        return None
    tensors = [i for i, s in enumerate(in_specs) if s is not None]
    numbers = [i for i, s in enumerate(in_specs) if s is None]
    least, most = bounds or (0, 0)
    return {
        "device": device.functions,
        "n_inputs": len(in_specs),
        "n_tensors": len(tensors),
        "order": [*tensors, *numbers],
        "constants": [],
        "offset": 0,
        "n_steps": len(steps.rows),
        "steps": steps.rows,
        "n_slots": steps.slots,
        "largest": steps.largest,
        "n_results": len(steps.results),
        "results": steps.results,
        "bounded": int(bounds is not None),
        "least": least,
        "most": most,
    }


_NO_RECORDING = {
    "backward_spec": None, "node_type": None, "n_edges": 0, "edges": (), "n_saved": 0, "saved": (), "differentiable": 0,
}  # fmt: skip


def _recording(
    backward_spec: Any, edges: Sequence[int], mask: Sequence[bool], saved: Sequence[tuple[int, int]] = ()
) -> dict[str, Any]:
    """The values of a record RECORDING: edges lead to the arguments numbered `edges`; `mask` says which results have
    gradients.
    """
    return {
        "backward_spec": backward_spec,
        "node_type": backward_spec.cls,
        "n_edges": len(edges),
        "edges": edges,
        "n_saved": len(saved),
        "saved": saved,
        "differentiable": sum(1 << k for k, m in enumerate(mask) if m),
    }


def _saved(backward_spec: Any, in_specs: Sequence[Spec | None]) -> list[tuple[int, int]]:
    """Values that a node saves, as rows of records SAVED."""
    p = require("rushlight._host.plans.plan_records")
    rows = []
    for source, number in backward_spec.sources:
        if source == "input":
            rows.append((p.FROM_NUMBER if in_specs[number] is None else p.FROM_TENSOR, number))
        else:
            rows.append((p.FROM_RESULT, number if source == "output" else backward_spec.n_results + number))
    return rows


class Results(NamedTuple):
    """Results of a native plan: tensors of `specs`, the first `n_shown` for the caller (as a tuple if `several`) and
    the others for backward.
    """

    specs: Sequence[Spec]
    n_shown: int
    several: bool


class Recording(NamedTuple):
    """The node that a native plan records: `edges` are the arguments to which its edges lead, `mask` says which shown
    results have gradients.
    """

    backward_spec: Any
    edges: Sequence[int]
    mask: Sequence[bool]


def kernel_plan(
    exe: Any,
    fallback: Callable[..., Any],
    in_specs: Sequence[Spec | None],
    results: Results,
    node: Recording | None = None,
    bounds: Bounds = None,
) -> Any:
    """A native plan that runs `exe` on tensors with `in_specs` (None: a number), or `fallback` where there can be none.

    Calls with tensors of other specs go to `fallback`, and calls with numbers that are not ints within `bounds`, where
    there are any.
    """
    specs = results.specs
    program = _program(exe, in_specs, bounds)
    if program is None or program["n_results"] != len(specs) or not 0 < len(specs) <= 60:
        return fallback
    recording = _NO_RECORDING if node is None else _recording(*node, _saved(node.backward_spec, in_specs))
    values = {
        "given": len(in_specs), "program": program, "specs": specs, "input_specs": [s for s in in_specs if s is not None],
        "n_shown": results.n_shown, "several": int(results.several), "records": int(node is not None), "recording": recording,
    }  # fmt: skip
    return _plan("KERNEL", fallback, values, (exe,))


class Recast:
    """Native plans that differ from one (of `kernel_plan`, `inplace_plan` or `view_plan`) in the constants of their
    steps, in specs and offsets of views, and in the backward spec alone.
    """

    __slots__ = ("_backward_spec", "_first", "_held", "_specs", "_steps", "_words", "changes")

    def __init__(
        self,
        plan: Any,
        constants: Sequence[tuple[int, int]] | None = None,
        offsets: tuple[Sequence[int], int] | None = None,
    ) -> None:
        """`constants`: which of the values that `cast` takes are those of each step; `offsets`: which say where each
        view begins, in elements of so many bytes.  Without either there is no `cast`.
        """
        self._first = plan.keep[0]  # it keeps the kernels
        self._words: array[int] = plan.keep[-1]
        self._held = self._words.tobytes()
        views = self._find_words()
        self.changes: bytes | None = None
        if constants is not None or offsets is not None:
            p = require("rushlight._host.plans.plan_records")
            steps = [(at, *part) for at, part in zip(self._steps, constants or (), strict=True)]
            places, itemsize = offsets or ((), 0)
            values = {
                "n_words": len(self._words), "n_constants": sum(stop - start for _, start, stop in steps), "n_steps": len(steps), "steps": steps,
                "n_specs": len(self._specs), "specs": self._specs, "n_offsets": len(places),
                "offsets": list(zip(views, places, strict=True)) if offsets else [], "itemsize": itemsize,
                "backward_spec": self._backward_spec or 0,
            }  # fmt: skip
            self.changes = p.packed(p.CAST, values)[0].tobytes()

    def _find_words(self) -> list[int]:
        """Note which words of the table differ: of constants of steps, of specs (results, then what goes in) and of the
        backward spec.

        The result says where the offsets of views are.
        """
        p, words = require("rushlight._host.plans.plan_records"), self._words
        kind = words[p.PLAN.tag.place]
        self._steps: list[int] = []
        self._backward_spec: int | None = None
        if kind == p.tag_of(p.VIEW):
            first = p.list_place(words, p.VIEW.runs.place)
            views = [first + k * len(p.VIEWED) for k in range(words[p.VIEW.n_runs.place])]
            self._specs = [at + p.VIEWED.spec.place for at in views]
            if words[p.VIEW.records.place]:
                self._backward_spec = p.VIEW.recording.place + p.RECORDING.backward_spec.place
            return [at + p.VIEWED.offset.place for at in views]
        program = (p.KERNEL if kind == p.tag_of(p.KERNEL) else p.INPLACE).program.place
        first = p.list_place(words, program + p.PROGRAM.steps.place)
        count = words[program + p.PROGRAM.n_steps.place]
        self._steps = [first + k * len(p.STEP) + p.STEP.constants.place for k in range(count)]
        if kind == p.tag_of(p.INPLACE):
            at = p.INPLACE.target_spec.place
            self._specs = [at] if words[at] else []
            return []
        results, inputs = words[program + p.PROGRAM.n_results.place], words[program + p.PROGRAM.n_tensors.place]
        specs, input_specs = (p.list_place(words, field.place) for field in (p.KERNEL.specs, p.KERNEL.input_specs))
        self._specs = [*range(specs, specs + results), *range(input_specs, input_specs + inputs)]
        if words[p.KERNEL.records.place]:
            self._backward_spec = p.KERNEL.recording.place + p.RECORDING.backward_spec.place
        return []

    @staticmethod
    def fits(plan: Any) -> bool:
        """Whether a plan is one that can be cast again: of views it must have a row for each."""
        if type(plan) is not _READY[0].Plan:
            return False
        p, words = require("rushlight._host.plans.plan_records"), plan.keep[-1]
        return words[p.PLAN.tag.place] != p.tag_of(p.VIEW) or words[p.VIEW.n_views.place] == words[p.VIEW.n_runs.place]

    def cast(
        self, fallback: Callable[..., Any], values: tuple[int, ...], specs: tuple[Spec, ...], backward_spec: Any
    ) -> Any:
        """The plan with the constants, or the offsets of views, that are among these values; `specs`: of the results,
        then of what goes in.
        """
        return _READY[0].cast(fallback, self._first, self._held, self.changes, values, specs, backward_spec)

    def plan(
        self, fallback: Callable[..., Any], constants: Sequence[array[int]], specs: Sequence[Spec], backward_spec: Any
    ) -> Any:
        """The plan with these."""
        words = self._words[:]
        for at, held in zip(self._steps, constants, strict=True):
            words[at] = held.buffer_info()[0]
        for at, spec in zip(self._specs, specs, strict=True):
            words[at] = id(spec)
        if self._backward_spec is not None:
            words[self._backward_spec] = id(backward_spec)
        keep = (self._first, *constants, *specs, backward_spec, words)
        return _READY[0].plan(fallback, keep, words.buffer_info()[0])


def constants_plan(exe: Any, fallback: Callable[..., Any], spec: Spec, numbers: Sequence[Any]) -> Any:
    """A native plan without arguments that runs `exe` with these numbers and makes one tensor, or `fallback` where that
    cannot be.
    """
    program = _program(exe, [None] * len(numbers))
    if program is None or program["n_results"] != 1:
        return fallback
    program["order"] = [-1 - k for k in range(len(numbers))]
    program["constants"] = [
        w for n in numbers for w in struct.unpack("q", struct.pack("d" if type(n) is float else "q", n))
    ]
    values = {
        "given": 0, "program": program, "specs": (spec,), "input_specs": (), "n_shown": 1, "several": 0, "records": 0, "recording": _NO_RECORDING,
    }  # fmt: skip
    return _plan("KERNEL", fallback, values, (exe,))


def shifted_plan(plan: Any, fallback: Callable[..., Any], step: int) -> Any:
    """A native plan of a kernel for a view as one of the tensor that it is a view of, `step` bytes before; outside of
    any graph.

    None where `plan` is no such plan.
    """
    p = require("rushlight._host.plans.plan_records")
    if type(plan) is not ready().Plan:
        return None
    words = array("q", plan.keep[-1])
    if words[p.PLAN.tag.place] != p.tag_of(p.KERNEL) or words[p.KERNEL.records.place]:
        return None
    words[p.KERNEL.program.place + p.PROGRAM.offset.place] = step
    words[p.list_place(words, p.KERNEL.input_specs.place)] = 0  # it reads a tensor with another spec
    return _READY[0].plan(fallback, (*plan.keep, words), words.buffer_info()[0])


def part_plan(plan: Any, fallback: Callable[..., Any], step: int) -> Any:
    """The native in-place plan of a view as a plan of the tensor that it is a view of, `step` bytes before; it returns
    None.

    None where `plan` is no such plan.
    """
    p = require("rushlight._host.plans.plan_records")
    if type(plan) is not ready().Plan:
        return None
    words = array("q", plan.keep[-1])
    if words[p.PLAN.tag.place] != p.tag_of(p.INPLACE):
        return None
    words[p.INPLACE.program.place + p.PROGRAM.offset.place], words[p.INPLACE.gives_none.place] = step, 1
    return _READY[0].plan(fallback, (*plan.keep, words), words.buffer_info()[0])


def inplace_plan(
    exe: Any, fallback: Callable[..., Any], in_specs: Sequence[Spec | None], bounds: Bounds = None, alone: bool = False
) -> Any:
    """A native plan that runs `exe`, which changes its first argument and has no results, or `fallback` where that
    cannot be.

    Numbers that are not ints within `bounds`, where there are any, go to `fallback`, and operands that share memory
    with the first argument, unless they are the same elements and it need not be `alone`.
    """
    program = _program(exe, in_specs, bounds)
    if program is None or program["n_results"]:
        return fallback
    values = {
        "given": len(in_specs), "program": program, "target": 0, "target_spec": None if alone else in_specs[0], "quiet": int(not STATE.word & GRAD),
        "gives_none": 0,
    }  # fmt: skip
    return _plan("INPLACE", fallback, values, (exe,))


def out_plan(exe: Any, fallback: Callable[..., Any], tensors: int, numbers: int) -> Any:
    """A native plan that runs `exe` on (tensors, numbers, out) and writes into `out`; `fallback` where that cannot be."""
    in_specs = [*[Spec] * (tensors + 1), *[None] * numbers]
    program = _program(exe, in_specs)
    if program is None or program["n_results"]:
        return fallback
    last = tensors + numbers
    program["order"] = [*range(tensors), last, *range(tensors, last)]
    values = {
        "given": len(in_specs), "program": program, "target": last, "target_spec": None, "quiet": int(not STATE.word & GRAD), "gives_none": 0,
    }  # fmt: skip
    return _plan("INPLACE", fallback, values, (exe,))


def view_plan(
    fallback: Callable[..., Any],
    views: Sequence[tuple[Spec, int]],
    creation: str,
    several: bool,
    backward_spec: Any = None,
    span: int | None = None,
    whole: bool = False,
) -> Any:
    """A native plan that shows its first argument's memory under these specs, so many bytes on; with a backward spec it
    records a node.

    With a `span` there must be so many bytes from there on, else `fallback` is asked; bytes count from the start of the
    storage if it is the `whole` of it that is shown, and from the argument's first element otherwise.
    """
    ready()
    if not views:
        return fallback
    recording = _NO_RECORDING if backward_spec is None else _recording(backward_spec, (0,), ())  # all have gradients
    runs = _runs(views)
    values = {
        "n_views": len(views), "n_runs": len(runs), "runs": runs, "several": int(several),
        "creation": next((t for t in _CREATIONS if t == creation), None), "bounded": int(span is not None), "span": span or 0, "whole": int(whole),
        "records": int(backward_spec is not None), "recording": recording,
    }  # fmt: skip
    return _plan("VIEW", fallback, values, (None,))


def _runs(views: Sequence[tuple[Spec, int]]) -> list[tuple[int, Spec, int, int]]:
    """Views as rows of records VIEWED: where many lie evenly they are one row; few have a row each, so that `Recast` serves."""
    if len(views) <= ROW_EACH:
        return [(offset, spec, 1, 0) for spec, offset in views]
    runs: list[tuple[int, Spec, int, int]] = []
    first, held, count, step = views[0][1], views[0][0], 0, 0
    for spec, offset in views:
        if count == 1 and spec is held:
            step = offset - first
        elif count and (spec is not held or offset != first + count * step):
            runs.append((first, held, count, step))
            first, held, count, step = offset, spec, 0, 0
        count += 1
    return [*runs, (first, held, count, step)]


ROW_EACH = 60  # views of a plan that is cast for other sizes, at most
_CREATIONS = ("", "no_grad", "multi", "custom")


def detach_plan(fallback: Callable[..., Any]) -> Any:
    """A native plan that gives its argument's memory outside of the graph."""
    ready()
    return _plan("DETACH", fallback, {})


def choose_plan(fallback: Callable[..., Any], picks: Sequence[int]) -> Any:
    """A native plan that gives a tuple of the arguments at these places."""
    ready()
    return _plan("CHOOSE", fallback, {"n_picks": len(picks), "picks": picks})


def show_plan(fallback: Callable[..., Any], parts: Sequence[tuple[int, Spec, int]]) -> Any:
    """A native plan that shows arguments (by number) under these specs, so many bytes on, outside of any graph; it
    gives a tuple.
    """
    ready()
    return _plan("SHOW", fallback, {"n_shown": len(parts), "shown": [(i, step, spec) for i, spec, step in parts]})


def sequence_plan(
    steps: Sequence[tuple[Any, Sequence[int], int, int, Sequence[int]]],
    given: int,
    slots: int,
    constants: Sequence[Any],
    results: Sequence[int],
    several: bool,
) -> Any:
    """A native plan that runs other plans; None where there is more of something than one can hold.

    A step is (plan, the slots of its arguments, how many results it gives as a tuple or 0 for one, the first slot of
    these, which slots nobody reads after it).  The first `given` slots are the arguments; below zero they are
    `constants`: -1 is the first.  The plan gives what is in the slots `results`, as a tuple if `several`.
    """
    ready()
    limits = require("rushlight._host.plans.plan_native")
    if slots > limits.SEQUENCE_SLOTS or any(len(inputs) > limits.SEQUENCE_INPUTS for _, inputs, _, _, _ in steps):
        return None
    rows = [(plan, len(inputs), inputs, n, first, len(dead), dead) for plan, inputs, n, first, dead in steps]
    values = {
        "given": given, "n_steps": len(steps), "steps": rows, "constants": constants, "n_slots": slots, "n_results": len(results), "results": results,
        "several": int(several),
    }  # fmt: skip
    return _plan("SEQUENCE", len, values)


def retyped_plan(fallback: Callable[..., Any], spec: Spec) -> Any:
    """A native plan that shows its argument's memory under another spec, outside of any graph and as no view of it."""
    ready()
    return _plan("RETYPE", fallback, {"spec": spec})


def identity_plan() -> Any:
    """A native plan that gives its argument itself."""
    ready()
    return _plan("IDENTITY", len, {})


def constant_plan(value: Any) -> Any:
    """A native plan that gives one object, whatever its arguments."""
    ready()
    return _plan("CONSTANT", len, {"value": value})


def fresh_plan(spec: Spec, zeros: bool) -> Any:
    """A native plan that makes a tensor over new memory; only for devices with native plans."""
    ready()
    device = native_device(spec.device)
    assert device is not None, spec.device
    return _plan("FRESH", len, {"device": device.functions, "spec": spec, "nbytes": spec.nbytes, "zeroed": int(zeros)})


def item_plan(fallback: Callable[..., Any], spec: Spec) -> Any:
    """A native plan that reads the only element of a tensor, or `fallback` where its device has no reader for it."""
    ready()
    device = native_device(spec.device)
    reader = None if device is None or spec.conj else device.readers.get(spec.dtype.name)
    return fallback if reader is None else _plan("ITEM", fallback, {"reader": reader})


def nested_reader(spec: Spec) -> Callable[[int], Any] | None:
    """A function from the address of the first element to nested lists of Python numbers; None where the device has
    none for such a spec.
    """
    device = native_device(spec.device)
    return None if device is None else device.nested_reader(spec)

"""A trace that also writes down what a custom backend's fx graph shows: calls, where inputs come from, the names of
variables.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import operator
import re
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from rushlight._capture.bytecode import Enter, Frame, Interpreter
from rushlight._capture.recording.dynamic.sizes import MOST
from rushlight._capture.recording.element_numbers import ElementNumber
from rushlight._capture.trace.calls import runs_followed
from rushlight._capture.trace.documents.document import Document, Part
from rushlight._capture.trace.guards.sources import Source
from rushlight._capture.trace.numbers.unknown_sizes import (
    as_size,
    asks_itself,
    is_unknown,
    unknown_result,
    written_into,
)
from rushlight._capture.trace.outside import ABSENT, Lazy, is_plain
from rushlight._capture.trace.reports.events import Break, Unbuildable
from rushlight._capture.trace.settings import HOOKS
from rushlight._capture.trace.tracer import Tracer
from rushlight._capture.trace.transforms import transformed
from rushlight._engine.autograd.api import zero_gradients
from rushlight._engine.core.state import AUTOCAST, GRAD, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.autocast import dtype_of
from rushlight._engine.functorch.transformed import LEVELS
from rushlight._types.shape_env import GuardOnDataDependentSymNode, Undecided, require_between
from rushlight._types.symbols import is_symbolic

__all__ = ["DocumentingTracer", "NamingInterpreter", "source_text", "state_names"]


def _as_element(value: float) -> Any:
    """A float as a tensor without dims."""
    return HOOKS.public.tensor(value, dtype=HOOKS.public.float64)


_BINARY: dict[str, Any] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod, "**": operator.pow,
    "@": operator.matmul, "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
_INPLACE: dict[str, Any] = {
    "+": operator.iadd, "-": operator.isub, "*": operator.imul, "/": operator.itruediv, "//": operator.ifloordiv, "%": operator.imod,
    "**": operator.ipow, "@": operator.imatmul, "&": operator.iand, "|": operator.ior, "^": operator.ixor, "<<": operator.ilshift,
    ">>": operator.irshift,
}  # fmt: skip
_COMPARE: dict[str, Any] = {
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_UNARY: dict[str, Any] = {"+": operator.pos, "-": operator.neg, "~": operator.invert}
# Functions of these pages have the page in their names: `torch.linalg.norm` is `linalg_norm`.
_PREFIXED = ("linalg", "special", "fft")
_MISSING: Any = object()


def _reduce(function: Callable[[Any, Any], Any], iterable: Iterable[Any], initial: Any = _MISSING) -> Any:
    """`functools.reduce` in Python: followed in its place, so that each call is a node.  PyTorch's nodes have these
    variables' names.
    """
    iterator = iter(iterable)
    if initial is _MISSING:
        value = next(iterator)
    else:
        value = initial
    for element in iterator:
        value = function(value, element)
    return value


def _sum(iterable: Iterable[Any], start: Any = 0) -> Any:
    """`sum` in Python."""
    value = start
    for element in iterable:
        value = value + element
    return value


def _zero_gradients(tensors: Iterable[Any], set_to_none: bool) -> None:
    """`Optimizer.zero_grad` in Python."""
    for tensor in tensors:
        if tensor.grad is not None:
            if set_to_none:
                tensor.grad = None
            else:
                tensor.grad.detach_()
                tensor.grad.zero_()


_FOLLOWED: dict[Any, Callable[..., Any]] = {
    builtins.sum: _sum,
    functools.reduce: _reduce,
    zero_gradients: _zero_gradients,
}
_NO_NODES = ("rushlight._capture.", "rushlight.jit", "torch.jit")  # `jit.annotate` gives its argument back
_ITERATING = (enumerate, zip, list, tuple, map, filter, iter)
# Methods of tensors that leave what only the history of the tensor knows.
_HOOKING = frozenset(("register_hook", "register_post_accumulate_grad_hook", "retain_grad"))
_FACTORS = ("alpha", "beta")  # arguments that are numbers: what traces ahead of time cannot read them of tensors
_WRITTEN = {builtins.abs: operator.abs}

# Instructions that bind locals, and which ones by their argument.
_STORES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "STORE_FAST": lambda arg: (arg,), "STORE_DEREF": lambda arg: (arg,), "STORE_FAST_LOAD_FAST": lambda arg: (arg >> 4,),
    "STORE_FAST_STORE_FAST": lambda arg: (arg >> 4, arg & 15),
}  # fmt: skip


class NamingInterpreter(Interpreter):
    """Tells the document which variables values are stored in, which results are thrown away, and when the gradient
    mode changes.
    """

    __slots__ = ()

    def advance(self, most: int = -1) -> int:
        return 0

    def step(self) -> None:
        frame = self.frames[-1]
        ip = frame.ip
        name = frame.decoded.opnames[ip]
        dropped = frame.stack[-1] if name == "POP_TOP" else None
        super().step()
        tracer: Any = self.operations
        document: Document = tracer.document
        if dropped is not None:
            if isinstance(dropped, Tensor):
                document.dropped(dropped)
        elif name in _STORES:
            for number in _STORES[name](frame.decoded.raw_args[ip]):
                value = frame.locals[number]
                if isinstance(value, types.CellType) and id(value) not in tracer.outside.sources:
                    value = value.cell_contents
                if isinstance(value, Tensor):
                    document.name(frame.decoded.local_names[number], value)
        else:
            tracer.note_mode()


class DocumentingTracer(Tracer):
    """See the module's text."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.document = self.root = Document()
        self.inputs: list[tuple[Any, Source]] = []
        self.grad_enabled = bool(STATE.word & GRAD)
        self.cast_word, self.casting = STATE.word & AUTOCAST, _casting()
        self.first_casting = self.casting
        self.names: list[str] = []
        self.cells: dict[int, str] = {}
        self.aliases: dict[str, str] = {}  # other names of sources: of a module's call those that its `forward` has
        self.seen: set[int] = set()
        self.loaded: tuple[Any, str] = (
            None,
            "",
        )  # the function that was last read from a page, and its name in PyTorch
        self.bound: Any = None  # the method that is being called
        self.noted_at: dict[int, Any] = {}  # `place` when a result got its node, by identity
        self.stands_in = False  # whether a result of an operator that nobody looks into is made: a leaf here alone
        self.linear: dict[int, Any] = {}  # functions that `vjp` and `linearize` gave
        self.methods: dict[int, tuple[Any, str]] = {}  # methods that were read of tensors, and under which name

    def begin(self, start: functools.partial[None]) -> None:
        """Learn the names of what the trace begins with."""
        self.names, self.cells = state_names(start)
        self.aliases = self.settings.source_names

    def watch_sizes(self) -> None:
        """Write down what is computed of symbolic sizes."""
        varying = self.outside.varying
        varying.text = functools.partial(source_text, self)
        varying.read_number = self.root.size
        varying.sizes.env.watch = lambda *made: self.document.numbers.append(made)

    def passed_number(self, value: float, source: Source) -> Any:
        """A float that each call passes on: an element of a float64 tensor, as in PyTorch's graphs."""
        given = self.reads.source(f"{self.constants.name(_as_element)}({{}})", source)
        x = self.outside.wrap(self.outside_of_trace(_as_element, value), given)
        self.use(x)
        outer, self.rec.captures_elements = self.rec.captures_elements, True
        try:
            number = self.native(x.item)
        finally:
            self.rec.captures_elements = outer
        number.counter = None  # the graph computes with it, and not the host
        self.root.method("item", (x,), {}, number)
        self.note_number(number)
        return number

    def interpreter(self) -> Interpreter:
        """An interpreter for this trace."""
        return NamingInterpreter(self)

    def nested_interpreter(self) -> Interpreter:
        """One that tells names where a part of control flow is followed."""
        return Interpreter(self) if self.document is self.root else NamingInterpreter(self)

    # ***** what is written down *****

    def note_mode(self) -> None:
        """Write down a change of the gradient mode, or of what is cast by itself."""
        enabled = bool(STATE.word & GRAD)
        if enabled != self.grad_enabled:
            self.grad_enabled = enabled
            self.document.mode(enabled)
        if STATE.word & AUTOCAST != self.cast_word:
            self.cast_word = STATE.word & AUTOCAST
            self.note_casting(_casting())

    def note_casting(self, now: dict[str, Any]) -> None:
        """Write down what is cast by itself from here on."""
        for place, (on, dtype) in now.items():
            if self.casting.get(place, (False, None)) != (on, dtype):
                self.document.casting(place, on, dtype)
        self.casting = now

    def end(self) -> None:
        """Write down what a graph that ends within a region of `autocast` leaves as it was."""
        before = {place: (False, dtype) for place, (_, dtype) in self.casting.items()}
        self.note_casting(before | self.first_casting)

    def use(self, value: Any) -> None:
        """Tensors among nested values are used now: those from outside become inputs."""
        if isinstance(value, Tensor):
            known = self.outside.tensors.get(id(value))
            if known is not None and id(value) not in self.seen:
                self.seen.add(id(value))
                for size in value._spec.shape:
                    if is_symbolic(size):
                        self.root.size(size)
                self.root.placeholder(source_text(self, known[1]), value)
            if known is None and self.document is self.root and id(value) not in self.root.known:
                raise Break("a tensor that no node of a graph computes, as inside of a function transform")
        elif isinstance(value, (list, tuple)):
            for each in value:
                self.use(each)
        elif isinstance(value, dict):
            for each in value.values():
                self.use(each)
        elif isinstance(value, slice):
            self.use((value.start, value.stop, value.step))
        elif isinstance(value, ElementNumber) and id(value) not in self.numbered:
            raise Break("a number of a tensor that no node of a graph computes")

    def checked(self, function: Callable[..., Any], condition: Any, message: Any) -> None:
        """`torch._check` of a number that the program reads of a tensor."""
        if isinstance(condition, Undecided):
            text = None if message is None else constant_text(message)
            self.native(condition.require)
            self.document.required.append(condition)
            self.document.function(function, (condition,) if text is None else (condition, text), {}, None)
            return
        if message is not None:
            raise Break("torch._check with a message in a graph for another backend")
        self.use(condition)
        self.document.function(function, (condition,), {}, None)

    def asserted(self, value: Any, text: str) -> bool | None:
        """Whether an `assert` of a tensor, or of a bool that the program reads of one, is a node."""
        if isinstance(value, ElementNumber):
            if value.kind is not bool:
                return None
            self.checked(HOOKS.public._check, value, None)
            return True
        self.use(value)
        self.document.function(HOOKS.public._assert_async, (value, text), {}, None)
        return True

    def is_size(self, function: Callable[..., Any], number: Any) -> None:
        """`torch._check_is_size` of a number that the program reads of a tensor."""
        self.native(require_between, number, 0, MOST)
        self.document.function(function, (number,), {}, None)

    def looked_at(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments in the place of values that nobody had looked at."""
        if any(isinstance(_known(kwargs.get(name)), Tensor) for name in _FACTORS):
            raise Break("a tensor in the place of a number, in a graph for another backend", kind="data")
        if any(level.kind == "dual" for level in LEVELS.stack):
            raise Break("inside of a level of forward mode, in a graph for another backend")
        return tuple([_known(x) for x in args]), {key: _known(x) for key, x in kwargs.items()}

    def note(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        """Write down a call of a function that takes or gives tensors."""
        self.note_mode()
        args, kwargs = self.looked_at(args, kwargs)
        if id(function) in HOOKS.leaves or _has_tensor(result) or (result is None and _has_tensor(args)):
            self.use((args, kwargs))
            name = self.loaded[1] if self.loaded[0] is function else ""
            self.document.function(_WRITTEN.get(function, function), args, kwargs, result, name)
            self.note_result(result)
        return result

    def as_output(self, number: Any) -> Tensor | None:
        """A float leaves a graph as a tensor, as in PyTorch's; others as they are."""
        if id(number) not in self.numbered:
            raise Unbuildable("a number of a tensor that no node of a graph computes", number)
        if number.kind is not float:
            return None
        made, public = self.native(number.tensor.clone), HOOKS.public
        self.root.function(public.scalar_tensor, (number,), {"dtype": public.float64}, made)
        return made

    def _read(self, function: Any, x: Tensor) -> Any:
        """`int(x)` or `float(x)`, with nodes for the element and for what is made of it."""
        item = self.call(x.item, (), {})
        found = super().call(function, (item,), {})
        if isinstance(found, ElementNumber) and found is not item and id(found) not in self.numbered:
            self.note(getattr(HOOKS.public, f"sym_{function.__name__}"), (item,), {}, found)
        return found

    def captured(self, x: Tensor) -> bool:
        """Whether an element of a tensor is a number of the program."""
        return self.rec.captures_elements and self.rec.is_recorded(x)

    def note_result(self, result: Any) -> None:
        """Remember a result that has a node."""
        for each in result if isinstance(result, (list, tuple)) else (result,):
            self.noted_at.setdefault(id(each), self.place)
        self.note_number(result)

    def note_number(self, result: Any) -> None:
        """Remember a number that has a node."""
        if isinstance(result, (ElementNumber, Undecided)):
            self.kept.append(result)
            self.numbered.add(id(result))

    def record_call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A function of ours has run as it is; what it followed has nodes of its own."""
        if runs_followed(function):
            self.note_mode()
        elif not str(getattr(function, "__module__", "")).startswith(_NO_NODES):
            self.note_call(function, args, kwargs, result)

    def before_uses(self, tensors: Any) -> Any:
        """Where a graph has to end for a hook of a tensor, or a gradient by it: before the first of some tensors is
        made that the graph has used since, as several results of one graph do not lead to each other.
        """
        found = []
        for x in tensors if isinstance(tensors, (list, tuple)) else (tensors,):
            x = self.real(x)
            if any(_holds((record.args, record.kwargs), x) for record in self.root.calls if record.kind != "name"):
                found.append(self.noted_at.get(id(x)))
        return min([place for place in found if place is not None], key=lambda place: place[0], default=None)

    def note_operator(self, function: Callable[..., Any], args: tuple[Any, ...], result: Any) -> Any:
        """Write an operation of Python's down, if one operand is a tensor: adding two lists of tensors computes
        nothing.
        """
        if any(not isinstance(_known(x), (list, tuple)) and _has_tensor(_known(x)) for x in args):
            return self.note(function, args, {}, result)
        return result

    def note_call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Write down a call as a function's or a method's."""
        self.note_mode()
        args, kwargs = self.looked_at(args, kwargs)
        if isinstance(function, functools.partial):
            self.note_call(function.func, (*function.args, *args), {**function.keywords, **kwargs}, result)
            return
        owner, bound = getattr(function, "__self__", None), self.bound
        if isinstance(owner, Tensor):
            args = (owner, *args)
        elif bound is not None and bound.__func__ is function and args and args[0] is bound.__self__:
            pass
        elif not getattr(function, "__name__", "_").isidentifier():
            self.use(
                result
            )  # a loop within a property of ours: what it gives is there already, and no node can call it
            return
        elif not _is_method(function):
            self.note(function, args, kwargs, result)
            return
        if _has_tensor(result) or result is None:
            self.use((args, kwargs))
            called = bound if bound is not None and id(bound) in self.methods else function
            name = self.methods[id(called)][1] if id(called) in self.methods else function.__name__
            self.document.method(name, args, kwargs, result)
            self.note_result(result)

    @contextlib.contextmanager
    def documented(self) -> Iterator[Document]:
        """The time in which what is called belongs to a part of control flow."""
        outer, self.document = self.document, Document()
        self.document.known = outer.known
        try:
            yield self.document
        finally:
            self.document = outer

    def note_cond(self, pred: Any, operands: Any, branches: Any, made: Any) -> None:
        """Write a `cond` down."""
        if self.outside.varying.sizes:
            raise Break("cond in a graph with symbolic sizes", kind="sizes")
        self.use((pred, list(operands)))
        parts = [Part(document.calls, tuple(tensors)) for document, tensors in branches]
        for part in parts:
            self.use(part.results)
        self.document.cond(pred, operands, parts, tuple(made))

    def note_higher(self, target: str, parts: Any, groups: Any, made: Any) -> None:
        """Write a function of functions down."""
        if self.outside.varying.sizes:
            raise Break(f"{target} in a graph with symbolic sizes", kind="sizes")
        self.use([list(group) for group in groups])
        self.document.higher(target, parts, groups, made)

    def note_transform(self, transform: Any, part: Part, operands: Any, made: Any) -> None:
        """Write a function transform down."""
        self.use(operands)
        fresh = [None if id(x) in self.document.known else x for x in made]
        self.document.transform(transform, part, operands, fresh)
        self.kept.append((part.inputs, made))
        self.note_result(made)

    def opaque(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of an operator that nobody looks into is a node, if it says what its results are like."""
        self.stands_in = True
        try:
            env = self.outside.varying.sizes.env if self.settings.captures_sizes() else None
            made = None if HOOKS.fake is None else self.native(HOOKS.fake, env, operator, args, kwargs)
        finally:
            self.stands_in = False
        if made is None:
            return super().opaque(operator, args, kwargs)
        self.use((args, kwargs))
        self.document.function(operator, args, kwargs, made)
        return made

    # ***** operations *****

    def native(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """As in the base; a result whose size only elements tell has symbols, where the settings say so."""
        env: Any = self.outside.varying.sizes.env
        outer, env.by_program = env.by_program, asks_itself(self, function, args)
        try:
            found = super().native(function, *args, **kwargs)
            return as_size(self, found) if getattr(function, "__name__", "") == "item" else found
        except GuardOnDataDependentSymNode as error:
            raise Break(f"{error}", kind="data") from None
        except Break as error:
            made = unknown_result(self, function, args, kwargs) if error.kind == "data" else None
            if made is None:
                raise error from None
            return made[0]
        finally:
            env.by_program = outer

    def operands(self, *values: Any) -> list[Any]:
        """Traced operands of Python's operators: a number that comes in has records of its own,
        which stand before the operator's, in the order of the operands.
        """
        found = []
        for value in values:
            found.append(self.real(value))
            if isinstance(found[-1], Tensor):
                self.use(found[-1])
        return found

    def binary(self, op: str, a: Any, b: Any) -> Any:
        a, b = self.operands(a, b)
        before = len(self.document.calls)
        found = super().binary(op, a, b)
        return found if len(self.document.calls) > before else self.note_operator(_BINARY[op], (a, b), found)

    def inplace(self, op: str, a: Any, b: Any) -> Any:
        a, b = self.operands(a, b)
        before = len(self.document.calls)
        found = super().inplace(op, a, b)
        if op == "+=" and is_plain(a) and len(self.document.calls) == before:  # as `total = 0; total += x`
            return self.note_operator(operator.add, (b, a), found)
        if is_plain(a) and len(self.document.calls) == before:
            return self.note_operator(_BINARY[op[:-1]], (a, b), found)
        return found if len(self.document.calls) > before else self.note_operator(_INPLACE[op[:-1]], (a, b), found)

    def unary(self, op: str, a: Any) -> Any:
        found = super().unary(op, a)
        return found if type(found) is Enter else self.note(_UNARY[op], (a,), {}, found)

    def compare(self, op: str, a: Any, b: Any) -> Any:
        a, b = self.operands(a, b)
        before = len(self.document.calls)
        found = super().compare(op, a, b)
        return found if len(self.document.calls) > before else self.note_operator(_COMPARE[op], (a, b), found)

    def load_item(self, obj: Any, index: Any) -> Any:
        obj = self.real(obj)
        if isinstance(obj, Tensor):
            self.use(obj)
        found = super().load_item(obj, index)
        obj, index = _known(obj), _known(index)
        if isinstance(obj, Tensor):
            self.note(operator.getitem, (obj, index), {}, found)
        elif isinstance(found, Tensor) and isinstance(obj, dict):
            self.use(found)
        return found

    def store_item(self, obj: Any, index: Any, value: Any) -> Any:
        obj, index, value = self.real(obj), self.real(index), self.real(value)
        if isinstance(obj, Tensor):
            self.use((obj, index, value))
        try:
            found = super().store_item(obj, index, value)
        except Break as error:
            if error.kind != "data" or not isinstance(obj, Tensor):
                raise
            found = self.native(written_into, obj, value)
        if isinstance(obj, Tensor):
            self.note(operator.setitem, (obj, index, value), {}, None)
        return found

    def load_attr(self, obj: Any, name: str) -> Any:
        found = super().load_attr(obj, name)
        obj = _known(obj)
        if name == "grad" and isinstance(obj, Tensor) and isinstance(found, Tensor):
            return self.gradient(obj, found)
        if isinstance(obj, Tensor):
            self.use(obj)
        if isinstance(found, Tensor):
            if id(found) in self.outside.tensors:
                self.use(found)
            elif isinstance(obj, Tensor):
                self.note(getattr, (obj, name), {}, found)
        elif isinstance(obj, Tensor) and callable(found):
            self.methods[id(found)] = (found, name)
        elif isinstance(obj, types.ModuleType) and callable(found):
            page = obj.__name__.rpartition(".")[2]
            self.loaded = (found, f"{page}_{name}" if page in _PREFIXED else name)
        return found

    def gradient(self, x: Tensor, found: Tensor) -> Tensor:
        """The `.grad` of a tensor: an input where it came from outside with that."""
        known = self.outside.tensors.get(id(x))
        if known is not None and id(found) not in self.outside.tensors:
            real, source = known
            held = None if real._autograd_meta is None else real._autograd_meta.grad
            if held is not None and self.rec.stand_in(held) is found:
                found = self.outside.wrap(held, self.reads.source("{}.grad", source))
        self.use(found)
        return found

    def store_attr(self, obj: Any, name: str, value: Any) -> Any:
        obj = self.real(obj)
        if name == "requires_grad" and isinstance(obj, Tensor) and value is not obj.requires_grad:
            raise Break("changes whether a tensor wants a gradient, in a graph for another backend")
        return super().store_attr(obj, name, value)

    def noted(self, made: Any) -> Any:
        """As in the base; a leaf that wants a gradient is made between two graphs, which may be traced ahead of time."""
        if (
            isinstance(made, Tensor) and made._rg and made._node is None and made._base is None  # views under no_grad are none
            and id(made) not in self.outside.tensors and not self.stands_in and id(made) not in self.document.given
        ):  # fmt: skip
            raise Break("makes a leaf that wants a gradient, in a graph for another backend")
        return super().noted(made)

    def rows(self, tensor: Any) -> Any:
        """Rows of a tensor that is iterated over, with a node for each."""
        self.use(tensor)
        return tuple(
            [self.note(operator.getitem, (tensor, i), {}, row) for i, row in enumerate(self.native(list, tensor))]
        )

    def iterate(self, obj: Any) -> Any:
        obj = self.real(obj)
        return iter(self.rows(obj)) if isinstance(obj, Tensor) else super().iterate(obj)

    def call(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if isinstance(function, (type, types.BuiltinFunctionType)) and function in _ITERATING:
            args = [self.rows(x) if isinstance(x, Tensor) else x for x in map(self.real, args)]
        if function in (int, float) and len(args) == 1 and isinstance(x := self.real(args[0]), Tensor):
            if self.captured(x) and not kwargs:
                return self._read(function, x)
        owner = getattr(function, "__self__", None)
        if isinstance(function, (types.BuiltinFunctionType, types.FunctionType)) and function in _FOLLOWED:
            return Enter(_FOLLOWED[function], tuple(args), kwargs)
        if type(function) is types.FunctionType and (found := transformed(self, function, args, kwargs)) is not ABSENT:
            return found
        name = getattr(function, "__name__", "")
        if name in ("backward", "grad") and is_backward(function):
            inputs = self.real(args[1] if len(args) > 1 else kwargs.get("inputs", ())) if name == "grad" else ()
            raise Break(f"calls {name}() in a graph for another backend", at=self.before_uses(inputs))
        if name in _HOOKING and is_method_of_tensors(function):
            hooked = self.real(args[0]) if owner is None else owner
            raise Break(f"calls {name}() in a graph for another backend", at=self.before_uses(hooked))
        operator_of_python = isinstance(function, types.BuiltinFunctionType) and _is_operator(function)
        if operator_of_python:
            args = self.operands(*args)
        before, outer = len(self.document.calls), self.bound
        self.bound = (
            function if isinstance(function, types.MethodType) and isinstance(function.__self__, Tensor) else None
        )
        try:
            found = super().call(function, args, kwargs)
        finally:
            self.bound = outer
        if operator_of_python and len(self.document.calls) == before:
            self.note_operator(function, tuple(args), found)
        return found


def _holds(values: Any, x: Any) -> bool:
    """Whether an object is among nested values."""
    if isinstance(values, dict):
        values = values.values()
    return any(v is x or (isinstance(v, (list, tuple, dict)) and _holds(v, x)) for v in values)


def _casting() -> dict[str, Any]:
    """Of the types of devices for which `autocast` was ever used in this thread: whether it is on, and its dtype."""
    return {place: (bool(on), dtype_of(place)) for place, on in STATE.casts.items()}


def is_method_of_tensors(function: Any) -> bool:
    """Whether this is a method of Tensor, bound or not."""
    return getattr(function, "__func__", function) is getattr(Tensor, function.__name__, None)


def is_backward(function: Any) -> bool:
    """Whether this is `Tensor.backward`, `autograd.backward` or `autograd.grad`."""
    held = getattr(function, "__func__", function)
    return held in (HOOKS.public.Tensor.backward, HOOKS.public.autograd.backward, HOOKS.public.autograd.grad)


def _known(value: Any) -> Any:
    """A value; in the place of one from outside what the trace works on, if somebody has looked at it."""
    return value.value if type(value) is Lazy and value.value is not ABSENT else value


def _is_operator(function: Any) -> bool:
    """Whether a native function does what Python's operators do."""
    return function.__module__ == "_operator" or function in _WRITTEN


def _is_method(function: Any) -> bool:
    """Whether a function is a method of tensors, taken from the class."""
    name = getattr(function, "__name__", "")
    return isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)) and hasattr(Tensor, name)


def _has_tensor(value: Any) -> bool:
    """Whether there is a tensor, or what a program knows of its elements alone, among nested values."""
    if isinstance(value, (Tensor, ElementNumber, Undecided)) or is_unknown(value):
        return True
    return isinstance(value, (list, tuple)) and any(_has_tensor(each) for each in value)


def constant_text(message: Any) -> str:
    """The message of a check, a function without arguments that gives one text."""
    code = getattr(message, "__code__", None)
    texts = [] if code is None else [x for x in code.co_consts if x is not None]
    if (
        code is None
        or code.co_argcount
        or code.co_freevars
        or code.co_names
        or len(texts) != 1
        or type(texts[0]) is not str
    ):
        raise Break("torch._check with a message that is made of values, in a graph for another backend")
    return texts[0]


# ***** where inputs come from *****


def state_names(start: functools.partial[None]) -> tuple[list[str], dict[int, str]]:
    """Names of the values that a segment begins with, and of the cells of its function's closure."""
    first = start.args[0]
    if isinstance(first, types.FunctionType):
        code = first.__code__
        cells = dict(zip(map(id, first.__closure__ or ()), code.co_freevars, strict=True))
        return list(code.co_varnames), cells
    names: list[str] = []
    for frame in first:
        names += _frame_names(frame)
    return names, {}


def _frame_names(frame: Frame) -> list[str]:
    from_locals = [
        name for name, bound in zip(frame.decoded.local_names, frame.locals, strict=False) if repr(bound) != "NULL"
    ]
    stack = [f"stack{i}" for i, value in enumerate(frame.stack) if repr(value) != "NULL"]
    return from_locals + stack + (["kept"] if frame.link is not None else [])


_INDEX = re.compile(r"^\{\}\[(\d+)\]$")
_PARTS = re.compile(r"^\{\}\.__dict__\['(\w+)'\](.*)$")


def source_text(tracer: DocumentingTracer, source: Source) -> str:
    """Where a value comes from, as PyTorch writes it: `L['x']`, `L['self']._parameters['weight']`, `G['table'][0]`."""
    pattern, base = source.pattern, source.base
    if base is None:
        found = re.fullmatch(r"s\[(\d+)\]", pattern)
        if found is not None and int(found[1]) < len(tracer.names):
            return tracer.aliases.get(text := f"L['{tracer.names[int(found[1])]}']", text)
        return f"C['{pattern}']"
    if base.is_constant:
        value = tracer.constants.space.get(base.pattern)
        if isinstance(value, types.CellType) and id(value) in tracer.cells:
            text = f"L['{tracer.cells[id(value)]}']" + pattern[2:].replace(".cell_contents", "", 1)
            return tracer.aliases.get(text, text)
        if isinstance(value, dict) and "__name__" in value:
            return "G" + _constants(tracer, pattern[2:])
    text = source_text(tracer, base)
    if pattern == "{}.cell_contents" or _element_of(tracer, pattern):
        return text
    attribute = _PARTS.match(pattern)
    if attribute is not None:
        return f"{text}.{attribute[1]}{_constants(tracer, attribute[2])}"
    index = _INDEX.match(pattern)
    if index is not None and (fields := _fields(tracer, base)):
        return f"{text}.{fields[int(index[1])]}"
    text += _constants(tracer, pattern[2:])
    return tracer.aliases.get(text, text)


def _element_of(tracer: DocumentingTracer, pattern: str) -> bool:
    """Whether a pattern makes a tensor of a number."""
    return pattern.endswith("({})") and tracer.constants.space.get(pattern[:-4]) is _as_element


def _fields(tracer: DocumentingTracer, source: Source) -> tuple[str, ...]:
    """The names of the items of a named tuple."""
    numbers = [number for number, known in tracer.outside.sources.items() if known is source]
    for value in tracer.outside.kept:
        if id(value) in numbers:
            return tuple(getattr(value, "_fields", ()))
    return ()


def _constants(tracer: DocumentingTracer, text: str) -> str:
    """A pattern with the names of constants replaced by their values."""
    return re.sub(r"\bc\d+\b", lambda m: repr(tracer.constants.space.get(m[0], m[0])), text)

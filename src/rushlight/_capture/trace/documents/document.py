"""Calls of a program, as records: a custom backend's fx graph is made from them.

The tracer writes a record for everything that PyTorch's own capture makes a node of.  Values are known by identity:
`args` and `result` hold the stand-in tensors themselves.  `Document` writes the records; whoever knows `fx` makes a
graph of them.

| kind | target | args | result |
| --- | --- | --- | --- |
| `placeholder` | where the tensor comes from: `L['self']._modules['first']._parameters['weight']` | | the tensor |
| `call_function` | a function of `torch` or `operator`, a custom operator | as the program wrote them | a tensor, a tuple or list, None |
| `call_method` | the method's name | the tensor first | the same |
| `call_module` | the module's path | as the program wrote them | the same |
| `get_attr` | the attribute's path | the value itself | the tensor |
| `name` | a local variable's name | the value that was stored in it | |
| `dropped` | | the result of the call before, which the program does not keep: `x.add_(1)` as a statement | |
| `grad_mode` | | whether gradients are recorded from here on | |
| `autocast` | | a type of device, whether operators cast there from here on, and to which dtype | |
| `cond` | | the predicate, the operands, a `Part` for each of the two functions | a tuple |
| `higher` | `while_loop`, `scan`, ... | (name, `Part`) of each function, groups of operands | a tuple |
| `transform` | a `Transform` of `torch.func` | a `Part`, the tensors of its arguments | a tuple |
| `output` | | the tensors that the rest of the program needs | |
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["CallRecord", "Document", "Part", "Undocumented", "placeholder_name"]


class CallRecord(NamedTuple):
    """One call (or input, name, output) of a program; see the table above."""

    kind: str
    target: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    result: Any = None
    name: str = ""  # of a function in PyTorch, where the function does not say it


class Part(NamedTuple):
    """A function of `cond` or the like: its records, the tensors that it gives, and those that it takes where these are
    its own.
    """

    calls: list[CallRecord]
    results: tuple[Any, ...]
    inputs: Sequence[Any] = ()


class Document:
    """The records of one graph, in order.

    >>> document = Document()
    >>> x = document.placeholder("L['x']", object())
    >>> [record.kind for record in document.calls]
    ['placeholder']
    """

    def __init__(self) -> None:
        self.calls: list[CallRecord] = []
        self.numbers: list[tuple[Callable[..., Any], tuple[Any, ...], Any]] = []  # symbolic ones, as they were computed
        self.known: set[int] = set()  # identities of inputs, and of what calls gave
        self.given: set[int] = set()  # identities of what functions are given that are parts of it
        self.required: list[Any] = []  # conditions on sizes without a value that the program requires

    def _add(self, record: CallRecord) -> None:
        """Add a record whose result nodes stand for."""
        self.calls.append(record)
        waiting = [record.result]
        while waiting:
            value = waiting.pop()
            self.known.add(id(value))
            if isinstance(value, (tuple, list)):
                waiting += value
            elif isinstance(value, dict):
                waiting += value.values()

    def has_calls(self) -> bool:
        """Whether anything was called."""
        return any(record.kind.startswith(("call_", "cond", "higher", "transform")) for record in self.calls)

    def placeholder(self, source: str, tensor: Any) -> Any:
        """An input, when the program first uses it."""
        self._add(CallRecord("placeholder", source, (), {}, tensor))
        return tensor

    def size(self, symbol: Any) -> None:
        """A symbolic size that is an input."""
        self.calls.append(CallRecord("size", "", (), {}, symbol))

    def function(
        self, function: Callable[..., Any], args: Iterable[Any], kwargs: dict[str, Any], result: Any, name: str = ""
    ) -> None:
        """A call of a function, after it returned."""
        self._add(CallRecord("call_function", function, _copied(tuple(args)), _copied(kwargs), result, name))

    def method(self, name: str, args: Iterable[Any], kwargs: dict[str, Any], result: Any) -> None:
        """A call of a tensor's method; the tensor is the first argument."""
        self._add(CallRecord("call_method", name, _copied(tuple(args)), _copied(kwargs), result))

    def module(self, path: str, args: Iterable[Any], kwargs: dict[str, Any], result: Any) -> None:
        """A call of a module that is not looked into."""
        self._add(CallRecord("call_module", path, _copied(tuple(args)), _copied(kwargs), result))

    def cond(self, pred: Any, operands: Iterable[Any], parts: Iterable[Part], result: tuple[Any, ...]) -> None:
        """A choice between two parts."""
        self._add(CallRecord("cond", "cond", (pred, tuple(operands), *parts), {}, result))

    def higher(self, target: str, parts: Iterable[tuple[str, Part]], groups: Iterable[Any], result: Any) -> None:
        """A function of functions: each part with what its attribute's name begins with, and groups of operands."""
        self._add(CallRecord("higher", target, (tuple(parts), tuple(groups)), {}, tuple(result)))

    def transform(self, transform: Any, part: Part, operands: Iterable[Any], result: Iterable[Any]) -> None:
        """A function transform: the part is its function."""
        self._add(CallRecord("transform", transform, (part, tuple(operands)), {}, tuple(result)))

    def attribute(self, path: str, value: Any) -> Any:
        """A tensor or another object that the graph holds as an attribute."""
        self._add(CallRecord("get_attr", path, (value,), {}, value))
        return value

    def name(self, variable: str, value: Any) -> None:
        """A local variable to which a value was stored: the node gets its name, the first time."""
        self.calls.append(CallRecord("name", variable, (value,)))

    def dropped(self, value: Any) -> None:
        """The result of the last call, thrown away."""
        self.calls.append(CallRecord("dropped", "", (value,)))

    def output(self, values: Iterable[Any]) -> None:
        """The tensors that leave the graph."""
        self.calls.append(CallRecord("output", "output", tuple(values)))

    def mode(self, enabled: bool) -> None:
        """A change of the gradient mode."""
        self.calls.append(CallRecord("grad_mode", "", (enabled,)))

    def casting(self, place: str, enabled: bool, dtype: Any) -> None:
        """A change of what `autocast` does on a type of device."""
        self.calls.append(CallRecord("autocast", "", (place, enabled, dtype)))


class Undocumented:
    """The document interface of a tracer without a document: it records nothing."""

    def record_call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Write a call of one of our own functions down, where somebody wants a document of the trace."""

    def documented(self) -> Any:
        """The time in which a part of control flow is followed; gives its document, where somebody wants one."""
        return contextlib.nullcontext()

    def note_cond(self, pred: Any, operands: Any, branches: Any, made: Any) -> None:
        """Write a `cond` down, where somebody wants a document: of each branch its document and its results."""

    def note_higher(self, target: str, parts: Any, groups: Any, made: Any) -> None:
        """The same for another function of functions: its parts with their names, its operands, its results."""

    def checked(self, function: Any, condition: Any, message: Any) -> None:
        """The same for a check of a number that the program reads of a tensor."""

    def asserted(self, value: Any, text: str) -> bool | None:
        """The same for an `assert`, with what it says where it fails; None where no node can check it."""
        return None

    def is_size(self, function: Any, number: Any) -> None:
        """The same for a number that is to be a size."""

    def as_output(self, number: Any) -> Any:
        """The tensor by which a number leaves the program; None where it leaves it as it is."""
        return number.tensor


def _copied(value: Any) -> Any:
    """Lists and dicts of arguments as they are at the call: the program may change them later."""
    if type(value) in (list, tuple):
        return type(value)(_copied(each) for each in value)
    if type(value) is dict:
        return {key: _copied(each) for key, each in value.items()}
    return value


def placeholder_name(source: str) -> str:
    """The target of an input from where it comes.

    >>> placeholder_name("L['self']._modules['first']._parameters['weight']")
    'L_self_modules_first_parameters_weight_'
    """
    return re.sub(r"[^a-zA-Z0-9]+", "_", source)

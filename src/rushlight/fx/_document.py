"""From the records of a program to an fx graph, with the nodes and names that PyTorch's capture gives."""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from rushlight import (
    _C,
    SymFloat,
    SymInt,
    Tensor,
    clear_autocast_cache,
    ops,
    select,
    set_autocast_dtype,
    set_autocast_enabled,
)
from rushlight._higher_order_ops.transforms import TransformedGraph
from rushlight._interface.compiling import CallRecord, placeholder_name
from rushlight._interface.sizes import Undecided
from rushlight.fx.experimental.runtime_asserts import RuntimeAsserts, relation
from rushlight.fx.experimental.sized_nodes import SizedNodes
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.nn.modules.module import Module
from rushlight.ops import higher_order

__all__ = ["Documented", "graph_module"]


class Documented(NamedTuple):
    """A graph as a module, and the tensors that it takes, in order."""

    module: GraphModule
    inputs: list[Any]


class _Builder:
    """Makes nodes of records; values are known by identity."""

    def __init__(self, outer: _Builder | None = None) -> None:
        self.outer = outer
        self.captured: dict[int, tuple[Any, Node]] = {}  # of a part: tensors that it takes from outside of it
        self.conds: Iterator[int] = itertools.count() if outer is None else outer.conds
        self.counts: dict[str, Iterator[int]] = {} if outer is None else outer.counts  # graphs of functions, by name
        self.graph = Graph()
        self.root = Module()
        self.nodes: dict[int, Node] = {}
        self.kept_alive: list[Any] = []
        self.named: set[Node] = set()
        self.inputs: list[Node] = []
        self.sizes: set[str] = set()
        self.defined: dict[str, Node] = {}  # sizes without a value, by their names
        self.noted: set[str] = set()  # those of them that are read of one of several results
        self.unknown = False  # whether there are any
        self.numbers = SizedNodes(self.graph, self.argument)
        self.before: tuple[Any, Node | None] = (None, None)  # the last value that was bound, and its node before

    def argument(self, value: Any) -> Any:
        """A value as an argument of a node: nodes for tensors, containers with nodes in them, anything else as it is."""
        if id(value) in self.nodes:
            return self.nodes[id(value)]
        if isinstance(value, (SymInt, SymFloat)):
            known = value.shape_env.symbols_in(value)
            for symbol in value.shape_env.symbols:
                if symbol.shape_env.shown(symbol) in known and not self.is_unknown(symbol):
                    self.size(symbol)
            return self.numbers.node(value)
        if self.outer is not None and (isinstance(value, Tensor) or self.outer.has_node(value)):
            return self.capture(value)
        if isinstance(value, Tensor):
            raise RuntimeError(
                f"a tensor of shape {tuple(value.shape)} is used in a graph that has no record of where it comes from"
            )
        if isinstance(value, tuple):
            items = [self.argument(each) for each in value]
            return (
                type(value)(*items)
                if hasattr(value, "_fields")
                else type(value)(items)
                if type(value) is not tuple
                else tuple(items)
            )
        if isinstance(value, list):
            return [self.argument(each) for each in value]
        if isinstance(value, dict):
            return {key: self.argument(each) for key, each in value.items()}
        if isinstance(value, slice):
            return slice(self.argument(value.start), self.argument(value.stop), self.argument(value.step))
        if type(value).__module__ == "numpy" and not hasattr(value, "__len__") and hasattr(value, "item"):
            return value.item()  # a scalar of NumPy, which the text of a graph cannot name
        return value

    def has_node(self, value: Any) -> bool:
        """Whether a node stands for a value, here or further out."""
        return id(value) in self.nodes or (self.outer is not None and self.outer.has_node(value))

    def is_unknown(self, symbol: Any) -> bool:
        """Whether a symbol has no value."""
        env = symbol.shape_env
        return env.text_of(symbol) in env.unbacked_names if hasattr(env, "unbacked_names") else False

    def bind(self, value: Any, node: Node, item: bool = False) -> None:
        """Let a node stand for a value; the items of a tuple or list become nodes of their own."""
        if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, SymInt)):
            return
        self.kept_alive.append(value)
        self.before = (value, self.nodes.get(id(value)))
        node.meta.setdefault("example_value", value)
        self.nodes[id(value)] = node
        if isinstance(value, SymInt):
            self.unknown = True
            text = value.shape_env.text_of(value)
            if text in self.defined:  # it is computed once
                self.graph.erase_node(node)
                self.nodes[id(value)] = node = self.defined[text]
            self.defined[text] = node
            self.numbers.stand(value, node)
        elif isinstance(value, Undecided):
            node.meta["relation"] = relation(node.target, *self.compared)
        elif isinstance(value, Tensor) and node.op in ("call_function", "call_method") and not item:
            self.define(value, node)
        elif isinstance(value, Tensor) and item:
            self.note_sizes(value, node)
        if isinstance(value, (tuple, list, dict)):
            for index, each in value.items() if isinstance(value, dict) else enumerate(value):
                if isinstance(each, (Tensor, tuple, list, dict, types.FunctionType)):
                    self.bind(each, self.graph.call_function(operator.getitem, (node, index)), item=True)

    def placeholder(self, record: CallRecord) -> None:
        """Inputs stand before everything else, in the order of their first use."""
        if id(record.result) in self.nodes:
            return
        place = self.inputs[-1] if self.inputs else None
        point = self.graph.inserting_after(place) if place is not None else self.graph.inserting_before(None)
        with point:
            node = self.graph.placeholder(placeholder_name(record.target))
        node.meta["source"] = record.target
        self.inputs.append(node)
        self.named.add(node)
        self.bind(record.result, node)

    def size(self, symbol: Any) -> None:
        """A symbolic size stands before the tensor that has it."""
        text = symbol.shape_env.shown(symbol)
        if symbol.shape_env.decided(symbol) is not None or text in self.sizes:
            return
        place = self.inputs[-1] if self.inputs else None
        source = getattr(symbol.shape_env, "number_sources", {}).get(text)
        name = text if source is None else placeholder_name(source)
        with self.graph.inserting_after(place) if place is not None else self.graph.inserting_before(None):
            node = self.graph.placeholder(name, type_expr=SymInt)
        node.meta["example_value"] = symbol
        if source is not None:
            node.meta["source"] = source
        self.sizes.add(text)
        self.inputs.append(node)
        self.numbers.stand(symbol, node)

    def define(self, tensor: Any, node: Node) -> None:
        """Nodes for the sizes of a tensor that only elements tell, where it is the first that has them."""
        for d, size in enumerate(tensor.shape):
            if isinstance(size, SymInt) and (text := size.shape_env.text_of(size)) in size.shape_env.unbacked_names:
                self.unknown = True
                if text not in self.defined and text not in self.noted:
                    with self.graph.inserting_after(node):
                        made = self.graph.call_function(ops.aten.sym_size.int, (node, d))
                    made.meta["example_value"] = size
                    self.defined[text] = made
                    self.numbers.stand(size, made)

    def note_sizes(self, tensor: Any, node: Node) -> None:
        """How sizes that only elements tell are read of one of several results, if somebody does."""
        for d, size in enumerate(tensor.shape):
            if isinstance(size, SymInt) and (text := size.shape_env.text_of(size)) in size.shape_env.unbacked_names:
                self.unknown = True
                if text not in self.defined and text not in self.noted:
                    self.noted.add(text)
                    self.numbers.note(ops.aten.sym_size.int, (tensor, d), size)

    def drop_unused_numbers(self) -> None:
        """Take away what was computed of sizes and is never used."""
        for node in reversed(list(self.graph.nodes)):
            number = isinstance(node.meta.get("example_value"), (SymInt, Undecided))
            computed = number and node.op == "call_function" and node.target is not ops.aten.sym_size.int
            if computed and not node.users:
                self.graph.erase_node(node)

    def call(self, record: CallRecord) -> None:
        args = tuple(self.argument(each) for each in record.args)
        kwargs = {key: self.argument(each) for key, each in record.kwargs.items()}
        name = record.name if record.kind == "call_function" and record.name else None
        target = _nameable(record.target) if record.kind == "call_function" else record.target
        if target is operator.getitem and isinstance(record.args[1], SymInt):  # as PyTorch writes it
            target, args = select, (args[0], 0, args[1])
        self.compared = record.args
        self.bind(record.result, self.graph.create_node(record.kind, target, args, kwargs, name=name))

    # ***** cond *****

    def capture(self, value: Any) -> Node:
        """The input of a part for a tensor from outside of it."""
        with self.graph.inserting_before(next(iter(self.graph.nodes), None)):
            node = self.graph.placeholder(f"captured_{len(self.captured)}")
        self.captured[id(value)] = value, node
        self.bind(value, node)
        self.named.add(node)
        return node

    def cond(self, record: CallRecord) -> None:
        """Two graphs as attributes, and a node that chooses; what they take from outside becomes operands of both."""
        pred, operands, *parts = record.args
        outer = [self.argument(x) for x in operands]
        built = []
        for part in parts:
            inner = _Builder(self)
            inner.operands(operands, outer)
            inner.records(part.calls)
            inner.output(part.results)
            built.append(inner)
        number, taken = next(self.conds), [{**inner.captured} for inner in built]
        shared = [key for key in taken[0] if key in taken[1]]
        captured: list[tuple[Any, str]] = []
        for keys, source, suffix in (
            (shared, 0, ""),
            ([key for key in taken[0] if key not in shared], 0, "_true_branch"),
            ([key for key in taken[1] if key not in shared], 1, "_false_branch"),
        ):
            found = [(self.argument(taken[source][key][0]), taken[source][key][0]) for key in keys]
            captured += [
                (value, f"{node.name}{suffix}") for node, value in sorted(found, key=lambda each: each[0].name)
            ]
        graphs = []
        for inner, word in zip(built, ("true", "false"), strict=True):
            inner.close(captured)
            setattr(self.root, name := f"cond_{word}_{number}", GraphModule(inner.root, inner.graph))
            graphs.append(self.graph.get_attr(name))
        more = [self.argument(value) for value, _ in captured]
        operator_of_cond = higher_order.cond
        node = self.graph.call_function(operator_of_cond, (self.argument(pred), *graphs, (*outer, *more)))
        self.bind(record.result, node)

    def higher(self, record: CallRecord) -> None:
        """A graph as an attribute for each function, and a node; what they take from outside are further operands."""
        parts, groups = record.args
        outer = [type(group)(self.argument(x) for x in group) for group in groups]
        built = []
        for _, part in parts:
            inner = self.part(part)
            if record.target == "while_loop" and part is parts[0][1]:
                inner.graph.output(inner.argument(part.results[0]))
            else:
                inner.output(part.results)
            built.append(inner)
        taken = {key: value for inner in built for key, (value, _) in inner.captured.items()}
        captured = [(value, self.argument(value).name) for value in taken.values()]
        graphs = []
        for (stem, _), inner in zip(parts, built, strict=True):
            inner.close(captured)
            graphs.append(self.graph.get_attr(self.attach(stem, GraphModule(inner.root, inner.graph))))
        more = [self.argument(value) for value, _ in captured]
        further = tuple(more) if record.target == "while_loop" else more
        target = getattr(higher_order, record.target)
        self.bind(record.result, self.graph.call_function(target, (*graphs, *outer, further)))

    def transform(self, record: CallRecord) -> None:
        """A module with the graph of the function, and a call of it; what it takes from outside are further operands."""
        part, operands = record.args
        inner = self.part(part)
        inner.output(part.results)
        captured = [(value, self.argument(value)) for value, _ in inner.captured.values()]
        inner.close([(value, node.name) for value, node in captured])
        module = TransformedGraph(record.target, GraphModule(inner.root, inner.graph))
        name = self.attach(f"{record.target.name}_body", module)
        given = (*[self.argument(x) for x in operands], *[node for _, node in captured])
        self.bind(record.result, self.graph.call_module(name, given))

    def part(self, part: Any) -> _Builder:
        """The graph of a part without its results: a placeholder for each input, and the calls."""
        inner = _Builder(self)
        for k, x in enumerate(part.inputs):
            node = inner.graph.placeholder(f"child_{k + 1}")
            inner.named.add(node)
            inner.bind(x, node)
        inner.records(part.calls)
        return inner

    def attach(self, stem: str, module: Any) -> str:
        """The name of a module of the root: the stem with the next number."""
        name = f"{stem}_{next(self.counts.setdefault(stem, itertools.count()))}"
        setattr(self.root, name, module)
        return name

    def operands(self, values: Iterable[Any], nodes: Iterable[Node]) -> None:
        """The first inputs of a part."""
        for value, outer in zip(values, nodes, strict=True):
            inside = outer.op == "placeholder" and self.outer is not None and self.outer.outer is not None
            name = str(outer.target) if inside else outer.name
            node = self.graph.placeholder(name)
            node._rename(f"{name}_1")
            self.inputs.append(node)
            self.named.add(node)
            self.bind(value, node)

    def close(self, captured: Iterable[tuple[Any, str]]) -> None:
        """Give a part inputs for all that it or the other part takes from outside, in this order, behind its operands."""
        first = next((node for node in self.graph.nodes if node.op != "placeholder"), None)
        for value, name in captured:
            with self.graph.inserting_before(first):
                node = self.graph.placeholder(name)
            if not name.endswith("_branch"):
                node._rename(f"{name}_1")
            node.meta.setdefault("example_value", value)
            held = self.captured.get(id(value))
            if held is not None:
                held[1].replace_all_uses_with(node)
                self.graph.erase_node(held[1])
        for node in reversed(list(self.graph.nodes)):
            if not node.users and node.op == "call_function" and node.target is operator.getitem:
                self.graph.erase_node(node)

    def attribute(self, record: CallRecord) -> None:
        setattr(self.root, record.target, record.args[0])
        self.bind(record.result, self.graph.get_attr(record.target))

    def name(self, record: CallRecord) -> None:
        """A variable's name goes to the node that made the value, once; containers have none."""
        node = self.nodes.get(id(record.args[0]))
        if node is not None and node not in self.named and isinstance(record.args[0], Tensor):
            self.named.add(node)
            node._rename(record.target)

    def dropped(self, value: Any) -> None:
        """Name a tensor as before where the program drops the result of an in-place call, which is the tensor itself."""
        if self.before[0] is value and self.before[1] is not None:
            self.nodes[id(value)] = self.before[1]

    def output(self, values: Iterable[Any]) -> None:
        different = {id(value): value for value in values}
        self.graph.output(tuple(self.argument(value) for value in different.values()))

    def records(self, records: Iterable[CallRecord]) -> None:
        """Make nodes of records."""
        for record in records:
            if record.kind == "name":
                self.name(record)
            elif record.kind == "size":
                self.size(record.result)
            elif record.kind == "dropped":
                self.dropped(record.args[0])
            elif record.kind == "output":
                self.output(record.args)
            elif record.kind == "grad_mode":
                self.graph.call_function(_C._set_grad_enabled, record.args)
            elif record.kind == "autocast":
                self.casting(*record.args)
            else:
                self.maker(record.kind)(record)

    def casting(self, place: str, enabled: bool, dtype: Any) -> None:
        """Change what is cast by itself; casts of parameters that were kept are not for what comes later."""
        self.graph.call_function(set_autocast_dtype, (place, dtype))
        self.graph.call_function(set_autocast_enabled, (place, enabled))
        if not enabled:
            self.graph.call_function(clear_autocast_cache)

    def maker(self, kind: str) -> Callable[[CallRecord], None]:
        """Constructor of a node from a record of this kind."""
        made: dict[str, Callable[[CallRecord], None]] = {
            "placeholder": self.placeholder, "get_attr": self.attribute, "cond": self.cond, "higher": self.higher,
            "transform": self.transform,
        }  # fmt: skip
        return made.get(kind, self.call)

    def finish(self, required: Iterable[Any]) -> Documented:
        """The graph without items that nobody takes, and without inputs that nobody reads."""
        if self.unknown:
            self.drop_unused_numbers()
            RuntimeAsserts(self.graph, self.defined.get, required).insert()
        for node in reversed(list(self.graph.nodes)):
            taken_apart = node.op == "get_attr" or (node.op == "call_function" and node.target is operator.getitem)
            read = node.op == "placeholder" and (node.type is not SymInt or "source" in node.meta)
            if not node.users and (taken_apart or read):
                self.graph.erase_node(node)
        kept = [node for node in self.inputs if not node._erased]
        made = GraphModule(self.root, self.graph)
        return Documented(made, [node.meta["example_value"] for node in kept])


def _nameable(function: Any) -> Any:
    """A function that generated code can name: a method, of whatever class, becomes a function of its own."""
    words = str(getattr(function, "__qualname__", "")).split(".")
    if not isinstance(function, (types.FunctionType, types.MethodType)) or len(words) < 2 or "<locals>" in words:
        return function

    def method(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    method.__name__ = method.__qualname__ = "_".join(words[-2:])
    method.__module__ = "__recorded__"  # of no module: the code holds it
    return method


def graph_module(
    records: Iterable[CallRecord], numbers: Iterable[Any] = (), required: Iterable[Any] = ()
) -> Documented:
    """The fx graph of a program's records, as a module.  RuntimeError for a tensor that no record gives.

    `numbers` lists what was computed of symbolic sizes: function, arguments and result; `required` the conditions on
    sizes without a value that the program requires.
    """
    builder = _Builder()
    for made in numbers:
        builder.numbers.note(*made)
    builder.records(records)
    return builder.finish(required)

"""Control flow in graphs: branches and bodies of `cond`, `while_loop`, `scan`, `map` as graphs of their own, and parts that
run without gradients.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._higher_order_ops.operators import OPERATORS
from rushlight._interface.sizes import MOST, Integer, require_between
from rushlight._subclasses.fake_tensor import FakeTensor
from rushlight.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from rushlight.fx.experimental.sized_nodes import SizedNodes
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node, map_arg
from rushlight.nn.modules.module import Module
from rushlight.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["ControlFlowMode", "grad_parts"]


@dataclass
class _Frame:
    """A graph in a graph: what it takes from the graph around it."""

    graph: Graph
    root: Any
    captured: dict[Node, Node] = field(default_factory=dict)  # node around -> placeholder


@dataclass
class _Body:
    """A function as a graph."""

    graph: Graph
    root: Any
    captured: dict[Node, Node]
    results: list[Any]
    structure: Any


class ControlFlowMode(ProxyTorchDispatchMode):
    """A mode that writes down graphs in graphs."""

    pre_dispatch = True
    controls = ("cond", "while_loop", "scan", "map_impl")
    fake_mode: Any = None

    def __init__(self, graph: Graph, root: Module, decompositions: Any = None) -> None:
        super().__init__(graph, root, decompositions)
        self.frames: list[_Frame] = [_Frame(graph, root)]

    def reached(self, node: Node, value: Any) -> Node:
        """A node as the graph that is being written sees it: inputs for those of graphs around."""
        return self._reached(node, value, len(self.frames) - 1)

    def _reached(self, node: Node, value: Any, level: int) -> Node:
        frame = self.frames[level]
        if node.graph is frame.graph or level == 0:
            return node
        around = self._reached(node, value, level - 1)
        made = frame.captured.get(around)
        if made is None:
            last = [n for n in frame.graph.nodes if n.op == "placeholder"]
            with frame.graph.inserting_after(last[-1]) if last else frame.graph.inserting_before():
                made = frame.graph.placeholder(around.name)
            made.meta["val"] = value
            frame.captured[around] = made
        return made

    # ***** functions as graphs *****

    def body(
        self, function: Callable[..., Any], values: Sequence[Any], names: Sequence[str], structure: Any = None
    ) -> _Body:
        """The graph of a function of tensors."""
        frame = _Frame(Graph(), Module())
        before = self.graph, self.root, self.numbers
        self.graph, self.root = frame.graph, frame.root
        self.numbers = SizedNodes(frame.graph, self.node_of)
        self.frames.append(frame)
        held = self.shape_env.watch if self.shape_env is not None else None
        try:
            fresh = []
            for value, name in zip(values, names, strict=True):
                node = frame.graph.placeholder(name)
                made = FakeTensor(value.fake_mode, value.meta, value.device, requires_grad=value.requires_grad)
                made._ptr = value._ptr
                node.meta["val"] = made
                self.track(made, node)
                fresh.append(made)
            given = fresh if structure is None else tree_unflatten(fresh, structure)
            if self.shape_env is not None:
                self.shape_env.watch = self.numbers.note
            with self:
                found = function(*given)
            results, out = tree_flatten(found)
            frame.graph.output(tuple([self.node_of(r) for r in results]))
        finally:
            self.frames.pop()
            self.graph, self.root, self.numbers = before
            if self.shape_env is not None:
                self.shape_env.watch = held
        return _Body(frame.graph, frame.root, frame.captured, results, out)

    def attach(self, name: str, body: _Body, single: bool = False) -> Node:
        """Let the graph have another one, and a node that reads it."""
        if single:
            output = body.graph.output_node()
            output.args = (output.args[0][0],)
        number = 0
        while hasattr(self.root, f"{name}_{number}"):
            number += 1
        self.root.add_module(f"{name}_{number}", GraphModule(body.root, body.graph))
        return self.graph.create_node("get_attr", f"{name}_{number}", name=f"{name}_{number}")

    def called(self, name: str, args: tuple[Any, ...], values: Sequence[Any]) -> list[Any]:
        """The node of a call with several results, and their fake tensors."""
        node = self.graph.create_node("call_function", OPERATORS[name], args, {}, name=name)
        node.meta["val"] = tuple(values)
        self._spread(tuple(values), node)
        self.noted()
        return list(values)

    def noted(self) -> None:
        """New nodes were made outside of operators."""

    def note_grad_mode(self) -> None:
        """Nothing: nodes that do not record become parts of their own, in the end."""

    def fresh(self, values: Sequence[Any]) -> list[Any]:
        """Fake tensors like these, which nothing stands for yet."""
        for v in values:
            if not isinstance(v, FakeTensor):
                raise RuntimeError(
                    f"torch.export: a branch or a body gives a {type(v).__name__}, and tensors are expected"
                )
        return [FakeTensor(v.fake_mode, v.meta, v.device, requires_grad=v.requires_grad) for v in values]

    # ***** operators *****

    def control(self, name: str, *args: Any) -> Any:
        """Write down a call of control flow; its results."""
        with _put_off(self):
            return getattr(self, f"_{name}")(*args)

    def _cond(self, pred: Any, true_fn: Any, false_fn: Any, operands: Any) -> Any:
        leaves, structure = tree_flatten(tuple(operands))
        names = [self.node_of(v).name for v in leaves]
        bodies = [self.body(f, leaves, names, structure) for f in (true_fn, false_fn)]
        if bodies[0].structure != bodies[1].structure or len(bodies[0].results) != len(bodies[1].results):
            raise RuntimeError(
                f"Unmatched output spec from torch.cond branches: true branch tree_spec {bodies[0].structure} vs false branch tree_spec "
                f"{bodies[1].structure}."
            )
        values = [self._either(one, two) for one, two in zip(bodies[0].results, bodies[1].results, strict=True)]
        around = list(dict.fromkeys([*bodies[0].captured, *bodies[1].captured]))
        for body in bodies:
            _arrange(body, around)
        chosen = self.node_of(pred)
        graphs = [self.attach(word, body) for word, body in zip(("true_graph", "false_graph"), bodies, strict=True)]
        given = tuple([self.node_of(v) for v in leaves] + around)
        made = self.called("cond", (chosen, *graphs, given), values)
        return tree_unflatten(made, bodies[0].structure)

    def _either(self, one: Any, two: Any) -> Any:
        """The result of one of two branches: a size in which they differ is unknown."""
        (made,), (other,) = self.fresh([one]), self.fresh([two])
        if one.dtype is not two.dtype or one.dim() != two.dim() or one.device != two.device:
            raise RuntimeError(
                f"torch.cond: the branches give {one} and {two}: dtypes, devices and numbers of dims must be equal"
            )
        differ = [not _is_same(a, b) for a, b in zip(one.shape, two.shape, strict=True)]
        if not any(differ):
            if not all(map(_is_same, one.stride(), two.stride())):
                raise RuntimeError(
                    f"torch.cond: the branches give results with the strides {one.stride()} and {two.stride()}, and these must be equal"
                )
            return made
        if self.shape_env is None or not (one.is_contiguous() and two.is_contiguous()):
            raise RuntimeError(
                f"torch.cond: the branches give results of the shapes {tuple(one.shape)} and {tuple(two.shape)}, which must be equal here"
            )
        shape = [self._one_of(a, b) if d else a for a, b, d in zip(one.shape, two.shape, differ, strict=True)]
        joined = made.fake_mode.sized(shape, None, one.dtype, one.device)
        return joined.requires_grad_(made.requires_grad or other.requires_grad)

    def _one_of(self, a: Any, b: Any) -> Any:
        """A size that is one of two."""
        env = self.shape_env
        made = env.create_unbacked_symint()
        bounds = [(n, n) if type(n) is int else env.known_bounds(n.terms) for n in (a, b)]
        least, greatest = min(low for low, _ in bounds), max(high for _, high in bounds)
        require_between(made, max(least, 0), greatest if greatest < MOST else math.inf)
        return made

    def _while_loop(self, cond_fn: Any, body_fn: Any, carried: Any, additional: Sequence[Any] = ()) -> Any:
        if additional:
            cond_fn, body_fn = (lambda *values, f=f: f(*values, *additional) for f in (cond_fn, body_fn))
        leaves, structure = tree_flatten(tuple(carried))
        leaves = [v if isinstance(v, Tensor) else rushlight.ops.aten.lift_fresh_copy.default(v) for v in leaves]
        names = [f"arg{k}_1" for k in range(len(leaves))]
        test = self.body(cond_fn, leaves, names, structure)
        body = self.body(body_fn, leaves, names, structure)
        around = list(dict.fromkeys([*test.captured, *body.captured]))
        for each in (test, body):
            _arrange(each, around)
        graphs = [self.attach("while_loop_cond_graph", test, single=True), self.attach("while_loop_body_graph", body)]
        given = tuple([self.node_of(v) for v in leaves])
        made = self.called("while_loop", (*graphs, given, tuple(around)), self.fresh(body.results))
        return tree_unflatten(made, body.structure)

    def _scan(self, combine_fn: Any, init: list[Any], xs: list[Any], structures: Any) -> Any:
        rows = [rushlight.ops.aten.select.int(x, 0, 0) for x in self.quiet(xs)]
        names = [f"arg{k}_1" for k in range(len(init) + len(rows))]
        body = self.body(combine_fn, [*init, *rows], names)
        _arrange(body, list(body.captured))
        graph = self.attach("scan_combine_graph", body)
        carry, outs = self.fresh(body.results[: len(init)]), body.results[len(init) :]
        count = xs[0].shape[0]
        stacked = [o.new_empty((count, *o.shape)) for o in self.quiet(outs)]
        given = [self.node_of(v) for v in init], [self.node_of(v) for v in xs], tuple(body.captured)
        return self.called("scan", (graph, *given), [*carry, *stacked]), body.structure

    def _map_impl(self, function: Any, xs: list[Any], args: list[Any]) -> Any:
        rows = [rushlight.ops.aten.select.int(x, 0, 0) for x in self.quiet(xs)]
        names = [self.node_of(v).name for v in (*xs, *args)]
        body = self.body(function, [*rows, *args], names)
        _arrange(body, list(body.captured))
        graph = self.attach("body_graph", body)
        count = xs[0].shape[0]
        stacked = [o.new_empty((count, *o.shape)) for o in self.quiet(body.results)]
        given = [self.node_of(v) for v in xs], [*[self.node_of(v) for v in args], *body.captured]
        return self.called("map_impl", (graph, *given), stacked), body.structure

    def quiet(self, values: Sequence[Any]) -> list[Any]:
        """Fake tensors whose operators nobody writes down: the mode is away while a call is written."""
        return self.fresh(values)


def _is_same(a: Any, b: Any) -> bool:
    """Whether two sizes are one number or one formula; nothing is asked of them."""
    return a is b or (a.terms == b.terms if type(a) is type(b) is Integer else type(a) is type(b) is int and a == b)


class _put_off:
    """A context in which a mode is asked nothing."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        self.mode.__exit__(None, None, None)

    def __exit__(self, *exc: object) -> None:
        self.mode.__enter__()


def _arrange(body: _Body, around: list[Node]) -> None:
    """Let a graph take all of these from around it, in this order, behind its own inputs."""
    inputs = [n for n in body.graph.nodes if n.op == "placeholder"]
    own = [n for n in inputs if n not in body.captured.values()]
    last = own[-1] if own else None
    for node in around:
        made = body.captured.get(node)
        if made is None:
            made = body.graph.placeholder(node.name)
            made.meta["val"] = node.meta.get("val")
            body.captured[node] = made
        if last is None:
            first = next(iter(body.graph.nodes))
            if first is not made:
                first.prepend(made)
        else:
            last.append(made)
        last = made


# ***** parts without gradients *****


def grad_parts(graph: Graph, root: Any, outside: bool) -> None:
    """Let parts that ran with gradients otherwise switched than `outside` be graphs of their own, called so."""
    parts: list[list[Node]] = []
    before = outside
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        state = node.meta.pop("grad_enabled", before)
        if state != outside:
            if before == outside or not parts:
                parts.append([])
            parts[-1].append(node)
        before = state
    for number, part in enumerate(parts):
        _apart(graph, root, part, not outside, 2 * number + 1, 2 * len(parts) + 1 + number)


def _apart(graph: Graph, root: Any, part: list[Node], enabled: bool, number: int, name: int) -> None:
    inside = set(part)
    inner, values = Graph(), dict[Node, Node]()

    def taken(node: Node) -> Node:
        if node not in values:
            values[node] = inner.placeholder(node.name)
            values[node].meta = dict(node.meta)
            order.append(node)
        return values[node]

    order: list[Node] = []
    for node in part:  # inputs first
        map_arg((node.args, node.kwargs), lambda n: taken(n) if n not in inside and n.op != "get_attr" else n)
    for node in part:
        values[node] = inner.node_copy(node, lambda n: values[n])
    outs = [n for n in part if any(u not in inside for u in n.users)]
    inner.output(tuple(values[n] for n in outs))
    module = GraphModule(Module(), inner)
    root.add_module(f"submod_{number}", module)
    with graph.inserting_before(part[0]):
        read = graph.create_node("get_attr", f"submod_{number}", name=f"submod_{name}")
        stack = part[0].meta.get("nn_module_stack")
        args = (enabled, read, *order)
        label = outs[0].name if outs else "wrap_with_set_grad_enabled"
        call = graph.create_node("call_function", OPERATORS["wrap_with_set_grad_enabled"], args, {}, name=f"{label}__")
        call.meta["val"] = tuple(n.meta["val"] for n in outs)
        items = []
        for place, node in enumerate(outs):
            item = graph.create_node("call_function", operator.getitem, (call, place), {}, name="getitem")
            item.meta = dict(node.meta)
            items.append(item)
    for each in (read, call):
        if stack is not None:
            each.meta["nn_module_stack"] = stack
    for node, item in zip(outs, items, strict=True):
        for user in list(node.users):
            if user not in inside:
                user.replace_input_with(node, item)
    for node in reversed(part):
        graph.erase_node(node)
    call.name = label

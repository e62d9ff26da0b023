"""From loads and stores of named variables to single assignment form.

The frontend writes `prim::Store` and `prim::Load`.  Control flow gets the variables that its blocks change as inputs and
results, then every load is the value that was stored last.
"""

from __future__ import annotations

from rushlight.jit.ir import types as T
from rushlight.jit.ir.copying import copy_node
from rushlight.jit.ir.graph import Block, Graph, Node, Value
from rushlight.jit.ir.passes.exits import transform_exits
from rushlight.jit.ir.types import Type

__all__ = ["convert_to_ssa"]


class _TypeFrame:
    """The types of variables that a block stored."""

    __slots__ = ("outer", "types")

    def __init__(self, outer: _TypeFrame | None) -> None:
        self.outer = outer
        self.types: dict[str, Type] = {}

    def find(self, name: str) -> Type | None:
        frame: _TypeFrame | None = self
        while frame is not None:
            if name in frame.types:
                return frame.types[name]
            frame = frame.outer
        return None


def _load(graph: Graph, block: Block, name: str, kind: Type, before: Node | None = None) -> Value:
    node = graph.create("prim::Load", (), (kind,))
    node.attributes["name"] = name
    if before is None:
        block.append(node)
    else:
        node.insert_before(before)
    return node.outputs[0]


class _ControlFlow:
    """Adds changed variables to ifs and loops."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.frame: _TypeFrame | None = None

    def run(self, block: Block) -> _TypeFrame:
        frame = self.frame = _TypeFrame(self.frame)
        for node in list(block.nodes):
            if node.kind_ == "prim::If":
                self._if(node)
            elif node.kind_ == "prim::Loop":
                self._loop(node)
            elif node.kind_ == "prim::With":
                self._with(node)
            elif node.kind_ == "prim::Closure":
                for inner in node.blocks:
                    self.run(inner)
            elif node.kind_ == "prim::Store":
                frame.types[node.attributes["name"]] = node.inputs[0].type
        self.frame = frame.outer
        return frame

    def _store(self, after: Node, name: str, value: Value) -> Node:
        node = self.graph.create("prim::Store", (value,), ())
        node.attributes["name"] = name
        return node.insert_after(after)

    def _if(self, node: Node) -> None:
        frame = self.frame
        assert frame is not None
        frames = [self.run(block) for block in node.blocks]
        names = dict.fromkeys(name for f in frames for name in f.types)
        after = node
        for name in sorted(names):
            kinds = [f.find(name) for f in frames]
            if any(k is None for k in kinds):
                continue
            first, second = kinds
            assert first is not None and second is not None
            joined = T.unify(first, second, to_union=False)
            if joined is None:
                continue
            for block, kind in zip(node.blocks, (first, second), strict=True):
                block.add_result(_load(self.graph, block, name, kind))
            after = self._store(after, name, node.add_output(joined, name if not name[0].isdigit() else ""))
            frame.types[name] = joined

    def _with(self, node: Node) -> None:
        """Make values that the body stores results, so that code behind it may be guarded by them."""
        frame, body = self.frame, node.blocks[0]
        assert frame is not None
        inner = self.run(body)
        after = node
        for name, kind in sorted(inner.types.items()):
            body.add_result(_load(self.graph, body, name, kind))
            after = self._store(after, name, node.add_output(kind))
            frame.types[name] = kind

    def _loop(self, node: Node) -> None:
        frame = self.frame
        assert frame is not None
        body = node.blocks[0]
        inner = self.run(body)
        names = [n for n in sorted(inner.types) if frame.find(n) is not None]
        after = node
        at = 0
        for name in names:
            kind = frame.find(name)
            assert kind is not None
            node.add_input(_load(self.graph, body, name, kind, before=node))
            given = body.add_input(kind, name)
            store = self.graph.create("prim::Store", (given,), ())
            store.attributes["name"] = name
            body.nodes.insert(at, store)
            store.block = body
            at += 1
            body.add_result(_load(self.graph, body, name, kind))
            after = self._store(after, name, node.add_output(kind, name))
            frame.types[name] = kind


def _erase(block: Block, outer: dict[str, Value]) -> None:
    known = dict(outer)
    for node in list(block.nodes):
        if node.kind_ == "prim::Store":
            known[node.attributes["name"]] = node.inputs[0]
            node.destroy()
        elif node.kind_ == "prim::Load":
            node.outputs[0].replace_all(known[node.attributes["name"]])
            node.destroy()
        else:
            for inner in node.blocks:
                _erase(inner, known)


def _continuations(graph: Graph, block: Block, loop: Node | None) -> None:
    """Give `break` and `continue` the values that the loop carries, as inputs."""
    for node in list(block.nodes):
        if node.kind_ == "prim::Loop":
            _continuations(graph, node.blocks[0], node)
        elif node.kind_ in ("prim::BreakStmt", "prim::ContinueStmt"):
            assert loop is not None
            _continue(graph, node, loop)
        else:
            for inner in node.blocks:
                _continuations(graph, inner, None if node.kind_ == "prim::Closure" else loop)


def _continue(graph: Graph, node: Node, loop: Node) -> None:
    """Replace one `break` or `continue` by `prim::LoopContinuation(condition, values...)`."""
    made = graph.create("prim::LoopContinuation", (), ())
    made.location = node.location
    made.insert_before(node)
    if node.kind_ == "prim::BreakStmt":
        condition = graph.create("prim::Constant", (), (T.BOOL,))
        condition.attributes["value"] = False
        condition.insert_before(made)
        made.add_input(condition.outputs[0])
    names = loop.attributes["carried"]
    if node.kind_ == "prim::ContinueStmt":
        made.add_input(_condition_again(graph, loop, made))
    body = loop.blocks[0]
    for name, value in zip(names, body.inputs[1:], strict=True):
        made.add_input(_load(graph, body, name, value.type, before=made))
    node.destroy()


def _condition_again(graph: Graph, loop: Node, before: Node) -> Value:
    """The condition of the loop, computed once more."""
    block = loop.attributes["condition"]
    values: dict[Value, Value] = {}
    for node in block.nodes:
        copy_node(node, graph, values).insert_before(before)
    found = block.outputs[0]
    return values.get(found, found)


def _inline_conditions(graph: Graph, block: Block) -> None:
    """Compute a loop's condition before the loop and at the end of its body."""
    for node in list(block.nodes):
        for inner in node.blocks:
            _inline_conditions(graph, inner)
        if node.kind_ != "prim::Loop":
            continue
        condition: Block = node.attributes["condition"]
        _inline_conditions(graph, condition)
        values: dict[Value, Value] = {}
        for each in condition.nodes:
            copy_node(each, graph, values).insert_before(node)
        found = condition.outputs[0]
        place = node.inputs[1]
        node.set_input(1, values.get(found, found))
        if place.node is not None and not place.uses:
            place.node.destroy()
        body = node.blocks[0]
        for each in list(condition.nodes):
            condition.nodes.remove(each)
            body.append(each)
        results = list(body.outputs)
        condition.set_results([])
        body.set_results([found, *results])
        del node.attributes["condition"]


def convert_to_ssa(graph: Graph) -> None:
    """Replace loads, stores, `break`, `continue` and early returns by values and conditions."""
    _mark_carried(graph)
    _ControlFlow(graph).run(graph.block)
    _note_names(graph.block)
    _continuations(graph, graph.block, None)
    _inline_conditions(graph, graph.block)
    _erase(graph.block, {})
    for node in graph.block.all_nodes():
        node.attributes.pop("carried", None)
    transform_exits(graph)


def _mark_carried(graph: Graph) -> None:
    for node in graph.block.all_nodes():
        if node.kind_ == "prim::Loop":
            node.attributes["carried"] = []


def _note_names(block: Block) -> None:
    """Note the names of the variables that each loop carries, as they lie in the stores at the head of its body."""
    for node in block.nodes:
        if node.kind_ == "prim::Loop":
            body = node.blocks[0]
            node.attributes["carried"] = [s.attributes["name"] for s in body.nodes[: len(body.inputs) - 1]]
        for inner in node.blocks:
            _note_names(inner)

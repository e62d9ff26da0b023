"""`return`, `break` and `continue` within blocks become conditions: what follows a possible exit is guarded by an if.

Every block tells whether it exits, and with which values.  A loop that may be left carries both.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.jit.ir import types as T
from rushlight.jit.ir.copying import copy_node
from rushlight.jit.ir.graph import Block, Graph, Node, Uses, Value
from rushlight.jit.ir.types import Type

__all__ = ["transform_exits"]


class _Exit:
    """Whether a block was left (a value), and the values that it was left with."""

    __slots__ = ("exited", "values")

    def __init__(self, exited: Value, values: Sequence[Value] = ()) -> None:
        self.exited, self.values = exited, list(values)


class _Exits:
    """Rewrites one kind of exit: of loops, or of functions."""

    def __init__(self, graph: Graph, loops: bool) -> None:
        self.graph, self.loops = graph, loops
        self.target: Block | None = None
        self.uninitialized: dict[Type, Value] = {}
        self.true = self._head("prim::Constant", T.BOOL, True)
        self.false = self._head("prim::Constant", T.BOOL, False)
        self.throws = self._head("prim::Uninitialized", T.BOOL)

    def _head(self, kind: str, type_: Type, value: object = None) -> Value:
        node = self.graph.create(kind, (), (type_,))
        if kind == "prim::Constant":
            node.attributes["value"] = value
        self.graph.block.nodes.insert(0, node)
        node.block = self.graph.block
        return node.outputs[0]

    def finish(self) -> None:
        """Take out what nothing needed."""
        for value in (*self.uninitialized.values(), self.throws, self.false, self.true):
            if not value.uses and value.node is not None:
                value.node.destroy()

    def _unset(self, values: Sequence[Value]) -> list[Value]:
        made = []
        for value in values:
            if value.type not in self.uninitialized:
                self.uninitialized[value.type] = self._head("prim::Uninitialized", value.type)
            made.append(self.uninitialized[value.type])
        return made

    def run(self, block: Block) -> _Exit:
        """Rewrite a block."""
        outer = self.target
        owner = block.owner
        if owner is None or owner.kind_ == "prim::Closure":
            self.target = None if self.loops else block
        elif self.loops and owner.kind_ == "prim::Loop":
            self.target = block
        found = self._nodes(block)
        if self.target is block:
            if self._might(found):
                node = self.graph.create("prim::If", (found.exited,), ())
                block.append(node)
                self._outputs(node, found.values, block.outputs)
                block.set_results(node.outputs)
            elif found.exited is self.true:
                block.set_results(found.values)
            found = _Exit(self.false)
        self.target = outer
        return found

    def _might(self, found: _Exit) -> bool:
        return found.exited not in (self.true, self.false, self.throws)

    def _nodes(self, block: Block) -> _Exit:
        found = _Exit(self.false)
        for node in list(block.nodes):
            if node.kind_ == "prim::RaiseException":
                found = _Exit(self.throws)
            elif node.kind_ in ("prim::ReturnStmt", "prim::LoopContinuation"):
                if (node.kind_ == "prim::LoopContinuation") is self.loops:
                    found = _Exit(self.true, node.inputs)
                    self._cut(block, node)
                    return found
                continue
            elif node.kind_ == "prim::If":
                found = self._if(node)
            elif node.kind_ == "prim::Loop":
                found = self._loop(node)
            elif node.kind_ == "prim::With":
                found = self.run(node.blocks[0])
            elif node.kind_ == "prim::Closure":
                self.run(node.blocks[0])
                continue
            else:
                continue
            if found.exited in (self.true, self.throws):
                self._cut_after(block, node)
                return found
            if self._might(found):
                return self._guard(block, found, node)
        return found

    def _cut(self, block: Block, node: Node) -> None:
        values = list(node.inputs)
        self._cut_after(block, node)
        node.destroy()
        del values

    def _cut_after(self, block: Block, node: Node) -> None:
        """Destroy what follows a node that is never passed."""
        block.set_results(self._unset(block.outputs))
        at = block.nodes.index(node)
        for each in reversed(block.nodes[at + 1 :]):
            for value in each.outputs:
                value.uses = Uses()
            each.destroy()

    def _outputs(self, node: Node, first: Sequence[Value], second: Sequence[Value]) -> list[Value]:
        while len(node.blocks) < 2:
            node.add_block()
        made = []
        for a, b in zip(first, second, strict=True):
            node.blocks[0].add_result(a)
            node.blocks[1].add_result(b)
            made.append(node.add_output(T.unify(a.type, b.type, to_union=True) or a.type))
        return made

    def _if(self, node: Node) -> _Exit:
        return self._joined(node, self.run(node.blocks[0]), self.run(node.blocks[1]))

    def _joined(self, node: Node, first: _Exit, second: _Exit) -> _Exit:
        """The exit of an if, from those of its blocks."""
        states = {first.exited, second.exited}
        if states <= {self.false}:
            return _Exit(self.false)
        if states == {self.throws}:
            return _Exit(self.throws)
        if states <= {self.false, self.throws}:
            return _Exit(self.false)
        if first.exited in (self.false, self.throws):
            first = _Exit(first.exited, self._unset(second.values))
        if second.exited in (self.false, self.throws):
            second = _Exit(second.exited, self._unset(first.values))
        if states <= {self.true, self.throws}:
            exited = self.true
        else:
            exited = self._outputs(node, [first.exited], [second.exited])[0]
        return _Exit(exited, self._outputs(node, first.values, second.values))

    def _guard(self, block: Block, found: _Exit, node: Node) -> _Exit:
        """Put what follows a possible exit under the condition that it did not happen."""
        rest = block.nodes[block.nodes.index(node) + 1 :]
        if not rest:
            return found
        made = self.graph.create("prim::If", (found.exited,), ())
        made.insert_after(node)
        exit_block, guarded = made.add_block(), made.add_block()
        for each in rest:
            block.nodes.remove(each)
            guarded.append(each)
        results = list(block.outputs)
        block.set_results([])
        block.set_results(self._outputs(made, self._unset(results), results))
        del exit_block
        return self._joined(made, _Exit(self.true, found.values), self.run(guarded))

    def _loop(self, node: Node) -> _Exit:
        body = node.blocks[0]
        found = self.run(body)
        if found.exited in (self.false, self.throws):
            return _Exit(self.false)
        carried = [found.exited, *found.values]
        starts = [self.false, *self._unset(found.values)]
        for value, start in zip(carried, starts, strict=True):
            node.add_input(start)
            body.add_input(value.type)
        again = self.graph.create("prim::If", (found.exited,), ())
        body.append(again)
        condition = self._outputs(again, [self.false], [body.outputs[0]])[0]
        body.set_results([condition, *body.outputs[1:], *carried])
        made = [node.add_output(v.type) for v in carried]
        return _Exit(made[0], made[1:])


def _inline_withs(block: Block) -> None:
    """Put the body of each `with`, and what leaves it, in its place."""
    for node in list(block.nodes):
        for inner in node.blocks:
            _inline_withs(inner)
        if node.kind_ != "prim::With":
            continue
        body, leave = node.blocks
        for each in [*body.nodes, *leave.nodes]:
            each.move_before(node)
        for old, new in zip(node.outputs, list(body.outputs), strict=True):
            old.replace_all(new)
        node.destroy()


def _inline_ifs(graph: Graph, block: Block) -> None:
    """Join two ifs in a row where the second asks for a constant that the blocks of the first gave."""
    at = 0
    while at < len(block.nodes):
        node = block.nodes[at]
        while at + 1 < len(block.nodes) and _joinable(node, block.nodes[at + 1]):
            _join(graph, node, block.nodes[at + 1])
        for inner in node.blocks:
            _inline_ifs(graph, inner)
        at += 1


def _joinable(first: Node, second: Node) -> bool:
    if first.kind_ != "prim::If" or second.kind_ != "prim::If" or second.inputs[0].node is not first:
        return False
    at = first.outputs.index(second.inputs[0])
    answers = [_constant(b.outputs[at]) for b in first.blocks]
    return None not in answers and answers[0] is not answers[1]


def _constant(value: Value) -> bool | None:
    node = value.node
    found = node.attributes.get("value") if node is not None and node.kind_ == "prim::Constant" else None
    return found if isinstance(found, bool) else None


def _join(graph: Graph, first: Node, second: Node) -> None:
    at = first.outputs.index(second.inputs[0])
    for block in first.blocks:
        chosen = second.blocks[0 if _constant(block.outputs[at]) else 1]
        values = dict(zip(first.outputs, block.outputs, strict=True))
        for node in chosen.nodes:
            block.append(copy_node(node, graph, values))
        for value in chosen.outputs:
            block.add_result(values.get(value, value))
    for old in second.outputs:
        new = first.add_output(old.type)
        name = old.name
        old.replace_all(new)
        if name:
            graph.forget(old)
            new.set_name(name)
    second.destroy()


def transform_exits(graph: Graph) -> None:
    """Rewrite `prim::LoopContinuation`, then `prim::ReturnStmt`."""
    kinds = {n.kind_ for n in graph.block.all_nodes()}
    for loops, kind in ((True, "prim::LoopContinuation"), (False, "prim::ReturnStmt")):
        if kind in kinds:
            exits = _Exits(graph, loops)
            exits.run(graph.block)
            exits.finish()
    if "prim::With" in kinds:
        _inline_withs(graph.block)
    _inline_ifs(graph, graph.block)

"""Constants: computed where all inputs are constants, and kept once each at the head of the graph."""

from __future__ import annotations

from typing import Any

from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Block, Graph, Items, Node, Value
from rushlight.jit.ir.schemas import Schema
from rushlight.jit.runtime.operators import evaluate

__all__ = [
    "constant_of",
    "fold_constants",
    "is_constant",
    "node_has_effect",
    "order_outputs",
    "pool_constants",
    "remove_dead",
    "written_values",
]

_SKIPPED = frozenset((
    "prim::If", "prim::Loop", "prim::Closure", "prim::Constant", "prim::Uninitialized", "prim::PythonOp", "prim::IgnoredPythonOp", "prim::RaiseException",
    "prim::Print", "prim::GetAttr", "prim::SetAttr", "prim::CallMethod", "prim::CallFunction", "prim::CreateObject", "prim::fork", "prim::ModuleDictIndex",
    "prim::ListConstruct", "prim::DictConstruct", "prim::unchecked_cast", "prim::Enter", "prim::Exit", "prim::ListUnpack", "prim::isinstance",
    "prim::TupleConstruct", "prim::TupleUnpack", "prim::TupleIndex", "prim::TupleSlice", "prim::awaitable", "prim::tolist",
    "aten::warn", "prim::rangelist", "aten::is_scripting", "aten::is_grad_enabled", "aten::__interpolate",
))  # fmt: skip
_SIMPLE = frozenset((T.INT, T.FLOAT, T.BOOL, T.STR, T.COMPLEX, T.NONE, T.DEVICE, T.NUMBER))
_EFFECTS = frozenset((
    "prim::RaiseException", "prim::Print", "prim::SetAttr", "prim::CallMethod", "prim::CallFunction", "prim::fork", "aten::warn", "prim::PythonOp",
    "prim::Enter", "prim::Exit", "prim::Store", "aten::save", "aten::manual_seed", "aten::set_grad_enabled", "aten::wait", "prim::IgnoredPythonOp",
    "aten::backward", "prim::ReturnStmt", "prim::LoopContinuation", "prim::BreakStmt", "prim::ContinueStmt", "prim::CreateObject", "aten::seed",
    "prim::awaitable_wait", "aten::_assert_async", "aten::_print", "aten::_assert_tensor_metadata",
))  # fmt: skip


def is_constant(value: Value) -> bool:
    """Whether it comes from a constant node."""
    return value.node is not None and value.node.kind_ == "prim::Constant"


def constant_of(value: Value) -> Any:
    """The value of a constant."""
    assert value.node is not None
    return value.node.attributes.get("value")


def _foldable(node: Node) -> bool:
    if node.kind_ in _SKIPPED or not node.outputs or node.blocks or not node.inputs:
        return False
    schema = node.schema
    if (
        schema is None
        or isinstance(schema, Schema)
        and (schema.is_mutable or schema.is_vararg and node.kind_ != "aten::format")
    ):
        return False
    return all(is_constant(v) and v.type in _SIMPLE for v in node.inputs) and all(
        v.type in _SIMPLE for v in node.outputs
    )


def _run(node: Node) -> list[Any] | None:
    try:
        made = evaluate(node, [constant_of(v) for v in node.inputs])
    except Exception:  # what fails when it runs shall fail when it runs
        return None
    return [made] if len(node.outputs) == 1 else list(made)


def fold_constants(graph: Graph) -> None:
    """Compute what needs nothing but numbers and strings, and take the branch of an if whose condition is constant."""
    _fold(graph, graph.block)
    remove_dead(graph)


def _fold(graph: Graph, block: Block) -> None:
    for node in list(block.nodes):
        if node.block is None:
            continue
        if node.kind_ == "prim::If":
            for inner in node.blocks:
                _fold(graph, inner)
            if is_constant(node.inputs[0]) and isinstance(constant_of(node.inputs[0]), bool):
                inline_branch(node, node.blocks[0 if constant_of(node.inputs[0]) else 1])
            else:
                _drop_equal_outputs(node)
        elif node.kind_ == "prim::Loop":
            _fold(graph, node.blocks[0])
            if _never(node):
                for old, new in zip(node.outputs, node.inputs[2:], strict=True):
                    old.replace_all(new)
                node.destroy()
        elif node.blocks:
            for inner in node.blocks:
                _fold(graph, inner)
        elif _foldable(node):
            found = _run(node)
            if found is not None:
                _replace(graph, node, found)


def _never(node: Node) -> bool:
    count, condition = node.inputs[:2]
    return is_constant(count) and constant_of(count) <= 0 or is_constant(condition) and constant_of(condition) is False


def _replace(graph: Graph, node: Node, found: list[Any]) -> None:
    for old, value in zip(node.outputs, found, strict=True):
        made = graph.create("prim::Constant", (), (T.NONE if value is None else old.type,))
        if value is not None:
            made.attributes["value"] = value
        made.location = node.location
        made.insert_before(node)
        name = old.name
        old.replace_all(made.outputs[0])
        if name:
            graph.forget(old)
            made.outputs[0].set_name(name)
    node.destroy()


def inline_branch(node: Node, block: Block) -> None:
    """Put one block of an if in its place."""
    for each in list(block.nodes):
        block.nodes.remove(each)
        each.insert_before(node)
    for old, new in zip(node.outputs, list(block.outputs), strict=True):
        if old.type != new.type and new.type.name not in ("NoneType",) and old.type.name == "Optional":
            pass
        old.replace_all(new)
    node.destroy()


def _drop_equal_outputs(node: Node) -> None:
    """Outputs that are the same value in both blocks, from outside of them."""
    for at in reversed(range(len(node.outputs))):
        a, b = (block.outputs[at] for block in node.blocks)
        if a is b:
            node.outputs[at].replace_all(a)
            for block in node.blocks:
                block.remove_result(at)
            node.remove_output(at)


def remove_dead(graph: Graph) -> None:
    """Take out nodes without effects whose outputs nothing uses."""
    changed: set[Value] = written_values(graph.block)
    _dead(graph.block, changed)


def written_values(block: Block) -> set[Value]:
    """Whether anything changes values: those that are changed are kept with what they are made of."""
    found: set[Value] = set()
    for node in block.all_nodes():
        schema = node.schema
        if schema is not None and getattr(schema, "is_mutable", False):
            for argument, value in zip(schema.arguments, node.inputs, strict=False):
                if argument.written:
                    found.add(value)
    return found


def node_has_effect(node: Node) -> bool:
    """Whether a node does more than compute its outputs."""
    if node.kind_ in _EFFECTS:
        return True
    schema = node.schema
    if schema is not None and getattr(schema, "is_mutable", False):
        return True
    if schema is None and "::" in node.kind_ and node.kind_.split("::")[0] not in ("prim", "aten"):
        return True
    return any(node_has_effect(n) for b in node.blocks for n in b.nodes)


def _dead(block: Block, changed: set[Value]) -> None:
    for node in reversed(list(block.nodes)):
        for inner in node.blocks:
            _dead(inner, changed)
        if node.kind_ == "prim::If":
            for at in reversed(range(len(node.outputs))):
                if not node.outputs[at].uses:
                    for inner in node.blocks:
                        inner.remove_result(at)
                    node.remove_output(at)
            for inner in node.blocks:
                _dead(inner, changed)
        elif node.kind_ == "prim::Loop":
            _unused_carried(node)
            _dead(node.blocks[0], changed)
        if not any(v.uses for v in node.outputs) and not node_has_effect(node):
            if node.kind_ in ("prim::If", "prim::Loop") and node.outputs:
                pass
            node.destroy()


def _unused_carried(node: Node) -> None:
    body = node.blocks[0]
    for at in reversed(range(len(node.outputs))):
        given = body.inputs[at + 1]
        only_itself = all(user is body.returned and place == at + 1 for user, place in given.uses)
        if not node.outputs[at].uses and only_itself:
            body.remove_result(at + 1)
            body.inputs.pop(at + 1)
            body.graph.forget(given)
            node.remove_input(at + 2)
            node.remove_output(at)


def _key(node: Node) -> Any:
    value = node.attributes.get("value")
    kind = node.outputs[0].type
    if value is None:
        return ("None", str(kind))
    if isinstance(value, (bool, int, float, str, complex)):
        return (type(value), str(kind), repr(value))
    if kind == T.DEVICE:
        return ("device", str(value))
    if kind.name == "Function":
        return ("function", id(value))
    if isinstance(value, (list, tuple)) and all(isinstance(v, (bool, int, float, str)) for v in value):
        return (type(value), str(kind), repr(value))
    return None


def pool_constants(graph: Graph) -> None:
    """Keep one constant of each value, at the head of the graph."""
    seen: dict[Any, Node] = {}
    _pool(graph, graph.block, seen, [])


def _pool(graph: Graph, block: Block, seen: dict[Any, Node], last: list[Node]) -> None:
    for node in list(block.nodes):
        for inner in node.blocks:
            _pool(graph, inner, seen, last)
        if node.kind_ != "prim::Constant":
            continue
        key = _key(node)
        if key is None:
            if node.block is not graph.block:
                _hoist(graph, node, last)
            continue
        first = seen.get(key)
        if first is not None:
            old = node.outputs[0]
            name = old.name
            old.replace_all(first.outputs[0])
            node.destroy()
            if name and not first.outputs[0].name:
                first.outputs[0].set_name(name)
            continue
        seen[key] = node
        _hoist(graph, node, last)


def _hoist(graph: Graph, node: Node, last: list[Node]) -> None:
    assert node.block is not None
    node.block.nodes.remove(node)
    graph.block.nodes.insert(0, node)
    node.block = graph.block
    last.append(node)


# ***** the order of outputs *****


def order_outputs(graph: Graph) -> None:
    """Put the outputs of ifs and loops in the order in which they are used."""
    places: dict[Any, int] = {}
    _number(graph.block, places)
    for node in list(graph.block.all_nodes()):
        if node.kind_ not in ("prim::If", "prim::Loop") or len(node.outputs) < 2:
            continue
        firsts = [
            min((places.get(user, len(places)), at) for user, at in v.uses) if v.uses else (len(places) + 1, 0)
            for v in node.outputs
        ]
        order = sorted(range(len(firsts)), key=lambda i: firsts[i])
        if order != list(range(len(order))):
            _reorder(node, order)


def _number(block: Block, places: dict[Any, int]) -> None:
    for node in block.nodes:
        places[node] = len(places)
        for inner in node.blocks:
            _number(inner, places)
    places[block.returned] = len(places)


def _reorder(node: Node, order: list[int]) -> None:
    node.outputs = Items(node.outputs[i] for i in order)
    if node.kind_ == "prim::If":
        for block in node.blocks:
            block.set_results([block.outputs[i] for i in order])
        return
    body = node.blocks[0]
    body.set_results([body.outputs[0], *[body.outputs[i + 1] for i in order]])
    body.inputs = Items([body.inputs[0], *[body.inputs[i + 1] for i in order]])
    inputs = list(node.inputs)
    node.remove_inputs()
    for value in (*inputs[:2], *[inputs[i + 2] for i in order]):
        node.add_input(value)

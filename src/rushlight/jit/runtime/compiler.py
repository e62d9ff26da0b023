"""Graphs as functions of Python.

The text of such a function is made of our own names (`v3`, `k5`) and of punctuation alone: no name and no string of a
user's program or of an archive gets into it.  What nodes refer to lies in the function's globals.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rushlight._awaits import _Await
from rushlight._interface.tensors import beside
from rushlight.futures import Future
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Block, Graph, Node, Value
from rushlight.jit.ir.passes.constants import constant_of, is_constant
from rushlight.jit.runtime import objects
from rushlight.jit.runtime.operators import CONVERSIONS, TABLE, function_of, takes_all, text_of

__all__ = ["FILE", "compiled", "compiled_graph"]

FILE = "<TorchScript>"
_SAME = frozenset(("prim::unchecked_cast", "prim::Load"))


def compiled(function: Any) -> Any:
    """The function that runs a compiled function."""
    return compiled_graph(function.graph, function.qualified_name)


def compiled_graph(graph: Graph, name: str = "") -> Any:
    """A function of Python that takes the graph's inputs and gives its result (a tuple of several)."""
    writer = _Writer(graph)
    space = writer.space
    text = writer.text()
    try:
        code = compile(text, FILE, "exec")
    except (SyntaxError, RecursionError, MemoryError, OverflowError) as error:
        raise RuntimeError(f"the graph of {name or 'a function'} is nested too deeply: {error}") from None
    exec(code, space)  # noqa: S102 - text made above, of our own names alone
    made = space["run"]
    made.lines = writer.places
    made.script_name = name
    space["__script__"] = made
    return made


class _Writer:
    """Writes the text of one function."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.space: dict[str, Any] = {}
        self.lines: list[str] = []
        self.places: dict[int, Any] = {}
        self.names: dict[Value, str] = {}
        self.kept: dict[int, str] = {}

    def text(self) -> str:
        """The text."""
        for value in self.graph.block.inputs:
            self.names[value] = f"v{len(self.names)}"
        self.lines.append(f"def run({', '.join(self.names.values())}):")
        entered = any(node.kind_ == "prim::Enter" for node in self.graph.block.all_nodes())
        if entered:
            self.lines += ["    entered = []", "    try:"]
        self.block(self.graph.block, 2 if entered else 1)
        if entered:
            self.lines += [
                "        pass",
                "    except BaseException:",
                f"        {self.keep(_leave_all)}(entered)",
                "        raise",
            ]
        results = [self.use(v) for v in self.graph.block.outputs]
        shown = results[0] if len(results) == 1 else "(" + "".join(r + ", " for r in results) + ")"
        self.lines.append(f"    return {shown}")
        return "\n".join(self.lines) + "\n"

    def keep(self, held: Any) -> str:
        """A global name for something."""
        name = self.kept.get(id(held))
        if name is None:
            name = self.kept[id(held)] = f"k{len(self.space)}"
            self.space[name] = held
        return name

    def use(self, value: Value) -> str:
        """The expression for a value."""
        found = self.names.get(value)
        if found is not None:
            return found
        if is_constant(value):
            made = self.literal(constant_of(value), value.type)
            self.names[value] = made
            return made
        raise RuntimeError(f"%{value.debugName()} is used before it is defined")

    def literal(self, held: Any, kind: T.Type) -> str:
        """The expression for a constant."""
        if held is None or held is True or held is False:
            return repr(held)
        if type(held) is int:
            return repr(held) if held >= 0 else f"({held!r})"
        if kind.name == "Function" or callable(getattr(held, "run", None)):
            return self.callee(held)
        if isinstance(held, list) and kind.name == "List":
            name = self.keep(held)
            return f"{name}.copy()"
        return self.keep(held)

    def name(self, value: Value) -> str:
        """The name that a value gets."""
        made = self.names[value] = f"v{len(self.names)}"
        return made

    def line(self, depth: int, text: str, node: Node | None = None) -> None:
        """One more line."""
        self.lines.append("    " * depth + text)
        if node is not None and node.location is not None:
            self.places[len(self.lines)] = node.location

    def block(self, block: Block, depth: int) -> None:
        """The nodes of a block."""
        if depth > 90:
            raise RuntimeError("control flow is nested too deeply")
        for node in block.nodes:
            self.node(node, depth)

    def node(self, node: Node, depth: int) -> None:
        """One node."""
        kind = node.kind_
        handler = _HANDLERS.get(kind)
        if handler is not None:
            handler(self, node, depth)
        elif kind in _SAME:
            self.names[node.outputs[0]] = self.use(node.inputs[0])
        else:
            self.operator(node, depth)

    def assign(self, node: Node, depth: int, text: str) -> None:
        """Give the outputs of a node names."""
        outputs = node.outputs
        if not outputs:
            self.line(depth, text, node)
        elif len(outputs) == 1:
            self.line(depth, f"{self.name(outputs[0])} = {text}", node)
        else:
            self.line(depth, f"{', '.join(self.name(v) for v in outputs)} = {text}", node)

    def operator(self, node: Node, depth: int) -> None:
        """A call of an operator."""
        schema = node.schema
        if schema is None:
            raise NotImplementedError(f"rushlight cannot run the TorchScript operator {node.kind_}")
        arithmetic = _ARITHMETIC.get(node.kind_)
        if arithmetic is not None and all(v.type in (T.INT, T.BOOL) for v in node.inputs):
            a, b = (self.use(v) for v in node.inputs)
            self.assign(node, depth, f"{a} {arithmetic} {b}")
            return
        direct = _DIRECT.get(f"{node.kind_}.{schema.overload_name}")
        if direct is not None:
            self.assign(node, depth, direct.format(*[self.use(v) for v in node.inputs]))
            return
        function = self.keep(function_of(schema))
        self.assign(node, depth, f"{function}({', '.join(self.arguments(node, schema))})")

    def arguments(self, node: Node, schema: Any) -> list[str]:
        """The arguments of a call: defaults at the end are left out, ints become dtypes where the schema means those."""
        if takes_all(schema) or schema.is_vararg or schema.name.split("::")[0] not in ("aten", "prim"):
            return [self.use(v) for v in node.inputs]
        pairs = list(zip(schema.arguments, node.inputs, strict=True))
        placed = [(a, v) for a, v in pairs if not a.kwarg_only]
        while placed and _is_default(*placed[-1]):
            placed.pop()
        given = [self.argument(a, v) for a, v in placed]
        return given + [
            f"{a.name}={self.argument(a, v)}"
            for a, v in pairs
            if a.kwarg_only and not _is_default(a, v) and a.name.isidentifier()
        ]

    def argument(self, argument: Any, value: Value) -> str:
        """One argument."""
        convert = CONVERSIONS.get(argument.word)
        if convert is None:
            return self.use(value)
        if is_constant(value):
            return self.keep(convert(constant_of(value))) if constant_of(value) is not None else "None"
        return f"{self.keep(convert)}({self.use(value)})"

    def callee(self, function: Any) -> str:
        """A compiled function: found when it is first called."""
        name = self.kept.get(id(function))
        if name is None:
            name = self.kept[id(function)] = f"k{len(self.space)}"
            space = self.space

            def first(*args: Any) -> Any:
                run = space[name] = function.run
                return run(*args)

            space[name] = first
            self.kept[id(first)] = name
        return name


def _is_default(argument: Any, value: Value) -> bool:
    if not argument.has_default_value():
        return False
    if is_constant(value):
        held = constant_of(value)
        return type(held) is type(argument.default) and held == argument.default
    node = value.node
    if node is not None and node.kind_ == "prim::ListConstruct" and isinstance(argument.default, list):
        if all(is_constant(v) for v in node.inputs):
            return [constant_of(v) for v in node.inputs] == argument.default
    return False


_ARITHMETIC = {
    "aten::add": "+", "aten::sub": "-", "aten::mul": "*", "aten::lt": "<", "aten::gt": ">", "aten::le": "<=", "aten::ge": ">=", "aten::eq": "==",
    "aten::ne": "!=", "aten::__and__": "&", "aten::__or__": "|",
}  # fmt: skip
_DIRECT = {
    "aten::__is__.": "{0} is {1}", "aten::__isnot__.": "{0} is not {1}", "aten::__not__.": "not {0}", "aten::len.t": "len({0})", "aten::size.int": "{0}.size({1})",
    "aten::dim.": "{0}.dim()", "aten::size.": "list({0}.shape)", "aten::neg.int": "-{0}", "aten::neg.float": "-{0}", "aten::Bool.Tensor": "bool({0})",
    "aten::add.float": "{0} + {1}", "aten::mul.float": "{0} * {1}", "aten::sub.float": "{0} - {1}", "aten::lt.float": "{0} < {1}",
    "aten::gt.float": "{0} > {1}", "aten::lt.float_int": "{0} < {1}", "aten::gt.float_int": "{0} > {1}",
}  # fmt: skip
_DIRECT.update({"aten::dim.default": "{0}.dim()"})


def _constant(w: _Writer, node: Node, depth: int) -> None:
    w.use(node.outputs[0])


def _if(w: _Writer, node: Node, depth: int) -> None:
    w.line(depth, f"if {w.use(node.inputs[0])}:", node)
    names = ["v" + str(len(w.names) + i) for i in range(len(node.outputs))]
    for value, name in zip(node.outputs, names, strict=True):
        w.names[value] = name
    for at, block in enumerate(node.blocks):
        if at:
            if not block.nodes and not block.outputs:
                continue
            w.line(depth, "else:")
        start = len(w.lines)
        w.block(block, depth + 1)
        _assign_all(w, names, [w.use(v) for v in block.outputs], depth + 1)
        if len(w.lines) == start:
            w.line(depth + 1, "pass")


def _assign_all(w: _Writer, names: list[str], values: list[str], depth: int) -> None:
    pairs = [(n, v) for n, v in zip(names, values, strict=True) if n != v]
    if pairs:
        w.line(depth, f"{', '.join(n for n, _ in pairs)} = {', '.join(v for _, v in pairs)}")


def _loop(w: _Writer, node: Node, depth: int) -> None:
    body = node.blocks[0]
    carried = []
    for value in body.inputs[1:]:
        carried.append(w.name(value))
    _assign_all(w, carried, [w.use(v) for v in node.inputs[2:]], depth)
    index = w.name(body.inputs[0])
    count, start = w.use(node.inputs[0]), w.use(node.inputs[1])
    steps = count if start == "True" else f"({count} if {start} else 0)"
    w.line(depth, f"for {index} in range({steps}):", node)
    before = len(w.lines)
    w.block(body, depth + 1)
    again = w.use(body.outputs[0])
    _assign_all(w, carried, [w.use(v) for v in body.outputs[1:]], depth + 1)
    if again != "True":
        w.line(depth + 1, f"if not {again}: break")
    if len(w.lines) == before:
        w.line(depth + 1, "pass")
    for value, name in zip(node.outputs, carried, strict=True):
        made = w.name(value)
        w.line(depth, f"{made} = {name}")


def _sequence(opening: str, closing: str) -> Any:
    def write(w: _Writer, node: Node, depth: int) -> None:
        kind = node.outputs[0].type
        values = [w.use(v) for v in node.inputs]
        if isinstance(kind, T.NamedTupleType):
            w.assign(node, depth, f"{w.keep(objects.tuple_class(kind))}({', '.join(values)})")
        else:
            trailing = "," if opening == "(" and len(values) == 1 else ""
            w.assign(node, depth, f"{opening}{', '.join(values)}{trailing}{closing}")

    return write


def _dict(w: _Writer, node: Node, depth: int) -> None:
    values = [w.use(v) for v in node.inputs]
    pairs = ", ".join(f"{k}: {v}" for k, v in zip(values[::2], values[1::2], strict=True))
    w.assign(node, depth, f"{{{pairs}}}")


def _unpack(w: _Writer, node: Node, depth: int) -> None:
    source = w.use(node.inputs[0])
    if not node.outputs:
        return
    names = "".join(w.name(v) + ", " for v in node.outputs)
    if node.kind_ == "prim::ListUnpack":
        source = f"{w.keep(_checked)}({source}, {len(node.outputs)})"
    w.line(depth, f"{names.rstrip()} = {source}", node)


def _checked(items: Any, count: int) -> Any:
    if len(items) != count:
        raise RuntimeError(f"Expected {count} elements in a list but found {len(items)}")
    return items


def _tuple_index(w: _Writer, node: Node, depth: int) -> None:
    w.assign(node, depth, f"{w.use(node.inputs[0])}[{w.use(node.inputs[1])}]")


def _tuple_slice(w: _Writer, node: Node, depth: int) -> None:
    a = node.attributes
    w.assign(node, depth, f"{w.use(node.inputs[0])}[{int(a['beg'])}:{int(a['end'])}]")


def _get_attribute(w: _Writer, node: Node, depth: int) -> None:
    w.assign(node, depth, _place(w, node))


def _place(w: _Writer, node: Node) -> str:
    owner, name = w.use(node.inputs[0]), node.attributes["name"]
    kind: Any = node.inputs[0].type
    key = w.keep(name)
    if kind.python is not None and not kind.python.__dictoffset__:  # it has slots
        return f"{owner}.{name}"
    if not getattr(kind, "is_module", False):
        return f"{owner}.__dict__[{key}]"
    if name in kind.parameters:
        return f"{owner}._parameters[{key}]"
    if name in kind.buffers:
        return f"{owner}._buffers[{key}]"
    held = kind.attributes[name]
    if getattr(held, "is_module", False):
        return f"{owner}._modules[{key}]"
    return f"{owner}.__dict__[{key}]"


def _set_attribute(w: _Writer, node: Node, depth: int) -> None:
    w.line(depth, f"{_place(w, node)} = {w.use(node.inputs[1])}", node)


def _call_function(w: _Writer, node: Node, depth: int) -> None:
    args = ", ".join(w.use(v) for v in node.inputs[1:])
    function = node.inputs[0]
    name = w.callee(constant_of(function)) if is_constant(function) else w.use(function)
    w.assign(node, depth, f"{name}({args})")


def _call_method(w: _Writer, node: Node, depth: int) -> None:
    kind: Any = node.inputs[0].type
    args = [w.use(v) for v in node.inputs]
    if isinstance(kind, T.InterfaceType):
        w.assign(node, depth, f"{w.keep(_interface_call)}({w.keep(node.attributes['name'])}, {', '.join(args)})")
        return
    method = kind.find_method(node.attributes["name"])
    w.assign(node, depth, f"{w.callee(method)}({', '.join(args)})")


def _interface_call(name: str, owner: Any, *args: Any) -> Any:
    kind = objects.type_of_object(owner)
    if kind is None:
        return getattr(owner, name)(*args)
    return kind.find_method(name).run(owner, *args)


def _enum_part(w: _Writer, node: Node, depth: int) -> None:
    w.assign(node, depth, f"{w.use(node.inputs[0])}.{'name' if node.kind_ == 'prim::EnumName' else 'value'}")


def _create(w: _Writer, node: Node, depth: int) -> None:
    w.assign(node, depth, f"{w.keep(objects.new_object)}({w.keep(node.outputs[0].type)})")


def _uninitialized(w: _Writer, node: Node, depth: int) -> None:
    w.names[node.outputs[0]] = "None"


def _print(w: _Writer, node: Node, depth: int) -> None:
    w.line(depth, f"{w.keep(_printed)}({', '.join(w.use(v) for v in node.inputs)})", node)


def _printed(*values: Any) -> None:
    print(*map(text_of, values))


def _isinstance(w: _Writer, node: Node, depth: int) -> None:
    w.assign(node, depth, f"{w.keep(objects.is_instance)}({w.use(node.inputs[0])}, {w.keep(node.attributes['types'])})")


def _fork(w: _Writer, node: Node, depth: int) -> None:
    """A task in a thread of its own, or (`prim::awaitable`) one that is done when it is asked for, with the values that
    names have now: a loop may give them others meanwhile.
    """
    future = w.name(node.outputs[0])
    outer, head = set(w.names.values()), len(w.lines)
    w.line(depth, "")
    w.block(node.blocks[0], depth + 1)
    w.line(depth + 1, f"return {w.use(node.blocks[0].outputs[0])}")
    used = sorted(outer.intersection(re.findall(r"\bv\d+\b", "\n".join(w.lines[head:]))))
    w.lines[head] = "    " * depth + f"def {future}_task({', '.join(f'{name}={name}' for name in used)}):"
    made = _started if node.kind_ == "prim::fork" else _Await
    w.line(depth, f"{future} = {w.keep(made)}({future}_task)", node)


def _started(task: Callable[[], Any]) -> Any:
    """The future of a task; an error waits in it."""
    future: Any = Future()

    def run() -> None:
        try:
            future.set_result(task())
        except Exception as error:
            future.set_exception(error)

    beside(run)
    return future


def _python(w: _Writer, node: Node, depth: int) -> None:
    w.assign(node, depth, f"{w.keep(node.attributes['function'])}({', '.join(w.use(v) for v in node.inputs)})")


def _enter(w: _Writer, node: Node, depth: int) -> None:
    w.assign(node, depth, f"{w.keep(_entered)}(entered, {w.use(node.inputs[0])})")


def _entered(entered: list[Any], held: Any) -> Any:
    result = _interface_call("__enter__", held)
    entered.append(held)
    return result


def _leave_all(entered: list[Any]) -> None:
    """Leave what an error left entered."""
    while entered:
        _left(entered, entered[-1])


def _exit(w: _Writer, node: Node, depth: int) -> None:
    w.assign(node, depth, f"{w.keep(_left)}(entered, {w.use(node.inputs[0])})")


def _left(entered: list[Any], held: Any) -> Any:
    entered.pop()
    return _interface_call("__exit__", held, None, None, None)


def _raise(w: _Writer, node: Node, depth: int) -> None:
    w.line(depth, f"{w.keep(TABLE[node.kind_])}({', '.join(w.use(v) for v in node.inputs)})", node)


def _tolist(w: _Writer, node: Node, depth: int) -> None:
    w.assign(node, depth, f"{w.use(node.inputs[0])}.tolist()")


_HANDLERS: dict[str, Any] = {
    "prim::tolist": _tolist,
    "prim::RaiseException": _raise,
    "prim::Constant": _constant, "prim::If": _if, "prim::Loop": _loop, "prim::ListConstruct": _sequence("[", "]"), "prim::TupleConstruct": _sequence("(", ")"),
    "prim::DictConstruct": _dict, "prim::TupleUnpack": _unpack, "prim::ListUnpack": _unpack, "prim::TupleIndex": _tuple_index,
    "prim::TupleSlice": _tuple_slice, "prim::GetAttr": _get_attribute, "prim::SetAttr": _set_attribute, "prim::CallFunction": _call_function,
    "prim::CallMethod": _call_method, "prim::CreateObject": _create, "prim::Uninitialized": _uninitialized, "prim::Print": _print,
    "prim::isinstance": _isinstance, "prim::fork": _fork, "prim::awaitable": _fork, "prim::PythonOp": _python, "prim::EnumName": _enum_part, "prim::EnumValue": _enum_part, "prim::Enter": _enter, "prim::Exit": _exit,
}  # fmt: skip

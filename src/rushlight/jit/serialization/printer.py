"""Graphs as code: the typed subset of Python that archives hold, written as PyTorch writes it."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Block, Graph, Node, Value, float_text, string_text
from rushlight.jit.ir.passes.constants import constant_of, is_constant
from rushlight.jit.ir.schemas import NO_DEFAULT, variants
from rushlight.jit.ir.types import Type

__all__ = ["Code", "class_code", "function_code"]

_RESERVED = frozenset((
    *keyword.kwlist, "_", "torch", "ops", "CONSTANTS", "__torch__", "annotate", "unchecked_cast", "uninitialized", "fork", "getattr", "setattr", "isinstance",
    "int", "float", "bool", "str", "range", "print", "inf", "nan", "tuple", "list", "dict", "min", "max", "abs", "all", "divmod", "len", "device", "complex",
    "as", "not", "Tensor", "List", "Dict", "Optional", "Tuple", "self",
)) - {"self"}  # fmt: skip
_LONG = 40


class Code:
    """References of a text: constants, and the classes and functions that must be written too."""

    def __init__(self) -> None:
        self.constants: list[Any] = []
        self.needed: dict[str, Any] = {}
        self.used: set[str] = set()
        self.next: dict[str, int] = {}

    def constant(self, value: Any) -> str:
        """The name of a tensor that is a constant."""
        for at, held in enumerate(self.constants):
            if held is value:
                return f"CONSTANTS.c{at}"
        self.constants.append(value)
        return f"CONSTANTS.c{len(self.constants) - 1}"

    def type(self, kind: Type) -> str:
        """A type as code writes it; its classes are noted."""
        for inner in kind.inner:
            self.type(inner)
        if isinstance(kind, (T.ClassType, T.InterfaceType, T.EnumType, T.NamedTupleType)) and kind.name:
            self.needed.setdefault(kind.name, kind)
        return kind.annotation

    def unique(self, base: str) -> str:
        """A name that nothing else has."""
        base = re.sub(r"\W", "_", base)
        if base[:1].isdigit():
            base = f"_{base}"
        name = base
        while name in self.used or name in _RESERVED:
            at = self.next.get(base, 0)
            self.next[base] = at + 1
            name = f"{base}{at}"
        self.used.add(name)
        return name


class _Printer:
    """Writes one function."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.lines: list[str] = []
        self.level = 0
        self.text: dict[Value, str] = {}
        self.inline: set[Node] = set()

    # ***** which values become parts of other expressions *****

    def scan(self, block: Block) -> None:
        """Find the nodes that are written inside the expressions that use them."""
        nodes = [n for n in block.nodes if not _constant_like(n)]
        places = {n: i for i, n in enumerate(nodes)}
        self._scan_inputs(block.outputs, len(nodes) - 1, nodes, places)
        for at in reversed(range(len(nodes))):
            node = nodes[at]
            if node in self.inline:
                continue
            for inner in node.blocks:
                self.scan(inner)
            self._scan_inputs(node.inputs, at - 1, nodes, places)

    def _scan_inputs(self, values: Sequence[Value], point: int, nodes: list[Node], places: dict[Node, int]) -> int:
        for value in reversed(values):
            node = value.node
            if node is None or point < 0 or places.get(node) != point or not self._can_inline(value, node):
                continue
            self.inline.add(node)
            point = self._scan_inputs(node.inputs, point - 1, nodes, places)
        return point

    def _can_inline(self, value: Value, node: Node) -> bool:
        if len(node.outputs) != 1 or len(value.uses) != 1 or node.blocks or node.kind_ in _STATEMENTS:
            return False
        user, at = value.uses[0]
        returned = not isinstance(user, Node)
        if value.name and not (returned and (user.block.owner is None or user.block.owner.kind_ != "prim::Loop")):
            return False
        if returned:
            return True
        if (
            user.kind_ in ("prim::fork", "prim::awaitable", "prim::Enter", "prim::Exit")
            or user.kind_ == "prim::Loop"
            and at >= 2
        ):
            return False
        return True

    # ***** names *****

    def use(self, value: Value) -> str:
        """The text that stands for a value."""
        found = self.text.get(value)
        if found is not None:
            return found
        if is_constant(value):
            return self._constant_text(constant_of(value), value.type)
        raise RuntimeError(f"%{value.debugName()} is used before it is written")

    def name(self, value: Value) -> str:
        """A name for a value."""
        base = value.name
        if base:
            head, _, number = base.rpartition(".")
            base = head if head and number.isdigit() else base
        made = self.text[value] = self.code.unique(base or "_")
        return made

    def line(self, text: str) -> None:
        """One more line."""
        self.lines.append("  " * self.level + text)

    # ***** blocks *****

    def block(self, block: Block) -> None:
        """The nodes of a block."""
        for node in block.nodes:
            if node not in self.inline:
                self.statement(node)

    def statement(self, node: Node) -> None:
        """One node as a statement, or as the text of its value."""
        kind = node.kind_
        if kind == "prim::Constant":
            self._constant(node)
            return
        self._split_long(node)
        handler = _STATEMENTS.get(kind)
        if handler is not None:
            handler(self, node)
            return
        text = self.expression(node)
        if not node.outputs:
            self.line(text)
        elif len(node.outputs) == 1:
            self.line(f"{self.name(node.outputs[0])} = {text}")
        else:
            self.line(f"{', '.join(self.name(v) for v in node.outputs)} = {text}")

    def _split_long(self, node: Node) -> None:
        """Write values that would make a line too long before it."""
        last = 0
        for at, value in enumerate(node.inputs):
            if value.node in self.inline and self._is_long(self._inline_text(value)):
                last = at + 1
        for value in node.inputs[:last]:
            if value.node in self.inline and value.node is not None and not _constant_like(value.node):
                self._define(value)

    def _is_long(self, text: str) -> bool:
        return len(text) + self.level * 2 >= _LONG

    def _inline_text(self, value: Value) -> str:
        found = self.text.get(value)
        if found is None:
            assert value.node is not None
            found = self._nested(value.node)
            self.text[value] = found
        return found

    def _nested(self, node: Node) -> str:
        self._split_long(node)
        for value in node.inputs:
            if value.node in self.inline and value not in self.text:
                self._inline_text(value)
        return self.expression(node)

    def _define(self, value: Value) -> None:
        text = self.text.pop(value, None)
        if text is None:
            assert value.node is not None
            text = self._nested(value.node)
        self.line(f"{self.name(value)} = {text}")

    def _constant(self, node: Node) -> None:
        value = node.outputs[0]
        if not value.uses:
            return
        held = constant_of(value)
        if value.type.name == "Function":
            if node not in self.inline:
                self.code.needed.setdefault(held.qualified_name, held)
                user = value.uses[0][0]
                if len(value.uses) == 1 and isinstance(user, Node) and self._follows(node, user):
                    self.text[value] = held.qualified_name
                else:
                    name = self.text[value] = self.code.unique("_")
                    self.line(f"{name} = {held.qualified_name}")
            return
        text = self._constant_text(held, value.type)
        if self._is_long(text) and isinstance(held, str):
            name = self.code.unique("_")
            self.line(f"{name} = {text}")
            text = name
        self.text[value] = text

    def _follows(self, node: Node, user: Node) -> bool:
        block = node.block
        if block is None or user.block is not block:
            return False
        between = block.nodes[block.nodes.index(node) + 1 : block.nodes.index(user)]
        return all(_constant_like(n) for n in between)

    def _constant_text(self, held: Any, kind: Type) -> str:
        if held is None:
            return "None"
        if type(held) is float:
            return _float(held)
        if isinstance(held, (bool, int)):
            return str(held)
        if isinstance(held, str):
            return string_text(held)
        if isinstance(held, complex):
            return f"complex({_float(held.real)}, {_float(held.imag)})"
        if kind == T.DEVICE:
            return f'torch.device("{held}")'
        if isinstance(kind, T.EnumType):
            return f"{self.code.type(kind)}.{held.name}"
        if isinstance(held, tuple):
            inner = [self._constant_text(v, t) for v, t in zip(held, kind.inner or [T.ANY] * len(held), strict=True)]
            return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
        if isinstance(held, list) and kind.name == "List" and kind.inner[0] != T.TENSOR:
            inner = [self._constant_text(v, kind.inner[0]) for v in held]
            return f"[{', '.join(inner)}]" if held else f"annotate({self.code.type(kind)}, [])"
        if kind.name == "Function":
            self.code.needed.setdefault(held.qualified_name, held)
            return str(held.qualified_name)
        return self.code.constant(held)

    # ***** expressions *****

    def expression(self, node: Node) -> str:
        """The text of a node's value."""
        kind = node.kind_
        for value in node.inputs:
            if value.node in self.inline and value not in self.text:
                self._inline_text(value)
        handler = _EXPRESSIONS.get(kind)
        if handler is not None:
            return str(handler(self, node))
        space, _, name = kind.partition("::")
        head = f"torch.{name}" if space == "aten" else f"ops.{space}.{name}"
        return f"{head}({', '.join(self.arguments(node))})"

    def arguments(self, node: Node) -> list[str]:
        """The arguments of a call: those that are defaults at its end are left out."""
        schema = node.schema
        values = [self.use(v) for v in node.inputs]
        if schema is None or schema.is_vararg:
            return values
        count = len(values)
        while (
            count
            and count <= len(schema.arguments)
            and _is_default(schema.arguments[count - 1], node.inputs[count - 1])
        ):
            count -= 1
        shown = []
        for argument, text in zip(schema.arguments[:count], values[:count], strict=False):
            shown.append(f"{argument.name}={text}" if argument.kwarg_only else text)
        return shown


def _constant_like(node: Node) -> bool:
    return node.kind_ == "prim::Constant"


def _is_default(argument: Any, value: Value) -> bool:
    if argument.default is NO_DEFAULT:
        return False
    if is_constant(value):
        held = constant_of(value)
        return type(held) is type(argument.default) and held == argument.default
    node = value.node
    if node is not None and node.kind_ == "prim::ListConstruct" and isinstance(argument.default, list):
        return all(is_constant(v) for v in node.inputs) and [constant_of(v) for v in node.inputs] == argument.default
    return False


def _float(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return float_text(value)
    if value == int(value) and abs(value) < 1e10:
        return ("-" if str(value).startswith("-0") else "") + f"{int(value)}."
    text = f"{value:.17g}"
    return text if any(c in text for c in ".e") else text + "."


def _field(owner: str, name: str, call: str = "getattr", value: str = "") -> str:
    if name.isidentifier() and not keyword.iskeyword(name):
        return f"{owner}.{name}"
    return f"getattr({owner}, {string_text(name)})"


def _get_attribute(p: _Printer, node: Node) -> str:
    return _field(p.use(node.inputs[0]), node.attributes["name"])


def _call_method(p: _Printer, node: Node) -> str:
    kind = node.inputs[0].type
    p.code.type(kind)
    args = "".join(p.use(v) + ", " for v in node.inputs[1:])
    return f"({p.use(node.inputs[0])}).{node.attributes['name']}({args})"


def _call_function(p: _Printer, node: Node) -> str:
    args = "".join(p.use(v) + ", " for v in node.inputs[1:])
    return f"{p.use(node.inputs[0])}({args})"


def _list(p: _Printer, node: Node) -> str:
    kind = node.outputs[0].type
    text = f"[{', '.join(p.use(v) for v in node.inputs)}]"
    same = node.inputs and all(v.type == kind.inner[0] for v in node.inputs)
    return text if same else f"annotate({p.code.type(kind)}, {text})"


def _tuple(p: _Printer, node: Node) -> str:
    kind = node.outputs[0].type
    values = [p.use(v) for v in node.inputs]
    if isinstance(kind, T.NamedTupleType) and kind.name:
        return f"{p.code.type(kind)}({', '.join(values)})"
    return f"({', '.join(values)}{',' if len(values) == 1 else ''})" if values else "()"


def _dict(p: _Printer, node: Node) -> str:
    values = [p.use(v) for v in node.inputs]
    pairs = ", ".join(f"{k}: {v}" for k, v in zip(values[::2], values[1::2], strict=True))
    return f"annotate({p.code.type(node.outputs[0].type)}, {{{pairs}}})" if not pairs else f"{{{pairs}}}"


def _cast(name: str) -> Any:
    return lambda p, node: f"{name}({p.use(node.inputs[0])})"


def _implicit(name: str) -> Any:
    return lambda p, node: f"annotate({name}, {p.use(node.inputs[0])})"


def _item(p: _Printer, node: Node) -> str:
    if node.inputs[0].type == T.TENSOR:
        return f"torch.__getitem__({', '.join(p.use(v) for v in node.inputs)})"
    return f"{p.use(node.inputs[0])}[{p.use(node.inputs[1])}]"


def _tuple_index(p: _Printer, node: Node) -> str:
    return f"({p.use(node.inputs[0])})[{p.use(node.inputs[1])}]"


def _isinstance(p: _Printer, node: Node) -> str:
    kinds = [p.code.type(t) for t in node.attributes["types"]]
    shown = [{"AnyListType": "list", "AnyTupleType": "tuple"}.get(k, k) for k in kinds]
    return f"isinstance({p.use(node.inputs[0])}, {shown[0] if len(shown) == 1 else '(' + ', '.join(shown) + ')'})"


def _create(p: _Printer, node: Node) -> str:
    name = p.code.type(node.outputs[0].type)
    return f"{name}.__new__({name})"


def _python_operator(p: _Printer, node: Node) -> str:
    name = node.attributes.get("name", "")
    return f"^{name}({', '.join(p.use(v) for v in node.inputs)})"


def _to_bool(p: _Printer, node: Node) -> str:
    return f"bool({p.use(node.inputs[0])})"


_EXPRESSIONS: dict[str, Any] = {
    "prim::GetAttr": _get_attribute, "prim::CallMethod": _call_method, "prim::CallFunction": _call_function, "prim::ListConstruct": _list,
    "prim::TupleConstruct": _tuple, "prim::DictConstruct": _dict, "aten::Int": _cast("int"), "aten::Float": _cast("float"), "aten::Bool": _cast("bool"),
    "aten::IntImplicit": _implicit("int"), "aten::FloatImplicit": _implicit("float"), "aten::ScalarImplicit": _implicit("number"),
    "aten::ComplexImplicit": _implicit("complex"), "aten::__getitem__": _item, "prim::TupleIndex": _tuple_index, "prim::isinstance": _isinstance,
    "prim::CreateObject": _create,
    "prim::tolist": lambda p, n: f"annotate({p.code.type(n.outputs[0].type)}, ({p.use(n.inputs[0])}).tolist())",
    "prim::PythonOp": _python_operator,
    "prim::unchecked_cast": lambda p, n: f"unchecked_cast({p.code.type(n.outputs[0].type)}, {p.use(n.inputs[0])})",
    "prim::Uninitialized": lambda p, n: f"uninitialized({p.code.type(n.outputs[0].type)})",
    "prim::Print": lambda p, n: f"print({', '.join(p.use(v) for v in n.inputs)})",
    "prim::EnumName": lambda p, n: f"{p.use(n.inputs[0])}.name", "prim::EnumValue": lambda p, n: f"{p.use(n.inputs[0])}.value",
}  # fmt: skip


def _if(p: _Printer, node: Node) -> None:
    condition = p.use(node.inputs[0]) if node.inputs[0].node not in p.inline else p._inline_text(node.inputs[0])
    names = [p.name(v) for v in node.outputs]
    p.line(f"if {condition}:")
    for at, block in enumerate(node.blocks):
        if at:
            p.line("else:")
        p.level += 1
        before = len(p.lines)
        p.block(block)
        _results(p, names, block.outputs)
        if len(p.lines) == before:
            p.line("pass")
        p.level -= 1


def _results(p: _Printer, names: Sequence[str], values: Sequence[Value]) -> None:
    if not names:
        return
    texts = []
    for value in values:
        if value.node in p.inline and value not in p.text and value.node is not None and not _constant_like(value.node):
            p._inline_text(value)
    for value in values:
        texts.append(p.use(value))
    p.line(f"{', '.join(names)} = {', '.join(texts)}")


def _loop(p: _Printer, node: Node) -> None:
    body = node.blocks[0]
    names = [p.name(v) for v in node.outputs]
    again = body.outputs[0]
    counted = (
        is_constant(again)
        and constant_of(again) is True
        and is_constant(node.inputs[1])
        and constant_of(node.inputs[1]) is True
    )
    for value in node.inputs[2:]:
        if value.node in p.inline and value not in p.text:
            p._inline_text(value)
    for given, name in zip(body.inputs[1:], names, strict=True):
        p.text[given] = name
    for name, value in zip(names, node.inputs[2:], strict=True):
        p.line(f"{name} = {p.use(value)}")
    if counted:
        index = p.name(body.inputs[0])
        p.line(f"for {index} in range({p.use(node.inputs[0])}):")
        p.level += 1
        before = len(p.lines)
        p.block(body)
        _results(p, names, body.outputs[1:])
        if len(p.lines) == before:
            p.line("pass")
        p.level -= 1
        return
    condition = p.code.unique("_")
    p.line(f"{condition} = {p.use(node.inputs[1])}")
    p.line(f"while {condition}:")
    p.level += 1
    p.block(body)
    _results(p, [condition, *names], [again, *body.outputs[1:]])
    p.level -= 1


def _unpack(p: _Printer, node: Node) -> None:
    names = "".join(f"{p.name(v)}, " for v in node.outputs).rstrip()
    source = p.use(node.inputs[0]) if node.inputs[0].node not in p.inline else p._inline_text(node.inputs[0])
    if node.outputs:
        p.line(f"{names} = {source}")


def _enter(p: _Printer, node: Node) -> None:
    named = f" as {p.name(node.outputs[0])}" if node.outputs[0].uses else ""
    p.line(f"with {p.use(node.inputs[0])}{named}:")
    p.level += 1


def _exit(p: _Printer, node: Node) -> None:
    if p.lines[-1].lstrip().startswith("with "):
        p.line("pass")
    p.level -= 1


def _set_attribute(p: _Printer, node: Node) -> None:
    owner, name = p.use(node.inputs[0]), node.attributes["name"]
    value = p.use(node.inputs[1]) if node.inputs[1].node not in p.inline else p._inline_text(node.inputs[1])
    p.line(
        f"{_field(owner, name)} = {value}" if name.isidentifier() else f"setattr({owner}, {string_text(name)}, {value})"
    )


def _fork(p: _Printer, node: Node) -> None:
    name = "fork" if node.kind_ == "prim::fork" else "_awaitable"
    raise RuntimeError(f"rushlight cannot write tasks of torch.jit.{name} into archives")


_STATEMENTS: dict[str, Any] = {
    "prim::If": _if, "prim::Loop": _loop, "prim::TupleUnpack": _unpack, "prim::ListUnpack": _unpack, "prim::SetAttr": _set_attribute, "prim::fork": _fork, "prim::awaitable": _fork,
    "prim::Enter": _enter, "prim::Exit": _exit,
}  # fmt: skip


# ***** loops that Python can write *****


def countless_loops(graph: Graph) -> None:
    """Loops that have both a count and a condition become loops with a condition: the counter is carried."""
    _countless(graph, graph.block)


def _countless(graph: Graph, block: Block) -> None:
    for node in list(block.nodes):
        for inner in node.blocks:
            _countless(graph, inner)
        if node.kind_ != "prim::Loop":
            continue
        body = node.blocks[0]
        start, again = node.inputs[1], body.outputs[0]
        always = all(is_constant(v) and constant_of(v) is True for v in (start, again))
        endless = is_constant(node.inputs[0]) and constant_of(node.inputs[0]) == 2**63 - 1
        index = body.inputs[0]
        if always and not endless or endless and not index.uses:
            continue

        def op(name: str, overload: str, inputs: list[Value], kind: Type, before: Node | None, into: Block) -> Value:
            made = graph.create(f"aten::{name}", inputs, (kind,))
            made.schema = next(s for s in variants(f"aten::{name}") if s.overload_name == overload)
            if before is not None:
                made.insert_before(before)
            else:
                into.append(made)
            return made.outputs[0]

        def number(value: Any, kind: Type) -> Value:
            made = graph.create("prim::Constant", (), (kind,))
            made.attributes["value"] = value
            made.insert_before(node)  # noqa: B023  # used at once
            return made.outputs[0]

        zero, one = number(0, T.INT), number(1, T.INT)
        count = node.inputs[0]
        first = op("gt", "int", [count, zero], T.BOOL, node, block)
        if not (is_constant(start) and constant_of(start) is True):
            first = op("__and__", "bool", [first, start], T.BOOL, node, block)
        node.set_input(1, first)
        node.set_input(0, number(2**63 - 1, T.INT))
        node.add_input(zero)
        counter = body.add_input(T.INT)
        index.replace_all(counter)
        following = op("add", "int", [counter, one], T.INT, None, body)
        condition = op("lt", "int", [following, count], T.BOOL, None, body)
        if not (is_constant(again) and constant_of(again) is True):
            condition = op("__and__", "bool", [condition, again], T.BOOL, None, body)
        body.set_results([condition, *body.outputs[1:], following])
        node.add_output(T.INT)


# ***** functions and classes *****


def _printable(graph: Graph) -> Graph:
    made = graph.copy()
    countless_loops(made)
    return made


def print_function(function: Any, code: Code, level: int = 0, owner: str = "") -> list[str]:
    """The lines of a function."""
    graph = _printable(function.graph)
    printer = _Printer(code)
    printer.level = level
    schema = function.schema
    arguments = []
    for at, (argument, value) in enumerate(zip(schema.arguments, graph.block.inputs, strict=True)):
        shown = argument.name if argument.name.isidentifier() and argument.name not in keyword.kwlist else f"_{at}"
        printer.text[value] = shown
        code.used.add(shown)
        if owner and at == 0:
            arguments.append(shown if owner == "-" else f"{shown}: {owner}")
            continue
        text = f"{shown}: {code.type(argument.type)}"
        if argument.default is not NO_DEFAULT:
            text += f"={_default_text(printer, argument)}"
        arguments.append(text)
    returns = code.type(schema.returns[0].type)
    joined = (",\n" + "  " * (level + 2)).join(arguments)
    printer.line(f"def {function.name}({joined}) -> {returns}:")
    printer.level += 1
    printer.scan(graph.block)
    printer.block(graph.block)
    result = graph.block.outputs
    if len(result) == 1:
        value = result[0]
        text = printer._inline_text(value) if value.node in printer.inline else printer.use(value)
        if (
            printer._is_long(text)
            and value.node is not None
            and value.node in printer.inline
            and not _short_form(value.node)
        ):
            name = code.unique("_")
            printer.line(f"{name} = {text}")
            text = name
        printer.line(f"return {text}")
    return printer.lines


def _short_form(node: Node) -> bool:
    return node.kind_ == "prim::TupleConstruct" and len(node.inputs) == 0


def _default_text(printer: _Printer, argument: Any) -> str:
    held = argument.default
    if isinstance(held, list):
        inner = argument.type.inner[0]
        return f"[{', '.join(printer._constant_text(v, inner) for v in held)}]"
    return printer._constant_text(held, argument.type)


def function_code(function: Any) -> tuple[str, list[Any]]:
    """The code of one function, and the constants that it refers to."""
    code = Code()
    lines = print_function(function, code, owner="-" if function.schema.arguments[:1] and _is_self(function) else "")
    return "\n".join(lines) + "\n", code.constants


def _is_self(function: Any) -> bool:
    first = function.schema.arguments[0].type
    return isinstance(first, T.ClassType) and (first.is_module or function.owner is first)


def class_code(kind: Any, code: Code) -> list[str]:
    """The lines of a class."""
    short = kind.name.rpartition(".")[2]
    if isinstance(kind, T.NamedTupleType):
        return [f"class {short}(NamedTuple):", *_fields(kind, code)]
    if isinstance(kind, T.EnumType):
        printer = _Printer(code)
        return [
            f"class {short}(Enum):",
            *(
                f"  {n} = {printer._constant_text(getattr(v, 'value', v), kind.value_type)}"
                for n, v in kind.values.items()
            ),
        ]
    if isinstance(kind, T.InterfaceType):
        return [f"class {short}({'ModuleInterface' if kind.is_module else 'Interface'}):", *_interface(kind, code)]
    return [f"class {short}{'(Module)' if kind.is_module else ''}:", *_members(kind, code)]


def _fields(kind: T.NamedTupleType, code: Code) -> Iterator[str]:
    first = len(kind.fields) - len(kind.defaults)
    printer = _Printer(code)
    for at, (name, held) in enumerate(zip(kind.fields, kind.inner, strict=True)):
        default = f" = {printer._constant_text(kind.defaults[at - first], held)}" if at >= first else ""
        yield f"  {name} : {code.type(held)}{default}"


def _interface(kind: T.InterfaceType, code: Code) -> Iterator[str]:
    for name, method in kind.methods.items():
        args = [f"{a.name}: {code.type(a.type)}" for a in method.schema.arguments[1:]]
        yield f"  def {name}({', '.join(['self', *args])}) -> {code.type(method.schema.returns[0].type)}:"
        yield "    pass"


def _quoted(names: Any) -> str:
    return "[" + "".join(f"{string_text(n)}, " for n in names) + "]"


def _members(kind: T.ClassType, code: Code) -> list[str]:
    lines = []
    if kind.is_module:
        lines.append(f"  __parameters__ = {_quoted(n for n in kind.attributes if n in kind.parameters)}")
        lines.append(f"  __buffers__ = {_quoted(n for n in kind.attributes if n in kind.buffers)}")
        if kind.pre_hooks:
            lines.append(f"  __forward_pre_hooks__ = {_quoted(kind.pre_hooks)}")
        if kind.forward_hooks:
            lines.append(f"  __forward_hooks__ = {_quoted(kind.forward_hooks)}")
    for name, held in kind.attributes.items():
        if name.isidentifier() and not keyword.iskeyword(name):
            lines.append(f"  {name} : {code.type(held)}")
        else:
            lines.append(f"  __annotations__[{string_text(name)}] = {code.type(held)}")
    printer = _Printer(code)
    for name, (held, value) in kind.constants.items():
        if name.isidentifier() and not keyword.iskeyword(name) and isinstance(held, Type):
            shown = printer._constant_text(value, held)
            lines.append(f"  {name} : Final[{code.type(held)}] = {shown}")
    for name in method_names(kind):
        method = kind.find_method(name)
        if method is not None:
            lines += print_function(method, code, 1, kind.name)
    return lines


def method_names(kind: T.ClassType) -> list[str]:
    """The methods of a class: those that were compiled, and those that its archive has."""
    names = dict.fromkeys(kind.methods)
    if isinstance(kind.context, tuple):
        names |= dict.fromkeys(kind.context[1])
    return list(names)

"""Graphs from their text: what `str(graph)` prints is read back."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

import rushlight
from rushlight.jit.frontend.errors import Source, highlighted
from rushlight.jit.frontend.matching import bind_type, substitute
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Block, Graph, Location, Node, Value
from rushlight.jit.ir.schemas import Schema, variants
from rushlight.jit.ir.types import Type
from rushlight.jit.runtime.constants import TENSOR_WORDS

__all__ = ["parse_graph", "parse_type", "schema_for"]

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*)|(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?j?|-?inf\b|nan\b)|(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<word>[A-Za-z_]\w*(?:(?:\.|::)\w+)*)|(?P<value>%[\w.]+)|(?P<sign>->|[()\[\]{}<>,:=?^*+!|])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_NAMED = {
    "int": T.INT, "float": T.FLOAT, "bool": T.BOOL, "str": T.STR, "complex": T.COMPLEX, "Scalar": T.NUMBER, "number": T.NUMBER, "NoneType": T.NONE,
    "None": T.NONE, "Any": T.ANY, "Device": T.DEVICE, "Generator": T.GENERATOR, "Stream": T.STREAM, "Storage": T.STORAGE,
}  # fmt: skip


def parse_graph(text: str, tensor_constants: bool = False) -> Graph:
    """The graph of a text; RuntimeError marks what cannot be read.

    Constant tensors of one element are `value={1.5}`; with `tensor_constants` those whose text says their shape only are
    tensors of that shape with any values.
    """
    return _GraphReader(text, tensor_constants).read()


def parse_type(text: str) -> Type:
    """The type of a text, as graphs print it."""
    reader = _GraphReader(text, False)
    made = reader.type()
    reader.expect("")
    return made


class _Token:
    __slots__ = ("end", "kind", "start", "text")

    def __init__(self, kind: str, text: str, start: int, end: int) -> None:
        self.kind, self.text, self.start, self.end = kind, text, start, end


class _GraphReader:
    """Reads one text."""

    def __init__(self, text: str, tensor_constants: bool) -> None:
        self.text, self.tensor_constants = text, tensor_constants
        self.tokens = self._split()
        self.at = 0
        self.values: dict[str, Value] = {}
        self.subgraphs: list[tuple[str, Node]] = []

    # ***** tokens *****

    def _split(self) -> list[_Token]:
        found, at = [], 0
        while at < len(self.text):
            matched = _TOKEN.match(self.text, at)
            if matched is None:
                self.fail(f"unexpected {self.text[at]!r}", _Token("", "", at, at + 1))
            if matched.lastgroup != "space":
                found.append(_Token(str(matched.lastgroup), matched.group(), at, matched.end()))
            at = matched.end()
        found.append(_Token("end", "", len(self.text), len(self.text) + 1))
        return found

    def fail(self, message: str, token: _Token | None = None) -> NoReturn:
        """Raise an error that marks a place."""
        token = token or self.tokens[self.at]
        before = self.text[: token.start]
        start = token.start - (before.rfind("\n") + 1)
        place = Location(Source(self.text), before.count("\n") + 1, start, start + token.end - token.start)
        raise RuntimeError(f"\n{message}:\n{highlighted(place)}")

    def peek(self, text: str) -> bool:
        """Whether this is the next token."""
        return self.tokens[self.at].text == text

    def take(self, text: str) -> bool:
        """Go behind the next token, if it is this one."""
        if self.peek(text):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Go behind the next token, which must be this one."""
        if not self.take(text):
            self.fail(f"expected {text or 'the end'} but found {self.tokens[self.at].text or 'the end'!r} here")

    def next(self, kind: str) -> str:
        """The next token, which must be of this kind."""
        token = self.tokens[self.at]
        if token.kind != kind:
            self.fail(f"expected a {kind} but found {token.text or 'the end'!r} here")
        self.at += 1
        return token.text

    def listed(self, opening: str, closing: str, item: Callable[[], Any]) -> list[Any]:
        """Items between brackets."""
        self.expect(opening)
        found: list[Any] = []
        while not self.take(closing):
            if found:
                self.expect(",")
            found.append(item())
        return found

    # ***** graphs *****

    def read(self) -> Graph:
        """The graph, with the subgraphs behind it."""
        made = self.graph()
        while self.take("with"):
            name = self.next("word")
            self.expect("=")
            inner = self.graph()
            for wanted, node in self.subgraphs:
                if wanted == name:
                    node.attributes["Subgraph"] = inner
                    node.kind_ = re.sub(r"_\d+$", "", name)
        self.expect("")
        return made

    def graph(self) -> Graph:
        """`graph(...): nodes, return (...)`."""
        made, outer = Graph(), self.values
        self.values = {}
        self.expect("graph")
        self.parameters(made.block)
        self.nodes(made.block)
        self.expect("return")
        made.block.set_results(self.listed("(", ")", self.value))
        self.values = outer
        return made

    def parameters(self, block: Block) -> None:
        """`(%a : Tensor, ...):`"""
        for name, kind in self.listed("(", ")", self.declared):
            self.define(name, block.add_input(kind))
        self.expect(":")

    def declared(self) -> tuple[str, Type]:
        """`%a : Tensor`; a type that is left out is Tensor."""
        name = self.next("value")[1:]
        return name, self.type() if self.take(":") else T.TENSOR

    def define(self, name: str, value: Value) -> None:
        """A name of the text means a value."""
        self.values[name] = value
        if not name.isdigit():
            value.set_name(name)

    def value(self) -> Value:
        """`%a`, which was defined before."""
        token = self.tokens[self.at]
        name = self.next("value")[1:]
        if name not in self.values:
            self.fail(f"Cannot find a variable with name '{name}'", token)
        return self.values[name]

    def nodes(self, block: Block) -> None:
        """Nodes up to what ends a block."""
        while not (self.peek("->") or self.peek("return") or self.peek("")):
            self.node(block)

    def node(self, block: Block) -> None:
        """`%a : Tensor = aten::add[name=value](%b)`, and the blocks behind it."""
        results: list[tuple[str, Type]] = []
        while not results or self.take(","):
            if self.tokens[self.at].kind != "value":
                break
            results.append(self.declared())
        if results:
            self.expect("=")
        kind = ("^" if self.take("^") else "") + self.next("word")
        node = block.graph.create(kind, (), [t for _, t in results])
        if self.peek("["):
            for name, held in self.listed("[", "]", self.attribute):
                node.attributes[name] = held
        for value in self.listed("(", ")", self.value):
            node.add_input(value)
        if self.take(","):
            self.expect("scope")
            self.expect(":")
            node.scope = self.rest_of_line()
        block.append(node)
        self.subgraphs.append((kind, node))
        while self.tokens[self.at].kind == "word" and re.fullmatch(r"block\d+", self.tokens[self.at].text):
            self.at += 1
            inner = node.add_block()
            self.parameters(inner)
            self.nodes(inner)
            self.expect("->")
            inner.set_results(self.listed("(", ")", self.value))
        for (name, _), value in zip(results, node.outputs, strict=True):
            self.values[name] = value  # what nodes give is numbered anew, as PyTorch does
        self.finish(node)

    def rest_of_line(self) -> str:
        """The text up to the end of the line or a comment."""
        start = self.tokens[self.at].start
        end = re.compile(r"\s*(#|\n|$)").search(self.text, start)
        stop = end.start() if end is not None else len(self.text)
        while self.tokens[self.at].start < stop:
            self.at += 1
        return self.text[start:stop]

    def finish(self, node: Node) -> None:
        """Give a node its schema, and a constant the value of its type."""
        if node.kind_ != "prim::Constant":
            node.schema = schema_for(node)
            return
        kind, held = node.outputs[0].type, node.attributes.get("value")
        if held is None:
            return
        if kind == T.BOOL:
            held = bool(held)
        elif kind == T.FLOAT:
            held = float(held)
        elif kind == T.DEVICE:
            held = rushlight.device(held)
        elif kind == T.TENSOR and not isinstance(held, rushlight.Tensor):
            held = self.tensor(held, kind)
        node.attributes["value"] = held

    # ***** attributes *****

    def attribute(self) -> tuple[str, Any]:
        """`name=value`."""
        name = self.next("word")
        self.expect("=")
        return name, self.literal()

    def literal(self) -> Any:
        """A number, a string, a list, a tensor of one element, or what is printed of another tensor."""
        token = self.tokens[self.at]
        if token.kind == "number":
            self.at += 1
            return self.number(token.text)
        if token.kind == "string":
            self.at += 1
            return _unescaped(token.text[1:-1])
        if self.peek("["):
            return self.listed("[", "]", self.literal)
        if self.peek("("):
            return tuple(self.listed("(", ")", self.literal))
        if self.take("{"):
            if not self.tensor_constants:
                self.fail("A tensor constant of one element is read with `parse_tensor_constants=True` only", token)
            held = self.literal()
            self.expect("}")
            return rushlight.tensor(held)
        if self.take("<"):
            if not self.tensor_constants:
                self.fail("A tensor constant is read with `parse_tensor_constants=True` only", token)
            self.expect("Tensor")
            self.expect(">")
            return Ellipsis
        word = self.next("word")
        if word == "annotate":
            self.expect("(")
            self.type()
            self.expect(",")
            held = self.literal()
            self.expect(")")
            return held
        if word in ("True", "False", "None"):
            return {"True": True, "False": False, "None": None}[word]
        self.fail(f"{word} is no value", token)

    def number(self, text: str) -> int | float | complex:
        """The number of a text, with the imaginary part behind it."""
        if text.endswith("j"):
            return complex(text)
        if re.fullmatch(r"-?\d+", text):
            return int(text)
        return float(text)

    def tensor(self, held: Any, kind: Type) -> Any:
        """A constant tensor of a number, or of the shape that its type says."""
        if held is not Ellipsis:
            return rushlight.tensor(held)
        sizes = kind.sizes()
        if sizes is None:
            self.fail("the type of a constant tensor must say its sizes", self.tokens[self.at - 1])
        return rushlight.empty(sizes, dtype=kind.dtype())

    # ***** types *****

    def type(self) -> Type:
        """A type, with what follows it: `[]`, `?`."""
        if self.peek("("):
            made = T.tuple_of(*self.listed("(", ")", self.type))
        else:
            made = self.named_type()
        while True:
            if self.peek("[") and self.tokens[self.at + 1].text == "]":
                self.at += 2
                made = T.list_of(made)
            elif self.take("?"):
                made = T.optional(made)
            else:
                return made

    def named_type(self) -> Type:
        """A type that begins with a word."""
        token = self.tokens[self.at]
        word = self.next("word")
        if word in TENSOR_WORDS or word == "Tensor":
            return self.shaped(word) if self.peek("(") else self.shaped_without(word)
        if word in ("Dict", "Future", "Await", "RRef", "Union", "List", "Optional", "Tuple") and self.peek("("):
            inner = self.listed("(", ")", self.type)
            return (
                T.union(inner) if word == "Union" else T.optional(inner[0]) if word == "Optional" else Type(word, inner)
            )
        if word in _NAMED:
            return _NAMED[word]
        if "." in word:
            return T.ClassType(word)
        self.fail(f"Unknown type name '{word}'", token)

    def shaped_without(self, word: str) -> Type:
        """`Float` alone: a tensor whose dtype is known."""
        return T.TENSOR if word == "Tensor" else T.ShapedType(TENSOR_WORDS[word], word, None, None, None, None)

    def shaped(self, word: str) -> Type:
        """`Float(2, *, strides=[3, 1], requires_grad=0, device=cpu)`."""
        facts: dict[str, Any] = {}
        sizes: list[int | None] = []

        def part() -> None:
            token = self.tokens[self.at]
            if token.kind == "number":
                self.at += 1
                sizes.append(int(token.text))
            elif self.take("*"):
                sizes.append(None)
            else:
                name = self.next("word")
                self.expect("=")
                facts[name] = self.device() if name == "device" else self.literal()

        self.listed("(", ")", part)
        strides, grad = facts.get("strides"), facts.get("requires_grad")
        dtype = TENSOR_WORDS.get(word)
        return T.ShapedType(dtype, word, sizes, strides, facts.get("device"), None if grad is None else bool(grad))

    def device(self) -> Any:
        """`cpu`, `cuda:0`."""
        name = self.next("word")
        if self.take(":"):
            name += f":{self.next('number')}"
        return rushlight.device(name)


def schema_for(node: Node) -> Schema | None:
    """The overload whose arguments have the types of a node's inputs; None for none."""
    if not node.kind_.startswith(("aten::", "prim::")):
        space, _, name = node.kind_.partition("::")
        if not hasattr(getattr(rushlight.ops, space, None), name):
            return None
    for schema in variants(node.kind_):
        if schema.is_vararg:
            return schema
        if len(schema.arguments) == len(node.inputs):
            bound: dict[str, Type] = {}
            pairs = zip(schema.arguments, node.inputs, strict=True)
            if all(
                bind_type(a.type, v.type, bound) and T.is_subtype(v.type, substitute(a.type, bound)) for a, v in pairs
            ):
                return schema
    return None


def _unescaped(text: str) -> str:
    raw = b""
    at = 0
    for matched in _ESCAPE.finditer(text):
        code = matched[1]
        letter = bytes([int(code, 8) & 255]) if code.isdigit() else _LETTERS.get(code, code).encode()
        raw += text[at : matched.start()].encode("utf-8", "surrogatepass") + letter
        at = matched.end()
    return (raw + text[at:].encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

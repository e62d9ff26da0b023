"""The text of a PTX module as records: functions, variables, and instructions with their operands.

What is read is what LLVM writes: one statement a semicolon, blocks in braces (with registers of their own), labels, directives.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = [
    "Address",
    "Function",
    "Immediate",
    "Instruction",
    "Module",
    "Name",
    "Operand",
    "PtxError",
    "Vector",
    "parse",
]


class PtxError(RuntimeError):
    """What a program does that PTX leaves undefined, or what the interpreter does not know."""


class Name(NamedTuple):
    """A register, a special register, a label, or a variable."""

    text: str


class Immediate(NamedTuple):
    """A number as the bits that it has in 64 bits; of a floating-point literal also its size in bits."""

    bits: int
    floating: int = 0


class Address(NamedTuple):
    """`[base + offset]`; `more` holds the coordinates of a tensor."""

    base: Name | Immediate
    offset: int = 0
    more: Vector | None = None


class Vector(NamedTuple):
    """`{a, b, ...}`"""

    items: tuple[Operand, ...]


Operand = Name | Immediate | Address | Vector


@dataclass
class Instruction:
    """`@guard opcode operands;` - the opcode in parts, which dots separate; `line` counts from one."""

    opcode: str
    operands: list[Operand]
    guard: str = ""  # a predicate register
    negated: bool = False
    line: int = 0

    @property
    def parts(self) -> list[str]:
        return self.opcode.split(".")

    @property
    def type(self) -> str:
        return self.parts[-1]


class Variable(NamedTuple):
    """A variable of the module or a function; `data` is what it begins with."""

    name: str
    space: str
    size: int
    align: int
    data: bytes = b""


@dataclass
class Function:
    """A kernel or a function: `registers` tells the type of each."""

    name: str
    is_entry: bool
    params: list[Variable]
    results: list[Variable] = field(default_factory=list)
    directives: dict[str, list[int]] = field(default_factory=dict)
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    body: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)  # the number of the instruction behind each
    tables: dict[str, list[str]] = field(default_factory=dict)  # labels of .branchtargets


@dataclass
class Module:
    version: tuple[int, int] = (0, 0)
    target: str = ""
    variables: dict[str, Variable] = field(default_factory=dict)
    functions: dict[str, Function] = field(default_factory=dict)

    @property
    def entry(self) -> Function:
        (found,) = (f for f in self.functions.values() if f.is_entry)
        return found


_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})
    |(?P<word>[A-Za-z_$%.][\w$.%]*(?:::[\w.]+)*)
    |(?P<number>0[xX][0-9a-fA-F]+U?|\d+(?:\.\d+)?U?)
    |(?P<text>"[^"]*")
    |(?P<sign>[-{}\[\](),;:@!|+<>=])""",
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


def _tokens(text: str) -> list[_Token]:
    found, at, line = [], 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise PtxError(f"line {line}: cannot read {text[at : at + 30]!r}")
        if match.lastgroup:
            found.append(_Token(match.lastgroup, match.group(), line))
        line += match.group().count("\n")
        at = match.end()
    return found


_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16, "ed": 1}


def type_bytes(type: str) -> int:
    """Bytes of a fundamental type, such as b32 or f64."""
    return _SIZES[type.lstrip("busf")] if type != "pred" else 1


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens, self.at = _tokens(text), 0
        self.module = Module()
        self.function: Function | None = None
        self.scopes: list[dict[str, str]] = []  # registers that a block calls otherwise
        self.blocks = 0

    # ***** tokens *****

    @property
    def text(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.tokens[self.at]
        if expected and token.text != expected:
            raise PtxError(f"line {token.line}: {expected!r} expected, {token.text!r} found")
        self.at += 1
        return token.text

    def accept(self, text: str) -> bool:
        if self.text == text:
            self.at += 1
            return True
        return False

    def number(self) -> int:
        sign = -1 if self.accept("-") else 1
        return sign * int(self.take().rstrip("U"), 0)

    # ***** the module *****

    def parse(self) -> Module:
        while self.at < len(self.tokens):
            word = self.take()
            if word == ".version":
                major, minor = self.take().split(".")
                self.module.version = int(major), int(minor)
            elif word == ".target":
                self.module.target = self.take()
                while self.accept(","):
                    self.take()
            elif word == ".address_size":
                self.take("64")
            elif word in (".visible", ".extern", ".weak", ".common"):
                pass
            elif word in (".entry", ".func"):
                self.parse_function(word == ".entry")
            elif word in (".global", ".const", ".shared"):
                variable = self.variable(word[1:])
                self.module.variables[variable.name] = variable
                self.take(";")
            elif word == ".file":
                self.take(), self.take()
            else:
                raise PtxError(f"line {self.tokens[self.at - 1].line}: {word!r} is unknown in a module")
        return self.module

    def variable(self, space: str) -> Variable:
        """Behind the space: attributes, type, name, sizes, data."""
        align, item = 0, 0
        while self.text.startswith("."):
            word = self.take()
            if word == ".align":
                align = self.number()
            elif word == ".ptr":
                if self.text in (".global", ".shared", ".const", ".local"):
                    self.take()
            elif word != ".unaligned":
                item = type_bytes(word[1:])
        name, count = self.take(), 1
        if self.accept("["):
            count = 0 if self.text == "]" else self.number()
            self.take("]")
        data = self.initial(item) if self.accept("=") else b""
        return Variable(name, space, max(count * item, len(data)), align or item, data)

    def initial(self, item: int) -> bytes:
        if not self.accept("{"):
            return (self.number() % (1 << 8 * item)).to_bytes(item, "little")
        data = b""
        while not self.accept("}"):
            data += (self.number() % (1 << 8 * item)).to_bytes(item, "little")
            self.accept(",")
        return data

    def parse_function(self, is_entry: bool) -> None:
        results = []
        if self.text == "(":
            results = self.params()
        function = Function(self.take(), is_entry, [], results)
        if self.text == "(":
            function.params = self.params()
        while self.text not in ("{", ";"):
            name = self.take()
            values = []
            while self.text not in ("{", ";") and not self.text.startswith("."):
                values.append(self.number())
                self.accept(",")
            function.directives[name[1:]] = values
        if self.accept(";"):  # a declaration
            self.module.functions.setdefault(function.name, function)
            return
        self.module.functions[function.name] = function
        self.function = function
        self.body(function)

    def params(self) -> list[Variable]:
        self.take("(")
        found = []
        while not self.accept(")"):
            self.take(".param")
            found.append(self.variable("param"))
            self.accept(",")
        return found

    # ***** bodies *****

    def body(self, function: Function) -> None:
        self.take("{")
        self.scopes = [{}]
        while self.scopes:
            token = self.tokens[self.at]
            if self.accept("{"):
                self.scopes.append({})
                self.blocks += 1
            elif self.accept("}"):
                self.scopes.pop()
            elif token.text.startswith("."):
                self.directive(function)
            elif token.kind == "word" and self.tokens[self.at + 1].text == ":":
                self.label(function)
            else:
                function.body.append(self.instruction())

    def label(self, function: Function) -> None:
        name = self.take()
        self.take(":")
        if self.accept(".branchtargets"):
            labels = []
            while not self.accept(";"):
                labels.append(self.take())
                self.accept(",")
            function.tables[name] = labels
        else:
            function.labels[name] = len(function.body)

    def directive(self, function: Function) -> None:
        word = self.take()
        if word == ".reg":
            self.registers(function)
        elif word in (".local", ".shared", ".param"):
            variable = self.variable(word[1:])
            function.variables[variable.name] = variable
            self.take(";")
        elif word in (".pragma", ".loc"):
            while not self.accept(";") and word == ".pragma":
                self.take()
        else:
            raise PtxError(f"line {self.tokens[self.at - 1].line}: {word!r} is unknown in a function")

    def registers(self, function: Function) -> None:
        type = self.take()[1:]
        while True:
            name = self.take()
            if self.accept("<"):
                for k in range(self.number()):
                    function.registers[f"{name}{k}"] = type
                self.take(">")
            else:
                if len(self.scopes) > 1:
                    self.scopes[-1][name] = name = f"{name}.{self.blocks}"
                function.registers[name] = type
            if not self.accept(","):
                break
        self.take(";")

    def renamed(self, name: str) -> str:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return name

    def instruction(self) -> Instruction:
        guard, negated, line = "", False, self.tokens[self.at].line
        if self.accept("@"):
            negated = self.accept("!")
            guard = self.renamed(self.take())
        opcode, operands = self.take(), []
        while not self.accept(";"):
            operands.append(self.operand())
            if not (self.accept(",") or self.accept("|")) and self.text != ";":
                raise PtxError(f"line {line}: {self.text!r} behind an operand of {opcode}")
        return Instruction(opcode, operands, guard, negated, line)

    def operand(self) -> Operand:
        if self.text in ("{", "("):
            close = {"{": "}", "(": ")"}[self.take()]
            items = []
            while not self.accept(close):
                items.append(self.operand())
                self.accept(",")
            return Vector(tuple(items))
        if self.accept("["):
            return self.address()
        token = self.tokens[self.at]
        if token.kind == "float":
            digits = self.take()[2:]
            return Immediate(int(digits, 16), 4 * len(digits))
        if token.kind == "number" or token.text == "-":
            return Immediate(self.number() % (1 << 64))
        if self.accept("!"):
            return Name("!" + self.renamed(self.take()))
        return Name(self.renamed(self.take()))

    def address(self) -> Address:
        base = self.operand()
        assert isinstance(base, Name | Immediate)
        offset, more = 0, None
        while self.accept("+") or self.text == "-":
            offset += self.number()
        if self.accept(","):
            found = self.operand()
            assert isinstance(found, Vector)
            more = found
        self.take("]")
        return Address(base, offset, more)


def parse(text: str) -> Module:
    """PtxError names the line of what is not understood."""
    return _Parser(text).parse()


def float_bits(value: float, bits: int) -> int:
    """A number as the bits of a floating-point type."""
    return int.from_bytes(struct.pack({16: "<e", 32: "<f", 64: "<d"}[bits], value), "little")

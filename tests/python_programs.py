"""Random programs in Python: written from a seed, run by two executors, and made as short as a difference between them allows.

A program is a module whose `main` is called.  It writes what it sees to `log`, prints, changes globals, objects and containers, and may raise.
With `tensors` its values are tensors too: views, changes in place, gradients.
"""

from __future__ import annotations

import contextlib
import functools
import io
import random
import re
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests import tensor_programs

__all__ = ["Block", "Program", "Statement", "described", "run", "shorten", "write"]

NAMES = {"int": "nmpq", "list": "xyz", "dict": "de", "str": "st", "tensor": "uvw", "scalar": "ab"}
OWN_WARNING = "runs as it is"  # of `compile`, where it gives up
KINDS = ["int", "int", "list", "dict", "str"]
PRELUDE = """
import collections
import copy
import functools
import warnings

log = []
total = 0


class Bag(list):
    pass


class Manager:
    def __init__(self, name, swallow=False):
        self.name, self.swallow, self.depth = name, swallow, 0

    def __enter__(self):
        self.depth += 1
        log.append(("enter", self.name))
        return self

    def __exit__(self, kind, error, trace):
        self.depth -= 1
        log.append(("exit", self.name, None if kind is None else kind.__name__))
        return self.swallow and kind is not None and issubclass(kind, LookupError)


class Thing:
    shared = [1]
    limit = 7

    def __init__(self, value):
        self.value = value
        self.seen = []

    @property
    def double(self):
        return self.value * 2

    @double.setter
    def double(self, value):
        self.value = value // 2

    def add(self, n=1, *more, **named):
        self.value = (self.value + n + sum(more) + len(named)) % 1009
        self.seen.append(n)
        return self.value

    def __getitem__(self, i):
        return (self.value + i) % self.limit

    def __len__(self):
        return len(self.seen)

    def __call__(self, n):
        return self.add(n) - 1

    @classmethod
    def make(cls, n):
        return cls(n + 1)

    @staticmethod
    def clip(n):
        return min(max(n, -9), 9)


class Other(Thing):
    limit = 5

    def add(self, n=1, *more, **named):
        return super().add(n + 1, *more, **named)


def count(n):
    got = 0
    try:
        for i in range(n):
            sent = yield i + got
            got = sent or 0
    finally:
        log.append(("closed", n))
    return got


def twice(f):
    def inner(*args, **kwargs):
        return f(*args, **kwargs) + 1

    return inner


thing, other = Thing(3), Other(4)
bag, deck, tally = Bag([1, 2]), collections.deque([3], maxlen=4), collections.Counter("ab")
n, m, p, q = 5, 6, 7, 8
"""
LAST = "n, m, p, q = 5, 6, 7, 8\n"


@dataclass
class Statement:
    """A statement: its first line, and for compound ones a list of (line, block): the first line belongs to the first block."""

    text: str
    parts: list[tuple[str, Block]] = field(default_factory=list)

    def lines(self, indent: str = "") -> Iterator[str]:
        """The text, line by line."""
        if not self.parts:
            yield from (indent + line for line in self.text.split("\n"))
        for head, block in self.parts:
            yield indent + head
            yield from block.lines(indent + "    ")


@dataclass
class Block:
    """Statements one after the other."""

    statements: list[Statement] = field(default_factory=list)

    def lines(self, indent: str = "") -> Iterator[str]:
        """The text, line by line; `pass` where there is nothing."""
        if not self.statements:
            yield indent + "pass"
        for statement in self.statements:
            yield from statement.lines(indent)


@dataclass
class Program:
    """A program: definitions and the body of `main`."""

    seed: int
    definitions: Block
    main: Block
    tensors: bool = False

    def source(self) -> str:
        """The text of the module."""
        head = ["import rushlight as torch"] if self.tensors else []
        arguments = "u, v, n" if self.tensors else "n, x, d"
        lines = [*self.definitions.lines(), "", "", f"def main({arguments}):", *self.main.lines("    ")]
        prelude = PRELUDE.replace(LAST, tensor_programs.PRELUDE + LAST) if self.tensors else PRELUDE
        return "\n".join(head) + prelude + "\n\n" + "\n".join(lines) + "\n"


def write(seed: int, size: int = 12, tensors: bool = False, positions: bool = False) -> Program:
    """The program of a seed: about `size` statements in `main`; with `positions` ints are indices and sizes of tensors."""
    draw = random.Random(seed)
    while True:
        program = _Writer(draw, tensors, positions).program(seed, size)
        try:
            _code(program.source(), seed)
        except SyntaxError:  # a walrus or a `nonlocal` where none may be
            continue
        return program


class _Writer(tensor_programs.Statements):
    """Writes statements; `scope` holds the kinds of the names that are (probably) bound."""

    in_lambda = False

    def __init__(self, draw: random.Random, tensors: bool, positions: bool = False) -> None:
        self.draw, self.tensors, self.positions = draw, tensors, positions
        self.scope: dict[str, str] = {}
        self.functions: list[tuple[str, int]] = []
        self.generators: list[str] = []
        self.loops = self.depth = self.number = 0
        self.in_function = self.in_generator = False

    def program(self, seed: int, size: int) -> Program:
        """Definitions and a `main`."""
        definitions = Block([self.definition() for _ in range(self.below(4))])
        scope = {"n": "int", "u": "tensor", "v": "tensor"} if self.tensors else {"n": "int", "x": "list", "d": "dict"}
        begin = {"m": "1", "p": "2", "q": "3", "y": "[4, 5, 6]", "e": "{'a': 7}", "s": "'ab'"}
        self.enter(scope | {"m": "int", "p": "int", "q": "int", "y": "list", "e": "dict", "s": "str"})
        main = self.block(size)
        main.statements[:0] = [Statement(f"{name} = {value}") for name, value in begin.items()]
        main.statements.append(Statement(f"return {self.everything()}"))
        return Program(seed, definitions, main, self.tensors)

    def below(self, n: int) -> int:
        return self.draw.randrange(n)

    def one(self, *of: Any) -> Any:
        return self.draw.choice(of)

    def fresh(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def enter(self, scope: dict[str, str]) -> dict[str, str]:
        outer, self.scope = self.scope, dict(scope)
        return outer

    def known(self, kind: str) -> str | None:
        found = [name for name, of in self.scope.items() if of == kind]
        return self.draw.choice(found) if found else None

    def everything(self) -> str:
        return "(" + "".join(f"{name}, " for name, kind in sorted(self.scope.items()) if kind in NAMES) + ")"

    # ***** expressions *****

    def expression(self, kind: str, depth: int = 0) -> str:
        if depth > 2 or self.below(4) == 0:
            name = self.known(kind)
            if name is not None and self.below(5):
                return name
            return self.constant(kind)
        text: str = getattr(self, f"_{kind}")(depth + 1)
        return text

    def constant(self, kind: str) -> str:
        if kind == "int":
            return str(self.below(7) - 2)
        if kind == "str":
            return self.one("'ab'", "''", "'xyz'", "'q'")
        if kind == "list":
            return "[" + ", ".join(str(self.below(5)) for _ in range(self.below(4))) + "]"
        if kind == "dict":
            return "{" + ", ".join(f"{k!r}: {self.below(9)}" for k in "abc"[: self.below(4)]) + "}"
        if kind == "scalar":
            return self.one("u.sum()", "v.mean()", "torch.tensor(1.5)")
        return self.one("u", "v", "torch.ones(3, 4)", "torch.arange(12.0).reshape(3, 4)")

    def _int(self, d: int) -> str:
        i, e = lambda: self.expression("int", d), self.expression
        choice = self.below(22)
        if choice < 4:
            return f"({i()} {self.one('+', '-', '+', '-', '&', '|', '^')} {i()})"
        if choice == 4:
            return f"({i()} * {i()} % 1009)"
        if choice == 5:
            return f"({i()} {self.one('//', '%')} {self.one(i(), '3', '2')})"
        if choice == 6:
            return f"({i()} if {self.condition(d)} else {i()})"
        if choice == 7:
            return f"len({e(self.one('list', 'dict', 'str'), d)})"
        if choice == 8:
            return f"sum({e('list', d)})"
        if choice == 9:
            return f"{self.known('list') or '[4, 5]'}[{self.one('0', '-1', i())}]"
        if choice == 10:
            return f"{e('dict', d)}.get({self.one('0', repr('a'), e('str', d))}, {i()})"
        if choice == 11 and self.functions:
            name, arity = self.draw.choice(self.functions)
            return self.call(name, arity, d)
        if choice == 12:
            return f"({i()} {self.one('and', 'or')} {i()})"
        if choice == 13:
            return f"(-{i()} if not {i()} else +{i()})"
        if choice == 14:
            return f"{self.one('thing', 'other')}.{self.one('value', 'double', 'add(' + i() + ')', 'add(1, 2, k=3)', 'limit', 'clip(' + i() + ')')}"
        if choice == 15:
            return f"{self.one('thing', 'other')}{self.one('[' + i() + ']', '(' + i() + ')', '.make(2).add()')}"
        if choice == 16:
            return f"max({i()}, {i()}, *{e('list', d)})"
        if choice == 17:
            return f"next({self.one('count(' + i() + ' % 3)', 'iter(' + e('list', d) + ')')}, {i()})"
        if choice == 18:
            return f"(lambda k, j={i()}: k + j)({i()})"
        if choice == 19 and not self.in_generator:
            name = self.one(*NAMES["int"])
            if self.scope.get(name, "int") == "int" and not self.in_lambda:
                self.scope[name] = "int"
                return f"({name} := {i()} % 101)"
        if choice == 20:
            return "total"
        return f"(({i()} < {i()} <= {i()}) + 1)"

    def call(self, name: str, arity: int, d: int) -> str:
        arguments = [self.expression("int", d) for _ in range(arity)]
        style = self.below(4)
        if style == 0:
            return f"{name}(*[{', '.join(arguments)}])"
        if style == 1 and arity:
            return f"{name}({', '.join(arguments[:-1] + [f'p{arity - 1}={arguments[-1]}'])})"
        if style == 2 and self.below(4) == 0:
            return f"{name}({', '.join(arguments[1:])})"
        return f"{name}({', '.join(arguments)})"

    def condition(self, d: int) -> str:
        i, e = lambda: self.expression("int", d + 1), self.expression
        return self.one(
            f"{i()} {self.one('<', '>', '==', '!=', '<=')} {i()}", f"{i()} in {e('list', d)}", f"{e('list', d)}", f"not {e('str', d)}",
            f"{i()} % 2", f"{e('str', d)} < {e('str', d)}", f"({i()} or None) is None", f"isinstance({i()}, int) and {i()} > 1", "thing", f"{e('dict', d)}",
        )  # fmt: skip

    def inner(self, kind: str, d: int, **names: str) -> str:
        """An expression in a scope of its own, as of a comprehension or a lambda."""
        outer, before = self.scope, self.in_lambda
        self.scope, self.in_lambda = {**outer, **names}, True
        text = self.expression(kind, d)
        self.scope, self.in_lambda = outer, before
        return text

    def _list(self, d: int) -> str:
        e = self.expression
        choice = self.below(9)
        if choice == 0:
            return f"[{e('int', d)}, *{e('list', d)}]"
        if choice < 3:
            condition = f" if {self.inner('int', d + 1, k='int')} % 2" if self.below(2) else ""
            return f"[{self.inner('int', d, k='int')} for k in {e('list', d)}{condition}]"
        if choice == 3:
            return f"sorted({e('list', d)}, key=lambda k: {self.inner('int', d, k='int')})"
        if choice == 4:
            return f"{e('list', d)}[{self.one('1:', ':2', '::-1', '-2:')}]"
        if choice == 5:
            n, x = e("int", d), e("list", d)
            return (
                f"list({self.one(f'range({n} % 5)', f'count({n} % 4)', f'map(abs, {x})', e('dict', d) + '.values()')})"
            )
        if choice == 6:
            return f"({e('list', d)} + {e('list', d)})[:6]"
        if choice == 7 and self.generators:
            return f"list({self.draw.choice(self.generators)}({e('int', d)}))"
        return f"[j for i, j in enumerate({e('list', d)}) if i % 2 == 0]"

    def _dict(self, d: int) -> str:
        e = self.expression
        return self.one(
            f"{{**{e('dict', d)}, {e('str', d)}: {e('int', d)}}}", f"{{k: {self.inner('int', d, k='int')} for k in {e('list', d)}}}",
            f"dict(zip({e('str', d)}, {e('list', d)}))", f"({e('dict', d)} | {e('dict', d)})", f"dict(a={e('int', d)}, **{{'z': 1}})",
        )  # fmt: skip

    def _str(self, d: int) -> str:
        e = self.expression
        return self.one(
            f"str({e('int', d)})",
            "f\"{n!r:>4}{total:03}\"", f"({e('str', d)} + {e('str', d)})[:8]", f"{e('str', d)}.upper()", f"''.join(map(str, {e('list', d)}))[:9]",
            f"'%s|%d' % ({e('str', d)}, {e('int', d)})", f"{e('str', d)}.replace('a', 'bb')[:8]",
        )  # fmt: skip

    def _tensor(self, d: int) -> str:
        e, t = self.expression, lambda: self.expression("tensor", d)
        if self.positions and self.below(3) == 0:
            return self._at_position(d)
        choice = self.below(15)
        if choice < 4:
            return f"({t()} {self.one('+', '-', '*', '*')} {self.one(t(), t(), e('scalar', d), '0.5', '2')})"
        if choice < 6:
            return f"{t()}.{self.one('sin', 'tanh', 'abs', 'exp', 'relu', 'neg', 'sigmoid', 'clone', 'contiguous')}()"
        if choice == 6:
            return f"{self.one('torch.sin', 'torch.cos', 'torch.relu', 'torch.nn.functional.softplus', 'torch.sigmoid')}({t()})"
        if choice == 7:
            return f"torch.where({t()} > {e('scalar', d)}, {t()}, {t()})"
        if choice == 8:
            return f"({t()} @ {t()}.t() @ {t()} * 0.1)"
        if choice == 9:
            return f"{t()}.softmax({self.one('0', '1', '-1')})"
        if choice == 10:
            return f"({t()} - {t()}.mean({self.one('0', '1', '(0, 1)')}, keepdim=True))"
        if choice == 11:
            return f"torch.cat([{t()}[:1], {t()}[1:]])"
        if choice == 12:
            return f"torch.stack([r * {self.one('1', '2')} for r in {t()}])"
        if choice == 13:
            return f"{t()}.t().reshape(3, 4)" if self.below(2) else f"{t()}.view(-1).view(3, 4)"
        return f"{t()}.flip({self.one('0', '1')})"

    def _at_position(self, d: int) -> str:
        """A tensor that an int has chosen, or made: the numbers change from call to call."""
        t, i = self.expression("tensor", d), self.one("n", "n", self.expression("int", d))
        return str(self.one(
            f"({t} + {t}[{i} % 3])", f"({t} * {t}[:, {i} % 4].mean())", f"{t}.narrow(1, abs({i}) % 3, 2).repeat(1, 2)", f"{t}.roll({i}, 0)",
            f"(lambda t, i: torch.cat([t[:i], t[i:] * 2]))({t}, {i} % 4)", f"torch.full((3, 4), {i} % 99).float()", f"({t} + {i} % 99 / 7)",
            f"torch.arange(60.0)[abs({i}) % 48 :][:12].reshape(3, 4)", f"torch.nn.functional.pad({t}, (abs({i}) % 9, 0))[:, -4:]",
            f"({t} * torch.zeros(abs({i}) % 9 + 3, 4).add(1)[:3])", f"torch.arange(40.0)[abs({i}) % 9 : abs({i}) % 9 + 12].view(3, 4)",
        ))  # fmt: skip

    def _scalar(self, d: int) -> str:
        t = lambda: self.expression("tensor", d)
        return self.one(
            f"{t()}.{self.one('sum', 'mean', 'max', 'prod')}()", f"{t()}[{self.below(3)}, {self.below(4)}]", f"({t()} * {t()}).sum()",
            f"({self.expression('scalar', d)} * 0.5)", f"{t()}.std()",
        )  # fmt: skip

    # ***** statements *****

    def kind(self) -> str:
        if self.tensors and self.below(5) < 3:
            return str(self.one("tensor", "tensor", "scalar"))
        return str(self.draw.choice(KINDS))

    def bounded(self, kind: str) -> str:
        text = self.expression(kind)
        return f"({text}) % 1009" if kind == "int" else f"({text})[:12]" if kind in ("list", "str") else text

    def block(self, size: int) -> Block:
        self.depth += 1
        statements = []
        while size > 0:
            statement = self.statement(size)
            statements.append(statement)
            size -= 1 + sum(len(block.statements) for _, block in statement.parts)
        self.depth -= 1
        return Block(statements)

    def statement(self, size: int) -> Statement:
        simple = [self.assign, self.assign, self.assign, self.augment, self.note, self.mutate, self.unpack, self.rare]
        compound = [self.branch, self.loop, self.attempt, self.guard, self.choose, self.repeat, self.closure]
        if self.tensors:
            simple += [
                self.in_place,
                self.in_place,
                self.view_in_place,
                self.gradient,
                self.break_,
                self.dtypes,
                self.random_numbers,
            ]
            simple += [self.transforms, self.modules, self.data, self.containers]
        if self.loops and self.below(8) == 0:
            return Statement(f"if {self.condition(1)}:\n    {self.one('break', 'continue')}")
        if size < 3 or self.depth > 3 or self.below(3):
            return Statement(self.draw.choice(simple)())
        before = dict(self.scope)
        made: Statement = self.draw.choice(compound)(size)
        if self.below(12):  # what a branch binds is rarely read after it
            self.scope = before
        return made

    def assign(self) -> str:
        kind = self.kind()
        text = self.bounded(kind)
        name = self.one(*NAMES[kind])
        self.scope[name] = kind
        return f"{name} = {text}"

    def augment(self) -> str:
        kind = self.kind()
        name = self.known(kind)
        if name is None:
            return self.assign()
        if kind == "int":
            return f"{name} {self.one('+=', '-=', '^=', '|=')} {self.expression('int')} % 11"
        if kind == "list":
            return f"{name} += {self.expression('list')}[:3]"
        if kind == "dict":
            return f"{name} |= {self.expression('dict')}"
        if kind == "str":
            return f"{name} += {self.expression('str')}[:3]"
        return f"{name} {self.one('+=', '*=', '-=')} {self.one(self.expression(kind), '0.5')}"

    def note(self) -> str:
        kinds = [self.kind() for _ in range(1 + self.below(2))]
        if self.tensors and self.below(2):
            return f"log.append(({', '.join(self.expression(k, 1) for k in kinds)},))"
        plain = [k for k in kinds if k not in ("tensor", "scalar")] or ["int"]
        return f"{self.one('print', 'log.append')}(({', '.join(self.expression(k, 1) for k in plain)},))"

    def mutate(self) -> str:
        x, d = self.known("list") or "thing.seen", self.known("dict") or "thing.__dict__"
        i, s = self.expression("int", 1), self.expression("str", 1)
        return str(self.one(
            f"{x}.append({i})", f"{x}.pop()", f"{x}[{self.one('0', '-1', i)}] = {i}", f"{x}[1:2] = {self.expression('list', 1)}[:3]", f"del {x}[:1]",
            f"{x}.sort()", f"{x}.insert(0, {i})", f"{d}[{s}] = {i}", f"{d}.pop({s}, None)", f"{d}.setdefault({s}, {i})", f"thing.value = {i}",
            f"other.double = {i}", f"thing.shared.append({i})", f"{d}.update(q={i})", f"del {d}[{s}]", f"thing.extra = {i}", f"{x}.reverse()",
            f"Thing.limit = {i} % 5 + 1",
        ))  # fmt: skip

    def unpack(self) -> str:
        a, b = self.one("n", "m"), self.one("p", "q")
        self.scope[a] = self.scope[b] = "int"
        i = lambda: self.expression("int", 1)
        if self.below(3) == 0:
            self.scope["z"] = "list"
            return f"{a}, *z, {b} = [{i()}, {i()}, *{self.expression('list', 1)}]"
        return str(
            self.one(
                f"{a}, {b} = {b if self.below(2) else i()}, {i()}",
                f"({a}, {b}), t = [({i()}, {i()}), 'k']",
                f"{a} = {b} = {i()} % 50",
            )
        )

    def rare(self) -> str:
        choice = self.below(14)
        if choice == 0 and self.known("int"):
            name = self.known("int")
            assert name is not None
            if not self.in_function:
                self.scope.pop(name)
                return f"del {name}"
        if choice == 1:
            return f"assert {self.condition(1)}, {self.expression('str', 1)}"
        if choice == 2:
            error = self.one(
                "ValueError",
                "KeyError",
                "IndexError('i')",
                f"RuntimeError({self.expression('int', 1)})",
                "StopIteration",
            )
            return f"if {self.condition(1)}:\n    raise {error}"
        if choice == 3 and self.in_function and not self.in_generator:
            return f"if {self.condition(1)}:\n    return {self.expression('int', 1)}"
        if choice == 4:
            name = self.fresh("Local")
            return f"class {name}(Thing):\n    k = {self.expression('int', 2)}\n    def __len__(self):\n        return self.k\nlog.append(len({name}(1)))"
        if choice == 5:
            return f"print({self.expression('str', 1)}, {self.expression('int', 1)}, sep='/')"
        if choice == 6 and not self.tensors:
            return "globals()['total'] = globals()['total'] + 1"
        if choice > 7:
            return self.rarer()
        return f"thing.add({self.expression('int', 1)})"

    def rarer(self) -> str:
        """Iterators, containers and objects that the world around the program shares with it."""
        i, x, s = (lambda kind=kind: self.expression(kind, 1) for kind in ("int", "list", "str"))
        name = self.fresh("it")
        ending = self.one("close()", f"send({i()})", "throw(KeyError('thrown'))")
        return str(self.one(
            f"{name} = count(3)\nnext({name})\nlog.append({name}.send({i()}))\ntry:\n    {name}.{ending}\nexcept (KeyError, StopIteration) as error:\n"
            "    log.append(type(error).__name__)",
            f"warnings.warn('w' + {s()})", f"bag.append({i()})\nlog.append((len(bag), {i()} in bag, bag[-1], list(bag), bag + {x()}))\ndel bag[3:]",
            f"deck.appendleft({i()})\nlog.append((list(deck), deck == collections.deque({x()})))", f"tally[{s()}] += 1\nlog.append(sorted(tally.items()))",
            f"log.append((hasattr(thing, 'extra'), getattr(thing, {s()} or 'value', None)))", f"log.append(f'{{thing.value:>5}}{{{i()}:+d}}')",
            f"log.append((copy.copy(thing).value, copy.deepcopy({x()})))", f"log.append(sorted([Thing({i()}), other], key=lambda t: t.value)[0].value)",
            f"{name} = {{{i()}, 3}}\n{name} |= set({x()})\n{name}.discard({i()})\nlog.append((sorted({name}), {i()} in {name}))",
            f"log.append([*map(lambda k, j: k + j, {x()}, {x()}), *filter(None, {x()}), *reversed({x()})])",
            f"log.append(functools.reduce(lambda k, j: (k + j) % 97, {x()}, {i()}))", "if hasattr(thing, 'extra'):\n    del thing.extra",
            f"{name} = iter({x()})\nlog.append((next({name}, 0), [*zip({name}, 'abc')], list({name})))", f"log.append((str({x()}), '%s' % {self.expression('dict', 1)}))",
            f"for {name}, *z in [({i()}, *{x()})]:\n    log.append(({name}, z))", f"{name} = functools.partial(max, {i()})\nlog.append({name}({i()}))",
            "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    warnings.warn('unseen')",
        ))  # fmt: skip

    # ***** compound statements *****

    def part(self, size: int) -> int:
        return 1 + self.below(max(1, size // 2))

    def apart(self, size: int) -> Block:
        """A block whose names are rarely read behind it."""
        before = dict(self.scope)
        made = self.block(size)
        if self.below(9):
            self.scope = before
        return made

    def branch(self, size: int) -> Statement:
        parts = [(f"if {self.condition(0)}:", self.apart(self.part(size)))]
        if self.below(3) == 0:
            parts.append((f"elif {self.condition(0)}:", self.apart(self.part(size))))
        if self.below(2):
            parts.append(("else:", self.apart(self.part(size))))
        return Statement("", parts)

    def loop(self, size: int) -> Statement:
        heads = [
            ("for m in range({i} % 4):", {"m": "int"}), ("for q in {x}[:4]:", {"q": "int"}), ("for s, p in list({d}.items())[:3]:", {"s": "str", "p": "int"}),
            ("for i, q in enumerate({x}[:3]):", {"q": "int"}), ("for p, q in zip({x}[:3], {x}):", {"p": "int", "q": "int"}), ("for m in count({i} % 4):", {"m": "int"}),
        ]  # fmt: skip
        if self.tensors:
            heads.append(("for r in {t}:", {}))
        head, names = self.draw.choice(heads)
        text = head.replace("{i}", self.expression("int", 1)).replace("{d}", self.expression("dict", 1))
        text = text.replace("{x}", self.expression("list", 1)).replace(
            "{t}", self.expression("tensor", 2) if self.tensors else ""
        )
        self.scope.update(names)
        self.loops += 1
        body = self.block(self.part(size))
        self.loops -= 1
        parts = [(text, body)]
        if self.below(4) == 0:
            parts.append(("else:", self.block(1)))
        return Statement("", parts)

    def repeat(self, size: int) -> Statement:
        name = self.fresh("w")
        self.loops += 1
        body = self.block(self.part(size))
        self.loops -= 1
        body.statements.insert(0, Statement(f"{name} -= 1"))
        start = Statement(f"{name} = {1 + self.below(3)}")
        return Statement(
            "",
            [
                (
                    "if True:",
                    Block([start, Statement("", [(f"while {name} > 0 and ({self.condition(1)} or True):", body)])]),
                )
            ],
        )

    def attempt(self, size: int) -> Statement:
        parts = [("try:", self.apart(self.part(size)))]
        caught = self.one("Exception", "(LookupError, ArithmeticError)", "Exception", "ValueError", "ZeroDivisionError")
        handler = self.apart(self.part(size) // 2)
        handler.statements.insert(0, Statement("log.append((type(error).__name__, str(error)))"))
        if self.below(6) == 0:
            handler.statements.append(
                Statement(self.one("raise", "raise ValueError('again') from error", "raise KeyError('other')"))
            )
        parts.append((f"except {caught} as error:", handler))
        if self.below(4) == 0:
            parts.append(("else:", self.block(1)))
        if self.below(3) == 0:
            loops, self.loops = self.loops, 0
            parts.append(("finally:", self.block(1)))
            self.loops = loops
        return Statement("", parts)

    def guard(self, size: int) -> Statement:
        name = self.fresh("c")
        swallow = self.one("", ", swallow=True")
        if self.tensors and self.below(2):
            return Statement("", [("with torch.no_grad():", self.block(self.part(size)))])
        return Statement("", [(f"with Manager({name!r}{swallow}) as {name}:", self.block(self.part(size)))])

    def choose(self, size: int) -> Statement:
        cases = [
            ("case 0 | 1:", {}),
            ("case int(k) if k > 5:", {}),
            ("case [p, *_]:", {"p": "int"}),
            ("case {'a': q, **e}:", {"q": "int", "e": "dict"}),
        ]
        cases += [("case str():", {}), ("case Thing(value=p):", {"p": "int"}), ("case _:", {})]
        subject = self.one(self.expression("int", 1), self.expression("list", 1), self.expression("dict", 1), "thing")
        bodies = Block()
        for head, names in cases[self.below(3) :]:
            before = dict(self.scope)
            self.scope.update(names)
            bodies.statements.append(Statement("", [(head, self.block(1))]))
            self.scope = before
        return Statement("", [(f"match {subject}:", bodies)])

    def closure(self, size: int) -> Statement:
        """A function inside, which writes a variable of the outer one, and calls of it."""
        name = self.fresh("f")
        held = [v for v, kind in self.scope.items() if kind == "int" and v in NAMES["int"]]
        outer, loops, state = self.scope, self.loops, (self.in_function, self.in_generator)
        body, self.in_function, self.in_generator, self.loops = Block(), True, False, 0
        self.scope = {**{v: k for v, k in outer.items() if v not in NAMES["int"]}, "p0": "int"}
        if held and self.below(2):
            variable = self.draw.choice(held)
            if self.depth == 1 or not state[0]:
                body.statements.append(Statement(f"nonlocal {variable}"))
                body.statements.append(Statement(f"{variable} = ({variable} + p0) % 77"))
        self.scope = {"p0": "int"}
        body.statements += self.block(min(3, self.part(size))).statements
        body.statements.append(Statement(f"return {self.expression('int', 1)}"))
        self.scope, self.loops, (self.in_function, self.in_generator) = outer, loops, state
        decorated = [("if True:", Block())]
        head = self.one("", "", "@twice\n")
        function = Statement("", [(f"def {name}(p0=1, *more, **named):", body)])
        inside = [Statement("", function.parts)]
        if head:
            inside.append(Statement(f"{name} = twice({name})"))
        calls = [
            f"log.append({name}({self.expression('int', 1)}))",
            f"log.append({name}())",
            f"log.append([{name}(k) for k in {self.expression('list', 2)}[:3]])",
        ]
        inside.append(Statement(self.draw.choice(calls)))
        decorated[0][1].statements.extend(inside)
        return Statement("", decorated)

    def definition(self) -> Statement:
        """A function or a generator of the module."""
        generator = self.below(3) == 0
        name, arity = self.fresh("g" if generator else "h"), 1 + self.below(2)
        parameters = [f"p{i}" for i in range(arity)]
        self.enter(dict.fromkeys(parameters, "int"))
        self.in_function, self.in_generator = True, generator
        body = self.block(2 + self.below(4))
        if self.below(3) == 0:
            body.statements.insert(0, Statement("global total\ntotal = (total + 1) % 100"))
        if generator:
            body.statements.insert(
                self.below(len(body.statements) + 1), Statement(f"yield {self.expression('int', 2)}")
            )
            body.statements.append(
                Statement(f"yield from {self.one('count(2)', '[1, 2]', self.expression('list', 2))}")
            )
            parameters = [parameters[0], *[f"{p}=2" for p in parameters[1:]]]
        else:
            body.statements.append(Statement(f"return {self.expression('int', 1)}"))
        self.in_function = self.in_generator = False
        (self.generators.append(name) if generator else self.functions.append((name, arity)))
        return Statement("", [(f"def {name}({', '.join(parameters)}):", body)])

    # ***** tensors *****

    def in_place(self) -> str:
        t = self.known("tensor") or "u"
        other = self.expression("tensor", 1)
        name = self.fresh("r")
        return str(self.one(
            f"{t} = {t}.clone()\n{t}[{self.below(3)}] = {self.below(5)}", f"{t} = {t} * 1\n{t}.add_({other})", f"{t} = {t} * 1\n{t}[:, 1:3].mul_(0.5)",
            f"{t} = {t} + 0\n{name} = {t}[0]\n{name} += 1.0", f"{t} = {t} + 0\n{name} = {t}.t()\n{name}[1].zero_()", f"{t} = {t} * 1\n{t}[{t} > 1] = 0.0",
            f"{t} = {t} * 1\n{t}.fill_({self.below(3)})", f"{t} = {t} + 0\n{t}.copy_({other})",
        ))  # fmt: skip

    def gradient(self) -> str:
        name = self.fresh("l")
        loss = f"({self.expression('tensor', 0)} * {self.expression('tensor', 1)}).sum()"
        return str(self.one(
            f"{name} = u.detach().clone().requires_grad_()\n({name} * {self.expression('tensor', 1)}).sum().backward()\nlog.append({name}.grad)",
            f"{name} = {loss}\nif {name}.requires_grad:\n    log.append(torch.autograd.grad({name}, v, retain_graph=True, allow_unused=True))",
            f"{name} = {loss}\nif {name}.requires_grad:\n    {name}.backward(retain_graph=True)\n    log.append(None if v.grad is None else v.grad.clone())",
        ))  # fmt: skip

    def break_(self) -> str:
        """What asks a tensor for its elements, or its properties."""
        s, t = self.expression("scalar", 1), self.expression("tensor", 1)
        return str(self.one(
            f"if {s} > 0:\n    log.append('positive')", f"n = int({s}.item() * 10) % 7", f"print({t}.shape, {t}.dtype, {t}.requires_grad)",
            f"log.append({t}.tolist())", f"n = {t}.size(0) + {t}.dim()", f"log.append(({t}.stride(), {t}.is_contiguous()))", "torch.manual_seed(3)\nu = u + torch.rand(3, 4)",
            f"print({s})",
        ))  # fmt: skip


# ***** shortening *****


def shorten(program: Program, differs: Callable[[Program], bool], seconds: float = 20.0) -> Program:
    """The program without the statements that its difference does not need."""
    end, changed = time.monotonic() + seconds, True
    while changed and time.monotonic() < end:
        changed = False
        for block, index in list(_places(program)):
            if time.monotonic() > end or index >= len(block.statements):
                continue
            kept = block.statements[:]
            statement = kept[index]
            for instead in [[], *[part.statements for _, part in statement.parts]]:
                block.statements[:] = [*kept[:index], *instead, *kept[index + 1 :]]
                if differs(program):
                    changed = True
                    break
                block.statements[:] = kept
            else:
                changed |= _without_parts(statement, program, differs)
    return program


def _places(program: Program) -> Iterator[tuple[Block, int]]:
    """Every place of a statement, later and outer ones first."""

    def of(block: Block) -> Iterator[tuple[Block, int]]:
        for index in range(len(block.statements) - 1, -1, -1):
            if not re.fullmatch(r"w\d+ -= 1", block.statements[index].text):  # or a loop would not end
                yield block, index
            for _, part in block.statements[index].parts:
                yield from of(part)

    yield from of(program.main)
    yield from of(program.definitions)


def _without_parts(statement: Statement, program: Program, differs: Callable[[Program], bool]) -> bool:
    """Leave out an `else`, a `finally` and the like; whether one could be."""
    for index in range(len(statement.parts) - 1, 0, -1):
        kept = statement.parts[:]
        del statement.parts[index]
        if differs(program):
            return True
        statement.parts[:] = kept
    return False


# ***** running *****


def run(program: Program, execute: Callable[..., Any], calls: int = 1) -> list[dict[str, Any]]:
    """What each call of `main` gives, raises, prints and leaves behind; `execute(main, *arguments)` makes the calls."""
    module = types.ModuleType("program")  # what dataclasses look for
    space: dict[str, Any] = module.__dict__
    sys.modules["program"] = module
    exec(_code(program.source(), program.seed), space)  # noqa: S102
    seen = []
    if program.tensors:
        space["torch"].manual_seed(1)
    for number in range(calls):
        seen.append(_outcome(execute, space, _arguments(program, number), program.tensors))
        space["log"].clear()
    return seen


@functools.lru_cache(maxsize=2)
def _code(source: str, seed: int) -> types.CodeType:
    """The code of a program: written, run and compared, it is compiled once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return compile(source, f"<program {seed}>", "exec")


def _arguments(program: Program, number: int) -> tuple[Any, ...]:
    if not program.tensors:
        return 3 + number, [1, 2, 3], {"a": 1, "b": number}
    import rushlight

    u = rushlight.arange(12.0).reshape(3, 4) / 6 - 1 + number
    v = (rushlight.arange(12.0).reshape(3, 4).flip(0) / 12).requires_grad_()
    return u, v, 3 + number


def _outcome(
    execute: Callable[..., Any], space: dict[str, Any], arguments: tuple[Any, ...], tensors: bool
) -> dict[str, Any]:
    printed = io.StringIO()
    seen: dict[str, Any] = {}
    result = None
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            result = execute(space["main"], *arguments)
            seen["result"] = described(result)
        except Exception as error:
            seen["error"] = _error(error)
    seen["printed"] = re.sub("grad_fn=<[^>]*>", "grad_fn", printed.getvalue())
    seen["warned"] = [
        (w.category.__name__, str(w.message), w.lineno if w.filename[:1] == "<" else None)
        for w in caught
        if OWN_WARNING not in str(w.message)
    ]
    for name in ("log", "total", "n", "bag", "deck", "tally"):
        seen[name] = described(space[name])
    seen["things"] = described([space[name].__dict__ for name in ("thing", "other")])
    seen["class"] = described([space["Thing"].shared, space["Thing"].limit])
    seen["arguments"] = described(arguments)
    if tensors:
        _of_tensors(seen, space, arguments, result)
    return seen


def _of_tensors(seen: dict[str, Any], space: dict[str, Any], arguments: tuple[Any, ...], result: Any) -> None:
    """State of modules, which tensors share memory, the stream of random numbers, and gradients of what came out."""
    for name in tensor_programs.STATE:
        seen[name] = described(space[name])
    parts = space["net"], space["norm"]
    seen["modules"] = described([[dict(part.named_parameters()), dict(part.named_buffers()), part.training] for part in parts])  # fmt: skip
    seen["count"] = space["net"].count
    found = list(_tensors((arguments, space["log"], [space[name] for name in tensor_programs.STATE], result)))
    first: dict[int, int] = {}
    seen["memory"] = [first.setdefault(x.untyped_storage().data_ptr(), i) for i, x in enumerate(found) if x.numel()]
    same: dict[int, int] = {}
    seen["objects"] = [same.setdefault(id(x), i) for i, x in enumerate(found)]
    wanted = [x for x in _tensors((result, space["log"])) if x.requires_grad and not x.is_complex()]
    leaves = [arguments[1], *space["net"].parameters()]
    leaves = [x for x in leaves if x.requires_grad]
    if wanted and leaves:
        torch = space["torch"]
        try:
            with torch.enable_grad():
                loss = sum((x.double() * x.double()).sum() for x in wanted)
            found = torch.autograd.grad(loss, leaves, allow_unused=True)
            seen["gradients"] = described([None if g is None else g.contiguous() for g in found])
        except RuntimeError as error:
            seen["gradients"] = _words(error)
    seen["random"] = described(space["torch"].rand(1))


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for x in value:
            yield from _tensors(x)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif hasattr(value, "requires_grad") and hasattr(value, "stride"):
        yield value


def _error(error: BaseException | None) -> Any:
    """Type, words, lines of the program in the traceback, cause and context."""
    if error is None:
        return None
    lines: list[tuple[str, int]] = []
    entry = error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code.co_filename.startswith("<program"):
            lines.append((entry.tb_frame.f_code.co_name, entry.tb_lineno))
        entry = entry.tb_next
    if (
        isinstance(error, UnboundLocalError) and lines
    ):  # CPython 3.11 tells the line before, once it has joined two instructions
        lines[-1] = lines[-1][0], 0
    return type(error).__name__, _words(error), lines, _error(error.__cause__), _error(error.__context__)


def _words(error: BaseException) -> str:
    """What an error says: a node of a compiled program has a name and line of its own, and is freed as a whole."""
    text = str(error)
    if "needed for gradient computation" in text or "through the graph a second time" in text:
        return "no gradient"
    return re.sub(r"Output \d+ of \w+ is", "Output is", text)


def _bits(plain: Any) -> bytes:
    import rushlight

    plain = plain.resolve_conj().resolve_neg().contiguous().clone().reshape(-1)
    return bytes(plain.view(rushlight.uint8).numpy().tobytes()) if plain.numel() else b""


def described(value: Any) -> Any:
    """A value in words: tensors with their bits, layout and gradient."""
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [described(x) for x in value]
    if isinstance(value, dict):
        return "dict", [(described(k), described(v)) for k, v in value.items()]
    if hasattr(value, "requires_grad") and hasattr(value, "stride"):
        plain = value.detach()
        bits = _bits(plain)
        try:
            leaf = value.is_leaf
        except RuntimeError as error:  # a view made without gradients, whose memory was changed since
            leaf = _words(error)
        grad = described(value.grad) if leaf is True and value.grad is not None else None
        return (
            "tensor",
            bits,
            tuple(plain.shape),
            plain.stride(),
            (str(plain.dtype), value.is_conj(), value.is_neg(), value.is_inference()),
            value.requires_grad,
            leaf,
            grad,
        )
    return type(value).__name__, re.sub("0x[0-9a-f]+", "0x", repr(value))

"""The loop-nest IR: what a kernel computes, with loops, index expressions, loads, scalar operations, reductions and
stores.

`Kernel.text()` is the readable form, and the key of the compiled kernel: every integer but -1, 0, 1 and 2 appears as a
slot (`s0`, `s1`...), so shapes of the same class share one kernel, and the values of the slots are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rushlight._schedule.expressions import Buffer, Expr, Item, Store
from rushlight._schedule.indexing import Div, Ix, Mod, Var
from rushlight._types.dtype import DType
from rushlight._types.symbols import as_double, double_bits, is_symbolic, pinned, truncated

__all__ = ["Kernel", "Loop", "Reduce", "Scan", "Section", "Split", "Tile", "number_slot"]


# ***** statements *****


class Loop:
    """Runs `body` for each value of `var` from 0 to its size, or within the piece where `var` is cut.

    `lanes`: the values of `var` run through vector lanes. `ahead`: rows to prefetch, as (buffer, index of the next
    row's begin, lanes for each line of it).
    """

    __slots__ = ("ahead", "body", "lanes", "var")

    def __init__(
        self, var: Var, body: list[Any], lanes: bool = False, ahead: Sequence[tuple[Buffer, Ix, int]] = ()
    ) -> None:
        self.var, self.body, self.lanes, self.ahead = var, body, lanes, ahead


class Tile:
    """Loops over `across` and `lane` together, in square tiles as wide as a vector.

    `transposed` are loads that are contiguous along `across`. A tile of each is loaded along `across` and transposed
    in registers.
    """

    __slots__ = ("across", "body", "lane", "transposed")

    def __init__(self, across: Var, lane: Var, body: list[Any], transposed: list[Expr]) -> None:
        self.across, self.lane, self.body, self.transposed = across, lane, body, transposed


class Reduce:
    """Combines the values of `items` over `loops` (outermost first) and does `stores` at each element.

    `lanes`: the last loop runs through vector lanes, which are combined at the end. Otherwise each lane around it
    reduces by itself.
    """

    __slots__ = ("items", "lanes", "loops", "stores")

    def __init__(self, loops: list[Var], items: list[Item], lanes: bool, stores: Sequence[Store] = ()) -> None:
        self.loops, self.items, self.lanes, self.stores = loops, items, lanes, list(stores)


class Scan:
    """Runs along `var` and carries `items`.  References in `body` hold their values up to and including this step.

    `transposed` are loads that are contiguous along `var` while the lanes run over rows. They are loaded as square
    tiles and transposed in registers; results are stored the same way.
    """

    __slots__ = ("body", "items", "reverse", "transposed", "var")

    def __init__(
        self, var: Var, items: list[Item], body: list[Any], reverse: bool, transposed: Sequence[Expr] = ()
    ) -> None:
        self.var, self.items, self.body, self.reverse, self.transposed = var, items, body, reverse, list(transposed)


class Split:
    """The cut of a loop nest: pieces of `chunk` values of `var`.  `index`, if given, is a variable that holds the
    piece's number.
    """

    __slots__ = ("chunk", "index", "var")

    def __init__(self, var: Var, chunk: int, index: Var | None = None) -> None:
        self.var, self.chunk, self.index = var, chunk, index

    @property
    def pieces(self) -> int:
        return max(1, -(-self.var.size // self.chunk))


class Section:
    """A loop nest and its cut.  The pieces of a kernel's sections are numbered one after another."""

    __slots__ = ("body", "split", "unroll", "width")

    def __init__(self, body: list[Any], split: Split | None, width: int, unroll: int) -> None:
        self.body, self.split, self.width, self.unroll = body, split, width, unroll

    @property
    def pieces(self) -> int:
        return self.split.pieces if self.split else 1


class Kernel:
    """A function to generate: sections over buffers and scalar arguments.  `joined`: each piece runs its part of every
    section.
    """

    __slots__ = ("_slots", "_text", "args", "inputs", "joined", "outputs", "sections")

    def __init__(self, outputs: list[Buffer], inputs: list[Buffer], args: list[DType], sections: list[Section]) -> None:
        self.outputs, self.inputs, self.args, self.sections = outputs, inputs, args, sections
        self.joined = len(sections) > 1 and all(s.pieces == sections[0].pieces for s in sections)
        self._text: str | None = None
        self._slots: dict[Any, int] = {}

    @property
    def pieces(self) -> int:
        return self.sections[0].pieces if self.joined else sum(s.pieces for s in self.sections)

    def text(self) -> str:
        """The kernel as readable text.  Equal texts are equal kernels."""
        if self._text is None:
            writer = Writer(self)
            self._text = writer.write()
            self._slots = writer.slots
        return self._text

    def slot_values(self) -> list[int]:
        """The values of the slots, in order: integers, or the bits of doubles."""
        self.text()
        return [_word(n) for n in self._slots]

    def slot_of(self, n: Any) -> int:
        """The slot of the integer `n`, or of the number with key `n`."""
        self.text()
        return self._slots[n]


def _word(key: Any) -> int:
    """The value of a slot: an integer, or the bits of a double."""
    if isinstance(key, int):
        return key
    kind, value = key
    if kind == "chunk":
        return value
    return ("bits", value) if is_symbolic(value) else double_bits(value)  # type: ignore[return-value]


def number_slot(value: Any, dtype: DType) -> Any:
    """The key of the slot of a number that follows from sizes, or equals a size or one over a size; None for a literal.

    A mean over another count then needs no new kernel, while the coefficients of a polynomial stay literals.
    """
    if is_symbolic(value) and dtype.itemsize >= 4 and dtype.kind in "iuf":
        return ("f", as_double(value)) if dtype.kind == "f" else truncated(value)
    if dtype.kind in "iu" and value >= 16 and value < 1 << 62:
        return truncated(value)
    if dtype.kind == "f" and dtype.itemsize >= 4 and value:
        size = abs(value) if abs(value) >= 1 else 1 / abs(value)
        if 16 <= size < 1 << 53 and abs(size - round(size)) <= size * 2e-16:
            return ("f", as_double(value))
    return None


# ***** the readable form *****


class Writer:
    """Writes a kernel as text and numbers its slots."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.slots: dict[Any, int] = {}
        self.lines: list[str] = []
        self.names: dict[Any, str] = {}
        for role, buffers in (("out", kernel.outputs), ("in", kernel.inputs)):
            for i, buffer in enumerate(buffers):
                self.names.setdefault(buffer, f"{role}{i}")
        self.indent = ""
        self.counts = {"i": 0, "x": 0, "r": 0}

    def write(self) -> str:
        k = self._kernel
        head = [f"{self.names[b]}: {b.dtype.name}" for b in (*k.outputs, *k.inputs)]
        head += [f"arg{i}: {d.name}" for i, d in enumerate(k.args)]
        self.put(f"kernel({', '.join(head)}){' joined' if k.joined else ''}")
        for section in k.sections:
            split, cut = section.split, ""
            if split is not None:
                cut = f" split {self.name(split.var, 'i')} of {self.int(split.var.size)} by {self.slot(('chunk', split.chunk))}"
                cut += f" piece {self.name(split.index, 'i')}" if split.index is not None else ""
            if len(k.sections) > 1 and not k.joined:
                cut += f" pieces {self.int(section.pieces)}"
            self.put(f"section width {section.width} unroll {section.unroll}{cut}")
            self.block(section.body)
        return "\n".join(self.lines)

    def put(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def name(self, thing: Any, letter: str) -> str:
        name = self.names.get(thing)
        if name is None:
            n = self.counts[letter]
            self.counts[letter] = n + 1
            name = self.names[thing] = f"{letter}{n}"
        return name

    def slot(self, key: Any) -> str:
        return f"s{self.slots.setdefault(key, len(self.slots))}"

    def int(self, n: int) -> str:
        return str(n) if -1 <= n <= 2 else self.slot(n)

    def ix(self, ix: Ix) -> str:
        parts = []
        for a, c in ix.terms:
            kind = type(a)
            if kind is Var:
                text = self.name(a, "i")
            elif kind is Div:
                text = f"({self.ix(a.ix)})//{self.int(a.by)}"
            elif kind is Mod:
                text = f"({self.ix(a.ix)})%{self.int(a.by)}"
            else:
                where = f" if {self.x(a.guard)}" if a.guard is not None else ""
                text = f"[{self.x(a.value)} of {self.int(a.size)} dim {a.dim} code {a.code}{'' if a.wraps else ' from 0'}{where}]"
            parts.append(text if c == 1 else f"{self.int(c)}*{text}")
        if ix.const or not parts:
            parts.append(self.int(ix.const))
        return "+".join(parts)

    def x(self, x: Expr) -> str:
        known = self.names.get(x)
        if known is not None:
            return known
        if x.kind == "const":
            key = number_slot(x.value, x.dtype)
            return f"{pinned(x.value)!r}:{x.dtype.name}" if key is None else f"{self.slot(key)}:{x.dtype.name}"
        if x.kind == "arg":
            return f"arg{x.value}"
        if x.kind == "ref":
            return self.name(x.value[0], "r") + (".value" if x.value[1] else "")
        text = self.line(x)
        name = self.name(x, "x")
        self.put(f"{name} = {text}")
        return name

    def line(self, x: Expr) -> str:
        if x.kind == "load":
            buffer, ix = x.value
            guard = f" if {self.x(x.args[0])}" if x.args else ""
            return f"{self.names[buffer]}[{self.ix(ix)}]{guard}"
        if x.kind == "op":
            prim, params = x.value
            args = ""
            for a in x.args:  # a comprehension would add a Python frame to each step of a long chain
                args += f" {self.x(a)}"
            extra = f" {params}" if params else ""
            return f"{prim}{args}{extra} : {x.dtype.name}"
        if x.kind == "ix":
            return f"index {self.ix(x.value)} : {x.dtype.name}"
        ix, lo, hi = x.value
        return f"{self.int(lo)} <= {self.ix(ix)} < {self.int(hi)}"

    def block(self, body: Iterable[Any]) -> None:
        before = self.indent
        self.indent += "  "
        for statement in body:
            getattr(self, "s_" + type(statement).__name__)(statement)
        self.indent = before

    def s_Loop(self, s: Loop) -> None:
        self.put(f"for {self.name(s.var, 'i')} in {self.int(s.var.size)}{' lanes' if s.lanes else ''}")
        for buffer, ix, each in s.ahead:
            self.put(f"  ahead {self.names[buffer]}[{self.ix(ix)}] a line each {each}")
        self.block(s.body)

    def s_Tile(self, s: Tile) -> None:
        self.put(
            f"tile {self.name(s.across, 'i')} in {self.int(s.across.size)}, {self.name(s.lane, 'i')} in {self.int(s.lane.size)}"
        )
        before = self.indent
        self.indent += "  "
        for load in s.transposed:
            self.put(f"transposed {self.x(load)}")
        self.indent = before
        self.block(s.body)

    def s_Reduce(self, s: Reduce) -> None:
        over = ", ".join(f"{self.name(v, 'i')} in {self.int(v.size)} blocks {blocked(v, s)}" for v in s.loops)
        self.put(f"reduce over {over}{' lanes' if s.lanes else ''}")
        self.items(s.items)
        self.block(s.stores)

    def items(self, items: list[Item]) -> None:
        before = self.indent
        self.indent += "  "
        for item in items:
            value = self.x(item.value)
            at = (
                f" at {self.x(item.position)}{' short' if item.short else ''}{' rising' if item.rising else ''}"
                if item.position is not None
                else ""
            )
            text = f"value of {self.name(item.twin, 'r')}" if item.twin is not None else f"{item.op} {value}{at}"
            self.put(f"{self.name(item, 'r')} = {text} : {item.dtype.name}")
        self.indent = before

    def s_Scan(self, s: Scan) -> None:
        self.put(
            f"scan {self.name(s.var, 'i')} in {self.int(s.var.size)}{' reverse' if s.reverse else ''}{' transposed' if s.transposed else ''}"
        )
        self.items(s.items)
        self.block(s.body)

    def s_Store(self, s: Store) -> None:
        value = self.x(s.value)
        guard = f" if {self.x(s.guard)}" if s.guard is not None else ""
        how = (f" {s.combine}" if s.combine else "") + (f" stream {s.buffer.role}" if s.stream else "")
        self.put(f"{self.names[s.buffer]}[{self.ix(s.ix)}] ={how} {value}{guard}")


BLOCK = 64


def blocked(var: Var, reduce: Reduce) -> int:
    """1 where a float sum over `var` is so long that it is added in blocks, to keep rounding errors small; else 0."""
    limit = BLOCK * (64 if reduce.lanes and var is reduce.loops[-1] else 2)
    return int(var.size > limit and any(i.op in ("add", "mul") and i.dtype.kind in "fc" for i in reduce.items))

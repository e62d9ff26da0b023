"""The thread form: a block kernel divided among the threads of a GPU.

Its values are registers: each thread of a block holds `count` of them, of one dtype; pointers are int64.  A uniform
value is one register that is equal in all threads.  Control flow is structured and depends on uniform values only, so
all threads of a block take the same way, and barriers may stand anywhere.  The text for the GPU and the twin for x86
are printed from this one form.

| operation | operands -> results; attributes |
| --- | --- |
| number | -> uniform; `value` |
| program_id, num_programs | -> uniform int32; `axis` |
| argument | number -> uniform; `first`, `step`: the parameter `first` + number * `step`, of the result's dtype |
| index | -> int32; `registers`, `lanes`, `warps`: the exclusive or of the entries of the set bits, `registers` by the register's number |
| pointwise | registers of one count or uniform; `prim`, `params`; `approximate`: by an instruction of few bits, if there is one |
| multiply_high | the upper half of a product of integers |
| pick | -> registers; `sources`: for each register (operand, its register) |
| load | address[, mask[, other]]; `dtype`, `vector` registers in one access |
| store | address, value[, mask]; `vector` |
| atomic | address, value[, mask] -> old; `combine`, `order`, `scope`, `used` |
| atomic_cas | address, expected, value[, mask] -> old; `order`, `scope` |
| shared_load | byte offset -> registers; `buffer`, `dtype`, `vector` |
| matrix_load | byte offsets of rows -> registers; `buffer`, `dtype`, `matrices`, `transposed`: see `matrices.load` |
| shared_store | byte offset, value[, mask]; `buffer`, `vector` |
| shared_add | byte offset, value[, mask]: an atomic addition of int32; `buffer` |
| barrier, warp_barrier | all threads of the block, of the warp, arrive before any goes on; memory is seen |
| shuffle | registers -> those of the lane whose number differs by `xor` |
| shuffle_index | registers, lanes -> those of these lanes of the warp |
| mma | a, b, c -> registers; `form`, a name in `mma.FORMS` |
| uniform | one register, equal in all threads -> uniform |
| for, while, if | as in the block IR |
| assert | registers of bools[, mask]; `message` |
| print | mask, indices..., number (int64 or float64); `prefix`, `form`: f, d, x, or nothing without a number |
| copy_async | byte offset, address[, mask]; `buffer`, `bytes`: copies in the background, zeros where the mask is false |
| copy_commit, copy_wait | closes a group of copies; waits until at most `pending` groups of this thread are open |
| mbarrier_init | `buffer`, `arrivals`: for each barrier of 8 bytes, how many complete a phase; one thread does it |
| mbarrier_expect | byte offset; `buffer`, `bytes`: one thread arrives, and the phase waits for so many bytes |
| mbarrier_arrive | byte offset, condition; `buffer`: one thread of each warp arrives where the condition holds |
| mbarrier_wait | byte offset, parity; `buffer`: until the phase of this parity is complete |
| tile_copy | byte offset, barrier's byte offset, places..., offsets...; `buffer`, `barriers`, `map`, `offsets`: one thread copies a box |
| proxy_fence | what threads wrote to shared memory, or read, comes before what bulk copies write |
| wgmma_fence | registers -> the same, ready for products |
| wgmma_commit | closes a group of products |
| undefined | -> registers that hold anything |
| wgmma | byte offset, c[, whether c counts[, a's offset or registers]] -> registers; `form`, `n`, `a` (None: registers), `b` (`Side`): see below |
| wgmma_wait | registers -> the same; `pending`: until at most so many groups of products are open |
| roles | low, high, step, values... -> values; two bodies, of further warps that copy, and of the others, which go on behind; see below |

By `wgmma` warpgroups multiply in the background: its results are there behind a `wgmma_wait`.  Without `carried` each body of
`roles` runs once, and there are no bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rushlight._types.dtype import BOOL, INT32, INT64, DType

from .tile_maps import TileMap

__all__ = [
    "WARP",
    "Body",
    "Buffer",
    "Instruction",
    "Registers",
    "ThreadBuilder",
    "ThreadKernel",
    "Value",
    "print_format",
]

WARP = 32
Line = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Registers:
    """The type of a value: registers that each thread holds."""

    dtype: DType
    count: int = 1
    uniform: bool = False

    def __repr__(self) -> str:
        return f"{'uniform ' if self.uniform else ''}{self.dtype.abbr}" + (f" x {self.count}" if self.count > 1 else "")


class Value:
    """The result of an instruction, or a parameter of a body."""

    __slots__ = ("op", "type")

    def __init__(self, type: Registers, op: Instruction | None = None) -> None:
        self.type, self.op = type, op

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def count(self) -> int:
        return self.type.count

    @property
    def uniform(self) -> bool:
        return self.type.uniform


class Buffer:
    """A piece of shared memory; `offset` is set when all pieces of a kernel are laid out."""

    __slots__ = ("align", "offset", "size")

    def __init__(self, size: int, align: int = 128) -> None:
        self.size, self.offset, self.align = size, 0, align

    def __repr__(self) -> str:
        return f"shared[{self.offset}:{self.offset + self.size}]"


class Instruction:
    """One operation of the table above."""

    __slots__ = ("attributes", "bodies", "kind", "line", "operands", "results")

    def __init__(
        self,
        kind: str,
        operands: Sequence[Value],
        results: Sequence[Registers],
        attributes: Mapping[str, Any],
        bodies: Sequence[Body] = (),
        line: Line | None = None,
    ) -> None:
        self.kind, self.operands, self.attributes = kind, list(operands), dict(attributes)
        self.bodies, self.line = list(bodies), line
        self.results = [Value(type, self) for type in results]

    @property
    def result(self) -> Value:
        (value,) = self.results
        return value


class Body:
    """Instructions in order, and the values that the body gives at its end."""

    __slots__ = ("instructions", "params", "yielded")

    def __init__(self, params: Sequence[Registers] = ()) -> None:
        self.params = [Value(t) for t in params]
        self.instructions: list[Instruction] = []
        self.yielded: list[Value] = []

    def walk(self) -> Iterator[Instruction]:
        for instruction in self.instructions:
            yield instruction
            for body in instruction.bodies:
                yield from body.walk()


class ThreadKernel:
    """A kernel of the thread form: `body.params` are its arguments, uniform.

    `pointers` holds the places of arguments that are addresses; `divisible` is as in the block IR; `shared` is the size
    of its shared memory in bytes.  `maps` are the tensor maps that it takes behind its parameters, and `copiers` the
    warps that it has beside `warps`, for the first body of its `roles`.
    """

    __slots__ = ("body", "copiers", "divisible", "line", "maps", "name", "pointers", "shared", "warps")

    def __init__(
        self,
        name: str,
        body: Body,
        pointers: frozenset[int],
        divisible: Mapping[int, int],
        warps: int,
        line: Line | None,
    ) -> None:
        self.name, self.body, self.pointers, self.divisible = name, body, pointers, dict(divisible)
        self.warps, self.line, self.shared = warps, line, 0
        self.maps: list[TileMap] = []
        self.copiers = 0

    @property
    def threads(self) -> int:
        return (self.warps + self.copiers) * WARP

    @property
    def params(self) -> list[Value]:
        return self.body.params

    @property
    def table(self) -> int:
        """The first of the last parameters that are asked for by their number: one array of words of 8 bytes."""
        found = [i.attributes["first"] for i in self.body.walk() if i.kind == "argument"]
        return min(found, default=len(self.params))


class ThreadBuilder:
    """Appends instructions to the body that is open; `line` is put on each."""

    def __init__(self, body: Body, warps: int) -> None:
        self.bodies = [body]
        self.warps = warps
        self.line: Line | None = None
        self._numbers: list[dict[Any, Value]] = [{}]

    def emit(
        self,
        kind: str,
        operands: Sequence[Value],
        results: Sequence[Registers],
        bodies: Sequence[Body] = (),
        **attributes: Any,
    ) -> Instruction:
        """Any operation of the table."""
        made = Instruction(kind, operands, results, attributes, bodies, self.line)
        self.bodies[-1].instructions.append(made)
        return made

    @contextmanager
    def body(self, params: Sequence[Registers] = ()) -> Iterator[Body]:
        made = Body(params)
        self.bodies.append(made)
        self._numbers.append({})
        try:
            yield made
        finally:
            self.bodies.pop()
            self._numbers.pop()

    @contextmanager
    def outside(self, depth: int) -> Iterator[None]:
        """Appends to the body in which `depth` are open: before what the inner ones belong to, which is not emitted
        yet.
        """
        inner = self.bodies[depth:], self._numbers[depth:]
        del self.bodies[depth:], self._numbers[depth:]
        try:
            yield
        finally:
            self.bodies += inner[0]
            self._numbers += inner[1]

    # ***** what lowering writes most *****

    def number(self, value: float, dtype: DType) -> Value:
        """A uniform number; the same one is written once where it is visible."""
        key = (type(value), repr(value), dtype)
        for known in self._numbers:
            if key in known:
                return known[key]
        made = self._numbers[-1][key] = self.emit("number", [], [Registers(dtype, 1, True)], value=value).result
        return made

    def pointwise(
        self,
        prim: str,
        *xs: Value,
        dtype: DType | None = None,
        params: Mapping[str, Any] | None = None,
        approximate: bool = False,
    ) -> Value:
        """Registers of one count, with uniform ones for all of them; `dtype` is the result's if it is not the first's."""
        count = max(x.count for x in xs)
        uniform = all(x.uniform for x in xs)
        result = Registers(dtype or xs[0].dtype, count, uniform)
        more: dict[str, Any] = {"approximate": True} if approximate else {}
        return self.emit("pointwise", xs, [result], prim=prim, params=dict(params or {}), **more).result

    def pick(self, operands: Sequence[Value], sources: Sequence[tuple[int, int]]) -> Value:
        """Registers put together of those of operands; nothing where they are one operand's own."""
        first = operands[sources[0][0]]
        if (
            not first.uniform
            and first.count == len(sources)
            and list(sources) == [(sources[0][0], r) for r in range(first.count)]
        ):
            return first
        result = Registers(first.dtype, len(sources))
        return self.emit("pick", operands, [result], sources=tuple(sources)).result

    def spread(self, x: Value, count: int) -> Value:
        """A uniform value as registers."""
        return self.pick([x], [(0, 0)] * count) if x.uniform or x.count != count else x

    def index(self, registers: Sequence[int], lanes: Sequence[int], warps: Sequence[int]) -> Value:
        """See the table; `registers` has an entry for each register, `lanes` and `warps` one for each bit."""
        return self.emit(
            "index",
            [],
            [Registers(INT32, len(registers))],
            registers=tuple(registers),
            lanes=tuple(lanes),
            warps=tuple(warps),
        ).result

    def only_where_zero(self, lanes: int, warps: int) -> Value | None:
        """Whether these bits of the thread's place are 0 (one register); None where no bit is asked for."""
        if not lanes and not warps:
            return None
        place = self.index(
            (0,),
            [1 << i if lanes >> i & 1 else 0 for i in range(5)],
            [32 << i if warps >> i & 1 else 0 for i in range(8)],
        )
        return self.pointwise("eq", place, self.number(0, INT32), dtype=BOOL)

    def both(self, a: Value | None, b: Value | None) -> Value | None:
        """The conjunction of two masks, either of which may be missing."""
        if a is None or b is None:
            return a if b is None else b
        count = max(a.count, b.count)
        a, b = (m if m.uniform or m.count == count else self.pick([m], [(0, 0)] * count) for m in (a, b))
        return self.pointwise("bitwise_and", a, b, dtype=BOOL)

    def wide(self, x: Value) -> Value:
        """An integer as int64."""
        return x if x.dtype is INT64 else self.pointwise("convert", x, dtype=INT64, params={"dtype": INT64})


def print_format(instruction: Instruction) -> str:
    """The `printf` format of a `print`: the program's place, the indices, the number."""
    indices = len(instruction.operands) - 2 if instruction.attributes["form"] else 0
    places = f" idx ({', '.join(['%d'] * indices)})" if indices else ""
    number = {"f": " %g", "d": " %lld", "x": " 0x%llx", "": ""}[instruction.attributes["form"]]
    return "pid (%d, %d, %d)" + places + " " + instruction.attributes["prefix"].replace("%", "%%") + number + "\n"

"""Straight-line LLVM text on vector values: the vocabulary in which the primitives are written.

A `Writer` appends instructions to `lines`; a `Val` is one operand.  Nothing here knows a primitive: those are functions
over `Val`s in the sibling files, found through `emitter.py`.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from rushlight._types.dtype import ALL_DTYPES
from rushlight._types.float8 import FORMATS as FLOAT8_FORMATS
from rushlight._types.float8 import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Self, TypeAlias

    from rushlight._types.dtype import DType

    Value: TypeAlias = "Val | tuple[Val, Val]"

__all__ = ["Check", "ModuleText", "Pairs", "Val", "Writer", "lane_mask", "mem_lanes", "mem_type", "reg_type"]

_REG = {
    "bool": "i1", "uint8": "i8", "int8": "i8", "int16": "i16", "uint16": "i16", "int32": "i32", "uint32": "i32", "int64": "i64",
    "uint64": "i64", "float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double", "complex64": "float",
    "complex128": "double", "complex32": "half",
}  # fmt: skip
# The other dtypes are bits, as wide as they are, to all but the conversions.
_REG |= {d.name: f"i{8 * d.itemsize}" for d in ALL_DTYPES if d.name not in _REG}
_MANGLED = {"float": "f32", "double": "f64", "half": "f16"}
FLOATS = ("float", "double", "half")
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "i128": 128, "half": 16, "float": 32, "double": 64}
INT_OF = {"float": "i32", "double": "i64", "half": "i16"}


def reg_type(dtype: DType) -> str:
    """LLVM element type of a value of `dtype` in a register; for complex dtypes that of one part."""
    return _REG[dtype.name]


def mem_type(dtype: DType) -> str:
    """LLVM element type of `dtype` in memory; a complex element is two of them."""
    return "i8" if dtype.kind == "b" else _REG[dtype.name]


def mem_lanes(dtype: DType) -> int:
    """How many memory elements make one value: 2 for complex dtypes, else 1."""
    return 2 if dtype.kind == "c" else 1


class ModuleText:
    """Declarations, helper functions and constant tables of a module.  `str()` gives their text.

    `byte_dots`: whether the machine has an instruction that adds four products of bytes.
    """

    __slots__ = ("byte_dots", "declarations", "definitions")

    def __init__(self, byte_dots: bool = False) -> None:
        self.byte_dots = byte_dots
        self.declarations: dict[str, str] = {}
        self.definitions: dict[str, str] = {}

    def __str__(self) -> str:
        return "\n".join([*self.declarations.values(), *self.definitions.values(), ""])


class Val:
    """One operand: an SSA name or a literal, with its element type.  Arithmetic on it emits instructions.

    Numbers are accepted on the right of any operator, and on the left of + and *.
    `/` is for floats; `>>` is arithmetic, `lshr` logical.
    """

    __slots__ = ("em", "name", "type")

    def __init__(self, em: Writer, name: str, type: str) -> None:
        self.em, self.name, self.type = em, name, type

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{self.vt} {self.name}"

    @property
    def vt(self) -> str:
        return self.em.vt(self.type)

    def _binary(self, instruction: str, other: Val | float) -> Val:
        em = self.em
        return em.emit(f"{instruction} {em.vt(self.type)} {self.name}, {em.like(other, self)}", self.type)

    def __add__(self, other: Val | float) -> Val:
        return self._binary("fadd" if self.type in FLOATS else "add", other)

    __radd__ = __add__

    def __sub__(self, other: Val | float) -> Val:
        return self._binary("fsub" if self.type in FLOATS else "sub", other)

    def __rsub__(self, other: float) -> Val:
        return self.em.like(other, self) - self

    def __mul__(self, other: Val | float) -> Val:
        return self._binary("fmul" if self.type in FLOATS else "mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Val | float) -> Val:
        return self._binary("fdiv", other)

    def __rtruediv__(self, other: float) -> Val:
        return self.em.like(other, self) / self

    def __neg__(self) -> Val:
        if self.type in FLOATS:
            return self.em.emit(f"fneg {self.vt} {self.name}", self.type)
        return 0 - self

    def __and__(self, other: Val | int) -> Val:
        return self._binary("and", other)

    def __or__(self, other: Val | int) -> Val:
        return self._binary("or", other)

    def __xor__(self, other: Val | int) -> Val:
        return self._binary("xor", other)

    def __invert__(self) -> Val:
        return self._binary("xor", True if self.type == "i1" else -1)

    def __lshift__(self, other: Val | int) -> Val:
        return self._binary("shl", other)

    def __rshift__(self, other: Val | int) -> Val:
        return self._binary("ashr", other)

    def lshr(self, other: Val | int) -> Val:
        return self._binary("lshr", other)

    # Comparisons give i1.  Those of floats are ordered (false on NaN) except `ne`, as in IEEE 754.
    def compare(self, predicate: str, other: Val | float) -> Val:
        instruction = "fcmp" if self.type in FLOATS else "icmp"
        em = self.em
        return em.emit(f"{instruction} {predicate} {em.vt(self.type)} {self.name}, {em.like(other, self)}", "i1")

    def lt(self, other: Val | float, signed: bool = True) -> Val:
        return self.compare("olt" if self.type in FLOATS else "slt" if signed else "ult", other)

    def le(self, other: Val | float, signed: bool = True) -> Val:
        return self.compare("ole" if self.type in FLOATS else "sle" if signed else "ule", other)

    def gt(self, other: Val | float, signed: bool = True) -> Val:
        return self.compare("ogt" if self.type in FLOATS else "sgt" if signed else "ugt", other)

    def ge(self, other: Val | float, signed: bool = True) -> Val:
        return self.compare("oge" if self.type in FLOATS else "sge" if signed else "uge", other)

    def eq(self, other: Val | float) -> Val:
        return self.compare("oeq" if self.type in FLOATS else "eq", other)

    def ne(self, other: Val | float) -> Val:
        return self.compare("une" if self.type in FLOATS else "ne", other)

    def is_nan(self) -> Val:
        return self.compare("uno", self)

    def abs(self) -> Val:
        return self.em.call("llvm.fabs", self)

    def copysign(self, sign: Val) -> Val:
        return self.em.call("llvm.copysign", self, sign)

    def min_c(self, bound: float) -> Val:
        """The smaller of self and a constant; NaN stays (the operand order is the one x86's minps has)."""
        b = self.em.like(bound, self)
        return self.em.select(b.lt(self), b, self)

    def max_c(self, bound: float) -> Val:
        """The larger of self and a constant; NaN stays."""
        b = self.em.like(bound, self)
        return self.em.select(b.gt(self), b, self)

    def bits(self) -> Val:
        """The float's bit pattern as an integer of its width."""
        return self.em.bitcast(self, INT_OF[self.type])

    def to(self, type: str, signed: bool = True) -> Val:
        """A plain LLVM conversion to another element type.  Float to int is poison out of range: guard it."""
        if type == self.type:
            return self
        return self.em.cast(_cast_name(self.type, type, signed), self, type)


def _cast_name(source: str, target: str, signed: bool) -> str:
    if source in FLOATS:
        if target in FLOATS:
            return "fpext" if BITS[target] > BITS[source] else "fptrunc"
        return "fptosi" if signed else "fptoui"
    if target in FLOATS:
        return "sitofp" if signed else "uitofp"
    if BITS[target] < BITS[source]:
        return "trunc"
    return "sext" if signed else "zext"


class Pairs(tuple["Val", "Val"]):
    """The real and the imaginary parts of complex lanes, and `raw`, the vector in which they alternate as they do in
    memory.

    Parts that nobody uses cost nothing: instruction selection drops them.
    """

    raw: Val

    @staticmethod
    def of(parts: tuple[Val, Val], raw: Val) -> Pairs:
        made = Pairs(parts)
        made.raw = raw
        return made


class Check(NamedTuple):
    """A condition on which the kernel fails.  `kind` names the error; `bad` holds the failing lanes as i1."""

    kind: str
    bad: Val
    width: int


class _Body:
    """State that emitters of different widths in one function share."""

    __slots__ = ("checks", "count", "lines", "module", "prefix", "scopes", "siblings")

    def __init__(self, module: ModuleText, prefix: str) -> None:
        self.module, self.prefix = module, prefix
        self.lines: list[str] = []
        self.checks: list[Check] = []
        self.count = 0
        self.scopes: list[dict[str, str]] = [{}]
        self.siblings: dict[int, Any] = {}


class Writer:
    """Emits instructions of one vector width into the body of one function.

    `width` 1 means scalars. `fma` says whether the target multiplies and adds in one instruction: without it
    polynomials use `llvm.fmuladd` (two roundings), error terms take several instructions, and float16 is converted
    with integers.
    """

    __slots__ = ("_body", "_literals", "fma_hardware", "lines", "module", "width")

    def __init__(
        self,
        width: int,
        module: ModuleText | None = None,
        *,
        fma: bool = True,
        prefix: str = "v",
        body: _Body | None = None,
    ) -> None:
        self.width, self.fma_hardware = width, fma
        self._body = body or _Body(module or ModuleText(), prefix)
        self._body.siblings[width] = self
        self.module, self.lines = self._body.module, self._body.lines
        self._literals: dict[tuple[str, Any], Val] = {}

    # ***** the body *****

    @property
    def checks(self) -> list[Check]:
        return self._body.checks

    def at(self, width: int) -> Self:
        """The emitter of another width in the same function."""
        return self._body.siblings.get(width) or type(self)(width, fma=self.fma_hardware, body=self._body)

    def fresh(self) -> str:
        self._body.count += 1
        return f"%{self._body.prefix}{self._body.count}"

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A context whose values are not reused after it: a block that does not dominate the code that follows."""
        self._body.scopes.append({})
        try:
            yield
        finally:
            self._body.scopes.pop()

    def emit(self, text: str, type: str) -> Val:
        """The value of the instruction `text`.  An identical instruction that is visible here is reused."""
        scopes = self._body.scopes
        for scope in scopes:
            name = scope.get(text)
            if name is not None:
                return Val(self, name, type)
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        scopes[-1][text] = name
        return Val(self, name, type)

    # ***** operands *****

    def vt(self, type: str) -> str:
        return type if self.width == 1 else f"<{self.width} x {type}>"

    def val(self, name: str, type: str) -> Val:
        return Val(self, name, type)

    def wrap(self, name: str, dtype: DType) -> Val:
        return Val(self, name, _REG[dtype.name])

    def const(self, type: str, number: float | bool) -> Val:
        """A literal in all lanes.  Floats are rounded to `type`; integers may be given signed or unsigned."""
        key = (type, number if number else repr(number))  # 0.0 and -0.0 differ
        found = self._literals.get(key)
        if found is None:
            text = _literal(type, number)
            found = Val(self, text if self.width == 1 else f"splat ({type} {text})", type)
            self._literals[key] = found
        return found

    def number(self, number: Any, dtype: DType) -> Value:
        """A Python number as a constant of `dtype`; a pair for complex dtypes."""
        type = _REG[dtype.name]
        if dtype.kind == "c":
            z = complex(number)
            return self.const(type, z.real), self.const(type, z.imag)
        if dtype.kind == "b":
            return self.const(type, bool(number))
        if dtype.kind != "f":
            return self.const(type, int(number))
        if dtype.name == "bfloat16":
            return self.const(type, _bfloat16_bits(float(number)))
        if dtype.name in FLOAT8_FORMATS:
            return self.const(type, encode(dtype.name, float(number)))
        return self.const(type, float(number))

    def like(self, x: Val | float, other: Val) -> Val:
        return x if isinstance(x, Val) else self.const(other.type, x)

    def splat(self, name: Val | str, type: str) -> Val:
        """A scalar SSA value in all lanes."""
        if self.width == 1:
            return Val(self, str(name), type)
        vt = self.vt(type)
        one = self.emit(f"insertelement {vt} poison, {type} {name}, i64 0", type)
        return self.emit(f"shufflevector {vt} {one}, {vt} poison, <{self.width} x i32> zeroinitializer", type)

    def lane_index(self, type: str = "i64") -> Val:
        if self.width == 1:
            return self.const(type, 0)
        return Val(self, "<" + ", ".join(f"{type} {k}" for k in range(self.width)) + ">", type)

    # ***** instructions *****

    def select(self, cond: Val, a: Val | float, b: Val | float) -> Val:
        reference = a if isinstance(a, Val) else b
        assert isinstance(reference, Val)
        a, b = self.like(a, reference), self.like(b, reference)
        return self.emit(f"select {cond.vt} {cond}, {a.vt} {a}, {a.vt} {b}", a.type)

    def cast(self, instruction: str, x: Val, type: str) -> Val:
        return self.emit(f"{instruction} {self.vt(x.type)} {x} to {self.vt(type)}", type)

    def bitcast(self, x: Val, type: str) -> Val:
        return x if x.type == type else self.cast("bitcast", x, type)

    def call(self, intrinsic: str, *args: Val, result: str = "") -> Val:
        """An overloaded intrinsic whose operands all have one type; `result` when the value's type is another."""
        type = args[0].type
        vt = self.vt(type)
        name = f"@{intrinsic}.{self._mangle(type)}"
        operands = ", ".join(f"{vt} {a}" for a in args)
        if intrinsic in _IMMEDIATE_FLAG:
            operands += ", i1 false"
        if name not in self.module.declarations:
            types = ", ".join([vt] * len(args) + (["i1"] if intrinsic in _IMMEDIATE_FLAG else []))
            self.module.declarations[name] = f"declare {vt} {name}({types})"
        return self.emit(f"call {vt} {name}({operands})", type)

    def helper(self, name: str, define: Any, type: str, *args: Val) -> Val:
        """A call of a function of the module; `define(full_name)` gives its text the first time."""
        full = f"@rl.{name}.{self._mangle(args[0].type)}"
        if full not in self.module.definitions:
            self.module.definitions[full] = ""  # it may be asked for again while it is being written
            self.module.definitions[full] = define(full)
        operands = ", ".join(f"{a.vt} {a}" for a in args)
        return self.emit(f"call {self.vt(type)} {full}({operands})", type)

    def outline(self, name: str, function: Callable[..., Val], *args: Val) -> Val:
        """A call of a function of the module whose body is what `function` emits: for long code."""

        def define(full: str) -> str:
            em = type(self)(self.width, self.module, fma=self.fma_hardware)
            parameters = [em.val(f"%a{k}", a.type) for k, a in enumerate(args)]
            result = function(*parameters)
            signature = ", ".join(f"{p.vt} {p}" for p in parameters)
            body = "\n".join(em.lines)
            return f"define internal {result.vt} {full}({signature}) noinline nounwind {{\n{body}\n  ret {result.vt} {result}\n}}"

        return self.helper(name if self.fma_hardware else f"{name}.nofma", define, args[0].type, *args)

    def _mangle(self, type: str) -> str:
        short = _MANGLED.get(type, type)
        return short if self.width == 1 else f"v{self.width}{short}"

    def fma(self, a: Val | float, b: Val | float, c: Val | float) -> Val:
        """a * b + c, in one rounding where the hardware can."""
        return self._fma("llvm.fma" if self.fma_hardware else "llvm.fmuladd", a, b, c)

    def fma_exact(self, a: Val | float, b: Val | float, c: Val | float) -> Val:
        """a * b + c for error terms: what a single rounding would give, but for the last bit of a result that is not
        exact.

        Without the instruction float32 is computed in double, and double in two parts (T. J. Dekker's product); there
        the exponents must leave some room.
        """
        if self.fma_hardware:
            return self._fma("llvm.fma", a, b, c)
        reference = next(x for x in (a, b, c) if isinstance(x, Val))
        a, b, c = (self.like(x, reference) for x in (a, b, c))
        if reference.type == "float":
            return (a.to("double") * b.to("double") + c.to("double")).to("float")
        product = a * b
        (a_high, a_low), (b_high, b_low) = self._halves(a), self._halves(b)
        error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
        total = product + c
        moved = total - product
        return total + (((product - (total - moved)) + (c - moved)) + error)

    def _halves(self, x: Val) -> tuple[Val, Val]:
        """x as a sum of two doubles of about half its bits."""
        high = self.bitcast(x.bits() & ~((1 << 27) - 1), x.type)
        return high, x - high

    def _fma(self, name: str, a: Val | float, b: Val | float, c: Val | float) -> Val:
        reference = next(x for x in (a, b, c) if isinstance(x, Val))
        return self.call(name, self.like(a, reference), self.like(b, reference), self.like(c, reference))

    def horner(self, x: Val, coefficients: Sequence[float]) -> Val:
        """The polynomial with these coefficients, highest power first."""
        total: Val | float = coefficients[0]
        for c in coefficients[1:]:
            total = self.fma(total, x, c)
        return self.like(total, x)

    def any_lane(self, mask: Val) -> str:
        """Whether any lane is set: a scalar i1."""
        return self._reduce_mask("or", mask)

    def all_lanes(self, mask: Val) -> str:
        """Whether every lane is set: a scalar i1."""
        return self._reduce_mask("and", mask)

    def _reduce_mask(self, how: str, mask: Val) -> str:
        if self.width == 1:
            return str(mask)
        name = f"@llvm.vector.reduce.{how}.v{self.width}i1"
        self.module.declarations[name] = f"declare i1 {name}({mask.vt})"
        return str(self.emit(f"call i1 {name}({mask.vt} {mask})", "i1"))

    # ***** memory forms *****

    def mem_vt(self, dtype: DType) -> str:
        """The type to load and store `width` elements of `dtype` with."""
        lanes = self.width * mem_lanes(dtype)
        return mem_type(dtype) if lanes == 1 else f"<{lanes} x {mem_type(dtype)}>"

    def from_memory(self, raw: Val | str, dtype: DType) -> Value:
        """A loaded value (of type `mem_vt`) as a register value."""
        if dtype.kind == "b":
            return Val(self, str(raw), "i8").ne(0)
        type = _REG[dtype.name]
        if dtype.kind != "c":
            return Val(self, str(raw), type)
        vt, w = self.mem_vt(dtype), self.width
        if w == 1:
            return tuple(self.emit(f"extractelement {vt} {raw}, i64 {k}", type) for k in (0, 1))  # type: ignore[return-value]
        parts = [
            self.emit(f"shufflevector {vt} {raw}, {vt} poison, {lane_mask(range(k, 2 * w, 2))}", type) for k in (0, 1)
        ]
        return Pairs.of((parts[0], parts[1]), Val(self.at(2 * w), str(raw), type))

    def to_memory(self, value: Value, dtype: DType) -> Val:
        """A register value in the form (of type `mem_vt`) that is stored."""
        if isinstance(value, Val):
            return value.to("i8", signed=False) if dtype.kind == "b" else value
        if type(value) is Pairs:
            return value.raw
        re, im = value
        if self.width == 1:
            vt = f"<2 x {re.type}>"
            half = self.emit(f"insertelement {vt} poison, {re.type} {re}, i64 0", re.type)
            return self.emit(f"insertelement {vt} {half}, {re.type} {im}, i64 1", re.type)
        order = [k for pair in zip(range(self.width), range(self.width, 2 * self.width)) for k in pair]
        return self.emit(f"shufflevector {re.vt} {re}, {re.vt} {im}, {lane_mask(order)}", re.type)


_IMMEDIATE_FLAG = frozenset({"llvm.abs", "llvm.ctlz", "llvm.cttz"})


def lane_mask(lanes: Sequence[int] | range) -> str:
    return f"<{len(lanes)} x i32> <" + ", ".join(f"i32 {k}" for k in lanes) + ">"


def _literal(type: str, number: float | bool) -> str:
    if type in FLOATS:
        if type == "half":
            return f"0xH{_half_pattern(float(number)):04X}"
        value = float(number)
        if type == "float":
            value = _round_to_float32(value)
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if type == "i1":
        return "true" if number else "false"
    bits = BITS[type]
    value = int(number) & ((1 << bits) - 1)
    return str(value - (1 << bits) if value >> (bits - 1) else value)


def _round_to_float32(value: float) -> float:
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _half_pattern(value: float) -> int:
    try:
        return struct.unpack("<H", struct.pack("<e", value))[0]
    except OverflowError:
        return 0x7C00 if value > 0 else 0xFC00


def _bfloat16_bits(value: float) -> int:
    bits = struct.unpack("<I", struct.pack("<f", _round_to_float32(value)))[0]
    if value != value:
        return 0x7FC0
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16

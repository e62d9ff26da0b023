"""The function emitter: scopes, loops and arguments of an LLVM function.

Each loop is a scope with its own lines. An expression is written in the outermost scope where its operands are known.
Loop-invariant work is hoisted in this way, including loads and broadcasts, which LLVM cannot move past stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._codegen.loops import Kernel, Section
from rushlight._codegen.scalar import Emitter, ModuleText, Val, mem_type
from rushlight._prims.elementwise.requirements import REQUIREMENTS
from rushlight._schedule.expressions import Buffer, Expr, Item
from rushlight._schedule.indexing import Var
from rushlight._types.dtype import DType

__all__ = ["FunctionEmitter", "Lanes", "Scope", "align_of", "element_type", "vector_name"]

FIRST_SLOT = 8
# Codes of the errors that the runtime raises.
CHECKS = {"zero_division": 3} | {name: requirement.code for name, requirement in REQUIREMENTS.items()}

Value = Any  # Val | tuple[Val, Val]


class Scope:
    """The body of a loop, a section or a function, as lines of text."""

    __slots__ = ("cse", "label", "lines", "memo")

    def __init__(self, label: str) -> None:
        self.lines: list[str] = []
        self.label = label
        self.memo: dict[Any, Any] = {}
        self.cse: dict[str, str] = {}


class Lanes:
    """The loop variable that runs through vector lanes.  `left`: how many of its values remain, where lanes are
    masked.
    """

    __slots__ = ("left", "mask", "var", "width")

    def __init__(self, var: Var, width: int, mask: Val | None, left: str = "") -> None:
        self.var, self.width, self.mask, self.left = var, width, mask, left


class FunctionEmitter:
    """One function under construction: its scopes, the loop variables and results that are known in them, and the
    current lanes.
    """

    def __init__(self, kernel: Kernel, name: str, fma: bool, bits: int, byte_dots: bool = False) -> None:
        self.kernel, self.name, self.bits = kernel, name, bits
        self.module = ModuleText(byte_dots)
        self.one = Emitter(1, self.module, fma=fma)
        self.body = self.one._body
        self.scopes: list[Scope] = [Scope("entry")]
        self.depths: dict[Any, int] = {}
        self.names: dict[Var, str] = {}
        self.results: dict[Item, tuple[Value, int]] = {}
        self.lanes: Lanes | None = None
        self.section: Section | None = None
        self.bounds: tuple[str, str] = ("", "")
        self.labels = 0
        self.tiles: dict[Expr, tuple[str, str]] = {}
        self.allocas: list[str] = []
        self.word = {b: i for i, b in reversed(list(enumerate((*kernel.outputs, *kernel.inputs))))}

    def smaller(self, a: str, b: str) -> str:
        """The smaller of two integers."""
        self.module.declarations["@llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
        return self.scalar(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})", "i64", self.here())

    def label(self, hint: str) -> str:
        """A new label."""
        self.labels += 1
        return f"{hint}{self.labels}"

    def write(self, depth: int, emit: Callable[[], Any]) -> Any:
        """Run `emit` and append the instructions that it emits to the scope at `depth`."""
        body = self.body
        before = body.scopes
        body.scopes = [s.cse for s in self.scopes[: depth + 1]]
        result = emit()
        body.scopes = before
        lines = body.lines
        if lines:
            self.scopes[depth].lines.extend(lines)
            lines.clear()
        if body.checks:
            checks = list(body.checks)
            body.checks.clear()
            for check in checks:
                self.check(depth, check.bad, check.width, CHECKS[check.kind])
        return result

    def scalar(self, text: str, type: str, depth: int) -> str:
        """Emit one scalar instruction at a depth.  Returns its name."""
        return str(self.write(depth, lambda: self.one.emit(text, type)))

    def emitter(self, width: int) -> Emitter:
        return self.one.at(width)

    def depth(self, vars: frozenset[Any]) -> int:
        """The number of the innermost scope that one of these variables and results belongs to."""
        depths = self.depths
        return max([depths[v] for v in vars], default=0)

    def slot(self, n: Any) -> str:
        """An integer operand: a literal for -1, 0, 1 and 2, else the value of its slot."""
        if n in (-1, 0, 1, 2):
            return str(n)
        return self.slot_word(n, "i64")

    def slot_word(self, key: Any, type: str) -> str:
        """The value of a slot."""
        word = FIRST_SLOT + self.kernel.slot_of(key)
        pointer = self.scalar(f"getelementptr i64, ptr %ints, i64 {word}", "ptr", 0)
        return self.scalar(f"load {type}, ptr {pointer}, align 8", type, 0)

    def base(self, buffer: Buffer) -> str:
        """The address of a buffer."""
        pointer = self.scalar(f"getelementptr i64, ptr %bufs, i64 {self.word[buffer]}", "ptr", 0)
        return self.scalar(f"load ptr, ptr {pointer}, align 8", "ptr", 0)

    def check(
        self, depth: int, bad: Val, width: int, code: int, value: Val | None = None, dim: int = 0, size: str = "0"
    ) -> None:
        """Return from the kernel with error `code` if a lane of `bad` is set; `value`, `dim` and `size` go into the
        message.
        """
        scope = self.scopes[depth]
        lanes = self.lanes
        if lanes is not None and lanes.mask is not None and width == lanes.width:
            mask = lanes.mask
            bad = self.write(depth, lambda: bad & mask)
        any_bad = str(bad)
        if width > 1:
            wide = self.emitter(width)
            any_bad = str(self.write(depth, lambda: wide.any_lane(bad)))
        fail, good = self.label("fail"), self.label("ok")
        lines = scope.lines
        lines.append(f"  br i1 {any_bad}, label %{fail}, label %{good}, !prof !0")
        lines.append(f"{fail}:")
        shown = "0"
        if value is not None:
            shown = str(value)
            if width > 1:
                first, wide = self.one.fresh(), self.one.fresh()
                lines.append(f"  {wide} = bitcast <{width} x i1> {bad} to i{width}")
                lines.append(f"  {first} = call i{width} @llvm.cttz.i{width}(i{width} {wide}, i1 true)")
                self.module.declarations[f"@cttz{width}"] = f"declare i{width} @llvm.cttz.i{width}(i{width}, i1)"
                shown = self.one.fresh()
                lines.append(f"  {shown} = extractelement <{width} x i64> {value}, i{width} {first}")
        status = self.one.fresh()
        lines.append(
            f"  {status} = call i32 @rl_fail(ptr %bufs, i64 %piece, i64 {code}, i64 {shown}, i64 {dim}, i64 {size})"
        )
        lines.append(f"  ret i32 {status}")
        lines.append(f"{good}:")
        scope.label = good
        self.module.definitions["!0"] = '!0 = !{!"branch_weights", i32 1, i32 100000}'

    def here(self) -> int:
        """The number of the innermost scope."""
        return len(self.scopes) - 1

    def loop(
        self,
        var: Var | None,
        lo: str,
        hi: str,
        step: str,
        carries: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], list[str]],
        prefix: Sequence[str] = (),
    ) -> list[str]:
        """A loop `for iv in range(lo, hi, step)` that carries values, given as (LLVM type, initial name).

        `body(iv, carried)` writes the loop's body and returns the names of the next values. The result is their names
        after the loop.
        """
        parent = self.scopes[-1]
        head, done = self.label("loop"), self.label("done")
        iv = self.one.fresh()
        carried = [self.one.fresh() for _ in carries]
        scope = Scope(head)
        self.scopes.append(scope)
        if var is not None:
            self.names[var] = iv
            self.depths[var] = len(self.scopes) - 1
        nexts = body(iv, carried)
        if var is not None:
            del self.depths[var], self.names[var]
        self.scopes.pop()
        fresh = self.one.fresh
        test, more, iv_next = fresh(), fresh(), fresh()
        lines = parent.lines
        before = parent.label
        lines.append(f"  {test} = icmp slt i64 {lo}, {hi}")
        lines.append(f"  br i1 {test}, label %{head}, label %{done}")
        lines.append(f"{head}:")
        lines.append(f"  {iv} = phi i64 [ {lo}, %{before} ], [ {iv_next}, %{scope.label} ]")
        for (type, first), name, after in zip(carries, carried, nexts, strict=True):
            lines.append(f"  {name} = phi {type} [ {first}, %{before} ], [ {after}, %{scope.label} ]")
        lines.extend(scope.lines)
        lines.append(f"  {iv_next} = add nsw i64 {iv}, {step}")
        lines.append(f"  {more} = icmp slt i64 {iv_next}, {hi}")
        lines.append(f"  br i1 {more}, label %{head}, label %{done}")
        lines.append(f"{done}:")
        results = []
        for (type, first), after in zip(carries, nexts, strict=True):
            name = fresh()
            lines.append(f"  {name} = phi {type} [ {first}, %{before} ], [ {after}, %{scope.label} ]")
            results.append(name)
        parent.label = done
        return results

    def range_of(self, var: Var) -> tuple[str, str]:
        """The bounds of a loop over `var`, within the piece where `var` is cut."""
        split = self.section.split if self.section else None
        if split is not None and split.var is var:
            return self.bounds
        return "0", self.slot(var.size)

    def main_end(self, lo: str, hi: str, step: int) -> str:
        """The end of the whole steps from `lo` (`step` is a power of two)."""
        here = self.here()
        length = hi if lo == "0" else self.scalar(f"sub i64 {hi}, {lo}", "i64", here)
        whole = self.scalar(f"and i64 {length}, {-step}", "i64", here)
        return whole if lo == "0" else self.scalar(f"add i64 {lo}, {whole}", "i64", here)

    def over_lanes(
        self,
        var: Var,
        lo: str,
        hi: str,
        width: int,
        masked: bool,
        carries: Sequence[tuple[str, str]],
        body: Callable[[list[str]], list[str]],
    ) -> list[str]:
        """A loop whose body computes `width` values of `var` at once.  `masked`: lanes beyond the end are masked off."""

        def inside(iv: str, carried: list[str]) -> list[str]:
            mask = self.tail_mask(iv, hi, width) if masked else None
            before = self.lanes
            left = self.scalar(f"sub i64 {hi}, {iv}", "i64", self.here()) if masked else ""
            self.lanes = Lanes(var, width, mask, left)
            result = body(carried)
            self.lanes = before
            return result

        return self.loop(var, lo, hi, str(width), carries, inside)

    def tail_mask(self, iv: str, hi: str, width: int) -> Val:
        """The lanes before `hi`."""

        def emit() -> Val:
            left = self.one.emit(f"sub i64 {hi}, {iv}", "i64")
            small = self.one.emit(f"call i64 @llvm.smin.i64(i64 {left}, i64 {width})", "i64")
            narrow = self.one.emit(f"trunc i64 {small} to i32", "i32")
            em = self.emitter(width)
            return em.lane_index("i32").lt(em.splat(narrow, "i32")) if width > 1 else em.const("i1", True)

        self.module.declarations["@llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
        return self.write(self.here(), emit)


def align_of(dtype: DType) -> int:
    """The alignment of an element in bytes."""
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


def element_type(dtype: DType) -> str:
    """The LLVM type of an element in memory."""
    return f"[2 x {mem_type(dtype)}]" if dtype.kind == "c" else mem_type(dtype)


_MANGLED = {"float": "f32", "double": "f64", "half": "f16"}


def vector_name(n: int, type: str) -> str:
    """A vector type as names of LLVM's intrinsics spell it."""
    return f"v{n}{_MANGLED.get(type, type)}"

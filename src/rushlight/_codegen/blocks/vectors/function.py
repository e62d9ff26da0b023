"""The LLVM function of a block kernel under construction: nested scopes, loops, branches, memory for tiles.

Every loop body is a scope with lines of its own.  An instruction is written to the outermost scope where its operands
are known, so what a loop does not change is moved out of it by construction.  What reads memory says how far out it may
go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from rushlight._codegen.scalar import Emitter, ModuleText, Val

__all__ = ["Found", "Machine", "Scope", "VectorFunction"]


class Machine(NamedTuple):
    """The target machine as the emitter sees it: the bytes of a vector, whether it multiplies and adds in one
    instruction, and which matrix tiles it has.
    """

    vector_bytes: int = 64
    fma: bool = True
    amx_bf16: bool = False
    amx_i8: bool = False


class Found(NamedTuple):
    """An operand: `value` is a `Val`, or a pair of them for complex dtypes; scope number `depth` is the outermost where
    it is known.
    """

    value: Any
    depth: int

    @property
    def width(self) -> int:
        first = self.value[0] if isinstance(self.value, tuple) else self.value
        return int(first.em.width)


class Scope:
    """Lines of text, and the instructions among them that may be reused."""

    __slots__ = ("cse", "label", "lines")

    def __init__(self, label: str) -> None:
        self.label = label
        self.lines: list[str] = []
        self.cse: dict[str, str] = {}


class VectorFunction:
    """One function: scopes, and the vocabulary of control flow."""

    def __init__(self, machine: Machine, module: ModuleText) -> None:
        self.machine, self.module = machine, module
        self.one = Emitter(1, module, fma=machine.fma)
        self.body = self.one._body
        self.scopes = [Scope("entry")]
        self.allocas: list[str] = []
        self.labels = 0
        self.scratch_bytes = 0

    # ***** instructions *****

    @property
    def here(self) -> int:
        """The number of the innermost scope."""
        return len(self.scopes) - 1

    def emitter(self, width: int) -> Emitter:
        return self.one.at(width)

    def label(self, hint: str) -> str:
        self.labels += 1
        return f"{hint}{self.labels}"

    def write(self, depth: int, emit: Callable[[], Any]) -> Any:
        """Run `emit`, and put the instructions that it emits at the end of the scope `depth`."""
        body = self.body
        body.scopes = [s.cse for s in self.scopes[: depth + 1]]
        result = emit()
        lines = body.lines
        if lines:
            self.scopes[depth].lines.extend(lines)
            lines.clear()
        body.checks.clear()  # a division by zero gives an undefined number: lanes that are masked later may have one
        return result

    def scalar(self, text: str, type: str, depth: int) -> str:
        """One scalar instruction; its name."""
        return str(self.write(depth, lambda: self.one.emit(text, type)))

    def fresh_here(self, text: str) -> str:
        """One instruction in the innermost scope that is never shared: what reads memory that changes."""
        name = self.one.fresh()
        self.line(f"{name} = {text}")
        return name

    def line(self, text: str) -> None:
        """An instruction without a result, in the innermost scope."""
        self.scopes[-1].lines.append(f"  {text}")

    def intrinsic(self, name: str, result: str, *types: str) -> str:
        """The name of a declared function."""
        self.module.declarations.setdefault(f"@{name}", f"declare {result} @{name}({', '.join(types)})")
        return f"@{name}"

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """A scope whose instructions are not reused after it: they read memory that may change."""
        parent = self.scopes[-1]
        scope = Scope(parent.label)
        self.scopes.append(scope)
        yield
        self.scopes.pop()
        parent.lines.extend(scope.lines)
        parent.label = scope.label

    # ***** integers of 64 bits, which count and index; ints are literals *****

    def add(self, a: str | int, b: str | int, depth: int) -> str | int:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if b == 0:
            return a
        return b if a == 0 else self.scalar(f"add i64 {a}, {b}", "i64", depth)

    def times(self, a: str | int, n: int, depth: int) -> str | int:
        if isinstance(a, int):
            return a * n
        if n == 1:
            return a
        if n > 0 and n & (n - 1) == 0:
            return self.scalar(f"shl i64 {a}, {n.bit_length() - 1}", "i64", depth)
        return self.scalar(f"mul i64 {a}, {n}", "i64", depth)

    def divided(self, a: str | int, n: int, depth: int) -> tuple[str | int, str | int]:
        """The quotient and the remainder of a number that is not negative."""
        if isinstance(a, int):
            return divmod(a, n)
        if n == 1:
            return a, 0
        return self.scalar(f"udiv i64 {a}, {n}", "i64", depth), self.scalar(f"urem i64 {a}, {n}", "i64", depth)

    # ***** memory of the function's own *****

    def scratch(self, nbytes: int) -> str:
        """Memory for the length of the call, aligned to 64 bytes."""
        name = f"%t{len(self.allocas)}"
        start, size = self.scratch_bytes, (nbytes + 63) // 64 * 64
        self.allocas.append(f"  {name} = getelementptr i8, ptr %scratch, i64 {start}")
        self.scratch_bytes += size
        return name

    def slot(self, type: str) -> str:
        """A stack slot for one value."""
        name = f"%s{self.label('')}"
        self.allocas.append(f"  {name} = alloca {type}, align 64")
        return name

    # ***** control flow *****

    def loop(
        self,
        low: str | int,
        high: str | int,
        step: int,
        carries: Sequence[tuple[str, str]],
        body: Callable[[str | int, list[str]], Sequence[str]],
    ) -> list[str]:
        """`for i in range(low, high, step)`, carrying values given as (LLVM type, name); their names after it.

        A loop of known bounds turns at least once; one that turns once is no loop.
        """
        known = isinstance(low, int) and isinstance(high, int)
        if known and int(low) + step >= int(high):
            return list(body(low, [name for _, name in carries]))
        parent = self.scopes[-1]
        head, done, fresh = self.label("loop"), self.label("done"), self.one.fresh
        index, carried = fresh(), [fresh() for _ in carries]
        scope = Scope(head)
        self.scopes.append(scope)
        nexts = body(index, carried)
        self.scopes.pop()
        after, more = fresh(), fresh()
        before = parent.label
        if not known:
            test = fresh()
            parent.lines.append(f"  {test} = icmp slt i64 {low}, {high}")
            parent.lines.append(f"  br i1 {test}, label %{head}, label %{done}")
        else:
            parent.lines.append(f"  br label %{head}")
        parent.lines.append(f"{head}:")
        parent.lines.append(f"  {index} = phi i64 [ {low}, %{before} ], [ {after}, %{scope.label} ]")
        for (type, first), name, then in zip(carries, carried, nexts, strict=True):
            parent.lines.append(f"  {name} = phi {type} [ {first}, %{before} ], [ {then}, %{scope.label} ]")
        parent.lines.extend(scope.lines)
        parent.lines.append(f"  {after} = add nsw i64 {index}, {step}")
        parent.lines.append(f"  {more} = icmp slt i64 {after}, {high}")
        parent.lines.append(f"  br i1 {more}, label %{head}, label %{done}")
        parent.lines.append(f"{done}:")
        parent.label = done
        if known:
            return list(nexts)
        results = []
        for (type, first), then in zip(carries, nexts, strict=True):
            name = fresh()
            parent.lines.append(f"  {name} = phi {type} [ {first}, %{before} ], [ {then}, %{scope.label} ]")
            results.append(name)
        return results

    def branch(
        self,
        condition: str,
        then: Callable[[], Sequence[str]],
        otherwise: Callable[[], Sequence[str]],
        types: Sequence[str],
    ) -> list[str]:
        """`if`: the names of what either side gives, of `types`."""
        parent = self.scopes[-1]
        sides: list[tuple[str, Scope, Sequence[str]]] = []
        for body, hint in ((then, "then"), (otherwise, "else")):
            label = self.label(hint)
            scope = Scope(label)
            self.scopes.append(scope)
            given = body()
            self.scopes.pop()
            sides.append((label, scope, given))
        join = self.label("join")
        parent.lines.append(f"  br i1 {condition}, label %{sides[0][0]}, label %{sides[1][0]}")
        for label, scope, _ in sides:
            parent.lines += [f"{label}:", *scope.lines, f"  br label %{join}"]
        parent.lines.append(f"{join}:")
        parent.label = join
        results = []
        for k, type in enumerate(types):
            name = self.one.fresh()
            ways = ", ".join(f"[ {given[k]}, %{scope.label} ]" for _, scope, given in sides)
            parent.lines.append(f"  {name} = phi {type} {ways}")
            results.append(name)
        return results

    def repeat(
        self,
        carries: Sequence[tuple[str, str]],
        before: Callable[[list[str]], tuple[str, Sequence[tuple[str, str]]]],
        after: Callable[[list[str]], Sequence[str]],
    ) -> list[str]:
        """`while`: `before` of what is carried gives a condition and (type, name) pairs, `after` of those what is
        carried next.  The names that `before` gave last.
        """
        parent, fresh = self.scopes[-1], self.one.fresh
        head, turn, done = self.label("while"), self.label("turn"), self.label("done")
        carried = [fresh() for _ in carries]
        first = Scope(head)
        self.scopes.append(first)
        condition, given = before(carried)
        second = Scope(turn)
        self.scopes.append(second)
        nexts = after([name for _, name in given])
        self.scopes.pop()
        self.scopes.pop()
        entry = parent.label
        parent.lines += [f"  br label %{head}", f"{head}:"]
        for (type, start), name, then in zip(carries, carried, nexts, strict=True):
            parent.lines.append(f"  {name} = phi {type} [ {start}, %{entry} ], [ {then}, %{second.label} ]")
        parent.lines += [*first.lines, f"  br i1 {condition}, label %{turn}, label %{done}"]
        parent.lines += [f"{turn}:", *second.lines, f"  br label %{head}", f"{done}:"]
        parent.label = done
        return [name for _, name in given]

    def stop_if(self, bad: str, report: Callable[[], str]) -> None:
        """End the call with the status that `report` gives where a condition holds."""
        parent = self.scopes[-1]
        stop, on = self.label("stop"), self.label("on")
        scope = Scope(stop)
        self.scopes.append(scope)
        status = report()
        self.scopes.pop()
        parent.lines.append(f"  br i1 {bad}, label %{stop}, label %{on}, !prof !0")
        parent.lines += [f"{stop}:", *scope.lines, f"  store i32 {status}, ptr %status", "  br label %exit", f"{on}:"]
        parent.label = on
        self.module.definitions["!0"] = '!0 = !{!"branch_weights", i32 1, i32 100000}'


def splat_to(fn: VectorFunction, found: Found, width: int) -> Any:
    """The value in all lanes of a width."""
    if found.width == width:
        return found.value
    em = fn.emitter(width)

    def all_lanes(x: Val) -> Val:
        return em.splat(x, x.type) if not _literal(x) else em.val(f"splat ({x.type} {x})", x.type)

    def emit() -> Any:
        if isinstance(found.value, tuple):
            return tuple(all_lanes(part) for part in found.value)
        return all_lanes(found.value)

    return fn.write(found.depth, emit)


def _literal(x: Val) -> bool:
    return not x.name.startswith("%")

"""Index expressions and addresses as LLVM text: scalars for the terms that all lanes share, vectors for the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._codegen.llvm_scope import FunctionEmitter, element_type
from rushlight._codegen.scalar import Val
from rushlight._schedule.expressions import Buffer, Item
from rushlight._schedule.indexing import Data, Div, Ix, Var

if TYPE_CHECKING:
    from rushlight._codegen.llvm_values import Values

__all__ = ["Indices"]


class Indices:
    """Writes index expressions and addresses; `values` writes the elements that indices are read from."""

    __slots__ = ("fn", "values")

    def __init__(self, fn: FunctionEmitter, values: Values) -> None:
        self.fn, self.values = fn, values

    def ix(self, ix: Ix) -> str:
        """A scalar index expression.  The variable of the lanes stands for its first lane."""
        return self.sum_terms(self.sorted_terms(ix), ix.const)

    def sorted_terms(self, ix: Ix) -> list[tuple[int, Any, int]]:
        """Terms with their depths, those known in outer scopes first."""
        return sorted([(self.fn.depth(a.vars), a, c) for a, c in ix.terms], key=lambda t: (t[0], t[1].order))

    def sum_terms(self, terms: list[tuple[int, Any, int]], const: int) -> str:
        total: str | None = None if const == 0 else self.fn.slot(const)
        reached = 0
        for depth, atom, c in terms:
            reached = max(reached, depth)
            value = self.atom(atom)
            if c != 1:
                value = self.fn.scalar(f"mul nsw i64 {value}, {self.fn.slot(c)}", "i64", depth)
            total = value if total is None else self.fn.scalar(f"add nsw i64 {total}, {value}", "i64", reached)
        return total if total is not None else "0"

    def atom(self, atom: Any) -> str:
        kind = type(atom)
        if kind is Var:
            return self.fn.names[atom]
        depth = self.fn.depth(atom.vars)
        if kind is Data:
            return str(self.data(atom)[0])
        inner = self.ix(atom.ix)
        return self.fn.scalar(f"{'sdiv' if kind is Div else 'srem'} i64 {inner}, {self.fn.slot(atom.by)}", "i64", depth)

    def data(self, atom: Data) -> tuple[Val, int]:
        """A checked index from data, and its width."""
        depth = self.fn.depth(atom.vars)
        memo = self.fn.scopes[depth].memo
        known = memo.get(atom)
        if known is None:
            value, width = self.values.x(atom.value)
            guard = None
            if atom.guard is not None:
                width = max(width, self.values.x(atom.guard)[1])
                value, guard = self.values.wide(atom.value, width), self.values.wide(atom.guard, width)
            em = self.fn.emitter(width)
            size = self.fn.slot(atom.size)

            def emit() -> tuple[Val, Val]:
                n = em.splat(size, "i64")
                wrapped = em.select(value.lt(0), value + n, value) if atom.wraps else value
                bad = wrapped.ge(n, signed=False)
                return wrapped, bad if guard is None else bad & guard

            index, bad = self.fn.write(depth, emit)
            self.fn.check(depth, bad, width, atom.code, value, atom.dim, size)
            known = memo[atom] = (index, width)
        return known

    def varies(self, vars: frozenset[Any]) -> bool:
        """Whether an expression of `vars` differs between lanes."""
        lanes = self.fn.lanes
        if lanes is None or lanes.width == 1:
            return False
        if lanes.var in vars:
            return True
        return any(type(v) is Item and self.fn.results[v][1] > 1 for v in vars)

    def vector_ix(self, ix: Ix) -> Val:
        """An index expression with a value for each lane."""
        lanes = self.fn.lanes
        assert lanes is not None
        depth = self.fn.depth(ix.vars)
        memo = self.fn.scopes[depth].memo
        known = memo.get(("v", ix))
        if known is None:
            w = lanes.width
            em = self.fn.emitter(w)
            uniform = [(a, c) for a, c in ix.terms if a is lanes.var or not self.varies(a.vars)]
            base = self.ix(Ix(tuple(uniform), ix.const))
            total = self.fn.write(depth, lambda: em.splat(base, "i64"))
            for a, c in ix.terms:
                if not self.varies(a.vars):
                    continue
                steps = em.lane_index("i64") if a is lanes.var else self.vector_atom(a)
                factor = self.fn.slot(c)
                total = self.fn.write(depth, lambda: total + (steps if c == 1 else steps * em.splat(factor, "i64")))  # noqa: B023
            known = memo["v", ix] = total
        return known

    def vector_atom(self, atom: Any) -> Val:
        depth = self.fn.depth(atom.vars)
        if type(atom) is Data:
            return self.data(atom)[0]
        inner = self.vector_ix(atom.ix)
        em = self.fn.emitter(inner.em.width)
        by = self.fn.slot(atom.by)
        name = "sdiv" if type(atom) is Div else "srem"
        divisor = self.fn.write(depth, lambda: em.splat(by, "i64"))
        return self.fn.write(depth, lambda: em.emit(f"{name} {inner.vt} {inner}, {divisor}", "i64"))

    def pointer(self, buffer: Buffer, ix: Ix) -> str:
        """The address of an element, of the first lane's where lanes differ.  Terms of outer loops are added first."""
        pointer, t = self.fn.base(buffer), element_type(buffer.dtype)
        if ix.const:
            pointer = self.fn.scalar(f"getelementptr {t}, ptr {pointer}, i64 {self.fn.slot(ix.const)}", "ptr", 0)
        reached = 0
        for depth, atom, c in self.sorted_terms(ix):
            reached = max(reached, depth)
            value = self.atom(atom)
            if c != 1:
                value = self.fn.scalar(f"mul nsw i64 {value}, {self.fn.slot(c)}", "i64", depth)
            pointer = self.fn.scalar(f"getelementptr {t}, ptr {pointer}, i64 {value}", "ptr", reached)
        return pointer

    def pointers(self, buffer: Buffer, ix: Ix) -> str:
        """The addresses of all lanes."""
        lanes = self.fn.lanes
        assert lanes is not None
        t, w = element_type(buffer.dtype), lanes.width
        uniform = [(a, c) for a, c in ix.terms if not self.varies(a.vars)]
        varying = [(a, c) for a, c in ix.terms if self.varies(a.vars)]
        depth = self.fn.depth(ix.vars)
        if all(a is lanes.var for a, c in varying):
            base = self.pointer(buffer, ix)
            offsets = self.lane_offsets(varying[0][1] if varying else 0)
        else:
            base = self.pointer(buffer, Ix(tuple(uniform), ix.const))
            offsets = str(self.vector_ix(Ix(tuple(varying), 0)))
        return self.fn.scalar(f"getelementptr {t}, ptr {base}, <{w} x i64> {offsets}", "ptr", depth)

    def lane_offsets(self, step: int) -> str:
        assert self.fn.lanes is not None
        em = self.fn.emitter(self.fn.lanes.width)
        if step == 0:
            return str(em.const("i64", 0))
        factor = self.fn.slot(step)
        return str(self.fn.write(0, lambda: em.lane_index("i64") * em.splat(factor, "i64")))

    def spread_ix(self, ix: Ix, width: int) -> Val:
        """An index that all lanes share, as a vector."""
        index, em = self.ix(ix), self.fn.emitter(width)
        return self.fn.write(self.fn.depth(ix.vars), lambda: em.splat(index, "i64"))

"""Scalar expressions as LLVM text, each once per scope."""

from __future__ import annotations

from rushlight._codegen.llvm_index import Indices
from rushlight._codegen.llvm_memory import Loads
from rushlight._codegen.llvm_scope import FunctionEmitter, Value
from rushlight._codegen.loops import number_slot
from rushlight._codegen.scalar import UNROUNDED, Val, bfloat16_part, reg_type
from rushlight._schedule.expressions import Expr
from rushlight._schedule.indexing import Ix
from rushlight._types.dtype import BFLOAT16, FLOAT32, FLOAT64, INT64, DType

__all__ = ["Values"]


def is_bfloat16(x: Expr) -> bool:
    """Whether a float is always a NaN or a number that bfloat16 represents."""
    if x.kind == "const":
        return x.dtype is FLOAT32 and x.value in (0.0, 1.0, -1.0, float("inf"), float("-inf"))
    if x.kind != "op":
        return False
    prim, _ = x.value
    if prim == "convert":
        return x.dtype is FLOAT32 and x.args[0].dtype is BFLOAT16
    return (prim in UNROUNDED and all(map(is_bfloat16, x.args))) or (
        prim == "select" and all(map(is_bfloat16, x.args[1:]))
    )


class Values:
    """Writes each expression once, in the outermost scope where its operands are known."""

    __slots__ = ("fn", "indices", "loads")

    def __init__(self, fn: FunctionEmitter) -> None:
        self.fn = fn
        self.indices = Indices(fn, self)
        self.loads = Loads(fn, self.indices, self)

    def x(self, e: Expr) -> tuple[Value, int]:
        """The value of an expression and its width, which is 1 where all lanes share it."""
        if e.kind == "ref":
            item, part = e.value
            value, width = self.fn.results[item]
            return (value[part] if item.position is not None else value), width
        if e.kind == "const":
            return self.constant(e, 1), 1
        depth = self.fn.depth(e.vars)
        memo = self.fn.scopes[depth].memo
        known = memo.get(e)
        if known is None:
            known = memo[e] = getattr(self, "x_" + e.kind)(e, depth)
        return known

    def constant(self, e: Expr, width: int) -> Value:
        """A literal, or the value of a slot."""
        key = number_slot(e.value, e.dtype)
        if key is None:
            return self.fn.emitter(width).number(e.value, e.dtype)
        if isinstance(key, int):
            name = self.fn.slot_word(key, "i64")
            type_ = reg_type(e.dtype)
            if type_ != "i64":
                name = self.fn.scalar(f"trunc i64 {name} to {type_}", type_, 0)
        else:
            name = self.fn.slot_word(key, "double")
            type_ = reg_type(e.dtype)
            if type_ == "float":
                name = self.fn.scalar(f"fptrunc double {name} to float", "float", 0)
        return self.fn.write(0, lambda: self.fn.emitter(width).splat(name, type_))

    def wide(self, e: Expr, width: int) -> Value:
        """The value of an expression in `width` lanes."""
        value, have = self.x(e)
        return value if have == width else self.spread(e, width)

    def spread(self, e: Expr, width: int) -> Value:
        """A value that all lanes share, as a vector."""
        if e.kind == "const":
            return self.constant(e, width)
        value, have = self.x(e)
        assert have == 1, (e, have, width)
        depth = self.fn.depth(e.vars)
        em = self.fn.emitter(width)
        if isinstance(value, tuple):
            return self.fn.write(depth, lambda: tuple(em.splat(v, v.type) for v in value))
        return self.fn.write(depth, lambda: em.splat(value, value.type))

    def x_arg(self, e: Expr, depth: int) -> tuple[Value, int]:
        number, dtype = e.value, e.dtype
        word = len(self.fn.kernel.outputs) + len(self.fn.kernel.inputs)
        word += sum(2 if d.kind == "c" else 1 for d in self.fn.kernel.args[:number])

        def fetch(at: int, type: str) -> str:
            pointer = self.fn.scalar(f"getelementptr i64, ptr %bufs, i64 {at}", "ptr", 0)
            return self.fn.scalar(f"load {type}, ptr {pointer}, align 8", type, 0)

        t = reg_type(dtype)
        if dtype.kind in "fc":
            parts = []
            for k in range(2 if dtype.kind == "c" else 1):
                name = fetch(word + k, "double")
                parts.append(self.fn.one.val(self.round_to(name, dtype), t))
            return (tuple(parts) if dtype.kind == "c" else parts[0]), 1
        name = fetch(word, "i64")
        if t == "i1":
            name = self.fn.scalar(f"icmp ne i64 {name}, 0", "i1", 0)
        elif t != "i64":
            name = self.fn.scalar(f"trunc i64 {name} to {t}", t, 0)
        return self.fn.one.val(name, t), 1

    def round_to(self, name: str, dtype: DType) -> str:
        """A double argument, rounded to its dtype."""
        if dtype.name in ("float64", "complex128"):
            return name
        if dtype.wide is not dtype and dtype.name != "float16":
            value, part = self.fn.one.val(name, "double"), dtype.to_real()
            return str(self.fn.write(0, lambda: self.fn.one.op("convert", [value], [FLOAT64], part, {"dtype": part})))
        return self.fn.scalar(f"fptrunc double {name} to {reg_type(dtype)}", reg_type(dtype), 0)

    def x_op(self, e: Expr, depth: int) -> tuple[Value, int]:
        prim, params = e.value
        args = []
        for a in e.args:  # a comprehension would add a Python frame to each step of a long chain
            args.append(self.x(a))
        width = max(w for _, w in args)
        values = [v if w == width else self.spread(a, width) for a, (v, w) in zip(e.args, args, strict=True)]
        if width > 1:
            values = [v if a.kind != "const" else self.constant(a, width) for a, v in zip(e.args, values, strict=True)]
        em = self.fn.emitter(width)
        dtypes = [a.dtype for a in e.args]
        options = dict(params)
        if prim == "convert" and e.dtype is BFLOAT16 and is_bfloat16(e.args[0]):
            return self.fn.write(depth, lambda: bfloat16_part(values[0])), width
        if prim in ("convert", "bitcast"):
            options["dtype"] = e.dtype
        return self.fn.write(depth, lambda: em.op(prim, values, dtypes, e.dtype, options)), width

    def x_ix(self, e: Expr, depth: int) -> tuple[Value, int]:
        wide = self.indices.varies(e.vars)
        value = self.indices.vector_ix(e.value) if wide else self.fn.one.val(self.indices.ix(e.value), "i64")
        em = self.fn.emitter(value.em.width)
        if e.dtype is INT64:
            return value, em.width
        return self.fn.write(depth, lambda: em.op("convert", [value], [INT64], e.dtype, {"dtype": e.dtype})), em.width

    def x_inrange(self, e: Expr, depth: int) -> tuple[Value, int]:
        ix, lo, hi = e.value
        if self.indices.varies(e.vars):
            varying = [(a, c) for a, c in ix.terms if self.indices.varies(a.vars)]
            if (
                self.fn.lanes is not None
                and len(varying) == 1
                and varying[0][0] is self.fn.lanes.var
                and varying[0][1] in (1, 2)
            ):
                return self.lane_range(ix, lo, hi, varying[0][1], depth), self.fn.lanes.width
        value = (
            self.indices.vector_ix(ix) if self.indices.varies(e.vars) else self.fn.one.val(self.indices.ix(ix), "i64")
        )
        em = value.em
        low, span = self.fn.slot(lo), self.fn.slot(hi)

        def emit() -> Val:
            least, end = em.splat(low, "i64"), em.splat(span, "i64")
            return value.ge(least) & value.lt(end)

        return self.fn.write(depth, emit), em.width

    def lane_range(self, ix: Ix, lo: int, hi: int, step: int, depth: int) -> Val:
        """`lo <= ix < hi` for lanes that step by 1 or 2: a range of lanes, whose bounds are computed in scalars."""
        assert self.fn.lanes is not None
        em, one, w = self.fn.emitter(self.fn.lanes.width), self.fn.one, self.fn.lanes.width
        start, low, high = self.indices.ix(ix), self.fn.slot(lo), self.fn.slot(hi)
        self.fn.module.declarations["@llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
        self.fn.module.declarations["@llvm.smax.i64"] = "declare i64 @llvm.smax.i64(i64, i64)"

        def bound(n: str) -> Val:
            distance = one.emit(f"sub i64 {n}, {start}", "i64")
            if step == 2:
                distance = one.emit(f"ashr i64 {one.emit(f'add i64 {distance}, 1', 'i64')}, 1", "i64")
            some = one.emit(f"call i64 @llvm.smax.i64(i64 {distance}, i64 0)", "i64")
            few = one.emit(f"call i64 @llvm.smin.i64(i64 {some}, i64 {w})", "i64")
            return em.splat(one.emit(f"trunc i64 {few} to i32", "i32"), "i32")

        def emit() -> Val:
            lane = em.lane_index("i32")
            return lane.ge(bound(low)) & lane.lt(bound(high))

        return self.fn.write(depth, emit)

    def x_load(self, e: Expr, depth: int) -> tuple[Value, int]:
        buffer, ix = e.value
        guard = e.args[0] if e.args else None
        if e in self.fn.tiles:
            return self.loads.load_transposed(e), self.fn.lanes.width if self.fn.lanes else 1
        if not self.indices.varies(e.vars):
            if guard is None:
                return self.loads.load_at(self.indices.pointer(buffer, ix), buffer.dtype, depth), 1
            return self.loads.load_guarded(buffer, ix, guard, depth), 1
        lanes = self.fn.lanes
        assert lanes is not None
        mask = lanes.mask
        if guard is not None:
            holds = self.wide(guard, lanes.width)
            mask = holds if mask is None else self.fn.write(depth, lambda: holds & mask)
        varying = [(a, c) for a, c in ix.terms if self.indices.varies(a.vars)]
        if not varying and mask is not None:
            return self.loads.load_common(buffer, ix, mask, depth), 1
        if len(varying) == 1 and varying[0] == (lanes.var, 1):
            return self.loads.load_block(
                self.indices.pointer(buffer, ix), buffer.dtype, lanes.width, mask, depth
            ), lanes.width
        if len(varying) == 1 and varying[0] == (lanes.var, -1):
            return self.loads.load_backwards(buffer, ix, mask, depth), lanes.width
        if len(varying) == 1 and varying[0] == (lanes.var, 2):
            return self.loads.load_pairs(buffer, ix, mask, depth), lanes.width
        if guard is None and len(varying) == 1 and varying[0][0] is lanes.var:
            return self.loads.load_steps(buffer, ix, varying[0][1], depth), lanes.width
        return self.loads.gather(buffer, ix, mask, depth), lanes.width

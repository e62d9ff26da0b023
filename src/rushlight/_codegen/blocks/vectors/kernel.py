"""Block kernels as LLVM text for vectors.

`i32 name(ptr params, i64 first, i64 last, ptr grid, ptr report)` runs the programs from `first` to before `last`, x
fastest: `params` has a slot of 8 bytes for each parameter, `grid` three int32.  The result is 0, or the code of what
failed: then the report tells which line, and which program (see `REPORT`).

>>> from rushlight._codegen.blocks import BlockBuilder, Pointer, Tile
>>> from rushlight._codegen.blocks.vectors import Machine, vector_text
>>> from rushlight._types.dtype import FLOAT32
>>> b = BlockBuilder("double", [Tile(Pointer(FLOAT32))])
>>> at = b.offset(b.splat(b.params[0], (64,)), b.arange(0, 64))
>>> x = b.load(at)
>>> b.store(at, b.pointwise("add", x, x))
>>> "fadd <32 x float>" in vector_text(b.finish(), Machine(64)).text
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from rushlight._codegen.scalar import ModuleText
from rushlight._types.dtype import DType

from ..axes import axes_of
from ..ir import Kernel, Op, Region, Value
from ..passes import simplified
from .function import Found, Machine, VectorFunction
from .groups import Group, Groups, Keep
from .memory import Buffer, memory_type, register_type
from .others import Others
from .pending import PendingLoads
from .plan import LAZY, Plan, plan_of
from .products import Products
from .values import ZERO, Dim, Values

__all__ = ["ASSERTION", "BOUNDS", "MEMORY", "REPORT", "VectorText", "vector_text"]

ASSERTION, BOUNDS, MEMORY = 1, 2, 3  # what a kernel returns where it fails
# Words of 8 bytes of a report: code, number of the operation in `VectorText.sites`, address, program's x, y, z, bytes;
# then, for checked kernels, how many ranges of memory there are, and begin and end of each.
REPORT = {"code": 0, "site": 1, "address": 2, "x": 3, "y": 4, "z": 5, "bytes": 6, "ranges": 7}


class VectorText(NamedTuple):
    """LLVM text that defines `name`, and the operations that its reports tell of by number."""

    name: str
    text: str
    sites: tuple[Op, ...]


def vector_text(kernel: Kernel, machine: Machine, *, checked: bool = False, name: str = "") -> VectorText:
    """The text of a kernel; `checked`: every access is held against the ranges of memory in the report."""
    return _KernelEmitter(simplified(kernel), machine, checked, name or f"rl_block_{kernel.name}").text()


class _KernelEmitter:
    def __init__(self, kernel: Kernel, machine: Machine, checked: bool, name: str) -> None:
        self.kernel, self.name = kernel, name
        self.fn = fn = VectorFunction(machine, ModuleText())
        plan, costs = plan_of(kernel)
        self.plan: Plan = plan
        self.values = Values(fn, axes_of(kernel))
        self.groups = Groups(self.values, plan, costs)
        self.others = Others(self.values, self.groups, self)
        self.products = Products(self.values, self.groups)
        if checked:
            self.values.check = self.others.check
        self.sites: list[Op] = []
        self.group: Group | None = None
        self.after: set[Op] = set()  # loads behind a store of the open group
        self.pending = PendingLoads(kernel, self.plan, self.values.buffers)
        self.targets: dict[Value, tuple[Value, Buffer]] = {}  # where a loop wants what its body gives
        self.copies: dict[tuple[Value, Value], Buffer] = {}
        self.users: dict[Value, list[Op]] = {}
        for op in kernel.body.walk():
            for operand in op.operands:
                self.users.setdefault(operand, []).append(op)

    # ***** the function *****

    def text(self) -> VectorText:
        fn = self.fn
        for i, param in enumerate(self.kernel.params):
            type = memory_type(param.type.element)
            slot = fn.scalar(f"getelementptr i64, ptr %params, i64 {i}", "ptr", 0)
            raw = fn.scalar(f"load {type}, ptr {slot}, align 8", "raw", 0)
            value = fn.write(0, partial(self.values.memory.from_memory, raw, param.type.element, 1))
            self.values.scalars[param] = Found(value, 0)
        self.sizes = [self.grid(axis) for axis in range(3)]
        fn.loop("%first", "%last", 1, (), self.program)
        fn.line("br label %exit")
        entry, bits = fn.scopes[0].lines, 8 * fn.machine.vector_bytes
        head = [
            f'define i32 @{self.name}({_PARAMS}) nounwind "prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}" {{',
            "entry:",
            "  %status = alloca i32",
            "  store i32 0, ptr %status",
        ]
        ends = ["exit:", "  %result = load i32, ptr %status"]
        if fn.scratch_bytes > _STACK:
            fn.module.declarations["@aligned_alloc"] = "declare noalias ptr @aligned_alloc(i64, i64)"
            fn.module.declarations["@free"] = "declare void @free(ptr)"
            head += [f"  %scratch = call ptr @aligned_alloc(i64 64, i64 {fn.scratch_bytes})"]
            head += ["  %none = icmp eq ptr %scratch, null", "  br i1 %none, label %poor, label %rich"]
            head += ["poor:", f"  ret i32 {MEMORY}", "rich:"]
            entry = [line.replace("%entry ]", "%rich ]") for line in entry]
            ends.append("  call void @free(ptr %scratch)")
        elif fn.scratch_bytes:
            head.append(f"  %scratch = alloca [{fn.scratch_bytes} x i8], align 64")
        text = "\n".join([str(fn.module), *head, *fn.allocas, *entry, *ends, "  ret i32 %result", "}", ""])
        return VectorText(self.name, text, tuple(self.sites))

    def grid(self, axis: int) -> str:
        slot = self.fn.scalar(f"getelementptr i32, ptr %grid, i64 {axis}", "ptr", 0)
        return self.fn.scalar(f"load i32, ptr {slot}, align 4", "i32", 0)

    def program(self, number: str | int, _: list[str]) -> list[str]:
        """The body: one program."""
        fn = self.fn
        width, height = (fn.scalar(f"zext i32 {s} to i64", "i64", 0) for s in self.sizes[:2])
        depth = fn.here
        row = fn.scalar(f"udiv i64 {number}, {width}", "i64", depth)
        places = [
            fn.scalar(f"urem i64 {number}, {width}", "i64", depth),
            fn.scalar(f"urem i64 {row}, {height}", "i64", depth),
        ]
        places.append(fn.scalar(f"udiv i64 {row}, {height}", "i64", depth))
        self.places = [fn.scalar(f"trunc i64 {p} to i32", "i32", depth) for p in places]
        self.values.floor = depth
        self.region(self.kernel.body)
        return []

    # ***** regions *****

    def region(self, region: Region) -> None:
        """The operations of a region, but for its yield."""
        for op in region.ops[:-1]:
            self.op(op)
        self.flush()

    def flush(self) -> None:
        """Write the group that is open."""
        group, self.group = self.group, None
        after, self.after = self.after, set()
        if group is None:
            return
        self.secure([load.result for load in self.pending.endangered(group.stores) if load not in after])
        self.groups.write(group)

    def secure(self, values: Sequence[Value]) -> None:
        """Keep loaded tiles in front of stores that may overwrite what they read."""
        for shape in dict.fromkeys(value.shape for value in values):
            before = Group(shape)
            same = [value for value in values if value.shape == shape]
            before.keeps += [Keep(v, self.groups.allocate(v.type.element, shape)) for v in same]
            self.groups.write(before)

    def op(self, op: Op) -> None:
        self.pending.reach(op)
        if op.kind in LAZY:
            if all(not v.shape for v in op.results) and op.kind not in ("join", "split", "arange"):
                self.scalar(op)
                return
            if op.kind == "split" and not op.results[0].shape:
                self.halves(op)
                return
            if op.kind == "load" and self.group is not None and self.group.stores:
                self.after.add(op)
            for value in op.results:
                if value in self.plan.kept:
                    self.keep(value)
            return
        name = f"do_{op.kind}"
        handler: Callable[[Op], None] | None = getattr(self, name, None) or getattr(self.others, name, None)
        if handler is None:
            raise NotImplementedError(f"the block operation {op.kind} has no form in vectors")
        handler(op)

    def scalar(self, op: Op) -> None:
        """An operation on scalars is written at once."""
        values, result = self.values, op.result
        if op.kind == "program_id":
            values.scalars[result] = Found(self.fn.one.val(self.places[op.attributes["axis"]], "i32"), 1)
            return
        if op.kind == "num_programs":
            values.scalars[result] = Found(self.fn.one.val(self.sizes[op.attributes["axis"]], "i32"), 0)
            return
        self.settle(op.operands)
        if op.kind == "load" and self.group is not None and self.group.stores:
            self.flush()
        if op.kind == "load" or any(v.shape for v in op.operands):
            self.read(op)
            return
        values.scalars[result] = values.scalar(op)

    def read(self, op: Op) -> None:
        """A scalar that is read from memory."""
        fn, values, floor = self.fn, self.values, self.values.floor
        buffers = [self.tile(v) for v in op.operands if v.shape]  # one element of a tile as a scalar
        with fn.isolated():
            values.floor = fn.here
            found = values.scalar(op) if not buffers else values.stored(buffers[0], (ZERO,) * len(buffers[0].strides))
        values.floor = floor
        values.scalars[op.result] = Found(found.value, fn.here)

    def halves(self, op: Op) -> None:
        """The two elements of a tile as scalars."""
        buffer, floor = self.tile(op.operands[0]), self.values.floor
        with self.fn.isolated():
            self.values.floor = self.fn.here
            found = [self.values.stored(buffer, (Dim(k),)) for k in (0, 1)]
        self.values.floor = floor
        for result, half in zip(op.results, found, strict=True):
            self.values.scalars[result] = Found(half.value, self.fn.here)

    def settle(self, operands: Sequence[Value]) -> None:
        """Write the open group if it is to make one of these."""
        if self.group is not None and (self.groups.scalars(operands) | set(operands)) & self.group.pending:
            self.flush()

    # ***** sinks *****

    def join(self, shape: tuple[int, ...], operands: Sequence[Value], op: Op | None) -> Group:
        """The open group where a sink fits, or a new one."""
        if self.group is None or not self.groups.joins(self.group, shape, operands, op, self.after):
            self.flush()
            self.group = Group(shape)
        for operand in operands:
            for leaf, _ in self.groups.leaves(operand, tuple(range(len(operand.shape))), op is None):
                if leaf.op is not None and leaf.op.kind == "load" and leaf not in self.values.buffers:
                    self.group.loads.add(leaf.op)
        return self.group

    def keep(self, value: Value) -> None:
        """Keep a tile in memory from here on."""
        if value in self.values.buffers:
            return
        group = self.join(value.shape, [value], None)
        element, shape = value.type.element, value.shape
        last = self.groups.near_dim(value)
        group.keeps.append(Keep(value, self.groups.allocate(element, shape, last)))
        group.pending.add(value)

    def tile(self, value: Value) -> Buffer:
        """The memory of a tile, which is made now if it is not there."""
        if value not in self.values.buffers:
            self.settle([value])
        if value not in self.values.buffers:
            self.keep(value)
            self.flush()
        return self.values.buffers[value]

    def assign(self, value: Value, buffer: Buffer) -> None:
        """Write a tile to a buffer."""
        group = self.join(value.shape, [value], None)
        group.keeps.append(Keep(value, buffer, lambda found: found))

    def do_store(self, op: Op) -> None:
        shape = op.operands[0].shape
        if not shape:
            self.settle(op.operands)
            self.flush()
            with self.fn.isolated():
                self.groups.prepared(op, ())()
            return
        if self.group is not None and self.waits(op, self.group):
            self.flush()
        group = self.join(shape, op.operands, op)
        group.stores.append(op)

    def waits(self, store: Op, group: Group) -> bool:
        """Whether a load that a store may overwrite can only be read when the open group is written."""
        return any(self.groups.scalars(load.operands) & group.pending for load in self.pending.endangered([store]))

    def do_reduce(self, op: Op) -> None:
        self.settle([v for v in _free(op) if not v.shape])
        group = self.join(op.operands[0].shape, op.operands, op)
        group.axis = op.attributes["axis"]
        group.reduces.append(op)
        group.pending.update(op.results)

    def do_dot(self, op: Op) -> None:
        self.flush()
        self.products.dot(op, self.in_place(op))

    def in_place(self, op: Op) -> Buffer | None:
        """The buffer of a loop's tile that a product may add to: nobody else wants what was there, and the product is what
        the loop carries on.
        """
        target = self.targets.get(op.result)
        if target is None:
            return None
        param, buffer = target
        c, users = op.operands[2], self.users
        if len(users.get(op.result, ())) != 1:
            return None
        chain = c
        while chain is not param:
            made = chain.op
            if made is None or made.kind != "pointwise" or len(users[chain]) != 1 or chain in self.plan.kept:
                return None
            inner = [
                v
                for v in made.operands
                if v is param or (v.op is not None and v.op.kind == "pointwise" and param in v.op.operands)
            ]
            if len(inner) != 1:
                return None
            (chain,) = inner
        return buffer if len(users[param]) == 1 else None

    # ***** control flow *****

    def do_for(self, op: Op) -> None:
        self.settle(op.operands)
        self.flush()
        fn, values, body = self.fn, self.values, op.regions[0]
        self.packed_ahead(op)
        bounds = [values.scalars[v] for v in op.operands[:3]]
        index, carried, firsts = body.params[0], body.params[1:], op.operands[3:]
        buffers = self.carried(carried, firsts)
        type = register_type(index.type.element)
        signed = index.dtype.is_signed
        scalars = [(p, f) for p, f in zip(carried, firsts, strict=True) if not p.shape]
        low, high, step = (str(b.value) for b in bounds)
        carries = [(type, low), *(c for _, f in scalars for c in self.flat(f))]
        # how many turns: the comparison of the bounds is that of their dtype, and the count never overflows
        less = f"icmp {'slt' if signed else 'ult'} {type} {low}, {high}"

        def turn(place: str | int, names: list[str]) -> list[str]:
            values.scalars[index] = Found(fn.one.val(names[0], type), fn.here)
            self.named([p for p, _ in scalars], names[1:])
            floor, values.floor = values.floor, fn.here
            outer, self.targets = self.targets, self.ends(body.yielded, carried, buffers)
            self.region(body)
            self.carry(body.yielded, carried, buffers)
            self.targets, values.floor = outer, floor
            given = [n for p, y in zip(carried, body.yielded, strict=True) if not p.shape for _, n in self.flat(y)]
            return [fn.scalar(f"add {type} {names[0]}, {step}", type, fn.here), *given]

        count = self.turns(low, high, step, type, signed, less)
        names = fn.loop(0, count, 1, carries, turn)
        self.named([r for r in op.results if not r.shape], names[1:])
        for result, param in zip(op.results, carried, strict=True):
            if result.shape:
                values.buffers[result] = buffers[param]

    def turns(self, low: str, high: str, step: str, type: str, signed: bool, less: str) -> str:
        """How often a loop turns."""
        fn = self.fn
        wide = "i64"
        extend = "sext" if signed else "zext"
        names = [
            n if type == wide or not n.startswith("%") else fn.fresh_here(f"{extend} {type} {n} to i64")
            for n in (low, high, step)
        ]
        span = fn.fresh_here(f"sub i64 {names[1]}, {names[0]}")
        up = fn.fresh_here(f"add i64 {span}, {names[2]}")
        full = fn.fresh_here(f"sub i64 {up}, 1")
        count = fn.fresh_here(f"udiv i64 {full}, {names[2]}")
        any_ = fn.fresh_here(less)
        return fn.fresh_here(f"select i1 {any_}, i64 {count}, i64 0")

    def carried(self, params: Sequence[Value], firsts: Sequence[Value]) -> dict[Value, Buffer]:
        """Memory for the tiles that a loop carries, with what they are at first."""
        buffers = {}
        for param, first in zip(params, firsts, strict=True):
            if param.shape:
                buffers[param] = self.groups.allocate(param.type.element, param.shape)
                self.assign(first, buffers[param])
        self.flush()
        self.values.buffers.update(buffers)
        return buffers

    def ends(
        self, yielded: Sequence[Value], params: Sequence[Value], buffers: dict[Value, Buffer]
    ) -> dict[Value, tuple[Value, Buffer]]:
        """Where a loop wants what its body gives."""
        return {y: (p, buffers[p]) for y, p in zip(yielded, params, strict=True) if p.shape}

    def carry(self, yielded: Sequence[Value], params: Sequence[Value], buffers: dict[Value, Buffer]) -> None:
        """Put what a turn gives where the next turn finds it.  What reads the tile of another, or its own at other
        places, is computed before any is written.
        """
        pairs = [(y, p) for y, p in zip(yielded, params, strict=True) if p.shape and y is not p]
        pairs = [(y, p) for y, p in pairs if self.values.buffers.get(y) != buffers[p]]
        tiles = {p for p in params if p.shape}
        for y, p in pairs:
            here = tuple(range(len(y.shape)))
            reads = self.groups.leaves(y, here, True) if y not in self.values.buffers else [(y, here)]
            if any(leaf in tiles and (leaf is not p or places != here) for leaf, places in reads):
                copy = self.groups.allocate(y.type.element, y.shape)
                if y in tiles:  # another's tile itself
                    self.copies[y, p] = copy
                    self.assign(y, copy)
                else:
                    self.keep(y)
        self.flush()
        for y, p in pairs:
            copy_of = self.copies.pop((y, p), None)
            if copy_of is not None:
                self.copy(copy_of, buffers[p], p)
            else:
                self.assign(y, buffers[p])
        self.flush()

    def copy(self, source: Buffer, target: Buffer, like: Value) -> None:
        """A tile from one buffer to another."""
        value = Value(like.type)
        self.values.buffers[value] = source
        self.assign(value, target)

    def flat(self, value: Value) -> list[tuple[str, str]]:
        """A scalar as LLVM values, two for complex ones."""
        found = self.values.scalars[value].value
        parts = found if isinstance(found, tuple) else (found,)
        return [(register_type(value.type.element), str(p)) for p in parts]

    def named(self, targets: Sequence[Value], names: Sequence[str], depth: int | None = None) -> None:
        """Scalars under their names."""
        at, fn = 0, self.fn
        for value in targets:
            element = value.type.element
            type, depth_ = register_type(element), fn.here if depth is None else depth
            if isinstance(element, DType) and element.kind == "c":
                self.values.scalars[value] = Found(
                    (fn.one.val(names[at], type), fn.one.val(names[at + 1], type)), depth_
                )
                at += 2
            else:
                self.values.scalars[value] = Found(fn.one.val(names[at], type), depth_)
                at += 1

    def do_if(self, op: Op) -> None:
        self.settle(op.operands)
        self.flush()
        values, fn = self.values, self.fn
        self.packed_ahead(op)
        buffers = {r: self.groups.allocate(r.type.element, r.shape) for r in op.results if r.shape}
        scalars = [r for r in op.results if not r.shape]

        def side(region: Region) -> Callable[[], list[str]]:
            def write() -> list[str]:
                floor, values.floor = values.floor, fn.here
                self.region(region)
                for result, y in zip(op.results, region.yielded, strict=True):
                    if result.shape:
                        self.assign(y, buffers[result])
                self.flush()
                values.floor = floor
                return [
                    n for r, y in zip(op.results, region.yielded, strict=True) if not r.shape for _, n in self.flat(y)
                ]

            return write

        condition = str(values.scalars[op.operands[0]].value)
        types = [t for r in scalars for t in _types(r)]
        names = fn.branch(condition, side(op.regions[0]), side(op.regions[1]), types)
        self.named(scalars, names)
        values.buffers.update(buffers)

    def do_while(self, op: Op) -> None:
        self.settle(op.operands)
        self.flush()
        values, fn = self.values, self.fn
        self.packed_ahead(op)
        first, second = op.regions
        buffers = self.carried(first.params, op.operands)
        scalars = [(p, f) for p, f in zip(first.params, op.operands, strict=True) if not p.shape]
        given = first.yielded[1:]
        outer, self.targets = self.targets, {}
        floor = values.floor

        def before(names: list[str]) -> tuple[str, list[tuple[str, str]]]:
            self.named([p for p, _ in scalars], names)
            values.floor = fn.here
            self.region(first)
            for value, param in zip(given, second.params, strict=True):
                if value.shape:
                    made = self.groups.allocate(value.type.element, value.shape)
                    self.assign(value, made)
                    held[param] = made
            self.flush()
            condition = str(values.scalars[first.yielded[0]].value)
            return condition, [pair for v in given if not v.shape for pair in self.flat(v)]

        def after(names: list[str]) -> list[str]:
            values.floor = fn.here
            values.buffers.update(held)
            self.named([p for p in second.params if not p.shape], names)
            self.region(second)
            self.carry(second.yielded, first.params, buffers)
            return [
                n for p, y in zip(first.params, second.yielded, strict=True) if not p.shape for _, n in self.flat(y)
            ]

        held: dict[Value, Buffer] = {}
        names = fn.repeat([c for _, f in scalars for c in self.flat(f)], before, after)
        self.targets, values.floor = outer, floor
        self.named([r for r in op.results if not r.shape], names)
        for result, param in zip(op.results, second.params, strict=True):
            if result.shape:
                values.buffers[result] = held[param]

    def packed_ahead(self, op: Op) -> None:
        """Pack the operands of products in a loop that the loop does not make."""
        inside = {v for r in op.regions for o in r.walk() for v in o.results}
        inside |= {p for r in op.regions for p in r.params}
        inside |= {p for r in op.regions for o in r.walk() for q in o.regions for p in q.params}
        if op.kind == "if":
            return
        for region in op.regions:
            for inner in region.walk():
                if inner.kind == "dot":
                    self.products.ahead(inner, inside)

    # ***** the others *****

    def site(self, op: Op) -> int:
        """The number of an operation in reports."""
        if op not in self.sites:
            self.sites.append(op)
        return self.sites.index(op)

    def do_barrier(self, op: Op) -> None:
        self.flush()

    def do_assume(self, op: Op) -> None:
        pass


_STACK = 1 << 20  # bytes of tiles, above which they are allocated
_PARAMS = "ptr noundef %params, i64 noundef %first, i64 noundef %last, ptr noundef %grid, ptr noundef %report"


def _types(value: Value) -> list[str]:
    element = value.type.element
    type = register_type(element)
    return [type, type] if isinstance(element, DType) and element.kind == "c" else [type]


def _free(op: Op) -> set[Value]:
    """The values of around it that an operation's regions use."""
    own = {p for r in op.regions for p in r.params} | {v for r in op.regions for o in r.walk() for v in o.results}
    return {v for r in op.regions for o in r.walk() for v in o.operands if v not in own}

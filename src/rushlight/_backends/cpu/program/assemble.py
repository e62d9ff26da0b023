"""From a graph to its program: scheduled, each group a loop nest, each nest a kernel of a step.

program = compile_graph(graph, layouts, target=host())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cpu.epilogue.rectangle import Epilogue, Prologue
from rushlight._backends.cpu.program.steps import (
    MAX_FRESH,
    ExternStep,
    KernelStep,
    Operand,
    Program,
    RectangleStep,
    Step,
)
from rushlight._codegen.loops import Kernel, Loop, Section, Split
from rushlight._codegen.nest import Nest
from rushlight._codegen.scans import SpecialNest
from rushlight._schedule.costs import facts_of
from rushlight._schedule.expressions import Buffer, Item, Store, identity, substitute
from rushlight._schedule.grouping import MANY_ROWS
from rushlight._schedule.groups import Group, Stage
from rushlight._schedule.indexing import ZERO, Var
from rushlight._schedule.inline import Source
from rushlight._schedule.interleaved import apart
from rushlight._schedule.placing import Copy, Extern, Special
from rushlight._schedule.policy import PIECE, Target
from rushlight._schedule.prepare import as_words, prepared
from rushlight._schedule.schedule import Schedule
from rushlight._types.dtype import INT64, DType
from rushlight._types.layout import contiguous_strides, numel
from rushlight._types.symbols import truncated

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Value

__all__ = ["compile_graph"]

MOST_JOINED = 16  # operands of a concatenation that one kernel stores
_MOST_PARTS = 512  # that a long reduction is cut into


def compile_graph(
    graph: Graph, layouts: Sequence[Sequence[int] | None], out_strides: Sequence[Sequence[int] | None] | None = None, *,
    target: Target, aliases: Mapping[int, int] | None = None, overlaps: Mapping[int, Sequence[int]] | None = None,
) -> Program:  # fmt: skip
    """The program that computes `graph` on `target`.

    `layouts` gives each tensor input's strides in elements, None for a scalar input.  `out_strides` does the same for outputs
    (None: row-major).  `aliases[output] = input` has an output written into that input's memory, with the input's layout;
    `overlaps[output]` names further inputs that may share that memory.  NotImplementedError names a primitive without a lowering.
    """
    graph = as_words(apart(prepared(graph, target.library), layouts), layouts)
    schedule = Schedule(graph, layouts, out_strides, dict(aliases or {}), dict(overlaps or {}), target).run()
    return Assembler(schedule).program()


class Assembler:
    """Turns the groups of a schedule into steps."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.target = schedule, schedule.target
        self.steps: list[Step] = []
        self.places: dict[Buffer, int] = {b: k for k, b in enumerate(schedule.inputs)}
        # words, of which a complex number has two
        self.n_inputs, self.n_args = len(schedule.inputs), sum(2 if d.kind == "c" else 1 for d in schedule.args)
        self.next_place = self.n_inputs + self.n_args
        self.single = len(schedule.groups) == 1

    def program(self) -> Program:
        for group in self.schedule.groups:
            if isinstance(group, Group):
                self.group(group)
            elif isinstance(group, Special):
                self.special(group)
            elif isinstance(group, Extern):
                self.extern(group)
            else:
                self.copy(group)
        results = [self.places.get(b, -1) for b in self.schedule.outputs]
        return Program(self.schedule.graph, self.steps, results, self.n_inputs, self.n_args, self.schedule.notes)

    # ***** kernels *****

    def kernel(self, sections: list[Section], stages: Sequence[Stage]) -> None:
        """Add the step that runs `sections`, which do `stages`."""
        facts = facts_of(stages)
        touched = list(dict.fromkeys(b for b, _, _ in facts.accesses))
        fresh = [b for b in touched if b not in self.places]
        if self.single:
            fresh.sort(
                key=lambda b: (
                    self.schedule.outputs.index(b) if b in self.schedule.outputs else len(self.schedule.outputs)
                )
            )
        if len(fresh) > MAX_FRESH:
            self.allocate(fresh[MAX_FRESH:])
            fresh = fresh[:MAX_FRESH]
            self.single = False
        known = self.schedule.inputs if self.single else [b for b in touched if b in self.places]
        kernel = Kernel(fresh, list(known), self.schedule.args, sections)
        words = [self.places[b] for b in known] + [self.n_inputs + k for k in range(self.n_args)]
        sizes = [self.schedule.sizes[b] * b.dtype.itemsize for b in fresh]
        for b in fresh:
            self.places[b] = self.next_place
            self.next_place += 1
        moved = sum(self.schedule.sizes[b] * b.dtype.itemsize for b in touched)
        self.steps.append(KernelStep(kernel, sizes, words, moved > 1 << 20, self.target))

    def allocate(self, buffers: Sequence[Buffer]) -> None:
        """A step that only makes memory: one call of a kernel can allocate no more than a few outputs."""
        sizes = [self.schedule.sizes[b] * b.dtype.itemsize for b in buffers]
        for b in buffers:
            self.places[b] = self.next_place
            self.next_place += 1
        self.steps.append(ExternStep("allocate", [], [], sizes, {}))

    def group(self, group: Group) -> None:
        if group.joins and len(group.stages) > MOST_JOINED:
            self.joined(group)
            return
        nest = Nest(group, self.target)
        if group.reductions and self.wants_two_stages(nest):
            self.single = False
            self.two_stages(group, nest)
            return
        self.kernel(nest.sections(), nest.stages)

    def joined(self, group: Group) -> None:
        """The stores of many operands that are joined: a power of two of them at a time, so that how many there are makes no other kernels."""
        self.single = False
        stages = group.stages
        while stages:
            count = min(1 << len(stages).bit_length() - 1, MOST_JOINED)
            part = Group(group.held)
            part.builder, part.shape, part.stages = group.builder, group.shape, stages[:count]
            nest = Nest(part, self.target)
            self.kernel(nest.sections(), nest.stages)
            stages = stages[count:]

    def wants_two_stages(self, nest: Nest) -> bool:
        """Whether the reduced dims must be cut, because there are too few rows to occupy the threads."""
        stages = [s for s in nest.stages if s.loops]
        if len(stages) != 1 or not stages[0].items or stages[0].stores:
            return False
        rows = numel([v.size for v in nest.outer])
        if rows * stages[0].work <= 2 * PIECE:
            return False
        if self.tall(nest, rows):
            return True
        if rows >= 4096:
            return False
        return rows < MANY_ROWS or stages[0].work >= 1024 and self.lane_blocks(nest) < MANY_ROWS

    def tall(self, nest: Nest, rows: int) -> bool:
        """Whether long columns side by side are reduced that the caches do not hold: memory is then better read in blocks of whole rows.

        A stripe of columns alone would take a kilobyte from each row of memory, and every row from another page.
        """
        stage = next(s for s in nest.stages if s.loops)
        size = max((b.dtype.itemsize for b, _, _ in facts_of([stage]).accesses), default=0)
        cache = self.target.l2_bytes
        if stage.work < 128 or not 2048 <= rows * size <= cache // 2 or rows * stage.work * size < 4 * cache:
            return False
        if any(i.position for i in stage.items):
            return False
        nest = nest.shadow()
        nest.split_dims()
        nest.order_dims()
        nest.merge_dims()
        loops = [v for s in nest.stages for v in s.loops]
        return len(nest.outer) == 1 == len(loops) and nest.lanes_over_rows()

    def rows_in_turn(self, nest: Nest, first: Stage, partial: Stage) -> Section:
        """Reduce row after row of memory into a row of results, which stays in the cache."""
        facts, lane = facts_of([first]), nest.outer[0]
        width, unroll = nest.shape_of_lanes(facts)
        starts, steps = [], []
        for item, store in zip(first.items, partial.stores, strict=True):
            starts.append(Store(store.buffer, store.ix, nest.builder.const(identity(item.op, item.dtype), item.dtype)))
            steps.append(Store(store.buffer, store.ix, item.value, item.op))
        body: list[Any] = [Loop(lane, starts, lanes=True), Loop(first.loops[0], [Loop(lane, steps, lanes=True)])]
        return Section(body, None, width, unroll)

    def lane_blocks(self, nest: Nest) -> int:
        """How many pieces the rows alone would give; found on a shadow of the nest, which stays as it is."""
        nest = nest.shadow()
        nest.split_dims()
        nest.order_dims()
        nest.merge_dims()
        rows = numel([v.size for v in nest.outer])
        if not nest.lanes_over_rows():
            return rows
        width, unroll = nest.shape_of_lanes(facts_of(nest.stages))
        return -(-rows // (width * unroll))

    def two_stages(self, group: Group, nest: Nest) -> None:
        """Reduce pieces of the reduced dims into a temporary, then reduce that."""
        b, tall = group.builder, self.tall(nest, group.rows)
        first = next(s for s in group.stages if s.loops)
        kept = [s for s in group.stages if s is not first]
        row = group.row_ix
        nest = Nest(group, self.target)
        partial = Stage([])
        nest.stages = [first, partial]
        piece = Var(
            _MOST_PARTS, "piece"
        )  # no more than there will be: what is stored for each counts when lanes are chosen
        temporaries = []
        for item in first.items:
            for part, dtype in _parts(item):
                buffer = Buffer(f"partial{len(self.schedule.sizes)}", dtype, "temporary")
                temporaries.append((item, part, buffer))
                partial.stores.append(Store(buffer, piece.ix * group.rows + row, b.ref(item, part)))
        nest.split_dims()
        nest.order_dims()
        nest.merge_dims()
        section = self.rows_in_turn(nest, first, partial) if tall else nest.rows()
        work = facts_of([first]).cost * first.work * group.rows
        wanted = truncated(min(max(work // (2 * PIECE), 2), _MOST_PARTS))
        section.split = Split(*_cut(first.loops, wanted), piece)
        pieces = section.pieces
        for _, _, buffer in temporaries:
            self.schedule.sizes[buffer] = pieces * group.rows
        self.kernel([section], nest.stages)
        self.second_stage(group, first.items, kept, temporaries, pieces)

    def second_stage(
        self, group: Group, items: list[Item], kept: list[Stage], temporaries: list[Any], pieces: int
    ) -> None:
        b = group.builder
        final = Group(group.held)
        final.builder, final.rows = b, group.rows
        final.row = Var(group.rows, "row") if group.row is not None else None
        over = Var(pieces, "piece")
        stage = Stage([over])
        at = over.ix * group.rows + final.row_ix
        loads = {(item, part): b.load(buffer, at) for item, part, buffer in temporaries}
        renamed: dict[Item, Item] = {}
        for item in items:
            position = loads.get((item, 0)) if item.position is not None else None
            value = loads[item, 1] if item.position is not None else loads[item, 0]
            renamed[item] = Item(item.op, value, item.dtype, position)
        stage.items = list(renamed.values())
        mapping = {group.row: final.row_ix} if group.row is not None else {}
        ix, x = substitute(b, mapping, renamed)
        for s in kept:
            for store in s.stores:
                store.ix, store.value = ix(store.ix), x(store.value)
        final.stages = [stage, *kept]
        final.reductions = {id(i): i for i in stage.items}
        nest = Nest(final, self.target)
        if pieces == 1:
            raise AssertionError("a reduction in one piece needs no second stage")
        self.kernel(nest.sections(), nest.stages)

    # ***** other steps *****

    def special(self, special: Special) -> None:
        stages = special.group.stages
        outer: list[Any] = list(special.group.values)
        if special.node.prim.lower[0] == "scan" and stages[0].loops:
            nest = SpecialNest(special, stages[0], outer, self.target)
            self.kernel(nest.sections(), nest.stages)
            return
        if not special.in_place:
            self.single = False
            if not stages[0].loops and special.node.prim.lower[0] == "scan":
                stages[0].loops = outer
            self.points(special.group, stages[0])
            stages = stages[1:]
        for stage in stages:
            nest = SpecialNest(special, stage, outer, self.target)
            self.kernel(nest.sections(), nest.stages)

    def points(self, group: Group, stage: Stage) -> None:
        """A kernel for one pointwise stage of a group."""
        only = Group(group.held)
        only.builder, only.stages = group.builder, [stage]
        nest = Nest(only, self.target)
        self.kernel(nest.sections(), nest.stages)

    def copy(self, copy: Copy) -> None:
        group = Group(lambda value: None)
        dims = [Var(s, "d") if s != 1 else None for s in copy.shape]
        index = [ZERO if d is None else d.ix for d in dims]
        stage = Stage([d for d in dims if d is not None])
        value = group.builder.load(copy.source.buffer, copy.source.place(index))
        stage.stores = [Store(copy.target.buffer, copy.target.place(index), value)]
        self.single = False
        self.points(group, stage)

    def extern(self, extern: Extern) -> None:
        if extern.epilogue is not None or any(extern.prologues):
            self.product(extern, extern.epilogue)
            return
        node = extern.node
        inputs = [self.operand(v, s) for v, s in zip(node.inputs, extern.inputs, strict=True)]
        for source in extern.outputs:
            self.places[source.buffer] = self.next_place
            self.next_place += 1
        outputs = [self.operand(v, s) for v, s in zip(node.outputs, extern.outputs, strict=True)]
        sizes = [self.schedule.sizes[s.buffer] * s.buffer.dtype.itemsize for s in extern.outputs]
        self.steps.append(ExternStep(node.prim.name, inputs, outputs, sizes, {**node.params, **extern.params}))

    def product(self, extern: Extern, epilogue: Epilogue | None) -> None:
        """A product with an epilogue or prologues: one call, which makes what the epilogue stores."""
        node, out = extern.node, extern.node.outputs[0]
        inputs = [self.operand(v, s) for v, s in zip(node.inputs, extern.inputs, strict=True)]
        params, before = {**node.params, **extern.params}, extern.prologues
        if epilogue is not None and epilogue.turned and node.prim.name != "conv_windows":
            params |= {name: value[::-1] for name, value in extern.params.items()}
            inputs = [Operand(o.place, o.dtype, _turned(o.shape), _turned(o.strides)) for o in reversed(inputs)]
            before = [p and Prologue(p.kernel, p.arrays, p.batch, not p.turned) for p in reversed(before)]
        parts = [part for part in (epilogue, *before) if part is not None]
        fresh = [
            b for b in (epilogue.stored if epilogue is not None else [extern.outputs[0].buffer]) if b not in self.places
        ]
        known = list(dict.fromkeys(a.buffer for part in parts for a in part.arrays if a.buffer in self.places))
        words = [self.places[b] for b in known] + [self.n_inputs + k for k in range(self.n_args)]
        order = {b: k for k, b in enumerate([*fresh, *[None] * len(inputs), *known])}
        for b in fresh:
            self.places[b] = self.next_place
            self.next_place += 1
        sizes = [self.schedule.sizes[b] * b.dtype.itemsize for b in fresh]

        def step_of(part: Epilogue | Prologue | None) -> RectangleStep | None:
            if part is None:
                return None
            return RectangleStep(
                part, KernelStep(part.kernel, [], [], False, self.target), [order[a.buffer] for a in part.arrays], words
            )

        for operand, part in zip(inputs, before, strict=True):
            if part is not None:
                operand.place = self.places[part.arrays[0].buffer]  # nobody reads the operand itself
        if epilogue is None:
            made = self.operand(out, extern.outputs[0])
        else:
            shape = _turned(out.shape) if epilogue.turned and node.prim.name != "conv_windows" else out.shape
            made = Operand(-1, epilogue.sums, shape, contiguous_strides(shape))
        self.steps.append(
            ExternStep(
                node.prim.name, inputs, [made], sizes, params, step_of(epilogue), [step_of(p) for p in before], words
            )
        )

    def operand(self, value: Value, source: Source) -> Operand:
        place = self.places.get(source.buffer, -1)
        return Operand(place, value.dtype, value.shape, source.strides)


def _turned(dims: Sequence[int]) -> tuple[int, ...]:
    """Shape or strides of a transposed matrix."""
    return (*dims[:-2], dims[-1], dims[-2])


def _parts(item: Item) -> list[tuple[int, DType]]:
    return [(0, INT64), (1, item.dtype)] if item.position is not None else [(0, item.dtype)]


def _cut(loops: Sequence[Var], wanted: int) -> tuple[Var, int]:
    """The loop that is cut into about `wanted` pieces, and how many turns a piece has: of the last, whose elements lie side by side, 64 at a time.

    The first loop with that many turns, else the longest; where it would stay in one piece so, the longest of those that would not.
    """
    by_size = sorted(loops, key=lambda v: -v.size)
    first = next((v for v in loops if v.size >= wanted), by_size[0])
    for var in (first, *by_size):
        chunk = -(-var.size // min(wanted, var.size))
        if var is loops[-1]:
            chunk = -(-chunk // 64) * 64
        if chunk < var.size:
            return var, chunk
    return first, -(-first.size // min(wanted, first.size))

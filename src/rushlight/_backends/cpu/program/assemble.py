"""From a graph to its program: the graph is scheduled, groups become loop nests, nests become kernels of steps.

program = compile_graph(graph, layouts, target=host())
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rushlight._backends.cpu.epilogue.rectangle import Epilogue, Prologue
from rushlight._backends.cpu.launches import unlocks
from rushlight._backends.cpu.program.steps import (
    MAX_FRESH,
    ExternStep,
    KernelStep,
    Operand,
    Program,
    RectangleStep,
    Step,
)
from rushlight._codegen.loops import Kernel, Section
from rushlight._codegen.lowering import Lowering
from rushlight._schedule.costs import facts_of
from rushlight._schedule.expressions import Buffer
from rushlight._schedule.groups import Stage
from rushlight._schedule.inline import Location
from rushlight._schedule.policy import Target
from rushlight._schedule.rewrites.interleaved import apart
from rushlight._schedule.rewrites.prepare import as_words, prepared
from rushlight._schedule.schedule import LibraryCall, Schedule
from rushlight._schedule.scheduling import schedule_graph
from rushlight._types.layout import contiguous_strides

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Value

__all__ = ["compile_graph"]


def compile_graph(
    graph: Graph,
    layouts: Sequence[Sequence[int] | None],
    out_strides: Sequence[Sequence[int] | None] | None = None,
    *,
    target: Target,
    aliases: Mapping[int, int] | None = None,
    overlaps: Mapping[int, Sequence[int]] | None = None,
) -> Program:
    """The program that computes `graph` on `target`.

    `layouts` gives the strides of each tensor input in elements, None for a scalar input. `out_strides` gives those of
    the outputs (None: row-major). `aliases[output] = input` writes an output into the memory of an input, with the
    input's layout. `overlaps[output]` names further inputs that may share this memory. NotImplementedError names a
    primitive without a lowering.
    """
    graph = as_words(apart(prepared(graph, target), layouts, target.policy), layouts)
    schedule = schedule_graph(graph, layouts, out_strides, dict(aliases or {}), dict(overlaps or {}), target)
    return Assembler(schedule).program()


class Assembler:
    """Numbers the buffers of a schedule and turns its groups into steps.  `single`: one kernel, which takes all inputs
    of the program in order.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.target = schedule, schedule.target
        self.lowering = Lowering(self.target, schedule.sizes)
        self.steps: list[Step] = []
        self.numbers: dict[Buffer, int] = {b: k for k, b in enumerate(schedule.inputs)}
        # A complex argument takes two words.
        self.n_inputs, self.n_args = len(schedule.inputs), sum(2 if d.kind == "c" else 1 for d in schedule.args)
        self.next_number = self.n_inputs + self.n_args
        self.single = len(schedule.groups) == 1

    def program(self) -> Program:
        """The program of all groups."""
        for group in self.schedule.groups:
            if isinstance(group, LibraryCall):
                self.extern(group)
                continue
            nests = self.lowering.nests(group)
            self.single = self.single and len(nests) == 1 and not nests[0].copies
            for nest in nests:
                self.kernel(nest.sections, nest.stages)
        results = [self.numbers.get(b, -1) for b in self.schedule.outputs]
        return Program(self.schedule.graph, self.steps, results, self.n_inputs, self.n_args, self.schedule.notes)

    # ***** kernels *****

    def kernel(self, sections: list[Section], stages: Sequence[Stage]) -> None:
        """Add the step of a kernel that runs `sections`, which compute `stages`."""
        facts = facts_of(stages)
        touched = list(dict.fromkeys(b for b, _, _ in facts.accesses))
        fresh = [b for b in touched if b not in self.numbers]
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
        known = self.schedule.inputs if self.single else [b for b in touched if b in self.numbers]
        kernel = Kernel(fresh, list(known), self.schedule.args, sections)
        words = [self.numbers[b] for b in known] + [self.n_inputs + k for k in range(self.n_args)]
        sizes = [self.schedule.sizes[b] * b.dtype.itemsize for b in fresh]
        for b in fresh:
            self.numbers[b] = self.next_number
            self.next_number += 1
        moved = sum(self.schedule.sizes[b] * b.dtype.itemsize for b in touched)
        self.steps.append(KernelStep(kernel, sizes, words, unlocks(nbytes=moved) or kernel.pieces > 1, self.target))

    def allocate(self, buffers: Sequence[Buffer]) -> None:
        """Add a step that allocates memory, for outputs beyond those that one call can allocate."""
        sizes = [self.schedule.sizes[b] * b.dtype.itemsize for b in buffers]
        for b in buffers:
            self.numbers[b] = self.next_number
            self.next_number += 1
        self.steps.append(ExternStep("allocate", [], [], sizes, {}))

    # ***** other steps *****

    def extern(self, extern: LibraryCall) -> None:
        """Add a library call."""
        if extern.epilogue is not None or any(extern.prologues):
            self.product(extern, extern.epilogue)
            return
        node = extern.node
        inputs = [self.operand(v, s) for v, s in zip(node.inputs, extern.inputs, strict=True)]
        for source in extern.outputs:
            self.numbers[source.buffer] = self.next_number
            self.next_number += 1
        outputs = [self.operand(v, s) for v, s in zip(node.outputs, extern.outputs, strict=True)]
        sizes = [self.schedule.sizes[s.buffer] * s.buffer.dtype.itemsize for s in extern.outputs]
        self.steps.append(ExternStep(node.prim.name, inputs, outputs, sizes, {**node.params, **extern.params}))

    def product(self, extern: LibraryCall, epilogue: Epilogue | None) -> None:
        """Add a product with an epilogue or prologues: one call, which allocates the outputs of the epilogue."""
        node, out = extern.node, extern.node.outputs[0]
        inputs = [self.operand(v, s) for v, s in zip(node.inputs, extern.inputs, strict=True)]
        params, before = {**node.params, **extern.params}, extern.prologues
        if epilogue is not None and epilogue.transposed and node.prim.name != "conv_windows":
            params |= {name: value[::-1] for name, value in extern.params.items()}
            inputs = [
                Operand(o.number, o.dtype, _transposed(o.shape), _transposed(o.strides)) for o in reversed(inputs)
            ]
            before = [p and Prologue(p.kernel, p.arrays, p.batch, not p.transposed) for p in reversed(before)]
        parts = [part for part in (epilogue, *before) if part is not None]
        fresh = [
            b
            for b in (epilogue.stored if epilogue is not None else [extern.outputs[0].buffer])
            if b not in self.numbers
        ]
        known = list(dict.fromkeys(a.buffer for part in parts for a in part.arrays if a.buffer in self.numbers))
        words = [self.numbers[b] for b in known] + [self.n_inputs + k for k in range(self.n_args)]
        order = {b: k for k, b in enumerate([*fresh, *[None] * len(inputs), *known])}
        for b in fresh:
            self.numbers[b] = self.next_number
            self.next_number += 1
        sizes = [self.schedule.sizes[b] * b.dtype.itemsize for b in fresh]

        def step_of(part: Epilogue | Prologue | None) -> RectangleStep | None:
            if part is None:
                return None
            return RectangleStep(
                part, KernelStep(part.kernel, [], [], False, self.target), [order[a.buffer] for a in part.arrays], words
            )

        for operand, part in zip(inputs, before, strict=True):
            if part is not None:
                operand.number = self.numbers[part.arrays[0].buffer]  # the operand itself is never stored
        if epilogue is None:
            made = self.operand(out, extern.outputs[0])
        else:
            shape = _transposed(out.shape) if epilogue.transposed and node.prim.name != "conv_windows" else out.shape
            made = Operand(-1, epilogue.sums, shape, contiguous_strides(shape))
        self.steps.append(
            ExternStep(
                node.prim.name, inputs, [made], sizes, params, step_of(epilogue), [step_of(p) for p in before], words
            )
        )

    def operand(self, value: Value, source: Location) -> Operand:
        """A value as an operand of a library call."""
        number = self.numbers.get(source.buffer, -1)
        return Operand(number, value.dtype, value.shape, source.strides)


def _transposed(dims: Sequence[int]) -> tuple[int, ...]:
    """Shape or strides of a transposed matrix."""
    return (*dims[:-2], dims[-1], dims[-2])

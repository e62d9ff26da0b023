"""Plans with symbolic sizes: plan templates, kernel templates and the layouts of views, from which plans for single
sizes are cast.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from rushlight._engine.core.tensor import Tensor, make
from rushlight._engine.dispatch.backward_spec import BackwardSpec, SizedBackward
from rushlight._engine.dispatch.executables import program_template
from rushlight._engine.dispatch.kept.plan_store import PlanNote, packing, store
from rushlight._engine.dispatch.lower import Backward
from rushlight._engine.dispatch.plans.native_plans import Recast, show_plan
from rushlight._engine.dispatch.plans.plan import LoweredCall
from rushlight._graph.core import Graph
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.spec import Spec
from rushlight._types.symbols import Hole, filled, is_symbolic

__all__ = ["KernelTemplate", "LazyFallback", "PlanTemplate", "ShowTemplate", "passed_places", "passing", "showing"]


class PlanTemplate:
    """A lowered call with symbolic sizes and its program; plans for single sizes are cast from it."""

    __slots__ = ("_again", "_alike", "_backward", "_device", "_ends", "_packed", "_program", "numbers", "lowered")

    def __init__(self, lowered: LoweredCall, shape_env: ShapeEnv) -> None:
        self.lowered = lowered
        self.numbers: list[Any] = []
        self._ends = _noted(lowered.specs, self.numbers)
        self._alike = [_like(shape_env, spec, lowered.in_specs) for spec in lowered.specs]
        self._device = lowered.specs[0].device
        self._program = program_template(lowered.forward, lowered.in_specs, lowered.specs, shape_env)
        self._packed = PackedTemplate(self._program, self._device, shape_env)
        self.numbers += self._program.numbers
        self._backward = None if lowered.backward is None else SizedBackward(lowered.backward, shape_env)
        self._again: Any = None  # casts native plans from the first one; False where plans are not native

    def executable(self, values: Sequence[int]) -> Any:
        """The executable for one set of sizes, of which `values` are the numbers."""
        return self._program.cast(values, self._first)

    @property
    def _first(self) -> int:
        """Where the numbers of the program begin."""
        return self._ends[-1][3] if self._ends else 0

    def specs(self, values: Sequence[int]) -> list[Spec]:
        """The specs of the results (and residuals)."""
        return _specs_at(self._ends, values, self._device)

    def backward_spec(self, sizes: Sequence[int], specs: Sequence[Spec]) -> BackwardSpec | None:
        """The `BackwardSpec` that nodes share, for one set of sizes; `specs` are those of the results."""
        lowered, shared = self.lowered, self._backward
        if shared is None:
            return None
        assert lowered.graphs is not None
        return BackwardSpec(
            lowered.name, shared.at(sizes), lowered.wrt, lowered.mask, self._device, lowered.graphs, specs
        )

    def plan(
        self,
        values: Sequence[int],
        sizes: Sequence[int],
        in_specs: Sequence[Spec | None],
        origin: Any = None,
        record: PlanNote | None = None,
    ) -> Callable[..., Any]:
        """The plan for one set of sizes; `origin` is the call that its backward spec belongs to, `record` takes what it
        is made of.
        """
        specs: list[Any] = [
            Spec.of(dtype, self._device, values[a:b], values[b:c]) if k is None else in_specs[k]
            for (dtype, a, b, c), k in zip(self._ends, self._alike, strict=True)
        ]
        backward_spec = self.backward_spec(sizes, specs)
        if backward_spec is not None:
            backward_spec.origin = origin
            backward_spec.record = None if record is None else record.key
        packed = self._packed
        if record is not None:
            backward = None if self._backward is None else self._backward.at(sizes)
            record.take(self.lowered, specs, lambda: packed.filled(sizes), lambda: backward)
        if self._again:
            fallback = LazyFallback(
                lambda: self.lowered.closure(self.executable(values), self._inputs(in_specs), specs, backward_spec)
            )
            kept_specs = (*specs, *[s for s in in_specs if s is not None])
            if self._again.changes is not None:
                return self._again.cast(fallback, values, kept_specs, backward_spec)
            constants = self._program.constants(values, self._first)
            if constants is not None:
                return self._again.plan(fallback, constants, kept_specs, backward_spec)
        exe = self.executable(values)
        plan = self.lowered.around(exe, self._inputs(in_specs), specs, backward_spec)
        if self._again is None:
            self._again = False
            if Recast.fits(plan):
                self._program.follow(exe)
                self._again = Recast(plan, self._program.constants_in(self._first))
        return plan

    def _inputs(self, in_specs: Sequence[Spec | None]) -> list[Spec | None]:
        """The specs of all inputs: those of the tensors, then None for each number."""
        return [*in_specs, *[None] * (len(self.lowered.in_specs) - len(in_specs))]

    def literal(self, values: Sequence[int], sizes: Sequence[int]) -> str:
        """The parts of a plan for these sizes, as text."""
        lowered = self.lowered
        head = f"{lowered.name} {lowered.n_results} {lowered.wrt} {lowered.mask} {lowered.refused} {lowered.several} {self.specs(values)}"
        back = [] if self._backward is None else self._backward.literal(sizes)
        return "\n".join([head, self._program.literal(values, self._first), *back])


class PackedTemplate:
    """A program with symbolic sizes as plain data, to be filled in for single sets of sizes; without data where none is
    kept.
    """

    __slots__ = ("_data", "_frame", "_shape_env")

    def __init__(self, program: Any, device: Device, shape_env: ShapeEnv) -> None:
        self._data = None if store() is None else packing.packed_program(program, device)
        self._shape_env = shape_env
        self._frame: Any = None

    def filled(self, sizes: Sequence[int]) -> Any:
        """The data for these sizes; None where there are none."""
        if self._data is None:
            return None
        if self._frame is None:
            numbers: list[Any] = []
            frame = framed_data(self._data, numbers)
            self._frame = frame, self._shape_env.compiled(numbers, guarded=False)
        frame, numbers_at = self._frame
        return filled(frame, numbers_at(*sizes))


def framed_data(data: Any, numbers: list[Any]) -> Any:
    """As `framed`, of packed data: a tuple in them stands for the bits of a number (see `ShapeEnv.compiled`)."""
    kind = type(data)
    if kind is tuple or is_symbolic(data):
        numbers.append(data)
        return Hole(len(numbers) - 1)
    if kind is list:
        return [framed_data(v, numbers) for v in data]
    return {k: framed_data(v, numbers) for k, v in data.items()} if kind is dict else data


class KernelTemplate:
    """A program with symbolic sizes, without a plan around it.  `weak` lists the dtypes of its Python numbers.

    `backward` is the derivative, where one is recorded.  Then the residuals follow the first result, which is written
    to the memory of an input.
    """

    __slots__ = ("_again", "_device", "_ends", "_packed", "_program", "backward", "numbers", "weak")

    def __init__(
        self,
        graph: Graph,
        in_specs: Sequence[Any],
        out_specs: Sequence[Any],
        shape_env: ShapeEnv,
        backward: Backward | None = None,
        **options: Any,
    ) -> None:
        self._device = out_specs[0].device
        self._program = program_template(graph, in_specs, out_specs, shape_env, **options)
        self._packed = PackedTemplate(self._program, self._device, shape_env)
        self.numbers = [*self._program.numbers]
        self._ends = _noted(out_specs[1:], self.numbers)
        self.weak = [v.dtype for v, spec in zip(graph.inputs, in_specs, strict=True) if spec is None]
        self.backward = None if backward is None else SizedBackward(backward, shape_env)
        self._again: Any = None  # casts native plans from the first one; False where plans are not native

    def executable(self, values: Sequence[int]) -> Any:
        """The executable for one set of sizes, of which `values` are the numbers."""
        return self._program.cast(values)

    def packed(self, sizes: Sequence[int]) -> Any:
        """The program for one set of sizes as plain data; None where it cannot be."""
        return self._packed.filled(sizes)

    def inplace(
        self,
        values: tuple[int, ...],
        target: Spec,
        make: Callable[[Any], Callable[..., Any]],
        around: Callable[..., Callable[..., Any]],
    ) -> Callable[..., Any]:
        """The plan that changes a tensor with spec `target` in place.

        `make(executable)` makes the Python form; `around(executable, python_form)` the plan, native where possible.
        """
        if self._again:
            return self._again.cast(LazyFallback(lambda: make(self.executable(values))), values, (target,), None)
        exe = self.executable(values)
        plan = around(exe, make(exe))
        if self._again is None:
            self._again = Recast(plan, self._program.constants_in(0)) if Recast.fits(plan) else False
            self._again = self._again if self._again and self._again.changes is not None else False
        return plan

    def specs(self, values: Sequence[int]) -> list[Spec]:
        """The specs of the results after the first."""
        return _specs_at(self._ends, values, self._device)

    def literal(self, values: Sequence[int], sizes: Sequence[int]) -> str:
        """The program for one set of sizes, as text."""
        back = [] if self.backward is None else [str(self.specs(values)), *self.backward.literal(sizes)]
        return "\n".join([str(self._program.literal(values)), *back])


def _noted(specs: Sequence[Any], numbers: list[Any]) -> list[tuple[DType, int, int, int]]:
    """Append the sizes and strides of specs to `numbers`.  Returns the dtype of each, and where its shape and strides
    begin and end.
    """
    ends = []
    for spec in specs:
        start, n = len(numbers), len(spec.shape)
        numbers += [*spec.shape, *spec.strides]
        ends.append((spec.dtype, start, start + n, start + 2 * n))
    return ends


def _like(shape_env: ShapeEnv, spec: Any, others: Sequence[Any]) -> int | None:
    """Index of the other spec that this one equals for every size; None where there is none."""
    if spec.conj:
        return None
    wanted = [shape_env.written(n) for n in (*spec.shape, *spec.strides)]
    return next(
        (
            k
            for k, s in enumerate(others)
            if s is not None
            and s.dtype is spec.dtype
            and s.ndim == spec.ndim
            and not s.conj
            and [shape_env.written(n) for n in (*s.shape, *s.strides)] == wanted
        ),
        None,
    )


def _specs_at(ends: Sequence[tuple[DType, int, int, int]], values: Sequence[int], device: Device) -> list[Spec]:
    """The specs of `_noted` for one set of sizes."""
    return [Spec.of(dtype, device, values[a:b], values[b:c]) for dtype, a, b, c in ends]


class LazyFallback:
    """Python fallback of a native plan; built on first use."""

    __slots__ = ("_make", "_plan")

    def __init__(self, make: Callable[[], Callable[..., Any]]) -> None:
        self._make = make
        self._plan: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        if self._plan is None:
            self._plan = self._make()
        return self._plan(*args)


class ShowTemplate:
    """Layouts of view-only outputs with symbolic sizes."""

    __slots__ = ("_layouts", "numbers")

    def __init__(self, layouts: Sequence[tuple[int, Sequence[Any], Sequence[Any], Any]]) -> None:
        self._layouts = [(number, len(shape)) for number, shape, _, _ in layouts]
        self.numbers = [n for _, shape, strides, offset in layouts for n in (*shape, *strides, offset)]

    def layouts(self, values: Sequence[int]) -> list[tuple[int, tuple[int, ...], tuple[int, ...], int]]:
        """The layouts for one set of sizes."""
        layouts, at = [], 0
        for number, n in self._layouts:
            layouts.append((number, tuple(values[at : at + n]), tuple(values[at + n : at + 2 * n]), values[at + 2 * n]))
            at += 2 * n + 1
        return layouts

    @property
    def offsets(self) -> list[int]:
        """Indices of the values that are offsets of views."""
        ends = list(accumulate(2 * n + 1 for _, n in self._layouts))
        return [end - 1 for end in ends]

    def literal(self, values: Sequence[int], sizes: Sequence[int]) -> str:
        """The layouts for one set of sizes, as text."""
        return str(self.layouts(values))


# ***** results that are inputs, or their memory under other strides *****


def showing(
    layouts: Sequence[tuple[int, Sequence[int], Sequence[int], int]],
    specs: Sequence[Spec | None],
    note: PlanNote | None = None,
) -> Callable[..., Any]:
    """A plan whose results are views of its inputs (see `moved_layouts`).  It records nothing and returns a tuple."""
    if note is not None:
        note.show(layouts)
    parts: list[tuple[int, Spec, int]] = []
    for number, shape, strides, offset in layouts:
        spec = specs[number]
        assert spec is not None
        parts.append(
            (
                number,
                Spec.of(spec.dtype, spec.device, shape, strides, spec.conj, spec.released),
                offset * spec.dtype.itemsize,
            )
        )

    def run(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple([make(inputs[i]._storage, spec, inputs[i]._ptr + step) for i, spec, step in parts])

    return show_plan(run, parts)


def passed_places(graph: Graph) -> list[int]:
    """For each output of a graph the number of the input that it is, or -1; empty where no output is an input."""
    where = {id(v): i for i, v in enumerate(graph.inputs)}
    places = [where.get(id(v), -1) for v in graph.outputs]
    return places if any(p >= 0 for p in places) else []


def passing(places: Sequence[int], plan: Callable[..., Any]) -> Callable[..., Any]:
    """`plan` with the outputs that are inputs put among its results; `places` are those of `passed_places`."""
    if not places:
        return plan
    computed = sum(p < 0 for p in places)

    def run(*args: Any) -> Any:
        results = plan(*args) if computed else ()
        results = iter((results,) if computed == 1 else results)
        return tuple([args[p] if p >= 0 else next(results) for p in places])

    return run

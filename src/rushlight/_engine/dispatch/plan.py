"""Plans: what a call does, decided once for a signature.

A plan is a closure over a kernel, its output specs and, where gradients are wanted, the class and contents of the node to record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from rushlight._base.errors import user_code, user_frame
from rushlight._base.lazy import require
from rushlight._base.log import enabled, log
from rushlight._engine.autograd.edges import argument_places
from rushlight._engine.autograd.node import Node, next_sequence, node_class, packed
from rushlight._engine.core.packing import check_number
from rushlight._engine.core.state import ANOMALY, GRAD, INFERENCE, SAVED_HOOKS, STATE, new_plan_table
from rushlight._engine.core.tensor import Tensor, alias, edge_of, make, new_meta
from rushlight._engine.dispatch.lower import Backward, differentiate_graph
from rushlight._engine.dispatch.native_plans import INPLACE, Bounds, Recast, choose_plan, show_plan
from rushlight._engine.dispatch.native_plans import kernel_plan as native_plan
from rushlight._engine.dispatch.shape_classes import ShapeClasses, SymbolicSpec
from rushlight._engine.dispatch.stepping import Stepped, takes_steps
from rushlight._engine.dispatch.watch import NAMING, RECORDER, Watched
from rushlight._graph.core import Graph, GraphBuilder, evaluate
from rushlight._graph.frames import graph_frame, graph_from
from rushlight._graph.view_outputs import moved_layouts
from rushlight._prims import build, prim
from rushlight._transforms.vjp import reached
from rushlight._types.device import CPU, META, Device
from rushlight._types.dtype import DType
from rushlight._types.layout import (
    broadcast_strides,
    contiguous_strides,
    dense_strides,
    image_strides,
    is_contiguous,
    restride,
)
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.spec import Spec, check_memory, check_sizes

__all__ = [
    "KernelTemplate", "LazyFallback", "LoweredCall", "PlanTemplate", "BackwardSpec", "ShowTemplate", "SizedBackward", "executable", "fitting", "graph_caller", "number_words", "operand_strides", "program_of", "watch",
]  # fmt: skip

NOT_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked by autograd. To work "
    "around this, you can make a clone to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
)


def executable(graph: Graph, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec], **options: Any) -> Any:
    """The compiled form of `graph` for these layouts; see `_kernels.program.compile_graph` for `aliases` and `overlaps`."""
    check_sizes(*in_specs, *out_specs)
    program = program_of(graph, in_specs, out_specs, **options)
    if enabled("schedule"):
        log("schedule", "\n".join([NAMING[0], *program.notes]))
    exe = require("rushlight._backends.cpu.compile").build(program)
    return exe if RECORDER[0] is None else Watched(exe)


def program_of(graph: Graph, in_specs: Sequence[Any], out_specs: Sequence[Any], **options: Any) -> Any:
    """The same before kernels are compiled; sizes may be symbolic."""
    check_memory(*in_specs, *out_specs)
    if any(s is not None and s.conj for s in (*in_specs, *out_specs)):
        graph = _through_conjugates(graph, in_specs, out_specs)
    programs = require("rushlight._kernels.program")
    if enabled("graph"):
        log("graph", "\n".join([NAMING[0], *programs.graph_lines(graph)]))
    options["target"] = require("rushlight._native.target").host_target()
    layouts = [None if s is None else s.strides for s in in_specs]
    return programs.compile_graph(graph, layouts, [s.strides for s in out_specs], **options)


def _through_conjugates(graph: Graph, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec]) -> Graph:
    """The graph around memory that holds conjugates (of real numbers: negatives): it turns what it reads from there, and what it writes there."""
    builder = GraphBuilder()
    inputs = [builder.input(v.shape, v.dtype, v.weak) for v in graph.inputs]
    with builder:
        read = [_turned(v) if s is not None and s.conj else v for v, s in zip(inputs, in_specs, strict=True)]
        made = [_turned(v) if s.conj else v for v, s in zip(evaluate(graph, read), out_specs, strict=True)]
    return builder.finish(made)


def _turned(v: Any) -> Any:
    return prim.conj(v) if v.dtype.is_complex else build.convert(prim.neg(build.convert(v, v.dtype.wide)), v.dtype)


def image_like(shape: tuple[int, ...], specs: Sequence[Any]) -> tuple[int, ...] | None:
    """Strides of an image made beside others: channels last where one of as many dims is, else None (row-major)."""
    beside = [s for s in specs if s.ndim == len(shape)] if len(shape) in (4, 5) else []
    strides = next((found for s in beside if (found := image_strides(shape, s.shape, s.strides)) is not None), None)
    return None if strides is None or is_contiguous(shape, strides) else strides


def operand_strides(shape: tuple[int, ...], specs: Sequence[Spec], numbers: bool = False) -> tuple[int, ...]:
    """Strides of a fresh element-wise result: the operands' own order of dims in memory (TensorIterator's rule).

    `numbers`: some operands are numbers, which the iterator sees as tensors without dims.
    """
    same = [s for s in specs if s.shape == shape]
    empty = 0 in shape
    if empty and len(same) == len(specs) and not numbers:  # without elements each counts as contiguous
        return contiguous_strides(shape)
    if all(s.strides == contiguous_strides(s.shape) if empty else s.contiguous for s in same) and (
        same or len(specs) < 2
    ):
        return contiguous_strides(shape)
    if (
        same
        and not empty
        and not same[0].contiguous
        and all(s.strides == same[0].strides for s in same)
        and len(same) == len(specs)
    ):
        return restride(shape, same[0].strides)
    operands = [broadcast_strides(s.shape, s.strides, shape) for s in specs if s.ndim]
    ndim = len(shape)
    order = list(range(ndim))[::-1]  # innermost first, as the iterator sorts them

    def compare(a: int, b: int) -> int:
        for strides in operands:
            x, y = strides[a], strides[b]
            if x == 0 or y == 0:
                continue
            if x != y:
                return -1 if x < y else 1
            if shape[a] > shape[b]:
                return 1
        return 0

    for i in range(1, ndim):
        at = i
        for j in range(i - 1, -1, -1):
            result = compare(order[j], order[at])
            if result > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif result < 0:
                break
    if empty and order != list(range(ndim))[::-1]:  # the iterator steps by sizes of 0 as well
        steps, step = [0] * ndim, 1
        for dim in order:
            steps[dim] = step
            step *= shape[dim]
        return tuple(steps)
    strides = dense_strides(shape, order[::-1])
    return contiguous_strides(shape) if is_contiguous(shape, strides) else strides


class BackwardSpec:
    """What the backward nodes of one signature share: the node class, where saved values come from, and the graph."""

    __slots__ = (
        "_device", "_fast", "_found", "_in_order", "_origin", "last_map", "last_plan", "last_spec", "last_word", "mask", "_out_specs", "_places", "_plans",
        "_results", "_some", "cls", "n_results", "outputs", "sources", "wrt",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        found: Backward | BackwardAt,
        wrt: Sequence[int],
        mask: Sequence[bool],
        device: Device,
        results: Sequence[Spec] = (),
    ) -> None:
        """`results` are the specs of the results and residuals, where they are known."""
        self.cls = node_class(name)
        self.wrt, self.n_results, self.mask = tuple(wrt), len(mask), tuple(mask)
        self.sources, self.outputs, self._found, self._device = found.saved, found.outputs, found, device
        self._results = results
        self._out_specs: list[Spec] | None = None
        self._plans: Any = None
        self._some: dict[tuple[bool, ...], Any] = {}
        self._places: Any = None
        self._origin: Any = None
        self._fast: dict[Any, Any] = {}
        self._in_order = self.outputs == list(range(len(self.outputs)))
        self.last_spec: Any = None  # the gradient and the state for which `last_plan` was made
        self.last_word = 0
        self.last_plan: Any = None
        self.last_map = None if self._in_order else tuple(self.outputs)

    @property
    def plans(self) -> Any:
        """What runs the backward graph (see `graph_caller`)."""
        if self._plans is None:
            self._plans = graph_caller(self._found, self.cls.__name__)
        return self._plans

    @property
    def graph(self) -> Graph:
        """The backward graph."""
        return self._found.graph

    @property
    def forward(self) -> Graph:
        """The forward graph, with residuals after its results."""
        return self._found.forward

    @property
    def out_specs(self) -> list[Spec]:
        """What the forward's results are, row-major."""
        if self._out_specs is None:
            self._out_specs = [Spec.of(v.dtype, self._device, v.shape) for v in self._results or self.forward.outputs]
        return self._out_specs

    @property
    def origin(self) -> Any:
        """(operator, template, specs) of the call, where there is one; set as a function, it is made when somebody asks."""
        if callable(self._origin):
            self._origin = self._origin()
        return self._origin

    @origin.setter
    def origin(self, call: Any) -> None:
        self._origin = call

    def places(self) -> Any:
        """For each argument of the call that could have a gradient the number of its edge, or None; None where no call is known."""
        if self._places is None and self.origin is not None:
            op, template, specs = self.origin
            self._places = argument_places(op, template, specs, self.wrt, self.cls.__name__)
        return self._places

    def backward(self, saved: Sequence[Any], grads: list[Tensor | None]) -> list[Tensor | None]:
        """Gradients for the edges, from saved values and the results' gradients."""
        if self.n_results == 1 and len(grads) == 1:
            grad: Any = grads[0]
            key = (grad._spec, STATE.word)
            plan = self._fast.get(key)
            if plan is None:
                if STATE.word & GRAD:  # create_graph: what is recorded depends on more than specs
                    made = self.plans(*saved, grad)
                    return [None if o is None else made[o] for o in self.outputs]
                plan = self._fast[key] = self._prepared((*saved, grad))
            self.last_spec, self.last_word, self.last_plan = grad._spec, STATE.word, plan
            made = plan(*saved, grad)
            return made if self._in_order else [None if o is None else made[o] for o in self.outputs]
        return self._backward_of(saved, grads, self._run)

    def backward_of(self, saved: Sequence[Any], grads: list[Tensor | None]) -> list[Tensor | None]:
        """The same where saved values may be laid out otherwise than they were."""
        return self._backward_of(saved, grads, lambda saved, given: self.plans(*saved, *given))

    def _backward_of(
        self, saved: Sequence[Any], grads: list[Tensor | None], run: Callable[..., Any]
    ) -> list[Tensor | None]:
        results, residuals = grads[: self.n_results], grads[self.n_results :]
        found: list[Tensor | None] = [None] * len(self.outputs)
        if any(g is not None for g in results):
            found = self._from_results(saved, results, run)
        if any(
            g is not None for g in residuals
        ):  # backward was differentiated, and its gradient reached what the forward kept
            found = self._sums(found, self._from_some(saved, [*[None] * self.n_results, *residuals]))
        return found

    def _from_results(
        self, saved: Sequence[Any], grads: Sequence[Tensor | None], run: Callable[..., Any]
    ) -> list[Tensor | None]:
        if self._found.parts and any(g is None and flag for g, flag in zip(grads, self.mask, strict=True)):
            try:
                return self._from_some(saved, grads)
            except NotImplementedError:  # what is saved does not suffice
                pass
        given = [self._zeros(i) if g is None else g for i, g in enumerate(grads) if self.mask[i]]
        made = run(saved, given)
        return [None if o is None else made[o] for o in self.outputs]

    def _run(self, saved: Sequence[Any], given: Sequence[Tensor]) -> Any:
        """What the backward graph gives for several gradients."""
        if STATE.word & GRAD:
            return self.plans(*saved, *given)
        key = (STATE.word, *[g._spec for g in given])
        plan = self._fast.get(key)
        if plan is None:
            plan = self._fast[key] = self._prepared((*saved, *given))
        return plan(*saved, *given)

    def _prepared(self, inputs: Sequence[Any]) -> Callable[..., Any]:
        """The plan of the backward graph for these inputs, outside of any graph."""
        found = self._found
        if self._plans is None and type(found) is BackwardAt and found.shared.found.graph.nodes:
            return _sized_plan(
                found, self.cls.__name__, inputs
            )  # of most sizes there is one call: what keeps plans for more is not made yet
        plan: Callable[..., Any] = self.plans.prepare(*inputs)
        return plan

    def _zeros(self, number: int) -> Tensor:
        from rushlight._engine.core.memory import zeros_spec

        return zeros_spec(self.out_specs[number])

    def _from_some(self, saved: Sequence[Any], grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients that come from some of the results and residuals alone."""
        n, total = self.n_results, len(self.forward.outputs)
        mask = (*[g is not None for g in grads], *[False] * (total - len(grads)))
        if mask not in self._some:
            where = {
                ("output", n + i) if kind == "residual" else (kind, i): k for k, (kind, i) in enumerate(self.sources)
            }
            derived = differentiate_graph(self.forward, total, self.wrt, mask, only=list(where))
            self._some[mask] = (
                graph_caller(derived.graph, self.cls.__name__),
                [where[s] for s in derived.saved],
                derived.outputs,
            )
        call, picks, outputs = self._some[mask]
        made = call(*[saved[i] for i in picks], *[g for g in grads if g is not None])
        return [None if o is None else made[o] for o in outputs]

    @staticmethod
    def _sums(some: Sequence[Tensor | None], more: Sequence[Tensor | None]) -> list[Tensor | None]:
        from rushlight._engine.autograd.engine import OPS

        return [b if a is None else a if b is None else OPS["add"](a, b) for a, b in zip(some, more, strict=True)]


class LoweredCall:
    """What the plan of a signature is made of, kernels and memory apart; sizes may be symbolic.

    `forward` gives `n_results` results, then residuals; `specs` are those of all of these.  `backward` is None where nothing is recorded; else
    it is with respect to the inputs `wrt`, for the results that `mask` marks, by nodes called `name`.  `refused` says why there is no derivative
    although one is wanted.  `several`: the plan gives a tuple even for one result.  With `bounds` its numbers must lie in the range of the result's
    dtype.
    """

    __slots__ = (
        "backward",
        "bounds",
        "forward",
        "in_specs",
        "mask",
        "n_results",
        "name",
        "refused",
        "several",
        "specs",
        "wrt",
    )

    def __init__(
        self, forward: Graph, in_specs: Sequence[Any], results: Sequence[Any], of: Callable[..., Any], device: Device, name: str = "",
        backward: Backward | None = None, wrt: Sequence[int] = (), mask: Sequence[bool] = (), refused: str | None = None, several: bool = False,
        bounds: Bounds = None,
    ) -> None:  # fmt: skip
        self.forward, self.in_specs, self.n_results, self.name = forward, in_specs, len(results), name
        about = [*results, *(s for s in in_specs if s is not None)]
        self.specs = [
            *results,
            *(of(v.dtype, device, v.shape, image_like(v.shape, about)) for v in forward.outputs[len(results) :]),
        ]
        self.backward, self.wrt, self.mask, self.refused, self.several, self.bounds = (
            backward,
            wrt,
            mask,
            refused,
            several,
            bounds,
        )

    def plan(self, device: Device, origin: Any = None) -> Callable[..., Any]:
        """The plan: it takes tensors and Python numbers in the order of the graph's inputs.  `origin` is the call that its backward spec belongs to."""
        backward_spec = None
        if self.backward is not None:
            backward_spec = BackwardSpec(self.name, self.backward, self.wrt, self.mask, device)
            backward_spec.origin = origin
        exe = None if device is META else executable(self.forward, self.in_specs, self.specs)
        return self.around(exe, self.in_specs, self.specs, backward_spec)

    def around(
        self, exe: Any, in_specs: Sequence[Spec | None], specs: Sequence[Spec], backward_spec: BackwardSpec | None
    ) -> Callable[..., Any]:
        """The plan around an executable."""
        closure = self.closure(exe, in_specs, specs, backward_spec)
        if (
            exe is None
            or self.in_complex
            or STATE.word & INFERENCE
            or (backward_spec is not None and STATE.word & (ANOMALY | SAVED_HOOKS))
        ):
            return closure
        edges = () if backward_spec is None else backward_spec.wrt
        several = self.several or self.n_results > 1
        return native_plan(
            exe, closure, in_specs, specs, self.n_results, backward_spec, edges, self.mask, several, self.bounds
        )

    def closure(
        self, exe: Any, in_specs: Sequence[Spec | None], specs: Sequence[Spec], backward_spec: BackwardSpec | None
    ) -> Callable[..., Any]:
        """The same in Python, for tensors and places that native plans leave to it."""
        run = _meta_runner(specs) if exe is None else _runner(exe, in_specs, specs, self.in_complex)
        plan = (
            _quiet(run, specs) if backward_spec is None else _recording(run, self.n_results, backward_spec, len(specs))
        )
        closure = (lambda *args: (plan(*args),)) if self.several and self.n_results == 1 else plan
        return fitting(closure, sum(s is not None for s in in_specs), specs[0].dtype, self.bounds)

    @property
    def in_complex(self) -> bool:
        """Whether complex Python numbers are among the inputs."""
        return any(v.weak and v.dtype.is_complex for v in self.forward.inputs)


class PlanTemplate:
    """The lowered call of a plan with symbolic sizes, and its program: plans are cast from it."""

    __slots__ = ("_again", "_alike", "_backward", "_ends", "_program", "numbers", "lowered")

    def __init__(self, lowered: LoweredCall, shape_env: ShapeEnv) -> None:
        self.lowered = lowered
        self.numbers: list[Any] = []
        self._ends = _noted(lowered.specs, self.numbers)
        self._alike = [_like(shape_env, spec, lowered.in_specs) for spec in lowered.specs]
        program = program_of(lowered.forward, lowered.in_specs, lowered.specs)
        self._program = require("rushlight._backends.cpu.compile").ProgramTemplate(program, shape_env)
        self.numbers += self._program.numbers
        self._backward = None if lowered.backward is None else SizedBackward(lowered.backward, shape_env)
        self._again: Any = None  # how native plans are made like the first one; False where there are none

    def executable(self, values: Sequence[int]) -> Any:
        """The executable for one set of sizes, of which `values` are the numbers."""
        return self._program.cast(values, self._first)

    @property
    def _first(self) -> int:
        """Where the numbers of the program begin."""
        return self._ends[-1][3] if self._ends else 0

    def specs(self, values: Sequence[int]) -> list[Spec]:
        """The specs of the results (and residuals)."""
        return _specs_at(self._ends, values)

    def backward_spec(self, sizes: Sequence[int], specs: Sequence[Spec]) -> BackwardSpec | None:
        """What backward nodes share, for one set of sizes; `specs` are those of the results."""
        lowered, shared = self.lowered, self._backward
        return (
            None
            if shared is None
            else BackwardSpec(lowered.name, shared.at(sizes), lowered.wrt, lowered.mask, CPU, specs)
        )

    def plan(
        self, values: Sequence[int], sizes: Sequence[int], in_specs: Sequence[Spec | None], origin: Any = None
    ) -> Callable[..., Any]:
        """The plan for one set of sizes; `origin` is the call that its backward spec belongs to."""
        specs: list[Any] = [
            Spec.of(dtype, CPU, values[a:b], values[b:c]) if k is None else in_specs[k]
            for (dtype, a, b, c), k in zip(self._ends, self._alike, strict=True)
        ]
        backward_spec = self.backward_spec(sizes, specs)
        if backward_spec is not None:
            backward_spec.origin = origin
        if self._again:
            late = LazyFallback(
                lambda: self.lowered.closure(self.executable(values), self._inputs(in_specs), specs, backward_spec)
            )
            held = (*specs, *[s for s in in_specs if s is not None])
            if self._again.layout is not None:
                return self._again.cast(late, values, held, backward_spec)
            constants = self._program.constants(values, self._first)
            if constants is not None:
                return self._again.plan(late, constants, held, backward_spec)
        exe = self.executable(values)
        plan = self.lowered.around(exe, self._inputs(in_specs), specs, backward_spec)
        if self._again is None:
            self._program.follow(exe)
            self._again = Recast(plan, self._program.constants_in(self._first)) if Recast.fits(plan) else False
        return plan

    def _inputs(self, in_specs: Sequence[Spec | None]) -> list[Spec | None]:
        """The specs of all inputs, of which those of tensors are given: numbers come after them."""
        return [*in_specs, *[None] * (len(self.lowered.in_specs) - len(in_specs))]

    def literal(self, values: Sequence[int], sizes: Sequence[int]) -> str:
        """All that a plan for these sizes is made of, as text."""
        lowered, literal = self.lowered, require("rushlight._backends.cpu.compile").literal
        head = f"{lowered.name} {lowered.n_results} {lowered.wrt} {lowered.mask} {lowered.refused} {lowered.several} {self.specs(values)}"
        back = [] if self._backward is None else self._backward.literal(sizes)
        return "\n".join([head, literal(self.executable(values).program), *back])


class KernelTemplate:
    """A program with symbolic sizes and no plan around it; `weak` are the dtypes of the Python numbers that it takes.

    `backward` differentiates what it does, where that is recorded: then the program gives what is kept for it after the first of its results, which
    goes where an input is.
    """

    __slots__ = ("_again", "_ends", "_program", "backward", "numbers", "weak")

    def __init__(
        self,
        graph: Graph,
        in_specs: Sequence[Any],
        out_specs: Sequence[Any],
        shape_env: ShapeEnv,
        backward: Backward | None = None,
        **options: Any,
    ) -> None:
        program = program_of(graph, in_specs, out_specs, **options)
        self._program = require("rushlight._backends.cpu.compile").ProgramTemplate(program, shape_env)
        self.numbers = [*self._program.numbers]
        self._ends = _noted(out_specs[1:], self.numbers)
        self.weak = [v.dtype for v, spec in zip(graph.inputs, in_specs, strict=True) if spec is None]
        self.backward = None if backward is None else SizedBackward(backward, shape_env)
        self._again: Any = None  # how native plans are made like the first one; False where there are none

    def executable(self, values: Sequence[int]) -> Any:
        """The executable for one set of sizes, of which `values` are the numbers."""
        return self._program.cast(values)

    def inplace(
        self,
        values: tuple[int, ...],
        target: Spec,
        make: Callable[[Any], Callable[..., Any]],
        around: Callable[..., Callable[..., Any]],
    ) -> Callable[..., Any]:
        """The plan of a change of a tensor with spec `target`, without results.

        `make(executable)` is what runs it in Python, `around(executable, that)` the plan, which is native where it can be.
        """
        if self._again:
            return self._again.cast(
                LazyFallback(lambda: make(self.executable(values))), values, (target,), None, INPLACE
            )
        exe = self.executable(values)
        plan = around(exe, make(exe))
        if self._again is None:
            self._again = Recast(plan, self._program.constants_in(0)) if Recast.fits(plan) else False
            self._again = self._again if self._again and self._again.layout is not None else False
        return plan

    def specs(self, values: Sequence[int]) -> list[Spec]:
        """The specs of the results after the first."""
        return _specs_at(self._ends, values)

    def literal(self, values: Sequence[int], sizes: Sequence[int]) -> str:
        """The program for one set of sizes, as text."""
        back = [] if self.backward is None else [str(self.specs(values)), *self.backward.literal(sizes)]
        return "\n".join(
            [str(require("rushlight._backends.cpu.compile").literal(self.executable(values).program)), *back]
        )


def _noted(specs: Sequence[Any], numbers: list[Any]) -> list[tuple[DType, int, int, int]]:
    """Append the sizes and strides of specs to `numbers`: their dtypes, and where shapes and strides begin and end."""
    ends = []
    for spec in specs:
        start, n = len(numbers), len(spec.shape)
        numbers += [*spec.shape, *spec.strides]
        ends.append((spec.dtype, start, start + n, start + 2 * n))
    return ends


def _like(shape_env: ShapeEnv, spec: Any, others: Sequence[Any]) -> int | None:
    """Which of the others a spec is whatever the sizes, if it is one of them."""
    if spec.conj:
        return None
    wanted = [shape_env.written(n) for n in (*spec.shape, *spec.strides)]
    return next((
        k for k, s in enumerate(others) if s is not None and s.dtype is spec.dtype and s.ndim == spec.ndim and not s.conj
        and [shape_env.written(n) for n in (*s.shape, *s.strides)] == wanted
    ), None)  # fmt: skip


def _specs_at(ends: Sequence[tuple[DType, int, int, int]], values: Sequence[int]) -> list[Spec]:
    """The specs that were noted, for one set of sizes."""
    return [Spec.of(dtype, CPU, values[a:b], values[b:c]) for dtype, a, b, c in ends]


class LazyFallback:
    """What a native plan leaves calls to, made when it first does."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Callable[..., Any]]) -> None:
        self._make = make
        self._made: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        if self._made is None:
            self._made = self._make()
        return self._made(*args)


class SizedBackward:
    """A `Backward` with symbolic sizes, and what is shared by all that are made of it."""

    __slots__ = ("_graphs", "_shape_env", "shape_classes", "found", "passes")

    def __init__(self, found: Backward, shape_env: ShapeEnv) -> None:
        self.found, self._shape_env, self.shape_classes = found, shape_env, ShapeClasses()
        self.passes = bool(_passed(found.graph))  # whether some of its results are what it is given
        self._graphs: Any = None

    def graphs(self, sizes: Sequence[Any]) -> list[Graph]:
        """Forward and backward graph for sizes, which may be symbolic."""
        if self._graphs is None:
            numbers: list[Any] = []
            frames = [graph_frame(g, numbers) for g in (self.found.forward, self.found.graph)]
            self._graphs = (frames, self._shape_env.compiled(numbers, guarded=False))
        frames, numbers_at = self._graphs
        values = numbers_at(*sizes)
        return [graph_from(frame, values) for frame in frames]

    def literal(self, sizes: Sequence[int]) -> list[str]:
        """The graphs for one set of sizes, and what is kept between them, as text."""
        lines = require("rushlight._kernels.program").graph_lines
        return [
            f"{self.found.saved} {self.found.outputs}",
            *(line for graph in self.graphs(sizes) for line in lines(graph)),
        ]

    def at(self, sizes: Sequence[int]) -> BackwardAt:
        """The `Backward` for one set of sizes."""
        return BackwardAt(self, sizes)


class BackwardAt:
    """A `Backward` whose graphs are made when somebody asks for them."""

    __slots__ = ("_made", "outputs", "parts", "saved", "shared", "sizes")

    def __init__(self, shared: SizedBackward, sizes: Sequence[int]) -> None:
        self.shared, self.sizes = shared, sizes
        self.saved, self.outputs, self.parts = shared.found.saved, shared.found.outputs, shared.found.parts
        self._made: list[Graph] | None = None

    def _graph(self, which: int) -> Graph:
        if self._made is None:
            self._made = self.shared.graphs(self.sizes)
        return self._made[which]

    @property
    def forward(self) -> Graph:
        """The forward graph, with residuals."""
        return self._graph(0)

    @property
    def graph(self) -> Graph:
        """The backward graph."""
        return self._graph(1)

    def caller(self, name: str) -> Any:
        """A function that runs the backward graph; see `graph_caller`."""
        alike = self.shared.found.graph
        return (
            _caller(alike, lambda: self.graph, name, lambda inputs: _sized_plan(self, name, inputs))
            if alike.nodes
            else _chooser(alike)
        )


def _sized_plan(backward: BackwardAt, name: str, inputs: Sequence[Any]) -> Callable[..., Any]:
    """The plan of a backward graph: cast from a plan template where there is one."""
    specs = [i._spec if isinstance(i, Tensor) else None for i in inputs]
    if all(s is None or s.device is CPU for s in specs):
        shared, grads = backward.shared, tuple([isinstance(i, Tensor) and i._rg for i in inputs])

        def make(shape_env: ShapeEnv, symbolic_specs: list[Any]) -> PlanTemplate | ShowTemplate:
            graph = shared.graphs(shape_env.symbols[: len(backward.sizes)])[1]
            lowered = _lowered_graph(graph, name, symbolic_specs, grads, CPU, SymbolicSpec.of)
            return (
                ShowTemplate(moved_layouts(graph, symbolic_specs) or [])
                if lowered is None
                else PlanTemplate(lowered, shape_env)
            )

        found = shared.shape_classes.find((STATE.word, grads), specs, make, backward.sizes, again=True)
        if found is not None:
            plan_template, values, sizes, _ = found
            if isinstance(plan_template, ShowTemplate):
                return _showing(plan_template.layouts(values), specs)
            plan = plan_template.plan(values, sizes, specs)
            return _passing(shared.found.graph, plan) if shared.passes else plan
    return _graph_plan(backward.graph, name, inputs)


def graph_caller(found: Backward | BackwardAt | Graph, name: str) -> Any:
    """A function that runs a graph (of a `Backward`: its backward graph) on tensors and Python numbers, recording a node where gradients are wanted.

    Returns a tuple of tensors.  A graph output that is an input comes back as that very tensor.  What is recorded and takes steps (see `stepping`) is
    recorded step by step.
    """
    if isinstance(found, BackwardAt):
        return found.caller(name)
    graph = found if isinstance(found, Graph) else found.graph
    return (
        _caller(graph, lambda: graph, name, lambda inputs: _graph_plan(graph, name, inputs))
        if graph.nodes
        else _chooser(graph)
    )


def _chooser(graph: Graph) -> Any:
    """What runs a graph that only passes inputs on."""
    where = {id(v): i for i, v in enumerate(graph.inputs)}
    picks = [where[id(v)] for v in graph.outputs]

    def choose(*inputs: Any) -> tuple[Any, ...]:
        return tuple([inputs[i] for i in picks])

    choose.prepare = lambda *inputs: choose_plan(choose, picks) if picks else choose  # type: ignore[attr-defined]
    return choose


def _caller(
    alike: Graph, graph: Callable[[], Graph], name: str, make: Callable[[Sequence[Any]], Callable[..., Any]]
) -> Any:
    """A function that runs the plan that `make` gives for its arguments, kept by their signature.

    `graph()` is what it computes, `alike` the same but perhaps for its sizes.
    """
    plans = new_plan_table()
    state = STATE

    takes, stepped = takes_steps(alike), list[Stepped]()

    def call(*inputs: Any) -> Any:
        if takes and state.word & GRAD and any(isinstance(i, Tensor) and i._rg for i in inputs):
            if not stepped:
                stepped.append(Stepped(graph(), lambda part: graph_caller(part, name)))
            return stepped[0](*inputs)
        signature: list[Any] = [state.word]
        for item in inputs:
            if isinstance(item, Tensor):
                signature.append(item._spec)
                signature.append(item._rg)
            else:
                signature.append(type(item))
        key = tuple(signature)
        plan = plans.get(key)
        if plan is None:
            plan = plans[key] = make(inputs)
        return plan(*inputs)

    call.prepare = lambda *inputs: make(inputs)  # type: ignore[attr-defined]
    return call


def _graph_plan(graph: Graph, name: str, inputs: Sequence[Any]) -> Callable[..., Any]:
    NAMING[0] = name
    specs = [i._spec if isinstance(i, Tensor) else None for i in inputs]
    device = next((s.device for s in specs if s is not None), CPU)
    lowered = _lowered_graph(graph, name, specs, [isinstance(i, Tensor) and i._rg for i in inputs], device, Spec.of)
    if lowered is None:
        return _showing(moved_layouts(graph, specs) or [], specs)
    return _passing(graph, lowered.plan(device))


def _showing(
    layouts: Sequence[tuple[int, Sequence[int], Sequence[int], int]], specs: Sequence[Spec | None]
) -> Callable[..., Any]:
    """A plan that shows inputs under other layouts (see `moved_layouts`), outside of any graph; it returns a tuple."""
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


class ShowTemplate:
    """Layouts with symbolic sizes under which a graph shows its inputs."""

    __slots__ = ("_layouts", "numbers")

    def __init__(self, layouts: Sequence[tuple[int, Sequence[Any], Sequence[Any], Any]]) -> None:
        self._layouts = [(number, len(shape)) for number, shape, _, _ in layouts]
        self.numbers = [n for _, shape, strides, offset in layouts for n in (*shape, *strides, offset)]

    def layouts(self, values: Sequence[int]) -> list[tuple[int, tuple[int, ...], tuple[int, ...], int]]:
        """The layouts for one set of sizes."""
        found, at = [], 0
        for number, n in self._layouts:
            found.append((number, tuple(values[at : at + n]), tuple(values[at + n : at + 2 * n]), values[at + 2 * n]))
            at += 2 * n + 1
        return found

    @property
    def offsets(self) -> list[int]:
        """Which of the values say where each view begins."""
        ends = list(accumulate(2 * n + 1 for _, n in self._layouts))
        return [end - 1 for end in ends]

    def literal(self, values: Sequence[int], sizes: Sequence[int]) -> str:
        """The layouts for one set of sizes, as text."""
        return str(self.layouts(values))


def _passed(graph: Graph) -> dict[int, int]:
    """The outputs that are inputs: their places."""
    where = {id(v): i for i, v in enumerate(graph.inputs)}
    return {j: where[id(v)] for j, v in enumerate(graph.outputs) if id(v) in where}


def _lowered_graph(
    graph: Graph, name: str, specs: Sequence[Any], grads: Sequence[bool], device: Device, of: Callable[..., Any]
) -> LoweredCall | None:  # fmt: skip
    """The lowered call of a plan for what `graph` computes; None where it shows its inputs otherwise and nothing is recorded.

    A result wants a gradient where a path leads to it from an input that wants one.
    """
    passed = _passed(graph)
    rest = Graph(graph.inputs, graph.nodes, [v for j, v in enumerate(graph.outputs) if j not in passed])
    wrt = [k for k, flag in enumerate(grads) if flag] if STATE.word & GRAD else []
    mask = reached(rest, wrt)
    if not any(mask) and moved_layouts(graph, specs) is not None:
        return None
    operands = [s for s in specs if s is not None]
    results = [of(v.dtype, device, v.shape, _result_strides(v.shape, operands)) for v in rest.outputs]
    several = len(rest.outputs) == 1 and not passed
    if not any(mask):
        return LoweredCall(rest, specs, results, of, device, several=several)
    found = differentiate_graph(rest, len(mask), wrt, mask)
    found.parts = True
    return LoweredCall(found.forward, specs, results, of, device, name, found, wrt, mask, several=several)


def _result_strides(shape: tuple[int, ...], specs: Sequence[Any]) -> Any:
    """Strides of what a graph computes, a gradient mostly: those of operands of its shape; where there are none, an image lies as another does."""
    same = [s for s in specs if s.shape == shape]
    return operand_strides(shape, same) if same else image_like(shape, specs)


def _passing(graph: Graph, plan: Callable[..., Any]) -> Callable[..., Any]:
    """`plan`, which gives what the graph computes, with the outputs that are inputs between."""
    passed, n = _passed(graph), len(graph.outputs)
    computed = n - len(passed)
    if not passed:
        return plan

    def run(*args: Any) -> Any:
        made = plan(*args) if computed else ()
        made = iter((made,) if computed == 1 else made)
        return tuple([args[passed[j]] if j in passed else next(made) for j in range(n)])

    return run


def fitting(plan: Callable[..., Any], n: int, dtype: DType, bounds: Bounds) -> Callable[..., Any]:
    """The plan behind a check that the numbers among its arguments, all after the first n, lie in the range of a dtype that has `bounds`."""
    if bounds is None:
        return plan

    def run(*args: Any) -> Any:
        for number in args[n:]:
            check_number(number, dtype)
        return plan(*args)

    return run


def _meta_runner(specs: Sequence[Spec]) -> Callable[..., Any]:
    if len(specs) == 1:
        return lambda *_: make(None, specs[0], 0)
    return lambda *_: tuple([make(None, s, 0) for s in specs])


def _runner(exe: Any, in_specs: Sequence[Spec | None], specs: Sequence[Spec], in_complex: bool) -> Callable[..., Any]:
    """A function from inputs to a tensor (one result) or a tuple of tensors, without autograd."""
    tensors = [(i, s) for i, s in enumerate(in_specs) if s is not None]
    numbers = [i for i, s in enumerate(in_specs) if s is None]

    def call(inputs: Sequence[Any]) -> Any:
        words = [inputs[i] for i in numbers]
        # Another thread may take a tensor's memory away in the meantime: it is held until the call returns.
        held = [(inputs[i]._ptr, inputs[i]._spec, inputs[i]._storage) for i, _ in tensors]
        for (_, wanted), (_, found, _) in zip(tensors, held, strict=True):
            if found is not wanted:
                check_memory(found)
                raise RuntimeError(
                    "the memory of a tensor was changed by another thread while an operator was about to read it"
                )
        return exe(*[ptr for ptr, _, _ in held], *(number_words(words) if in_complex else words))

    if len(specs) == 1:
        spec = specs[0]

        def run(*inputs: Any) -> Tensor:
            storage = call(inputs)
            return make(storage, spec, storage.ptr)

        return run

    def run_many(*inputs: Any) -> tuple[Tensor, ...]:
        return tuple([make(s, spec, s.ptr) for s, spec in zip(call(inputs), specs, strict=True)])

    return run_many


def number_words(values: list[Any]) -> list[Any]:
    """Python numbers as kernel words: complex ones become two."""
    if not any(type(v) is complex for v in values):
        return values
    words: list[Any] = []
    for value in values:
        words += [value.real, value.imag] if type(value) is complex else [value]
    return words


def _quiet(run: Callable[..., Any], specs: Sequence[Spec]) -> Callable[..., Any]:
    """A plan that records nothing; inference mode marks its results."""
    if not STATE.word & INFERENCE:
        return run

    def marked(*inputs: Any) -> Any:
        made = run(*inputs)
        for tensor in made if type(made) is tuple else (made,):
            meta = new_meta[0]()
            meta.inference = True
            tensor._autograd_meta = meta
        return made

    return marked


def _recording(run: Callable[..., Any], n_results: int, backward_spec: BackwardSpec, total: int) -> Callable[..., Any]:
    """A plan that records a node; `total` counts residuals too."""
    if n_results > 1 or total > 1:
        return _recording_many(run, n_results, backward_spec)
    return _recording_any(run, backward_spec)


def record(backward_spec: BackwardSpec, inputs: Sequence[Any], made: Sequence[Tensor]) -> Any:
    """A node for one call, whatever it saves."""
    node = backward_spec.cls.__new__(backward_spec.cls)
    node.info = backward_spec
    node._edges = [edge_of(inputs[i]) for i in backward_spec.wrt]
    node._seq = next_sequence()
    node._extra = None
    _save(node, backward_spec, inputs, made)
    if STATE.word & (ANOMALY | SAVED_HOOKS):
        watch(node)
    return node


def _recording_any(run: Callable[..., Any], backward_spec: BackwardSpec) -> Callable[..., Any]:
    def plan(*inputs: Any) -> Tensor:
        out: Tensor = run(*inputs)
        out._node = record(backward_spec, inputs, (out,))
        out._rg = True
        return out

    return plan


def _recording_many(run: Callable[..., Any], n_results: int, backward_spec: BackwardSpec) -> Callable[..., Any]:
    """Several results, or results and residuals."""

    def plan(*inputs: Any) -> Any:
        made = run(*inputs)
        made = made if type(made) is tuple else (made,)
        node = record(backward_spec, inputs, made)
        for number, out in enumerate(made[:n_results]):
            if backward_spec.mask[number]:
                out._node, out._rg = node, True
                if number:
                    out._autograd_meta = new_meta[0]()
                    out._autograd_meta.output_nr = number
        return made[0] if n_results == 1 else made[:n_results]

    return plan


def _save(node: Any, backward_spec: BackwardSpec, inputs: Sequence[Any], made: Sequence[Tensor]) -> None:
    items: list[Any] = []
    versions: list[int | None] = []
    for kind, number in backward_spec.sources:
        if kind == "input":
            item = inputs[number]
            if isinstance(item, Tensor) and item._autograd_meta is not None and item._autograd_meta.inference:
                raise RuntimeError(NOT_SAVED)
        else:
            item = alias(made[number if kind == "output" else backward_spec.n_results + number])
        items.append(item)
        is_tensor = isinstance(item, Tensor)
        versions.append((item._storage.stamp if item._storage is not None else 0) if is_tensor else None)
    node.saved, node.versions = items, versions
    node.where = user_code()


def watch(node: Node) -> None:
    """Anomaly mode keeps the user's line; saved-tensor hooks pack what was saved."""
    if STATE.word & ANOMALY:
        from rushlight._engine.autograd.anomaly import remember

        remember(node)
        node._more().place = user_frame()
    if STATE.word & SAVED_HOOKS and STATE.saved_hooks:
        for i, item in enumerate(node.saved):  # type: ignore[attr-defined]
            if isinstance(item, Tensor):
                node.saved[i] = packed(item, *STATE.saved_hooks[-1])  # type: ignore[attr-defined]
                node.versions[i] = None  # type: ignore[attr-defined]

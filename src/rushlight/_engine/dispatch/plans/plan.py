"""Plans: what a call does, decided once for a signature.

A plan is a closure over a kernel, its output specs and, where gradients are wanted, the class and contents of the node
to record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.errors import DeferredWarning, give_warnings
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.packing import check_number
from rushlight._engine.core.state import ANOMALY, INFERENCE, SAVED_HOOKS, STATE, STREAMED
from rushlight._engine.core.tensor import Tensor, make
from rushlight._engine.dispatch.backward_spec import BackwardSpec, GraphCalls
from rushlight._engine.dispatch.executables import executable
from rushlight._engine.dispatch.kept.plan_store import PlanNote, packing
from rushlight._engine.dispatch.lower import Backward
from rushlight._engine.dispatch.plans.native_plans import Bounds, Recording, Results
from rushlight._engine.dispatch.plans.native_plans import kernel_plan as native_plan
from rushlight._engine.dispatch.plans.node_recording import recording
from rushlight._engine.dispatch.plans.result_strides import image_like
from rushlight._graph.core import Graph
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.spec import Spec, check_memory

__all__ = ["LoweredCall", "PlanShape", "fitting", "number_words", "warning_plan"]


class PlanShape:
    """The plan of a signature without its executable; of its results users get the first `n_results`, the others
    are residuals.

    It records nodes called `name` for the results that `mask` marks, with respect to the inputs `wrt`, where it records
    at all.  `refused` says why there is no derivative although one is wanted.  `several`: the plan gives a tuple even
    for one result.  With `bounds` its numbers must lie in the range of the result's dtype.  `in_complex`: complex
    Python numbers are among the inputs.
    """

    __slots__ = ("bounds", "in_complex", "mask", "n_results", "name", "refused", "several", "wrt")

    def __init__(
        self,
        name: str,
        n_results: int,
        in_complex: bool,
        wrt: Sequence[int] = (),
        mask: Sequence[bool] = (),
        refused: str | None = None,
        several: bool = False,
        bounds: Bounds = None,
    ) -> None:
        self.name, self.n_results, self.in_complex = name, n_results, in_complex
        self.wrt, self.mask, self.refused, self.several, self.bounds = wrt, mask, refused, several, bounds

    def around(
        self, exe: Any, in_specs: Sequence[Spec | None], specs: Sequence[Spec], backward_spec: BackwardSpec | None
    ) -> Callable[..., Any]:
        """The plan around an executable."""
        closure = self.closure(exe, in_specs, specs, backward_spec)
        if (
            exe is None
            or self.in_complex
            or STATE.word & INFERENCE
            or (backward_spec is not None and STATE.word & (ANOMALY | SAVED_HOOKS | STREAMED))
        ):
            return closure
        node = None if backward_spec is None else Recording(backward_spec, backward_spec.wrt, self.mask)
        results = Results(specs, self.n_results, self.several or self.n_results > 1)
        return backend_of(specs[0].device).bind(
            exe, closure, lambda: native_plan(exe, closure, in_specs, results, node, self.bounds)
        )

    def closure(
        self, exe: Any, in_specs: Sequence[Spec | None], specs: Sequence[Spec], backward_spec: BackwardSpec | None
    ) -> Callable[..., Any]:
        """The same in Python, for tensors and places that native plans leave to it."""
        run = _meta_runner(specs) if exe is None else _runner(exe, in_specs, specs, self.in_complex)
        plan = (
            _quiet(run, specs) if backward_spec is None else recording(run, self.n_results, backward_spec, len(specs))
        )
        closure = (lambda *args: (plan(*args),)) if self.several and self.n_results == 1 else plan
        return fitting(closure, sum(s is not None for s in in_specs), specs[0].dtype, self.bounds)


class LoweredCall(PlanShape):
    """The lowered call of a signature, without kernels and memory; sizes may be symbolic.

    `forward` gives `n_results` results, then residuals; `specs` are those of all of these.  `backward` is None where
    nothing is recorded, and `graphs` runs it.  `warnings` are those of the operator's body, for each run of the plan.
    """

    __slots__ = ("backward", "forward", "graphs", "in_specs", "specs", "warnings")

    def __init__(
        self,
        forward: Graph,
        in_specs: Sequence[Any],
        results: Sequence[Any],
        of: Callable[..., Any],
        device: Device,
        name: str = "",
        backward: Backward | None = None,
        wrt: Sequence[int] = (),
        mask: Sequence[bool] = (),
        refused: str | None = None,
        several: bool = False,
        bounds: Bounds = None,
        graphs: GraphCalls | None = None,
    ) -> None:
        in_complex = any(v.weak and v.dtype.is_complex for v in forward.inputs)
        super().__init__(name, len(results), in_complex, wrt, mask, refused, several, bounds)
        self.forward, self.in_specs, self.backward, self.graphs = forward, in_specs, backward, graphs
        self.warnings: list[DeferredWarning] = []
        about = [*results, *(s for s in in_specs if s is not None)]
        self.specs = [
            *results,
            *(of(v.dtype, device, v.shape, image_like(v.shape, about)) for v in forward.outputs[len(results) :]),
        ]

    def plan(self, device: Device, origin: Any = None, record: PlanNote | None = None) -> Callable[..., Any]:
        """The plan: it takes tensors and Python numbers in the order of the graph's inputs.

        `origin` is the call that its backward spec belongs to; `record`, where one is kept of the plan, takes what it
        is made of.
        """
        backward_spec = None
        if self.backward is not None:
            assert self.graphs is not None
            backward_spec = BackwardSpec(self.name, self.backward, self.wrt, self.mask, device, self.graphs)
            backward_spec.origin = origin
            backward_spec.record = None if record is None else record.key
        exe = None if backend_of(device).shapes_only else executable(self.forward, self.in_specs, self.specs)
        if record is not None and exe is not None:
            record.take(self, self.specs, lambda: packing.packed_program(exe, device), lambda: self.backward)
        return self.around(exe, self.in_specs, self.specs, backward_spec)


def warning_plan(plan: Callable[..., Any], warnings: Sequence[DeferredWarning]) -> Callable[..., Any]:
    """The plan behind warnings of its operator's body, which runs once for all calls."""
    if not warnings:
        return plan

    def run(*inputs: Any) -> Any:
        give_warnings(warnings)
        return plan(*inputs)

    return run


def fitting(plan: Callable[..., Any], n: int, dtype: DType, bounds: Bounds) -> Callable[..., Any]:
    """The plan behind a check of its numbers, the arguments after the first n: they must lie in the range of `dtype`,
    which has `bounds`.
    """
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
        # Another thread may replace a tensor's memory meanwhile: the storage is held until the call returns.
        operands = [(inputs[i]._ptr, inputs[i]._spec, inputs[i]._storage) for i, _ in tensors]
        for (_, expected), (_, actual, _) in zip(tensors, operands, strict=True):
            if actual is not expected:
                check_memory(actual)
                raise RuntimeError(
                    "the memory of a tensor was changed by another thread while an operator was about to read it"
                )
        return exe(*[ptr for ptr, _, _ in operands], *(number_words(words) if in_complex else words))

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
    """Python numbers as kernel arguments; a complex number becomes two."""
    if not any(type(v) is complex for v in values):
        return values
    words: list[Any] = []
    for value in values:
        words += [value.real, value.imag] if type(value) is complex else [value]
    return words


def _quiet(run: Callable[..., Any], specs: Sequence[Spec]) -> Callable[..., Any]:
    """A plan without a backward node; in inference mode it marks its results."""
    if not STATE.word & INFERENCE:
        return run

    def marked(*inputs: Any) -> Any:
        results = run(*inputs)
        for tensor in results if type(results) is tuple else (results,):
            meta = HOOKS.new_meta()
            meta.inference = True
            tensor._autograd_meta = meta
        return results

    return marked

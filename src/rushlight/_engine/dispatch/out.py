"""Calls with `out=`: the kernel writes into the tensor that is given, or its result is copied there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.registry import backend_of
from rushlight._base.errors import warn_user
from rushlight._engine.core.hooks import HOOKS, bump
from rushlight._engine.core.memory import own
from rushlight._engine.core.state import AUTOCAST, GRAD, OBSERVED, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.executables import executable
from rushlight._engine.dispatch.lower import trace_operator
from rushlight._engine.dispatch.lowered_call import common_device
from rushlight._engine.dispatch.out_dtypes import check_asked_dtype, check_out_dtype
from rushlight._engine.dispatch.plans.bind import bind, flatten, only_tensors
from rushlight._engine.dispatch.plans.native_lookup import RUNS, ran
from rushlight._engine.dispatch.plans.native_plans import out_plan
from rushlight._engine.dispatch.plans.plan import number_words
from rushlight._engine.dispatch.plans.plan_templates import KernelTemplate
from rushlight._engine.dispatch.plans.results import with_out
from rushlight._engine.dispatch.watch import observed
from rushlight._engine.indexing.inplace import check_inference, grow, overlaps_partly, share_memory
from rushlight._graph.core import Graph, GraphBuilder, evaluate
from rushlight._ops.table import Operator
from rushlight._types.dtype import DType
from rushlight._types.layout import broadcast_shapes, is_dense, overlaps_itself
from rushlight._types.promotion import join, number_dtype, result_type
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.spec import Spec
from rushlight._types.symbols import SpecializationError

if TYPE_CHECKING:
    from rushlight._engine.dispatch.call import Caller

__all__ = ["OVERLAP", "SELF_OVERLAP", "call_out", "check_outs", "for_target", "warn_of_resizing", "write_out"]

_STATE = STATE
_UNRECORDED = frozenset(("no_history", "no_history_of_out"))
SELF_OVERLAP = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please clone() the tensor before "
    "performing the operation."
)
OVERLAP = (
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. Please clone() the tensor "
    "before performing the operation."
)


def call_out(caller: Caller, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> Any:
    """Compute into given tensors: resized if need be, cast if PyTorch allows it.  Nothing is cast before by itself, and
    of operators tagged "no_history" or "no_history_of_out" nothing is recorded.
    """
    without = AUTOCAST if _UNRECORDED.isdisjoint(caller.op.tags) else AUTOCAST | GRAD
    if _STATE.word & without:
        word = _STATE.word
        _STATE.word = word & ~without
        try:
            return call_out(caller, args, kwargs, out)
        finally:
            _STATE.word = word
    values = bind(caller.op, caller.name, args, kwargs)
    _, tensors, _ = flatten(caller.op, values)
    apart = "apart" in caller.op.tags
    outs = check_outs(caller.name, out, tensors, apart, len(caller.op.schema.results))
    if "in_target" in caller.op.tags:
        values = for_target(caller.op, caller.name, values, outs[0].dtype)
        kwargs = {**kwargs, "dtype": outs[0].dtype}
    else:
        asked = next((v for a, v in zip(caller.op.schema.arguments, values, strict=True) if a.name == "dtype"), None)
        check_asked_dtype(asked, outs[0].dtype)
    if caller.op.out == "dim" and len(args) < 2 and not kwargs.keys() & {"dim", "axis"}:
        raise TypeError(f"{caller.name}() received an invalid combination of arguments: with 'out' it takes 'dim'")
    if caller.op.out == "truth" and outs[0].dtype.name not in ("bool", "uint8"):
        raise RuntimeError(f"{caller.name} only supports bool tensor for result, got: {outs[0].dtype.scalar}")
    if (apart or caller.op.like == "operands") and any(overlaps_itself(t._spec.shape, t._spec.strides) for t in outs):
        raise RuntimeError(SELF_OVERLAP)
    if caller.op.like == "operands" and any(t is outs[0] for t in tensors):
        shape = broadcast_shapes(*[t._spec.shape for t in tensors])
        if shape != tuple(outs[0]._spec.shape):  # what is read may not be resized
            raise RuntimeError(
                f"output with shape {list(outs[0]._spec.shape)} doesn't match the broadcast shape {list(shape)}"
            )
    try:
        if caller.op.kind == "graph" and len(outs) == 1 and direct_out(caller, values, outs[0]):
            return outs[0]
        made = caller.call(args, kwargs)
    except NotImplementedError:  # as in PyTorch, whether the result fits `out` comes before whether there is a kernel
        if caller.op.promote == "same":
            _check_joined(caller, values, outs[0])
        raise
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    for place, (tensor, result) in enumerate(zip(outs, results, strict=True)):
        write_out(caller.name, tensor, result, caller.op.out == "exact", place)
    return (
        outs[0]
        if not isinstance(out, (tuple, list))
        else (with_out(caller.result)(outs) if caller.result is not None else tuple(outs))
    )


def for_target(op: Operator, name: str, values: Sequence[Any], dtype: DType) -> list[Any]:
    """The bound arguments of an operator that computes in the dtype of what it writes to ("in_target"); RuntimeError
    where they ask for another.
    """
    place = next(i for i, a in enumerate(op.schema.arguments) if a.name == "dtype")
    check_asked_dtype(values[place], dtype)
    return [*values[:place], dtype, *values[place + 1 :]]


def check_outs(name: str, out: Any, tensors: Sequence[Tensor], apart: bool, several: int | None) -> list[Tensor]:
    """The tensors given as `out=`, of any function that takes some; `several` says how many of them (1: the tensor
    itself; 0: a tuple of as many as there are results; None: whatever is given).

    TypeError for what is no tensor; RuntimeError where gradients are wanted, where one is on another device, and where
    one lies across an argument (with `apart`, also where it is one).
    """
    listed = isinstance(out, (tuple, list))
    if several is not None and listed is not (several != 1):
        raise TypeError(
            f"{name}(): argument 'out' must be {'Tensor' if several == 1 else 'tuple of Tensors'}, not {type(out).__name__}"
        )
    outs = list(out) if listed else [out]
    if several is not None and 1 < several != len(outs):
        raise TypeError(f"{name}(): expected tuple of {several} elements as 'out' but got {len(outs)}")
    for tensor in outs:
        only_tensors(name, out=tensor)
    if _STATE.word & GRAD and (any(t._rg for t in tensors) or any(t._rg for t in outs)):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
            "requires grad."
        )
    for tensor in outs:
        if HOOKS.lazy_clones:
            own(tensor)
        check_inference(tensor)
        if tensors and all(t.device is not tensor.device for t in tensors):
            raise RuntimeError(
                f"{name}(): expected all tensors to be on the same device, but the arguments are on {tensors[0]._spec.device} and "
                f"out is on {tensor._spec.device}"
            )
        for other in tensors:
            if other is tensor or not overlaps_partly(tensor, other):
                if not apart or (other is not tensor and not share_memory(tensor, other)):
                    continue
            raise RuntimeError(OVERLAP)
    return outs


def _check_joined(caller: Caller, values: Sequence[Any], out: Tensor) -> None:
    """The error of an `out` that a result in the operands' joined dtype does not fit."""
    named = {a.name: v for a, v in zip(caller.op.schema.arguments, values, strict=True)}
    joined = [v for name, v in named.items() if caller.op.promote_over is None or name in caller.op.promote_over]
    tensors = [(v._spec.dtype, v._spec.ndim) for v in joined if isinstance(v, Tensor)]
    dtype = result_type(tensors, [number_dtype(v) for v in joined if isinstance(v, (bool, int, float, complex))], join)
    check_out_dtype(caller.name, out.dtype, dtype, caller.op.out == "exact")


def warn_of_resizing(out: Tensor, shape: Sequence[int]) -> None:
    """Warn that a result takes another shape, where it has elements."""
    if out._spec.numel:
        warn_user(
            f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not match the required output "
            f"shape {list(shape)}. This behavior is deprecated, and in a future PyTorch release outputs will not be resized unless they "
            "have zero elements. You can explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0)."
        )


def write_out(name: str, out: Tensor, result: Tensor, exact: bool = False, place: int = 0) -> None:
    """Copy a finished result into `out`, whose dtype must be the result's where it is `exact`; `place` is the number of
    the result.
    """
    only_tensors(name, out=out)
    check_out_dtype(name, out.dtype, result.dtype, exact, place)
    if out.shape != result.shape:
        warn_of_resizing(out, result.shape)
        shape, strides = tuple(result._spec.shape), tuple(result._spec.strides)
        grow(out, shape, strides if is_dense(shape, strides) else None)
    elif overlaps_itself(out._spec.shape, out._spec.strides):
        raise RuntimeError(SELF_OVERLAP)
    STATE.told_to_change += 1  # whoever names a tensor as `out=` means it: no transform asks whether it may be changed
    try:
        out.copy_(result)
    finally:
        STATE.told_to_change -= 1


def direct_out(caller: Caller, values: Sequence[Any], out: Tensor) -> bool:
    """Let the kernel write into `out` where shape, dtype and memory allow it."""
    template, tensors, numbers = flatten(caller.op, values)
    if HOOKS.lazy_clones:
        own(out)
    if (
        out._storage is None
        or any(share_memory(out, t) for t in tensors)
        or backend_of(common_device(caller.name, [*tensors, out])).shapes_only
    ):
        return False
    if overlaps_itself(out._spec.shape, out._spec.strides):
        return False
    key = ("out", template, out._spec, _STATE.word & OBSERVED, *[t._spec for t in tensors])
    plan = caller.plans.get(key)
    if plan is None:
        HOOKS.operator_name = caller.op.name
        specs = [t._spec for t in tensors]
        plan = _cast_writer(caller, template, specs, out._spec)
        if plan is None:
            graph, count = trace_operator(caller.op, template, specs)
            if not _fills(graph, count, out._spec):
                return False
            in_specs = [*specs, *[None] * (len(graph.inputs) - len(specs)), out._spec]
            exe = executable(_with_target(graph, out._spec), in_specs, [out._spec], aliases={0: len(graph.inputs)})
            plan = writer(exe, len(specs))
        caller.plans[key] = plan
        if _STATE.word & OBSERVED:
            plan = caller.plans[key] = observed(plan, caller.op.name, caller.op, template)
    plan(*tensors, *numbers, out)
    bump(out._storage)
    if RUNS.now is not None:
        ran(native_out(plan, caller, template, len(tensors), numbers), (*tensors, *numbers, out), out)
    return True


def native_out(plan: Any, caller: Caller, template: tuple[Any, ...], n: int, numbers: Sequence[Any]) -> Any:
    """The plan of a call with `out=`, which takes (n tensors, numbers, out) and returns `out`."""

    apart = "apart" in caller.op.tags

    def closure(*args: Any) -> Any:
        check_outs(caller.name, args[-1], args[:n], apart, 1)  # native plans leave memory that is shared to this
        made = caller.plan(template, list(args[:n]))(*args[:-1])
        write_out(caller.name, args[-1], made)
        return args[-1]

    if not hasattr(plan, "exe") or any(type(v) is complex for v in numbers):
        return closure
    return out_plan(plan.exe, closure, n, len(numbers))


def _fills(graph: Graph, count: int, target: Any) -> bool:
    """Whether the only result of a graph can go where a tensor of this spec is."""
    result = graph.outputs[0]
    return count == 1 and result.shape == target.shape and result.dtype is target.dtype


def _with_target(graph: Graph, target: Any) -> Graph:
    """The graph with an input more: the memory that its result goes to."""
    builder = GraphBuilder()
    inputs = [builder.input(v.shape, v.dtype, v.weak) for v in graph.inputs]
    builder.input(tuple(target.shape), target.dtype)
    with builder:
        outputs = evaluate(graph, inputs)
    return builder.finish(outputs)


def _cast_writer(
    caller: Caller, template: tuple[Any, ...], specs: Sequence[Spec], target: Spec
) -> Callable[..., None] | None:
    """The plan of a call with `out=` from a plan template; None where there is none."""

    def make(shape_env: ShapeEnv, symbolic_specs: list[Any]) -> KernelTemplate:
        *given, out = symbolic_specs
        graph, count = trace_operator(caller.op, template, given)
        if not _fills(graph, count, out):
            raise SpecializationError("a result that does not fit")
        numbers = [None] * (len(graph.inputs) - len(given))
        return KernelTemplate(
            _with_target(graph, out), [*given, *numbers, out], [out], shape_env, aliases={0: len(graph.inputs)}
        )

    if not backend_of(target.device).symbolic:
        return None
    found = caller.shape_classes.find(("out", template, _STATE.word), [*specs, target], make)
    return None if found is None else writer(found[0].executable(found[1]), len(specs))


def writer(exe: Any, n: int) -> Callable[..., None]:
    """A plan that runs an executable on n tensors and numbers; its result goes into the last tensor that it is given."""

    def run(*args: Any) -> None:
        exe(*[t._ptr for t in args[:n]], args[-1]._ptr, *number_words(list(args[n:-1])))

    run.exe = exe  # type: ignore[attr-defined]
    return run

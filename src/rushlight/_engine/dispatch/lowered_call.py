"""Lowering of an operator's call: its graph and derivative, the specs of its results, its device, the
name of its node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.errors import NotDifferentiableError, deferred_warnings
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.packing import number_bounds
from rushlight._engine.core.state import RECORDING, STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.backward_spec import BackwardSpec
from rushlight._engine.dispatch.graph_calls import GRAPH_CALLS
from rushlight._engine.dispatch.lower import Literal, Slot, differentiate, trace_operator, transform
from rushlight._engine.dispatch.plans.plan import LoweredCall
from rushlight._engine.dispatch.plans.result_strides import operand_strides
from rushlight._graph.core import Graph, live_nodes
from rushlight._ops.table import Operator
from rushlight._types.device import CPU, Device
from rushlight._types.dtype import DType
from rushlight._types.layout import image_strides
from rushlight._types.spec import Spec, check_memory

__all__ = [
    "bounds_of",
    "common_device",
    "node_name",
    "on_one_device",
    "lowered_call",
    "operator_backward_spec",
    "result_specs",
    "wanted",
]


def lowered_call(
    op: Operator,
    template: tuple[Any, ...],
    specs: Sequence[Any],
    wrt: Sequence[int],
    device: Device,
    of: Callable[..., Any] = Spec.of,
) -> LoweredCall:
    """Lower a call, with derivatives for the tensors numbered `wrt`; the sizes of `specs` may be symbolic,
    `of` makes such specs.
    """
    with deferred_warnings() as warnings:
        lowered = _lowered(op, template, specs, wrt, device, of)
    lowered.warnings = warnings
    return lowered


def _lowered(
    op: Operator,
    template: tuple[Any, ...],
    specs: Sequence[Any],
    wrt: Sequence[int],
    device: Device,
    of: Callable[..., Any],
) -> LoweredCall:
    whole, count = trace_operator(op, template, specs, residuals=bool(wrt) and op.gradient_rule is not None)
    graph = (
        whole
        if len(whole.outputs) == count
        else Graph(whole.inputs, live_nodes(whole.nodes, whole.outputs[:count]), whole.outputs[:count])
    )
    results = result_specs(op, graph.outputs, specs, device, template, of)
    in_specs = [*specs, *[None] * (len(graph.inputs) - len(specs))]
    bounds = bounds_of(op, template, results[0].dtype)
    mask = [v.dtype.is_floating_point or v.dtype.is_complex for v in graph.outputs]
    if wrt and count > 1:  # a permutation, say, does not want a gradient although it is of floats
        depends = transform.reached(graph, wrt)
        mask = [m and d for m, d in zip(mask, depends, strict=True)] if any(depends) else mask
    if not wrt or not any(mask):
        return LoweredCall(graph, in_specs, results, of, device, bounds=bounds)
    try:
        found = differentiate(op, template, specs, wrt, mask, traced=(whole, count))
    except NotDifferentiableError as error:
        return LoweredCall(graph, in_specs, results, of, device, refused=str(error), bounds=bounds)
    return LoweredCall(
        found.forward,
        in_specs,
        results,
        of,
        device,
        node_name(op, template, specs),
        found,
        wrt,
        mask,
        bounds=bounds,
        graphs=GRAPH_CALLS,
    )


def bounds_of(op: Operator, template: Sequence[Any], dtype: DType) -> tuple[int, int] | None:
    """The range in which the numbers of a call must lie that gives a `dtype`; None where any goes.

    Numbers in the place of tensors wrap around, but for operators tagged "fits"; those that are declared as numbers do
    not, but for operators tagged "any_number", whose numbers are none of the results' kind (scales).
    """
    if "any_number" in op.tags:
        return None
    places = [
        a.base
        for a, item in zip(op.schema.arguments, template, strict=True)
        if isinstance(item, Slot) and item.kind not in ("tensor", "list")
    ]
    return number_bounds(dtype) if places and ("fits" in op.tags or "Tensor" not in places) else None


def wanted(op: Operator, template: Sequence[Any], tensors: Sequence[Tensor]) -> list[int]:
    """The numbers of the tensors that want a gradient; RuntimeError for one that can have none."""
    wrt = [i for i, t in enumerate(tensors) if t._rg]
    if not wrt or not (op.constants or op.choosing):
        return wrt
    names = [
        a.name
        for a, item in zip(op.schema.arguments, template, strict=True)
        if isinstance(item, Slot) and item.kind == "tensor"
    ]
    for i in wrt:
        if names[i] in op.constants:
            raise RuntimeError(
                f"The function '{op.public}' is not differentiable with respect to argument '{names[i]}'. This input cannot have requires_grad True."
            )
    return [i for i in wrt if names[i] not in op.choosing]


def operator_backward_spec(
    op: Operator,
    template: tuple[Any, ...],
    tensors: Sequence[Tensor],
    wrt: Sequence[int],
    differentiable: Sequence[bool],
    overwritten: Sequence[int] = (),
    inplace: bool = False,
    traced: tuple[Graph, int] | None = None,
) -> BackwardSpec:
    """How to differentiate this call; see `BackwardSpec`, and `differentiate` for `traced`."""
    specs = [t._spec for t in tensors]
    found = differentiate(op, template, specs, wrt, differentiable, overwritten, traced)
    backward_spec = BackwardSpec(
        node_name(op, template, specs, inplace), found, wrt, differentiable, specs[0].device, GRAPH_CALLS
    )
    backward_spec.origin = (op, template, specs)
    return backward_spec


def node_name(op: Operator, template: Sequence[Any], specs: Sequence[Spec], inplace: bool = False) -> str:
    """The name of the backward node of this call."""
    if isinstance(op.node, str):
        return op.node_name({}, inplace)
    rest = iter(specs)
    given: dict[str, Any] = {}
    for argument, item in zip(op.schema.arguments, template, strict=True):
        if isinstance(item, Slot) and item.kind == "list":
            given[argument.name] = [next(rest) for _ in range(item.count)]
        elif isinstance(item, Slot):
            given[argument.name] = next(rest) if item.kind == "tensor" else item
        else:
            given[argument.name] = item.value if isinstance(item, Literal) else item
    return op.node_name(given, inplace)


def common_device(name: str, tensors: Sequence[Tensor]) -> Device:
    """The device of a call.  0-dim CPU tensors may be mixed in; any other mix raises."""
    check_memory(*[t._spec for t in tensors])
    devices = {t._spec.device for t in tensors}
    if len(devices) <= 1:
        return next(iter(devices), CPU)
    large = {t._spec.device for t in tensors if t._spec.ndim}
    without = [device for device in devices if backend_of(device).shapes_only]
    if len(large) <= 1 and without:
        return without[0]
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {' and '.join(sorted(map(str, devices)))}! "
        f"(when checking arguments of {name})"
    )


def on_one_device(tensors: list[Tensor], written: int = 0) -> list[Tensor]:
    """The operands of a call with 0-dim tensors of the host copied to the device of the others, as PyTorch allows them
    beside those.

    The first `written` are written to and stay where they are.  A mix that is not allowed is left to `common_device`.
    """
    if STATE.word & RECORDING:
        tensors = STATE.recording.operands(tensors)
    devices = {t._spec.device for t in tensors}
    if len(devices) < 2:
        return tensors
    elsewhere = [device for device in devices if not backend_of(device.real).host_readable]
    if len(elsewhere) != 1 or backend_of(elsewhere[0]).shapes_only:
        return tensors
    return [
        HOOKS.move(t, elsewhere[0]) if k >= written and not t._spec.ndim and t._spec.device is not elsewhere[0] else t
        for k, t in enumerate(tensors)
    ]


# Numbers that PyTorch's kernels take as parameters; all others are operands without dims, which decide on strides too.
_PARAMETERS = {
    "clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",), "lerp": ("weight",), "pow": ("exponent",), "float_power": ("exponent",),
}  # fmt: skip


def result_specs(
    op: Operator,
    values: Sequence[Any],
    specs: Sequence[Any],
    device: Device,
    template: Sequence[Any],
    of: Callable[..., Any] = Spec.of,
) -> list[Any]:
    """Specs of the results, made by `of`: dtype and shape from the graph, strides by the operator's rule (which may ask
    for the call's other arguments).
    """
    found = []
    declared = zip(op.schema.arguments, template, strict=True) if op.numbers else ()
    seen = set(op.numbers).difference(_PARAMETERS.get(op.name, ()))
    numbers = any(
        a.name in seen and v is not None and not (isinstance(v, Slot) and v.kind == "tensor") for a, v in declared
    )
    for value in values:
        strides = None
        if op.like == "operands" and specs:
            operands = [s for s in specs if len(s.shape) <= len(value.shape)]
            if op.name == "pow" and numbers:  # of a number: row-major, as in PyTorch
                operands = []
            strides = operand_strides(value.shape, operands[::-1] if op.name == "rsub" else operands, numbers)
        elif op.like == "image":
            strides = image_strides(value.shape, specs[0].shape, specs[0].strides)
        elif callable(op.like):
            more = (
                [[v.value if isinstance(v, Literal) else v for v in template]] if "laid_by_arguments" in op.tags else []
            )
            strides = op.like(value.shape, specs, *more)
        found.append(of(value.dtype, device, value.shape, strides))
    return found

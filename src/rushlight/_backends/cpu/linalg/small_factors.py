"""The choice of factorisations that are small enough for lanes, and their calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.linalg import small_factors_native as native
from rushlight._backends.cpu.linalg.lapack import batches, lapack_call, strides_of
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable, native_address
from rushlight._types.layout import numel

__all__ = ["factor_call"]

_SMALL = 8  # most rows and columns for which a library call costs more than empty lanes
_SMALL_OF_MANY = 32  # the same for full lanes
_GRAIN = 1 << 14  # least steps worth a thread
_KERNELS: dict[tuple[str, str], Callable[..., Any]] = {}


def factor_call(step: ExternStep) -> list[Launch]:
    """The kernel of a factorisation or of a triangular system: one of ours for small real matrices, else LAPACK's."""
    return _small_call(step) if _is_small(step) else lapack_call(step)


def _is_small(step: ExternStep) -> bool:
    dtype = step.inputs[0].dtype
    if (step.name, dtype.name) not in native.SMALL:
        return False
    many = numel(step.inputs[0].shape[:-2]) >= native.LANE_BYTES // dtype.itemsize
    return max(n for x in step.inputs for n in x.shape[-2:]) <= (_SMALL_OF_MANY if many else _SMALL)


def _small_call(step: ExternStep) -> list[Launch]:
    dtype = step.inputs[0].dtype
    key = step.name, dtype.name
    if key not in _KERNELS:
        _KERNELS[key] = make_kernel_callable(native_address(native.SMALL[key]), f"small_{step.name}_{dtype.name}")
    lead = step.inputs[0].shape[:-2]
    total, lanes = numel(lead), native.LANE_BYTES // dtype.itemsize
    records, steps = [], []
    for buffer, operand in enumerate((*step.outputs, *step.inputs)):
        rank = len(operand.shape) - len(lead)
        batch, row, column = strides_of(operand, rank)
        records += [buffer, *(*operand.shape[len(lead) :], 1, 1)[:2], row, column]
        steps.append(batch)
    dims = batches(lead, steps)
    elements = sum(numel(x.shape[-2:]) for x in step.inputs)
    work = elements * (lanes + max(step.inputs[0].shape[-2:]))
    chunk = lanes * max(1, min(-(-total // lanes), _GRAIN // work))
    space = native.LANE_BYTES * (elements + step.inputs[0].shape[-1] + 1)
    head = [-(-total // chunk), int(work * total > _GRAIN * lanes), len(step.sizes), *step.sizes]
    head += [0] * (8 - len(head))
    params = step.params
    words = [
        chunk,
        total,
        len(dims),
        space,
        len(steps),
        int(params.get("upper", False)),
        int(params.get("unit", False)),
    ]
    ints = [*head, *words, *records, *[w for row in dims for w in row]]
    return [Launch(_KERNELS[key], ints, range(len(step.inputs)))]

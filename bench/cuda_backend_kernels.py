"""Kernels that the backend's routines build, as flagships and unit kernels for `cuda_kernels`: one launch each, on arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from bench.cuda_kernels import Case, bf16, flagship, normal, unit

from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm.grouped import grouped_steps
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand, Step
from rushlight._types.dtype import BFLOAT16, BY_NAME, INT32, DType

__all__ = ["Arrays"]

Sizes = tuple[int, ...]


class Arrays:
    """Operands over arrays: `case(steps)` is a launch of theirs with the arrays in the operands' places."""

    def __init__(self) -> None:
        self.held: dict[Memory, Any] = {}

    def operand(self, array: Any, dtype: DType | None = None) -> Operand:
        """A row-major operand; bfloat16 lies as uint16, floats of eight bits as uint8."""
        memory = Memory(array.nbytes, "array")
        self.held[memory] = array
        strides = [s // array.itemsize for s in array.strides]
        return Operand(memory, dtype or BY_NAME[array.dtype.name], array.shape, strides)

    def case(self, steps: Sequence[Step], rtol: float, atol: float, **more: Any) -> Case:
        (step,) = steps
        assert isinstance(step, Launch)
        arguments = [
            self.held[x.memory] if isinstance(x, Operand) else self.held[x] if isinstance(x, Memory) else x
            for x in step.arguments
        ]
        return Case(step.kernel, step.grid, arguments, rtol, atol, **more)


# ***** products of groups *****


def _grouped(left: Sizes, right: Sizes, ends: Sequence[int], way: str) -> Case:
    """bfloat16; groups along the rows of the first operand, or the inner dim."""
    arrays = Arrays()
    a, b = (arrays.operand(bf16(normal(*s, seed=n)), BFLOAT16) for n, s in enumerate((left, right)))
    groups = arrays.operand(np.array(ends, np.int32), INT32)
    shape = (left[0], right[-1]) if len(right) == 3 else (len(ends), left[0], right[-1])
    out = arrays.operand(np.zeros(shape, np.uint16), BFLOAT16)
    with PRODUCTS.scoped(way):
        steps = grouped_steps(ExternCall("grouped_dot", [a, b, groups], [out], {}))
    return arrays.case(steps, 2e-2, 1e-1, flops=2 * ends[-1] * left[0 if len(right) == 2 else 1] * right[-1])


_TOKENS, _EXPERTS, _WIDTH, _HIDDEN = 16384, 8, 2048, 4096
_UNEVEN = [
    int(_TOKENS * (n + 1) ** 2 / _EXPERTS**2) for n in range(_EXPERTS)
]  # the last group has 15 times the first's rows


@flagship
def grouped_rows(small: bool = True) -> Case:
    """What experts do: rows of tokens in groups, a matrix for each."""
    if small:
        return _grouped((300, 64), (3, 64, 128), [70, 70, 290], "mma")
    return _grouped((_TOKENS, _WIDTH), (_EXPERTS, _WIDTH, _HIDDEN), _UNEVEN, "mma")


@flagship
def grouped_inner(small: bool = True) -> Case:
    """The gradient of their matrices: sums over the tokens of each."""
    if small:
        return _grouped((64, 300), (300, 128), [70, 70, 290], "mma")
    return _grouped((_WIDTH, _TOKENS), (_TOKENS, _HIDDEN), _UNEVEN, "mma")


@flagship
def wgmma_grouped_rows(small: bool = True) -> Case:
    if small:
        return _grouped((300, 128), (3, 128, 136), [70, 70, 290], "wgmma")
    return _grouped((_TOKENS, _WIDTH), (_EXPERTS, _WIDTH, _HIDDEN), _UNEVEN, "wgmma")


def _unit(name: str, build: Callable[[], Case], *instructions: str) -> None:
    build.__name__ = name
    unit(*instructions)(build)


_unit(
    "wgmma_groups_of_rows", lambda: wgmma_grouped_rows(True), "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16",
    "cp.async.bulk.tensor.3d",
)  # fmt: skip

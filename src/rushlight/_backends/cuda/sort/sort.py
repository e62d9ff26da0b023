"""`sort`, `topk` and `kth` on CUDA devices.

Of equal elements those with the smaller indices come first, in `topk` and `kth` too; PyTorch leaves that open on
GPUs.
"""

from __future__ import annotations

from rushlight._backends.cuda.arguments import merged
from rushlight._backends.cuda.externs import ExternCall, extern
from rushlight._backends.cuda.program.steps import Memory, Operand, Step
from rushlight._backends.cuda.sort.keys import key_dtype
from rushlight._backends.cuda.sort.radix import radix_steps
from rushlight._backends.cuda.sort.short import LONGEST, candidates_launch, finals_launch, short_launch
from rushlight._schedule.library import CallForm
from rushlight._types.dtype import UINT64
from rushlight._types.layout import numel

__all__: list[str] = []

_FORM = CallForm(strided=True, strided_results=True)
_SHRINKS = 4  # how many times shorter each round of a tournament makes a row, at least


def _rows(call: ExternCall) -> list[Operand]:
    """The operand and both results, with the dim that is sorted last."""
    dim = call.params["dim"]
    moved = []
    for x in (call.inputs[0], *call.outputs):
        order = [*(d for d in range(len(x.shape)) if d != dim), dim]
        shape, strides = (tuple(of[d] for d in order) for of in (x.shape, x.strides))
        moved.append(Operand(x.memory, x.dtype, shape, strides, x.offset))
    return merged(1, *moved)


def _sorted(call: ExternCall, first: int, descending: bool) -> list[Step]:
    """The elements from a rank on, as many as the results have."""
    x, values, indices = _rows(call)
    if not numel(values.shape):
        return []
    if x.shape[-1] <= LONGEST:
        return [short_launch(x, values, indices, first, descending)]
    if first == 0 and _SHRINKS * values.shape[-1] <= LONGEST:
        return _tournament(call, x, values, indices, descending)
    return radix_steps(call, x, values, indices, first, descending)


def _tournament(call: ExternCall, x: Operand, values: Operand, indices: Operand, descending: bool) -> list[Step]:
    """The first of pieces, of those again the first, until one piece is left."""
    rows, kept, length = numel(x.shape[:-1]), values.shape[-1], x.shape[-1]
    sizes = [8, 4] if key_dtype(x.dtype) is UINT64 else [8]
    steps: list[Step] = []
    source: Operand | list[Memory] = x
    while length > LONGEST:
        pieces = -(-length // LONGEST)
        outs = [call.scratch(size * rows * pieces * kept, "entries") for size in sizes]
        steps.append(candidates_launch(source, x.dtype, rows, length, kept, outs, descending))
        source, length = outs, pieces * kept
    assert not isinstance(source, Operand)
    return [*steps, finals_launch(x, values, indices, source, length)]


@extern("sort", form=_FORM)
def sort(call: ExternCall) -> list[Step]:
    return _sorted(call, 0, call.params["descending"])


@extern("topk", form=_FORM)
def topk(call: ExternCall) -> list[Step]:
    return _sorted(call, 0, call.params["largest"])


@extern("kth", form=_FORM)
def kth(call: ExternCall) -> list[Step]:
    return _sorted(call, call.params["rank"], False)

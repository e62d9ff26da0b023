"""`attention` and `attention_grad` on CUDA devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rushlight._backends.cuda.arguments import dense_operand, merged
from rushlight._backends.cuda.attention.backward import BackwardInputs, to_keys_launch, to_queries_launch
from rushlight._backends.cuda.attention.forward import forward_launch
from rushlight._backends.cuda.attention.scores import AttentionForm
from rushlight._backends.cuda.attention.sequences import (
    Sequences,
    forward,
    forward_of_parts,
    key_parts,
    parts_shapes,
    sum_of_parts,
    to_keys,
    to_queries,
)
from rushlight._backends.cuda.externs import ExternCall, extern
from rushlight._backends.cuda.gemm.precision import float32_precision
from rushlight._backends.cuda.program.steps import Operand, Step
from rushlight._schedule.library import CallForm
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Node

__all__ = ["attention_steps", "call_sequences", "gradient_steps", "sequence_steps"]

_WIDEST = 256  # columns of a head that tiles hold


def fits(node: Node) -> bool:
    """Heads are narrow enough, and no size is 0."""
    operands = node.inputs[1:] if node.prim.name == "attention_grad" else node.inputs
    widest = max(operands[0].shape[-1], operands[2].shape[-1])
    return widest <= _WIDEST and all(numel(v.shape) for v in (*node.inputs, *node.outputs))


@extern("attention", takes=fits, form=CallForm(strided=True, strided_results=True))
def attention(call: ExternCall) -> list[Step]:
    form = AttentionForm(call.params["scale"], call.params["causal"], precision=float32_precision())
    return attention_steps(form, call.inputs, call.outputs)


def attention_steps(form: AttentionForm, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> list[Step]:
    """q, k, v and masks to the result and the rows' logarithms."""
    wide, (norm,) = _merged(form, [*inputs, outputs[0]], outputs[1:])
    q, k, v, *mask, out = wide
    return [forward_launch(form, q, k, v, mask, out, norm)]


def _merged(
    form: AttentionForm, wide: Sequence[Operand], rows: Sequence[Operand]
) -> tuple[list[Operand], list[Operand]]:
    """Operands with two and with one dim besides the batch, merged alike; not at all where scores are changed by place."""
    if form.score is not None:
        return list(wide), list(rows)
    as_wide = [Operand(x.memory, x.dtype, (*x.shape, 1), (*x.strides, 0), x.offset) for x in rows]
    both = merged(2, *wide, *as_wide)
    n = len(wide)
    narrow = [Operand(x.memory, x.dtype, x.shape[:-1], x.strides[:-1], x.offset) for x in both[n:]]
    return both[:n], narrow


@extern("attention_grad", takes=fits, form=CallForm(strided=True, strided_results=True))
def attention_grad(call: ExternCall) -> list[Step]:
    form = AttentionForm(call.params["scale"], call.params["causal"], precision=float32_precision())
    return gradient_steps(form, call.inputs, call.outputs)


def gradient_steps(form: AttentionForm, inputs: Sequence[Operand], outputs: Sequence[Operand]) -> list[Step]:
    """ct, q, k, v, norm, delta and masks to the cotangents of q, k and v."""
    ct, q, k, v, norm, delta, *mask = inputs
    wide, rows = _merged(form, [ct, q, k, v, *outputs, *mask], [norm, delta])
    ct, q, k, v, to_q, to_k, to_v, *mask = wide
    norm, delta = rows
    given = BackwardInputs(ct, q, k, v, norm, delta, mask)
    return [to_queries_launch(form, given, to_q), to_keys_launch(form, given, (to_k, to_v))]


# ***** sequences of different lengths *****


def fits_sequences(node: Node) -> bool:
    """Heads are narrow enough, and no size is 0."""
    q, _, v = node.inputs[1:4] if node.prim.name == "ragged_attention_grad" else node.inputs[:3]
    most = min(node.params["max_q"], node.params["max_k"])
    return max(q.shape[-1], v.shape[-1]) <= _WIDEST and most > 0 and all(numel(x.shape) for x in node.inputs)


def _sequences(call: ExternCall, operands: Sequence[Operand], numbers: Sequence[Operand], paged: bool) -> Sequences:
    q, k, v = operands
    starts_q, second, *more = numbers
    starts_k, used, table = (None, second, more[0]) if paged else (second, more[0] if more else None, None)
    p = call.params
    return Sequences(
        q, k, v, starts_q, starts_k, used, table, p["scale"], p["left"], p["right"], p["max_q"], p["max_k"], float32_precision()
    )  # fmt: skip


@extern("ragged_attention", takes=fits_sequences, form=CallForm(strided=True, strided_results=True))
def ragged_attention(call: ExternCall) -> list[Step]:
    return sequence_steps(call)


@extern("paged_attention", takes=fits_sequences, form=CallForm(strided=True, strided_results=True))
def paged_attention(call: ExternCall) -> list[Step]:
    return sequence_steps(call)


def call_sequences(call: ExternCall) -> Sequences:
    """The operands and numbers of `ragged_attention` or `paged_attention`."""
    return _sequences(call, call.inputs[:3], call.inputs[3:], call.name == "paged_attention")


def sequence_steps(call: ExternCall, span: int | None = None) -> list[Step]:
    """One launch where there are enough rows, else keys in parts of `span`, and their sum."""
    of, (out, norm) = call_sequences(call), call.outputs
    parts, span = key_parts(of) if span is None else (-(-of.max_k // span), span)
    if parts == 1:
        return [forward(of, out, norm)]
    shapes, dtype = parts_shapes(of, parts), of.q.dtype.wide
    sums = [dense_operand(call.scratch(numel(s) * dtype.itemsize, "sums"), dtype, s) for s in shapes]
    return [forward_of_parts(of, span, sums), sum_of_parts(sums, out, norm)]


@extern("ragged_attention_grad", takes=fits_sequences, form=CallForm(strided=True, strided_results=True))
def ragged_attention_grad(call: ExternCall) -> list[Step]:
    ct, q, k, v, norm, delta, *numbers = call.inputs
    of = _sequences(call, (q, k, v), numbers, False)
    to_q, *others = call.outputs
    return [to_queries(of, ct, norm, delta, to_q), to_keys(of, ct, norm, delta, *others)]

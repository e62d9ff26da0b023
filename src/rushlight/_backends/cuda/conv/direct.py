"""Convolutions of few channels a group, as depthwise ones: a program sums up some positions of one channel."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._backends.cuda.arguments import Arguments, Array
from rushlight._backends.cuda.conv.rows import Geometry, digits
from rushlight._backends.cuda.gemm.product import Epilogue, Place
from rushlight._backends.cuda.program.steps import Launch, Operand
from rushlight._codegen.blocks.expressions import Term
from rushlight._types.dtype import DType
from rushlight._types.layout import numel

__all__ = ["direct_launch"]

_BLOCK = 256


def direct_launch(
    x: Operand,
    w: Operand,
    bias: Operand | None,
    out: Operand,
    geometry: Geometry,
    sums: DType,
    epilogue: Epilogue | None,
) -> Launch:
    """x [N, G, C, *S], w [G, O, C, *K], a bias [G, O] into out [N, G, O, *size], or to an epilogue (see
    `convolution_steps`).
    """
    arguments, g = Arguments(), geometry
    source, weights, to = (Array(arguments, v, n) for v, n in ((x, "x"), (w, "w"), (out, "out")))
    more = None if bias is None else Array(arguments, bias, "bias")
    emit = None if epilogue is None else epilogue.declare(arguments)
    n_depth, n_groups = arguments.integer(x.shape[2], "depth"), arguments.integer(x.shape[1], "groups")
    n_outs = arguments.integer(w.shape[1], "outs")
    n_space = [arguments.integer(n, f"space{d}") for d, n in enumerate(x.shape[3:])]
    n_size = [arguments.integer(n, f"size{d}") for d, n in enumerate(g.size)]
    b = arguments.builder(f"direct_convolution_{x.dtype.abbr}_{'x'.join(map(str, g.kernel))}")
    depth, groups, outs = (arguments.term(b, n) for n in (n_depth, n_groups, n_outs))
    space, size = ([arguments.term(b, n) for n in ns] for ns in (n_space, n_size))
    positions = size[0]
    for n in size[1:]:
        positions = positions * n
    blocks = (positions + (_BLOCK - 1)) // _BLOCK
    number = b.program(0) // blocks
    place = b.program(0) % blocks * _BLOCK + b.index(_BLOCK)
    image, group, channel = digits(b, number, [0, groups, outs])
    here = digits(b, place, [0, *size[1:]])
    begins = [p * s - lo for p, s, lo in zip(here, g.stride, g.lo, strict=True)]
    inside = place < positions

    def step(inner: Term, total: Term) -> Sequence[Term]:
        c, *taps = digits(b, inner, [0, *g.kernel])
        known, indices = inside, []
        for begin, tap, gap, apart, extent in zip(begins, taps, g.dilation, g.spread, space, strict=True):
            index = begin + tap * gap
            known = known & (index >= 0)
            if apart > 1:
                known, index = known & (index % apart).equals(0), index // apart
            known = known & (index < extent)
            indices.append(index)
        at = [(n - 1) - tap if g.flip else tap for tap, n in zip(taps, g.kernel, strict=True)]
        weight = weights.pointer(b, group, channel, c, *at).load().to(sums)
        return [total + source.pointer(b, image, group, c, *indices).load(known, 0).to(sums) * weight]

    (total,) = b.loop(0, depth * g.taps, 1, [b.number(0, sums, (_BLOCK,))], step)
    if more is not None:
        total = total + more.pointer(b, group, channel).load().to(sums)
    if emit is None:
        to.pointer(b, image, group, channel, *here).store(total, inside)
    else:
        row, column = (image * positions + place)[:, None], channel.spread((1, 1))
        emit(b, total[:, None], Place((group,), row, column, inside[:, None], (image + 1) * positions, outs))
    programs = x.shape[0] * x.shape[1] * w.shape[1] * -(-numel(g.size) // _BLOCK)
    return Launch(arguments.finish(b), (programs,), arguments.values)

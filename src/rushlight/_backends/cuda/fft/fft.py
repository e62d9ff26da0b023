"""`fft`, `rfft` and `irfft` on CUDA devices: dim after dim, lines that fit a program at once.

A longer line of N1 N2 elements is N2 transforms of N1 elements and N1 of N2, with roots of unity between; one without
such factors is a convolution with a chirp, by transforms of a power of two.
"""

from __future__ import annotations

from rushlight._backends.cuda.arguments import Arguments, Array, Batch, as_reals, dense_operand, merged
from rushlight._backends.cuda.externs import ExternCall, extern
from rushlight._backends.cuda.fft import tables
from rushlight._backends.cuda.fft.line import Line, fits_line, line_launch
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand, Step
from rushlight._codegen.blocks.expressions import Term
from rushlight._prims.linalg.fourier import factor_of
from rushlight._schedule.library import CallForm
from rushlight._types.layout import numel

__all__: list[str] = []

_FORM = CallForm(strided=True, strided_results=True)
_BLOCK = 1024


def _lines(dim: int, *xs: Operand) -> list[Operand]:
    """Operands with the dim last, and as few others as possible."""
    moved = []
    for x in xs:
        order = [*(d for d in range(len(x.shape)) if d != dim), dim]
        shape, strides = (tuple(of[d] for d in order) for of in (x.shape, x.strides))
        moved.append(Operand(x.memory, x.dtype, shape, strides, x.offset))
    return merged(1, *moved)


@extern("fft", form=_FORM)
def fft(call: ExternCall) -> list[Step]:
    x, out, dims = call.inputs[0], call.outputs[0], call.params["dims"]
    if not numel(out.shape):
        return []
    sign = 1 if call.params["inverse"] else -1
    count = 1
    for d in dims:
        count *= x.shape[d]
    factor, steps = factor_of(call.params["norm"], count), list[Step]()
    for k, d in enumerate(reversed(dims)):
        source, target = _lines(d, x if k == 0 else out, out)
        line = Line(source, target, x.shape[d], sign, factor if k == len(dims) - 1 else 1.0)
        steps += transform_steps(call, line)
    return steps


@extern("rfft", form=_FORM)
def rfft(call: ExternCall) -> list[Step]:
    x, out, dim = call.inputs[0], call.outputs[0], call.params["dim"]
    if not numel(out.shape):
        return []
    size = x.shape[dim]
    source, target = _lines(dim, x, out)
    line = Line(source, target, size, -1, factor_of(call.params["norm"], size), limit=size // 2 + 1)
    return transform_steps(call, line)


@extern("irfft", form=_FORM)
def irfft(call: ExternCall) -> list[Step]:
    x, out, dim = call.inputs[0], call.outputs[0], call.params["dim"]
    if not numel(out.shape):
        return []
    size = call.params["size"]
    source, target = _lines(dim, x, out)
    return transform_steps(call, Line(source, target, size, 1, factor_of(call.params["norm"], size), half=True))


# ***** lines of any size *****


def transform_steps(call: ExternCall, line: Line) -> list[Step]:
    """The steps of transforms along a line."""
    complex_ = line.source.dtype.to_complex()
    if fits_line(line.size, complex_):
        return [line_launch(call, line)]
    steps: list[Step] = []
    if line.half:  # all frequencies first
        whole = _dense(call, line, complex_, line.size)
        steps.append(_pointwise(call, line, whole, None, 1.0))
        line = line._replace(source=whole, half=False)
    factors = _factors(line.size, complex_)
    return [*steps, *(_bluestein(call, line) if factors is None else _two_steps(call, line, *factors))]


def _dense(call: ExternCall, line: Line, dtype: object, size: int) -> Operand:
    lead = line.target.shape[:-1]
    complex_ = line.source.dtype.to_complex()
    memory = call.scratch(numel(lead) * size * complex_.itemsize, "lines")
    return dense_operand(memory, complex_, (*lead, size))


def _factors(size: int, dtype: object) -> tuple[int, int] | None:
    """Two factors near each other that lines can have; None where there are none."""
    root = int(size**0.5)
    for first in range(root, 1, -1):
        if size % first == 0:
            pair = size // first, first
            return pair if all(fits_line(n, dtype) for n in pair) else None  # type: ignore[arg-type]
    return None


def _two_steps(call: ExternCall, line: Line, first: int, second: int) -> list[Step]:
    """Element n = second n1 + n2 and frequency k = k1 + first k2."""
    source, target = line.source, line.target
    middle = _dense(call, line, None, line.size)
    lead = source.shape[:-1]
    s, t, m = source.strides[-1], target.strides[-1], middle.strides[:-1]
    down = Line(
        Operand(source.memory, source.dtype, (*lead, second, first), (*source.strides[:-1], s, s * second), source.offset),
        Operand(middle.memory, middle.dtype, (*lead, second, first), (*m, 1, second), middle.offset),
        first, line.sign, twiddle=line.size,
    )  # fmt: skip
    across = Line(
        Operand(middle.memory, middle.dtype, (*lead, first, second), (*m, second, 1), middle.offset),
        Operand(target.memory, target.dtype, (*lead, first, second), (*target.strides[:-1], t, t * first), target.offset),
        second, line.sign, line.factor, step=first, limit=line.limit,
    )  # fmt: skip
    return [line_launch(call, down), line_launch(call, across)]


def _bluestein(call: ExternCall, line: Line) -> list[Step]:
    """A convolution with a chirp, by transforms of a power of two."""
    length = 1 << (2 * line.size - 2).bit_length()
    here, there = _dense(call, line, None, length), _dense(call, line, None, length)
    real, size = here.dtype.to_real(), line.size
    chirp = call.constant(tables.chirp(size, line.sign, real), "chirp")
    spectrum = call.constant(tables.chirp_spectrum(size, length, line.sign, real), "spectrum")
    return [
        _pointwise(call, line, here, chirp, 1.0),
        *transform_steps(call, Line(here, there, length, -1)),
        _pointwise(call, line._replace(source=there, size=length), there, spectrum, 1.0),
        *transform_steps(call, Line(there, here, length, 1)),
        _pointwise(call, line._replace(source=here), line.target, chirp, line.factor, limit=line.limit or size),
    ]


def _pointwise(
    call: ExternCall, line: Line, target: Operand, table: Memory | None, factor: float, limit: int = 0
) -> Launch:
    """Elements of lines times those of a table; zeros behind the line's size; with `half` all frequencies of half of
    them.
    """
    source, size, width = line.source, line.size, limit or target.shape[-1]
    arguments, real = Arguments(), target.dtype.to_real()
    is_complex, to_complex = source.dtype.is_complex, target.dtype.is_complex
    x = Array(arguments, as_reals(source) if is_complex else source, "x")
    y = Array(arguments, as_reals(target) if to_complex else target, "y")
    batch = Batch(arguments, target.shape[:-1])
    factors = None if table is None else arguments.pointer(table, "table", real)
    n_width = arguments.integer(width, "width")
    n_size = arguments.integer(size, "size")
    b = arguments.builder(f"fourier_times_{real.abbr}{'_half' if line.half else ''}")
    many, length = arguments.term(b, n_width), arguments.term(b, n_size)
    blocks = (many + (_BLOCK - 1)) // _BLOCK
    at = batch.split(b, b.program(0) // blocks)
    place = b.program(0) % blocks * _BLOCK + b.index(_BLOCK)
    inside, known = place < many, (place < many) & (place < length)
    middle = length // 2
    index = b.where(place <= middle, place, length - place) if line.half else place
    pointer = x.pointer(b, *at, index)
    re = pointer.load(known, 0.0)
    im: Term = (pointer + 1).load(known, 0.0) if is_complex else b.number(0, real, (_BLOCK,))
    if line.half:
        im = b.where(place.equals(0) | (place * 2).equals(length), 0.0, b.where(place <= middle, im, -im))
    if factors is not None:
        entry = arguments.term(b, factors) + place * 2
        c, s = entry.load(known, 0.0), (entry + 1).load(known, 0.0)
        re, im = re * c - im * s, re * s + im * c
    to = y.pointer(b, *at, place)
    to.store(re * factor, inside)
    if to_complex:
        (to + 1).store(im * factor, inside)
    return Launch(arguments.finish(b), (numel(target.shape[:-1]) * -(-width // _BLOCK),), arguments.values)

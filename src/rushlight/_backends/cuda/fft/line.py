"""Transforms of lines that one program holds in registers.

Powers of two by Stockham's algorithm, which needs no reordering; other short lines as a product with the matrix of the
transform, longer ones as a convolution with a chirp (Bluestein).
"""

from __future__ import annotations

from typing import NamedTuple

from rushlight._backends.cuda.arguments import Arguments, Array, Batch, as_reals
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.fft import tables
from rushlight._backends.cuda.program.steps import Launch, Operand
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._types.dtype import FLOAT32, INT64, DType
from rushlight._types.layout import numel

__all__ = ["Line", "fits_line", "line_launch", "longest"]

_DIRECT = 64
_TILE = 1024

Complex = tuple[Term, Term]


def longest(dtype: DType) -> int:
    """Elements of a line of a power of two."""
    return 4096 if dtype.to_real() is FLOAT32 else 2048


def is_power(n: int) -> bool:
    """Whether it is a power of two."""
    return n & (n - 1) == 0


def fits_line(n: int, dtype: DType) -> bool:
    """Whether one program transforms lines of this size."""
    return n <= longest(dtype) if is_power(n) else 2 * n - 1 <= longest(dtype)


class Line(NamedTuple):
    """Transforms of lines, the last dim of `source` and `target`, whose other dims are alike.

    - `half`: the source holds the frequencies up to size / 2, the others are their conjugates;
    - `twiddle`: results are multiplied by exp(sign 2 pi i j k / twiddle), for j the last index of the batch, k along the
      line;
    - `step`, `limit`: results whose number, `step` times their index along the line plus the last index of the batch (if
      `step` is not 1), is not below `limit` are not stored.
    """

    source: Operand
    target: Operand
    size: int
    sign: int
    factor: float = 1.0
    half: bool = False
    twiddle: int = 0
    step: int = 1
    limit: int = 0


def line_launch(call: ExternCall, line: Line) -> Launch:
    """The launch for all lines."""
    return _LineKernel(call, line).launch()


class _LineKernel:
    def __init__(self, call: ExternCall, line: Line) -> None:
        self.call, self.line, self.arguments = call, line, Arguments()
        source, target = line.source, line.target
        self.real = source.dtype.to_real()
        self.from_complex, self.to_complex = source.dtype.is_complex, target.dtype.is_complex
        self.x = Array(self.arguments, as_reals(source) if self.from_complex else source, "x")
        self.y = Array(self.arguments, as_reals(target) if self.to_complex else target, "y")
        self.batch = Batch(self.arguments, target.shape[:-1])
        self.rows = numel(target.shape[:-1])
        self.n_rows = self.arguments.integer(self.rows, "rows")
        n = line.size
        if is_power(n):
            self.width = n
        else:
            self.width = 1 << (n - 1).bit_length() if n > _DIRECT else max(16, 1 << (n - 1).bit_length())
        if not is_power(n) and n > _DIRECT:
            self.width = 1 << (2 * n - 2).bit_length()
        self.held = max(1, _TILE // self.width)
        if not is_power(n) and n <= _DIRECT:
            self.held = max(16, self.held)

    def table(self, data: bytes, name: str) -> int:
        return self.arguments.pointer(self.call.constant(data, name), name, self.real)

    def pair(self, b: TermBuilder, table: int, index: Term, mask: Term | None = None) -> Complex:
        """Entries of a table of complex numbers."""
        at = self.arguments.term(b, table) + index * 2
        if mask is None:
            return at.load(), (at + 1).load()
        return at.load(mask, 0.0), (at + 1).load(mask, 0.0)

    def launch(self) -> Launch:
        line = self.line
        transform = self.declare()
        twiddles = self.declare_twiddles()
        b = self.arguments.builder(f"fourier_{self.real.abbr}_{line.size}")
        row = b.program(0) * self.held + b.index(self.held)
        at = tuple(i[:, None] for i in self.batch.split(b, row))
        place = b.index(self.width)[None, :]
        inside = ((row < self.arguments.term(b, self.n_rows))[:, None] & (place < line.size)).spread(
            (self.held, self.width)
        )
        re, im = transform(b, self.loaded(b, at, place, inside), place)
        if twiddles:
            re, im = _times((re, im), self.twiddle(b, twiddles, at[-1], place))
        if line.factor != 1.0:
            re, im = re * line.factor, im * line.factor
        self.store(b, at, place, inside, (re, im))
        warps = 8 if self.held * self.width >= 2048 else 4
        grid = (-(-self.rows // self.held),)
        return Launch(self.arguments.finish(b, warps=warps), grid, self.arguments.values)

    # ***** memory *****

    def loaded(self, b: TermBuilder, at: tuple[Term, ...], place: Term, inside: Term) -> Complex:
        line = self.line
        if not self.from_complex:
            re = self.x.pointer(b, *at, place).load(inside, 0.0)
            return re, b.number(0, self.real, re.shape)
        index = place
        if line.half:
            index = b.where(place <= line.size // 2, place, line.size - place)
        pointer = self.x.pointer(b, *at, index)
        re, im = pointer.load(inside, 0.0), (pointer + 1).load(inside, 0.0)
        if line.half:
            alone = place.equals(0) | (place * 2).equals(line.size)
            im = b.where(alone, 0.0, b.where(place <= line.size // 2, im, -im))
        return re, im

    def store(self, b: TermBuilder, at: tuple[Term, ...], place: Term, inside: Term, value: Complex) -> None:
        line = self.line
        if line.limit:
            number = place if line.step == 1 else place * line.step + at[-1]
            inside = inside & (number < line.limit)
        pointer = self.y.pointer(b, *at, place)
        pointer.store(value[0], inside)
        if self.to_complex:
            (pointer + 1).store(value[1], inside)

    # ***** factors between two transforms *****

    def declare_twiddles(self) -> tuple[int, int, int] | None:
        size = self.line.twiddle
        if not size:
            return None
        low = 1 << (size.bit_length() // 2)
        high_table, low_table = tables.split_roots(size, low, self.line.sign, self.real)
        return self.table(high_table, "roots_high"), self.table(low_table, "roots_low"), low

    def twiddle(self, b: TermBuilder, given: tuple[int, int, int], j: Term, k: Term) -> Complex:
        high, low, step = given
        number = (j.to(INT64) * k.to(INT64)) % self.line.twiddle
        return _times(self.pair(b, high, number // step), self.pair(b, low, number % step))

    # ***** the transforms *****

    def declare(self) -> _Transform:
        line = self.line
        if is_power(line.size):
            return _Powers(self, line.size, line.sign)
        return _Direct(self) if line.size <= _DIRECT else _Bluestein(self)


class _Transform:
    """Called with a builder, a pair of tiles [rows, width] and the places [1, width]."""

    def __call__(self, b: TermBuilder, x: Complex, place: Term) -> Complex:
        raise NotImplementedError


class _Powers(_Transform):
    def __init__(self, kernel: _LineKernel, size: int, sign: int) -> None:
        self.kernel, self.size = kernel, size
        self.table = kernel.table(tables.roots(size, sign, kernel.real), f"roots{sign}") if size > 2 else None

    def __call__(self, b: TermBuilder, x: Complex, place: Term) -> Complex:
        re, im = x
        rows, n = re.shape[0], self.size
        half, stride = n // 2, 1
        while half:
            (re0, re1), (im0, im1) = (_apart(b, v, half, stride) for v in (re, im))
            low = (re0 + re1, im0 + im1)
            high = (re0 - re1, im0 - im1)
            if half > 1 and self.table is not None:
                root = self.kernel.pair(b, self.table, b.index(half) * stride)
                high = _times(high, (root[0].reshape(1, half, 1), root[1].reshape(1, half, 1)))
            re, im = (b.paired(u, v).permute(0, 1, 3, 2).reshape(rows, n) for u, v in zip(low, high, strict=True))
            half, stride = half // 2, stride * 2
        return re, im


class _Direct(_Transform):
    def __init__(self, kernel: _LineKernel) -> None:
        self.kernel = kernel
        parts = tables.matrix(kernel.line.size, kernel.width, kernel.line.sign, kernel.real)
        self.tables = [kernel.table(part, name) for part, name in zip(parts, ("cosines", "sines"), strict=True)]

    def __call__(self, b: TermBuilder, x: Complex, place: Term) -> Complex:
        width = self.kernel.width
        at = b.index(width)[:, None] * width + b.index(width)[None, :]
        c, s = ((self.kernel.arguments.term(b, t) + at).load() for t in self.tables)
        zero = b.number(0, self.kernel.real, x[0].shape)
        straight, crossed = b.matrix_product(x[0], c, zero), b.matrix_product(x[1], s, zero)
        return straight - crossed, b.matrix_product(x[1], c, b.matrix_product(x[0], s, zero))


class _Bluestein(_Transform):
    def __init__(self, kernel: _LineKernel) -> None:
        self.kernel, line = kernel, kernel.line
        self.chirp = kernel.table(tables.chirp(line.size, line.sign, kernel.real), "chirp")
        spectrum = tables.chirp_spectrum(line.size, kernel.width, line.sign, kernel.real)
        self.spectrum = kernel.table(spectrum, "spectrum")
        self.there, self.back = _Powers(kernel, kernel.width, -1), _Powers(kernel, kernel.width, 1)

    def __call__(self, b: TermBuilder, x: Complex, place: Term) -> Complex:
        chirp = self.kernel.pair(b, self.chirp, place, (place < self.kernel.line.size))
        waves = self.there(b, _times(x, chirp), place)
        found = self.back(b, _times(waves, self.kernel.pair(b, self.spectrum, place)), place)
        return _times(found, chirp)


def _apart(b: TermBuilder, x: Term, half: int, stride: int) -> tuple[Term, Term]:
    """The first and the second half of runs: [rows, half, stride] each."""
    return b.halves(x.reshape(x.shape[0], 2, half, stride).permute(0, 2, 3, 1))


def _times(x: Complex, y: Complex) -> Complex:
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]

"""Fourier transforms of adjacent sequences, as LLVM text: the passes, and the moves between memory and lanes.

A *tile* is as many sequences as a vector has lanes, element by element: a vector of real parts, then one of imaginary
parts.  A transform of length n = r1 r2 ... is one pass for each radix, in the self-sorting form of Stockham (Van Loan,
"Computational Frameworks for the Fast Fourier Transform", 1992, section 1.7): with s the product of the radices already
done and m = n / (s r),

    y[p][k][q] = w^(p k) sum over j of x[j][p][q] exp(-2 pi i j k / r)         w = exp(-2 pi i / (r m)),  p < m,  k, j < r,  q < s

All lanes do the same, so a twiddle factor is one number for a whole vector.  The transform of r numbers is written out
without loops, as FFTW's codelets are (Frigo and Johnson, "The Design and Implementation of FFTW3", 2005): powers of two
by splitting, odd radices by the sums and differences of the pairs j, r - j.

The inverse transform is the same with real and imaginary parts exchanged before and after.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from rushlight._backends.cpu.microkernels.fourier_codelets import RADICES, Complex, Writer

__all__ = ["RADICES", "FourierMoves", "FourierPass", "element_of", "number"]

_TYPES = {"f32": ("float", 4), "f64": ("double", 8)}
# layout of the elements that the first pass loads, and that the last one stores
LOADS = {
    "S": "in a tile",
    "C": "complex numbers of neighbouring sequences",
    "D": "the same, parts exchanged",
    "R": "two rows of real numbers of neighbouring sequences, the real and the imaginary parts",
}
STORES = {
    **LOADS,
    "U": "in a tile, and there are no more passes",
    "T": "in a tile, times a factor for each element",
    "V": "in a tile, times the product of an element's factor and one for each element and lane",
}


def element_of(kind: str) -> tuple[str, int]:
    """LLVM's type of a real number, and its bytes."""
    return _TYPES[kind]


def number(kind: str, value: float) -> str:
    """A constant in LLVM's notation: the bits of the double, rounded to the type."""
    if kind == "f32":
        value = struct.unpack("f", struct.pack("f", value))[0]
    return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"


def _mask(lanes: Sequence[int]) -> str:
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {k}' for k in lanes)}>"


class _Lanes:
    """Loads and stores of a vector of complex numbers, for one type and width."""

    __slots__ = ("element", "fma", "kind", "lanes", "size", "vector", "whole", "writer")

    def __init__(self, kind: str, lanes: int, fma: bool) -> None:
        self.kind, self.lanes, self.fma = kind, lanes, fma
        self.element, self.size = _TYPES[kind]
        self.vector = f"<{lanes} x {self.element}>"
        self.whole = 2 * lanes * self.size  # bytes of an element of a tile
        self.writer = Writer(self.vector, self.element, fma, lambda value: number(kind, value))

    def at(self, base: str, offset: str | int) -> str:
        return base if offset in (0, "0") else self.writer.let(f"getelementptr i8, ptr {base}, i64 {offset}")

    def get(self, base: str, offset: int = 0) -> str:
        return self.writer.let(f"load {self.vector}, ptr {self.at(base, offset)}, align {self.size}")

    def put(self, value: str, base: str, offset: int = 0) -> None:
        self.writer.say(f"store {self.vector} {value}, ptr {self.at(base, offset)}, align {self.size}")

    def shuffle(self, a: str, b: str, lanes: Sequence[int]) -> str:
        return self.writer.let(f"shufflevector {self.vector} {a}, {self.vector} {b}, {_mask(lanes)}")

    def apart(self, a: str, b: str) -> tuple[str, str]:
        """Real and imaginary parts of the numbers in two vectors."""
        n = self.lanes
        return self.shuffle(a, b, range(0, 2 * n, 2)), self.shuffle(a, b, range(1, 2 * n, 2))

    def joined(self, re: str, im: str) -> tuple[str, str]:
        """The numbers in two vectors, from their parts."""
        n = self.lanes
        order = [k // 2 + n * (k % 2) for k in range(2 * n)]
        return self.shuffle(re, im, order[:n]), self.shuffle(re, im, order[n:])

    def load(self, how: str, base: str, other: str = "") -> tuple[str, str]:
        """Load the element at an address, in the layout `how` of `LOADS`."""
        if how == "R":
            return self.get(base), self.get(other)
        first, second = self.get(base), self.get(base, self.whole // 2)
        if how == "S":
            return first, second
        re, im = self.apart(first, second)
        return (im, re) if how == "D" else (re, im)

    def store(self, how: str, value: tuple[str, str], base: str, other: str = "") -> None:
        re, im = value
        if how == "R":
            self.put(re, base)
            self.put(im, other)
            return
        if how in "CD":
            re, im = self.joined(im, re) if how == "D" else self.joined(re, im)
        self.put(re, base)
        self.put(im, base, self.whole // 2)

    def spread(self, address: str, offset: int = 0) -> str:
        """Broadcast one number from memory to all lanes."""
        w = self.writer
        one = w.let(f"load {self.element}, ptr {self.at(address, offset)}, align {self.size}")
        return self.splat(one)

    def splat(self, one: str) -> str:
        w = self.writer
        inserted = w.let(f"insertelement {self.vector} poison, {self.element} {one}, i64 0")
        return w.let(
            f"shufflevector {self.vector} {inserted}, {self.vector} poison, <{self.lanes} x i32> zeroinitializer"
        )

    def declared(self) -> str:
        n = self.lanes
        name = f"llvm.fma.v{n}{self.kind}"
        return f"declare {self.vector} @{name}({self.vector}, {self.vector}, {self.vector})\n"


class FourierPass:
    """One pass: `text` is the LLVM text of `symbol`.

    `symbol(src, src2, src_step, dst, dst2, dst_step, twiddles, m, s, scale)`: elements of the first pass (`load` is not
    "S": s is 1) are `src_step` bytes apart, those of the last one (`store` is not "S": m is 1) `dst_step`; otherwise
    they are elements of a tile.  `src2` and `dst2` are the second rows of "R", and `dst2` the factors of "T" and "V",
    an element of a tile for each.  `twiddles` are those for k = 1 .. r - 1 for each p, and the other factors of "V",
    one for each element.  The last pass multiplies by `scale`, unless there are factors.
    """

    __slots__ = ("fma", "kind", "lanes", "load", "radix", "store")

    def __init__(self, kind: str, lanes: int, fma: bool, radix: int, load: str, store: str) -> None:
        self.kind, self.lanes, self.fma, self.radix, self.load, self.store = kind, lanes, fma, radix, load, store

    @property
    def symbol(self) -> str:
        return f"rl_fourier_{self.kind}x{self.lanes}{'' if self.fma else '_plain'}_{self.radix}_{self.load}{self.store}"

    @property
    def first(self) -> bool:
        return self.load != "S"

    @property
    def last(self) -> bool:
        return self.store != "S"

    @property
    def text(self) -> str:
        t = _Lanes(self.kind, self.lanes, self.fma)
        self._enter(t)
        twiddles = self._twiddles(t)
        if self.first or self.last:  # one loop: s or m is 1
            self._butterfly(t, twiddles)
            t.writer.say("br label %next", "next:")
        else:
            w = t.writer
            w.say("br label %inner", "inner:", "%q = phi i64 [0, %outer], [%q1, %inner]")
            w.say("%x = phi ptr [%xo, %outer], [%x1, %inner]", "%y = phi ptr [%yo, %outer], [%y1, %inner]")
            self._butterfly(t, twiddles)
            w.say(
                "%q1 = add nuw nsw i64 %q, 1",
                "%again = icmp slt i64 %q1, %s",
                "br i1 %again, label %inner, label %next",
                "next:",
            )
            w.say("%xo1 = getelementptr i8, ptr %xo, i64 %x_next", "%yo1 = getelementptr i8, ptr %yo, i64 %y_next")
        self._leave(t)
        step = "ptr %src, ptr %src2, i64 %src_step, ptr %dst, ptr %dst2, i64 %dst_step"
        arguments = f"{step}, ptr noalias %twiddles, i64 %m, i64 %s, double %scale"
        return f"{t.declared()}define void @{self.symbol}({arguments}) {{\nentry:\n{t.writer.text}\n}}\n"

    def _enter(self, t: _Lanes) -> None:
        """Emit distances between the r elements of a butterfly (`legs`) and between butterflies (`iterations`), and the
        head of their loop."""
        w, r = t.writer, self.radix
        w.say(f"%iterations = mul i64 %m, {'1' if self.first or not self.last else '%s'}", "%ms = mul i64 %m, %s")
        w.say(
            f"%x_leg = mul i64 %ms, {'%src_step' if self.first else t.whole}",
            f"%y_leg = mul i64 %s, {'%dst_step' if self.last else t.whole}",
        )
        for k in range(2, r):
            w.say(f"%x_leg{k} = mul i64 %x_leg, {k}", f"%y_leg{k} = mul i64 %y_leg, {k}")
        w.say(f"%x_next = mul i64 %s, {t.whole}", f"%y_next = mul i64 %y_leg, {r}")
        if self.last and self.store not in "TV":
            w.say(f"%narrow = {'fptrunc double %scale to float' if self.kind == 'f32' else 'fadd double %scale, -0.0'}")
            w.say(f"%one = insertelement {t.vector} poison, {t.element} %narrow, i64 0")
            w.say(f"%factor = shufflevector {t.vector} %one, {t.vector} poison, <{t.lanes} x i32> zeroinitializer")
        w.say("br label %outer", "outer:", "%i = phi i64 [0, %entry], [%i1, %next]")
        o = "" if self.first or self.last else "o"
        w.say(f"%x{o} = phi ptr [%src, %entry], [%x{o}1, %next]", f"%y{o} = phi ptr [%dst, %entry], [%y{o}1, %next]")
        if self.load == "R":
            w.say("%xx = phi ptr [%src2, %entry], [%xx1, %next]")
        if self.store in "RTV":
            w.say("%yy = phi ptr [%dst2, %entry], [%yy1, %next]")
        if not self.last or self.store == "V":
            w.say("%w = phi ptr [%twiddles, %entry], [%w1, %next]")

    def _twiddles(self, t: _Lanes) -> list[tuple[str, str]]:
        """Load the twiddles of one iteration, before the inner loop."""
        return (
            []
            if self.last
            else [(t.spread("%w", 2 * t.size * k), t.spread("%w", t.size * (2 * k + 1))) for k in range(self.radix - 1)]
        )

    def _butterfly(self, t: _Lanes, twiddles: list[tuple[str, str]]) -> None:
        w, r = t.writer, self.radix
        x_legs, y_legs = (["0", f"%{v}_leg", *(f"%{v}_leg{k}" for k in range(2, r))][:r] for v in "xy")
        results = w.transform(
            [t.load(self.load, t.at("%x", leg), t.at("%xx", leg) if self.load == "R" else "") for leg in x_legs]
        )
        for k, value in enumerate(results):
            if self.store in "TV":
                other = t.at("%yy", w.let(f"mul i64 %s, {t.whole * k}") if k else "0")
                factor = t.load("S", other)
                if self.store == "V":
                    own = t.at("%w", w.let(f"mul i64 %s, {2 * t.size * k}") if k else "0")
                    factor = w.times(factor, (t.spread(own), t.spread(own, t.size)))
                value = w.times(value, factor)
            elif self.last:
                value = w.mul(value[0], "%factor"), w.mul(value[1], "%factor")
            elif k:
                value = w.times(value, twiddles[k - 1])
            t.store(
                "S" if self.store in "UTV" else self.store,
                value,
                t.at("%y", y_legs[k]),
                t.at("%yy", y_legs[k]) if self.store == "R" else "",
            )
        x_step = "%src_step" if self.first else t.whole
        y_step = "%dst_step" if self.last else "%y_next" if self.first else t.whole
        w.say(f"%x1 = getelementptr i8, ptr %x, i64 {x_step}", f"%y1 = getelementptr i8, ptr %y, i64 {y_step}")

    def _leave(self, t: _Lanes) -> None:
        w = t.writer
        if self.load == "R":
            w.say("%xx1 = getelementptr i8, ptr %xx, i64 %src_step")
        if self.store in "RTV":
            w.say(f"%yy1 = getelementptr i8, ptr %yy, i64 {'%dst_step' if self.store == 'R' else t.whole}")
        if not self.last or self.store == "V":
            w.say(f"%w1 = getelementptr i8, ptr %w, i64 {2 * t.size * (1 if self.last else self.radix - 1)}")
        w.say(
            "%i1 = add nuw nsw i64 %i, 1",
            "%more = icmp slt i64 %i1, %iterations",
            "br i1 %more, label %outer, label %done",
            "done:",
            "ret void",
        )


class FourierMoves:
    """Moves of sequences into tiles and back; `text` defines `symbols`.

    `rows_in[swap](src, step, tile, n)`: n complex numbers of `lanes` rows, which begin `step` bytes apart, into a tile,
    real and imaginary parts exchanged where `swap`; n is at least `lanes` / 2.  `rows_out[swap](tile, dst, step, n)` is
    the inverse.

    `strided_in[swap](src, lane, step, tile, n)` and `strided_out[swap](tile, dst, lane, step, n)` do so for strided
    numbers: sequences begin `lane` bytes apart, and their elements are `step` bytes apart.

    `transpose(src, step, tile, n)`: transposes n / lanes squares of a matrix whose rows begin `step` bytes apart and
    hold tile elements, into a tile.

    Real sequences of even length n = 2 h are transformed as h complex numbers, adjacent pairs.  With Z their transform
    and w = exp(-2 pi i / n),

        2 X[k] = (Z[k] + conj Z[h-k]) - i w^k (Z[k] - conj Z[h-k])      2 X[h-k] = conj of the same with + i w^k

    `halves[store](tile, dst, step, twiddles, h)` computes 2 X from the tile Z (elements `step` bytes apart, layout
    `STORES`); `pairs[load](src, step, tile, twiddles, h)` is the inverse, to 2 Z with parts exchanged (the next
    transform is an inverse one); imaginary parts of X[0] and X[h] are not read.  `row_halves(z, dst, twiddles, h)` and
    `row_pairs(src, z, twiddles, h)` do it for one sequence in memory, h + 1 numbers of which are read and written;
    their twiddles are all real parts, then all imaginary ones; those of `halves` alternate.
    """

    __slots__ = ("fma", "kind", "lanes")

    def __init__(self, kind: str, lanes: int, fma: bool) -> None:
        self.kind, self.lanes, self.fma = kind, lanes, fma

    def name(self, what: str) -> str:
        """The symbol of one of the routines."""
        return f"rl_fourier_{what}_{self.kind}x{self.lanes}{'' if self.fma else '_plain'}"

    @property
    def symbols(self) -> tuple[str, ...]:
        rows = tuple(
            f"{how}_{way}{swap}" for how in ("rows", "strided") for way in ("in", "out") for swap in ("", "_swapped")
        )
        return tuple(
            self.name(n)
            for n in (*rows, "transpose", "halves_C", "halves_S", "pairs_C", "pairs_S", "row_halves", "row_pairs")
        )

    @property
    def text(self) -> str:
        parts = [
            *(
                part(into, swap)
                for part in (self._rows, self._strided)
                for into in (True, False)
                for swap in (False, True)
            ),
            self._transposed(),
            *(self._halves(how) for how in "CS"),
            *(self._pairs(how) for how in "CS"),
            self._row(True),
            self._row(False),
        ]
        return _Lanes(self.kind, self.lanes, self.fma).declared() + "".join(parts)

    def _square(self, t: _Lanes, rows: list[str], width: int) -> list[str]:
        """A transposed square of groups of `width` numbers: one exchange of blocks for each power of two."""
        block = 1
        while block < len(rows):
            for i in range(len(rows)):
                if i & block == 0:
                    a, b, n = rows[i], rows[i + block], t.lanes
                    lanes = [(lane, lane // width & block) for lane in range(n)]
                    rows[i] = t.shuffle(a, b, [n + lane - block * width if there else lane for lane, there in lanes])
                    rows[i + block] = t.shuffle(
                        a, b, [n + lane if there else lane + block * width for lane, there in lanes]
                    )
            block *= 2
        return rows

    def _rows(self, into: bool, swap: bool) -> str:
        t = _Lanes(self.kind, self.lanes, self.fma)
        w, c = t.writer, self.lanes // 2
        number_bytes = 2 * t.size
        w.say(f"%last = sub i64 %n, {c}", "br label %loop", "loop:", "%k = phi i64 [0, %entry], [%k2, %loop]")
        w.say(f"%at = mul i64 %k, {number_bytes}", "%from = getelementptr i8, ptr %rows, i64 %at")
        w.say(f"%held = mul i64 %k, {t.whole}", "%to = getelementptr i8, ptr %tile, i64 %held")
        addresses = ["%from"]
        for _ in range(1, t.lanes):
            addresses.append(t.at(addresses[-1], "%step"))
        if into:
            halves = [self._square(t, [t.get(addresses[h * c + i]) for i in range(c)], 2) for h in range(2)]
            for column in range(c):
                re, im = t.apart(halves[0][column], halves[1][column])
                t.store("S", (im, re) if swap else (re, im), t.at("%to", t.whole * column))
        else:
            columns = [t.load("S", t.at("%to", t.whole * column)) for column in range(c)]
            both = [t.joined(im, re) if swap else t.joined(re, im) for re, im in columns]
            for h in range(2):
                for i, row in enumerate(self._square(t, [pair[h] for pair in both], 2)):
                    t.put(row, addresses[h * c + i])
        # The last ones end with the row
        w.say("%done1 = icmp eq i64 %k, %last", "br i1 %done1, label %done, label %on", "on:")
        text = w.text.replace("[%k2, %loop]", "[%k2, %on]")
        name = self.name(f"rows_{'in' if into else 'out'}{'_swapped' if swap else ''}")
        arguments = "ptr %rows, i64 %step, ptr %tile, i64 %n" if into else "ptr %tile, ptr %rows, i64 %step, i64 %n"
        return (
            f"define void @{name}({arguments}) {{\nentry:\n{text}\n  %k1 = add i64 %k, {c}\n  %over = icmp sgt i64 %k1, %last\n"
            "  %k2 = select i1 %over, i64 %last, i64 %k1\n  br label %loop\ndone:\n  ret void\n}\n"
        )

    def _strided(self, into: bool, swap: bool) -> str:
        """One number at a time: pairs of vectors are joined until one is left, or split."""
        t = _Lanes(self.kind, self.lanes, self.fma)
        w = t.writer
        w.say(
            "br label %loop",
            "loop:",
            "%k = phi i64 [0, %entry], [%k1, %loop]",
            "%here = phi ptr [%memory, %entry], [%here1, %loop]",
        )
        w.say("%at = phi ptr [%tile, %entry], [%at1, %loop]")
        addresses = ["%here"]
        for _ in range(1, t.lanes):
            addresses.append(t.at(addresses[-1], "%lane"))
        if into:
            parts, width = [w.let(f"load <2 x {t.element}>, ptr {start}, align {t.size}") for start in addresses], 2
            while width < t.lanes:
                v, mask = f"<{width} x {t.element}>", _mask(range(2 * width))
                parts = [
                    w.let(f"shufflevector {v} {a}, {v} {b}, {mask}")
                    for a, b in zip(parts[::2], parts[1::2], strict=True)
                ]
                width *= 2
            re, im = t.apart(*parts)
            t.store("S", (im, re) if swap else (re, im), "%at")
        else:
            re, im = t.load("S", "%at")
            for half, value in enumerate(t.joined(im, re) if swap else t.joined(re, im)):
                for k in range(t.lanes // 2):
                    one = w.let(f"shufflevector {t.vector} {value}, {t.vector} poison, {_mask((2 * k, 2 * k + 1))}")
                    w.say(f"store <2 x {t.element}> {one}, ptr {addresses[half * t.lanes // 2 + k]}, align {t.size}")
        w.say("%here1 = getelementptr i8, ptr %here, i64 %step", f"%at1 = getelementptr i8, ptr %at, i64 {t.whole}")
        w.say(
            "%k1 = add i64 %k, 1",
            "%more = icmp slt i64 %k1, %n",
            "br i1 %more, label %loop, label %done",
            "done:",
            "ret void",
        )
        name = self.name(f"strided_{'in' if into else 'out'}{'_swapped' if swap else ''}")
        arguments = (
            "ptr %memory, i64 %lane, i64 %step, ptr %tile, i64 %n"
            if into
            else "ptr %tile, ptr %memory, i64 %lane, i64 %step, i64 %n"
        )
        return f"define void @{name}({arguments}) {{\nentry:\n{w.text}\n}}\n"

    def _transposed(self) -> str:
        t = _Lanes(self.kind, self.lanes, self.fma)
        w, n = t.writer, self.lanes
        w.say("br label %loop", "loop:", "%k = phi i64 [0, %entry], [%k1, %loop]")
        w.say("%from = phi ptr [%src, %entry], [%from1, %loop]", "%to = phi ptr [%tile, %entry], [%to1, %loop]")
        addresses = ["%from"]
        for _ in range(1, n):
            addresses.append(t.at(addresses[-1], "%step"))
        for part in range(2):
            for i, row in enumerate(self._square(t, [t.get(start, part * t.whole // 2) for start in addresses], 1)):
                t.put(row, "%to", i * t.whole + part * t.whole // 2)
        w.say(
            f"%from1 = getelementptr i8, ptr %from, i64 {t.whole}",
            f"%to1 = getelementptr i8, ptr %to, i64 {t.whole * n}",
        )
        w.say(
            f"%k1 = add i64 %k, {n}",
            "%more = icmp slt i64 %k1, %n",
            "br i1 %more, label %loop, label %done",
            "done:",
            "ret void",
        )
        return f"define void @{self.name('transpose')}(ptr noalias %src, i64 %step, ptr noalias %tile, i64 %n) {{\nentry:\n{w.text}\n}}\n"

    def _combined(self, t: _Lanes, a: Complex, b: Complex, twiddle: Complex, back: bool) -> tuple[Complex, Complex]:
        """(S + T, conj(S - T)) with S = a + conj b and T = -i w (a - conj b); `back`: T = i conj(w) (a - conj b), parts
        of the results exchanged."""
        w = t.writer
        s = w.add(a[0], b[0]), w.sub(a[1], b[1])
        d = w.sub(a[0], b[0]), w.add(a[1], b[1])
        if back:  # conj(w) d, then times i
            x = w.fused(d[1], twiddle[1], w.mul(d[0], twiddle[0]))
            y = w.fused(d[1], twiddle[0], w.mul(d[0], twiddle[1]), minus=True)
            return (w.add(s[1], x), w.sub(s[0], y)), (w.sub(x, s[1]), w.add(s[0], y))
        x, y = w.times(d, twiddle)
        return (w.add(s[0], y), w.sub(s[1], x)), (w.sub(s[0], y), w.sub(w.negated(x), s[1]))

    def _halves(self, how: str) -> str:
        t = _Lanes(self.kind, self.lanes, self.fma)
        w = t.writer
        w.say("%half = lshr i64 %h, 1", "br label %loop", "loop:", "%k = phi i64 [0, %entry], [%k1, %loop]")
        w.say("%mirror = sub i64 %h, %k", "%whole = icmp eq i64 %k, 0", "%other = select i1 %whole, i64 0, i64 %mirror")
        w.say(f"%ao = mul i64 %k, {t.whole}", f"%bo = mul i64 %other, {t.whole}", f"%wo = mul i64 %k, {2 * t.size}")
        w.say("%yo = mul i64 %k, %step", "%zo = mul i64 %mirror, %step")
        w.say("%a = getelementptr i8, ptr %tile, i64 %ao", "%b = getelementptr i8, ptr %tile, i64 %bo")
        w.say("%w = getelementptr i8, ptr %twiddles, i64 %wo")
        w.say("%y = getelementptr i8, ptr %dst, i64 %yo", "%z = getelementptr i8, ptr %dst, i64 %zo")
        low, high = self._combined(
            t, t.load("S", "%a"), t.load("S", "%b"), (t.spread("%w"), t.spread("%w", t.size)), False
        )
        t.store(how, high, "%z")
        t.store(how, low, "%y")
        w.say(
            "%k1 = add i64 %k, 1",
            "%more = icmp sle i64 %k1, %half",
            "br i1 %more, label %loop, label %done",
            "done:",
            "ret void",
        )
        return f"define void @{self.name(f'halves_{how}')}(ptr %tile, ptr %dst, i64 %step, ptr %twiddles, i64 %h) {{\nentry:\n{w.text}\n}}\n"

    def _pairs(self, how: str) -> str:
        t = _Lanes(self.kind, self.lanes, self.fma)
        w = t.writer
        w.say("%half = lshr i64 %h, 1", "%fo = mul i64 %h, %step", "%f = getelementptr i8, ptr %src, i64 %fo")
        (a, _), (b, _) = t.load(how, "%src"), t.load(how, "%f")
        t.store("S", (w.sub(a, b), w.add(a, b)), "%tile")
        w.say(
            "%none = icmp eq i64 %half, 0",
            "br i1 %none, label %done, label %loop",
            "loop:",
            "%k = phi i64 [1, %entry], [%k1, %loop]",
        )
        w.say("%mirror = sub i64 %h, %k")
        w.say(f"%yo = mul i64 %k, {t.whole}", f"%zo = mul i64 %mirror, {t.whole}", f"%wo = mul i64 %k, {2 * t.size}")
        w.say("%ao = mul i64 %k, %step", "%bo = mul i64 %mirror, %step")
        w.say("%a = getelementptr i8, ptr %src, i64 %ao", "%b = getelementptr i8, ptr %src, i64 %bo")
        w.say("%w = getelementptr i8, ptr %twiddles, i64 %wo")
        w.say("%y = getelementptr i8, ptr %tile, i64 %yo", "%z = getelementptr i8, ptr %tile, i64 %zo")
        low, high = self._combined(
            t, t.load(how, "%a"), t.load(how, "%b"), (t.spread("%w"), t.spread("%w", t.size)), True
        )
        t.store("S", high, "%z")
        t.store("S", low, "%y")
        w.say(
            "%k1 = add i64 %k, 1",
            "%more = icmp sle i64 %k1, %half",
            "br i1 %more, label %loop, label %done",
            "done:",
            "ret void",
        )
        return f"define void @{self.name(f'pairs_{how}')}(ptr %src, i64 %step, ptr %tile, ptr %twiddles, i64 %h) {{\nentry:\n{w.text}\n}}\n"

    def _row(self, halves: bool) -> str:
        """Vectors from both ends of one sequence; the last ones start early enough to end with the half."""
        t = _Lanes(self.kind, self.lanes, self.fma)
        w, n, item = t.writer, self.lanes, 2 * t.size
        w.say("%half = lshr i64 %h, 1", "%count = add i64 %half, 1", f"%last = sub i64 %count, {n}")
        w.say(f"%parts = mul i64 %count, {t.size}", "%imag = getelementptr i8, ptr %twiddles, i64 %parts")
        w.say("br label %loop", "loop:", "%k = phi i64 [0, %entry], [%k2, %on]")
        w.say("%mirror = sub i64 %h, %k", f"%end = sub i64 %mirror, {n - 1}")
        w.say(f"%ao = mul i64 %k, {item}", f"%bo = mul i64 %end, {item}", f"%wo = mul i64 %k, {t.size}")
        w.say("%a = getelementptr i8, ptr %src, i64 %ao", "%b = getelementptr i8, ptr %src, i64 %bo")
        w.say("%y = getelementptr i8, ptr %dst, i64 %ao", "%z = getelementptr i8, ptr %dst, i64 %bo")
        w.say("%wr = getelementptr i8, ptr %twiddles, i64 %wo", "%wi = getelementptr i8, ptr %imag, i64 %wo")
        back = [n - 1 - k for k in range(n)]
        a, (br, bi) = t.load("C", "%a"), t.load("C", "%b")
        b = t.shuffle(br, "poison", back), t.shuffle(bi, "poison", back)
        low, high = self._combined(t, a, b, (t.get("%wr"), t.get("%wi")), not halves)
        t.store("C", low, "%y")
        t.store("C", (t.shuffle(high[0], "poison", back), t.shuffle(high[1], "poison", back)), "%z")
        w.say("%finished = icmp eq i64 %k, %last", "br i1 %finished, label %done, label %on", "on:")
        w.say(
            f"%k1 = add i64 %k, {n}",
            "%over = icmp sgt i64 %k1, %last",
            "%k2 = select i1 %over, i64 %last, i64 %k1",
            "br label %loop",
        )
        name = self.name("row_halves" if halves else "row_pairs")
        return f"define void @{name}(ptr %src, ptr %dst, ptr %twiddles, i64 %h) {{\nentry:\n{w.text}\ndone:\n  ret void\n}}\n"

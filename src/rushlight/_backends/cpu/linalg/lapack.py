"""Factorisations by the LAPACK that comes with the BLAS (usually inside NumPy's wheel).

Each primitive has a function here that describes one call: the routine's arguments in order, the locations of operands
and results.  The workspace size is queried once, when a plan is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import pack
from typing import Any

from rushlight._backends.cpu.gemm.blas import blas
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.linalg import lapack_native as native
from rushlight._backends.cpu.program.steps import ExternStep, Operand
from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable, native_address
from rushlight._base.lazy import require
from rushlight._native import jit
from rushlight._native.compiled import compile_native
from rushlight._native.types import i32, i64
from rushlight._types.layout import numel

__all__ = ["LAPACK", "batches", "lapack_call", "permutation_call", "strides_of"]

_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
_GRAIN = 1 << 18  # least operations worth a thread
_MOST_PIECES = 256
_CALL = 1 << 11  # operations that the call of a routine costs
_SMALL = 64  # largest sizes for which the library uses one thread by itself


class _Layout:
    """The description of one call under construction: its arguments, its workspace, copies in and out."""

    def __init__(self, step: ExternStep, letter: str, wide: bool, sizes: list[int] | None) -> None:
        self.step, self.letter, self.sizes = step, letter, sizes
        self.size = {"s": 4, "d": 8, "c": 8, "z": 16}[letter]
        self.real = {"s": 4, "d": 8, "c": 4, "z": 8}[letter]
        self.integer = 8 if wide else 4
        self.complex = letter in "cz"
        self.args: list[int] = []
        self.fixed: list[int] = []
        self.space = 8 * native.SLOTS
        self.operands: list[list[Any]] = []
        self.lengths = self.info_at = 0
        self.asked: list[tuple[int, str]] = []

    # ***** arguments *****

    def slot(self, word: int) -> int:
        self.fixed.append(word)
        return 8 * len(self.fixed) - 8

    def chars(self, *letters: str) -> None:
        """Add letters; Fortran gets the length of each after all arguments."""
        for letter in letters:
            self.args.append(self.slot(ord(letter)))
            self.lengths += 1

    def ints(self, *values: int) -> None:
        self.args.extend(self.slot(v) for v in values)

    def one(self) -> None:
        """The number 1 in the routine's type."""
        data = pack("<2f", 1, 0) + b"\0" * 8 if self.real == 4 else pack("<2d", 1, 0)
        at = self.slot(int.from_bytes(data[:8], "little"))
        self.slot(int.from_bytes(data[8:], "little"))
        self.args.append(at)

    def number(self, value: float) -> None:
        """A real number."""
        self.args.append(self.slot(int.from_bytes(pack("<f" if self.real == 4 else "<d", value), "little")))

    def area(self, nbytes: int) -> int:
        """Reserve memory of the workspace."""
        at = self.space
        self.space += max(nbytes, 1) + 63 & ~63
        return at

    def use(self, *offsets: int) -> None:
        self.args.extend(offsets)

    def scratch(self, nbytes: int) -> None:
        self.use(self.area(nbytes))

    def work(self, kind: str, size_too: bool = True) -> None:
        """Reserve memory whose size the routine reports: `kind` is "work", "rwork" or "iwork"; and pass that size."""
        number = len(self.asked)
        if self.sizes is None:
            at = self.slot(0)
            self.slot(0)
            self.asked.append((at, kind))
            size = -1
        else:
            size = self.sizes[number]
            self.asked.append((0, kind))
            at = self.area(size * {"work": self.size, "rwork": self.real, "iwork": self.integer}[kind])
        self.use(at)
        self.ints(size)

    def info(self, output: int) -> None:
        """Add the routine's last argument, which is result `output`."""
        at = self.slot(0)
        self.args.append(at)
        self.info_at = at
        self.push(output, at, native.PUSH_INTS, rank=0)

    # ***** operands *****

    def pull(self, number: int, mode: int = native.PULL, rank: int = 2) -> int:
        """Copy an input in; returns its offset."""
        operand = self.step.inputs[number]
        outputs = len(self.step.outputs)
        at = self.area(numel(operand.shape[len(operand.shape) - rank :]) * max(operand.dtype.itemsize, self.integer))
        self.operands.append([outputs + number, operand, rank, at, mode, 0])
        return at

    def push(self, number: int, at: int, mode: int = native.PUSH, rank: int = 2, extra: int = 0) -> None:
        """Copy a result out."""
        self.operands.append([number, self.step.outputs[number], rank, at, mode, extra])


# ***** the routines *****


def _cholesky(c: _Layout) -> str:
    n = c.step.inputs[0].shape[-1]
    a = c.pull(0)
    c.chars("L")
    c.ints(n)
    c.use(a)
    c.ints(n)
    c.push(0, a, native.PUSH_LOWER, extra=c.real)
    c.info(1)
    return "potrf"


def _lu(c: _Layout) -> str:
    m, n = c.step.inputs[0].shape[-2:]
    a, pivots = c.pull(0), c.area(c.integer * min(m, n))
    c.ints(m, n)
    c.use(a)
    c.ints(m)
    c.use(pivots)
    c.push(0, a)
    c.push(1, pivots, native.PUSH_INTS, rank=1)
    c.info(2)
    return "getrf"


def _triangular_solve(c: _Layout) -> str:
    n, columns = c.step.inputs[1].shape[-2:]
    a, b = c.pull(0), c.pull(1)
    c.chars("L", "U" if c.step.params["upper"] else "L", "N", "U" if c.step.params["unit"] else "N")
    c.ints(n, columns)
    c.one()
    c.use(a)
    c.ints(n)
    c.use(b)
    c.ints(n)
    c.push(0, b)
    return "trsm"


def _packed_qr(c: _Layout) -> str:
    m, n = c.step.inputs[0].shape[-2:]
    a, tau = c.pull(0), c.area(c.size * min(m, n))
    c.ints(m, n)
    c.use(a)
    c.ints(m)
    c.use(tau)
    c.work("work")
    c.push(0, a)
    c.push(1, tau, rank=1)
    c.use(c.slot(0))
    return "geqrf"


def _reflections(c: _Layout) -> str:
    (m, n), k = c.step.inputs[0].shape[-2:], c.step.inputs[1].shape[-1]
    a, tau = c.pull(0), c.pull(1, rank=1)
    c.ints(m, n, k)
    c.use(a)
    c.ints(m)
    c.use(tau)
    c.work("work")
    c.push(0, a)
    c.use(c.slot(0))
    return "ungqr" if c.complex else "orgqr"


def _least_squares(c: _Layout) -> str:
    (m, n), columns = c.step.inputs[0].shape[-2:], c.step.inputs[1].shape[-1]
    a, b, order, rank = c.pull(0), c.pull(1), c.pull(2, native.PULL_INTS, rank=1), c.slot(0)
    c.ints(m, n, columns)
    c.use(a)
    c.ints(m)
    c.use(b)
    c.ints(max(m, n))
    c.use(order)
    c.number(c.step.params["rcond"])
    c.use(rank)
    c.work("work")
    if c.complex:
        c.scratch(c.real * 2 * n)
    c.push(0, b)
    c.push(1, rank, native.PUSH_INTS, rank=0)
    c.info(2)
    return "gelsy"


def _eigh(c: _Layout) -> str:
    n, vectors = c.step.inputs[0].shape[-1], c.step.params["vectors"]
    a, values = c.pull(0), c.area(c.real * n)
    c.chars("V" if vectors else "N", "L")
    c.ints(n)
    c.use(a)
    c.ints(n)
    c.use(values)
    c.work("work")
    if c.complex:
        c.work("rwork")
    c.work("iwork")
    c.push(0, values, rank=1)
    if vectors:
        c.push(1, a)
    c.info(2 if vectors else 1)
    return "heevd" if c.complex else "syevd"


def _eig(c: _Layout) -> str:
    n, vectors = c.step.inputs[0].shape[-1], c.step.params["vectors"]
    a, values, others = c.pull(0), c.area(c.size * n), c.area(c.size * n)
    vectors_at = c.area(c.size * n * n if vectors else 1)
    c.chars("N", "V" if vectors else "N")
    c.ints(n)
    c.use(a)
    c.ints(n)
    c.use(values)
    if not c.complex:
        c.use(others)
    c.use(c.area(1))
    c.ints(1)
    c.use(vectors_at)
    c.ints(n)
    c.work("work")
    if c.complex:
        c.scratch(c.real * 2 * n)
        c.push(0, values, rank=1)
    else:
        c.push(0, values, native.PUSH_VALUES, rank=1, extra=others)
    if vectors:
        c.push(1, vectors_at, native.PUSH if c.complex else native.PUSH_VECTORS, extra=others)
    c.info(2 if vectors else 1)
    return "geev"


def _svd(c: _Layout) -> str:
    m, n = c.step.inputs[0].shape[-2:]
    vectors, full, k = c.step.params["vectors"], c.step.params["full"], min(m, n)
    left, right = (m if full else k, n if full else k) if vectors else (1, 1)
    a, values = c.pull(0), c.area(c.real * k)
    u, vh = c.area(c.size * m * left), c.area(c.size * n * right)
    c.chars("N" if not vectors else "A" if full else "S")
    c.ints(m, n)
    c.use(a)
    c.ints(m)
    c.use(values, u)
    c.ints(m)
    c.use(vh)
    c.ints(right)
    c.work("work")
    if c.complex:
        c.scratch(c.real * max(5 * k * k + 7 * k, 2 * max(m, n) * k + 2 * k * k + k))
    c.scratch(c.integer * 8 * k)
    if vectors:
        c.push(0, u)
        c.push(2, vh)
    c.push(1 if vectors else 0, values, rank=1)
    c.info(3 if vectors else 1)
    return "gesdd"


def _ldl(c: _Layout) -> str:
    n = c.step.inputs[0].shape[-1]
    a, pivots = c.pull(0), c.area(c.integer * n)
    c.chars("L")
    c.ints(n)
    c.use(a)
    c.ints(n)
    c.use(pivots)
    c.work("work")
    c.push(0, a)
    c.push(1, pivots, native.PUSH_INTS, rank=1)
    c.info(2)
    return "hetrf" if c.step.params["hermitian"] and c.complex else "sytrf"


def _ldl_solve(c: _Layout) -> str:
    n, columns = c.step.inputs[2].shape[-2:]
    a, pivots, b = c.pull(0), c.pull(1, native.PULL_INTS, rank=1), c.pull(2)
    c.chars("L")
    c.ints(n, columns)
    c.use(a)
    c.ints(n)
    c.use(pivots, b)
    c.ints(n)
    c.use(c.slot(0))
    c.push(0, b)
    return "hetrs" if c.step.params["hermitian"] and c.complex else "sytrs"


LAPACK: dict[str, Callable[[_Layout], str]] = {
    "cholesky": _cholesky, "lu": _lu, "triangular_solve": _triangular_solve, "qr": _packed_qr, "reflections": _reflections, "least_squares": _least_squares, "eigh": _eigh, "eig": _eig, "svd": _svd,
    "ldl": _ldl, "ldl_solve": _ldl_solve,
}  # fmt: skip

# ***** from a call written down to a kernel's constants *****


def _arguments(layout: _Layout) -> list[int]:
    """Offsets, then the lengths of letters (plain numbers, which are written negative), then null."""
    args = layout.args + [-1] * layout.lengths
    return args + [0] * (native.MOST_ARGS - len(args))


def _ask(layout: _Layout, address: int) -> list[int]:
    """Query the workspace size of the routine, in elements."""
    ctypes = require("ctypes")

    if not layout.asked:
        return []
    # All of it: some routines write more than the answer
    workspace = (ctypes.c_int64 * (layout.space // 8))(*layout.fixed)
    base = ctypes.addressof(workspace)
    args = [ctypes.c_void_p(base + at if at >= 0 else -at) for at in _arguments(layout)]
    ctypes.CFUNCTYPE(None)(address)(*args)
    floats = {4: ctypes.c_float, 8: ctypes.c_double}[layout.real]
    whole = {4: ctypes.c_int32, 8: ctypes.c_int64}[layout.integer]
    sizes = []
    for at, kind in layout.asked:
        value = (whole if kind == "iwork" else floats).from_address(base + at).value
        sizes.append(int(value * (1 + 2**-22)) + 1)  # a float32 may have rounded down
    return sizes


def strides_of(operand: Operand, rank: int) -> tuple[list[int], int, int]:
    """Steps in bytes of the batch dims, of rows, of columns."""
    steps = [s * operand.dtype.itemsize for s in operand.strides]
    lead = len(steps) - rank
    return steps[:lead], steps[lead] if rank else 0, steps[lead + 1] if rank == 2 else 0


def batches(sizes: Sequence[int], steps: list[list[int]]) -> list[list[int]]:
    """Rows (size, a step for each operand); dims that are contiguous in all of them are merged."""
    rows: list[list[int]] = []
    for size, *here in zip(sizes, *steps, strict=True):
        if size == 1:
            continue
        if rows and all(outer == inner * size for outer, inner in zip(rows[-1][1:], here, strict=True)):
            rows[-1] = [rows[-1][0] * size, *here]
        else:
            rows.append([size, *here])
    return rows


def _constants(layout: _Layout, address: int) -> list[int]:
    step = layout.step
    lead = step.inputs[0].shape[:-2]
    total = numel(lead)
    records, steps = [], []
    for buf, operand, rank, at, mode, extra in layout.operands:
        batch, row, column = strides_of(operand, rank)
        shape = (*operand.shape[len(operand.shape) - rank :], 1, 1)[:2]
        records += [buf, operand.dtype.itemsize, *shape, row, column, at, mode, extra, 0]
        steps.append(batch)
    dims = batches(lead, steps)
    matrices = [x.shape[-2:] for x in step.inputs if len(x.shape) == len(lead) + 2]
    sizes = [s for shape in matrices for s in shape]
    work = max(sizes) * numel(max(matrices, key=numel)) + _CALL
    chunk = min(total, max(1, _GRAIN // work, -(-total // _MOST_PIECES)))
    head = [-(-total // chunk) if total else 0, int(work * total > _GRAIN), len(step.sizes), *step.sizes]
    head += [0] * (8 - len(head))
    words = [
        chunk,
        total,
        len(dims),
        layout.space,
        len(layout.operands),
        int(max(sizes) > _SMALL),
        address,
        layout.info_at,
    ]
    fixed = layout.fixed + [0] * (native.SLOTS - len(layout.fixed))
    return [*head, *words, *_arguments(layout), *fixed, *records, *[w for row in dims for w in row]]


_KERNEL: list[Callable[..., Any]] = []


def _kernel() -> Callable[..., Any]:
    if not _KERNEL:
        library = blas()
        function = native.make_lapack(i64 if library.wide else i32, library.gated)
        data = compile_native([function])
        loaded = jit.load(data, [function.symbol], {**_runtime.runtime().symbols, **library.symbols})
        _KERNEL.append(make_kernel_callable(loaded[function.symbol], "lapack", loaded))
    return _KERNEL[0]


def lapack_call(step: ExternStep) -> list[Launch]:
    """The kernel of a step that LAPACK computes.  RuntimeError if there is no LAPACK."""
    dtype = step.inputs[0].dtype.name
    library, write, letter = blas(), LAPACK[step.name], _LETTERS[dtype]
    question = _Layout(step, letter, library.wide, None)
    routine = letter + write(question)
    address = library.routine(routine)
    layout = _Layout(step, letter, library.wide, _ask(question, address))
    write(layout)
    return [Launch(_kernel(), _constants(layout, address), range(len(step.inputs)))]


def permutation_call(step: ExternStep) -> list[Launch]:
    """The kernel of `permutation`."""
    x, n = step.inputs[0], step.params["size"]
    rows = numel(x.shape[:-1])
    chunk = max(1, min(rows, (1 << 14) // max(n, 1)))
    if not _ORDER:
        _ORDER.append(make_kernel_callable(native_address(native.rl_permutation), "permutation"))
    ints = [-(-rows // chunk), int(rows * n > 1 << 14), 1, *step.sizes, 0, 0, 0, 0, chunk, x.shape[-1], n, rows]
    return [Launch(_ORDER[0], ints, (0,))]


_ORDER: list[Callable[..., Any]] = []

"""Factorisations by cuSOLVER as steps of a program: matrices are copied to column-major memory, results back.

Each builder below is one routine: what it takes and gives lies where LAPACK's would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.libraries.cusolver import LETTERS, LOWER, VECTORS, CuSolver
from rushlight._backends.cuda.libraries.provider import current_device
from rushlight._backends.cuda.linalg.copies import column_major, copy_launch
from rushlight._backends.cuda.program.steps import Call, Memory, Operand, Step
from rushlight._types.dtype import DType
from rushlight._types.layout import numel

__all__ = ["ROUTINES", "solver_steps", "takes"]

_MOST = 2**31 - 2**20  # elements: the routines count in 32 bits


class _At(NamedTuple):
    """An argument that is an address: which of those of a step, and its bytes from matrix to matrix."""

    memory: Operand | Memory
    step: int


class _Routine:
    """One routine for each matrix of a batch: called with a stream and addresses."""

    def __init__(self, library: CuSolver, name: str, letter: str, batch: int, arguments: Sequence[int | _At]) -> None:
        self.library, self.name, self.letter, self.batch = library, name, letter, batch
        self.places = [a.memory for a in arguments if isinstance(a, _At)]
        self.arguments = arguments

    def __call__(self, stream: int, *addresses: int) -> None:
        device = current_device()
        for i in range(self.batch):
            at = iter(addresses)
            given = [next(at) + i * a.step if isinstance(a, _At) else a for a in self.arguments]
            self.library.run(self.name, self.letter, device, stream, *given)


class _Job:
    """State that builders share: the call's sizes, memory of its own, steps so far."""

    def __init__(self, call: ExternCall, library: CuSolver) -> None:
        self.call, self.library, self.steps = call, library, list[Step]()
        x = call.inputs[0]
        self.dtype, self.batch = x.dtype, numel(x.shape[:-2])
        self.rows, self.columns = x.shape[-2:]
        self.letter = LETTERS[self.dtype.name]

    def loaded(self, x: Operand, turned: bool = False) -> _At:
        """A column-major copy of matrices, or of their transposes."""
        given = x if not turned else _transposed(x)
        copy = self.room(*given.shape[-2:])
        self.steps.append(copy_launch(_one_batch(given), copy))
        return self.each(copy)

    def room(self, rows: int, columns: int) -> Operand:
        nbytes = self.batch * rows * columns * self.dtype.itemsize
        return column_major(self.call.scratch(nbytes, "matrices"), self.dtype, self.batch, rows, columns)

    def each(self, x: Operand) -> _At:
        """Dense matrices, vectors or numbers, one after the other."""
        return _At(x, numel(x.shape) // self.batch * x.dtype.itemsize)

    def scratch(self, nbytes: int) -> _At:
        return _At(self.call.scratch(nbytes, "workspace"), 0)

    def run(self, name: str, *arguments: int | _At) -> None:
        routine = _Routine(self.library, name, self.letter, self.batch, arguments)
        self.steps.append(Call(f"cuSOLVER {name}", routine, routine.places))

    def workspace(self, name: str, *sizes: int) -> tuple[_At, int]:
        """The workspace of a routine, and its elements."""
        count = self.library.workspace(name, self.letter, current_device(), *sizes)
        return self.scratch(max(count, 1) * self.dtype.itemsize), count

    def store(self, found: _At, output: int, lower: bool = False) -> None:
        assert isinstance(found.memory, Operand)
        self.steps.append(copy_launch(found.memory, _one_batch(self.call.outputs[output]), lower))


def _one_batch(x: Operand) -> Operand:
    """A dense array as one of matrices."""
    rows, columns = x.shape[-2:]
    return Operand(x.memory, x.dtype, (numel(x.shape[:-2]), rows, columns), (rows * columns, *x.strides[-2:]), x.offset)


def _transposed(x: Operand) -> Operand:
    shape, strides = ((*of[:-2], of[-1], of[-2]) for of in (x.shape, x.strides))
    return Operand(x.memory, x.dtype, shape, strides, x.offset)


# ***** the routines *****


def _cholesky(job: _Job) -> None:
    n, (_, info) = job.rows, job.call.outputs
    a = job.loaded(job.call.inputs[0])
    work, count = job.workspace("potrf", LOWER, n, 0, n)
    job.run("potrf", LOWER, n, a, n, work, count, job.each(info))
    job.store(a, 0, lower=True)


def _lu(job: _Job) -> None:
    m, n, (_, pivots, info) = job.rows, job.columns, job.call.outputs
    a = job.loaded(job.call.inputs[0])
    work, _count = job.workspace("getrf", m, n, 0, m)
    job.run("getrf", m, n, a, m, work, job.each(pivots), job.each(info))
    job.store(a, 0)


def _qr(job: _Job) -> None:
    m, n, tau = job.rows, job.columns, job.call.outputs[1]
    a = job.loaded(job.call.inputs[0])
    work, count = job.workspace("geqrf", m, n, 0, m)
    job.run("geqrf", m, n, a, m, job.each(tau), work, count, job.scratch(4))
    job.store(a, 0)


def _reflections(job: _Job) -> None:
    m, n, tau = job.rows, job.columns, job.call.inputs[1]
    k = tau.shape[-1]
    a = job.loaded(job.call.inputs[0])
    work, count = job.workspace("orgqr", m, n, k, 0, m, 0)
    job.run("orgqr", m, n, k, a, m, job.each(tau), work, count, job.scratch(4))
    job.store(a, 0)


def _eigh(job: _Job) -> None:
    n, vectors = job.rows, job.call.params["vectors"]
    values, info = job.call.outputs[0], job.call.outputs[-1]
    a, mode = job.loaded(job.call.inputs[0]), VECTORS[vectors]
    work, count = job.workspace("syevd", mode, LOWER, n, 0, n, 0)
    job.run("syevd", mode, LOWER, n, a, n, job.each(values), work, count, job.each(info))
    if vectors:
        job.store(a, 1)


def _svd(job: _Job) -> None:
    """The routine takes no matrix of more columns than rows: of such a one it is given the transpose.

    A = U S V^H is A^T = conj(V) S U^T, whose factors in column-major memory are V^H and U in row-major memory.
    """
    params, outputs = job.call.params, job.call.outputs
    wide = job.rows < job.columns
    m, n = max(job.rows, job.columns), min(job.rows, job.columns)
    a = job.loaded(job.call.inputs[0], turned=wide)
    work, count = job.workspace("gesvd", m, n)
    rest = (work, count, job.scratch(n * job.dtype.to_real().itemsize), job.each(outputs[-1]))
    if not params["vectors"]:
        job.run("gesvd", ord("N"), ord("N"), m, n, a, m, job.each(outputs[0]), 0, m, 0, n, *rest)
        return
    letter = ord("A" if params["full"] else "S")
    if wide:
        u, vh = job.each(outputs[2]), job.each(outputs[0])
    else:
        u, vh = job.each(job.room(m, m if params["full"] else n)), job.each(job.room(n, n))
    job.run("gesvd", letter, letter, m, n, a, m, job.each(outputs[1]), u, m, vh, n, *rest)
    if not wide:
        job.store(u, 0)
        job.store(vh, 2)


ROUTINES: dict[str, Callable[[_Job], None]] = {
    "cholesky": _cholesky, "lu": _lu, "qr": _qr, "reflections": _reflections, "eigh": _eigh, "svd": _svd,
}  # fmt: skip


def takes(call: ExternCall) -> bool:
    """Whether the library has such a factorisation, of such a type and size."""

    def counted(x: Operand) -> bool:
        return numel(x.shape) * (2 if x.dtype.is_complex else 1) < _MOST

    known = call.name in ROUTINES and _type_of(call).name in LETTERS
    return known and all(counted(x) for x in (*call.inputs, *call.outputs))


def _type_of(call: ExternCall) -> DType:
    return call.inputs[0].dtype


def solver_steps(call: ExternCall, library: CuSolver) -> list[Step]:
    """The steps of a call that the library takes."""
    job = _Job(call, library)
    ROUTINES[call.name](job)
    return job.steps

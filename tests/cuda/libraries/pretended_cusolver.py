"""A library with cuSOLVER's functions, whose routines are LAPACK's; it reads and writes memory by addresses of a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack

from rushlight._backends.cuda.libraries.cusolver import LETTERS

__all__ = ["CFunction", "Pretended", "block_memory"]

TYPES = {letter: np.dtype(name) for name, letter in LETTERS.items()}
WORK = 37  # elements that every routine wants


class CFunction:
    """A function that checks its arguments against their types, as C would take them."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self.run, self.argtypes = run, ()

    def __call__(self, *arguments: Any) -> int:
        assert len(arguments) == len(self.argtypes)
        for kind, value in zip(self.argtypes, arguments, strict=True):
            kind(value) if isinstance(value, int) else kind.from_param(value)
        return int(self.run(*arguments) or 0)


class Pretended:
    """`read(address, bytes)` and `write(address, data)` are the device's memory."""

    def __init__(self, read: Callable[[int, int], bytes], write: Callable[[int, bytes], None]) -> None:
        self.read, self.write = read, write
        self.ran: list[str] = []
        self.streams: list[int] = []

    def __getattr__(self, name: str) -> Any:
        if name == "cusolverDnCreate":
            return CFunction(lambda to: setattr(to._obj, "value", 0x501))
        if name == "cusolverDnSetStream":
            return CFunction(lambda handle, stream: self.streams.append(stream))
        if not name.startswith("cusolverDn"):
            raise AttributeError(name)
        letter, routine = name[10], name[11:]
        if routine.endswith("_bufferSize"):
            return CFunction(lambda *given: setattr(given[-1]._obj, "value", WORK))
        run = getattr(self, "_" + {"ungqr": "orgqr", "heevd": "syevd"}.get(routine, routine))
        assert routine in ("potrf", "getrf", "geqrf", "gesvd") or (routine in ("ungqr", "heevd")) == (letter in "CZ")

        def called(handle: Any, *given: Any) -> None:
            assert handle.value == 0x501
            self.ran.append(name)
            run(TYPES[letter], *given)

        return CFunction(called)

    def matrix(self, dtype: Any, at: int, rows: int, columns: int) -> Any:
        data = np.frombuffer(self.read(at, rows * columns * dtype.itemsize), dtype)
        return data.reshape(columns, rows).T.copy(order="F")

    def put(self, at: int, array: Any, dtype: Any) -> None:
        self.write(at, np.asarray(array, dtype).tobytes(order="F"))

    def call(self, name: str, a: Any, *more: Any, **options: Any) -> Any:
        (function,) = lapack.get_lapack_funcs((name,), (a,))
        return function(a, *more, **options)

    def _potrf(self, t: Any, uplo: int, n: int, a: int, lda: int, work: int, count: int, info: int) -> None:
        assert uplo == 0 and lda == n and count == WORK
        found, status = self.call("potrf", self.matrix(t, a, n, n), lower=1, clean=0)
        self.put(a, found, t)
        self.put(info, [status], np.int32)

    def _getrf(self, t: Any, m: int, n: int, a: int, lda: int, work: int, pivots: int, info: int) -> None:
        found, order, status = self.call("getrf", self.matrix(t, a, lda, n))
        self.put(a, found, t)
        self.put(pivots, order + 1, np.int32)
        self.put(info, [status], np.int32)

    def _geqrf(self, t: Any, m: int, n: int, a: int, lda: int, tau: int, work: int, count: int, info: int) -> None:
        found, factors, _, status = self.call("geqrf", self.matrix(t, a, lda, n))
        self.put(a, found, t)
        self.put(tau, factors, t)
        self.put(info, [status], np.int32)

    def _orgqr(
        self, t: Any, m: int, n: int, k: int, a: int, lda: int, tau: int, work: int, count: int, info: int
    ) -> None:
        assert m >= n >= k
        given = self.matrix(t, a, lda, n), np.frombuffer(self.read(tau, k * t.itemsize), t)
        found, _, status = self.call("ungqr" if t.kind == "c" else "orgqr", *given)
        self.put(a, found, t)
        self.put(info, [status], np.int32)

    def _syevd(
        self, t: Any, mode: int, uplo: int, n: int, a: int, lda: int, values: int, work: int, count: int, info: int
    ) -> None:
        name = "heevd" if t.kind == "c" else "syevd"
        found, vectors, status = self.call(name, self.matrix(t, a, n, n), compute_v=mode, lower=1 - uplo)
        self.put(values, found, found.dtype)
        self.put(a, vectors if mode else np.full((n, n), np.nan), t)
        self.put(info, [status], np.int32)

    def _gesvd(
        self, t: Any, job: int, same: int, m: int, n: int, a: int, lda: int, values: int, u: int, ldu: int, vh: int, ldvh: int,
        work: int, count: int, rwork: int, info: int,
    ) -> None:  # fmt: skip
        assert m >= n and job == same and (ldu, ldvh) == (m, n)
        vectors, full = job != ord("N"), job == ord("A")
        left, found, right, status = self.call("gesvd", self.matrix(t, a, m, n), compute_uv=vectors, full_matrices=full)
        self.put(values, found, found.dtype)
        if vectors:
            self.put(u, left, t)
            self.put(vh, right, t)
        self.put(a, np.full((m, n), np.nan), t)
        self.put(info, [status], np.int32)


def block_memory(find: Callable[[], Any]) -> Pretended:
    """A library on the memory of the interpreter of block kernels."""

    def bytes_at(at: int, nbytes: int) -> Any:
        for buffer in find().buffers:
            if buffer.address <= at and at + nbytes <= buffer.address + buffer.data.size:
                return buffer.data[at - buffer.address :][:nbytes]
        raise AssertionError(f"no memory at {at:#x}")

    def write(at: int, data: bytes) -> None:
        bytes_at(at, len(data))[...] = np.frombuffer(data, np.uint8)

    return Pretended(lambda at, nbytes: bytes(bytes_at(at, nbytes)), write)

"""Factorisations by cuSOLVER: its routines for dense matrices, one matrix a call, in LAPACK's forms.

A handle belongs to one device, and the stream is a property of the handle: so calls are made one after the other.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from rushlight._backends.cuda.libraries.loader import CLibrary, Wheel
from rushlight._base.knobs import Knob

__all__ = ["LETTERS", "LIBRARY", "LOWER", "VECTORS", "WHEEL", "CuSolver", "cusolver"]

LIBRARY: Knob[str] = Knob(
    "cusolver_library", env="RUSHLIGHT_CUSOLVER_LIBRARY", kind=str, default="",
    doc="The path of cuSOLVER; empty: that of NVIDIA's wheel, else none; `none`: none.",
)  # fmt: skip
_OTHERS = (
    ("libcublasLt.so", "cublas"), ("libcublas.so", "cublas"), ("libnvJitLink.so", "nvjitlink"), ("libcusparse.so", "cusparse"),
)  # fmt: skip
WHEEL = Wheel("cuSOLVER", "libcusolver.so", "cusolver", "cuda", LIBRARY, _OTHERS)

LETTERS = {"float32": "S", "float64": "D", "complex64": "C", "complex128": "Z"}
LOWER, VECTORS = 0, (0, 1)  # CUBLAS_FILL_MODE_LOWER; CUSOLVER_EIG_MODE_NOVECTOR, _VECTOR
_COMPLEX = {"orgqr": "ungqr", "syevd": "heevd"}
_P, _I, _C = ctypes.c_void_p, ctypes.c_int, ctypes.c_byte
# Arguments behind the handle.
_FORMS: dict[str, tuple[Any, ...]] = {
    "potrf_bufferSize": (_I, _I, _P, _I, _P),
    "potrf": (_I, _I, _P, _I, _P, _I, _P),
    "getrf_bufferSize": (_I, _I, _P, _I, _P),
    "getrf": (_I, _I, _P, _I, _P, _P, _P),
    "geqrf_bufferSize": (_I, _I, _P, _I, _P),
    "geqrf": (_I, _I, _P, _I, _P, _P, _I, _P),
    "orgqr_bufferSize": (_I, _I, _I, _P, _I, _P, _P),
    "orgqr": (_I, _I, _I, _P, _I, _P, _P, _I, _P),
    "syevd_bufferSize": (_I, _I, _I, _P, _I, _P, _P),
    "syevd": (_I, _I, _I, _P, _I, _P, _P, _I, _P),
    "gesvd_bufferSize": (_I, _I, _P),
    "gesvd": (_C, _C, _I, _I, _P, _I, _P, _P, _I, _P, _I, _P, _I, _P, _P),
}


def symbol(name: str, letter: str) -> str:
    """The C function of a routine for a type."""
    routine, _, rest = name.partition("_")
    routine = _COMPLEX.get(routine, routine) if letter in "CZ" else routine
    return f"cusolverDn{letter}{routine}{'_' if rest else ''}{rest}"


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cusolverDnCreate": (_P,),
    "cusolverDnSetStream": (_P, _P),
    **{symbol(name, letter): (_P, *form) for name, form in _FORMS.items() for letter in "SDCZ"},
}


class CuSolver(CLibrary):
    """The library, with a handle for each device that used it."""

    def __init__(self, library: Any) -> None:
        super().__init__(WHEEL.title, library, _SIGNATURES)
        self._lock = threading.Lock()

    def handle(self, device: int) -> ctypes.c_void_p:
        """The handle of a device, which is the current one of this thread."""
        return self.handle_of(device, "cusolverDnCreate")

    def workspace(self, name: str, letter: str, device: int, *arguments: Any) -> int:
        """How many elements a routine wants as its workspace."""
        with self._lock:
            return self.size(symbol(f"{name}_bufferSize", letter), self.handle(device), *arguments)

    def run(self, name: str, letter: str, device: int, stream: int, *arguments: Any) -> None:
        """Give the work of a routine to a stream."""
        with self._lock:
            handle = self.handle(device)
            self.call("cusolverDnSetStream", handle, stream)
            self.call(symbol(name, letter), handle, *arguments)


_loaded: list[CuSolver] = []


def cusolver() -> CuSolver:
    """The library, loaded by the first use; MissingExtraError where it is not installed."""
    if not _loaded:
        _loaded.append(CuSolver(WHEEL.open()))
    return _loaded[0]

"""Matrix products by cuBLASLt.

The numbers of attributes and types and the arguments of functions are those of NVIDIA's headers (a test holds them to it);
they have not met a card yet.  So `gemm.choice` takes a product from the library only where its result agrees with our
kernel's on the card.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._backends.cuda.libraries.loader import CLibrary, Wheel
from rushlight._backends.cuda.libraries.provider import current_device
from rushlight._backends.cuda.program.steps import LibraryFunction, Operand
from rushlight._base.knobs import Knob
from rushlight._types.layout import numel

__all__ = ["LIBRARY", "WHEEL", "CublasLt", "LtProduct", "cublaslt", "fits"]

LIBRARY: Knob[str] = Knob(
    "cublaslt_library", env="RUSHLIGHT_CUBLASLT_LIBRARY", kind=str, default="",
    doc="The path of cuBLASLt; empty: that of NVIDIA's wheel, else none; `none`: none.",
)  # fmt: skip

WORKSPACE = 32 << 20
_P, _N, _I = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_P,),
    "cublasLtMatmulDescCreate": (_P, _I, _I),
    "cublasLtMatmulDescSetAttribute": (_P, _I, _P, _N),
    "cublasLtMatrixLayoutCreate": (_P, _I, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutSetAttribute": (_P, _I, _P, _N),
    "cublasLtMatmulPreferenceCreate": (_P,),
    "cublasLtMatmulPreferenceSetAttribute": (_P, _I, _P, _N),
    "cublasLtMatmulAlgoGetHeuristic": (_P, _P, _P, _P, _P, _P, _P, _I, _P, _P),
    "cublasLtMatmul": (_P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _P, _N, _P),
}
_TYPES = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "int8": 3,
    "int32": 10,
    "bfloat16": 14,
    "float8_e4m3fn": 28,
    "float8_e5m2": 29,
}
_COMPUTE = {"float32": 68, "float64": 70, "int32": 72, "tf32": 77}
_TRANSPOSE_A, _TRANSPOSE_B, _BATCH, _BATCH_STRIDE, _MOST_WORKSPACE = 3, 4, 5, 6, 1
_ALIGNMENTS = (5, 6, 7, 8)  # of the addresses of A, B, C and D
_ALIGNED = 16  # bytes: what algorithms that are fast count on


class Heuristic(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`: an algorithm, and what it needs."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


WHEEL = Wheel("cuBLASLt", "libcublasLt.so", "cublas", "cuda", LIBRARY)


class CublasLt(CLibrary):
    """The library: a function for each call, which raises RuntimeError where C returns an error.

    A handle belongs to a device: `current` tells the thread's.
    """

    def __init__(self, library: Any, current: Callable[[], int] = lambda: 0) -> None:
        super().__init__(WHEEL.title, library, _SIGNATURES)
        self.current = current

    @property
    def handle(self) -> ctypes.c_void_p:
        """The handle of the thread's device."""
        return self.handle_of(self.current(), "cublasLtCreate")

    def set(self, name: str, handle: Any, attribute: int, value: Any) -> None:
        self.call(name, handle, attribute, ctypes.byref(value), ctypes.sizeof(value))


_loaded: list[CublasLt | None] = []


def cublaslt() -> CublasLt | None:
    """The library, loaded by the first use; None where it is not installed."""
    if not _loaded:
        _loaded.append(None if WHEEL.path() is None else CublasLt(WHEEL.open(), current_device))
    return _loaded[0]


class _Matrix(NamedTuple):
    """A matrix as the library sees it: column-major, `turned` where it is the transpose of what is multiplied."""

    rows: int
    columns: int
    lead: int
    turned: bool


def _matrix(x: Operand) -> _Matrix | None:
    """The transpose of the last two dims, column-major: that is the matrix, row-major.  None for other strides."""
    (rows, columns), (down, across) = x.shape[-2:], x.strides[-2:]
    if across == 1 and (down >= columns or rows == 1):
        return _Matrix(columns, rows, max(down, columns), False)
    if down == 1 and (across >= rows or columns == 1):
        return _Matrix(rows, columns, max(across, rows), True)
    return None


def fits(a: Operand, b: Operand, out: Operand, sums: str) -> bool:
    """Whether the library has such a product: types, strides, at most one dim of batch."""
    known = all(x.dtype.name in _TYPES for x in (a, b, out)) and sums in _COMPUTE
    target = _matrix(out)
    laid = target is not None and not target.turned and all(_matrix(x) is not None for x in (a, b))
    if known and laid and a.dtype.kind == "f" and a.dtype.itemsize == 1 and not _fits_eight(a, b):
        return False
    return known and laid and len(out.shape) <= 3 and numel(out.shape) > 0 and a.shape[-1] > 0


def _fits_eight(a: Operand, b: Operand) -> bool:
    """Floats of eight bits: both dense along k, sizes multiples of 16, not both of e5m2."""
    sides = _matrix(a), _matrix(b)
    assert sides[0] is not None
    assert sides[1] is not None
    dense = not sides[0].turned and sides[1].turned
    even = all(n % 16 == 0 for n in (*a.shape[-2:], b.shape[-1], sides[0].lead, sides[1].lead))
    return dense and even and "float8_e4m3fn" in (a.dtype.name, b.dtype.name)


class LtProduct:
    """out = a b: called with a stream and the addresses of a, b, out and the workspace."""

    def __init__(self, library: CublasLt, a: Operand, b: Operand, out: Operand, sums: str, tf32: bool = False) -> None:
        self.library = library
        scale = _TYPES["float32" if sums == "tf32" else sums]
        self.scalars = ctypes.c_double if sums == "float64" else ctypes.c_int32 if sums == "int32" else ctypes.c_float
        self.one, self.zero = self.scalars(1), self.scalars(0)
        compute = _COMPUTE["tf32" if tf32 and sums == "float32" else sums]
        self.description = library.made("cublasLtMatmulDescCreate", compute, scale)
        # Column-major, the result's transpose is the product of the transposes in the other order.
        for attribute, x in ((_TRANSPOSE_A, b), (_TRANSPOSE_B, a)):
            seen = _matrix(x)
            assert seen is not None
            library.set("cublasLtMatmulDescSetAttribute", self.description, attribute, ctypes.c_int32(int(seen.turned)))
        self.layouts = [self._layout(x) for x in (b, a, out)]
        self.algorithm = self._algorithm([_ALIGNED] * 3)
        self.elements = [x.dtype.itemsize for x in (b, a, out)]
        self._anywhere: Heuristic | None = None

    def _layout(self, x: Operand) -> ctypes.c_void_p:
        seen = _matrix(x)
        assert seen is not None
        made = self.library.made("cublasLtMatrixLayoutCreate", _TYPES[x.dtype.name], *seen[:3])
        if len(x.shape) == 3:
            name = "cublasLtMatrixLayoutSetAttribute"
            self.library.set(name, made, _BATCH, ctypes.c_int32(x.shape[0]))
            self.library.set(name, made, _BATCH_STRIDE, ctypes.c_int64(x.strides[0]))
        return made

    @property
    def anywhere(self) -> Heuristic:
        """The algorithm for operands that are aligned to their elements alone; RuntimeError where there is none."""
        if self._anywhere is None:
            self._anywhere = self._algorithm(self.elements)
        return self._anywhere

    def _algorithm(self, alignments: Sequence[int]) -> Heuristic:
        """The best for operands whose addresses are multiples of these numbers: by itself the library counts on 256."""
        preference = self.library.made("cublasLtMatmulPreferenceCreate")
        self.library.set(
            "cublasLtMatmulPreferenceSetAttribute", preference, _MOST_WORKSPACE, ctypes.c_uint64(WORKSPACE)
        )
        for attribute, alignment in zip(_ALIGNMENTS, (*alignments, alignments[-1]), strict=True):
            self.library.set("cublasLtMatmulPreferenceSetAttribute", preference, attribute, ctypes.c_uint32(alignment))
        found, count = Heuristic(), ctypes.c_int()
        b, a, out = self.layouts
        self.library.call(
            "cublasLtMatmulAlgoGetHeuristic", self.library.handle, self.description, b, a, out, out, preference, 1,
            ctypes.byref(found), ctypes.byref(count),
        )  # fmt: skip
        if count.value < 1:
            raise RuntimeError("cuBLASLt has no algorithm for this product")
        return found

    @property
    def native(self) -> LibraryFunction | None:
        """The call as native code makes it; None where the library is no library of C."""
        address = self.library.address("cublasLtMatmul")
        if address is None:
            return None
        of_b, of_a, of_out = (layout.value or 0 for layout in self.layouts)
        one, zero, algorithm = (ctypes.addressof(x) for x in (self.one, self.zero, self.algorithm))
        words = [
            self.library.handle.value or 0, self.description.value or 0, one, 0, of_b, 0, of_a, zero, 0, of_out, 0, of_out, algorithm, 0,
            WORKSPACE, 0,
        ]  # fmt: skip
        return LibraryFunction("cublasLtMatmul", address, words, ((5,), (3,), (8, 10), (13,)), 15, alignment=_ALIGNED)

    def __call__(self, stream: int, a: int, b: int, out: int, workspace: int) -> None:
        of_b, of_a, of_out = self.layouts
        algorithm = self.anywhere if (a | b | out) % _ALIGNED else self.algorithm
        self.library.call(
            "cublasLtMatmul", self.library.handle, self.description, ctypes.byref(self.one), b, of_b, a, of_a,
            ctypes.byref(self.zero), out, of_out, out, of_out, ctypes.byref(algorithm), workspace, WORKSPACE, stream,
        )  # fmt: skip

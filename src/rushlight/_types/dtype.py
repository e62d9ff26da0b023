"""Element types.  One object each, compared by identity, printed as PyTorch prints them."""

from __future__ import annotations

from typing import Any

__all__ = [
    "BFLOAT16", "BOOL", "BY_NAME", "COMPLEX64", "COMPLEX128", "DTYPES", "FLOAT16", "FLOAT32", "FLOAT64", "INT8", "INT16", "INT32",
    "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "DType", "from_numpy_name",
]  # fmt: skip


class DType:
    """An element type.

    `kind` is one of b(ool) u(nsigned) i(nteger) f(loat) c(omplex); `numpy_name` is None for bfloat16, which NumPy lacks.
    """

    __slots__ = (
        "aliases", "is_complex", "is_floating_point", "is_integer", "is_signed", "itemsize", "kind", "name", "numpy_name", "rank",
    )  # fmt: skip

    def __init__(self, name: str, itemsize: int, kind: str, rank: int, aliases: tuple[str, ...] = ()) -> None:
        self.name, self.itemsize, self.kind, self.rank, self.aliases = name, itemsize, kind, rank, aliases
        self.numpy_name = None if name == "bfloat16" else name
        self.is_floating_point = kind == "f"
        self.is_complex = kind == "c"
        self.is_integer = kind in "iu"
        self.is_signed = kind in "ifc"

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (_by_name, (self.name,))

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: Any) -> DType:
        return self

    def to_real(self) -> DType:
        """The dtype of the real part of a complex dtype; itself for others."""
        return _REAL.get(self, self)

    def to_complex(self) -> DType:
        """The complex dtype whose parts have this dtype."""
        if self.is_complex:
            return self
        if self not in _COMPLEX:
            raise RuntimeError(f"there is no complex dtype for {self!r}")
        return _COMPLEX[self]


BOOL = DType("bool", 1, "b", 0)
UINT8 = DType("uint8", 1, "u", 1)
INT8 = DType("int8", 1, "i", 2)
INT16 = DType("int16", 2, "i", 3, ("short",))
INT32 = DType("int32", 4, "i", 4, ("int",))
INT64 = DType("int64", 8, "i", 5, ("long",))
UINT16 = DType("uint16", 2, "u", 3)
UINT32 = DType("uint32", 4, "u", 4)
UINT64 = DType("uint64", 8, "u", 5)
FLOAT16 = DType("float16", 2, "f", 6, ("half",))
BFLOAT16 = DType("bfloat16", 2, "f", 6)
FLOAT32 = DType("float32", 4, "f", 7, ("float",))
FLOAT64 = DType("float64", 8, "f", 8, ("double",))
COMPLEX64 = DType("complex64", 8, "c", 9, ("cfloat",))
COMPLEX128 = DType("complex128", 16, "c", 10, ("cdouble",))

DTYPES = (
    BOOL, UINT8, INT8, INT16, INT32, INT64, UINT16, UINT32, UINT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128,
)  # fmt: skip
BY_NAME: dict[str, DType] = {d.name: d for d in DTYPES}
_REAL = {COMPLEX64: FLOAT32, COMPLEX128: FLOAT64}
_COMPLEX = {FLOAT32: COMPLEX64, FLOAT64: COMPLEX128, FLOAT16: COMPLEX64, BFLOAT16: COMPLEX64}


def _by_name(name: str) -> DType:
    return BY_NAME[name]


def from_numpy_name(name: str) -> DType:
    """The dtype that NumPy calls `name` (`numpy.dtype.name`); TypeError for one without a counterpart."""
    found = BY_NAME.get(name)
    if found is None or found.numpy_name is None:
        known = ", ".join(d.numpy_name for d in DTYPES if d.numpy_name)
        raise TypeError(f"can't convert np.ndarray of type numpy.{name}. The only supported types are: {known}.")
    return found

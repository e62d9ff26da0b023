"""Element types.  One object each, compared by identity, printed as in PyTorch."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ALL_DTYPES", "BFLOAT16", "BOOL", "BY_NAME", "COMPLEX32", "COMPLEX64", "COMPLEX128", "DTYPES", "FLOAT8", "FLOAT16", "FLOAT32", "FLOAT64",
    "INT8", "INT16", "INT32", "INT64", "QUANTIZED", "UINT8", "UINT16", "UINT32", "UINT64", "ByName", "DType", "from_numpy_name",
]  # fmt: skip


class DType:
    """An element type.

    - `kind`: b(ool) u(nsigned) i(nteger) f(loat) c(omplex), `x` for bits without arithmetic, `q` for quantized numbers.
    - `numpy_name`: None if NumPy lacks the dtype.
    - `scalar`: its name in PyTorch's messages ("Float", "Half").
    - `wide`: the dtype of its arithmetic; itself except for narrow floats.
    """

    __slots__ = (
        "_signed", "aliases", "is_complex", "is_floating_point", "is_integer", "itemsize", "kind", "name", "numpy_name", "rank", "scalar", "wide",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        itemsize: int,
        kind: str,
        rank: int,
        aliases: tuple[str, ...] = (),
        *,
        scalar: str = "",
        wide: DType | None = None,
        signed: bool | None = None,
    ) -> None:
        self.name, self.itemsize, self.kind, self.rank, self.aliases = name, itemsize, kind, rank, aliases
        self.scalar = scalar or name.capitalize()
        self.wide = wide or self
        self.numpy_name = name if kind in "buifc" and (wide is None or name == "float16") else None
        self.is_floating_point = kind == "f" or name.startswith("float4")
        self.is_complex = kind == "c"
        self.is_integer = kind in "iu"
        self._signed = kind in "ifc" if signed is None and kind in "buifc" else signed

    @property
    def is_signed(self) -> bool:
        """Whether it holds negative numbers; RuntimeError for bits without such a meaning."""
        if self._signed is None:
            if self.kind == "q":
                raise RuntimeError(
                    f"isSignedType not supported for quantized types: {self!r} has a scale and a zero point"
                )
            raise RuntimeError(f"{self!r} stands for bits, of which none is a sign")
        return self._signed

    @property
    def abbr(self) -> str:
        """A short name: `f32`, `i64`, `c128`."""
        return _ABBREVIATIONS.get(self.name) or self.name.replace("float", "f").replace("_", "")

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
            raise RuntimeError(
                f"Unknown Complex ScalarType for {self.scalar}: there is no complex dtype whose parts are {self!r}"
            )
        return _COMPLEX[self]


class ByName(dict[str, Any]):
    """A value for each of some dtypes, by name; NotImplementedError that names the dtype for all others."""

    def __missing__(self, name: str) -> Any:
        raise NotImplementedError(f"not implemented for '{BY_NAME[name].scalar}'")


BOOL = DType("bool", 1, "b", 0)
UINT8 = DType("uint8", 1, "u", 1, scalar="Byte")
INT8 = DType("int8", 1, "i", 2, scalar="Char")
INT16 = DType("int16", 2, "i", 3, ("short",), scalar="Short")
INT32 = DType("int32", 4, "i", 4, ("int",), scalar="Int")
INT64 = DType("int64", 8, "i", 5, ("long",), scalar="Long")
UINT16 = DType("uint16", 2, "u", 3, scalar="UInt16")
UINT32 = DType("uint32", 4, "u", 4, scalar="UInt32")
UINT64 = DType("uint64", 8, "u", 5, scalar="UInt64")
FLOAT32 = DType("float32", 4, "f", 7, ("float",), scalar="Float")
FLOAT64 = DType("float64", 8, "f", 8, ("double",), scalar="Double")
FLOAT16 = DType("float16", 2, "f", 6, ("half",), scalar="Half", wide=FLOAT32)
BFLOAT16 = DType("bfloat16", 2, "f", 6, scalar="BFloat16", wide=FLOAT32)
COMPLEX64 = DType("complex64", 8, "c", 9, ("cfloat",), scalar="ComplexFloat")
COMPLEX128 = DType("complex128", 16, "c", 10, ("cdouble",), scalar="ComplexDouble")
COMPLEX32 = DType("complex32", 4, "c", 9, ("chalf",), scalar="ComplexHalf", wide=COMPLEX64)

# The dtypes of arithmetic.
DTYPES = (
    BOOL, UINT8, INT8, INT16, INT32, INT64, UINT16, UINT32, UINT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64, COMPLEX64, COMPLEX128,
)  # fmt: skip
# Floats of eight bits: stored, moved, compared and cast; see `_types/float8.py` for the formats.
FLOAT8 = tuple(
    DType(f"float8_{form}", 1, "f", 6, scalar=f"Float8_{form}", wide=FLOAT32, signed=form != "e8m0fnu")
    for form in ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")
)
# Two floats of four bits in a byte, and bits without a meaning: stored and moved.
_OPAQUE = (
    DType("float4_e2m1fn_x2", 1, "x", 6, scalar="Float4_e2m1fn_x2", signed=True),
    *(DType(f"uint{n}", 1, "x", 0, ("bit",) if n == 1 else (), scalar=f"UInt{n}", signed=False) for n in range(1, 8)),
    *(DType(f"int{n}", 1, "x", 0, scalar=f"Int{n}", signed=True) for n in range(1, 8)),
    *(
        DType(f"bits{form}", 2 if form == "16" else 1, "x", 0, scalar=f"Bits{form}")
        for form in ("1x8", "2x4", "4x2", "8", "16")
    ),
)
# The elements of quantized tensors, whose scale and zero point belong to the tensor.
QUANTIZED = (
    DType("quint8", 1, "q", 0, scalar="QUInt8"),
    DType("qint8", 1, "q", 0, scalar="QInt8"),
    DType("qint32", 4, "q", 0, scalar="QInt32"),
    DType("quint4x2", 1, "q", 0, scalar="QUInt4x2"),
    DType("quint2x4", 1, "q", 0, scalar="QUInt2x4"),
)
ALL_DTYPES = (*DTYPES, COMPLEX32, *FLOAT8, *_OPAQUE, *QUANTIZED)
BY_NAME: dict[str, DType] = {d.name: d for d in ALL_DTYPES}
_REAL = {COMPLEX32: FLOAT16, COMPLEX64: FLOAT32, COMPLEX128: FLOAT64}
_COMPLEX = {FLOAT32: COMPLEX64, FLOAT64: COMPLEX128, FLOAT16: COMPLEX32, BFLOAT16: COMPLEX64}
_ABBREVIATIONS = {d.name: f"{d.kind}{8 * d.itemsize}" for d in (*DTYPES, COMPLEX32)} | {
    "bfloat16": "bf16",
    "bits8": "b8x1",
    "bits16": "b16x1",
    "bits1x8": "b1x8",
    "bits2x4": "b2x4",
    "bits4x2": "b4x2",
}


def _by_name(name: str) -> DType:
    return BY_NAME[name]


def from_numpy_name(name: str) -> DType:
    """The dtype that NumPy calls `name` (`numpy.dtype.name`); TypeError for one without a counterpart."""
    dtype = BY_NAME.get(name)
    if dtype is None or dtype.numpy_name is None:
        known = ", ".join(d.numpy_name for d in DTYPES if d.numpy_name)
        raise TypeError(f"can't convert np.ndarray of type numpy.{name}. The only supported types are: {known}.")
    return dtype

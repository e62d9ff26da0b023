"""The form of a matrix product by our own kernels: dtypes, tile, conversions, and the sizes of blocks (BLIS's
structure).

Operands may be narrower than the arithmetic: they are converted while they are packed, and results are rounded once,
from a rectangle of sums that is still in a cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rushlight._backends.cpu.microkernels.amx_tile import AmxTile
from rushlight._backends.cpu.microkernels.panels import Cast, Pairs, Panels
from rushlight._backends.cpu.microkernels.register_tile import KINDS, RegisterTile
from rushlight._native import Type, f32, f64, i32, i64
from rushlight._types import dtype as _dtypes

if TYPE_CHECKING:
    from rushlight._types.dtype import DType

__all__ = ["COLUMNS", "DEPTH", "ROWS", "SUMS", "WORDS", "Form", "block_of_depth", "round_up", "scratch_bytes"]

DEPTH = 256  # words of k in one block: a panel of B stays in the L1 cache
ROWS = 192  # rows of A in one block: it stays in the L2 cache
COLUMNS = 512  # columns of B in one block

# kinds of tiles: bytes of a word, type of sums (see `register_tile.py`, `amx_tile.py`)
WORDS: dict[str, tuple[int, str]] = {kind: (row[1], row[2]) for kind, row in KINDS.items()}
WORDS |= {"amx_bf16": (64, "float"), "amx_i8": (64, "i32")}
AMX_DEPTH = 32  # words of k in one block where a word has 64 bytes: sums leave the tile registers less often
OPERANDS = {
    "amx_bf16": "bfloat16", "amx_i8": "int8", "f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64", "bf16": "bfloat16", "i16": "int16",
    "i8": "int8",
}  # fmt: skip
SUMS: dict[str, Type] = {"float": f32, "double": f64, "i32": i32, "i64": i64}
_SUM_NAMES = {"float": "float32", "double": "float64", "i32": "int32", "i64": "int64"}


class Form:
    """A kind of product: A of dtype `source`, B of dtype `other` (default: the same), C of dtype `result`, computed by
    `tile`.

    `widen` converts A and B (None: the tile takes them), from panels `raw`; `narrow` converts sums (None: they are C).
    Complex numbers are `pair`s of real ones (see `Pairs`), and `conjugated` says which operands are read as conjugates.
    `offset` means that the tile takes unsigned A and A is signed: packing adds 128 to its elements, and sums begin with
    the correction, -128 times the sum of each column (see `RegisterTile`).
    """

    __slots__ = ("conjugated", "narrow", "offset", "other", "pair", "raw", "result", "source", "tile", "widen")

    def __init__(
        self,
        source: DType,
        result: DType,
        tile: RegisterTile | AmxTile,
        other: DType | None = None,
        conjugated: tuple[bool, bool] = (False, False),
    ) -> None:
        self.source, self.result, self.tile = source, result, tile
        self.other, self.conjugated = other or source, conjugated
        self.pair = 2 if source.kind == "c" else 1
        n = 1 << min(tile.rows, tile.lanes, 8).bit_length() - 1
        if self.pair == 2:
            self.offset, self.narrow = False, None
            sides = (("a", tile.rows, conjugated[0]), ("b", tile.columns // 2, conjugated[1]))
            self.widen: list[Cast | Pairs | None] = [
                Pairs(source, side, width, tile.lanes, conjugate) for side, width, conjugate in sides
            ]
            self.raw = [
                Panels(source.itemsize, 1, min(n, 64 // source.itemsize, 1 << width.bit_length() - 1))
                for _, width, _ in sides
            ]
            return
        unsigned = tile.instruction in ("vpdpbusd", "tdpbusd")
        taken, sums = _dtype(OPERANDS[tile.kind]), _dtype(_SUM_NAMES[WORDS[tile.kind][1]])
        self.offset = tile.instruction == "vpdpbusd" and source is taken
        if self.offset and isinstance(tile, RegisterTile):
            self.tile = tile.variant(begun=True)
        direct = [d is taken or (unsigned and i == 0) for i, d in enumerate((self.source, self.other))]
        self.widen = [
            None if h else Cast(d, taken, tile.lanes, tile.fma)
            for h, d in zip(direct, (self.source, self.other), strict=True)
        ]
        rounds = tile.kind == "amx_bf16" and result is _dtypes.BFLOAT16
        self.narrow = Cast(sums, result, tile.lanes, tile.fma, rounds) if sums is not result else None
        self.raw = [
            tile.panels if cast is None else Panels(cast.source.itemsize * tile.group, tile.group, n)
            for cast in self.widen
        ]

    @property
    def widths(self) -> tuple[int, int]:
        """Rows of A and columns of B in one panel."""
        return self.tile.rows, self.tile.columns // self.pair

    @property
    def name(self) -> str:
        """The part of its kernels' symbols that names the form."""
        operands = self.source.name if self.other is self.source else f"{self.source.name}_{self.other.name}"
        signs = "".join("c" if c else "n" for c in self.conjugated) if any(self.conjugated) else ""
        return f"{operands}{signs}_{self.result.name}_{self.tile.kind}_{self.tile.rows}x{self.tile.columns}"

    @property
    def key(self) -> str:
        """Everything that its kernels depend on."""
        return " ".join([self.name, *(part.key for part in self.parts)])

    @property
    def parts(self) -> list[RegisterTile | AmxTile | Panels | Cast | Pairs]:
        """The objects that define the symbols its kernels need (`text`, `symbols`)."""
        candidates: list[RegisterTile | AmxTile | Panels | Cast | Pairs | None] = [
            self.tile,
            self.tile.panels if isinstance(self.tile, RegisterTile) else None,
            *self.raw,
            *self.widen,
            self.narrow,
            self.ones,
            self.rounded,
        ]
        return list({part.key: part for part in candidates if part is not None}.values())

    @property
    def depth(self) -> int:
        """The most words of k in one block."""
        return DEPTH if isinstance(self.tile, RegisterTile) else AMX_DEPTH

    @property
    def before(self) -> int:
        """Words in front of a panel of B: a row of sums, or none."""
        return int(self.offset)

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of a packed word, and of a sum."""
        size, sums = WORDS[self.tile.kind]
        return size, SUMS[sums].itemsize

    @property
    def ones(self) -> RegisterTile | None:
        """The tile of one row that sums the columns of B, where `offset` needs it."""
        tile = self.tile
        return tile.sized(1, tile.vectors) if self.offset and isinstance(tile, RegisterTile) else None

    @property
    def rounded(self) -> RegisterTile | None:
        """The tile that writes elements of C if one block of k holds all of it; None if the machine has none."""
        t = self.tile
        if not isinstance(t, RegisterTile) or not t.rounds or self.narrow is None:
            return None
        return t.variant(rounded=True)


def _dtype(name: str) -> DType:
    dtype: DType = getattr(_dtypes, name.upper())
    return dtype


def round_up(n: int, step: int) -> int:
    return -(-n // step) * step


def scratch_bytes(form: Form) -> tuple[int, int, int, int]:
    """Bytes of a packed block of A, one of B, a rectangle of sums, and a panel before its conversion."""
    tile = form.tile
    size, total = form.sizes
    rows, columns = round_up(ROWS, tile.rows), round_up(COLUMNS, tile.columns)
    sums = (2 * rows * columns + tile.columns) * total if form.narrow else 0
    raw = max(tile.rows, tile.columns) * DEPTH * tile.group * form.source.itemsize if any(form.widen) else 0
    return size * rows * form.depth, size * columns * (form.depth + form.before), sums, round_up(raw, 64)


def block_of_depth(k: int, most: int, step: int) -> int:
    """The length of blocks of k: equal multiples of `step`, at most `most`; only the last block may hold a partial
    word."""
    count = max(1, -(-k // most))
    return min(most, round_up(-(-k // count), step))

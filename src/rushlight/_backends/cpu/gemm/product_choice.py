"""The choice of kernels for a matrix product: our own around register tiles, or the BLAS library.

>>> from rushlight._backends.cpu.gemm.product_spec import ProductShape, ProductTypes
>>> from rushlight._backends.cpu.gemm.product_choice import product_call
>>> from rushlight._types.dtype import BFLOAT16
>>> from rushlight._backends.cpu.launches import joined
>>> types, shape = ProductTypes(BFLOAT16, BFLOAT16), ProductShape(64, 64, 64)
>>> multiply = joined(product_call(types, shape))     # multiply(a, b) -> Storage of [64, 64]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from rushlight._backends.cpu.epilogue.constants import with_epilogue, with_prologues
from rushlight._backends.cpu.gemm import pieces
from rushlight._backends.cpu.gemm.blas import (
    GEMM_CONSTANTS,
    SMALL_WORK,
    form_address,
    form_ahead,
    gemm_ints,
    gemm_kernel,
    host_forms,
    least_packed,
    library_ahead,
    library_for,
    prefers_own,
    product_ahead,
    shared_addresses,
    shared_ahead,
    small_ahead,
    small_kernel,
    small_tile,
    thin_ahead,
    thin_kernel,
)
from rushlight._backends.cpu.gemm.blas_native import TILE_M, pitch_of
from rushlight._backends.cpu.gemm.choice import amx_works, entry, known, name_of
from rushlight._backends.cpu.gemm.gemm_form import COLUMNS, Form, block_of_depth
from rushlight._backends.cpu.gemm.gemm_native import LEAST_ROWS, is_declined
from rushlight._backends.cpu.gemm.gemm_shared_native import P_BEFORE, P_PINNED, PACK_CONSTANTS, packed_as
from rushlight._backends.cpu.gemm.prepare import LARGE_SIDE, LARGE_WORK
from rushlight._backends.cpu.gemm.product_spec import Fusion, ProductShape, ProductTypes
from rushlight._backends.cpu.gemm.small_native import is_small, small_ints
from rushlight._backends.cpu.gemm.thin_native import is_thin, suits_rows
from rushlight._backends.cpu.launches import Launch, PinnedWords, joined
from rushlight._backends.cpu.microkernels.amx_tile import AmxTile
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile
from rushlight._backends.cpu.pinned_native import LEAD
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable
from rushlight._types.dtype import BFLOAT16, COMPLEX64, COMPLEX128, FLOAT32, FLOAT64, INT8, INT32, DType
from rushlight._types.layout import numel

__all__ = ["amx_maker", "may_stay_packed", "product_call", "product_note", "products_ahead", "tuned"]

KINDS_OF = {
    "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8",
}  # fmt: skip
CHOSEN = ("f32", "f64", "c64", "c128")  # kinds that both the library and our own kernels compute
SMALL = 1 << 16  # multiplications below which nothing is measured
SMALL_INTEGERS = 1 << 12  # integer multiplications up to which plain loops are faster than packing
# Most elements of a matrix by which many rows are multiplied where they lie, in blocks of so many rows that divide them:
# few ways, or every number of rows had a plan of its own.
TALL_MATRIX, TALL_ROWS = 1 << 10, (256, 128, 64, 32, 16)
SHARED_WORK, SHARED_SIDE = LARGE_WORK, LARGE_SIDE
PIECE_ROWS, PIECE_COLUMNS = 128, 256  # of C in one piece of a large product, about
PIECES, PIECE_WORK = 20, 1 << 19  # wanted pieces, and the least multiplications in one
PACK_PIECE = 1 << 16  # elements packed in one piece, about
PINNED = 1 << 12  # least elements of an operand for it to stay packed
LEAST_HEIGHT, FEW_TILES = 7, 6  # rows of a tile that is as fast as a higher one; tiles of few rows, at most
PINNED_COLUMNS = 1 << 10  # most columns of B beside an A that stays packed: B is packed at every call
_CALLS: dict[str, Callable[..., Any]] = {}
_UNFUSED = Fusion()


def product_call(types: ProductTypes, shape: ProductShape, fusion: Fusion = _UNFUSED) -> list[Launch]:
    """The kernels that multiply A and B; their arrays are A, B and those of the `fusion`.

    NotImplementedError where no product of these dtypes exists.  With an epilogue, which takes the further arrays,
    `types.result` is the dtype of the sums.  With prologues, the arrays are those of all prologues, and operands that
    have one are not read.
    """
    source, result = types.source, types.result
    kind, operands = KINDS_OF.get(source.name), range(2 + fusion.more)
    shape = _in_blocks(types, shape, fusion) or shape
    if kind is not None and _small(types, shape, fusion):
        sums = shape if fusion.epilogue is None else shape._replace(c_strides=(pitch_of(shape.n), 1))
        ints = with_epilogue(gemm_ints(kind, shape), fusion.sizes, fusion.epilogue)
        return [Launch(small_kernel(kind), small_ints(ints, sums, source.itemsize), operands)]
    if kind is not None and _thin(types, shape, fusion):
        ints = with_epilogue(gemm_ints(kind, shape), fusion.sizes, fusion.epilogue)
        return [Launch(thin_kernel(kind), ints, operands)]
    if any(types.conjugated):  # only our own kernels can
        forms, kind = host_forms(source, result, conjugated=types.conjugated), None
    else:
        forms = _forms(types, shape)
    if forms is None and (kind is None or source is not result):
        raise NotImplementedError(f"primitive 'dot' has no routine for {source.name} with a result of {result.name}")
    if any(fusion.prologues) or fusion.pinned >= 0:
        forms = _product_forms(source, result, types.other)
    if forms is not None and all(size == 1 for size in shape.batch):
        if any(fusion.prologues) or _is_large(shape) or fusion.pinned >= 0:
            return _shared(forms, shape, fusion)
    group = forms[0].tile.group if forms else 1
    ints = gemm_ints(kind or "f32", shape, itemsize=result.itemsize, at_once=group)
    ints = with_epilogue(ints, fusion.sizes, fusion.epilogue)
    if forms is None or kind in CHOSEN:  # the library also serves the cases our own kernels decline
        assert kind is not None
        return [Launch(gemm_kernel(kind, forms is not None), ints, operands)]
    key = f"form {' '.join(form.key for form in forms)}"
    if key not in _CALLS:
        _CALLS[key] = make_kernel_callable(form_address(forms), "gemm_form")
    return [Launch(_CALLS[key], ints, operands)]


def _small(types: ProductTypes, shape: ProductShape, fusion: Fusion = _UNFUSED) -> bool:
    """Whether a product is computed by blocks over operands where they lie."""
    kind, size = KINDS_OF.get(types.source.name), types.source.itemsize
    if kind not in SMALL_WORK or types.source is not types.result or any(fusion.prologues) or fusion.pinned >= 0:
        return False
    if fusion.epilogue is not None:
        shape = shape._replace(c_strides=(pitch_of(shape.n), 1))
    return is_small(shape, size, SMALL_WORK[kind]) and not suits_rows(shape)


def _in_blocks(types: ProductTypes, shape: ProductShape, fusion: Fusion = _UNFUSED) -> ProductShape | None:
    """A product of many rows by a small matrix as a batch of small ones, which need not be packed; None for others.

    Packing takes longer than the multiplications of so few columns.  The sums are the same.
    """
    (m, n, k), kind = shape.sizes, KINDS_OF.get(types.source.name)
    a_strides, b_strides, c_strides = shape.strides
    if kind not in SMALL_WORK or shape.batch or 0 in (m, n, k):
        return None
    if n * k > TALL_MATRIX or m * n * k <= SMALL_WORK[kind] or n > 2 * small_tile(kind).lanes:
        return None
    rows = next((r for r in TALL_ROWS if m % r == 0 and r * n * k <= SMALL_WORK[kind]), 0)
    if not rows:
        return None
    first = (rows * a_strides[0],), (0,), (rows * c_strides[0],)
    blocks = ProductShape(rows, n, k, a_strides, b_strides, c_strides, (m // rows,), *first)
    return blocks if _small(types, blocks, fusion) else None


def _thin(types: ProductTypes, shape: ProductShape, fusion: Fusion = _UNFUSED) -> bool:
    """Whether a product is a matrix times a vector whose sums are read where they lie."""
    real = KINDS_OF.get(types.source.name) in SMALL_WORK and types.source is types.result
    return real and not any(fusion.prologues) and fusion.pinned < 0 and is_thin(shape)


def _forms(types: ProductTypes, shape: ProductShape) -> tuple[Form, ...] | None:
    """The forms of a product; None where the library or plain loops compute it."""
    source, result = types.source, types.result
    kind, work, total = KINDS_OF.get(source.name), numel(shape.sizes), numel(shape.batch)
    if kind in CHOSEN and source is result:
        # either kernel leaves small products to the library: nothing is measured for them
        own = entry(_class_of(kind, shape), _maker).own if work >= SMALL and total else prefers_own(kind)
    else:
        own = kind not in CHOSEN and not (source.is_integer and source is result and work * total < SMALL_INTEGERS)
    return _product_forms(source, result, types.other) if own else None


def _class_of(kind: str, shape: ProductShape) -> str:
    """The name of a product's class in the table of `choice`."""
    a_strides, b_strides, _ = shape.strides
    return name_of(kind, shape.sizes, a_strides, b_strides)


def may_stay_packed(types: ProductTypes, shape: ProductShape, side: int, order: bool = True) -> bool:
    """Whether A (`side` 0) or B (1) of a product may stay packed: it is worth it, and with `order` the product adds up
    as it does otherwise, by our own tiles, whole.

    The library computes thin products, and thin pieces at the edges of others.
    """
    (m, n, k), kind = shape.sizes, KINDS_OF.get(types.source.name)
    if (
        types.source.kind != "f"
        or shape.strides[2][1] != 1
        or any(types.conjugated)
        or _in_blocks(types, shape)
        or (order and (_small(types, shape) or _thin(types, shape)))
    ):
        return False
    least = least_packed(library_for(kind)) if kind in CHOSEN else 1
    forms = _forms(types, shape) if order else _product_forms(types.source, types.result, types.other)
    if any(size != 1 for size in shape.batch) or (n if side else m) * k < PINNED or forms is None:
        return False
    if not side and n > PINNED_COLUMNS or least and m < LEAST_ROWS:
        return False
    if not order or _is_large(shape) or kind not in CHOSEN:
        return True
    ints = gemm_ints(kind, shape, itemsize=types.result.itemsize, at_once=forms[0].tile.group)
    sides = [
        (min(tile, side), side % tile or min(tile, side))
        for tile, side in zip(ints[TILE_M : TILE_M + 2], (m, n), strict=True)
    ]
    return not any(is_declined(rows, columns, k, least) for rows in sides[0] for columns in sides[1])


def product_note(types: ProductTypes, shape: ProductShape) -> str:
    """A description of the kernels that compute a product."""
    (m, n, k), kind = shape.sizes, KINDS_OF.get(types.source.name)
    forms = _forms(types, shape)
    by = "the library" if kind in CHOSEN and library_for(kind).path is not None else "plain loops"
    if forms is not None:
        tile = _fitting(forms, m).tile
        by = f"generated tiles of {tile.rows} x {tile.columns}{f' ({tile.instruction})' if tile.instruction else ''}"
    if _small(types, _in_blocks(types, shape) or shape):
        by = "blocks over operands where they lie"
    elif _thin(types, shape):
        by = "sums of rows where they lie"
    measured = known(_class_of(kind, shape)) if kind in CHOSEN and m * n * k >= SMALL else None
    return f"{types.source.name} [{m}, {k}] @ [{k}, {n}] by {by}" + (f"; its class: {measured}" if measured else "")


def _maker(
    kind: str, sizes: tuple[int, int, int], a_strides: tuple[int, int], b_strides: tuple[int, int], own: bool
) -> list[Launch]:
    """A product by our own kernels (`own`) or by the library."""
    shape = ProductShape(*sizes, a_strides, b_strides)
    dtype = {"f32": FLOAT32, "f64": FLOAT64, "c64": COMPLEX64, "c128": COMPLEX128}[kind]
    forms = host_forms(dtype, dtype) if own else None
    if forms is not None and _is_large(shape):
        return _shared(forms, shape)
    return [Launch(gemm_kernel(kind, own), gemm_ints(kind, shape), (0, 1))]


def products_ahead(types: ProductTypes, sizes: tuple[int, int, int], single: bool) -> None:
    """Let workers compile what products (m, n, k) of these dtypes will need; `single`: not of batches."""
    kind = KINDS_OF.get(types.source.name)
    if kind is not None and 1 in sizes[:2] and _thin(types, ProductShape(*sizes, (1, 1), (1, 1))):
        _thin_ahead(kind)  # as products by layers are, whose weights are read transposed
    elif kind is not None and single and _in_blocks(types, ProductShape(*sizes)):
        _small_ahead(kind)
    elif kind in CHOSEN and types.source is types.result and numel(sizes) >= SMALL:
        _kind_ahead(kind)
    elif kind is not None and _small(types, ProductShape(*sizes)):
        _small_ahead(kind)
    large = single and min(sizes[:2]) >= SHARED_SIDE and numel(sizes) > SHARED_WORK
    forms = _product_forms(types.source, types.result, types.other) if large or kind is None else None
    if forms and large:
        _shared_ahead(_fitting(forms, sizes[0]))
    elif forms:
        _form_ahead(forms)


@cache
def _kind_ahead(kind: str) -> None:
    product_ahead(kind)
    library_ahead(kind)  # both are measured


_form_ahead, _shared_ahead = cache(form_ahead), cache(shared_ahead)
_small_ahead, _thin_ahead = cache(small_ahead), cache(thin_ahead)


def _is_large(shape: ProductShape) -> bool:
    """Whether operands are packed once for all pieces."""
    return min(shape.m, shape.n) >= SHARED_SIDE and shape.m * shape.n * shape.k > SHARED_WORK


def amx_form(kind: str, source: DType, result: DType, other: DType | None = None) -> Form:
    """The form around matrix tiles.  They are six times as fast as register tiles: it is the only one, however few rows
    fill them."""
    instruction = "tdpbf16ps" if kind == "amx_bf16" else "tdpbssd" if source.is_signed else "tdpbusd"
    return Form(source, result, AmxTile(kind, instruction, held=True), other)


def amx_maker(
    kind: str, sizes: tuple[int, int, int], a_strides: tuple[int, int], b_strides: tuple[int, int], own: bool
) -> list[Launch]:
    """A product by matrix tiles (`own`), or without them."""
    source, result = (BFLOAT16, FLOAT32) if kind == "amx_bf16" else (INT8, INT32)
    forms = (amx_form(kind, source, result, source),) if own else host_forms(source, result, source)
    assert forms is not None
    return _shared(forms, ProductShape(*sizes, a_strides, b_strides))


def _product_forms(source: DType, result: DType, other: DType | None = None) -> tuple[Form, ...] | None:
    """`host_forms`, with matrix tiles where they work."""
    kind = {"bfloat16": "amx_bf16", "int8": "amx_i8", "uint8": "amx_i8"}.get(source.name)
    if kind is not None and (kind == "amx_bf16" or result is INT32) and amx_works(kind):
        return (amx_form(kind, source, result, other),)
    return host_forms(source, result, other)


def _fitting(forms: Sequence[Form], rows: int) -> Form:
    """The form of a large product: the lower tile, whose pieces are more even, unless it wastes more than one row in
    30.

    With operands in the caches both are as fast.
    """
    best = forms[0]
    for form in forms[1:]:
        computed, usual = (-(-rows // f.tile.rows) * f.tile.rows for f in (form, best))
        if computed * 30 <= usual * 31:
            best = form
    return best


def _filled(forms: Sequence[Form], rows: int) -> Sequence[Form]:
    """The forms, and for few rows one whose tiles they fill: 49 rows are 7 tiles of 7, where tiles of 8 or 14 take 56.

    A lower tile is as fast while its sums hide the latency of an addition.  It is one more kernel to compile, so this is
    for operands that stay packed.
    """
    form, tile = forms[0], forms[0].tile
    if not isinstance(tile, RegisterTile) or tile.rows < 2 * LEAST_HEIGHT or rows > FEW_TILES * tile.rows:
        return forms
    heights = {height: -(-rows // height) * height for height in range(tile.rows, LEAST_HEIGHT - 1, -1)}
    height = min(heights, key=heights.__getitem__)
    if heights[height] * 31 >= min(-(-rows // f.tile.rows) * f.tile.rows for f in forms) * 30:
        return forms
    return (Form(form.source, form.result, tile.sized(height, tile.vectors), form.other, form.conjugated), *forms)


def _even(n: int, about: int, step: int) -> int:
    """The size of pieces of n, about `about`: equal multiples of `step`."""
    pieces = max(1, round(n / about))
    return -(-n // (pieces * step)) * step


def _rectangle(m: int, n: int, k: int, form: Form) -> tuple[int, int]:
    """Rows and columns of C in one piece of a large product."""
    height, width = form.widths
    searched = pieces.known(form, (m, n, k))
    rows, columns = min(m, PIECE_ROWS), min(n, PIECE_COLUMNS)
    if searched is not None:
        rows, columns = min(m, searched[0]), min(n, searched[1])
        return _even(m, rows, height), min(_even(n, columns, width), -(-COLUMNS // form.tile.columns) * width)
    while -(-m // rows) * -(-n // columns) < PIECES and rows * columns * k >= 2 * PIECE_WORK:
        if columns >= 2 * max(rows, width):
            columns = -(-columns // 2)
        elif rows >= 2 * height:
            rows = -(-rows // 2)
        else:
            break
    return _even(m, rows, height), min(_even(n, columns, width), -(-COLUMNS // form.tile.columns) * width)


def _shared(forms: Sequence[Form], shape: ProductShape, fusion: Fusion = _UNFUSED) -> list[Launch]:
    """A large product: one kernel packs the operands, one multiplies."""
    before = list(fusion.prologues) or [None, None]
    # Whether rows of the prologue's rectangles run along k
    along = [step is not None and step.part.transposed == bool(side) for side, step in enumerate(before)]
    c_row, c_column = shape.strides[2]
    # C transposed = B transposed @ A transposed, where operands are of one dtype
    transposed = c_column != 1 and c_row == 1 and all(form.other is form.source for form in forms)
    if transposed:
        before, along, shape = before[::-1], along[::-1], shape.transposed
    (m, n, k), (a_strides, b_strides, c_strides) = shape.sizes, shape.strides
    form = _fitting(_filled(forms, m) if fusion.pinned >= 0 else forms, m)
    tile, (size, _) = form.tile, form.sizes
    tile_m, tile_n = _rectangle(m, n, k, form)
    tiles_m, tiles_n = -(-m // tile_m), -(-n // tile_n)
    depth = block_of_depth(k, form.depth * tile.group // form.pair, max(4, tile.group))
    # pieces of packing read rows of memory to their end, which runs along k or across it
    across = [
        not row if step is not None else stride != 1
        for row, step, stride in zip(along, before, (a_strides[1], b_strides[0]), strict=True)
    ]
    reach = [depth if wide else k for wide in across]
    packed_at_once = min(PACK_PIECE, (m + n) * k // PIECES)
    chunks = [
        min(-(-side // width) * width, max(1, packed_at_once // (width * length)) * width)
        for side, width, length in zip((m, n), form.widths, reach, strict=True)
    ]
    pieces_m, pieces_n = (
        -(-side // chunk) * -(-k // length) for side, chunk, length in zip((m, n), chunks, reach, strict=True)
    )
    side = fusion.pinned if fusion.pinned < 0 or not transposed else 1 - fusion.pinned
    constants = [m, n, k, *a_strides, *b_strides, *c_strides, 0, 0, 0, 0, tile_m, tile_n, tiles_m, tiles_n, 1, 1, 0, 0, 1,
             depth, pieces_m, *chunks, *reach, 0, 0, *map(int, along), 0, int(side > 0)]  # fmt: skip
    assert len(constants) == GEMM_CONSTANTS + PACK_CONSTANTS
    second = [tiles_m * tiles_n, 1, 1, m * n * form.result.itemsize, 0, 0, 0, 0, *constants]
    second = with_epilogue(second, fusion.sizes, fusion.epilogue)
    k_words = -(-form.pair * k // tile.group)
    columns = -(-form.pair * n // tile.columns) * tile.columns
    panels = columns * (k_words + -(-k // depth) * form.before) * size
    rows_packed = (-(-m // tile.rows) * tile.rows * k_words * size + 63) // 64 * 64
    packed = rows_packed + panels
    kept = (rows_packed, pieces_m) if side == 0 else (panels, pieces_n)
    pack, multiply = (_kernel(form, which) for which in (0, 1))
    first = [pieces_m + pieces_n, 1, 1, packed + (LEAD if side >= 0 else 0), 0, 0, 0, 0, *constants]
    pinned = PinnedWords(P_PINNED, *kept, side, packed_as(first)) if side >= 0 else None
    reads = None if pinned is None else pinned._replace(operand=-1)
    first = with_prologues(first, P_BEFORE, len(fusion.sizes) or 1, before)
    operands, rest = (1, 0) if transposed else (0, 1), range(2, 2 + fusion.more)
    packing = Launch(pack, first, (*operands, *rest) if any(fusion.prologues) else operands, 0, None, pinned)
    return [packing, Launch(multiply, second, (-1, -1, *rest), None, None, reads)]  # replaces both operands


def tuned(types: ProductTypes, shape: ProductShape) -> bool | None:
    """Search for the pieces of a large product; whether they are others than usual, None for other products."""
    forms = _forms(types, shape)
    if forms is None or not _is_large(shape) or any(size != 1 for size in shape.batch):
        return None
    (c_row, c_column), (m, n, k) = shape.strides[2], shape.sizes
    if c_column != 1 and c_row == 1:
        m, n = n, m
    operands = [
        runtime().alloc_zeroed(
            (1 + sum((size - 1) * step for size, step in zip(sizes, strides, strict=True))) * types.source.itemsize
        )
        for sizes, strides in zip(((shape.m, k), (k, shape.n)), shape.strides[:2], strict=True)
    ]

    def seconds_of() -> float:
        multiply, best, end = joined(_shared(forms, shape)), float("inf"), pieces.clock() + pieces.SECONDS
        multiply(*[x.ptr for x in operands])
        for turn in range(pieces.ROUNDS):
            began = pieces.clock()
            multiply(*[x.ptr for x in operands])
            now = pieces.clock()
            best = min(best, now - began)
            if now > end and turn:
                break
        return best

    return pieces.search(_fitting(forms, m), (m, n, k), seconds_of) is not None


def _kernel(form: Form, which: int) -> Callable[..., Any]:
    key = f"{('pack', 'multiply')[which]} {form.key}"
    if key not in _CALLS:
        _CALLS[key] = make_kernel_callable(shared_addresses(form)[which], f"gemm_{('pack', 'multiply')[which]}")
    return _CALLS[key]

"""Matrix products by the BLAS inside NumPy's wheel, located without importing NumPy.

>>> from rushlight._backends.cpu.gemm.blas import gemm_ints, gemm_kernel
>>> from rushlight._backends.cpu.gemm.product_spec import ProductShape
>>> ints = gemm_ints("f32", ProductShape(2, 3, 4))   # [2, 4] @ [4, 3], all contiguous
>>> k = gemm_kernel("f32")                           # k(ints, a, b) -> Storage of the result

They can also use our own kernels (`GEMM`), as they do where no BLAS is present; thin products are packed then, too, and
only tiny ones run on plain loops.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from struct import pack, unpack
from typing import Any

from rushlight._backends.cpu.gemm.blas_native import (
    BATCHES,
    KINDS,
    PLAIN,
    ROW_MAJOR,
    TRANSPOSED,
    make_driver,
    make_gemm,
)
from rushlight._backends.cpu.gemm.exact_products import LAYOUTS, PERIOD, exact_product
from rushlight._backends.cpu.gemm.gemm_form import Form
from rushlight._backends.cpu.gemm.gemm_native import make_tiled
from rushlight._backends.cpu.gemm.gemm_shared_native import make_shared
from rushlight._backends.cpu.gemm.product_spec import ProductShape
from rushlight._backends.cpu.gemm.small_native import make_small
from rushlight._backends.cpu.gemm.thin_native import make_thin
from rushlight._backends.cpu.launches import unlocks
from rushlight._backends.cpu.microkernels.kernel_text import KernelText
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile, register_tile
from rushlight._backends.cpu.microkernels.row_tile import RowTile
from rushlight._backends.cpu.microkernels.small_tile import SmallTile
from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._backends.cpu.runtime import stubs
from rushlight._backends.cpu.runtime.generated import compile_made, made_ahead
from rushlight._base.errors import warn_user
from rushlight._base.knobs import Knob
from rushlight._base.lazy import require
from rushlight._base.log import log
from rushlight._native import jit
from rushlight._native.compiled import compile_named, compile_native, native_ahead
from rushlight._native.function import NativeFunction
from rushlight._native.target import TargetDescription, host_target
from rushlight._native.types import f32, i32, i64
from rushlight._types.dtype import COMPLEX64, COMPLEX128, FLOAT32, FLOAT64, DType

__all__ = ["BLAS_LIBRARY", "GEMM", "Blas", "blas", "gemm_address", "gemm_ints", "gemm_kernel", "library_for"]

BLAS_LIBRARY: Knob[str] = Knob(
    "blas_library",
    env="RUSHLIGHT_BLAS_LIBRARY",
    kind=str,
    default="",
    doc="File of the BLAS library; `none` for plain loops; empty to look inside NumPy's wheel, then on the system.",
)

GEMM: Knob[str] = Knob(
    "gemm",
    env="RUSHLIGHT_GEMM",
    planned=True,
    kind=str,
    default="auto",
    doc="Who computes matrix products of float32, float64 and complex numbers, except small ones of real numbers, and those by a vector where sums lie side by side: `blas` (the library), `generated` (our own kernels), `auto`: for each class of "
    "products the one that was faster when it was first met, noted in the kernel cache and kept, or `fixed`: our own where vectors have 64 bytes, "
    "without measuring.",
)

# function names of a library: prefix, suffix, and whether its integers have 64 bits
_SPELLINGS = (("scipy_", "64_", True), ("", "64_", True), ("scipy_", "", False), ("", "", False))
TRIAL = (5, 2, 1)  # rows, columns and steps of the product that a library is tested with, in periods
_SYSTEM = {
    "linux": ("libopenblas.so.0", "libblis.so.4", "libcblas.so.3"),
    "darwin": ("/System/Library/Frameworks/Accelerate.framework/Accelerate",),
}


class Blas:
    """A BLAS library: `path` (None: plain loops), `wide` (64-bit integers), `symbols` (addresses under our names)."""

    __slots__ = ("_gate", "_library", "_right", "_spelling", "path", "symbols", "wide")

    def __init__(self, library: Any, path: str | None) -> None:
        self._library, self.path, self.wide = library, path, False
        self._spelling = ("", "")
        self._right: dict[str, bool] = {}
        self.symbols: dict[str, int] = {}
        for prefix, suffix, wide in _SPELLINGS if library is not None else ():
            if hasattr(library, f"{prefix}cblas_sgemm{suffix}"):
                self.wide, self._spelling = wide, (prefix, suffix)
                self._collect(prefix, suffix)
                break
        else:
            self.path = None

    def _collect(self, prefix: str, suffix: str) -> None:
        ctypes = require("ctypes")

        def add(ours: str, theirs: str) -> None:
            function = getattr(self._library, theirs, None)
            if function is not None:
                self.symbols[ours] = ctypes.cast(function, ctypes.c_void_p).value or 0

        for letter in "sdcz":
            for name in ("gemm", "gemv"):
                add(f"rl_cblas_{letter}{name}", f"{prefix}cblas_{letter}{name}{suffix}")
        for name in ("set", "get"):
            add(f"rl_blas_{name}_threads", f"{prefix}openblas_{name}_num_threads{suffix}")
        self._gate = (ctypes.c_int64 * 8)()
        self.symbols["rl_blas_gate"] = ctypes.addressof(self._gate)
        if hasattr(os, "register_at_fork"):  # another thread may have been inside when the process forked
            os.register_at_fork(after_in_child=lambda: ctypes.memset(self._gate, 0, ctypes.sizeof(self._gate)))

    def multiplies(self, kind: str) -> bool:
        """Whether the library multiplies small whole numbers of a kind correctly, tested once; warns where it does not.

        Libraries select kernels by the processor's own description, and one of them may be wrong on it, or under an
        emulator.
        """
        if kind not in self._right:
            self._right[kind] = all(self._multiplies(kind, layout) for layout in LAYOUTS)
            if not self._right[kind]:
                warn_user(
                    f"the BLAS library {self.path} gives wrong results for products of {kind} on this machine: they are computed without it, but "
                    "its factorisations (torch.linalg) may be wrong too; RUSHLIGHT_BLAS_LIBRARY names another library",
                    RuntimeWarning,
                )
        return self._right[kind]

    def _multiplies(self, kind: str, layout: str) -> bool:
        ctypes = require("ctypes")

        letter, real, width = KINDS[kind]
        a, b, product = exact_product(kind, layout, TRIAL)
        result = array(product.typecode, bytes(len(product) * product.itemsize))
        m, n, k = (PERIOD * periods for periods in TRIAL)
        parts = ctypes.c_float if real is f32 else ctypes.c_double
        one, zero = ((parts * 2)(1, 0), (parts * 2)(0, 0)) if width == 2 else (parts(1), parts(0))
        word, flag, at = ctypes.c_int64 if self.wide else ctypes.c_int32, ctypes.c_int, ctypes.c_void_p
        (a_transposed, a_step), (b_transposed, b_step) = [
            (flag(TRANSPOSED), word(rows)) if way == "t" else (flag(PLAIN), word(columns))
            for way, rows, columns in ((layout[0], m, k), (layout[1], k, n))
        ]
        gemm = ctypes.CFUNCTYPE(None)(self.symbols[f"rl_cblas_{letter}gemm"])
        x, y, z = (at(buffer.buffer_info()[0]) for buffer in (a, b, result))
        order, sizes = flag(ROW_MAJOR), (word(m), word(n), word(k))
        gemm(order, a_transposed, b_transposed, *sizes, one, x, a_step, y, b_step, zero, z, word(n))
        return result == product

    def routine(self, name: str) -> int:
        """The address of a Fortran routine (`dpotrf`).  RuntimeError if the library lacks it."""
        ctypes = require("ctypes")

        prefix, suffix = self._spelling
        function = None if self.path is None else getattr(self._library, f"{prefix}{name}_{suffix}", None)
        if function is None:
            raise RuntimeError(
                f"linear algebra needs LAPACK's {name}: {self.path or 'no BLAS library was found'} "
                "(RUSHLIGHT_BLAS_LIBRARY names another library)"
            )
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    @property
    def gated(self) -> bool:
        """Whether the library has threads of its own that must be limited while ours work."""
        return "rl_blas_set_threads" in self.symbols and "rl_blas_get_threads" in self.symbols


def _candidates() -> list[str]:
    """Paths that may be a BLAS: inside NumPy's wheel, beside it, on the system."""
    wanted = BLAS_LIBRARY.get()
    if wanted:
        return [] if wanted == "none" else [wanted]
    paths = []
    spec = find_spec("numpy")
    if spec is not None and spec.origin is not None:
        package = os.path.dirname(spec.origin)
        for directory in (package + ".libs", os.path.join(package, ".dylibs"), os.path.join(package, ".libs")):
            try:
                names = sorted(os.listdir(directory))
            except OSError:
                continue
            paths += [os.path.join(directory, n) for n in names if "openblas" in n]
    return paths + list(_SYSTEM.get(sys.platform, ()))


_BLAS: list[Blas] = []
_NONE = Blas(None, None)


def blas() -> Blas:
    """The BLAS in use, located once."""
    if not _BLAS:
        ctypes = require("ctypes")

        library = _NONE
        for path in _candidates():
            try:
                library = Blas(ctypes.CDLL(path), path)
            except OSError:
                if BLAS_LIBRARY.get():
                    raise
            if library.path is not None:
                break
        log("plan", f"BLAS: {library.path or 'plain loops'}")
        _BLAS.append(library)
    return _BLAS[0]


def library_for(kind: str) -> Blas:
    """The BLAS for products of a kind of `KINDS`; one without functions if it does not support the kind, or gave wrong
    results."""
    library = blas()
    return library if KINDS[kind][0] and library.path is not None and library.multiplies(kind) else _NONE


GEMM_CONSTANTS = BATCHES - 8  # words of a product's constants after the head, without batches
_LEAST = 1 << 16  # multiplications below which the library's small kernels are faster than packing
# Kinds that both the library and our own kernels support
_DTYPES = {"f32": FLOAT32, "f64": FLOAT64, "c64": COMPLEX64, "c128": COMPLEX128}
_LOADED: dict[str, jit.Loaded | jit.Image] = {}
_KERNELS: dict[str, Callable[..., Any]] = {}


def gemm_address(kind: str, generated: bool | None = None) -> int:
    """The address of the kernel `i32 (ptr bufs, ptr ints, i64 piece)` for a kind of `KINDS`; bufs are C, A, B.

    `generated` selects our own kernel or the library's; None follows `GEMM` and what is available.
    """
    library = library_for(kind)
    if kind in _DTYPES and (_prefers_own(library) if generated is None else generated):
        return tiled_address(kind, host_tiles(_TILE_KINDS[_DTYPES[kind].name]), library)
    if kind not in _LOADED:
        data = compile_native([_library_gemm(kind, library)], opt=_library_opt(library))
        # Not by assignment: another thread may have been faster, and a library in use must not be unloaded.
        _LOADED.setdefault(kind, jit.load(data, [f"rl_gemm_{kind}"], {**_runtime.runtime().symbols, **library.symbols}))
    return _LOADED[kind][f"rl_gemm_{kind}"]


def usually_own() -> bool:
    """Whether our own kernels are likely to be faster on this machine."""
    target = host_target()
    return target.vector_bytes == 64 or (target.vector_bytes == 32 and target.fma)


def prefers_own(kind: str) -> bool:
    """The choice between them without the table of `choice.py`."""
    return _prefers_own(library_for(kind))


def _prefers_own(library: Blas) -> bool:
    wanted = GEMM.get()
    if wanted not in ("auto", "fixed", "blas", "generated"):
        raise ValueError(f"RUSHLIGHT_GEMM must be auto, fixed, blas or generated, not {wanted!r}")
    if library.path is None:
        return True
    return usually_own() if wanted in ("auto", "fixed") else wanted == "generated"


def product_ahead(kind: str) -> None:
    """Let workers compile what `gemm_address` will be asked for, where our own kernel will be it."""
    library = library_for(kind)
    if _prefers_own(library):
        forms = _forms(kind, host_tiles(_TILE_KINDS[_DTYPES[kind].name]))
        native_ahead([_around(forms, kind, library)], opt="quick")
        parts_ahead(forms)


def _forms(kind: str, tiles: tuple[RegisterTile, ...]) -> tuple[Form, ...]:
    return with_narrow(tuple(Form(_DTYPES[kind], _DTYPES[kind], tile) for tile in tiles))


def least_packed(library: Blas) -> int:
    """Multiplications from which a product is worth packing; fewer go to the library, where there is one."""
    return _LEAST if library.path is not None else 0


def _around(forms: tuple[Form, ...], kind: str, library: Blas) -> NativeFunction:
    """The kernel around our own tiles, not compiled yet."""
    wide, least = i64 if library.wide else i32, least_packed(library)
    return make_gemm(kind, library.path is not None, wide, library.gated, lambda block: make_tiled(forms, block, least))


# Most multiplications of products that are computed where their operands lie (see `small_native`, bench/small_products.py).
SMALL_WORK = {"f32": _LEAST - 1, "f64": _LEAST - 1}


def small_tile(kind: str) -> SmallTile:
    """The blocks of small products on this machine."""
    tile = host_tiles(kind)[0]
    return SmallTile(kind, tile.lanes, tile.fma)


def small_address(kind: str, tile: SmallTile) -> int:
    """The address of the kernel of small products (see `small_native`)."""
    symbol = f"rl_small_{kind}"
    if f"small {tile.key}" not in _LOADED:
        data = compile_native([make_small(kind, KINDS[kind][1], tile)], opt="quick")
        imports = {**_runtime.runtime().symbols, **part_addresses(tile)}
        _LOADED.setdefault(f"small {tile.key}", jit.load(data, [symbol], imports))
    return _LOADED[f"small {tile.key}"][symbol]


def small_kernel(kind: str) -> Callable[..., Any]:
    """The callable of small products, as `gemm_kernel` with the constants of `small_ints`."""
    key = f"small {kind}"
    if key not in _KERNELS:
        _KERNELS[key] = stubs.make_kernel_callable(small_address(kind, small_tile(kind)), f"small_{kind}")
    return _KERNELS[key]


def small_ahead(kind: str) -> None:
    """Let workers compile what `small_kernel` will load."""
    tile = small_tile(kind)
    native_ahead([make_small(kind, KINDS[kind][1], tile)], opt="quick")
    part_ahead(tile)


def row_tile(kind: str) -> RowTile:
    """The kernel of a matrix times a vector on this machine."""
    tile = host_tiles(kind)[0]
    return RowTile(kind, tile.lanes, tile.fma)


def thin_address(kind: str) -> int:
    """The address of the kernel of products of a matrix and a vector (see `thin_native`)."""
    tile, symbol = row_tile(kind), f"rl_thin_{kind}"
    if symbol not in _LOADED:
        data = compile_native([make_thin(kind, KINDS[kind][1], tile)], opt="quick")
        _LOADED.setdefault(symbol, jit.load(data, [symbol], {**_runtime.runtime().symbols, **part_addresses(tile)}))
    return _LOADED[symbol][symbol]


def thin_kernel(kind: str) -> Callable[..., Any]:
    """The callable of products of a matrix and a vector, as `gemm_kernel`."""
    key = f"thin {kind}"
    if key not in _KERNELS:
        _KERNELS[key] = stubs.make_kernel_callable(thin_address(kind), f"thin_{kind}")
    return _KERNELS[key]


def thin_ahead(kind: str) -> None:
    """Let workers compile what `thin_kernel` will load."""
    tile = row_tile(kind)
    native_ahead([make_thin(kind, KINDS[kind][1], tile)], opt="quick")
    part_ahead(tile)


def tiled_address(kind: str, tiles: tuple[RegisterTile, ...], library: Blas) -> int:
    """The address of the same kernel around our own tiles; thin products still use the library where there is one."""
    forms = _forms(kind, tiles)
    key = " ".join(["gemm", kind, *(form.tile.key for form in forms), str(library.path)])
    symbol = f"rl_gemm_{kind}"
    if key not in _LOADED:
        parts_ahead(forms)
        name = f"{key} {library.wide} {library.gated} {least_packed(library)}"
        data = compile_named(name, lambda: [_around(forms, kind, library)], opt="quick")
        _LOADED.setdefault(key, jit.load(data, [symbol], {**_imports(forms), **library.symbols}))
    return _LOADED[key][symbol]


def _imports(forms: Iterable[Form]) -> dict[str, int]:
    """The addresses of everything that kernels around these forms call: runtime, tiles, packing, conversions."""
    addresses = dict(_runtime.runtime().symbols)
    for form in forms:
        for part in form.parts:
            addresses.update(part_addresses(part))
    return addresses


def parts_ahead(forms: Iterable[Form]) -> None:
    """Let workers compile the parts of forms that `_imports` will load."""
    for form in forms:
        for part in form.parts:
            part_ahead(part)


def part_ahead(part: KernelText) -> None:
    """Let a worker compile what `part_addresses` will load."""
    if part.key not in _LOADED:
        made_ahead(part.key, lambda: part.text, "quick")


def part_addresses(part: KernelText) -> dict[str, int]:
    """The addresses of the symbols of a tile, packing routines or a conversion; loaded once and kept.

    The text of parts is as it should be: LLVM's O1 gives the same instructions, in a third more time.
    """
    if part.key not in _LOADED:  # not by assignment: other kernels hold addresses of the loaded one
        _LOADED.setdefault(part.key, jit.load(compile_made(part.key, lambda: part.text, "quick"), part.symbols))
    loaded = _LOADED[part.key]
    return {name: loaded[name] for name in part.symbols}


def form_address(forms: tuple[Form, ...]) -> int:
    """The address of the kernel for products of these forms, which share source and result dtypes: our own code alone."""
    forms = with_narrow(forms)
    key = " ".join(["form", *(form.key for form in forms)])
    if key not in _LOADED:
        parts_ahead(forms)
        data = compile_named(key, lambda: [_driver(forms)], opt="quick")
        _LOADED.setdefault(key, jit.load(data, ["rl_gemm_form"], _imports(forms)))
    return _LOADED[key]["rl_gemm_form"]


def _driver(forms: tuple[Form, ...]) -> NativeFunction:
    """The kernel of `form_address`, not compiled yet."""
    first = forms[0]
    return make_driver("rl_gemm_form", first.source.itemsize, first.result.itemsize, make_tiled(forms), None)


def form_ahead(forms: tuple[Form, ...]) -> None:
    """Let workers compile what `form_address` will be asked for."""
    forms = with_narrow(forms)
    if " ".join(["form", *(form.key for form in forms)]) not in _LOADED:
        native_ahead([_driver(forms)], opt="quick")  # the largest of them
        parts_ahead(forms)


def shared_addresses(form: Form) -> tuple[int, int]:
    """The addresses of a large product's kernels: packing, multiplying (see `make_shared`)."""
    key = f"shared {form.key}"
    if key not in _LOADED:
        parts_ahead([form])
        data = compile_named(key, lambda: make_shared(form), opt="quick")
        _LOADED.setdefault(key, jit.load(data, ["rl_pack", "rl_multiply"], _imports([form])))
    return _LOADED[key]["rl_pack"], _LOADED[key]["rl_multiply"]


def shared_ahead(form: Form) -> None:
    """Let workers compile what `shared_addresses` will be asked for."""
    if f"shared {form.key}" not in _LOADED:
        parts_ahead([form])
        native_ahead(make_shared(form), opt="quick")


def library_ahead(kind: str) -> None:
    """Let a worker compile the library's kernel for a kind, as `gemm_address` will be asked for it."""
    if kind not in _LOADED:
        library = library_for(kind)
        native_ahead([_library_gemm(kind, library)], opt=_library_opt(library))


def _library_opt(library: Blas) -> str:
    """LLVM's passes take three times the rest of compiling it, and small products alone gain by them."""
    return "quick" if _prefers_own(library) else "native"


def _library_gemm(kind: str, library: Blas) -> NativeFunction:
    return make_gemm(kind, library.path is not None, i64 if library.wide else i32, library.gated)


def host_tiles(kind: str) -> tuple[RegisterTile, ...]:
    """The tiles for products on this machine: the largest, and one of 8 rows if that has more."""
    target = host_target()
    arm = target.arch == "aarch64"
    fma = arm or (target.fma and target.vector_bytes > 16)
    tile = register_tile(
        kind, target.vector_bytes, 32 if arm or target.vector_bytes == 64 else 16, fma, tile_instruction(kind, target)
    )
    return (tile, tile.sized(8, tile.vectors)) if tile.rows > 8 else (tile,)


def with_narrow(forms: tuple[Form, ...]) -> tuple[Form, ...]:
    """Forms, and one with a tile that is one vector wide, for results of few columns."""
    last, tile = forms[-1], forms[-1].tile
    if not isinstance(tile, RegisterTile) or tile.vectors == 1:
        return forms
    rows = 16 if tile.lanes * tile.panels.size == 64 or host_target().arch == "aarch64" else 8
    narrow = tile.sized(rows, 1)
    return (*forms, Form(last.source, last.result, narrow, last.other, last.conjugated))


def tile_instruction(kind: str, target: TargetDescription) -> str:
    """The instruction that multiplies the words of a tile (see `_backends/cpu/microkernels/register_tile.py`); empty
    for plain arithmetic."""
    if target.arch == "aarch64":
        return {"bf16": "bfdot" if target.has("bf16") else "", "i8": "sdot" if target.has("asimddp") else ""}.get(
            kind, ""
        )
    if target.arch != "x86_64":
        return ""
    if kind == "i16":
        return "vpmaddwd" if target.vector_bytes < 64 or target.has("avx512bw") else ""
    flag, name = {"bf16": ("avx512_bf16", "vdpbf16ps"), "i8": ("avx512_vnni", "vpdpbusd")}.get(kind, ("", ""))
    return name if flag and target.vector_bytes == 64 and target.has(flag) else ""


# the kind of tile that computes products of a dtype, where the dtype does not name one
_TILE_KINDS = {
    "float32": "f32", "float64": "f64", "complex64": "f32", "complex128": "f64", "bfloat16": "bf16", "float16": "f32",
    "int8": "i16", "uint8": "i16", "int16": "i16", "int32": "i32", "int64": "i64",
}  # fmt: skip


def host_forms(
    source: DType, result: DType, other: DType | None = None, conjugated: tuple[bool, bool] = (False, False)
) -> tuple[Form, ...] | None:
    """The forms of products of `source` and `other` with results of `result` by our own kernels; None where there are
    none."""
    kind = _TILE_KINDS.get(source.name)
    if other is not None and other is not source or source.itemsize == 1 and result.itemsize == 4:
        fits = tile_instruction("i8", host_target())
        kind = "i8" if fits == "vpdpbusd" or fits == "sdot" and source is other else "i16"
    elif kind is None or result not in (source, source.wide):
        return None
    return tuple(Form(source, result, tile, other, conjugated) for tile in host_tiles(kind))


def gemm_kernel(kind: str, generated: bool | None = None) -> Callable[..., Any]:
    """The callable `k(ints, a, b)` that allocates C, or `k(ints, c, a, b)` with `allocate=False` in `gemm_ints`."""
    key = f"{kind} {GEMM.get() if generated is None else generated}"
    if key not in _KERNELS:
        _KERNELS[key] = stubs.make_kernel_callable(gemm_address(kind, generated), f"gemm_{kind}")
    return _KERNELS[key]


# Multiplications in one piece of a large product: below that, packing operands for each piece costs too much
_GRAIN = 1 << 25
_SMALL_GRAIN = 1 << 22  # least multiplications worth a thread
_LEAST_GRAIN = 3 << 17  # the same for a single product
# The same for small matrices in a batch; with less, the next kernel waits for the other core longer than it gains
_BATCH_GRAIN = 1 << 18
_TILE = 512
_MOST_PIECES = 256


def gemm_ints(
    kind: str,
    shape: ProductShape,
    *,
    alpha: complex = 1.0,
    beta: complex = 0.0,
    allocate: bool = True,
    itemsize: int = 0,
    at_once: int = 1,
) -> list[int]:
    """The constants of a product `C = alpha * A @ B + beta * C`.

    With `allocate` the callable allocates C (contiguous, beta 0) and returns it; `itemsize`: bytes of its elements if
    they are not of `kind`.  One instruction multiplies `at_once` neighbours along k.
    """
    _, real, width = KINDS[kind]
    (m, n, k), (a_strides, b_strides, c_strides) = shape.sizes, shape.strides
    total = 1
    for size in shape.batch:
        total *= size
    dims = _batches(shape)
    tile_m, tile_n, chunk = _split(m, n, -(-k // at_once), total, 4 if width == 2 else 1)
    tiles_m, tiles_n = -(-m // tile_m), -(-n // tile_n)
    pieces = tiles_m * tiles_n * -(-total // chunk) if m and n and total else 0
    work = m * n * max(k, 1) * total
    outputs = [total * m * n * (itemsize or real.itemsize * width)] if allocate else []
    read = total * (m + n) * k * real.itemsize * width // at_once
    head = [pieces, int(unlocks(work, read)), len(outputs), *outputs]
    constants = [m, n, k, *a_strides, *b_strides, *c_strides, *_scalar(alpha), *_scalar(beta),
                 tile_m, tile_n, tiles_m, tiles_n, chunk, total, len(dims), 0, 1]  # fmt: skip
    return head + [0] * (8 - len(head)) + constants + [w for row in dims for w in row]


def _scalar(value: complex) -> list[int]:
    return list(unpack("<2q", pack("<2d", value.real, value.imag)))


def _batches(shape: ProductShape) -> list[list[int]]:
    """Rows (size, strides of A, B, C); dims that are contiguous in all three are merged."""
    (m, n, k), batch, strides = shape.sizes, shape.batch, []
    for steps_of_batch, size in zip((shape.a_batch, shape.b_batch, shape.c_batch), (m * k, k * n, m * n), strict=True):
        dense, step = [], size
        for extent in reversed(batch):
            dense.append(step)
            step *= extent
        strides.append(list(steps_of_batch) if steps_of_batch is not None else dense[::-1])
    rows: list[list[int]] = []
    for size, *steps in zip(batch, *strides, strict=True):
        if size == 1:
            continue
        if rows and all(outer == inner * size for outer, inner in zip(rows[-1][1:], steps, strict=True)):
            rows[-1] = [rows[-1][0] * size, *steps]
        else:
            rows.append([size, *steps])
    return rows


def _split(m: int, n: int, k: int, total: int, weight: int = 1) -> tuple[int, int, int]:
    """Rows and columns of C, and batches, in one piece; depends on the sizes alone.  A multiplication counts as
    `weight` real ones."""
    m, n, k, total = max(m, 1), max(n, 1), max(k, 1) * weight, max(total, 1)
    work = m * n * k
    small = _LEAST_GRAIN if total == 1 and work < 2 * _SMALL_GRAIN else _SMALL_GRAIN
    if work < 2 * small or n == 1 or m == 1:
        if n == 1 or m == 1:  # bound by memory: a few long stripes
            stripes = max(1, min(32, work >> 18))
            return (-(-m // stripes) + 15 & ~15, n, 1) if n == 1 else (m, -(-n // stripes) + 15 & ~15, 1)
        wanted = max(1, min(total * work // _BATCH_GRAIN, _MOST_PIECES, total))
        return m, n, -(-total // wanted)
    tile_m, tile_n = min(m, _TILE), min(n, _TILE)
    grain = max(small, min(_GRAIN, work // 8))
    while tile_m * tile_n * k > grain and max(tile_m, tile_n) > 96:
        if tile_m >= tile_n:
            tile_m = -(-tile_m // 2) + 31 & ~31
        else:
            tile_n = -(-tile_n // 2) + 31 & ~31
    while -(-m // tile_m) * -(-n // tile_n) > _MOST_PIECES:
        tile_m, tile_n = 2 * tile_m, 2 * tile_n
    return tile_m, tile_n, 1

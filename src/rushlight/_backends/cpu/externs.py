"""Library calls of programs: which kernels compute each heavy primitive."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cpu.attention.attention import attention_call, attention_grad_call
from rushlight._backends.cpu.conv.conv import conv_call
from rushlight._backends.cpu.conv.direct import direct_call, takes_direct
from rushlight._backends.cpu.conv.winograd import winograd_call
from rushlight._backends.cpu.fft.fourier import fourier_call, fourier_note
from rushlight._backends.cpu.gemm.byte_products import byte_product_call
from rushlight._backends.cpu.gemm.product_choice import may_stay_packed, product_call, product_note
from rushlight._backends.cpu.gemm.product_choice import tuned as search_pieces
from rushlight._backends.cpu.gemm.product_spec import Fusion, ProductShape, ProductTypes
from rushlight._backends.cpu.image.resample import resample_back_call, resample_call
from rushlight._backends.cpu.image.unpool import unpool_call
from rushlight._backends.cpu.image.weighted_gather import weighted_gather_call
from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.linalg.lapack import LAPACK, permutation_call
from rushlight._backends.cpu.linalg.small_factors import factor_call
from rushlight._backends.cpu.program.branches import conditional_call, loop_call
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.recurrent.recurrent import recurrence_call
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable, native_address
from rushlight._backends.cpu.sort.long_kth_native import WORK_BYTES, make_long_kth
from rushlight._backends.cpu.sort.long_sort_native import LONG, MOST_ROWS, make_long_sort, work_bytes
from rushlight._backends.cpu.sort.sort_native import SORTS, make_sort
from rushlight._backends.cpu.sort.topk_native import HOARE, ORDER, make_kth, make_topk
from rushlight._base.lazy import LazyModule
from rushlight._prims.record import EFFECTS

collectives: Any = LazyModule("rushlight._backends.cpu.program.collectives")  # with process groups

__all__ = ["extern_call", "extern_note", "may_pin", "tuned"]


def extern_call(step: ExternStep) -> list[Launch]:
    """The kernels of a step, whose words are its operands and then `step.words`.

    NotImplementedError names a primitive that has no routine here.
    """
    maker = _EXTERNS.get(step.name)
    if maker is None and step.name in EFFECTS and EFFECTS[step.name].family == "collective":
        maker = collectives.collective_call
    if maker is None:
        raise NotImplementedError(f"primitive {step.name!r} has no routine on the CPU")
    return maker(step)


def _dot(step: ExternStep) -> list[Launch]:
    types, shape = _product_of(step)
    pinned = step.params.get("pinned", -1)
    return product_call(types, shape, Fusion(step.sizes, step.epilogue, step.prologues, len(step.words), pinned))


def may_pin(step: ExternStep, side: int, order: bool) -> bool:
    """Whether an operand of a step may stay packed from call to call, the first (`side` 0) or the second; with `order`
    the results keep their bits.
    """
    if step.name == "conv_windows":
        return side == 1 and any(launch.pinned for launch in _conv(step.pinned(side)))
    if step.name != "dot" or any(step.prologues):
        return False
    return may_stay_packed(*_product_of(step), side, order)


def _product_of(step: ExternStep) -> tuple[ProductTypes, ProductShape]:
    """The dtypes and the shape of a `dot`."""
    (a, b), out = step.inputs, step.outputs[0]
    *batch, m, k = a.shape
    other = b.dtype if _into_int32(step) else None
    strides: Any = [x.strides[-2:] for x in (a, b, out)]
    batches = [x.strides[:-2] for x in (a, b, out)]
    types = ProductTypes(a.dtype, out.dtype, other, step.params.get("conjugated", (False, False)))
    return types, ProductShape(m, b.shape[-1], k, *strides, batch, *batches)  # type: ignore[call-arg]


def tuned(step: ExternStep) -> bool | None:
    """Search for the pieces of a large product (see `gemm.pieces`); None for other steps."""
    if step.name != "dot" or step.outputs[0].dtype.kind == "c":
        return None
    types, shape = _product_of(step)
    if not all(stride >= 0 for pair in shape.strides for stride in pair):
        return None
    return search_pieces(types, shape)


def _into_int32(step: ExternStep) -> bool:
    """Whether a product multiplies bytes and sums them in int32."""
    return step.outputs[0].dtype.is_integer and step.outputs[0].dtype is not step.inputs[0].dtype


def extern_note(step: ExternStep) -> str:
    """A note on how a step is computed, or an empty text."""
    if step.name in ("fft", "rfft", "irfft"):
        return fourier_note(step)
    if step.name != "dot":
        return ""
    return product_note(*_product_of(step))


_PIECE = 1 << 14  # elements that are worth another thread
_ROWS: dict[str, Callable[..., Any]] = {}


_LONG: dict[Any, tuple[Callable[[str], Any], Callable[[int, str], int]]] = {
    make_sort: (make_long_sort, work_bytes),
    make_kth: (make_long_kth, lambda n, name: WORK_BYTES),
}


def _rows(step: ExternStep, maker: Callable[[str], Any], descending: bool, *more: int) -> list[Launch]:
    """A kernel over the rows of its operand, whose results are values and indices."""
    x = step.inputs[0]
    name = x.dtype.name
    if name not in SORTS:
        raise NotImplementedError(f"primitive {step.name!r} has no routine for {name}")
    n = x.shape[-1]
    if n >= 1 << 32:
        raise NotImplementedError(f"primitive {step.name!r} takes rows of less than 2**32 elements")
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    if maker in _LONG and n >= LONG and rows <= MOST_ROWS:
        long, work = _LONG[maker]
        ints = [1, 1, 3, *step.sizes, work(n, name), 0, 0, rows, n, int(descending), 0, *more]
        return [Launch(_row_kernel(long, name), ints, (0,), 2)]
    chunk = max(1, min(rows, _PIECE // max(n, 1)))
    ints = [-(-rows // chunk), int(rows * n > 1 << 14), 2, *step.sizes, 0, 0, 0, rows, n, int(descending), chunk, *more]
    return [Launch(_row_kernel(maker, name), ints, (0,))]


def _row_kernel(maker: Callable[[str], Any], name: str) -> Callable[..., Any]:
    key = f"{maker.__name__[5:]} {name}"
    if key not in _ROWS:
        _ROWS[key] = make_kernel_callable(native_address(maker(name)), key.replace(" ", "_"))
    return _ROWS[key]


def _sort(step: ExternStep) -> list[Launch]:
    return _rows(step, make_sort, step.params["descending"])


def _topk(step: ExternStep) -> list[Launch]:
    return _rows(step, make_topk, step.params["largest"], step.params["k"], int(step.params["sorted"]))


def _kth(step: ExternStep) -> list[Launch]:
    return _rows(step, make_kth, False, step.params["rank"], {"order": ORDER, "hoare": HOARE}[step.params["ties"]])


def _conv(step: ExternStep) -> list[Launch]:
    return direct_call(step) if takes_direct(step) else winograd_call(step) or conv_call(step)


def _allocate(step: ExternStep) -> list[Launch]:
    """Allocation of memory alone."""
    alloc, sizes = runtime().alloc, step.sizes

    def run(ints: int) -> Any:
        return alloc(sizes[0]) if len(sizes) == 1 else tuple(alloc(n) for n in sizes)

    return [Launch(run, None, ())]


_EXTERNS: dict[str, Callable[[ExternStep], list[Launch]]] = {
    "dot": _dot, "sort": _sort, "topk": _topk, "kth": _kth, "allocate": _allocate, "permutation": permutation_call,
    "conv_windows": _conv, "window_dot": byte_product_call, "unpool": unpool_call,
    **dict.fromkeys(LAPACK, factor_call), "resample": resample_call, "resample_back": resample_back_call,
    "attention": attention_call, "attention_grad": attention_grad_call,
    **dict.fromkeys(("weighted_gather", "weighted_scatter", "gather_weights"), weighted_gather_call),
    "conditional": conditional_call, "loop": loop_call,
    **dict.fromkeys(("fft", "rfft", "irfft"), fourier_call), **dict.fromkeys(("recurrence", "recurrence_grad"), recurrence_call),
}  # fmt: skip

"""`conv_windows` on CUDA devices: as a product, or directly where groups have few channels."""

from __future__ import annotations

from rushlight._backends.cpu.conv.prepare import fits_routine
from rushlight._backends.cuda.arguments import dense_operand
from rushlight._backends.cuda.conv.direct import direct_launch
from rushlight._backends.cuda.conv.library import chosen
from rushlight._backends.cuda.conv.rows import Geometry, images_are_inner
from rushlight._backends.cuda.conv.warpgroups import group_tiles
from rushlight._backends.cuda.conv.windows import WindowsKernel, as_product, in_order, store_positions, with_bias
from rushlight._backends.cuda.externs import ExternCall, extern
from rushlight._backends.cuda.gemm.precision import float32_precision
from rushlight._backends.cuda.gemm.product import Epilogue, store_result
from rushlight._backends.cuda.gemm.schedules import tile_of
from rushlight._backends.cuda.gemm.splits import sum_of_parts
from rushlight._backends.cuda.gemm.tiles import TileShape, count_splits
from rushlight._backends.cuda.program.steps import Step
from rushlight._schedule.library import CallForm
from rushlight._types.layout import numel

__all__ = ["convolution_by_any", "convolution_steps"]

_FEW = 8  # results of a group, for fewer of which a tile of a product is mostly empty
_SHORT = 256  # sums that one element of the direct kernel may have


@extern("conv_windows", takes=fits_routine, form=CallForm(strided=True, strided_results=True, keeps_layout=True))
def conv_windows(call: ExternCall) -> list[Step]:
    return convolution_by_any(call)


def convolution_by_any(call: ExternCall, epilogue: Epilogue | None = None) -> list[Step]:
    """The steps of a call, by us or by the library."""
    ours = convolution_steps(call, epilogue=epilogue)
    if not ours:
        return ours
    out, bias = call.outputs[0], call.inputs[2] if len(call.inputs) > 2 else None
    behind = None if epilogue is None else with_bias(epilogue, bias)
    if epilogue is None and bias is not None:
        behind = store_positions(out, bias, tuple(call.params["size"]), False)
    return chosen(call, ours, convolution_steps, behind)


def convolution_steps(
    call: ExternCall, *, epilogue: Epilogue | None = None, tile: TileShape | None = None, splits: int | None = None
) -> list[Step]:
    """The steps of a call.  An epilogue takes the place of the store: it gets the group as the place's batch, positions
    of all images as rows, channels of the result as columns.  A bias is added before.
    """
    x, w, *more = call.inputs
    out, p = call.outputs[0], call.params
    if not numel(out.shape):
        return []
    stride, spread, dilation, lo, size = (tuple(p[name]) for name in ("stride", "spread", "dilation", "lo", "size"))
    geometry = Geometry(w.shape[3:], stride, spread, dilation, lo, size, p["flip"])
    bias, sums = more[0] if more else None, out.dtype.wide
    inner = w.shape[2] * geometry.taps
    if tile is None and w.shape[1] < _FEW and inner <= _SHORT:
        return [direct_launch(x, w, bias, out, geometry, sums, epilogue)]
    precision = float32_precision("conv")
    tiles = group_tiles(x, w, geometry, sums, precision)
    if tiles is not None:
        tile = tile or tiles.tile(x.shape[0] * geometry.positions)
        tiles = tiles if tile is not None and tiles.takes(tile) else None
    product = as_product(x, w, out, geometry, tiles.inner if tiles else inner, sums, precision)
    groups, rows, outs = product.out.shape
    tile = tile or tile_of(x.dtype, sums, groups, rows, outs, product.depth)
    splits = splits or count_splits(tile, groups, rows, outs, product.depth)
    turned = images_are_inner(x)
    if epilogue is None:
        store = store_positions(out, bias, geometry.size, turned)
    else:
        store = in_order(with_bias(epilogue, bias), out, geometry.size, turned)
    if splits == 1:
        return [WindowsKernel(x, w, product, geometry, tile, 1, store, tiles).launch()]
    shape = (splits, groups, rows, outs)
    parts = dense_operand(call.scratch(numel(shape) * sums.itemsize, "parts"), sums, shape)
    first = WindowsKernel(x, w, product, geometry, tile, splits, store_result(parts), tiles).launch()
    return [first, sum_of_parts(parts, sums, splits, shape[1:], store)]

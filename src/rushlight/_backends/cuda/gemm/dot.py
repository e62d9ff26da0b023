"""`dot` on CUDA devices: which kernels compute a product of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._backends.cuda.arguments import as_reals, dense_operand, merged
from rushlight._backends.cuda.externs import ExternCall, extern
from rushlight._backends.cuda.gemm.choice import chosen, chosen_with_epilogue
from rushlight._backends.cuda.gemm.joined import join_batch
from rushlight._backends.cuda.gemm.precision import float32_precision
from rushlight._backends.cuda.gemm.product import Epilogue, Product, Prologue, product_launch, store_result
from rushlight._backends.cuda.gemm.schedules import SCHEDULE, shared_out, tile_of
from rushlight._backends.cuda.gemm.splits import sum_of_parts
from rushlight._backends.cuda.gemm.stretches import product_in_stretches
from rushlight._backends.cuda.gemm.tiles import TileShape, choose_tile_in_stretches, count_splits
from rushlight._backends.cuda.gemm.vector import vector_launch
from rushlight._backends.cuda.gemm.warpgroups import choose_group_tile, wants_groups
from rushlight._backends.cuda.program.steps import Operand, Step
from rushlight._schedule.library import CallForm
from rushlight._types.dtype import DType
from rushlight._types.layout import numel

__all__ = ["product_steps", "product_with_epilogue"]


@extern("dot", form=CallForm(strided=True, strided_results=True))
def dot(call: ExternCall) -> list[Step]:
    a, b = call.inputs
    a, b, out = merged(2, a, b, call.outputs[0])
    ours = product_steps(call, a, b, out)
    return chosen(call, a, b, out, out.dtype.wide.name, ours) if ours else []


def product_steps(
    call: ExternCall,
    a: Operand,
    b: Operand,
    out: Operand,
    *,
    epilogue: Epilogue | None = None,
    prologues: Sequence[Prologue | None] = (None, None),
    tile: TileShape | None = None,
    splits: int | None = None,
    precision: str | None = None,
) -> list[Step]:
    """The steps of out = a b, for a [*B, M, K] and b [*B, K, N].

    An epilogue takes the place of the store into `out`, and sees all dims of the batch; without one they are merged.
    Complex products take neither epilogues nor prologues.
    """
    dtype = out.dtype
    sums = _sums(a, out)
    if epilogue is None:
        a, b, out = merged(2, a, b, out)
    *batch, rows, columns = out.shape
    depth = a.shape[-1]
    if not numel(out.shape):
        return []
    plain = all(p is None for p in prologues)
    if plain and not dtype.is_complex and 1 in (rows, columns) and tile is None:
        return [_vector(a, b, out, sums, epilogue)]
    precision = precision or float32_precision()
    in_stretches = SCHEDULE.get() == "stretches" and plain and not dtype.is_complex and tile is None and splits is None
    if plain and not dtype.is_complex and tile is None and splits is None and not in_stretches:
        joined = join_batch(a, b, out, epilogue or store_result(out))
        if joined is not None and _is_whole(a, sums, numel(tuple(batch)), rows, columns):
            options: Any = {"epilogue": joined.store, "splits": 1, "precision": precision}
            return product_steps(call, joined.a, joined.b, joined.out, **options)
    sizes = (numel(tuple(batch)), rows, columns, depth)
    chosen_here = tile is None
    if tile is None and plain and wants_groups(a, b, sums, precision):
        tile = choose_group_tile(a, *sizes, shared_out=in_stretches)
    if in_stretches:
        tile = tile or choose_tile_in_stretches(a.dtype, sums, *sizes)
        workspace = lambda nbytes: call.scratch(nbytes, "parts")
        return product_in_stretches(Product(a, b, out, sums, precision), tile, epilogue or store_result(out), workspace)
    tile = tile or tile_of(a.dtype, sums, *sizes)
    splits = splits or count_splits(tile, *sizes)
    store = epilogue or store_result(_parts_first(out) if dtype.is_complex else out)
    product = Product(a, b, out, sums, precision)
    if splits == 1:
        if chosen_here and plain and not dtype.is_complex:
            tile = shared_out(product, tile)
        return [product_launch(product, tile, 1, store, prologues)]
    return _in_parts(call, product, tile, splits, store, prologues)


def product_with_epilogue(call: ExternCall, epilogue: Epilogue) -> list[Step]:
    """The steps of a product whose result an epilogue takes, by us or by the library."""
    (a, b), (out,) = call.inputs, call.outputs
    ours, sums = product_steps(call, a, b, out, epilogue=epilogue), _sums(a, out)
    if not ours or sums.is_complex or 1 in out.shape[-2:]:
        return ours
    alone = lambda to: product_steps(call, a, b, to)
    return chosen_with_epilogue(call, a, b, out.shape, sums, epilogue, ours, alone)


def _sums(a: Operand, out: Operand) -> DType:
    """The dtype in which products are added up."""
    if out.dtype.is_complex:
        return out.dtype
    return a.dtype.wide if out.dtype.wide is a.dtype.wide else out.dtype.wide


def _is_whole(a: Operand, sums: DType, batch: int, rows: int, columns: int) -> bool:
    """Whether the inner dim would not be cut: how it is follows from sizes, not from strides."""
    depth = a.shape[-1]
    return count_splits(tile_of(a.dtype, sums, batch, rows, columns, depth), batch, rows, columns, depth) == 1


def _in_parts(
    call: ExternCall,
    product: Product,
    tile: TileShape,
    splits: int,
    store: Epilogue,
    prologues: Sequence[Prologue | None],
) -> list[Step]:
    """Parts of the inner dim apart, then their sum."""
    out, real = product.out, product.sums.to_real()
    lead = (2,) if product.sums.is_complex else ()
    shape = (*lead, splits, *out.shape) if lead else (splits, *out.shape)
    parts = dense_operand(call.scratch(numel(shape) * real.itemsize, "parts"), real, shape)
    steps: list[Step] = [product_launch(product, tile, splits, store_result(parts), prologues)]
    if not lead:
        return [*steps, sum_of_parts(parts.memory, real, splits, out.shape, store)]
    return [*steps, *_complex_sums(parts, splits, out)]


def _complex_sums(parts: Operand, splits: int, out: Operand) -> list[Step]:
    """Real and imaginary parts each by themselves."""
    reals, steps = as_reals(out), []
    each = splits * numel(out.shape)
    for part in range(2):
        target = Operand(reals.memory, reals.dtype, out.shape, reals.strides[:-1], reals.offset + part)
        source = Operand(parts.memory, parts.dtype, parts.shape[1:], parts.strides[1:], parts.offset + part * each)
        steps.append(sum_of_parts(source, parts.dtype, splits, out.shape, store_result(target)))
    return list(steps)


def _parts_first(out: Operand) -> Operand:
    """A complex result as real parts [2, ...]."""
    x = as_reals(out)
    return Operand(x.memory, x.dtype, (2, *x.shape[:-1]), (1, *x.strides[:-1]), x.offset)


def _vector(a: Operand, b: Operand, out: Operand, sums: object, epilogue: Epilogue | None) -> Step:
    row = out.shape[-2] == 1
    vector, matrix = (a, b) if row else (b, a)
    along = (*vector.strides[:-2], vector.strides[-1] if row else vector.strides[-2])
    shape = (*vector.shape[:-2], a.shape[-1])
    vector = Operand(vector.memory, vector.dtype, shape, along, vector.offset)
    if row:  # the rows of a matrix [K, N] are its columns
        order = (*range(len(matrix.shape) - 2), -1, -2)
        turned = [tuple(of[d] for d in order) for of in (matrix.shape, matrix.strides)]
        matrix = Operand(matrix.memory, matrix.dtype, turned[0], turned[1], matrix.offset)
    return vector_launch(matrix, vector, out.dtype.wide if sums is None else sums, row, epilogue or store_result(out))  # type: ignore[arg-type]

"""How the tiles of a product are shared out: a program for each, or so many programs as a card runs at once, which walk from tile
to tile in a fixed order.

A tile has the same bits whoever makes it, so whatever a card was measured to do fastest is taken.  It is measured once for a product
and a device, and kept on disk; emulated devices never ask.

Few large tiles with the inner dim in more parts are other sums, and so are turns that are shared out evenly, so that both are taken where
they are asked for, never by measurement.
"""

from __future__ import annotations

from typing import Any

from rushlight._backends.cuda.gemm.choice import COMPARED, SMALL, Trial
from rushlight._backends.cuda.gemm.product import Product, product_launch, store_result
from rushlight._backends.cuda.gemm.tiles import TileShape, choose_tile, choose_tile_in_parts
from rushlight._backends.cuda.libraries.provider import measured_once
from rushlight._backends.registry import backends_in_use
from rushlight._base.knobs import Knob, one_of
from rushlight._types.device import Device
from rushlight._types.dtype import DType
from rushlight._types.layout import numel

__all__ = ["SCHEDULE", "shared_out", "tile_of"]


SCHEDULE: Knob[str] = Knob(
    "cuda_schedule", env="RUSHLIGHT_CUDA_SCHEDULE", kind=one_of("auto", "apart", "walk", "parts", "stretches"), default="auto", planned=True,
    doc="How tiles of our products are shared out: a program for each (`apart`), one for each multiprocessor that walks from tile to tile "
    "(`walk`), or `auto`: whatever was measured to be faster, kept in the cache. The bits are the same. `parts`: large tiles, with the "
    "inner dim in more parts, which are added up in order. `stretches`: turns of all tiles are shared out evenly among 132 programs.",
)  # fmt: skip

_MULTIPROCESSORS = 132  # where no device tells


def tile_of(a: DType, sums: DType, batch: int, rows: int, columns: int, depth: int) -> TileShape:
    """The tile of a product of such sizes."""
    if SCHEDULE.get() == "parts":
        return choose_tile_in_parts(a, sums, batch, rows, columns, depth)
    return choose_tile(a, sums, batch, rows, columns)


def shared_out(product: Product, tile: TileShape) -> TileShape:
    """The tile with the way in which programs share the tiles of a product out."""
    way, backend = SCHEDULE.get(), _backend()
    operands = a, b, out = product.a, product.b, product.out
    *batch, rows, columns = out.shape
    programs = numel(tuple(batch)) * -(-rows // tile.rows) * -(-columns // tile.columns)
    if way in ("apart", "parts", "stretches") or (way == "auto" and (backend is None or backend.driver.emulated)):
        return tile
    device = Device("cuda", 0 if backend is None else backend.current_device())
    properties = backend.properties(device) if backend is not None else {}
    at_once = int(properties.get("multi_processor_count", _MULTIPROCESSORS))
    walking = [tile._replace(walks=at_once * each) for each in (1, 2) if at_once * each < programs]
    if not walking or way == "walk":
        return walking[0] if walking else tile
    if numel(out.shape) * product.depth < SMALL or any(x.dtype.name not in COMPARED for x in (a, b, out)):
        return tile
    ways = [tile, *walking]
    shapes = [f"{x.dtype.name}{x.shape}{x.strides}" for x in operands]

    def measure(device: Device) -> bytes:
        steps = [[product_launch(product, t, 1, store_result(out))] for t in ways]
        return str(Trial(backend, device, operands).fastest(steps)).encode()

    found = measured_once(backend, "cuda schedule", [repr(ways), *shapes], measure)
    return tile if found is None else ways[int(found)]


def _backend() -> Any:
    """That of GPUs, if a program uses them: a package may be made without."""
    return next((b for b in backends_in_use() if b.type == "cuda"), None)

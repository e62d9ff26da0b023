"""Products whose turns are shared out evenly: whole tiles, parts of tiles, and their sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.threads.twins import compare

import rushlight
from rushlight._backends.cuda.arguments import dense_operand
from rushlight._backends.cuda.gemm import tiles
from rushlight._backends.cuda.gemm.product import Product, store_result
from rushlight._backends.cuda.gemm.schedules import SCHEDULE
from rushlight._backends.cuda.gemm.stretches import product_in_stretches
from rushlight._backends.cuda.gemm.tiles import TileShape, choose_tile_in_stretches, count_stretches
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand
from rushlight._codegen.threads import lower
from rushlight._types.dtype import BFLOAT16, FLOAT16, FLOAT32

TILES = {"mma": TileShape(64, 64, 32, 4, 3), "wgmma": TileShape(64, 64, 64, 4, 2)}


def run(way: str, batch: int = 2, m: int = 136, n: int = 72, k: int = 200) -> tuple[list[str], list[Any], Any]:
    """Kernels by name, arrays a and b and the result."""
    shapes = (batch, m, k), (batch, k, n), (batch, m, n)
    a, b = (dense_operand(Memory(2 * int(np.prod(s))), FLOAT16, s) for s in shapes[:2])
    made = Product(a, b, dense_operand(Memory(4 * int(np.prod(shapes[2]))), FLOAT32, shapes[2]), FLOAT32)
    random = np.random.default_rng(0)
    arrays: dict[Memory, Any] = {x.memory: random.standard_normal(x.shape).astype(np.float16) for x in (a, b)}
    arrays[made.out.memory] = np.full(shapes[2], np.nan, np.float32)

    def workspace(nbytes: int) -> Memory:
        memory = Memory(nbytes)
        arrays[memory] = np.full(nbytes // 4, np.nan, np.float32)
        return memory

    with PRODUCTS.scoped(way):
        steps = product_in_stretches(made, TILES[way], store_result(made.out), workspace)
    names = []
    for step in steps:
        assert isinstance(step, Launch)
        names.append(step.kernel.name)
        given = [
            arrays[x.memory if isinstance(x, Operand) else x] if isinstance(x, (Operand, Memory)) else x
            for x in step.arguments
        ]
        places = [x for x in given if isinstance(x, np.ndarray)]
        for mine, found in zip(places, compare(step.kernel, step.grid, given, rtol=1e-4, atol=1e-4), strict=True):
            mine[...] = found
        if way == "wgmma" and "sums" not in step.kernel.name:
            assert "wgmma" in {i.kind for i in lower(step.kernel, "sm_90a").body.walk()}
    return names, [arrays[x.memory] for x in (a, b)], arrays[made.out.memory]


@pytest.mark.parametrize("way", ["mma", "wgmma"])
@pytest.mark.parametrize("programs", [5, 7, 1000])
def test_turns_are_shared_out_evenly(monkeypatch: pytest.MonkeyPatch, way: str, programs: int) -> None:
    """12 tiles: two whole ones for each of 5, one of 7; with many programs no tile is whole."""
    monkeypatch.setattr(tiles, "_STRETCHES", programs)
    monkeypatch.setattr(tiles, "_LEAST_DEPTH", 64)
    names, (a, b), out = run(way)
    assert [name.split("_of_")[0] for name in names] == ["stretches", "sums"]
    np.testing.assert_allclose(out, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-3)


def test_tiles_that_divide_evenly_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "_STRETCHES", 6)
    names, (a, b), out = run("mma")
    assert names == ["walking_product_f16_f16_f32_64x64x32"]
    np.testing.assert_allclose(out, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-3)


def test_how_many_programs_share_turns_follows_from_sizes() -> None:
    tile = TileShape(128, 128, 64, 8, 3)
    counts = [
        count_stretches(tile, 1, *sizes)
        for sizes in ((128, 128, 512), (128, 128, 8192), (256, 256, 1 << 17), (8192, 8192, 64), (1, 1, 1))
    ]
    assert counts == [1, 16, 132, 132, 1]
    assert choose_tile_in_stretches(BFLOAT16, FLOAT32, 1, 1280, 1408, 4096)[:3] == (128, 128, 64)
    assert choose_tile_in_stretches(BFLOAT16, FLOAT32, 1, 128, 128, 512)[:3] == (32, 64, 64)


@pytest.mark.cuda
@pytest.mark.parametrize("way", ["mma", "wgmma"])
def test_compiled_products_in_stretches_are_those_of_eager_calls(way: str) -> None:
    rl: Any = rushlight
    rows = {"mma": 136, "wgmma": 144}[way]  # plans of eager calls are kept by shapes
    a, b, bias = (
        rl.randn(*s, generator=rl.Generator().manual_seed(3)).to(rl.bfloat16).cuda()
        for s in ((rows, 1032), (1032, 264), (264,))
    )
    with SCHEDULE.scoped("stretches"), PRODUCTS.scoped(way):
        made = rl.compile(lambda a, b, bias: rl.relu(a @ b + bias))
        found, plain = made(a, b, bias), rl.relu(a @ b + bias)
        assert "stretches_of" in str(rl.explain(made)(a, b, bias))
        assert rl.equal(found, plain)
        product = rl.compile(lambda a, b: a @ b)(a, b)
        assert rl.equal(product, a @ b)
    rl.testing.assert_close(product.cpu().float(), a.cpu().float() @ b.cpu().float(), rtol=2e-2, atol=2e-1)

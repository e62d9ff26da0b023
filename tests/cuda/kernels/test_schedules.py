"""Products whose programs walk from tile to tile: the bits of those with a program for each tile."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tests.threads.twins import TwinError, compare, run_thread_kernel

import rushlight
from rushlight._backends.cuda.arguments import dense_operand
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm import schedules
from rushlight._backends.cuda.gemm.choice import Trial
from rushlight._backends.cuda.gemm.dot import product_steps
from rushlight._backends.cuda.gemm.product import Product, product_launch, store_result
from rushlight._backends.cuda.gemm.schedules import SCHEDULE, shared_out, tile_of
from rushlight._backends.cuda.gemm.tiles import TileShape, count_splits
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS
from rushlight._backends.cuda.libraries import provider
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand
from rushlight._backends.registry import backend_of
from rushlight._codegen.threads import lower
from rushlight._codegen.threads.form import Instruction, ThreadKernel
from rushlight._types.device import Device
from rushlight._types.dtype import FLOAT16, FLOAT32

TILE = TileShape(64, 64, 32, 4, 3)
TILES = {"mma": TILE, "wgmma": TileShape(64, 64, 64, 4, 2)}


def product(*batch: int, m: int = 136, n: int = 72, k: int = 136) -> Product:
    a, b = (dense_operand(Memory(2 * int(np.prod(s))), FLOAT16, s) for s in ((*batch, m, k), (*batch, k, n)))
    return Product(a, b, dense_operand(Memory(4 * int(np.prod((*batch, m, n)))), FLOAT32, (*batch, m, n)), FLOAT32)


@pytest.mark.parametrize("way", ["mma", "wgmma"])
def test_bits_do_not_depend_on_how_many_programs_walk(way: str) -> None:
    made, random = product(3), np.random.default_rng(0)
    a, b = (random.standard_normal(x.shape).astype(np.float16) for x in (made.a, made.b))
    given = {made.a.memory: a, made.b.memory: b, made.out.memory: np.zeros(made.out.shape, np.float32)}
    found, kernels = [], set()
    for walks in (0, 1, 2, 5):
        with PRODUCTS.scoped(way):
            step = product_launch(made, TILES[way]._replace(walks=walks), 1, store_result(made.out))
        assert ("wgmma" in {i.kind for i in lower(step.kernel, "sm_90a").body.walk()}) == (way == "wgmma")
        assert walks in (0, step.grid[0])
        arguments = [given[x.memory] if isinstance(x, Operand) else x for x in step.arguments]
        found.append(compare(step.kernel, step.grid, arguments, rtol=1e-4, atol=1e-4)[-1])
        kernels.add(step.kernel.name)
    np.testing.assert_allclose(found[0], a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-3)
    assert all(np.array_equal(found[0], x) for x in found) and len(kernels) == 2


def walking_groups() -> tuple[Launch, ThreadKernel]:
    """A product whose warpgroups walk, with 2 slots for the 3 turns of each tile."""
    made = product()
    with PRODUCTS.scoped("wgmma"):
        step = product_launch(made, TILES["wgmma"]._replace(walks=2), 1, store_result(made.out))
    assert isinstance(step, Launch)
    return step, lower(step.kernel, "sm_90a")


def test_what_lives_from_tile_to_tile_shares_no_bytes() -> None:
    """The ring, its barriers, and where a tile moves before it is stored."""
    made = walking_groups()[1]
    buffers = {i.attributes["buffer"] for i in made.body.walk() if "buffer" in i.attributes}
    spans = sorted((b.offset, b.offset + b.size) for b in buffers)
    assert len(spans) == 3 and all(end <= start for (_, end), (start, _) in pairwise(spans))


def _never_freed(tiles: list[Instruction], at: int) -> None:
    del tiles[at]


def _freed_too_early(tiles: list[Instruction], at: int) -> None:
    """Products of the last turn are still open then."""
    for instruction in tiles:
        if instruction.kind == "wgmma_wait":
            instruction.attributes["pending"] = 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (_never_freed, "waits for a phase of a barrier that nothing completes"),
        (_freed_too_early, "a copy into byte .* starts while another or products may use it"),
    ],
)
def test_a_tile_frees_its_last_slot_when_its_products_are_done(fault: Any, message: str) -> None:
    step, made = walking_groups()
    (roles,) = (i for i in made.body.walk() if i.kind == "roles")
    tiles = roles.bodies[1].instructions
    fault(tiles, next(k for k, i in enumerate(tiles) if i.kind == "mbarrier_arrive"))
    arguments = [
        np.zeros(x.shape, "float16" if x.dtype is FLOAT16 else "float32") if isinstance(x, Operand) else x
        for x in step.arguments
    ]
    with pytest.raises(TwinError, match=message):
        run_thread_kernel(made, step.grid, arguments, [p.type.element for p in step.kernel.params])


def test_who_walks() -> None:
    many = product(m=64 * 20, n=64 * 20)
    with SCHEDULE.scoped("walk"):
        assert shared_out(many, TILE).walks == 132 and shared_out(product(), TILE) is TILE
    with SCHEDULE.scoped("apart"):
        assert shared_out(many, TILE) is TILE


def test_large_tiles_with_the_inner_dim_in_parts() -> None:
    """1024 x 1024 with a long inner dim: 64 tiles of 128 x 128 in 2 parts instead of 128 smaller ones; the order follows from sizes."""
    sizes = (FLOAT16, FLOAT32, 1, 1024, 1024, 8192)
    assert tile_of(*sizes)[:2] == (128, 64)
    with SCHEDULE.scoped("parts"):
        large = tile_of(*sizes)
        assert large[:2] == (128, 128) and count_splits(large, 1, 1024, 1024, 8192) == 2
        assert tile_of(FLOAT16, FLOAT32, 1, 1024, 1024, 512)[:2] == (128, 64)  # too short for parts
        made = product(m=300, n=200, k=1100)
        first, last = product_steps(ExternCall("dot", [made.a, made.b], [made.out], {}), made.a, made.b, made.out)
        assert isinstance(first, Launch)
        assert isinstance(last, Launch)
        assert first.grid[1] == 2 and "sum_of_2" in last.kernel.name


@pytest.mark.cuda
def test_a_card_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated device that says it is real."""
    backend: Any = backend_of(Device("cuda", 0))
    backend.initialize(Device("cuda", 0))
    made = product(150, m=64, n=64, k=32)
    assert shared_out(made, TILE) is TILE  # emulated devices are never asked

    class Real:
        type, driver = "cuda", type("driver", (), {"emulated": False})
        current_device, properties = backend.current_device, backend.properties
        captures: dict[int, Any] = {1: None}

    kept: dict[Any, bytes] = {}
    asked: list[int] = []
    cache = type(
        "cache",
        (),
        {"key": staticmethod(lambda *x: x), "get": staticmethod(kept.get), "put": staticmethod(kept.__setitem__)},
    )

    class Asked(Trial):
        def __init__(self, _: Any, *given: Any) -> None:
            super().__init__(backend, *given)

        def fastest(self, ways: Any) -> int:
            asked.append(len(ways))
            assert super().fastest(ways) in range(len(ways))
            return 1

    monkeypatch.setattr(schedules, "backends_in_use", lambda: [Real])
    monkeypatch.setattr(provider, "default_cache", lambda: cache)
    monkeypatch.setattr(schedules, "Trial", Asked)
    monkeypatch.setattr(schedules, "SMALL", 0)
    assert shared_out(made, TILE) is TILE and not asked  # not while a graph is captured
    Real.captures.clear()
    assert [shared_out(made, TILE).walks for _ in range(2)] == [132, 132] and asked == [2] and len(kept) == 1


@pytest.mark.cuda
def test_other_bits_are_not_taken() -> None:
    device = Device("cuda", 0)
    backend: Any = backend_of(device)
    backend.initialize(device)
    made = product()
    right, walking = (product_launch(made, t, 1, store_result(made.out)) for t in (TILE, TILE._replace(walks=2)))
    less = product_launch(made, TILE, 1, store_result(made.out))
    less.grid = (3, 1, 1)  # not all tiles
    trial = Trial(backend, device, (made.a, made.b, made.out))
    assert trial.fastest([[right], [less]]) == 0 and trial.fastest([[right], [walking]]) in (0, 1)


@pytest.mark.cuda
def test_a_compiled_product_with_an_epilogue_walks() -> None:
    rl: Any = rushlight
    a, b = rl.randn(150, 16, 8).cuda(), rl.randn(150, 8, 16).cuda()
    found = {}
    for way in ("apart", "walk"):
        with SCHEDULE.scoped(way):
            made = rl.compile(lambda a, b: rl.relu(a @ b + 1))
            found[way] = made(a, b)
            assert ("walking" in str(rl.explain(made)(a, b))) == (way == "walk")
    assert rl.equal(found["apart"], found["walk"])

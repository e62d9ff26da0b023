"""Attention by warpgroups, interpreted from PTX: registers that open products read or write, fences, copies early and late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from bench.cuda_kernels import wide
from tests.cuda.ptx import PtxError, Ran, run_kernel
from tests.cuda.ptx.running import run_text
from tests.threads.test_chains import Back, Call

from rushlight._backends.cuda.attention.scores import AttentionForm
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS
from rushlight._codegen.blocks import Pointer, Tile
from rushlight._codegen.blocks.expressions import TermBuilder
from rushlight._codegen.threads import lower, nvptx_text
from rushlight._native.nvidia.nvptx import ptx_of
from rushlight._types.dtype import FLOAT16, FLOAT32, INT32


@pytest.fixture(autouse=True)
def by_warpgroups() -> Iterator[None]:
    with PRODUCTS.scoped("wgmma"):
        yield


def proved(ran: Ran) -> None:
    assert any(o.startswith("wgmma.mma_async") for o in ran.opcodes)
    assert not ran.moved, "registers are copied while products use them"


def forward(call: Call, landing: str) -> None:
    proved(run_kernel(call.launch.kernel, "sm_90a", call.launch.grid, call.given(call.launch), landing))
    call.check()


def backward(back: Back, landing: str) -> None:
    for step in back.steps:
        proved(run_kernel(step.kernel, "sm_90a", step.grid, back.given(step), landing))
    for found, expected in zip(back.outs, back.expected(), strict=True):
        np.testing.assert_allclose(wide(found), expected, rtol=2e-2, atol=2e-2)


def test_forward() -> None:
    forward(Call(64, 512, 64, 64, AttentionForm(0.125)), "late")


@pytest.mark.slow
@pytest.mark.parametrize("landing", ["late", "early"])
@pytest.mark.parametrize(("rows", "width", "causal"), [(72, 64, True), (130, 128, True), (64, 256, False)])
def test_forward_with_edges(rows: int, width: int, causal: bool, landing: str) -> None:
    forward(Call(rows, 4 * rows, width, width, AttentionForm(width**-0.5, causal=causal)), landing)


@pytest.mark.slow
@pytest.mark.parametrize("landing", ["late", "early"])
@pytest.mark.parametrize(("rows", "keys", "width", "causal"), [(136, 264, 64, False), (128, 192, 128, True)])
def test_derivatives(rows: int, keys: int, width: int, causal: bool, landing: str) -> None:
    backward(Back(rows, keys, width, causal), landing)


FAULTS = {
    "wgmma.fence.sync.aligned;": "since the last wgmma.fence, or there was none",
    "wgmma.wait_group.sync.aligned 1;": "is used before wgmma.wait_group",
}


@pytest.mark.parametrize("instruction", FAULTS)
def test_what_is_left_out_is_found(instruction: str) -> None:
    call = Call(64, 512, 64, 64, AttentionForm(0.125))
    made = lower(call.launch.kernel, "sm_90a")
    text = ptx_of(nvptx_text(made), "sm_90a")
    assert instruction in text
    with pytest.raises(PtxError, match=FAULTS[instruction]):
        run_text(text.replace(instruction, ""), made, call.launch.grid, call.given(call.launch))


def test_accumulators_that_are_read_before_a_loop() -> None:
    """They move through shared memory before roles begin: by the warps that multiply alone."""
    b = TermBuilder("begun", [Tile(Pointer(FLOAT16))] * 2 + [Tile(Pointer(FLOAT32))] * 2 + [Tile(INT32)])
    x, y, begin, out, deep = b.terms
    zero, one, rows = (b.number(n, INT32) for n in (0, 1, 64))
    places = b.index(64)[:, None] * 64 + b.index(64)[None, :]

    def turn(k: Any, total: Any) -> list[Any]:
        left, right = (b.tile(p, (rows, deep), (deep, one), (zero, k), (64, 64)) for p in (x, y))
        return [b.matrix_product(left, right.permute(1, 0), total)]

    (total,) = b.loop(0, deep, 64, [(begin + b.index(64)).load()[:, None].spread((64, 64))], turn)
    (out + places).store(total)
    kernel = b.finish(warps=4, stages=2, divisible=dict.fromkeys(range(5), 16))
    random = np.random.default_rng(2)
    arrays = [random.integers(-3, 4, (64, 128)).astype(np.float16) for _ in range(2)]
    begun, made = random.integers(-9, 9, 64).astype(np.float32), np.zeros((64, 64), np.float32)
    proved(run_kernel(kernel, "sm_90a", (1,), [*arrays, begun, made, 128]))
    left, right = (a.astype(np.float64) for a in arrays)
    np.testing.assert_array_equal(made, left @ right.T + begun[:, None])

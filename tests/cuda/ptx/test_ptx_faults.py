"""Texts that hardware would run wrongly, now and then, or not at all: the interpreter says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from bench.cuda_kernels import UNITS
from tests.cuda.ptx import PtxError, run_plain, run_text

from rushlight._codegen.threads import lower, nvptx_text
from rushlight._native.nvidia.nvptx import ptx_of


@cache
def printed(name: str) -> tuple[Any, Any, str]:
    case = UNITS[name][0]()
    made = lower(case.kernel, "sm_90a")
    return case, made, ptx_of(nvptx_text(made), "sm_90a")


def run(name: str, change: Callable[[str], str], landing: str = "late") -> None:
    case, made, ptx = printed(name)
    changed = change(ptx)
    assert changed != ptx
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in case.arguments]
    run_text(changed, made, case.grid, given, landing)


def without(pattern: str, count: int = 0) -> Callable[[str], str]:
    return lambda ptx: re.sub(pattern, "", ptx, count=count)


def instead(old: str, new: str) -> Callable[[str], str]:
    return lambda ptx: ptx.replace(old, new)


def more_bytes(by: int) -> Callable[[str], str]:
    """Another number of bytes is announced."""

    def change(ptx: str) -> str:
        (register,) = set(re.findall(r"expect_tx.shared::cta.b64 _, \[%r\d+\], (%r\d+);", ptx))
        return re.sub(rf"(mov.b32 \t{register}, )(\d+);", lambda m: f"{m[1]}{int(m[2]) + by};", ptx)

    return change


PRODUCTS: list[tuple[str, Callable[[str], str], str]] = [
    ("no wgmma.fence", without(r"wgmma\.fence\.sync\.aligned;"), "since the last wgmma.fence, or there was none"),
    ("no wait for products", without(r"wgmma\.wait_group\.sync\.aligned 0;"), "is used before wgmma.wait_group"),
    ("a slot is freed too early", instead("wait_group.sync.aligned 1;", "wait_group.sync.aligned 2;"), "begins while products in the background"),
    ("barriers are not fenced", without(r"fence\.mbarrier_init\.release\.cluster;"), "without a fence behind its initialisation"),
    ("no barrier behind them", without(r"bar\.sync \t0;"), "without a barrier behind its initialisation"),
    ("no wait for bytes", without(r"@%p\d+ bra \t\$L__BB0_12;"), "before the copy into it was waited for|of shared memory is read, which nothing wrote"),
    ("too many bytes announced", more_bytes(128), "128 bytes are missing"),
    ("too few", more_bytes(-128), "-128 bytes are missing"),
    ("a slot is never freed", without(r"@%p\d+ mbarrier\.arrive\.shared::cta\.b64[^;]*;"), "nobody can go on: .* waits for a phase"),
    ("a barrier of more threads", instead("bar.sync \t1, 256;", "bar.sync \t1, 384;"), "nobody can go on: .* waits at a barrier"),
    ("too many registers", instead("setmaxnreg.inc.sync.aligned.u32 232;", "setmaxnreg.inc.sync.aligned.u32 240;"), "warpgroups ask for 520"),
    ("registers that never rise", instead("setmaxnreg.inc.sync.aligned.u32 232;", "setmaxnreg.inc.sync.aligned.u32 160;"), "has 168 registers and asks"),
    ("an instruction of half a warp", instead("wgmma.commit_group.sync.aligned;", "@%p12 bra $L__BB0_14; wgmma.commit_group.sync.aligned;"), "waits for its warp|some of its threads|before wgmma.wait"),
    ("another map", instead("_param_6;", "_param_2;"), "no tensor map lies|not a multiple"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), [p[1:] for p in PRODUCTS], ids=[p[0] for p in PRODUCTS])
def test_products_of_warpgroups(change: Callable[[str], str], message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run("wgmma_two_groups", change)


@pytest.mark.parametrize("landing", ["late", "early"])
def test_without_a_fault_they_run(landing: str) -> None:
    run("wgmma_two_groups", lambda ptx: ptx + "\n", landing)


def test_bulk_copies_that_land_early_show_what_is_freed_too_early() -> None:
    with pytest.raises(PtxError, match="begins while products in the background read it"):
        run("wgmma_two_groups", instead("wait_group.sync.aligned 1;", "wait_group.sync.aligned 2;"), "early")


THREADS: list[tuple[str, str, Callable[[str], str], str]] = [
    ("no barrier", "reductions", without(r"bar\.sync \t0;"), "thread \\d+ reads byte .* that thread \\d+ wrote, without a barrier"),
    ("no wait", "copies_ahead", without(r"cp\.async\.wait_group \t\d;"), "while a copy into it is under way"),
    ("too short a wait", "copies_ahead", instead("cp.async.wait_group \t1;", "cp.async.wait_group \t2;"), "while a copy into it is under way"),
    ("no barrier behind a wait", "copies_ahead", without(r"bar\.sync \t0;"), "without a barrier between"),
    ("a copy of 8 bytes past the cache", "copies_ahead", instead(", 16, %", ", 8, %"), "copies of 8 bytes do not exist"),
    ("another address", "barriers", lambda ptx: re.sub(r"(st\.global\.v4\.b32 \t\[%rd\d+)", r"\1+4", ptx), "an access of 16 bytes .* is not aligned"),
    ("beyond an array", "barriers", lambda ptx: re.sub(r"(st\.global\.v4\.b32 \t\[%rd\d+)", r"\1+65536", ptx), "outside of global memory"),
    ("an unknown instruction", "shuffles", instead("shfl.sync.bfly", "movmatrix.sync"), "line \\d+: the instruction movmatrix.sync.b32 is unknown"),
    ("a mask of some lanes", "shuffles", instead("31, -1;", "31, 255;"), "a mask of members"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "message"), [t[1:] for t in THREADS], ids=[t[0] for t in THREADS])
def test_threads(name: str, change: Callable[[str], str], message: str) -> None:
    with pytest.raises(PtxError, match=message):
        run(name, change)


def kernel(body: str, registers: str = "") -> str:
    return f"""
.version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 shared[];
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2) .reqntid 128
{{
    .reg .pred %p<9>; .reg .b16 %rs<9>; .reg .b32 %r<99>; .reg .b64 %rd<19>; {registers}
    mov.u32 %r1, %tid.x;
    {body}
    ret;
}}"""


def test_a_shuffle_of_half_a_warp() -> None:
    body = "setp.lt.u32 %p1, %r1, 16; @!%p1 bra $L1; shfl.sync.idx.b32 %r2, %r1, 0, 31, -1; $L1: bar.sync 0;"
    with pytest.raises(PtxError, match="waits for its warp at line .*shfl"):
        run_plain(kernel(body), 128, [0, 0, 0])


def test_a_barrier_that_some_threads_miss() -> None:
    body = "setp.lt.u32 %p1, %r1, 32; @%p1 bra $L1; bar.sync 0; $L1: mov.u32 %r2, %r1;"
    with pytest.raises(PtxError, match=r"thread 32 \(96 of them\) waits at a barrier"):
        run_plain(kernel(body), 128, [0, 0, 0])


PRODUCT = """
    ld.param.u64 %rd1, [p0]; ld.param.u64 %rd2, [p1]; ld.param.u64 %rd3, [p2];
    mov.b32 %r2, shared; shl.b32 %r3, %r1, 4; add.s32 %r4, %r2, %r3; mul.wide.u32 %rd4, %r1, 16;
    add.s64 %rd5, %rd1, %rd4; ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%rd5]; st.shared.v4.b32 [%r4], {{%r5, %r6, %r7, %r8}};
    setp.ge.u32 %p1, %r1, 16; @%p1 bra $L1;
    add.s64 %rd5, %rd2, %rd4; ld.global.v4.b32 {{%r5, %r6, %r7, %r8}}, [%rd5]; st.shared.v4.b32 [%r4+2048], {{%r5, %r6, %r7, %r8}};
$L1: {fence}
    bar.sync 0;
    shr.u32 %r9, %r2, 4; cvt.u64.u32 %rd6, %r9; add.s64 %rd7, %rd6, 128;
    or.b64 %rd6, %rd6, {a}; or.b64 %rd7, %rd7, {b};
    wgmma.fence.sync.aligned;
    {{ .reg .pred p; setp.ne.b32 p, 0, 0;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%r10, %r11, %r12, %r13}}, %rd6, %rd7, p, 1, 1, 0, 0; }}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    mul.wide.u32 %rd4, %r1, 16; add.s64 %rd5, %rd3, %rd4; st.global.v4.b32 [%rd5], {{%r10, %r11, %r12, %r13}};
"""


def core_matrices(x: Any) -> Any:
    """[rows, 16] of two bytes as the layout without a swizzle has it: 8 rows of 16 bytes are neighbours, the halves of k 128 bytes
    apart, 8 rows further 256.
    """
    return np.ascontiguousarray(x.reshape(-1, 8, 2, 8).transpose(0, 2, 1, 3))


@pytest.mark.parametrize("fence", ["fence.proxy.async.shared::cta;", ""])
def test_a_product_by_hand(fence: str) -> None:
    """Ordinary stores that `wgmma` reads are fenced; a warpgroup's fragments as the figures of the instruction set show them."""
    random = np.random.default_rng(0)
    a, b = (random.integers(-4, 5, (n, 16)).astype(np.float16) for n in (64, 8))
    descriptor = 128 >> 4 << 16 | 256 >> 4 << 32
    out = np.zeros((128, 4), np.float32)
    text = kernel(PRODUCT.format(fence=fence, a=descriptor, b=descriptor))
    given = [core_matrices(a), core_matrices(b), out]
    if not fence:
        with pytest.raises(PtxError, match="written without fence.proxy.async"):
            run_plain(text, 128, given, 4096)
        return
    run_plain(text, 128, given, 4096)
    thread, i = np.arange(128)[:, None], np.arange(4)[None, :]
    rows, columns = thread // 32 * 16 + thread % 32 // 4 + 8 * (i // 2), thread % 4 * 2 + i % 2
    np.testing.assert_array_equal(out, (a.astype(np.float64) @ b.T.astype(np.float64))[rows, columns])

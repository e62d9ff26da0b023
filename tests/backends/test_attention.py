"""Attention block by block against its definition in float64: values, derivatives, masks, layouts, threads, memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu.attention import attention
from rushlight._backends.cpu.compile import build
from rushlight._backends.cpu.gemm.blas import host_tiles
from rushlight._backends.cpu.gemm.choice import amx_works
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.launches import joined
from rushlight._backends.cpu.microkernels.register_tile import register_tile
from rushlight._backends.cpu.program.assemble import compile_graph
from rushlight._backends.cpu.program.steps import ExternStep, Operand
from rushlight._backends.cpu.runtime import storage, threads
from rushlight._backends.reference import run as run_reference
from rushlight._graph.core import trace
from rushlight._native.target import host_target
from rushlight._prims import PRIMITIVES, prim
from rushlight._types.dtype import BFLOAT16, BOOL, FLOAT16, FLOAT32, FLOAT64

WIDTHS = [w for w in (64, 32, 16) if w <= host_target().vector_bytes]
TOLERANCE = {"bfloat16": 2e-2, "float16": 2e-3, "float32": 4e-6, "float64": 1e-13}
attend = torch.nn.functional.scaled_dot_product_attention


# ***** routines alone *****


def held(x, dtype):
    """An array as it lies in memory, strides kept; float32 as bfloat16 in its upper bits, rounded toward zero."""
    if dtype is BFLOAT16 and x.dtype == np.float32:
        return (
            (x.view(np.uint32) >> 16).astype(np.uint16)
            if x.flags.c_contiguous
            else held(np.ascontiguousarray(x.T), dtype).T
        )
    return x if x.dtype == bool else x.astype(dtype.name, copy=False)


def known(x):
    """The numbers that are in memory, in float64."""
    if x.dtype == np.uint16:
        return (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return x if x.dtype == bool else x.astype(np.float64)


def run(name, arrays, dtype, causal, scale, shapes):
    """The results of a routine on arrays as they lie, in float64."""
    kinds = [BOOL if x.dtype == bool else dtype if x.dtype.itemsize == dtype.itemsize else dtype.wide for x in arrays]
    inputs = [
        Operand(i, k, x.shape, [s // x.itemsize for s in x.strides])
        for i, (x, k) in enumerate(zip(arrays, kinds, strict=True))
    ]
    kinds = [dtype, dtype.wide] if name == "attention" else [dtype] * 3
    spans = [[int(np.prod(shape[d + 1 :])) for d in range(len(shape))] for shape in shapes]
    outputs = [Operand(0, k, shape, span) for k, shape, span in zip(kinds, shapes, spans, strict=True)]
    sizes = [int(np.prod(shape)) * k.itemsize for shape, k in zip(shapes, kinds, strict=True)]
    step = ExternStep(name, inputs, outputs, sizes, {"causal": causal, "scale": scale})
    launches = (attention.attention_call if name == "attention" else attention.attention_grad_call)(step)
    made = joined(launches)(*[x.ctypes.data for x in arrays])
    raw = [np.frombuffer(m, np.uint16 if k is BFLOAT16 else k.name) for m, k in zip(made, kinds, strict=True)]
    return [known(x[: int(np.prod(shape))].reshape(shape)) for x, shape in zip(raw, shapes, strict=True)]


def expected(xs, causal, scale):
    return PRIMITIVES["attention"].reference(*[known(x) for x in xs], causal=causal, scale=scale)


def draw(rng, shape, dtype, order=None):
    x = rng.standard_normal(shape if order is None else [shape[d] for d in order]).astype(
        np.float64 if dtype is FLOAT64 else np.float32
    )
    x = held(x, dtype)
    return x if order is None else x.transpose(np.argsort(order))


def masks(rng, lead, rows, keys, dtype):
    """No mask, and one of each kind, some of them repeated; a row may have nothing left."""
    full = (*lead, rows, keys)
    some = rng.random(full) < 0.7
    some[..., rows // 2, :] = False
    added = rng.standard_normal((*lead, keys, rows)).astype(dtype.wide.name).swapaxes(-1, -2)
    yield (), False
    yield (), True
    yield (some,), False
    yield (np.broadcast_to(rng.random((*lead, 1, keys)) < 0.5, full),), False
    yield (added,), False
    yield (
        (np.broadcast_to(np.where(rng.random((rows, keys)) < 0.1, -np.inf, 1.0).astype(dtype.wide.name), full),),
        False,
    )


def compare(got, want, dtype):
    for g, w in zip(got, want, strict=True):
        finite = np.isfinite(w)
        assert np.array_equal(g[~finite], w[~finite], equal_nan=True)
        assert (
            np.abs(g[finite] - w[finite]).max(initial=0)
            <= TOLERANCE[dtype.name] * max(1, np.abs(w[finite]).max(initial=0)) * 2
        )


def check(rng, dtype, lead, rows, keys, width, depth, orders=(None, None, None), masks=masks):
    shapes = (*lead, rows, width), (*lead, keys, width), (*lead, keys, depth)
    xs = [draw(rng, shape, dtype, order) for shape, order in zip(shapes, orders, strict=True)]
    ct = draw(rng, (*lead, rows, depth), dtype)
    for mask, causal in masks(rng, lead, rows, keys, dtype):
        scale = float(rng.uniform(0.1, 1.0))
        want = expected([*xs, *mask], causal, scale)
        compare(run("attention", [*xs, *mask], dtype, causal, scale, [ct.shape, ct.shape[:-1]]), want, dtype)
        sides = [np.ascontiguousarray(x.astype(dtype.wide.name)) for x in (want[1], (want[0] * known(ct)).sum(-1))]
        operands = [ct, *xs, *sides, *mask]
        wanted = PRIMITIVES["attention_grad"].reference(*[known(x) for x in operands], causal=causal, scale=scale)
        compare(run("attention_grad", operands, dtype, causal, scale, shapes), wanted, dtype)


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, BFLOAT16, FLOAT16], ids=lambda d: d.name)
@pytest.mark.parametrize(
    ("lead", "sizes"),
    [
        ((), (1, 1, 1, 1)),
        ((3,), (5, 7, 4, 6)),
        ((2, 2), (33, 65, 20, 9)),
        ((1,), (70, 131, 64, 64)),
        ((9,), (40, 34, 16, 8)),
    ],
)
def test_against_the_definition(dtype, lead, sizes):
    check(np.random.default_rng(0), dtype, lead, *sizes)


def test_many_keys_and_sums_of_pieces():
    rng = np.random.default_rng(1)
    check(rng, FLOAT32, (1,), 100, 600, 8, 8)  # several pieces of keys for one head
    check(rng, FLOAT32, (8,), 34, 1100, 4, 8)  # more keys than one piece holds at a time


def masks_of_blocks(rng, lead, rows, keys, dtype):
    """Masks that leave out whole blocks of keys for whole blocks of queries: the first ones, the last ones, some, and all of some queries."""
    row, key = np.arange(rows)[:, None], np.arange(keys)
    band = np.abs(row * keys // rows - key) < 40
    some = np.repeat(np.repeat(rng.random((-(-rows // 32), -(-keys // 64))) < 0.3, 32, 0), 64, 1)[:rows, :keys]
    for kept in (row * keys // rows >= key, key >= 200, key < 130, band, some, np.zeros((rows, keys), bool)):
        kept = np.broadcast_to(kept, (*lead, rows, keys))
        yield (np.ascontiguousarray(kept),), False
        added = rng.standard_normal(kept.shape).astype(dtype.wide.name)
        yield (np.where(kept, added, -np.inf).astype(dtype.wide.name),), False


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, BFLOAT16], ids=lambda d: d.name)
def test_blocks_that_a_mask_leaves_out(dtype):
    check(np.random.default_rng(5), dtype, (2,), 150, 400, 16, 24, masks=masks_of_blocks)


def test_what_is_not_a_number_in_a_mask_is_seen():
    q = torch.randn(1, 40, 8)
    mask = torch.full((40, 70), -float("inf"))
    mask[3, 5] = float("nan")
    out = attend(q, torch.randn(1, 70, 8), torch.randn(1, 70, 8), attn_mask=mask)
    assert out[0, 3].isnan().all()
    assert (out[0, 4:] == 0).all()


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=lambda d: d.name)
def test_operands_as_they_lie(dtype):
    beside = (0, 2, 1, 3)  # heads beside features, as models split them
    check(np.random.default_rng(2), dtype, (2, 3), 37, 41, 16, 16, (beside, beside, (3, 1, 0, 2)))


TILES = [
    register_tile(kind, w, r, f)
    for kind in ("f32", "f64")
    for w, r, f in ((64, 32, True), (32, 16, True), (16, 16, False), (16, 32, True))
    if w in WIDTHS
]


@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.kind}-{t.rows}x{t.columns}")
def test_other_tiles(tile, monkeypatch):
    monkeypatch.setattr(attention, "_tile", lambda dtype: tile)
    monkeypatch.setattr(attention, "_KERNELS", {})
    for dtype in (FLOAT32, FLOAT16) if tile.kind == "f32" else (FLOAT64,):
        check(np.random.default_rng(3), dtype, (2,), 45, 110, 12, 10)


@pytest.mark.skipif(not host_tiles("bf16")[-1].instruction, reason="no vector instruction multiplies bfloat16 here")
def test_pairs_of_bfloat16_where_there_are_no_matrix_tiles(monkeypatch):
    monkeypatch.setattr(attention, "amx_works", lambda kind: False)
    check(np.random.default_rng(6), BFLOAT16, (2,), 70, 131, 20, 40)


# ***** matrix tiles *****

with_matrix_tiles = pytest.mark.skipif(not amx_works("amx_bf16"), reason="no matrix tiles (AMX) work on this machine")


def within(found, exact, terms, single):
    """The bound of sums whose terms and results are rounded to bfloat16; `single`: terms of the float32 numbers before."""
    assert np.isfinite(found).all()
    assert (np.abs(found - exact) <= 2.0**-8 * (terms + np.abs(exact)) + 2.0**-18 * single + 2.0**-120).all()


@with_matrix_tiles
@pytest.mark.parametrize("scale", [0.125, -0.3, 0.0])
@pytest.mark.parametrize(
    "sizes",
    [(64, 64, 32, 32), (33, 65, 64, 64), (129, 258, 80, 80), (70, 97, 128, 128), (1, 1, 1, 1), (40, 31, 7, 33), (96, 1100, 64, 32)],
    ids=str,
)  # fmt: skip
def test_matrix_tiles_hold_the_stated_bound(sizes, scale):
    rows, keys, width, depth = sizes
    rng = np.random.default_rng(7)
    shapes = (2, rows, width), (2, keys, width), (2, keys, depth), (2, rows, depth)
    q, k, v, ct = (draw(rng, shape, BFLOAT16) for shape in shapes)
    q64, k64, v64, ct64 = map(known, (q, k, v, ct))
    for mask, causal in masks(rng, (2,), rows, keys, BFLOAT16):
        out, norm = run("attention", [q, k, v, *mask], BFLOAT16, causal, scale, [ct.shape, ct.shape[:-1]])
        exact, exact_norm = expected([q, k, v, *mask], causal, scale)
        weights = expected(
            [q, k, np.broadcast_to(np.eye(keys, dtype=np.float32), (2, keys, keys)), *mask], causal, scale
        )[0]
        terms = weights @ np.abs(v64)
        within(out, exact, terms, terms)
        assert np.array_equal(np.isfinite(norm), np.isfinite(exact_norm))
        alive = np.isfinite(norm)
        np.testing.assert_allclose(norm[alive], exact_norm[alive], rtol=1e-5, atol=1e-5)
        delta = (exact * ct64).sum(-1)
        sides = [x.astype(np.float32) for x in (exact_norm, delta)]
        slopes = weights * (ct64 @ v64.swapaxes(-1, -2) - delta[..., None]) * scale
        single = weights * np.abs(scale) * (np.abs(ct64) @ np.abs(v64).swapaxes(-1, -2) + np.abs(delta[..., None]))
        found = run("attention_grad", [ct, q, k, v, *sides, *mask], BFLOAT16, causal, scale, shapes[:3])
        for got, left, right, before in (
            (found[0], slopes, k64, single),
            (found[1], slopes.swapaxes(-1, -2), q64, single.swapaxes(-1, -2)),
            (found[2], weights.swapaxes(-1, -2), ct64, weights.swapaxes(-1, -2)),
        ):
            within(got, left @ right, np.abs(left) @ np.abs(right), before @ np.abs(right))


@with_matrix_tiles
def test_matrix_tiles_keep_what_is_not_finite_where_it_belongs():
    rng = np.random.default_rng(8)
    q, k, v = (draw(rng, (70, 40), BFLOAT16) for _ in range(3))
    q[3, 1], q[7, 2], k[69, 0] = 0x7FC0, 0x7F80, 0x7FC0  # NaN, infinity, NaN
    out, _ = run("attention", [q, k, v], BFLOAT16, True, 0.5, [(70, 40), (70,)])
    lost = np.isnan(out).any(-1)
    assert lost.nonzero()[0].tolist() == [3, 7, 69]
    assert np.isfinite(np.delete(out, [3, 7, 69], 0)).all()


@with_matrix_tiles
def test_matrix_tiles_give_the_same_bits_on_every_run():
    rng = np.random.default_rng(9)
    q, k, v, ct = (draw(rng, (3, n, 72), BFLOAT16) for n in (97, 300, 300, 97))
    sides = [draw(rng, (3, 97), FLOAT32) + np.float32(3) for _ in range(2)]
    mask = rng.random((3, 97, 300)) < 0.6
    found = set()
    for _ in range(4):
        one = run("attention", [q, k, v, mask], BFLOAT16, False, 0.2, [ct.shape, ct.shape[:-1]])
        two = run("attention_grad", [ct, q, k, v, *sides, mask], BFLOAT16, False, 0.2, [x.shape for x in (q, k, v)])
        found.add(b"".join(x.tobytes() for x in (*one, *two)))
        check(rng, FLOAT32, (2,), 40, 50, 30, 20)  # leaves other numbers in the memory that is borrowed
    assert len(found) == 1


# ***** what surrounds them *****


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16], ids=lambda d: d.name)
def test_results_have_the_same_bits_for_any_number_of_threads(dtype):
    rng = np.random.default_rng(4)
    before = threads.get_num_threads()
    for lead, rows, keys, causal in (((1,), 150, 700, False), ((5,), 97, 97, True), ((3,), 64, 1030, False)):
        xs = [draw(rng, (*lead, n, 24), dtype) for n in (rows, keys, keys, rows)]
        sides = [draw(rng, (*lead, rows), FLOAT32) + np.float32(3) for _ in range(2)]
        found = []
        for count in (1, 2, 3, 8):
            threads.set_num_threads(count)
            one = run("attention", xs[:3], dtype, causal, 0.2, [xs[0].shape, xs[0].shape[:-1]])
            two = run("attention_grad", [xs[3], *xs[:3], *sides], dtype, causal, 0.2, [x.shape for x in xs[:3]])
            found.append(b"".join(x.tobytes() for x in (*one, *two)))
        threads.set_num_threads(before)
        assert len(set(found)) == 1


def test_memory_grows_with_the_length_alone():
    def peak(length):
        q, k, v = (torch.randn(1, 1, length, 16, requires_grad=True) for _ in range(3))
        bias = torch.randn(length)
        attend(q, k, v, bias).sum().backward()
        gc.collect()
        storage.reset_peak()
        start = storage.memory_stats()["allocated"]
        for causal, mask in ((True, None), (False, bias)):
            attend(q, k, v, mask, is_causal=causal).backward(v)
        return storage.memory_stats()["peak_allocated"] - start

    small, large = peak(2048), peak(4096)  # of fewer rows, those that one tile takes in excess show
    assert large < 2.2 * small
    assert large < 16 * 4096 * 16 * 4  # a matrix of scores would be 64 MiB


def steps_of(function, *avals):
    program = compile_graph(
        trace(function, list(avals)),
        [[int(np.prod(a[0][d + 1 :])) for d in range(len(a[0]))] for a in avals],
        target=host(),
    )
    return [step.name if isinstance(step, ExternStep) else "kernel" for step in program.steps]


def test_who_computes():
    def plain(q, k, v):
        return prim.attention(q, k, v, causal=False, scale=0.5)[0]

    few, many = ((2, 8, 16), FLOAT32), ((2, 64, 16), FLOAT32)
    assert steps_of(plain, many, many, many) == ["attention"]
    assert "attention" not in steps_of(plain, few, many, many)
    half, keys = ((2, 8, 16), BFLOAT16), ((2, 256, 16), BFLOAT16)
    assert ("attention" in steps_of(plain, half, keys, keys)) == host_target().has("amx_bf16")
    assert "attention" not in steps_of(plain, ((2, 1, 16), BFLOAT16), keys, keys)
    assert "attention" not in steps_of(plain, half, half, half)

    def split(q, k, v, keep):  # heads beside features, a mask of the keys: nothing is copied
        q, k, v = (prim.transpose(x, perm=(1, 0, 2)) for x in (q, k, v))
        return prim.attention(q, k, v, prim.broadcast(keep, shape=(4, 64, 64), dims=(2,)), causal=False, scale=0.5)[0]

    beside = ((64, 4, 16), FLOAT32)
    assert steps_of(split, beside, beside, beside, ((64,), BOOL)) == ["attention"]


def test_nothing_to_attend_to_and_what_is_not_a_number():
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal((40, 8)).astype(np.float32) for _ in range(3))
    q[3, 1], q[7, 2], k[39, 0] = np.nan, np.inf, np.nan
    graph = trace(lambda *xs: prim.attention(*xs, causal=True, scale=0.5), [(x.shape, FLOAT32) for x in (q, k, v)])
    want = run_reference(graph, [q, k, v])
    made = build(compile_graph(graph, [(8, 1)] * 3, target=host()))(*[x.ctypes.data for x in (q, k, v)])
    got = [np.frombuffer(m, np.float32).reshape(w.shape) for m, w in zip(made, want, strict=True)]
    assert np.array_equal(np.isnan(got[0]), np.isnan(want[0]))
    fine = ~np.isnan(want[0]).any(-1)
    np.testing.assert_allclose(got[0][fine], want[0][fine], atol=1e-5)
    x = torch.randn(1, 1, 40, 8, requires_grad=True)
    keep = torch.ones(40, 40, dtype=torch.bool)
    keep[5] = False
    out = attend(x, x, x, keep)
    out.sum().backward()
    assert out[0, 0, 5].tolist() == [0.0] * 8 and not out.isnan().any() and not x.grad.isnan().any()


def test_derivatives_of_derivatives_both_modes_and_batches():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, n, 2, dtype=torch.float64, requires_grad=True) for n in (33, 5, 5))
    for causal, mask in ((True, None), (False, torch.randn(33, 5, dtype=torch.float64))):

        def f(q, k, v, causal=causal, mask=mask):
            return attend(q, k, v, mask, is_causal=causal)

        assert torch.autograd.gradcheck(f, (q, k, v), fast_mode=True, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(f, (q, k, v), fast_mode=True)
    many = torch.randn(3, 2, 33, 4)
    found = torch.func.vmap(attend, in_dims=(0, None, 0))(many, many[0], many)
    torch.testing.assert_close(found, torch.stack([attend(x, many[0], x) for x in many]))


def test_shared_heads_and_layout_of_the_result():
    torch.manual_seed(1)
    q = torch.randn(2, 50, 6, 8).transpose(1, 2)
    k, v = torch.randn(2, 2, 40, 8), torch.randn(2, 2, 40, 8)
    keep = torch.rand(2, 6, 50, 40) < 0.8
    found = attend(q, k, v, keep, enable_gqa=True)
    whole = attend(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1), keep)
    torch.testing.assert_close(found, whole)
    assert whole.stride() == (2400, 8, 48, 1)
    assert attend(q, k.repeat_interleave(3, 1), torch.randn(2, 6, 40, 4)).is_contiguous()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_gradients_of_few_queries_where_one_weight_is_near_one(dtype):
    draw = np.random.default_rng(2)
    q, k, v = (
        torch.from_numpy(8 * draw.standard_normal((4, n, 8))).to(getattr(torch, dtype)).requires_grad_()
        for n in (3, 6, 6)
    )
    ct = torch.from_numpy(draw.standard_normal((4, 3, 8))).to(q.dtype)
    attend(q, k, v).backward(ct)
    qs, ks, vs, cs = (x.detach().double().numpy() for x in (q, k, v, ct))
    scores = qs @ ks.swapaxes(1, 2) / np.sqrt(8)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    share = cs @ vs.swapaxes(1, 2)
    slopes = weights * (share - (weights * share).sum(-1, keepdims=True)) / np.sqrt(8)
    eps = {"bfloat16": 2**-8, "float16": 2**-11}[dtype]
    for found, wanted in (
        (q.grad, slopes @ ks),
        (k.grad, slopes.swapaxes(1, 2) @ qs),
        (v.grad, weights.swapaxes(1, 2) @ cs),
    ):
        assert np.abs(found.double().numpy() - wanted).max() <= 2 * eps * np.abs(wanted).max()

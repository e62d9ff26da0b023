"""The routine of convolutions against the definition, over sizes, layouts, dtypes and vector widths."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from tests.kernels.kernel_harness import Ran, trace_arrays

import rushlight as torch
from rushlight._backends.cpu.conv import conv, conv_choice, winograd
from rushlight._backends.cpu.gemm.blas import host_tiles
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.microkernels.register_tile import register_tile
from rushlight._backends.cpu.runtime import threads
from rushlight._backends.reference import run as run_reference
from rushlight._prims import PRIMITIVES, build
from rushlight._schedule.rewrites.prepare import prepared
from rushlight._transforms.vjp import vjp
from rushlight._types.dtype import BY_NAME

WINDOWS, CONV = PRIMITIVES["conv_windows"], PRIMITIVES["conv"]
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 1e-2}


def numbers(rng, shape, dtype, order=None):
    """Random numbers of a dtype in an order of dims in memory, every second element of which is left out at times."""
    x = rng.standard_normal(shape)
    if dtype == "bfloat16":
        x = np.asarray((x.astype(np.float32).view(np.uint32) >> 16) << 16, np.uint32).view(np.float32)
    else:
        x = x.astype(dtype)
    if order is not None:
        x = np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    return x


def case(seed, most=40):
    """Parameters and shapes of a `conv_windows`, drawn from a seed."""
    r = random.Random(seed)
    n = r.choice((1, 2, 2, 2, 3))
    groups, depth, outs, batch = (
        r.choice((1, 1, 2)),
        r.choice((1, 2, 3, 7, most)),
        r.choice((1, 3, 8, 9, most)),
        r.choice((1, 2, 5, 33)),
    )
    if n == 3:
        depth, outs = min(depth, 7), min(outs, 9)
    space = [r.choice((1, 3, 6, 9, 17) if n > 1 else (1, 9, 40, 1100)) for _ in range(n)]
    kernel = [r.choice((1, 2, 3, 5)) for _ in range(n)]
    spread = [1] * n if r.random() < 0.7 else [r.choice((1, 2, 3)) for _ in range(n)]
    stride = [1] * n if max(spread) > 1 else [r.choice((1, 1, 2, 3)) for _ in range(n)]
    dilation, lo = [r.choice((1, 1, 2)) for _ in range(n)], [r.choice((0, 1, 2, -1)) for _ in range(n)]
    size = [r.randint(1, max(1, (s * a + 4) // t)) for s, a, t in zip(space, spread, stride, strict=True)]
    params = {"stride": stride, "spread": spread, "dilation": dilation, "lo": lo, "size": size}
    params = {key: tuple(value) for key, value in params.items()} | {"flip": r.random() < 0.5}
    return r, (batch, groups, depth, *space), (groups, outs, depth, *kernel), params


def checked(seed, dtype, wide=False, **options):
    r, x, w, params = case(seed)
    rng = np.random.default_rng(seed)
    orders = [r.sample(range(len(s)), len(s)) if r.random() < 0.6 else None for s in (x, w)]
    arrays = [numbers(rng, s, dtype, o) for s, o in zip((x, w), orders, strict=True)]
    result = "float32" if wide else dtype
    if r.random() < 0.4:
        arrays.append(numbers(rng, w[:2], result))
    dtypes = [BY_NAME[dtype], BY_NAME[dtype], BY_NAME[result]][: len(arrays)]
    graph = trace_arrays(lambda *xs: WINDOWS(*xs, **params, dtype=BY_NAME[result]), arrays, dtypes)
    want = WINDOWS.reference(*(a.astype(np.float64) for a in arrays), **params, dtype=BY_NAME["float64"])
    order = r.sample(range(want.ndim), want.ndim)
    steps, strides = 1, [0] * want.ndim
    for d in reversed(order):
        strides[d], steps = steps, steps * want.shape[d]
    got = Ran(graph, arrays, out_strides=[tuple(strides)], **options).results[0]
    scale = max(1.0, float(np.abs(want).max(initial=0)))
    np.testing.assert_allclose(
        got.astype(np.float64) / scale, want / scale, rtol=0, atol=TOLERANCE[result], err_msg=f"{seed} {x} {w} {params}"
    )


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_any_sizes_and_layouts(dtype):
    for seed in range(16):
        checked(seed, dtype)


@pytest.mark.parametrize("form", range(4))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_left_over_by_the_tiles(monkeypatch, dtype, form):
    """Rows that fill no tile go to the one with fewer rows, or to one that is not full, whichever way round the tiles are."""
    monkeypatch.setattr(conv, "choose_blocks", lambda words, tiles: conv_choice.choose_blocks(words, tiles, only=form))
    rng = np.random.default_rng(form)
    for channels, side in ((13, 5), (15, 4), (22, 6), (23, 7), (50, 3)):
        x, w = numbers(rng, (2, 1, 9, side, side), dtype), numbers(rng, (1, channels, 9, 3, 3), dtype)
        params = {
            "stride": (1, 1),
            "spread": (1, 1),
            "dilation": (1, 1),
            "lo": (1, 1),
            "size": (side, side),
            "flip": False,
        }
        graph = trace_arrays(
            lambda *xs, p=params: WINDOWS(*xs, **p, dtype=BY_NAME[dtype]), [x, w], [BY_NAME[dtype]] * 2
        )
        want = WINDOWS.reference(x.astype(np.float64), w.astype(np.float64), **params, dtype=BY_NAME["float64"])
        np.testing.assert_allclose(
            Ran(graph, [x, w]).results[0], want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * np.abs(want).max()
        )


def test_narrow_operands_with_a_wide_result():
    for seed in range(6):
        checked(100 + seed, ("bfloat16", "float16")[seed % 2], wide=True)


def gradient_case(x, w, **params):
    """The graph of both gradients of a convolution, and arrays for it."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in (x, w)]
    forward = trace_arrays(lambda *xs: CONV(*xs, **params), arrays)
    backward = vjp(forward, [0, 1]).backward
    return backward, [arrays[0], arrays[1], rng.standard_normal(forward.outputs[0].shape).astype(np.float32)]


GRADIENTS = [
    ((3, 40, 20, 19), (36, 40, 3, 3), {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}),
    ((2, 3, 33, 34), (24, 3, 7, 7), {"stride": (2, 2), "padding": (3, 3), "dilation": (1, 1), "groups": 1}),
    ((4, 32, 15, 15), (32, 16, 3, 3), {"stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 2}),
    ((2, 33, 300), (34, 33, 5), {"stride": (1,), "padding": (4,), "dilation": (2,), "groups": 1}),
    (
        (40, 17, 5, 4, 6),
        (18, 17, 2, 1, 3),
        {"stride": (1, 1, 2), "padding": (0, 1, 1), "dilation": (1, 1, 1), "groups": 1},
    ),
]


@pytest.mark.parametrize("x, w, params", GRADIENTS, ids=lambda v: "x".join(map(str, v)) if isinstance(v, tuple) else "")
def test_gradients(x, w, params):
    graph, arrays = gradient_case(x, w, **params)
    by_shape = {a.shape: a for a in arrays}
    given = [by_shape[v.shape] for v in graph.inputs]
    ran = Ran(graph, given)
    names = {step.name for step in ran.program.steps if hasattr(step, "name")}
    assert "conv_windows" in names
    for got, want in zip(ran.results, run_reference(graph, given), strict=True):
        np.testing.assert_allclose(got / np.abs(want).max(), want / np.abs(want).max(), rtol=0, atol=3e-5)


FAR_TAPS = [  # of which some, and some places, see nothing but what is around the image
    ((2, 24, 14, 14), (36, 24, 3, 3), {"stride": (1, 1), "padding": (24, 24), "dilation": (24, 24), "groups": 1}, 1),
    ((2, 24, 14, 30), (36, 12, 3, 3), {"stride": (1, 1), "padding": (15, 15), "dilation": (15, 15), "groups": 2}, 3),
    ((2, 24, 1, 5), (36, 24, 3, 3), {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}, 3),
    ((2, 24, 3, 3), (36, 24, 4, 3), {"stride": (2, 1), "padding": (5, 4), "dilation": (1, 1), "groups": 1}, 12),
    ((2, 20, 3), (36, 20, 3), {"stride": (3,), "padding": (9,), "dilation": (9,), "groups": 1}, 1),
    ((2, 20, 3), (36, 20, 1), {"stride": (9,), "padding": (4,), "dilation": (1,), "groups": 1}, 1),  # none meets it
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "x, w, params, left", FAR_TAPS, ids=lambda v: "x".join(map(str, v)) if isinstance(v, tuple) else ""
)
def test_taps_that_never_meet_the_image_are_left_out(x, w, params, left, dtype):
    """Forwards, and both gradients: of all taps of a kernel only `left` are multiplied."""
    wide, kind = BY_NAME["float32"], BY_NAME[dtype]
    rng = np.random.default_rng(0)
    arrays = [numbers(rng, s, dtype) for s in (x, w)]
    forward = trace_arrays(
        lambda x, w: build.convert(CONV(build.convert(x, wide), build.convert(w, wide), **params), kind),
        arrays,
        [kind] * 2,
    )
    taken = {
        math.prod(v.shape[3:])
        for node in prepared(forward, host()).nodes
        if node.prim is WINDOWS
        for v in node.inputs[1:2]
    } or {1}
    assert taken == {left}
    backward = vjp(forward, [0, 1]).backward
    by_shape = {v.shape: a for v, a in zip(forward.inputs, arrays, strict=True)} | {
        forward.outputs[0].shape: numbers(rng, forward.outputs[0].shape, dtype)
    }
    for graph, given in ((forward, arrays), (backward, [by_shape[v.shape] for v in backward.inputs])):
        ran = Ran(graph, given)
        for got, want in zip(ran.results, run_reference(graph, given), strict=True):
            want = np.asarray(want, np.float32)
            np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE[dtype] * np.abs(want).max())


def test_nothing_is_written_out_between():
    """Padding, spreading, turning, widening, the bias and rounding are inside the one call."""

    def transposed(x, w, b):
        x, w, b = (build.convert(v, BY_NAME["float32"]) for v in (x, w, b))
        x = build.pad(x, (0, 0, 1, 1), (0, 0, 1, 1), (0, 0, 1, 1))
        w = PRIMITIVES["flip"](build.transpose(w, (1, 0, 2, 3)), dims=(2, 3))
        y = CONV(x, w, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1)
        y = y + build.broadcast_to(build.reshape(b, (1, 4, 1, 1)), y.shape)
        return build.convert(y, BY_NAME["bfloat16"])

    rng = np.random.default_rng(0)
    arrays = [numbers(rng, s, "bfloat16") for s in ((2, 3, 5, 6), (3, 4, 3, 3), (4,))]
    graph = trace_arrays(transposed, arrays, [BY_NAME["bfloat16"]] * 3)
    ran = Ran(graph, arrays)
    assert [getattr(step, "name", "kernel") for step in ran.program.steps] == ["conv_windows"]
    want = run_reference(trace_arrays(transposed, arrays, [BY_NAME["bfloat16"]] * 3), arrays)[0]
    np.testing.assert_allclose(ran.results[0], np.asarray(want, np.float32), rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "size, lo, gap, routine", [(1, 3, 1, "dot"), (1, 2, 1, "dot"), (1, 6, 2, "dot"), (2, 3, 1, "conv_windows")]
)
def test_images_of_one_place_are_multiplied(dtype, size, lo, gap, routine):
    """A transposed convolution of them is a product, not a convolution of zeros."""
    rng = np.random.default_rng(4)
    x, w = numbers(rng, (5, 40, size, size), dtype), numbers(rng, (24, 20, 4, 4), dtype)

    def function(x, w):
        x, w = (build.convert(v, BY_NAME["float32"]) for v in (x, w))
        x = build.pad(x, (0, 0, lo, lo), (0, 0, lo, lo), (0,) * 4)
        y = CONV(x, w, stride=(1, 1), padding=(0, 0), dilation=(gap, gap), groups=2)
        return build.convert(y, BY_NAME[dtype])

    ran = Ran(trace_arrays(function, [x, w], [BY_NAME[dtype]] * 2), [x, w])
    assert routine in {getattr(step, "name", "kernel").removesuffix("_wide") for step in ran.program.steps}
    want = run_reference(trace_arrays(function, [x, w], [BY_NAME[dtype]] * 2), [x, w])[0]
    want = np.asarray(want, np.float32)
    np.testing.assert_allclose(
        ran.results[0] / np.abs(want).max(), want / np.abs(want).max(), rtol=0, atol=TOLERANCE[dtype]
    )


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_other_vectors(monkeypatch, kind, vector_bytes):
    """The generators for narrower vectors and fewer registers (the wide ones only where this machine has them)."""
    host = host_tiles(kind)[0]
    size = 8 if kind == "f64" else 4
    if vector_bytes > host.lanes * size:
        pytest.skip("this machine has no vectors of that width")
    tile = register_tile(kind, vector_bytes, 16, host.fma and vector_bytes > 16)
    form = conv.ConvForm((tile,), kind, kind)
    monkeypatch.setattr(conv, "conv_form", lambda source, target: form)
    for seed in range(200, 206):
        checked(seed, {"f32": "float32", "f64": "float64"}[kind])


@pytest.fixture
def placed(monkeypatch):
    """The convolutions that read channels of a place where they lie side by side, which are all that can."""
    seen, choose = [], conv_choice.choose_blocks

    def prefer(words, tiles, **given):
        time = choose(words, tiles, **given)
        if words["channels_inside"]:
            seen.append((words["form"], words["parts_c"]))
        return time - 1e15 * bool(words["channels_inside"])

    monkeypatch.setattr(conv, "choose_blocks", prefer)
    return seen


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_channels_side_by_side(monkeypatch, placed, dtype):
    monkeypatch.setattr(conv, "PLACED_DEPTH", 96)  # several parts for what is not large
    for seed in range(24):
        r, rng = random.Random(seed), np.random.default_rng(seed)
        n, groups = r.choice((1, 2, 2, 3)), r.choice((1, 1, 2))
        batch, depth, outs = r.choice((1, 3)), r.choice((1, 3, 9, 16, 33, 150, 300)), r.choice((9, 17, 32, 40))
        kernel = [r.choice((1, 2, 3)) for _ in range(n)]
        spread = [1] * n if r.random() < 0.7 else [r.choice((1, 2, 3)) for _ in range(n)]
        space = [r.choice((1, 5, 12) if n > 1 else (1, 9, 600)) for _ in range(n)]
        params = {
            "stride": tuple(1 if max(spread) > 1 else r.choice((1, 2, 3)) for _ in range(n)), "spread": tuple(spread),
            "dilation": tuple(r.choice((1, 1, 2)) for _ in range(n)), "lo": tuple(r.choice((0, 1, 2, -1)) for _ in range(n)),
            "size": tuple(r.randint(1, s + 3) for s in space), "flip": r.random() < 0.5,
        }  # fmt: skip
        last = (0, *range(3, 3 + n), 1, 2)
        x = numbers(rng, (batch, groups, depth, *space), dtype, last)
        w = numbers(
            rng, (groups, outs, depth, *kernel), dtype, (0, 1, *range(3, 3 + n), 2) if r.random() < 0.5 else None
        )
        _, got, want = followed(x, w, params, dtype, r.random() < 0.7, seed=seed)
        scale = np.abs(want).max(initial=1.0)
        np.testing.assert_allclose(
            got / scale, want / scale, rtol=0, atol=2 * TOLERANCE[dtype], err_msg=f"{seed} {x.shape} {w.shape} {params}"
        )
    assert {form for form, _ in placed} >= {2} and max(parts for _, parts in placed) > 1


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_outside_does_not_matter(placed, dtype, last):
    """NaN reaches exactly the results whose windows hold it: none comes from the fillings of panels and words."""
    rng = np.random.default_rng(3)
    for channels, outs, size in ((3, 5, 7), (7, 9, 13), (40, 40, 6), (2, 16, 9), (3, 32, 20)):
        x, w = (
            numbers(rng, (3, channels, size, size), dtype, (0, 2, 3, 1) if last else None),
            numbers(rng, (outs, channels, 3, 3), dtype),
        )
        x[1, channels // 2, 2, 3] = np.nan
        graph = trace_arrays(
            lambda x, w: CONV(x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1),
            [x, w],
            [BY_NAME[dtype]] * 2,
        )
        found = np.isnan(Ran(graph, [x, w]).results[0])
        want = np.zeros_like(found)
        want[1, :, 1:4, 2:5] = True
        np.testing.assert_array_equal(found, want)
    assert bool(placed) is last


@pytest.mark.parametrize("x, w, params", [GRADIENTS[0], GRADIENTS[2]], ids=["plain", "strided"])
def test_bits_do_not_depend_on_threads(x, w, params):
    graph, arrays = gradient_case(x, w, **params)
    by_shape = {a.shape: a for a in arrays}
    given = [by_shape[v.shape] for v in graph.inputs]
    before, seen = threads.get_num_threads(), []
    try:
        for count in (1, 2, 3, 8):
            threads.set_num_threads(count)
            seen.append([r.tobytes() for r in Ran(graph, given).results])
    finally:
        threads.set_num_threads(before)
    assert all(bits == seen[0] for bits in seen[1:])


@pytest.mark.parametrize(
    "order, spread", [(None, 1), ((0, 1, 3, 4, 2), 1), (None, 2)], ids=["plain", "channels last", "spread"]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_weights_packed_once_for_all_pieces(monkeypatch, dtype, order, spread):
    """The same bits as where every piece packs its own, and right ones."""
    rng, size = np.random.default_rng(5), (24 * spread, 23 * spread)
    x, w = numbers(rng, (1, 2, 38, 24, 23), dtype), numbers(rng, (2, 40, 38, 3, 3), dtype, order)
    params = {
        "stride": (1, 1),
        "spread": (spread,) * 2,
        "dilation": (1, 1),
        "lo": (1, 1),
        "size": size,
        "flip": spread > 1,
    }
    graph = trace_arrays(lambda x, w: WINDOWS(x, w, **params, dtype=BY_NAME[dtype]), [x, w], [BY_NAME[dtype]] * 2)
    packed, pack_once = [], conv._pack_once

    def once(parts, tiles, stays):
        packed.append(pack_once(parts, tiles, stays))
        return packed[-1]

    with winograd.WINOGRAD.scoped(False):
        monkeypatch.setattr(conv, "_pack_once", once)
        result = Ran(graph, [x, w]).results[0]
        monkeypatch.setattr(conv, "_pack_once", lambda parts, tiles, stays: 0)
        np.testing.assert_array_equal(result, Ran(graph, [x, w]).results[0])
    assert packed[0] > 0
    want = WINDOWS.reference(x.astype(np.float64), w.astype(np.float64), **params, dtype=BY_NAME["float64"])
    np.testing.assert_allclose(result / np.abs(want).max(), want / np.abs(want).max(), rtol=0, atol=TOLERANCE[dtype])


# ***** what follows *****


def block_of(**params):
    """conv -> batch norm as it is in inference -> residual -> leaky ReLU."""

    def function(x, w, bias, scale, shift, residual, slope):
        wide = BY_NAME["float32"]
        dtype = x.dtype
        x, w, bias = (build.convert(v, wide) for v in (x, w, bias))
        y = CONV(x, w, **params)

        def row(v):
            return build.broadcast_to(build.reshape(v, (1, v.shape[0], *(1,) * (len(y.shape) - 2))), y.shape)

        y = build.convert(build.convert(y + row(bias), dtype), wide)
        y = y * row(scale) + row(shift) + build.convert(residual, wide)
        y = PRIMITIVES["maximum"](y, y * build.broadcast_to(build.reshape(slope, (1,) * len(y.shape)), y.shape))
        return build.convert(y, dtype)

    return function


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_follows_is_done_in_the_one_call(dtype, last):
    rng = np.random.default_rng(11)
    cases = [
        ((3, 20, 13, 12), (33, 20, 5, 5), {"stride": (1, 1), "padding": (2, 2)}),
        ((2, 70, 31, 64), (40, 70, 3, 3), {"stride": (2, 2), "padding": (1, 1)}),
        ((5, 24, 5, 3), (64, 12, 2, 2), {"stride": (1, 1), "padding": (0, 0), "groups": 2}),
        ((4, 16, 9, 600), (17, 16, 1, 7), {"stride": (1, 1), "padding": (0, 3)}),
    ]
    for x, w, given in cases:
        params = {"dilation": (1, 1), "groups": 1, **given}
        places = [
            (s + 2 * p - k) // t + 1
            for s, p, k, t in zip(x[2:], params["padding"], w[2:], params["stride"], strict=True)
        ]
        shape, order = (x[0], w[0], *places), (0, 2, 3, 1) if last else None
        arrays = [numbers(rng, x, dtype, order), numbers(rng, w, dtype), numbers(rng, (w[0],), dtype)]
        arrays += [numbers(rng, (w[0],), "float32") for _ in range(2)]
        function, arrays = block_of(**params), [*arrays, numbers(rng, shape, dtype, order), np.float32([0.1])]
        dtypes = [BY_NAME[n] for n in (dtype, dtype, dtype, "float32", "float32", dtype, "float32")]
        strides = [(shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1])] if last else None
        graph = trace_arrays(function, arrays, dtypes)
        before, seen = threads.get_num_threads(), []
        try:
            for count in (1, 2, 3, 8):
                threads.set_num_threads(count)
                ran = Ran(graph, arrays, out_strides=strides)
                seen.append(ran.results[0])
        finally:
            threads.set_num_threads(before)
        (step,) = ran.program.steps
        assert step.name == "conv_windows" and step.epilogue is not None
        assert all(one.tobytes() == seen[0].tobytes() for one in seen)
        want = np.asarray(run_reference(trace_arrays(function, arrays, dtypes), arrays)[0], np.float32)
        scale = np.abs(want).max()
        np.testing.assert_allclose(
            seen[0] / scale, want / scale, rtol=0, atol=2 * TOLERANCE[dtype], err_msg=str((x, w))
        )


@pytest.fixture
def always_winograd(monkeypatch):
    """Wherever it can be done, and the sizes of what was done so."""
    seen = []
    monkeypatch.setattr(
        winograd, "worth", lambda words, tiles, tile: not seen.append((words["n"], words["c"], words["o"]))
    )
    return seen


def followed(x, w, params, dtype, last, *, residual_over=False, seed=0):
    """A `conv_windows` with all that may follow it in one graph, as the kernels compute it with 1, 2, 3 and 8 threads, and in float64."""
    rng, narrow = np.random.default_rng(seed), BY_NAME[dtype]
    shape = (x.shape[0], w.shape[0] * w.shape[1], *params["size"])
    order = (0, *range(2, len(shape)), 1) if last else None
    rows = [numbers(rng, shape[1:2], name) for name in (dtype, "float32", "float32")]
    arrays = [x, w, *rows, numbers(rng, shape, dtype, order)]
    sums = BY_NAME["float64" if dtype == "float64" else "float32"]

    def function(x, w, bias, scale, shift, residual):
        y = build.reshape(WINDOWS(x, w, build.reshape(bias, w.shape[:2]), **params, dtype=narrow), shape)
        row = lambda v: build.broadcast_to(
            build.reshape(build.convert(v, sums), (1, shape[1], *(1,) * len(params["size"]))), shape
        )
        y = build.convert(y, sums) * row(scale) + row(shift) + build.convert(residual, sums)
        return build.convert(PRIMITIVES["maximum"](y, build.full(shape, 0.0, sums)), narrow)

    graph = trace_arrays(function, arrays, [narrow, narrow, narrow, BY_NAME["float32"], BY_NAME["float32"], narrow])
    wide = [a.astype(np.float64) for a in arrays]
    want = WINDOWS.reference(
        wide[0], wide[1], wide[2].reshape(w.shape[:2]), **params, dtype=BY_NAME["float64"]
    ).reshape(shape)
    scale, shift = (v.reshape(1, -1, *(1,) * len(params["size"])) for v in wide[3:5])
    want = np.maximum(want * scale + shift + wide[5], 0)
    strides = [s // arrays[-1].itemsize for s in arrays[-1].strides]
    before, seen = threads.get_num_threads(), []
    try:
        for count in (1, 2, 3, 8):
            threads.set_num_threads(count)
            given = [*arrays[:-1], np.copy(arrays[-1], order="K")]
            ran = (
                Ran(graph, given, aliases={0: 5}) if residual_over else Ran(graph, given, out_strides=[tuple(strides)])
            )
            seen.append(given[-1] if residual_over else ran.results[0])
    finally:
        threads.set_num_threads(before)
    assert all(one.tobytes() == seen[0].tobytes() for one in seen)
    return ran.program.steps, np.asarray(seen[0], np.float64), want


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_what_follows_any_convolution(dtype, last):
    """Of any sizes: few channels a group and many, spread images, one dim of space to three."""
    together = 0
    for seed in range(24):
        r, x, w, params = case(200 + seed)
        rng = np.random.default_rng(seed)
        order = (0, *range(3, len(x)), 1, 2) if r.random() < 0.5 else None
        steps, got, want = followed(
            numbers(rng, x, dtype, order),
            numbers(rng, w, dtype),
            params,
            dtype,
            last,
            residual_over=r.random() < 0.3 and dtype != "bfloat16",
        )
        together += len(steps) == 1 and steps[0].epilogue is not None
        scale = np.abs(want).max(initial=1.0)
        np.testing.assert_allclose(
            got / scale, want / scale, rtol=0, atol=2 * TOLERANCE[dtype], err_msg=f"{seed} {x} {w} {params}"
        )
    assert together >= 20


FOLLOWED = {
    "depthwise": ((2, 33, 1, 14, 15), (33, 1, 1, 3, 3), {"lo": (1, 1), "size": (14, 15)}),
    "depthwise, large": ((1, 5, 1, 70, 131), (5, 1, 1, 5, 5), {"lo": (2, 2), "size": (70, 131)}),
    "depthwise, short rows": ((3, 40, 1, 7, 7), (40, 1, 1, 3, 3), {"lo": (1, 1), "size": (7, 7)}),
    "depthwise, strided": ((2, 24, 1, 29, 30), (24, 1, 1, 3, 3), {"lo": (1, 1), "size": (15, 15), "stride": (2, 2)}),
    "depthwise, spread": ((2, 24, 1, 9, 8), (24, 1, 1, 4, 4), {"lo": (2, 2), "size": (18, 16), "spread": (2, 2)}),
    "depthwise, 3 dims": ((1, 9, 1, 4, 8, 10), (9, 1, 1, 3, 3, 3), {"lo": (1, 1, 1), "size": (4, 8, 10)}),
    "groups of four": ((2, 8, 4, 20, 21), (8, 4, 4, 3, 3), {"lo": (1, 1), "size": (20, 21)}),
    "groups of many": ((2, 3, 24, 20, 21), (3, 20, 24, 3, 3), {"lo": (1, 1), "size": (20, 21)}),
    "spread": ((2, 1, 20, 9, 10), (1, 17, 20, 4, 4), {"lo": (2, 2), "size": (18, 20), "spread": (2, 2)}),
    "spread unevenly": ((2, 1, 20, 9, 10), (1, 17, 20, 3, 4), {"lo": (1, 3), "size": (9, 30), "spread": (1, 3)}),
    "a sequence": ((2, 1, 20, 90), (1, 17, 20, 5), {"lo": (2,), "size": (90,)}),
    "few places": ((1, 1, 300, 5, 5), (1, 20, 300, 3, 3), {"lo": (1, 1), "size": (5, 5)}),
    "few places, spread": ((1, 1, 300, 3, 2, 2), (1, 20, 300, 1, 3, 3), {"lo": (0, 1, 1), "size": (3, 4, 4), "spread": (1, 2, 2)}),
    "few places, spread unevenly": ((2, 1, 300, 4, 2), (1, 20, 300, 3, 4), {"lo": (1, 1), "size": (4, 5), "spread": (1, 3)}),
    "spread, many places": ((2, 2, 128, 10, 10), (2, 128, 128, 3, 3), {"lo": (1, 1), "size": (10, 20), "spread": (1, 2)}),
}  # fmt: skip


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("name", FOLLOWED)
def test_what_follows_is_one_call_for_every_kind_of_convolution(monkeypatch, name, last):
    if name.startswith("few places"):  # the steps are cut into chunks, whose sums are added up before
        monkeypatch.setattr(conv, "GRAIN", 1 << 12)
    x, w, given = FOLLOWED[name]
    params = {key: (1,) * len(given["size"]) for key in ("stride", "spread", "dilation")} | {"flip": False, **given}
    for dtype in ("float32", "bfloat16"):
        rng = np.random.default_rng(4)
        order = (0, *range(3, len(x)), 1, 2) if last else None
        steps, got, want = followed(numbers(rng, x, dtype, order), numbers(rng, w, dtype), params, dtype, last)
        (step,) = steps
        assert step.epilogue is not None
        scale = np.abs(want).max()
        np.testing.assert_allclose(got / scale, want / scale, rtol=0, atol=2 * TOLERANCE[dtype])


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_what_follows_winograd(always_winograd, last):
    for seed in range(12):
        r, rng = random.Random(seed), np.random.default_rng(seed)
        groups, depth, outs = r.choice((1, 1, 2)), r.choice((5, 20, 150)), r.choice((9, 17, 40))
        space = (r.choice((2, 3, 8, 17)), r.choice((2, 7, 20, 41)))
        x = numbers(
            rng, (r.choice((1, 2, 5)), groups, depth, *space), "float32", (0, 3, 4, 1, 2) if r.random() < 0.5 else None
        )
        w = numbers(rng, (groups, outs, depth, 3, 3), "float32")
        params = {
            "stride": (1, 1),
            "spread": (1, 1),
            "dilation": (1, 1),
            "lo": (1, 1),
            "size": space,
            "flip": r.random() < 0.3,
        }
        if (
            seed % 4 == 1
        ):  # a piece that is not finite is computed again, after the residual might have been written over
            x[0, 0, 2, 1, 1] = np.nan
        steps, got, want = followed(x, w, params, "float32", last, residual_over=seed % 2 == 1, seed=seed)
        assert len(steps) == 1 and steps[0].epilogue is not None
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        scale = np.nanmax(np.abs(want))
        np.testing.assert_allclose(got / scale, want / scale, rtol=0, atol=5e-6, err_msg=str(seed))
    assert len(always_winograd) == 4 * 12


def test_a_residual_that_is_written_over():
    """The result takes the memory of the residual, which each rectangle reads before it is written."""
    rng = np.random.default_rng(12)
    x, w, r = (numbers(rng, s, "float32") for s in ((2, 16, 14, 15), (24, 16, 5, 5), (2, 24, 14, 15)))

    def function(x, w, r):
        return CONV(x, w, stride=(1, 1), padding=(2, 2), dilation=(1, 1), groups=1) + r

    graph, kept = trace_arrays(function, [x, w, r]), r.copy()
    want = run_reference(graph, [x, w, kept])[0]
    ran = Ran(graph, [x, w, r], aliases={0: 2})
    assert [getattr(step, "name", "kernel") for step in ran.program.steps] == ["conv_windows"]
    np.testing.assert_allclose(r, want, rtol=0, atol=1e-4)


# ***** Winograd's method *****


def convolved(x, w, bias=None, groups=1, last=False):
    """A convolution with a padding of 1 by the kernels, and by float64."""
    params = {
        "stride": (1,) * (x.ndim - 2),
        "padding": (1,) * (x.ndim - 2),
        "dilation": (1,) * (x.ndim - 2),
        "groups": groups,
    }

    def function(x, w, *bias):
        y = CONV(x, w, **params)
        if bias:
            y = y + build.broadcast_to(build.reshape(bias[0], (1, y.shape[1], *(1,) * len(y.shape[2:]))), y.shape)
        return y

    arrays = [x, w] if bias is None else [x, w, bias]
    graph = trace_arrays(function, arrays)
    shape = graph.outputs[0].shape
    strides = None
    if last:
        strides = [(shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1])]
    got = Ran(graph, arrays, out_strides=strides).results[0]
    wide = [a.astype(np.float64) for a in arrays]
    return got, run_reference(trace_arrays(function, wide), wide)[0]


def test_winograd_any_sizes_and_layouts(always_winograd):
    for seed in range(40):
        r, rng = random.Random(seed), np.random.default_rng(seed)
        groups, depth, outs = r.choice((1, 1, 2)), r.choice((1, 5, 20, 150)), r.choice((9, 17, 40))
        x = numbers(
            rng, (r.choice((1, 2, 5)), groups * depth, r.choice((2, 3, 8, 17)), r.choice((2, 7, 20, 41))), "float32"
        )
        w = numbers(rng, (groups * outs, depth, 3, 3), "float32", r.sample(range(4), 4) if r.random() < 0.3 else None)
        if r.random() < 0.3:
            x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
        bias = numbers(rng, (groups * outs,), "float32") if r.random() < 0.5 else None
        got, want = convolved(x, w, bias, groups, r.random() < 0.4)
        np.testing.assert_allclose(
            got / np.abs(want).max(), want / np.abs(want).max(), rtol=0, atol=2e-6, err_msg=str(seed)
        )
    assert len(always_winograd) > 30


def test_winograd_of_turned_weights(always_winograd):
    """The gradient by the image."""
    graph, arrays = gradient_case(
        (3, 40, 20, 19), (36, 40, 3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1
    )
    by_shape = {a.shape: a for a in arrays}
    given = [by_shape[v.shape] for v in graph.inputs]
    for got, want in zip(Ran(graph, given).results, run_reference(graph, given), strict=True):
        np.testing.assert_allclose(got / np.abs(want).max(), want / np.abs(want).max(), rtol=0, atol=3e-5)
    assert (3, 36, 40) in always_winograd


def test_errors_of_winograd_are_those_of_sums_in_order(always_winograd):
    """Numbers of one sign are the worst case: the transforms take differences of what is alike."""
    rng = np.random.default_rng(7)
    for channels, draw in ((64, rng.standard_normal), (256, rng.standard_normal), (64, rng.random)):
        x, w = (
            draw((1, channels, 14, 14)).astype(np.float32),
            rng.standard_normal((64, channels, 3, 3)).astype(np.float32),
        )
        got, want = convolved(x, w)
        around, ordered = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), np.zeros(want.shape, np.float32)
        for c in range(channels):
            for i in range(3):
                for j in range(3):
                    ordered += w[None, :, c, i, j, None, None] * around[:, c, None, i : i + 14, j : j + 14]
        assert always_winograd
        ours, theirs = got - want, ordered - want
        assert np.sqrt(np.mean(ours**2)) <= 2 * np.sqrt(np.mean(theirs**2))
        assert np.abs(ours).max() <= 3 * np.abs(theirs).max()


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38], ids=str)
def test_winograd_keeps_what_is_not_finite_where_it_belongs(always_winograd, value):
    rng = np.random.default_rng(3)
    x, w = numbers(rng, (3, 20, 12, 13), "float32"), np.abs(numbers(rng, (24, 20, 3, 3), "float32")) + 0.1
    x[1, 7, 4, 5] = value
    if value == 3e38:  # a sum of neighbours leaves the range, none of a window does
        w[:] = 0.125
        x[1, 7, 4, 7] = value
    got, want = convolved(x, w)
    assert always_winograd
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    finite = np.isfinite(want)
    np.testing.assert_allclose(got[finite], want[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_results_that_are_written_apart(step, dtype):
    """A transposed convolution whose kernel is as large as its stride: each element of the kernel makes results of its own."""
    rng = np.random.default_rng(step)
    for wide in (1, 5, 16, 37, 90):
        x, w, b = (rng.standard_normal(s).astype(dtype) for s in ((2, 24, 3, wide), (24, 10, step, step), (10,)))
        want = np.einsum("nchw,coij->nohiwj", x, w, dtype=np.float64).reshape(2, 10, 3 * step, wide * step) + b.reshape(
            -1, 1, 1
        )
        got = torch.nn.functional.conv_transpose2d(torch.tensor(x), torch.tensor(w), torch.tensor(b), stride=step)
        np.testing.assert_allclose(
            got.numpy(), want, rtol=0, atol=(2e-6 if dtype == "float32" else 1e-14) * np.abs(want).max() * 4
        )


def test_bits_of_winograd_do_not_depend_on_what_memory_held(always_winograd):
    """Vectors of tiles that are not full hold what was there before: it does not count as a result that is not finite."""
    rng = np.random.default_rng(4)
    before = threads.get_num_threads()
    try:
        threads.set_num_threads(1)
        for size in ((13, 18), (9, 31), (20, 21), (7, 5)):
            x, w = numbers(rng, (1, 64, *size), "float32"), numbers(rng, (64, 64, 3, 3), "float32")
            clean = convolved(x, w)[0].tobytes()
            convolved(np.full((2, 128, 30, 30), np.nan, np.float32), numbers(rng, (64, 128, 3, 3), "float32"))
            assert convolved(x, w)[0].tobytes() == clean, size
    finally:
        threads.set_num_threads(before)
    assert len(always_winograd) == 12


def test_bits_of_winograd_do_not_depend_on_threads(always_winograd):
    rng = np.random.default_rng(3)
    x, w = numbers(rng, (5, 24, 30, 31), "float32"), numbers(rng, (150, 24, 3, 3), "float32")
    x[2, 3, 4, 5] = np.nan
    before, seen = threads.get_num_threads(), []
    try:
        for count in (1, 2, 3, 8):
            threads.set_num_threads(count)
            seen.append(convolved(x, w)[0].tobytes())
    finally:
        threads.set_num_threads(before)
    assert len(always_winograd) == 4 and all(bits == seen[0] for bits in seen[1:])


@pytest.mark.parametrize(
    ("n", "c", "size", "outs"), [(2, 64, 28, 64), (1, 512, 14, 256), (33, 16, 9, 100), (5, 24, 31, 150)]
)
def test_tiles_are_cut_in_the_way_that_costs_least(n, c, size, outs):
    tile = host_tiles("f32")[0]
    words = dict.fromkeys(conv.W, 0)
    half = -(-size // 2)
    words |= {
        "n": n,
        "g": 1,
        "c": c,
        "o": outs,
        "d": 1,
        "h": half,
        "w": half,
        "k_d": 1,
        "k_h": 4,
        "k_w": 4,
        "block_d": 1,
        "block_w": half,
    }
    conv_choice.choose_tiles(words, tile)
    least = conv_choice.tiles_cost(words, tile)
    boxes = [(1, h) for h in range(1, half + 1)] + [(k, half) for k in range(2, n + 1)]
    allowed = [(k, h) for k, h in boxes if c * k * 4 * (h + 1) * (half + 1) <= 1 << 18]
    assert (words["block_n"], words["block_h"]) in allowed
    for block_n, block_h in allowed:
        for count in (1, 2, 4, 8):
            block_o = math.ceil(math.ceil(outs / max(count, math.ceil(outs / 256))) / tile.rows) * tile.rows
            assert conv_choice.tiles_cost(
                words | {"block_n": block_n, "block_h": block_h, "block_o": block_o}, tile
            ) >= least * (1 - 1e-12)


def test_winograd_is_left_alone_where_it_would_not_pay_or_is_not_wanted():
    def taken(n, c, size, outs):
        x, w = numbers(rng, (n, c, size, size), "float32"), numbers(rng, (outs, c, 3, 3), "float32")
        program = Ran(
            trace_arrays(lambda x, w: CONV(x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1), [x, w]),
            [x, w],
        ).program
        (step,) = (step for step in program.steps if getattr(step, "name", "") == "conv_windows")
        return winograd.winograd_call(step) is not None

    rng = np.random.default_rng(0)
    assert taken(2, 64, 28, 64)
    assert not taken(1, 512, 7, 512)  # the weights would take longer to transform than it saves
    assert not taken(2, 3, 28, 16)
    with winograd.WINOGRAD.scoped(False):
        assert not taken(2, 64, 28, 64)

"""Convolutions of bfloat16 by matrix tiles (AMX) against float64, in every direction; on processors that have them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.backends.test_conv import CONV, WINDOWS, numbers
from tests.kernels.kernel_harness import Ran, trace_arrays

from rushlight._backends.cpu.conv import conv
from rushlight._backends.cpu.conv.matrix_sums_native import SumsForm
from rushlight._backends.cpu.conv.matrix_tiles_native import MatrixForm
from rushlight._backends.cpu.gemm.choice import amx_works
from rushlight._backends.cpu.runtime import threads
from rushlight._prims import build
from rushlight._transforms.vjp import vjp
from rushlight._types.dtype import BY_NAME

pytestmark = pytest.mark.skipif(not amx_works("amx_bf16"), reason="this processor or system has no matrix tiles (AMX)")
BFLOAT16, FLOAT32 = BY_NAME["bfloat16"], BY_NAME["float32"]
ROUNDING = 2.0**-8  # of a result


@pytest.fixture
def tiles(monkeypatch):
    """Convolutions by matrix tiles wherever those can; yields the forms that ran."""
    seen, cut = [], conv._best_cut

    def prefer(whole, forms):
        able = [f for f in forms if isinstance(f, SumsForm)] if whole.desc["k_h"] * whole.desc["k_w"] > 25 else []
        able = [f for f in able if all(conv._cut(desc, f) != float("inf") for desc in whole.phases())]
        form, parts = cut(whole, able or [f for f in forms if type(f) is MatrixForm] or forms)
        seen.append(type(form))
        return form, parts

    monkeypatch.setattr(conv, "_best_cut", prefer)
    return seen


def bound(x, w, params):
    """The most that the order of a sum in float32 can change, plus the rounding of the result: of every element."""
    total = WINDOWS.reference(*(np.abs(a.astype(np.float64)) for a in (x, w)), **params, dtype=BY_NAME["float64"])
    steps = int(np.prod(w.shape[2:]))
    return total * steps * 2.0**-24


def case(seed):
    r = random.Random(seed)
    n, groups = r.choice((1, 2, 2, 2, 3)), r.choice((1, 1, 2))
    batch, depth, outs = r.choice((1, 3)), r.choice((1, 9, 32, 40, 70)), r.choice((9, 17, 32, 50))
    kernel = [r.choice((1, 2, 3)) for _ in range(n)]
    spread = [1] * n if r.random() < 0.7 else [r.choice((1, 2, 3)) for _ in range(n)]
    space = [r.choice((1, 5, 12, 21) if n > 1 else (1, 9, 1300)) for _ in range(n)]
    params = {
        "stride": tuple(1 if max(spread) > 1 else r.choice((1, 2, 3)) for _ in range(n)), "spread": tuple(spread),
        "dilation": tuple(r.choice((1, 1, 2)) for _ in range(n)), "lo": tuple(r.choice((0, 1, 2, -1)) for _ in range(n)),
        "size": tuple(r.randint(1, s + 3) for s in space), "flip": r.random() < 0.5,
    }  # fmt: skip
    return r, (batch, groups, depth, *space), (groups, outs, depth, *kernel), params


@pytest.mark.parametrize("wide", [False, True], ids=["rounded", "float32"])
def test_any_sizes_strides_and_layouts(tiles, wide):
    for seed in range(40):
        r, x, w, params = case(seed)
        rng = np.random.default_rng(seed)
        orders = [r.sample(range(len(s)), len(s)) if r.random() < 0.6 else None for s in (x, w)]
        arrays = [numbers(rng, s, "bfloat16", o) for s, o in zip((x, w), orders, strict=True)]
        bias = [numbers(rng, w[:2], "float32" if wide else "bfloat16")] if r.random() < 0.4 else []
        result = FLOAT32 if wide else BFLOAT16
        dtypes = [BFLOAT16, BFLOAT16, result][: 2 + len(bias)]
        graph = trace_arrays(lambda *xs, p=params, d=result: WINDOWS(*xs, **p, dtype=d), [*arrays, *bias], dtypes)
        got = Ran(graph, [*arrays, *bias]).results[0].astype(np.float64)
        doubles = (a.astype(np.float64) for a in (*arrays, *bias))
        want = WINDOWS.reference(*doubles, **params, dtype=BY_NAME["float64"])
        most = bound(*arrays, params) + np.abs(want) * (2.0**-23 if wide else ROUNDING)
        assert (np.abs(got - want) <= most + 1e-30).all(), f"{seed} {x} {w} {params}"
    assert MatrixForm in tiles


LAYERS = [
    ((3, 40, 20, 19), (36, 40, 3, 3), {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}),
    ((2, 64, 29, 30), (48, 64, 3, 3), {"stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 1}),
    ((2, 40, 21, 33), (70, 40, 5, 3), {"stride": (2, 1), "padding": (2, 1), "dilation": (1, 2), "groups": 1}),
    ((4, 64, 15, 15), (96, 32, 3, 3), {"stride": (1, 1), "padding": (2, 2), "dilation": (2, 2), "groups": 2}),
    ((9, 70, 7, 7), (33, 70, 3, 3), {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}),
    ((2, 33, 2100), (34, 33, 5), {"stride": (1,), "padding": (4,), "dilation": (2,), "groups": 1}),
    ((2, 96, 17, 17), (64, 96, 1, 1), {"stride": (2, 2), "padding": (0, 0), "dilation": (1, 1), "groups": 1}),
]


def layer(x, w, params, last=False, seed=0):
    """The graphs of a layer and of its gradients, with bfloat16 arrays for both."""
    rng = np.random.default_rng(seed)
    order = (0, *range(2, len(x)), 1) if last else None
    arrays = [numbers(rng, s, "bfloat16", order) for s in (x, w)]

    def function(x, w):
        return build.convert(CONV(build.convert(x, FLOAT32), build.convert(w, FLOAT32), **params), BFLOAT16)

    forward = trace_arrays(function, arrays, [BFLOAT16] * 2)
    cotangent = numbers(rng, forward.outputs[0].shape, "bfloat16", order)
    backward = vjp(forward, [0, 1]).backward
    by_shape = {a.shape: a for a in (*arrays, cotangent)}
    return forward, arrays, backward, [by_shape[v.shape] for v in backward.inputs]


def gradients(x, w, cotangent, params):
    """Both gradients in float64, tap by tap."""
    n = x.ndim - 2
    groups, depth = params["groups"], w.shape[1]
    x, w, cotangent = (a.astype(np.float64) for a in (x, w, cotangent))
    padded = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in params["padding"])])
    gx, gw = np.zeros_like(padded), np.zeros_like(w)
    outs = w.shape[0] // groups
    for tap in np.ndindex(*w.shape[2:]):
        window = tuple(
            slice(t * d, t * d + (size - 1) * s + 1, s)
            for t, d, s, size in zip(tap, params["dilation"], params["stride"], cotangent.shape[2:], strict=True)
        )
        for g in range(groups):
            c, o = slice(g * depth, (g + 1) * depth), slice(g * outs, (g + 1) * outs)
            seen, given = padded[(slice(None), c, *window)], cotangent[:, o]
            flat = [0, *range(2, 2 + n)]
            gw[(o, slice(None), *tap)] += np.tensordot(given, seen, (flat, flat))
            gx[(slice(None), c, *window)] += np.moveaxis(
                np.tensordot(given, w[(o, slice(None), *tap)], ((1,), (0,))), -1, 1
            )
    inner = tuple(slice(p, p + s) for p, s in zip(params["padding"], x.shape[2:], strict=True))
    return gx[(slice(None), slice(None), *inner)], gw


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("x, w, params", LAYERS, ids=lambda v: "x".join(map(str, v)) if isinstance(v, tuple) else "")
def test_gradients(tiles, x, w, params, last):
    _, arrays, backward, given = layer(x, w, params, last)
    cotangent = next(a for a in given if not any(a is b for b in arrays))
    wanted = gradients(*arrays, cotangent, params)
    by_shape = dict(zip((x, w), wanted, strict=True))
    most = dict(zip((x, w), gradients(*(np.abs(a) for a in (*arrays, cotangent)), params), strict=True))
    steps = max(np.prod(cotangent.shape) // cotangent.shape[1], np.prod(w) // w[1])
    for got in Ran(backward, given).results:
        want = by_shape[got.shape]
        limit = most[got.shape] * steps * 2.0**-24 + np.abs(want) * ROUNDING + 1e-30
        assert (np.abs(got.astype(np.float64) - want) <= limit).all()
    assert SumsForm in tiles and set(tiles) <= {MatrixForm, SumsForm}


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
def test_what_is_outside_does_not_matter(tiles, last):
    """NaN reaches exactly the results whose windows hold it: none comes from fillings, or from what memory held before."""
    params = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    for side in (9, 14, 21):
        forward, arrays, backward, given = layer((2, 40, side, side), (33, 40, 3, 3), params, last)
        for array in arrays:  # scratch memory is full of NaN afterwards
            array[:] = np.nan
        Ran(forward, arrays)
        Ran(backward, given)
        forward, arrays, backward, given = layer((2, 40, side, side), (33, 40, 3, 3), params, last)
        assert np.isfinite(Ran(forward, arrays).results[0]).all()
        arrays[0][1, 7, 0, side - 1] = np.nan
        want = np.zeros((2, 33, side, side), bool)
        want[1, :, :2, side - 2 :] = True
        np.testing.assert_array_equal(np.isnan(Ran(forward, arrays).results[0]), want)
        sums = np.zeros((33, 40, 3, 3), bool)
        sums[:, 7, :2, 1:] = True  # by the taps that meet this corner
        results = {r.shape: r for r in Ran(backward, given).results}
        np.testing.assert_array_equal(np.isnan(results[33, 40, 3, 3]), sums)
        assert np.isfinite(results[2, 40, side, side]).all()
    assert {MatrixForm, SumsForm} <= set(tiles)


@pytest.mark.parametrize("x, w, params", LAYERS[:3], ids=["plain", "strided", "dilated"])
def test_bits_do_not_depend_on_threads(tiles, x, w, params):
    forward, arrays, backward, given = layer(x, w, params)
    before, seen = threads.get_num_threads(), []
    try:
        for count in (1, 2, 3, 8):
            threads.set_num_threads(count)
            results = Ran(forward, arrays).results + Ran(backward, given).results
            seen.append([r.tobytes() for r in results])
    finally:
        threads.set_num_threads(before)
    assert all(bits == seen[0] for bits in seen[1:])
    assert {MatrixForm, SumsForm} <= set(tiles)


def test_chunks_of_steps_are_added(tiles, monkeypatch):
    """Few results and many steps: sums of several pieces, which are added and rounded once."""
    monkeypatch.setattr(conv, "MATRIX_GRAIN", 1 << 12)
    params = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    x, w = (8, 40, 33, 33), (48, 40, 3, 3)
    _, arrays, backward, given = layer(x, w, params)
    cotangent = next(a for a in given if not any(a is b for b in arrays))
    want = gradients(*arrays, cotangent, params)[1]
    most = gradients(*(np.abs(a) for a in (*arrays, cotangent)), params)[1]
    got = next(r for r in Ran(backward, given).results if r.shape == w)
    limit = most * (8 * 33 * 33) * 2.0**-24 + np.abs(want) * ROUNDING
    assert (np.abs(got.astype(np.float64) - want) <= limit).all()
    assert SumsForm in tiles


def test_large_convolutions_choose_tiles(monkeypatch):
    """Forward and both gradients of an ordinary layer, by the estimated time alone."""
    seen, cut = [], conv._best_cut

    def watched(whole, forms):
        chosen = cut(whole, forms)
        seen.append(type(chosen[0]))
        return chosen

    monkeypatch.setattr(conv, "_best_cut", watched)
    params = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    forward, arrays, backward, given = layer((2, 64, 28, 28), (64, 64, 3, 3), params)
    Ran(forward, arrays)
    Ran(backward, given)
    assert sorted(form.__name__ for form in seen) == ["MatrixForm", "MatrixForm", "SumsForm"]

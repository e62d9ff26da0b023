"""The reference against truth from elsewhere: SciPy, mpmath-free closed forms, and values written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from tests.prim_cases import CASES, Case

from rushlight._backends.reference import run
from rushlight._graph.core import trace
from rushlight._prims import PRIMITIVES, numbers, prim
from rushlight._prims.elementwise.pointwise import trigamma
from rushlight._types.dtype import BFLOAT16, BY_NAME, FLOAT32, FLOAT64, INT16, INT32, INT64

inf, nan = np.inf, np.nan


def apply(name, *arrays, **params):
    """Run one primitive on arrays."""
    arrays = [np.asarray(a) for a in arrays]
    graph = trace(lambda *xs: PRIMITIVES[name](*xs, **params), [(a.shape, BY_NAME[a.dtype.name]) for a in arrays])
    result = run(graph, arrays)
    return result if PRIMITIVES[name].multiple else result[0]


SPECIAL = {
    "erf": scipy.special.erf, "erfc": scipy.special.erfc, "erfinv": scipy.special.erfinv, "lgamma": scipy.special.gammaln,
    "digamma": scipy.special.digamma,
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_against_scipy(name: str) -> None:
    x = np.linspace(-1, 1, 101) if name == "erfinv" else np.concatenate([np.linspace(-6.3, 30, 200), [inf, -inf, nan]])
    want = SPECIAL[name](x)
    if name == "lgamma":
        want[-2] = inf
    if name == "digamma":
        want[-2] = nan
    np.testing.assert_allclose(apply(name, x), want, rtol=1e-13, atol=1e-14)


def test_trigamma_against_scipy() -> None:
    x = np.linspace(-6.3, 30, 200)
    graph = trace(trigamma, [((200,), FLOAT64)])
    np.testing.assert_allclose(run(graph, [x])[0], scipy.special.polygamma(1, x), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("round", [0.5, 1.5, 2.5, -0.5, nan, inf], [0.0, 2.0, 2.0, -0.0, nan, inf]),
        ("sign", [-2.0, -0.0, 3.0, nan, -inf], [-1.0, 0.0, 1.0, 0.0, -1.0]),
        ("rsqrt", [0.0, -0.0, 4.0, inf, -1.0], [inf, -inf, 0.5, 0.0, nan]),
        ("trunc", [-1.7, 1.7, -0.2], [-1.0, 1.0, -0.0]),
        ("log", [0.0, -1.0, inf], [-inf, nan, inf]),
        ("abs", [-0.0, -3.0, nan, -inf], [0.0, 3.0, nan, inf]),
        ("erfinv", [1.0, -1.0, 2.0, 0.0], [inf, -inf, nan, 0.0]),
    ],
)
def test_special_values(name: str, x: list[float], want: list[float]) -> None:
    got = apply(name, np.array(x))
    np.testing.assert_array_equal(got, want)
    numbers_ = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[numbers_], np.signbit(want)[numbers_])


def test_signbit_sees_minus_zero() -> None:
    np.testing.assert_array_equal(apply("signbit", np.array([-0.0, 0.0, -1.0, inf])), [True, False, True, False])


def test_extremes_propagate_nan() -> None:
    a, b = np.array([1.0, nan, 2.0]), np.array([nan, 0.0, 3.0])
    np.testing.assert_array_equal(apply("maximum", a, b), [nan, nan, 3.0])
    np.testing.assert_array_equal(apply("minimum", a, b), [nan, nan, 2.0])
    np.testing.assert_array_equal(apply("amax", a, dims=(0,)), nan)
    np.testing.assert_array_equal(apply("amin", a, dims=(0,)), nan)


def test_positions_take_the_first_and_nan_wins() -> None:
    x = np.array([1.0, 3.0, 3.0, 0.0, 0.0])
    assert apply("argmax", x, dim=0) == 1 and apply("argmin", x, dim=0) == 3
    x = np.array([1.0, nan, 3.0, nan])
    assert apply("argmax", x, dim=0) == 1 and apply("argmin", x, dim=0) == 1


def test_running_extremes_take_the_last_and_nan_stays() -> None:
    values, places = apply("cummax", np.array([1.0, 3.0, 3.0, nan, 2.0, nan]), dim=0)
    np.testing.assert_array_equal(values, [1, 3, 3, nan, nan, nan])
    np.testing.assert_array_equal(places, [0, 1, 2, 3, 3, 5])
    values, places = apply("cummin", np.array([2, 2, 5, 1]), dim=0)
    np.testing.assert_array_equal(values, [2, 2, 2, 1])
    np.testing.assert_array_equal(places, [0, 1, 1, 3])


def test_sort_puts_nan_last_and_keeps_the_order_of_equals() -> None:
    x = np.array([2.0, nan, 1.0, 2.0, -inf])
    values, places = apply("sort", x, dim=0, descending=False, stable=True)
    np.testing.assert_array_equal(values, [-inf, 1, 2, 2, nan])
    np.testing.assert_array_equal(places, [4, 2, 0, 3, 1])
    values, places = apply("sort", x, dim=0, descending=True, stable=True)
    np.testing.assert_array_equal(values, [nan, 2, 2, 1, -inf])
    np.testing.assert_array_equal(places, [1, 0, 3, 2, 4])


def test_integer_division() -> None:
    a, b = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    np.testing.assert_array_equal(apply("div_trunc", a, b), [3, -3, -3, 3])
    np.testing.assert_array_equal(apply("rem_trunc", a, b), [1, -1, 1, -1])
    np.testing.assert_array_equal(apply("rem_trunc", a * 1.5, b * 1.0), np.fmod(a * 1.5, b))


def test_integer_power() -> None:
    a, b = np.array([2, -3, 1, -1, -1, 2, 0]), np.array([10, 3, -5, -3, -4, -1, 0])
    np.testing.assert_array_equal(apply("pow", a, b), [1024, -27, 1, -1, 1, 0, 1])


def test_shifts_out_of_range() -> None:
    a, b = np.array([1, -8, -8, 5]), np.array([64, 1, 70, -1])
    np.testing.assert_array_equal(apply("shift_left", a, b), [0, -16, 0, 0])
    np.testing.assert_array_equal(apply("shift_right", a, b), [0, -4, -1, 0])
    np.testing.assert_array_equal(apply("shift_right", np.array([200], "uint8"), np.array([9], "uint8")), [0])


def test_bfloat16_rounds_to_nearest_even() -> None:
    x = np.array([1.0, 1.00390625, 1.01171875, 3.4e38, nan, 1e-40, -2.3], dtype="float32")  # two halfway cases
    got = apply("convert", x, dtype=BFLOAT16)
    np.testing.assert_array_equal(
        got, np.array([1.0, 1.0, 1.015625, inf, nan, 9.18355e-41, -2.296875], dtype="float32")
    )
    bits = apply("bitcast", apply("bitcast", np.array([0x3F81, -1], dtype="int16"), dtype=BFLOAT16), dtype=INT32)
    assert bits[0] == 0x3F810000
    graph = trace(lambda x: prim.bitcast(x, dtype=INT16), [((2,), BFLOAT16)])
    np.testing.assert_array_equal(
        run(graph, [np.array([1.0, -2.0], "float32")])[0], np.array([0x3F80, -0x4000], "int16")
    )


def test_convert_cuts_toward_zero_and_tests_for_bool() -> None:
    np.testing.assert_array_equal(apply("convert", np.array([-1.9, 1.9, -0.5]), dtype=INT64), [-1, 1, 0])
    np.testing.assert_array_equal(
        apply("convert", np.array([0.0, 0.1, nan]), dtype=BY_NAME["bool"]), [False, True, True]
    )
    np.testing.assert_array_equal(apply("convert", np.array([2j, 0j]), dtype=BY_NAME["bool"]), [True, False])
    np.testing.assert_array_equal(apply("convert", np.array([1 + 2j]), dtype=FLOAT32), [1.0])
    np.testing.assert_array_equal(apply("convert", np.array([300, -1]), dtype=BY_NAME["uint8"]), [44, 255])


def test_scatter_writes_in_order() -> None:
    x, index, src = np.zeros(3), np.array([1, 1, -1]), np.array([5.0, 6.0, 7.0])
    np.testing.assert_array_equal(apply("scatter", x, index, src, dim=0, reduce="set"), [0, 6, 7])
    np.testing.assert_array_equal(apply("scatter", x, index, src, dim=0, reduce="add"), [0, 11, 7])
    np.testing.assert_array_equal(apply("scatter", x + 1, index, src, dim=0, reduce="mul"), [1, 30, 7])
    np.testing.assert_array_equal(apply("scatter", x, index, -src, dim=0, reduce="amin"), [0, -6, -7])
    np.testing.assert_array_equal(apply("index_put", x, src, index, accumulate=False), [0, 6, 7])


def test_unwindow_is_the_transpose_of_window() -> None:
    for case in (c for c in CASES if c.primitive.name == "window"):
        x = case.arrays[0].astype("float64")
        windows = apply("window", x, **case.params)
        g = np.random.default_rng(0).normal(size=windows.shape)
        back = apply("unwindow", g, shape=x.shape, **case.params)
        np.testing.assert_allclose(np.vdot(windows, g), np.vdot(x, back))


@pytest.mark.parametrize("case", [c for c in CASES if c.primitive.decompose is not None], ids=repr)
def test_decomposition_agrees(case: Case) -> None:
    graph = case.graph()
    other = trace(lambda *xs: case.primitive.decompose(*xs, **case.params), [(v.shape, v.dtype) for v in graph.inputs])
    tolerance = 1e-12 if case.double else 1e-5
    for want, got in zip(run(graph, case.arrays), run(other, case.arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def without_elements(case: Case) -> bool:
    return case.primitive.empty is not None and 0 in [
        n for v in (*case.arrays, *case.graph().outputs[:1]) for n in v.shape
    ]


@pytest.mark.parametrize("case", [c for c in CASES if without_elements(c)], ids=repr)
def test_rules_for_nothing_agree(case: Case) -> None:
    graph = case.graph()
    other = trace(lambda *xs: case.primitive.empty(*xs, **case.params), [(v.shape, v.dtype) for v in graph.inputs])
    for want, got in zip(run(graph, case.arrays), run(other, case.arrays), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("case", [c for c in CASES if c.primitive.layout is not None], ids=repr)
def test_layout_rules_describe_the_same_elements(case: Case) -> None:
    x = np.asarray(case.arrays[0], order="F")  # strides that are not the usual ones
    strides = tuple(s // x.itemsize for s in x.strides)
    found = case.primitive.layout(x.shape, strides, 0, **case.params)
    want = apply(case.primitive.name, x, **case.params)
    if found is None:
        return
    shape, steps, offset = found
    flat = np.lib.stride_tricks.as_strided(x, (max(x.size, 1),), (x.itemsize,)) if x.size else x.reshape(-1)
    got = (
        np.lib.stride_tricks.as_strided(flat[offset:], shape, [s * x.itemsize for s in steps])
        if want.size
        else np.empty(shape, x.dtype)
    )
    np.testing.assert_array_equal(got, want)
    assert numbers.holder(case.graph().outputs[0].dtype) == want.dtype.name

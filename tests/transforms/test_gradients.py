"""Reverse and forward mode: against each other, against differences, twice over, and at the places where rules must choose."""

from __future__ import annotations

import numpy as np
import pytest
from tests.prim_cases import CASES, Case, each_case, inner, random, run_gradient
from tests.rows import each_row

from rushlight._backends.reference import run
from rushlight._graph.core import evaluate, trace
from rushlight._graph.verifier import verify
from rushlight._prims import build, prim
from rushlight._prims.record import ByDecomposition
from rushlight._transforms.jvp import jvp
from rushlight._transforms.vjp import carries_gradient, vjp
from rushlight._types.dtype import BFLOAT16, BOOL, COMPLEX128, FLOAT16, FLOAT32, FLOAT64, INT64

DIFFERENTIABLE = [c for c in CASES if c.differentiable]
# Rounding steps and NaN have no differences to compare with.
SMOOTH = [
    c for c in DIFFERENTIABLE
    if c.double and all(np.isfinite(a).all() for a in c.arrays) and c.primitive.name not in ("floor", "ceil", "trunc", "round")
]  # fmt: skip


def directional(graph, arrays, wrt, tangents) -> list[np.ndarray]:
    """Central differences of the float outputs along the tangents."""
    step = 1e-6

    def at(scale: float):
        moved = list(arrays)
        for i, t in zip(wrt, tangents, strict=True):
            moved[i] = arrays[i] + scale * step * t
        return [r for r, v in zip(run(graph, moved), graph.outputs, strict=True) if carries_gradient(v.dtype)]

    return [(a - b) / (2 * step) for a, b in zip(at(1), at(-1), strict=True)]


@each_case(DIFFERENTIABLE)
def test_reverse_is_the_transpose_of_forward(case: Case) -> None:
    """<u, J v> = <J' u, v>."""
    graph = case.graph()
    wrt = case.wrt
    gradient = vjp(graph, wrt)
    for part in (gradient.forward, gradient.backward):
        verify(part)
    cts = [random(graph.outputs[j].shape, graph.outputs[j].dtype, 5 + j) for j in gradient.cotangents]
    results, grads = run_gradient(gradient, case.arrays, cts)
    for got, want in zip(results, run(graph, case.arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    tangents = [random(graph.inputs[i].shape, graph.inputs[i].dtype, 9 + i) for i in wrt]
    forward = jvp(graph, [i in wrt for i in range(len(graph.inputs))])
    verify(forward)
    moved = run(forward, [*case.arrays, *tangents])[len(graph.outputs) :]
    pairs = [(g, t) for g, t in zip(grads, tangents, strict=True) if g is not None]
    left, right = inner(cts, moved), inner([g for g, _ in pairs], [t for _, t in pairs])
    half = any(
        v.dtype in (FLOAT16, BFLOAT16) for v in (graph.outputs[0], *graph.inputs)
    )  # gradients are rounded to the inputs' dtype
    tolerance = 1e-9 if case.double else 1e-2 if half else 1e-4
    assert left == pytest.approx(right, rel=tolerance, abs=tolerance)


DECOMPOSED = [
    c
    for c in DIFFERENTIABLE
    if (isinstance(c.primitive.vjp, ByDecomposition) or isinstance(c.primitive.jvp, ByDecomposition))
    and not (
        c.primitive.name in ("ragged_attention_grad", "recurrence_grad") and c.number > 0
    )  # a thousand nodes each, made alike
]
LENT = {"as they are": lambda x: x, "of another shape": lambda x: x.reshape(-1), "turned": lambda x: x.T}
SEEN = {"as they are": lambda v, x: v, "of another shape": lambda v, x: build.reshape(v, x.shape),
        "turned": lambda v, x: prim.transpose(v, perm=tuple(range(x.ndim))[::-1])}  # fmt: skip


@each_row((c.primitive.name, f"{c!r}, {how}", (c, how)) for c in DECOMPOSED for how in ("of another shape", "turned"))
def test_a_decomposition_begins_at_its_operands(case: Case, how: str) -> None:
    """What a decomposition is made of may be simplified together with what made an operand, and the path must not go around that operand."""
    found = []
    for way in ("as they are", how):
        lent = [np.ascontiguousarray(LENT[way](a)) for a in case.arrays]
        graph = trace(
            lambda *xs, way=way: case.primitive(
                *(SEEN[way](v, a) for v, a in zip(xs, case.arrays, strict=True)), **case.params
            ),
            [(a.shape, v.dtype) for a, v in zip(lent, case.graph().inputs, strict=True)],
        )
        gradient = vjp(graph, case.wrt)
        cts = [random(graph.outputs[j].shape, graph.outputs[j].dtype, 5 + j) for j in gradient.cotangents]
        grads = run_gradient(gradient, lent, cts)[1]
        wanted = [np.ascontiguousarray(LENT[how](g)) if way == "as they are" and g is not None else g for g in grads]
        tangents = [
            LENT[way](random(case.arrays[i].shape, v.dtype, 9 + i))
            for i, v in zip(case.wrt, [graph.inputs[i] for i in case.wrt], strict=True)
        ]
        forward = jvp(graph, [i in case.wrt for i in range(len(graph.inputs))])
        found.append((wanted, run(forward, [*lent, *map(np.ascontiguousarray, tangents)])))
    tolerance = 1e-9 if case.double else 1e-4
    for got, want in zip([*found[1][0], *found[1][1]], [*found[0][0], *found[0][1]], strict=True):
        assert (got is None) == (want is None)
        if got is not None and want is not None:
            np.testing.assert_allclose(np.asarray(got, dtype=want.dtype), want, rtol=tolerance, atol=tolerance)


@each_case(SMOOTH)
def test_forward_against_differences(case: Case) -> None:
    graph = case.graph()
    wrt = case.wrt
    tangents = [random(graph.inputs[i].shape, graph.inputs[i].dtype, 9 + i) for i in wrt]
    forward = jvp(graph, [i in wrt for i in range(len(graph.inputs))])
    moved = run(forward, [*case.arrays, *tangents])[len(graph.outputs) :]
    for got, want in zip(moved, directional(graph, case.arrays, wrt, tangents), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


@each_case(SMOOTH)
def test_the_gradient_of_the_gradient(case: Case) -> None:
    """The backward graph is a graph like any other: its own gradient is right too."""
    graph = case.graph()
    wrt = case.wrt

    def grads_of(*inputs):
        """The gradient as a graph of the inputs and the cotangents, nothing saved."""
        arguments, cts = inputs[: len(graph.inputs)], inputs[len(graph.inputs) :]
        outs = evaluate(gradient.forward, arguments)
        count = len(graph.outputs)
        find = {"input": lambda i: arguments[i], "output": lambda i: outs[i], "residual": lambda i: outs[count + i]}
        found = evaluate(gradient.backward, [*(find[k](i) for k, i in gradient.saved), *cts])
        return [found[i] for i in gradient.grads if i is not None]

    gradient = vjp(graph, wrt)
    cts = [random(graph.outputs[j].shape, graph.outputs[j].dtype, 5 + j) for j in gradient.cotangents]
    avals = [(v.shape, v.dtype) for v in graph.inputs] + [
        (graph.outputs[j].shape, graph.outputs[j].dtype) for j in gradient.cotangents
    ]
    second = trace(grads_of, avals)
    arrays = [*case.arrays, *cts]
    apart = set(range(len(graph.inputs))) - set(wrt)  # inputs by which nobody has the derivative
    places = [i for i, v in enumerate(second.inputs) if carries_gradient(v.dtype) and i not in apart]
    tangents = [random(second.inputs[i].shape, second.inputs[i].dtype, 30 + i) for i in places]
    outer = vjp(second, places)
    upper = [random(v.shape, v.dtype, 50 + j) for j, v in enumerate(second.outputs)]
    _, grads = run_gradient(outer, arrays, upper)
    want = inner(upper, directional(second, arrays, places, tangents))
    pairs = [(g, t) for g, t in zip(grads, tangents, strict=True) if g is not None]
    got = inner([g for g, _ in pairs], [t for _, t in pairs])
    assert got == pytest.approx(want, rel=1e-4, abs=1e-5)


# ***** where a rule must choose *****


def gradient_at(function, *arrays, ct=1.0):
    arrays = [np.asarray(a, dtype="float64") for a in arrays]
    graph = trace(function, [(a.shape, FLOAT64) for a in arrays])
    cts = [np.full(v.shape, ct) for v in graph.outputs if carries_gradient(v.dtype)]
    return run_gradient(vjp(graph, range(len(arrays))), arrays, cts)[1]


@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("abs", [-2.0, 0.0, 3.0], [-1, 0, 1]),
        ("sqrt", [0.0, 4.0], [np.inf, 0.25]),
        ("sign", [-1.0, 0.0], [0, 0]),
        ("floor", [0.5, 1.0], [0, 0]),
        ("log", [0.0], [np.inf]),
    ],
)
def test_unary_choices(name, x, want) -> None:
    (got,) = gradient_at(lambda v: getattr(prim, name)(v), x)
    np.testing.assert_array_equal(got, want)


def test_ties_of_maximum_and_minimum_are_split() -> None:
    for name in ("maximum", "minimum"):
        a, b = gradient_at(lambda x, y, n=name: getattr(prim, n)(x, y), [1.0, 2.0, 3.0], [3.0, 2.0, 1.0])
        wins = [0, 0.5, 1] if name == "maximum" else [1, 0.5, 0]
        np.testing.assert_array_equal(a, wins)
        np.testing.assert_array_equal(b, wins[::-1])


def test_ties_of_amax_share_evenly_and_nan_gives_nan() -> None:
    (g,) = gradient_at(lambda x: prim.amax(x, dims=(1,)), [[1.0, 5.0, 5.0, 5.0], [2.0, 1.0, np.nan, 0.0]])
    np.testing.assert_array_equal(g, [[0, 1 / 3, 1 / 3, 1 / 3], [np.nan] * 4])


def test_power_at_zero() -> None:
    base, exponent = gradient_at(lambda a, b: prim.pow(a, b), [0.0, 0.0, 0.0, 2.0, -2.0], [0.0, 1.0, 2.0, 0.0, 2.0])
    np.testing.assert_array_equal(base, [0, 1, 0, 0, -4])
    np.testing.assert_array_equal(exponent[:3], [0, 0, 0])
    assert exponent[3] == pytest.approx(np.log(2)) and np.isnan(exponent[4])


def test_products_with_zeros() -> None:
    (g,) = gradient_at(lambda x: prim.prod(x, dims=(1,)), [[2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [2.0, 5.0, 3.0]])
    np.testing.assert_array_equal(g, [[0, 6, 0], [0, 0, 0], [15, 6, 10]])
    (g,) = gradient_at(lambda x: prim.cumprod(x, dim=0, reverse=False), [2.0, 0.0, 3.0, 0.0])
    np.testing.assert_array_equal(g, [1, 2 + 6, 0, 0])


def test_product_of_factors_scattered_onto_zeros() -> None:
    index = np.array([0, 0, 1, 1, 2])
    graph = trace(
        lambda x, i, s: prim.scatter(x, i, s, dim=0, reduce="mul"), [((3,), FLOAT64), ((5,), INT64), ((5,), FLOAT64)]
    )
    arrays = [np.array([2.0, 3.0, 0.0]), index, np.array([0.0, 5.0, 0.0, 0.0, 7.0])]
    _, (gx, gs) = run_gradient(vjp(graph, [0, 2]), arrays, [np.ones(3)])
    np.testing.assert_array_equal(gx, [0, 0, 7])
    np.testing.assert_array_equal(gs, [10, 0, 0, 0, 0])


def test_infinite_cotangents_do_not_leak_through_what_was_not_chosen() -> None:
    a, b = gradient_at(lambda x, y: prim.maximum(x, y), [1.0], [2.0], ct=np.inf)
    assert a[0] == 0 and b[0] == np.inf


def test_complex_gradients_follow_pytorch() -> None:
    """d|z|^2 = 2z: the cotangent of z holds the derivatives by its real and its imaginary part."""
    z = np.array([1 + 2j, -3j])
    graph = trace(lambda z: prim.real(z * prim.conj(z)), [((2,), COMPLEX128)])
    _, (g,) = run_gradient(vjp(graph, [0]), [z], [np.ones(2)])
    np.testing.assert_allclose(g, 2 * z)


# ***** masks, connection, dtypes *****


def test_no_path_gives_none_and_a_flat_path_gives_zeros() -> None:
    graph = trace(lambda x, y, z: (prim.floor(x) + y, prim.exp(z)), [((2,), FLOAT64)] * 3)
    gradient = vjp(graph, [0, 1, 2], [True, False])
    assert gradient.grads == [0, 1, None] and gradient.cotangents == [0]
    _, (gx, gy, gz) = run_gradient(gradient, [np.ones(2)] * 3, [np.full(2, 3.0)])
    np.testing.assert_array_equal(gx, [0, 0])
    np.testing.assert_array_equal(gy, [3, 3])
    assert gz is None and gradient.saved == []


def test_nothing_flows_through_integers() -> None:
    graph = trace(lambda x: build.convert(build.convert(x, INT64), FLOAT64) * 2.0, [((2,), FLOAT64)])
    assert vjp(graph, [0]).grads == [None]


def test_undefined_cotangents_are_never_made() -> None:
    graph = trace(lambda x, y: (x * y, build.dot(x, y)), [((3, 3), FLOAT64)] * 2)
    gradient = vjp(graph, [0, 1], [True, False])
    assert [n.prim.name for n in gradient.backward.nodes] == ["mul", "mul"]


def test_without_a_derivative_it_says_so() -> None:
    graph = trace(lambda x, y: prim.nextafter(x, y), [((2,), FLOAT64)] * 2)
    with pytest.raises(RuntimeError, match="nextafter is not implemented: it steps"):
        vjp(graph, [0])
    with pytest.raises(RuntimeError, match="nextafter"):
        jvp(graph, [True, False])
    assert vjp(trace(lambda x, y: prim.nextafter(x, x) * y, [((2,), FLOAT64)] * 2), [1]).grads == [0]


def test_half_precision_gradients_are_added_in_single() -> None:
    graph = trace(lambda x: (build.convert(x, FLOAT32), build.convert(x, FLOAT32) * 2.0, x), [((3,), BFLOAT16)])
    gradient = vjp(graph, [0])
    verify(gradient.backward)
    cts = [np.full(3, 1.0, "float32"), np.full(3, 0.00390625, "float32"), np.full(3, 1.0, "float32")]
    _, (g,) = run_gradient(gradient, [np.ones(3, "float32")], cts)
    np.testing.assert_array_equal(g, np.full(3, 2.0, "float32"))  # 2.0078 rounded once to bfloat16
    graph = trace(lambda x, i: prim.index(x, i), [((4,), FLOAT16), ((6,), INT64)])
    verify(vjp(graph, [0]).backward)


def test_scalars_given_at_run_time_stay_scalars() -> None:
    graph = trace(lambda x, a: x * a, [((3,), FLOAT32), ((), FLOAT64, True)])
    gradient = vjp(graph, [0])
    assert gradient.saved == [("input", 1)] and gradient.backward.inputs[0].weak
    _, (g,) = run_gradient(gradient, [np.ones(3, "float32"), 2.5], [np.ones(3, "float32")])
    np.testing.assert_array_equal(g, np.full(3, 2.5, "float32"))


# ***** what is saved *****

BIG, ROW = (64, 512), (64,)


def softmax(x):
    top = build.keep_dims(prim.amax(x, dims=(1,)), x.shape, (1,))
    e = prim.exp(x - top)
    return e / build.keep_dims(prim.sum(e, dims=(1,)), x.shape, (1,))


@pytest.mark.parametrize(
    ("function", "count", "saved"),
    [
        (lambda x: prim.exp(x), 1, [("output", 0)]),
        (lambda x: prim.tanh(x), 1, [("output", 0)]),
        (lambda x: prim.sqrt(x), 1, [("output", 0)]),
        (lambda x, y: x / y, 2, [("input", 0), ("input", 1)]),  # the quotient may be changed in place
        (lambda x: prim.erfinv(x), 1, [("input", 0)]),
        (lambda x: prim.sin(x), 1, [("input", 0)]),
        (lambda x, y: x + y, 2, []),
        (lambda x, y: x * y, 2, [("input", 0), ("input", 1)]),
        (lambda x: 0.5 * x * (1.0 + prim.erf(x * 0.7)), 1, [("input", 0)]),
        (lambda x: prim.sin(prim.exp(x)), 1, [("input", 0)]),
        (lambda x: prim.exp(prim.sin(x)), 1, [("input", 0)]),
        (lambda x: prim.sum(x, dims=(0, 1)), 1, []),
        (lambda x: prim.cumsum(x, dim=1, reverse=False), 1, []),
        (softmax, 1, [("input", 0), ("residual", 0), ("residual", 1)]),
    ],
)
def test_what_is_saved(function, count, saved) -> None:
    graph = trace(function, [(BIG, FLOAT32)] * count)
    gradient = vjp(graph, range(count))
    assert gradient.saved == saved
    for value in gradient.forward.outputs[1:]:
        assert value.shape == ROW, "only row-sized results are worth keeping"


def test_heavy_results_are_not_computed_again() -> None:
    graph = trace(lambda a, b: prim.tanh(build.dot(a, b) * 2.0), [((8, 4), FLOAT32), ((4, 8), FLOAT32)])
    gradient = vjp(graph, [0, 1])
    assert sum(n.prim.name == "dot" for n in gradient.backward.nodes) == 2  # the two gradients, not the product again
    assert ("output", 0) in gradient.saved
    graph = trace(lambda a, b: prim.sin(build.dot(a, b)), [((8, 4), FLOAT32), ((4, 8), FLOAT32)])
    gradient = vjp(graph, [0, 1])
    assert ("residual", 0) in gradient.saved and gradient.forward.outputs[1].node.prim.name == "dot"
    graph = trace(lambda x: prim.sort(x, dim=0, descending=False, stable=True)[0], [((8,), FLOAT32)])
    gradient = vjp(graph, [0])
    assert gradient.saved == [("residual", 0)] and gradient.forward.outputs[1].dtype is INT64


def test_an_overwritten_input_is_not_saved() -> None:
    graph = trace(lambda x: prim.sin(x), [(BIG, FLOAT32)])
    gradient = vjp(graph, [0], overwritten=[0])
    assert gradient.saved == [("residual", 0)]
    assert vjp(trace(lambda x: prim.exp(x), [(BIG, FLOAT32)]), [0], overwritten=[0]).saved == [("output", 0)]


def test_saved_values_come_in_a_fixed_order() -> None:
    def function(a, b, c):
        return prim.sin(a) * prim.cos(b) * prim.exp(c)

    found = {tuple(vjp(trace(function, [(BIG, FLOAT32)] * 3), [0, 1, 2]).saved) for _ in range(20)}
    assert found == {(("input", 0), ("input", 1), ("input", 2))}


def test_after_the_forward_all_else_is_computed_again() -> None:
    graph = trace(softmax, [(BIG, FLOAT64)])
    gradient = vjp(graph, [0], only=[("input", 0)])
    assert gradient.saved == [("input", 0)] and len(gradient.forward.outputs) == 1
    x, ct = random(BIG, FLOAT64, 1), random(BIG, FLOAT64, 2)
    np.testing.assert_allclose(
        run_gradient(gradient, [x], [ct])[1][0], run_gradient(vjp(graph, [0]), [x], [ct])[1][0], atol=1e-14
    )
    with pytest.raises(NotImplementedError, match="not saved"):
        vjp(graph, [0], only=[("output", 0)])


# ***** hand-written gradients *****


def test_a_hand_written_rule_goes_through_the_same_cut() -> None:
    def body(x):
        top = prim.amax(x, dims=(1,))
        e = prim.exp(x - build.keep_dims(top, x.shape, (1,)))
        return e / build.keep_dims(prim.sum(e, dims=(1,)), x.shape, (1,))

    def rule(cts, outs, x):
        (ct,), (y,) = cts, outs
        return (y * (ct - build.keep_dims(prim.sum(ct * y, dims=(1,)), y.shape, (1,))),)

    graph = trace(body, [(BIG, FLOAT64)])
    gradient = vjp(graph, [0], rule=rule)
    assert gradient.saved == [("output", 0)]
    x, ct = random(BIG, FLOAT64, 1), random(BIG, FLOAT64, 2)
    _, (by_hand,) = run_gradient(gradient, [x], [ct])
    _, (derived,) = run_gradient(vjp(graph, [0]), [x], [ct])
    np.testing.assert_allclose(by_hand, derived, atol=1e-12)


def test_a_rule_may_use_residuals_and_must_fit() -> None:
    def body(x):
        mask = x > 0.0
        return build.select(mask, x, build.zeros_like(x)), mask

    graph = trace(body, [(BIG, FLOAT32)])
    gradient = vjp(
        graph, [0], rule=lambda cts, outs, x: (build.select(outs[1], cts[0], build.zeros_like(x)),), outputs=1
    )
    # one byte an element is less than four, but it would have to be written: the mask is computed again
    assert gradient.saved in ([("residual", 0)], [("input", 0)]) and len(gradient.forward.outputs) <= 2
    with pytest.raises(ValueError, match="0 cotangents for 1 inputs"):
        vjp(graph, [0], rule=lambda cts, outs, x: (), outputs=1)
    with pytest.raises(ValueError, match="for input 0"):
        vjp(graph, [0], rule=lambda cts, outs, x: (prim.sum(x, dims=(0,)),), outputs=1)


def test_a_rule_gets_zeros_for_undefined_cotangents_and_none_for_indices() -> None:
    seen = []

    def rule(cts, outs, x):
        seen.extend(cts)
        return (cts[0] + cts[1],)

    graph = trace(lambda x: (prim.sin(x), prim.cos(x), x > 0.0), [((3,), FLOAT64)])
    gradient = vjp(graph, [0], [True, False, False], rule=rule)
    assert seen[1].node.prim.name == "full" and seen[2] is None
    assert [n.prim.name for n in gradient.backward.nodes] == []
    assert gradient.backward.outputs[0] is gradient.backward.inputs[0]
    assert graph.outputs[2].dtype is BOOL

"""Simplification: what each rule makes of a graph, and that no value changes by it, NaN, infinity and minus zero included."""

from __future__ import annotations

import numpy as np
import pytest
from tests.prim_cases import CASES, Case, each_case

from rushlight._backends.reference import run
from rushlight._graph.core import trace
from rushlight._graph.verifier import verify
from rushlight._prims import build, prim
from rushlight._transforms.simplify import EXACT, GRADIENT, simplify
from rushlight._types.dtype import BFLOAT16, BOOL, COMPLEX128, FLOAT16, FLOAT32, FLOAT64, INT32, INT64, UINT8

HARD = np.array([[0.0, -0.0, np.nan, np.inf], [-np.inf, 1.5, -2.0, 1e-320], [3.0, 0.1, 1e308, -1e-5]])
F64 = [((3, 4), FLOAT64)]


def names(graph) -> list[str]:
    return [node.prim.name for node in graph.nodes]


def reshaped(x, *shape):
    return prim.reshape(x, shape=shape)


def spread(x, shape, dims):
    return prim.broadcast(x, shape=shape, dims=dims)


# function of a float64[3, 4], the primitives that are left
EXACT_CASES = {
    "x*1": (lambda x: x * 1.0, []),
    "1*x": (lambda x: 1.0 * x, []),
    "x*-1": (lambda x: x * -1.0, ["neg"]),
    "x/1": (lambda x: x / 1.0, []),
    "x/-1": (lambda x: x / -1.0, ["neg"]),
    "x*0 stays": (lambda x: x * 0.0, ["full", "mul"]),
    "x+0 stays": (lambda x: x + 0.0, ["full", "add"]),
    "x+-0": (lambda x: x + -0.0, []),
    "x-0": (lambda x: x - 0.0, []),
    "0-x stays": (lambda x: 0.0 - x, ["full", "sub"]),
    "--x": (lambda x: prim.neg(prim.neg(x)), []),
    "x+-y": (lambda x: x + -prim.exp(x), ["exp", "sub"]),
    "-x+y": (lambda x: -x + prim.exp(x), ["exp", "sub"]),
    "x--y": (lambda x: x - -prim.exp(x), ["exp", "add"]),
    "-x*-y": (lambda x: -x * -prim.exp(x), ["exp", "mul"]),
    "constants": (lambda x: x * (build.full_like(x, 2.0) * build.full_like(x, 0.25)), ["full", "mul"]),
    "one over zero stays": (lambda x: x + build.full_like(x, 1.0) / 0.0, ["full", "full", "div", "add"]),
    "same twice": (lambda x: prim.exp(x) + prim.exp(x), ["exp", "add"]),
    "max(x, x)": (lambda x: prim.maximum(x, x), []),
    "transposed back": (lambda x: prim.transpose(prim.transpose(x, perm=(1, 0)), perm=(1, 0)), []),
    "reshape twice": (lambda x: reshaped(reshaped(x, 12), 2, 6), ["reshape"]),
    "reshape back": (lambda x: reshaped(reshaped(x, 12), 3, 4), []),
    "new dims by broadcast, then reshape": (lambda x: reshaped(spread(x, (1, 3, 1, 4), (1, 3)), 12), ["reshape"]),
    "transpose of dims of size 1": (lambda x: reshaped(prim.transpose(reshaped(x, 3, 1, 4), perm=(1, 0, 2)), 12), ["reshape"]),
    "broadcast twice": (lambda x: spread(spread(x, (2, 3, 4), (1, 2)), (5, 2, 3, 4), (1, 2, 3)), ["broadcast"]),
    "broadcast of added dims": (lambda x: spread(reshaped(x, 3, 1, 4), (3, 7, 4), (0, 1, 2)), ["broadcast"]),
    "broadcast of a constant": (lambda x: spread(build.full((4,), 2.0, FLOAT64), (3, 4), (1,)) * x, ["full", "mul"]),
    "flip twice": (lambda x: prim.flip(prim.flip(x, dims=(0, 1)), dims=(1,)), ["flip"]),
    "flip of one": (lambda x: prim.flip(reshaped(x, 1, 12), dims=(0,)), ["reshape"]),
    "slice of slice": (
        lambda x: prim.slice(prim.slice(x, starts=(0, 1), stops=(3, 4), steps=(2, 1)), starts=(1, 0), stops=(2, 3), steps=(1, 2)),
        ["slice"],
    ),
    "slice of all": (lambda x: prim.slice(x, starts=(0, 0), stops=(3, 4), steps=(1, 1)), []),
    "pad and back": (
        lambda x: prim.slice(
            prim.pad(x, value=1.0, lo=(1, 2), hi=(0, 3), interior=(0, 1)), starts=(1, 2), stops=(4, 9), steps=(1, 2)),
        [],
    ),
    "pad by nothing": (lambda x: prim.pad(x, value=1.0, lo=(0, 0), hi=(0, 0), interior=(0, 0)), []),
    "cat of one": (lambda x: prim.cat(x, build.full((0, 4), 0, FLOAT64), dim=0), []),
    "sum of no dims": (lambda x: prim.sum(x, dims=()), []),
    "sum of dims of size 1": (lambda x: prim.amax(reshaped(x, 3, 1, 4), dims=(1,)), []),
    "sum of some of size 1": (lambda x: prim.sum(reshaped(x, 3, 1, 4), dims=(1, 2)), ["sum"]),
    "sum of zeros": (lambda x: prim.sum(build.zeros_like(x), dims=(0,)), ["full"]),
    "select of equals": (lambda x: build.select(x > 0.0, x, x), []),
    "xor twice": (lambda x: build.convert(~~(x > 0.0), FLOAT64), ["full", "lt", "convert"]),
    "xor with two constants": (
        lambda x: build.convert(build.convert(x, INT32) ^ build.full(x.shape, 5, INT32) ^ build.full(x.shape, 3, INT32), FLOAT64),
        ["convert", "full", "bitwise_xor", "full", "bitwise_xor", "convert"],
    ),
    "select by not": (lambda x: build.select(~(x > 0.0), x, prim.exp(x)), ["full", "lt", "exp", "select"]),
    "select by true": (lambda x: prim.select(build.full((3, 4), True, BOOL), x, prim.exp(x)), []),
    "select of select": (lambda x: build.select(x > 0.0, build.select(x > 0.0, x, -x), prim.exp(x)), ["full", "lt", "exp", "select"]),
    "there and back": (lambda x: build.convert(build.convert(build.convert(x, FLOAT32), FLOAT64), FLOAT32), ["convert"]),
    "narrow stays": (lambda x: build.convert(build.convert(x, FLOAT32), FLOAT64), ["convert", "convert"]),
    "dead code": (lambda x: (prim.sin(x), x)[1], []),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT_CASES)
def test_exact_rules(name: str) -> None:
    function, left = EXACT_CASES[name]
    graph = trace(function, F64)
    simple = simplify(graph)
    verify(simple)
    assert names(simple) == left
    for got, want in zip(run(simple, [HARD]), run(graph, [HARD]), strict=True):
        np.testing.assert_array_equal(got, want)
        real = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[real], np.signbit(want)[real])


# rules that only gradients use
GRADIENT_CASES = {
    "x+0": (lambda x: x + 0.0, []),
    "two sides of one choice": (
        lambda x: (
            build.select(x > 0.0, x, build.zeros_like(x)) + build.select(x > 0.0, build.zeros_like(x), prim.exp(x))
        ),
        ["full", "lt", "exp", "select"],
    ),
    "sum of copies": (lambda x: prim.sum(spread(x, (5, 3, 4), (1, 2)), dims=(0,)), ["full", "mul"]),
    "sum of copies and of others": (
        lambda x: prim.sum(spread(x, (3, 4, 5), (0, 1)), dims=(1, 2)),
        ["full", "mul", "sum"],
    ),
    "sum over a dim that grew": (
        lambda x: prim.sum(spread(reshaped(x, 3, 1, 4), (3, 6, 4), (0, 1, 2)), dims=(1,)),
        ["full", "mul"],
    ),
    "mean of copies": (lambda x: prim.sum(spread(x, (5, 3, 4), (1, 2)), dims=(0,)) / 5.0, []),
}


@pytest.mark.parametrize("name", GRADIENT_CASES)
def test_gradient_rules(name: str) -> None:
    function, left = GRADIENT_CASES[name]
    graph = trace(function, F64)
    simple = simplify(graph, gradient=True)
    verify(simple)
    assert names(simple) == left
    x = np.where(HARD == 1e308, 7.0, HARD)  # n x may overflow where n times x / n does not
    np.testing.assert_allclose(run(simple, [x])[0], run(graph, [x])[0], rtol=1e-15)


@each_case(CASES)
def test_single_primitives_keep_their_values(case: Case) -> None:
    graph = case.graph()
    for got, want in zip(run(simplify(graph, gradient=True), case.arrays), run(graph, case.arrays), strict=True):
        np.testing.assert_array_equal(got, want)


CHAINS = [
    (FLOAT16, FLOAT32, BFLOAT16, 1), (BFLOAT16, FLOAT32, BFLOAT16, 0), (FLOAT32, BFLOAT16, FLOAT32, 2), (FLOAT16, BFLOAT16, FLOAT32, 2),
    (INT32, FLOAT64, FLOAT32, 1), (INT64, FLOAT64, FLOAT32, 2), (INT32, INT64, FLOAT32, 1), (UINT8, INT32, FLOAT16, 1),
    (INT32, UINT8, INT32, 2), (BOOL, FLOAT32, INT64, 1), (FLOAT32, COMPLEX128, FLOAT64, 1), (FLOAT64, FLOAT32, BOOL, 2),
]  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS, ids=lambda c: "-".join(getattr(d, "name", str(d)) for d in c))
def test_chains_of_conversions(chain) -> None:
    source, middle, target, left = chain
    graph = trace(lambda x: build.convert(build.convert(x, middle), target), [((4,), source)])
    assert len(simplify(graph).nodes) == left


def test_constants_are_rounded_as_their_dtype_is() -> None:
    graph = trace(lambda x: x + build.convert(build.full((2,), 0.1, FLOAT32), FLOAT64), [((2,), FLOAT64)])
    simple = simplify(graph)
    assert "convert" in names(simple) or next(n for n in simple.nodes if n.prim.name == "full").params["value"] != 0.1
    np.testing.assert_array_equal(run(simple, [np.zeros(2)])[0], run(graph, [np.zeros(2)])[0])
    graph = trace(lambda x: x + build.full((2,), 0.1, FLOAT32) * build.full((2,), 3.0, FLOAT32), [((2,), FLOAT32)])
    assert names(simplify(graph)) == ["full", "add"]
    x = np.zeros(2, "float32")
    np.testing.assert_array_equal(run(simplify(graph), [x])[0], run(graph, [x])[0])


def test_complex_parts() -> None:
    graph = trace(lambda z: prim.complex(prim.real(z), prim.imag(z)), [((2,), COMPLEX128)])
    assert names(simplify(graph)) == []
    graph = trace(lambda z: prim.real(prim.conj(prim.conj(z))), [((2,), COMPLEX128)])
    assert names(simplify(graph)) == ["real"]
    graph = trace(lambda z: prim.imag(prim.conj(z)), [((2,), COMPLEX128)])
    assert names(simplify(graph)) == ["imag", "neg"]
    graph = trace(lambda z: z * 1.0, [((2,), COMPLEX128)])
    assert names(simplify(graph)) == ["full", "mul"]  # (inf + 0i) * (1 + 0i) has a NaN in it


def test_a_scalar_given_at_run_time_is_no_constant_and_keeps_its_conversion() -> None:
    graph = trace(lambda x, a: x * build.convert(a, FLOAT64), [((2,), FLOAT64), ((), FLOAT64, True)])
    simple = simplify(graph)
    np.testing.assert_array_equal(run(simple, [np.ones(2), 3.0])[0], [3.0, 3.0])


def test_rules_have_names_and_say_what_they_do() -> None:
    assert len({r.name for r in GRADIENT}) == len(GRADIENT)
    assert set(EXACT) < set(GRADIENT)
    assert all(r.doc and r.prims for r in GRADIENT)

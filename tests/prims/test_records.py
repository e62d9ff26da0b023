"""Every record is complete, strict, and its reference keeps the promises of its spec."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from tests.prim_cases import CASES, Case, each_case

from rushlight._backends.reference import run
from rushlight._graph.core import GraphBuilder, trace
from rushlight._prims import PRIMITIVES, build, not_differentiable, prim
from rushlight._prims.record import Primitive
from rushlight._types.dtype import BOOL, FLOAT16, FLOAT32, FLOAT64, INT64

FAMILIES = {"pointwise", "comparison", "shape", "create", "reduce", "scan", "indexed", "heavy"}


def test_there_are_few() -> None:
    """What can be written with others at no cost is an operator's body, or a function of `build`, and no primitive."""
    assert len(PRIMITIVES) == 133
    root = Path(__file__).parents[2]
    for page in (
        "docs/architecture.md",
        "CONTRIBUTING.md",
        "src/rushlight/_prims/__init__.py",
    ):  # wherever it is stated
        assert "133" in (root / page).read_text(encoding="utf-8"), f"{page} states another number of primitives"


@pytest.mark.parametrize("primitive", PRIMITIVES.values(), ids=lambda p: p.name)
def test_record_is_complete(primitive: Primitive) -> None:
    assert primitive.doc[0].isprintable() and primitive.doc.endswith((".", ")."))
    assert primitive.family in FAMILIES
    assert isinstance(primitive.lower, tuple) and isinstance(primitive.lower[0], str)
    for rule in (primitive.spec, primitive.reference, primitive.batch, primitive.samples):
        assert callable(rule)
    for rule in (primitive.vjp, primitive.jvp):
        assert callable(rule) or (isinstance(rule, not_differentiable) and rule.why)
    assert isinstance(primitive.vjp, not_differentiable) == isinstance(primitive.jvp, not_differentiable)
    assert list(primitive.samples()), "no samples"
    assert getattr(prim, primitive.name) is primitive
    assert pickle.loads(pickle.dumps(primitive)) is primitive


@each_case(CASES)
def test_reference_keeps_the_spec(case: Case) -> None:
    before = [a.copy() for a in case.arrays]
    run(case.graph(), case.arrays)  # checks shapes and dtypes of all results
    for a, b in zip(case.arrays, before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", [p.name for p in PRIMITIVES.values() if p.family in ("pointwise", "comparison")])
def test_pointwise_is_strict(name: str) -> None:
    case = next(c for c in CASES if c.primitive.name == name)
    if len(case.arrays) < 2:
        return
    kinds = [(a.shape, a.dtype) for a in case.arrays]
    shapes = [(*kinds[0][0], 2), *(k[0] for k in kinds[1:])]
    with pytest.raises(ValueError, match="one shape"):
        trace(
            lambda *xs: PRIMITIVES[name](*xs, **case.params),
            [(s, x.dtype) for s, x in zip(shapes, case.graph().inputs, strict=True)],
        )


def test_half_types_are_refused_where_numbers_are_computed() -> None:
    for name in ("add", "exp", "sum", "cumsum"):
        params = {"sum": {"dims": (0,)}, "cumsum": {"dim": 0, "reverse": False}}.get(name, {})
        with pytest.raises(TypeError, match="convert to float32"):
            trace(
                lambda *xs, n=name, p=params: PRIMITIVES[n](*xs, **p), [((3,), FLOAT16)] * (2 if name == "add" else 1)
            )


def test_half_types_take_part_in_what_moves_data() -> None:
    chosen = trace(lambda c, a, b: prim.select(c, a, b), [((3,), BOOL), ((3,), FLOAT16), ((3,), FLOAT16)])
    picked = trace(lambda x, i: prim.gather(x, i, dim=0), [((3,), FLOAT16), ((3,), INT64)])
    padded = trace(lambda x: prim.pad(x, value=0.0, lo=(1,), hi=(1,), interior=(0,)), [((3,), FLOAT16)])
    assert [(g.outputs[0].dtype, g.outputs[0].shape) for g in (chosen, picked, padded)] == [
        (FLOAT16, (3,)),
        (FLOAT16, (3,)),
        (FLOAT16, (5,)),
    ]


def test_no_promotion() -> None:
    with pytest.raises(TypeError, match="one dtype"):
        trace(lambda a, b: prim.add(a, b), [((3,), FLOAT32), ((3,), FLOAT64)])
    with pytest.raises(TypeError, match="convert one of them first"):
        trace(lambda a, b: a + b, [((3,), FLOAT32), ((3,), FLOAT64)])


def test_outside_of_a_trace() -> None:
    with pytest.raises(RuntimeError, match="outside of a trace"):
        prim.exp(1.0)
    with GraphBuilder(), pytest.raises(TypeError, match="takes traced values"):
        prim.exp(1.0)
    with pytest.raises(AttributeError, match="no primitive 'expo'"):
        prim.expo


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: prim.reshape(x, shape=(4, 2)), ValueError, "6 elements"),
        (lambda x: prim.transpose(x, perm=(0, 0)), ValueError, "permute"),
        (lambda x: prim.slice(x, starts=(0, 0), stops=(2, 4), steps=(1, 1)), ValueError, "0:4:1"),
        (lambda x: prim.slice(x, starts=(0, 0), stops=(2, 3), steps=(1, 0)), ValueError, "range"),
        (lambda x: prim.broadcast(x, shape=(2, 4), dims=(0, 1)), ValueError, "does not fit"),
        (lambda x: prim.broadcast(x, shape=(3, 2), dims=(1, 0)), ValueError, "do not place"),
        (lambda x: prim.flip(x, dims=(2,)), ValueError, "not dims"),
        (lambda x: prim.sum(x, dims=(0, 0)), ValueError, "not dims"),
        (lambda x: prim.cat(x, dim=2), ValueError, "dim 2"),
        (lambda x: build.dot(x, x), ValueError, "M, K"),
        (lambda x: prim.window(x, dims=(1,), size=(4,), stride=(1,), dilation=(1,)), ValueError, "size 4"),
        (lambda x: prim.topk(x, k=4, dim=1, largest=True, sorted=True), ValueError, "k=4"),
        (lambda x: prim.gather(x, prim.iota(shape=(2, 3), dim=0, dtype=FLOAT32), dim=0), TypeError, "int64"),
        (lambda x: prim.amax(build.full((0, 3), 0, FLOAT32), dims=(0,)), ValueError, "no elements"),
        (lambda x: prim.bitcast(x, dtype=FLOAT64), TypeError, "4 bytes"),
        (lambda x: prim.iota(shape=(2,), dim=1, dtype=FLOAT32), ValueError, "dim 1"),
        (lambda x: prim.full(shape=[2], value=1.0, dtype=FLOAT32), ValueError, "tuple"),
    ],
)
def test_specs_refuse(call, error, text) -> None:
    with pytest.raises(error, match=text):
        trace(call, [((2, 3), FLOAT32)])


def test_indices_are_checked_when_run() -> None:
    graph = trace(lambda x, i: prim.index(x, i), [((4, 2), FLOAT64), ((2,), INT64)])
    with pytest.raises(IndexError, match="index 4 is out of bounds for dimension 0 with size 4"):
        run(graph, [np.zeros((4, 2)), np.array([0, 4])])
    graph = trace(lambda x, i: prim.gather(x, i, dim=0), [((4,), FLOAT64), ((2,), INT64)])
    with pytest.raises(IndexError, match="index -5"):
        run(graph, [np.zeros(4), np.array([0, -5])])


def test_integer_division_by_zero_is_an_error() -> None:
    for name in ("div_trunc", "rem_trunc"):
        graph = trace(lambda a, b, n=name: PRIMITIVES[n](a, b), [((2,), INT64)] * 2)
        with pytest.raises(ZeroDivisionError):
            run(graph, [np.array([1, 2]), np.array([1, 0])])

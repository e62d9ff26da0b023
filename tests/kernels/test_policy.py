"""Policies of targets: the schedule asks its target for every threshold and every routine, and knows no machine."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from tests.kernels.kernel_harness import Ran, trace_arrays

from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.program.assemble import compile_graph
from rushlight._backends.cpu.program.steps import MAX_FRESH, ExternStep, KernelStep
from rushlight._graph.core import trace
from rushlight._prims import build, prim
from rushlight._schedule.library import CallForm, Library
from rushlight._types.dtype import FLOAT32

ROOM = Path(__file__).parents[2] / "src" / "rushlight" / "_schedule"
ERROR_CODES = {"INDEX_ERROR, RUNTIME_ERROR"}  # what kernels return, on every machine


def numbers_in(path: Path) -> list[str]:
    """Assignments of plain numbers at the level of a module."""
    named = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and node.value is not None:
            parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            plain = [
                p for p in ast.walk(ast.Tuple(parts)) if isinstance(p, ast.Constant) and type(p.value) in (int, float)
            ]
            calls = any(isinstance(p, ast.Call) for part in parts for p in ast.walk(part))
            if plain and not calls:
                named.append(ast.unparse(node.targets[0]).strip("()"))
    return named


@pytest.mark.parametrize("path", sorted(ROOM.glob("*.py")), ids=lambda p: p.name)
def test_the_schedule_has_no_numbers_of_its_own(path: Path) -> None:
    assert not set(numbers_in(path)) - ERROR_CODES, "thresholds belong to `Policy`"


def with_policy(**changes):
    return host()._replace(policy=host().policy._replace(**changes))


def test_a_kernel_stores_no_more_than_the_policy_says() -> None:
    graph = trace(lambda x: tuple(x * float(k) for k in range(2, 8)), [((100,), FLOAT32)])
    for most in (1, 2, MAX_FRESH):
        steps = compile_graph(graph, [(1,)], target=with_policy(max_stores=most)).steps
        assert [len(step.sizes) for step in steps] == [most] * (6 // most) + [6 % most] * (6 % most > 0)


def test_pieces_follow_the_policy() -> None:
    graph = trace(lambda x: x + 1.0, [((1 << 16,), FLOAT32)])
    pieces = [
        compile_graph(graph, [(1,)], target=with_policy(piece=size, least_piece=1, max_pieces=64))
        .steps[0]
        .kernel.pieces
        for size in (1 << 10, 1 << 14, 1 << 20)
    ]
    assert pieces[0] == 64 and 1 < pieces[1] < 64 and pieces[2] == 1


def test_a_long_reduction_is_cut_from_the_work_that_the_policy_leaves_to_one_thread() -> None:
    x = np.random.default_rng(0).standard_normal(50_000).astype(np.float32)
    graph = trace_arrays(lambda v: prim.sum(v, dims=(0,)), [x])
    whole, cut = (Ran(graph, [x], target=with_policy(serial_work=work)) for work in (1 << 20, 1 << 10))
    assert [len(ran.program.steps) for ran in (whole, cut)] == [1, 2]
    for ran in (whole, cut):
        np.testing.assert_allclose(ran.results[0], x.sum(dtype=np.float64), rtol=1e-4, atol=1e-3)


def test_what_is_expensive_is_stored_before_it_is_repeated() -> None:
    def body(x, y):
        return prim.broadcast(prim.exp(prim.sin(x)), shape=(64, 128), dims=(1,)) + y

    graph = trace(body, [((128,), FLOAT32), ((64, 128), FLOAT32)])
    kept, inlined = (
        compile_graph(graph, [(1,), (128, 1)], target=with_policy(expensive=cost)).notes for cost in (8, 1e9)
    )
    assert any("keeps" in note for note in kept) and not any("keeps" in note for note in inlined)


# ***** libraries *****


class OnlyProducts(Library):
    """A library with one routine, which takes row-major operands."""

    def replacement(self, node):
        return None if node.prim.name == "dot" else node.prim.decompose

    def form(self, node) -> CallForm:
        return CallForm()


def test_heavy_primitives_without_a_routine_are_decomposed() -> None:
    graph = trace(
        lambda x, w: prim.conv(x, w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1),
        [((2, 3, 8, 8), FLOAT32), ((4, 3, 3, 3), FLOAT32)],
    )
    layouts = [(192, 64, 8, 1), (27, 9, 3, 1)]
    ours = compile_graph(graph, layouts, target=host())
    other = compile_graph(graph, layouts, target=host()._replace(library=OnlyProducts()))
    assert [s.name for s in ours.steps if isinstance(s, ExternStep)] == ["conv_windows"]
    assert [s.name for s in other.steps if isinstance(s, ExternStep)] == ["dot"]


def test_operands_are_made_dense_where_a_routine_asks_for_it() -> None:
    graph = trace(lambda a, b: build.dot(a, b), [((40, 50), FLOAT32), ((50, 60), FLOAT32)])
    layouts = [(1, 40), (60, 1)]
    ours = compile_graph(graph, layouts, target=host())
    other = compile_graph(graph, layouts, target=host()._replace(library=OnlyProducts()))
    assert [type(s) for s in ours.steps] == [ExternStep]
    assert [type(s) for s in other.steps] == [KernelStep, ExternStep] and other.steps[1].inputs[0].strides == (50, 1)


def test_no_epilogue_where_the_library_has_none() -> None:
    graph = trace(lambda a, b: build.dot(a, b) + 1.0, [((40, 50), FLOAT32), ((50, 60), FLOAT32)])
    layouts = [(50, 1), (60, 1)]
    assert len(compile_graph(graph, layouts, target=host()).steps) == 1
    other = compile_graph(graph, layouts, target=host()._replace(library=OnlyProducts()))
    assert [type(s) for s in other.steps] == [ExternStep, KernelStep]

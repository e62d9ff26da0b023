"""Compiled functions with collectives, and compiled data parallel training: eager's bits."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from tests.distributed.programs import compiled_programs as programs
from tests.distributed.programs import compiled_tensors as tensors
from tests.distributed.ranks import Ranks

import rushlight as torch
import rushlight.distributed as dist
import rushlight.distributed._functional_collectives as fc
from rushlight._backends.cpu.program.overlap import divided_collectives, early, overlapped
from rushlight.distributed.fsdp import MixedPrecisionPolicy


def test_collectives_of_four_ranks(four: Ranks) -> None:
    four.run(programs.functional, ["sum", "two in order", "chain", "parts"])
    four.run(programs.in_place, ["reduced", "grouped"])


@pytest.mark.distributed
def test_all_collectives_of_four_ranks(four: Ranks) -> None:
    four.run(programs.functional, timeout=200.0)
    four.run(programs.in_place, timeout=200.0)


def test_what_is_no_part_of_a_program_is_named(four: Ranks) -> None:
    for text in four.run(programs.broken):
        assert "barrier of torch.distributed cannot be part of a recorded program" in text


def test_training_in_parallel(four: Ranks) -> None:
    four.run(programs.data_parallel, ["plain"], ["step", "module"], timeout=200.0)


@pytest.mark.distributed
@pytest.mark.parametrize("name", programs.SETTINGS)
def test_training_with_all_settings(four: Ranks, name: str) -> None:
    four.run(programs.data_parallel, [name], ["step", "module", "inside"], timeout=200.0)


@pytest.mark.distributed
def test_programs_that_end_at_buckets(four: Ranks) -> None:
    four.run(programs.divided, timeout=200.0)


def test_a_step_is_one_graph_whose_reductions_overlap(four: Ranks) -> None:
    for launches in four.run(programs.whole_step):
        starts, ends = ([k for k, x in enumerate(launches) if x == name] for name in ("start_there", "finish"))
        assert len(starts) == len(ends) >= 3 and launches.count("run_there") <= 1, launches
        assert all("kernel" in launches[a:b] for a, b in zip(starts, ends, strict=True)), launches
        assert starts[1] < ends[0], launches


def test_failures_and_further_uses(four: Ranks) -> None:
    for text in four.run(programs.failing):
        assert "index 2000 is out of bounds" in text
    four.run(programs.again)
    four.run(programs.normalized)


KEPT = """
import rushlight as torch, rushlight.distributed as dist
import rushlight.distributed._functional_collectives as fc
from rushlight._capture.recording.running.kept import COUNTS

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
f = lambda x: fc.all_reduce(x.square() * 3.28125, "avg", None).sum() / dist.get_world_size()
x = torch.arange(7.0, requires_grad=True)
found = torch.compile(f, fullgraph=True)(x)
found.backward()
print(COUNTS["linked"], COUNTS["kept"], found.item() == f(x).item(), x.grad.tolist() == (6.5625 * x).tolist())
"""


@pytest.mark.distributed
def test_linked_programs_are_kept() -> None:
    """What one process has linked is read by the next one, forward and backward."""
    first, second = (
        subprocess.run(
            [sys.executable, "-c", KEPT],
            env={**os.environ, "RUSHLIGHT_KEEP_PLANS": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for _ in range(2)
    )
    assert first[2:] == second[2:] == ["True", "True"] and second[:2] == ["0", "1"], (first, second)


def test_programs_know_their_groups() -> None:
    """A group that is gone is an error; another default group makes another program."""
    compiled = torch.compile(lambda x: fc.all_reduce(x * 2, "sum", None) + dist.get_rank(), fullgraph=True)
    for turn in (1, 2):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        try:
            own = dist.new_group([0])
            of_group = torch.compile(lambda x, own=own: fc.all_reduce(x * 2, "sum", own))
            assert compiled(torch.ones(2)).tolist() == of_group(torch.ones(2)).tolist() == [2.0, 2.0]
            with pytest.raises(RuntimeError, match="is not measured by itself"):
                compiled._compiled.entry.segments[-1].program.step_times()
            dist.destroy_process_group(own)
            with pytest.raises(dist.DistBackendError, match="which has been destroyed"):
                of_group(torch.ones(2))
        finally:
            dist.destroy_process_group()
        with pytest.raises(ValueError, match="has not been initialized"):
            compiled(torch.ones(2))
        assert len(compiled._compiled.entry.segments) == turn


def test_small_reductions_become_one_where_asked_for(four: Ranks) -> None:
    assert four.run(programs.small_ones) == [1, 1, 1, 1]


def test_modules_over_a_mesh_compile_to_what_they_are(four: Ranks) -> None:
    four.run(programs.over_mesh, timeout=100.0)


@pytest.mark.parametrize(
    "case", [c if "perceptron" in c else pytest.param(c, marks=pytest.mark.slow) for c in tensors.CASES]
)
def test_training_steps_over_a_mesh_are_one_graph(four: Ranks, case: str) -> None:
    for segments in four.run(tensors.parallel_steps, case, timeout=200.0):
        assert len(segments) == 2
        for launches in segments:
            collectives = [name for name in launches if name in ("start", "start_there", "run", "run_there")]
            assert len(collectives) >= (2 if "perceptron" in case else 6), launches


ALONE = [("perceptron", "wrapped"), ("sharded perceptron", "in place"), ("2d perceptron", "wrapped")]


@pytest.mark.parametrize(("case", "how"), ALONE)
def test_a_module_alone_is_one_graph(four: Ranks, case: str, how: str) -> None:
    """Its backward runs outside; the graph has the collectives of forward."""
    for parts in four.run(tensors.modules_alone, case, how, timeout=100.0):
        for launches in parts:
            assert set(launches) & {"start", "start_there", "run", "run_there"}, launches


@pytest.mark.distributed
@pytest.mark.parametrize("how", ["wrapped", "in place", "parts"])
@pytest.mark.parametrize("case", tensors.CASES)
def test_all_modules_alone(four: Ranks, case: str, how: str) -> None:
    four.run(tensors.modules_alone, case, how, timeout=300.0)


BROKEN = [("sequence", "residual", "parts"), ("sharded", "between", "step")]


@pytest.mark.slow
@pytest.mark.parametrize(("division", "place", "how"), BROKEN)
def test_a_forward_that_breaks_goes_on(four: Ranks, division: str, place: str, how: str) -> None:
    four.run(tensors.broken, division, place, how, timeout=200.0)


@pytest.mark.distributed
@pytest.mark.parametrize("how", ["module", "parts", "step"])
@pytest.mark.parametrize("place", ["between", "residual"])
@pytest.mark.parametrize("division", tensors.DIVISIONS)
def test_all_forwards_that_break_go_on(four: Ranks, division: str, place: str, how: str) -> None:
    four.run(tensors.broken, division, place, how, timeout=300.0)


def test_what_leaves_a_program_has_its_history(four: Ranks) -> None:
    four.run(tensors.leaving, timeout=100.0)


@pytest.mark.distributed
@pytest.mark.parametrize("name", tensors.SETTINGS)
def test_settings_of_sharded_modules(four: Ranks, name: str) -> None:
    four.run(tensors.sharded_settings, [name], timeout=200.0)


def test_programs_know_how_their_tensors_lie(four: Ranks) -> None:
    four.run(tensors.guarded, timeout=100.0)


# ***** the pass by itself *****


def launch(name: str, reads: str, writes: str, collective: bool = False, moved: int = 1 << 16) -> Any:
    """A launch over memory that letters name."""
    made = SimpleNamespace(halves=(1, 2) if collective else None)
    return SimpleNamespace(name=name, reads=set(reads), writes=set(writes), launch=made, moved=moved)


BF16 = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
CHECKPOINTED = [
    (tensors.keep_products, False, "parts", BF16),
    (tensors.keep_products, False, "step", {}),
    (tensors.keep_all, False, "step", {}),
    (None, False, "parts", {}),
    (tensors.keep_products, True, "step", {}),
    (tensors.keep_all, True, "parts", {}),
    (None, True, "step", BF16),
]
FEW = [row if k in (0, 4) else pytest.param(*row, marks=pytest.mark.distributed) for k, row in enumerate(CHECKPOINTED)]


@pytest.mark.parametrize(("policy", "inside", "how", "settings"), FEW)
def test_checkpoints_of_sharded_modules(four: Ranks, policy: Any, inside: bool, how: str, settings: Any) -> None:
    four.run(tensors.checkpointed, policy, inside, how, settings, timeout=200.0)


def test_policies_see_no_gathering(four: Ranks) -> None:
    four.run(tensors.policies_of_sharded_modules)


def halves(x: Any) -> tuple[Any, Any]:
    (out,) = x.writes - {"o", "p", "q"}
    return launch(f"{x.name} begins", "".join(x.reads), "".join(x.writes)), launch(
        f"{x.name} ends", "".join(x.reads - {"o", "p"}) + out, out
    )


def names(launches: list[Any]) -> list[str]:
    return [x.name for x in launches]


def test_collectives_begin_early_and_end_late() -> None:
    program = [
        launch("a", "x", "a"), launch("b", "a", "b"), launch("c", "b", "c"), launch("pack", "a", "k"),
        launch("first", "ko", "pr", True), launch("second", "bp", "qs", True), launch("read", "rc", "d"), launch("last", "ds", "e"),
    ]  # fmt: skip
    assert names(early(program)) == ["a", "pack", "first", "b", "second", "c", "read", "last"]
    assert names(overlapped(program, halves)) == [
        "a", "pack", "first begins", "b", "second begins", "c", "first ends", "read", "second ends", "last",
    ]  # fmt: skip


def test_calls_of_a_group_keep_their_order() -> None:
    """The second is ready before the first, and waits for it."""
    program = [
        launch("slow", "x", "y"),
        launch("first", "yo", "pr", True),
        launch("second", "xp", "qs", True),
        launch("end", "rs", "e"),
    ]
    assert names(early(program)) == ["slow", "first", "second", "end"]


def test_little_work_is_not_worth_another_thread() -> None:
    program = [launch("first", "xo", "pr", True), launch("small", "y", "z", moved=100), launch("read", "r", "e")]
    assert names(divided_collectives(program, halves)) == ["first", "small", "read"]


def test_an_operand_is_not_written_before_the_end() -> None:
    program = [
        launch("first", "xo", "pr", True),
        launch("much", "y", "z"),
        launch("write", "z", "x"),
        launch("read", "r", "e"),
    ]
    assert names(divided_collectives(program, halves)) == ["first begins", "much", "first ends", "write", "read"]


def test_the_compiler_knows_classes_and_functions_by_where_they_are() -> None:
    """A class or a function that moves to another module must move in the compiler's tables too."""
    from rushlight._base.own_names import own_module
    from rushlight._capture.trace.settings import HOOKS

    torch.compile(lambda x: x + 1)(torch.ones(1))  # fills the tables
    assert HOOKS.wrappers and HOOKS.communicating
    for (place, name), _attributes in HOOKS.wrappers.items():
        held = getattr(importlib.import_module(place), name)
        assert (own_module(held.__module__), held.__qualname__) == (place, name)
    for place, names in HOOKS.communicating.items():
        members = list(vars(importlib.import_module(place)).values())
        members += [f for c in members if isinstance(c, type) for f in vars(c).values()]
        found = {getattr(m, "__name__", "") for each in members for m in (getattr(each, "__func__", each),)}
        assert names <= found, (place, names - found)

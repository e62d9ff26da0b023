"""Timers, tables, fuzzers and instruction counts; tables and draws beside PyTorch's."""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest

import rushlight as torch
from rushlight.utils import benchmark


class Clock:
    """A clock that goes on by a second with every look: a measurement is one second long, whatever it runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_timer_measures_what_it_says() -> None:
    calls: list[int] = []
    timer = benchmark.Timer(
        "f()", globals={"f": lambda: calls.append(torch.get_num_threads())}, timer=Clock(), label="l", num_threads=1
    )
    measured = timer.timeit(300)
    assert len(calls) == 303 and set(calls) == {1}  # a hundredth as many before
    assert measured.number_per_run == 300 and measured.raw_times == [1.0] and measured.median == pytest.approx(1 / 300)
    assert timer.blocked_autorange(min_run_time=0.5).raw_times == [1.0]
    seen: list[Any] = []
    adaptive = timer.adaptive_autorange(max_run_time=9, callback=lambda number, seconds: seen.append((number, seconds)))
    assert adaptive.raw_times == [1.0] * 4 and seen == [(1, 1.0)] * 4
    before = torch.get_num_threads()
    benchmark.Timer("torch.ones(2).sum()", num_threads=1).timeit(1)
    assert torch.get_num_threads() == before


def test_statements_lose_their_indentation() -> None:
    timer = benchmark.Timer(
        """
            x = torch.ones(2)
            x.add(1)
        """
    )
    assert timer.timeit(2).task_spec.stmt == "x = torch.ones(2)\nx.add(1)"


def test_timer_refuses() -> None:
    with pytest.raises(ValueError, match="Currently only a `str` stmt"):
        benchmark.Timer(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="Language.CPP"):
        benchmark.Timer("f();", language="c++")
    with pytest.raises(ValueError, match="Invalid language"):
        benchmark.Timer("f()", language="fortran")
    with pytest.raises(ValueError, match="global_setup is C"):
        benchmark.Timer("f()", global_setup="#include")
    for call in (benchmark.Timer().repeat, benchmark.Timer().autorange):
        with pytest.raises(NotImplementedError, match="blocked_autorange"):
            call()
    with pytest.raises(ValueError, match="Expected an instance of `Measurement`"):
        benchmark.Compare([3])  # type: ignore[list-item]


def measurements(module: Any) -> list[Any]:
    """Several labels, statements, threads, environments; some of them wild."""
    made = []
    for threads in (1, 4):
        for description, factor in (("first", 1.0), ("second", 3.7), (None, 12.0)):
            for number, sub in enumerate(("small", "a longer name", None)):
                if (threads, description, number) == (4, "second", 1):
                    continue
                times = [factor * (number + 1) * 1.234e-5 * (1 + i * (0.2 if number == 2 else 0.001)) for i in range(7)]
                spec = module.TaskSpec("f(x)", "x = 1", label="label" if number else "other", sub_label=sub, description=description,
                                       num_threads=threads, env=None if number == 0 else "main" if threads == 1 else f"branch{number}")  # fmt: skip
                made.append(module.Measurement(10, [t * 10 for t in times], spec))
    return made


def test_measurements_pickle_and_merge() -> None:
    first = measurements(benchmark)[0]
    again = pickle.loads(pickle.dumps(first))
    assert again == first and again.sub_label == "small"
    merged = benchmark.Measurement.merge([first, again])
    assert len(merged) == 1 and merged[0].number_per_run == 1 and len(merged[0].raw_times) == 14
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = first.nothing


def test_counts_of_functions() -> None:
    rows = tuple(benchmark.FunctionCount(100 - i, f"/a/b/file.c:f{i}") for i in range(30))
    counts = benchmark.FunctionCounts(
        (*rows, benchmark.FunctionCount(3, "dictobject.c:lookdict_unicode")), inclusive=False
    )
    assert counts.sum() == sum(range(71, 101)) + 3 and len(counts.denoise()) == 30
    assert (counts - counts).sum() == 0 and (counts + counts).sum() == (counts * 2).sum() == 2 * counts.sum()
    assert counts.transform(lambda name: "all")[0] == (counts.sum(), "all")
    text = repr(counts).split("\n")
    assert len(text) == 1 + 19 + 2 and text[-1] == f"Total: {counts.sum()}" and text[10].strip() == "..."
    assert len(counts[:2]) == 2 and counts[0].count == 100
    with pytest.raises(AssertionError, match="inclusive and exclusive"):
        counts + benchmark.FunctionCounts((), inclusive=True)


def test_callgrind_needs_valgrind_and_names_that_can_be_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(OSError, match=r"Missing: valgrind|not supported on this platform"):
        benchmark.Timer("1").collect_callgrind()
    with pytest.raises(ValueError, match="restricts globals"):
        benchmark.CopyIfCallgrind(torch.ones(2))
    assert benchmark.CopyIfCallgrind(3, setup="import os").value == 3
    with pytest.raises(ValueError, match="repeats"):
        benchmark.Timer("1").collect_callgrind(repeats=0)


@pytest.mark.skipif(
    "RUSHLIGHT_TEST_VALGRIND" not in os.environ, reason="about a minute; RUSHLIGHT_TEST_VALGRIND=1 runs it"
)
def test_callgrind_counts() -> None:
    timer = benchmark.Timer("f(x)", setup="x = torch.ones(n)", globals={
        "f": benchmark.CopyIfCallgrind(torch.nn.Linear(4, 4)), "n": benchmark.CopyIfCallgrind(4)})  # fmt: skip
    first, second = timer.collect_callgrind(number=10, repeats=2)
    assert first.counts() == pytest.approx(second.counts(), rel=0.02)
    assert first.counts() > 10 * 5_000 > first.baseline_exclusive_stats.sum()
    assert re.search(r"Instructions: +\d+", repr(first)) and first.as_standardized().counts() == first.counts()


def test_fuzzer_draws_again_what_is_rejected() -> None:
    fuzzer = benchmark.Fuzzer(
        [
            benchmark.FuzzedParameter("n", 1, 64, "loguniform"),
            [benchmark.FuzzedParameter("m", distribution={1: 0.5, benchmark.ParameterAlias("n"): 0.5})],
        ],
        [benchmark.FuzzedTensor("x", size=("n", "m"), steps=(2,), max_elements=200, min_elements=2)],
        constraints=[lambda n, m: n % 2 == 0],
        seed=3,
    )
    for tensors, properties, params in fuzzer.take(10):
        assert params["n"] % 2 == 0 and params["m"] in (1, params["n"])
        assert 2 <= tensors["x"].numel() <= 200 and properties["x"]["numel"] == tensors["x"].numel()
        assert properties["x"]["steps"] == (2, 1)
    assert 0 < fuzzer.rejection_rate < 1
    with pytest.raises(AssertionError, match="not normalized"):
        benchmark.FuzzedParameter("m", distribution={1: 0.5})
    with pytest.raises(ValueError, match="Duplicate names"):
        benchmark.Fuzzer([benchmark.FuzzedParameter("x", 1, 2, "uniform")], [benchmark.FuzzedTensor("x", size=(1,))])
    with pytest.raises(ValueError, match="Failed to generate"):
        next(benchmark.Fuzzer([], [], constraints=[lambda: False], seed=0).take(1))


def test_sparse_fuzzer() -> None:
    tensor = benchmark.FuzzedSparseTensor("x", size=("n", 4), density="density", coalesced="coalesced")
    for word in (True, False):
        parameters = [
            benchmark.FuzzedParameter("n", 3, 5, "uniform"), benchmark.FuzzedParameter("density", 0.2, 0.3, "uniform"),
            benchmark.FuzzedParameter("coalesced", distribution={word: 1.0}),
        ]  # fmt: skip
        ((tensors, properties, params),) = benchmark.Fuzzer(parameters, [tensor], seed=1).take(1)
        assert (
            tensors["x"].is_sparse
            and properties["x"]["is_coalesced"] is word
            and tensors["x"].shape == (params["n"], 4)
        )


# ***** beside PyTorch *****


@pytest.fixture
def theirs() -> Iterator[Any]:
    yield pytest.importorskip("torch.utils.benchmark")


@pytest.mark.oracle
@pytest.mark.parametrize("looks", ["plain", "trim", "color", "rows", "warn", "all"])
def test_tables_are_those_of_pytorch(theirs: Any, looks: str) -> None:
    tables = []
    for module in (benchmark, theirs):
        made = measurements(module)
        made = [m for m in made if m.description is not None] if looks != "plain" else made
        table = module.Compare([m for m in made if m.description is not None])
        if looks in ("trim", "all"):
            table.trim_significant_figures()
        if looks in ("color", "rows", "all"):
            table.colorize(rowwise=looks == "rows")
        if looks in ("warn", "all"):
            table.highlight_warnings()
        tables.append(str(table))
    assert tables[0] == tables[1]


@pytest.mark.oracle
def test_measurements_are_those_of_pytorch(theirs: Any) -> None:
    for ours, other in zip(measurements(benchmark), measurements(theirs), strict=True):
        for name in ("median", "mean", "iqr"):
            assert getattr(ours, name) == pytest.approx(getattr(other, name), rel=1e-12)
        assert (ours.significant_figures, ours.has_warnings, ours.as_row_name, ours.title) == (
            other.significant_figures, other.has_warnings, other.as_row_name, other.title,
        )  # fmt: skip
        assert repr(ours).split("\n")[1:] == repr(other).split("\n")[1:]
    for x in (1.234e-9, 5.6e-7, 1e-3, 0.5, 12345.678):
        assert benchmark.select_unit(x) == theirs.select_unit(x)
        for n in (1, 2, 4):
            assert benchmark.trim_sigfig(x, n) == pytest.approx(theirs.trim_sigfig(x, n), rel=1e-6)


@pytest.mark.oracle
def test_fuzzers_draw_what_those_of_pytorch_draw(theirs: Any) -> None:
    reference = pytest.importorskip("torch")
    drawn = []
    for library, module in ((torch, benchmark), (reference, theirs)):
        fuzzer = module.Fuzzer(
            [module.FuzzedParameter("n", 4, 64, "loguniform"), module.FuzzedParameter("m", 1, 9, "uniform", strict=True),
             module.FuzzedParameter("s", 1, 3, "uniform")],
            [module.FuzzedTensor("x", size=("n", "m"), steps=("s", 1), probability_contiguous=0.3, max_elements=300),
             module.FuzzedTensor("k", size=("n",), dtype=library.int64)],
            seed=7,
        )  # fmt: skip
        drawn.append([
            (params, {k: (v["is_contiguous"], v["steps"], list(v["order"])) for k, v in properties.items()},
             {k: (t.tolist(), t.stride()) for k, t in tensors.items()})
            for tensors, properties, params in fuzzer.take(5)
        ])  # fmt: skip
    assert drawn[0] == drawn[1]

"""`torch.explain` of compiled functions and modules, and its page."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight._backends.cpu.program import measuring
from rushlight._backends.cpu.program.peak import Peak
from rushlight.profiler import profile
from rushlight.utils.flop_counter import FlopCounterMode


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of the machine without measuring them."""
    monkeypatch.setattr(measuring, "peak_of_machine", lambda: Peak({"float32": 1e11}, {1 << 20: 1e10}))


def test_a_compiled_function_is_explained(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))

    def f(x: Any) -> Any:
        y = model(x).softmax(-1)
        torch._dynamo.graph_break()
        return (y * 2).sum()

    x = torch.ones(5, 8)
    found = torch.explain(torch.compile(f))(x)
    assert torch.equal(found.result, f(x)) and [p.title for p in found.programs][0] == "from the beginning to a break"
    first, second = found.programs
    assert (
        second.title.endswith("to the end")
        and first.calls == 4
        and len(first.kernels) == 3
        and first.saved == ["float32[5, 16]"]
    )
    assert "prim.erf" in first.graph and "cluster 0" in first.execution and "memory between kernels" in first.execution
    assert any(text.startswith("type(x) is ") for text in first.conditions)
    assert not any(" v4 " in f" {text} " for text in first.conditions)
    assert "graph_break" in found.breaks[0] and "break: Call to" in found.summary() and "***** program 2" in str(found)

    class Checked(HTMLParser):
        """Counts tags, and sees that each is closed and nothing is loaded from elsewhere."""

        opened: list[str] = []
        seen: set[str] = set()

        def handle_starttag(self, tag: str, attrs: Any) -> None:
            self.seen.add(tag)
            assert all(name != "src" and (name != "href" or value[0] == "#") for name, value in attrs)
            if tag != "meta":
                self.opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.opened.pop() == tag

    page = Checked()
    page.feed(found.html(tmp_path / "f.html").read_text())
    assert not page.opened and {"details", "pre", "table", "style", "svg"} <= page.seen


def test_modules_backends_and_functions_that_are_not_compiled() -> None:
    model = torch.nn.Linear(3, 2)
    found = torch.explain(torch.compile(model))(torch.ones(1, 3))
    assert found.name == "Linear" and len(found.programs) == 1 and found.programs[0].conditions
    other = torch.explain(torch.compile(model, backend="eager"))(torch.ones(1, 3))
    assert "torch.nn.functional.linear" in other.programs[0].graph and other.programs[0].calls == 1
    assert torch.explain(model)(torch.ones(1, 3)).operators == ["linear"]


def a_step() -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def test_kernels_have_times_code_and_a_memory_plan() -> None:
    x = torch.randn(5, 8)
    (program,) = torch.explain(torch.compile(a_step()))(x).programs
    times = program.times(0.01)
    assert sum(row.count for row in times) == len(program.kernels) and {row.name for row in times} == {*program.kernels}
    assert all(row.seconds >= 0 and row.least > 0 and row.ratio >= 0 for row in times)
    assert times is program.times() and times == sorted(times, key=lambda row: -row.seconds)
    assert 2 * 5 * 8 * 16 in [row.operations for row in times if row.name == "dot" and "erf" in row.primitives]
    assert "times the machine's limit" in program.times_table()
    assert len(program.clusters) >= 5 and not program.backward and program.peak > 0
    for nbytes, offset, first, last in program.memory:
        assert 0 <= first <= last and offset + nbytes <= program.peak
        for other, at, begin, end in program.memory:  # none overlaps another at one time
            apart = end < first or last < begin or at + other <= offset or offset + nbytes <= at
            assert apart or (nbytes, offset, first, last) == (other, at, begin, end)
    code = program.code()
    assert {name for name, _, _ in code} >= {k for k in program.kernels if k.startswith("k")}
    assert all("define" in llvm and name in assembly for name, llvm, assembly in code)


def test_the_graph_for_gradients_from_outside() -> None:
    state = torch.get_rng_state()
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    compiled = torch.compile(model)
    torch.set_rng_state(state)
    (program,) = torch.explain(compiled)(torch.ones(5, 8)).programs
    assert "prim.dot" in program.backward and program.times(0.01)
    assert torch.equal(torch.get_rng_state(), state)  # times are taken without random numbers


# ***** in the profiler *****


def rows_of(seen: profile) -> dict[str, Any]:
    return {row.key: row for row in seen.key_averages()}


def test_programs_have_rows_in_profiles() -> None:
    step, x = torch.compile(a_step()), torch.randn(5, 8)
    step(x), step(x)
    programs = torch.explain(step)(x).programs
    with profile(record_shapes=True, with_flops=True) as seen:
        step(x)
    rows = rows_of(seen)
    region = next(row for key, row in rows.items() if key.startswith("Torch-Compiled Region: ") and "step" in key)
    kernels = {key.removeprefix("rushlight::"): row.count for key, row in rows.items() if key.startswith("rushlight::")}
    assert region.count == 1 and "aten::linear" not in rows and "rushlight::plan" not in rows
    assert kernels in [{name: p.kernels.count(name) for name in p.kernels} for p in programs]
    assert (
        sum(row.self_cpu_time_total for key, row in rows.items() if key.startswith("rushlight::"))
        <= region.cpu_time_total
    )
    assert len(torch.explain(step)(x).programs) == len(programs)  # nothing was traced anew
    with profile(with_stack=True) as seen:  # Python functions are told: the step runs as it is
        step(x)
    assert "aten::linear" in rows_of(seen)


def test_what_runs_between_programs_is_told() -> None:
    def broken(x: Any) -> Any:
        y = x.exp()
        torch._dynamo.disable(lambda t: t.sin())(y)
        return y + 1

    compiled, x = torch.compile(broken), torch.ones(3)
    expected = compiled(x)
    with profile() as seen:
        found = compiled(x)
    rows = rows_of(seen)
    (region,) = [row for key, row in rows.items() if key.startswith("Torch-Compiled Region")]
    assert (
        torch.equal(found, expected) and region.count == 2 and rows["aten::sin"].count == 1 and "aten::exp" not in rows
    )
    with profile() as seen:
        compiled(torch.ones(7))
    assert "rushlight::plan" in rows_of(seen)
    assert torch.equal(compiled(x), expected)


def test_operations_are_counted_through_compiled_functions() -> None:
    compiled = torch.compile(lambda x: x @ x)
    compiled(torch.ones(4, 4))
    with FlopCounterMode(display=False) as counted:
        compiled(torch.ones(4, 4))
    assert counted.get_total_flops() == 2 * 4**3


WATCHING = {
    "profiler": torch.profiler.profile,
    "autograd profiler": torch.autograd.profiler.profile,
    "flops": lambda: torch.utils.flop_counter.FlopCounterMode(display=False),
    "modules": torch.utils.module_tracker.ModuleTracker,
}


@pytest.mark.parametrize("name", WATCHING)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_what_a_compiled_function_watches_with_is_begun_and_ended_once(name: str, backend: str) -> None:
    """A trace that began to watch would watch itself, and again with each attempt; nobody would end those."""

    def function(x: torch.Tensor) -> tuple[Any, ...]:
        y = x @ x
        with WATCHING[name]() as watch:
            y = y @ x
            torch._dynamo.graph_break()
            y = y @ y
        return watch, y * 2

    compiled = torch.compile(function, backend=backend)
    for _ in range(2):
        watch, y = compiled(torch.ones(2, 2))
        assert not torch.autograd._profiler_enabled() and y.tolist() == [[64, 64], [64, 64]]
        if name == "flops":
            assert watch.get_total_flops() == 2 * 2 * 2 * 2 * 2
        if "profiler" in name:
            assert len(watch.key_averages())

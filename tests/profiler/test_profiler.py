"""What the profiler records of a program: names, nesting, shapes, memory, stacks, ranges; schedules; files."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import OBSERVED, STATE
from rushlight.profiler import ProfilerAction, ProfilerActivity, profile, record_function, schedule


def names(prof: Any) -> list[str]:
    return [event.name for event in prof.events() if event.name not in ("rushlight::plan", "[memory]")]


def step() -> None:
    torch.ones(2, 3).add(1)


def test_operators_are_named_as_in_pytorch() -> None:
    x = torch.randn(4, 3, requires_grad=True)
    with profile(record_shapes=True) as prof:
        y = torch.relu(x) * 2
        y[1].add_(1)
        torch.add(x.detach(), 1, out=torch.empty(4, 3))
        torch.cat([x, x]).reshape(-1)
    assert names(prof) == [
        "aten::relu", "aten::clamp_min", "aten::mul", "aten::select", "aten::add_", "aten::detach", "aten::empty", "aten::add", "aten::cat", "aten::reshape", "aten::view",
    ]  # fmt: skip
    relu = prof.events()[0] if prof.events()[0].name == "aten::relu" else prof.events()[1]
    assert relu.input_shapes == [[4, 3]] and relu.sequence_nr >= 0 and relu.thread == 1 and relu.cpu_time_total > 0


def test_backward_has_an_event_for_the_engine_and_one_for_the_node() -> None:
    layer = nn.Linear(3, 2)
    with profile(record_shapes=True) as prof:
        layer(torch.ones(4, 3)).sum().backward()
    events = prof.events()
    found = {event.name: event for event in events}
    node = found["AddmmBackward0"]
    assert node.cpu_parent is found["autograd::engine::evaluate_function: AddmmBackward0"]
    assert node.scope == 1 and node.input_shapes == [[4, 2]]
    assert node.sequence_nr == found["aten::linear"].sequence_nr
    accumulated = [e for e in events if e.name == "torch::autograd::AccumulateGrad"]
    assert len(accumulated) == 2 and all(e.sequence_nr == -1 for e in accumulated)


def test_gradients_are_the_same_while_somebody_looks() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x = torch.randn(5, 3)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True, with_modules=True):
        model(x).sum().backward()
    assert all(torch.equal(p.grad, e) for p, e in zip(model.parameters(), expected, strict=True))


def test_ranges_nest_and_name_optimizers_and_loaders() -> None:
    weight = torch.ones(3, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 3)), batch_size=2)
    with profile() as prof:
        for (batch,) in loader:
            with record_function("forward"):
                loss = (batch * weight).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = names(prof)
    assert found.count("Optimizer.step#SGD.step") == found.count("Optimizer.zero_grad#SGD.zero_grad") == 2
    assert (
        sum(name.startswith("enumerate(DataLoader)#") and name.endswith(".__next__") for name in found) == 3
    )  # the last finds the end
    ranges = [e for e in prof.events() if e.name == "forward"]
    children = [c.name for c in ranges[1].cpu_children if c.name != "rushlight::plan"]
    assert children == ["aten::mul", "aten::sum"] and ranges[0].is_user_annotation
    assert ranges[0].self_cpu_time_total == pytest.approx(
        ranges[0].cpu_time_total - sum(c.cpu_time_total for c in ranges[0].cpu_children)
    )


def test_memory_is_what_was_allocated_less_what_was_freed() -> None:
    kept = []
    with profile(profile_memory=True) as prof:
        with record_function("keep"):
            kept.append(torch.ones(1024))
        with record_function("drop"):
            torch.ones(1024).add(1)
        kept.clear()
    found = {event.name: event.cpu_memory_usage for event in prof.events() if event.is_user_annotation}
    assert found["keep"] >= 4096 and found["drop"] == 0
    assert any(event.name == "[memory]" and event.cpu_memory_usage <= -4096 for event in prof.events())
    assert "CPU Mem" in prof.key_averages().table()


def test_stacks_are_places_in_the_program() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with profile(with_stack=True) as prof:
        model(torch.ones(1, 2)).sum().backward()
    linear = next(e for e in prof.events() if e.name == "aten::linear")
    assert linear.stack[0].endswith("forward") and linear.stack[1] == "nn.Module: Linear_0"
    assert any("test_profiler.py" in entry and "test_stacks_are_places" in entry for entry in linear.stack)
    node = next(e for e in prof.events() if e.name == "AddmmBackward0")
    assert node.stack == linear.stack  # backward has the stack of its forward call
    assert not any("_engine" in entry for entry in linear.stack)
    rows = prof.key_averages(group_by_stack_n=2)
    assert "Source Location" in rows.table()


def test_stacks_for_flame_graphs(tmp_path: Path) -> None:
    with profile(with_stack=True) as prof:
        for _ in range(20):
            step()
    path = str(tmp_path / "stacks")
    prof.export_stacks(path)
    lines = Path(path).read_text().splitlines()
    assert lines and all(line.rpartition(" ")[2].isdigit() for line in lines)
    with pytest.raises(ValueError, match="metric should be one of"):
        prof.export_stacks(path, "time")


def test_modules() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with profile(with_modules=True) as prof:
        model(torch.ones(1, 2))
    assert [n for n in names(prof) if n.startswith("nn.")] == [
        "nn.Module: Sequential_0",
        "nn.Module: Linear_0",
        "nn.Module: Linear_1",
    ]


def test_flops() -> None:
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    with profile(with_flops=True) as prof:
        torch.mm(a, b)
        torch.addmm(torch.ones(5), a, b)
        torch.conv2d(torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3), padding=1)
        a.mul(a)
    flops = {event.name: event.flops for event in prof.events()}
    assert flops["aten::mm"] == flops["aten::addmm"] == 2 * 3 * 4 * 5
    assert flops["aten::conv2d"] == 2 * 2 * 8 * 8 * 4 * 3 * 9
    assert flops["aten::mul"] == 12
    assert "Total FLOPs" in prof.key_averages().table()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


def test_functions_of_the_user() -> None:
    x = torch.ones(3, requires_grad=True)
    with profile() as prof:
        Double.apply(x).sum().backward()
    found = {event.name: event for event in prof.events()}
    assert [c.name for c in found["Double"].cpu_children if c.name != "rushlight::plan"] == ["aten::mul"]
    assert "aten::mul" in [c.name for c in found["DoubleBackward"].cpu_children]


def test_nothing_is_left_behind() -> None:
    handler, zeros, item = HOOKS.override, torch.zeros, torch.Tensor.item
    with pytest.raises(KeyError), profile(with_stack=True, profile_memory=True), record_function("bad"):
        step()
        raise KeyError
    assert not STATE.word & OBSERVED and not STATE.observers
    assert HOOKS.override is handler and torch.zeros is zeros and torch.Tensor.item is item


def test_an_exception_in_an_operator_ends_its_event() -> None:
    with profile() as prof:
        with pytest.raises(RuntimeError):
            torch.ones(2, 3).view(5)
        step()
    assert names(prof)[-1] == "aten::add" and all(e.cpu_time_total >= 0 for e in prof.events())


def test_only_the_thread_that_asks_is_recorded() -> None:
    with profile() as prof:
        other = threading.Thread(target=step)
        other.start()
        other.join()
    assert names(prof) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_nobody_listens_in_a_forked_process() -> None:
    with profile() as prof:
        step()
        child = os.fork()
        if not child:
            os._exit(1 if STATE.word & OBSERVED or STATE.observers else 0)
        assert os.waitpid(child, 0)[1] == 0
        step()
    assert names(prof) == ["aten::ones", "aten::add"] * 2


def test_profiles_may_nest() -> None:
    with profile() as outer:
        step()
        with profile() as inner:
            step()
    assert names(inner) == ["aten::ones", "aten::add"] and names(outer) == ["aten::ones", "aten::add"] * 2


def test_no_grad_around_the_start() -> None:
    prof = profile()
    with torch.no_grad():
        prof.start()
    step()
    with torch.no_grad():
        prof.stop()
    assert names(prof) == ["aten::ones", "aten::add"] and not STATE.word & OBSERVED


# ***** schedules *****


def test_schedule() -> None:
    plan = schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1)
    assert [plan(i).name for i in range(7)] == ["NONE", "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE", "NONE"]
    plan = schedule(wait=1, warmup=1, active=2, skip_first=1, skip_first_wait=1)
    assert [plan(i).name for i in range(8)] == [
        "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE",
    ]  # fmt: skip
    with pytest.warns(UserWarning, match="warmup"):
        plan = schedule(wait=0, warmup=0, active=1)
    with pytest.raises(AssertionError, match="Invalid profiler schedule arguments"):
        schedule(wait=0, warmup=1, active=0)
    with pytest.raises(AssertionError, match="Step must be non-negative"):
        plan(-1)


def test_cycles_hand_over_what_they_recorded() -> None:
    seen = []
    with profile(
        schedule=schedule(wait=1, warmup=1, active=2), on_trace_ready=lambda p: seen.append((p.step_num, names(p)))
    ) as prof:
        for i in range(8):
            # the second cycle begins: what the first one recorded is gone, and the program is told
            with pytest.warns(UserWarning, match="acc_events") if i == 4 else contextlib.nullcontext():
                step()
                prof.step()
    rounds = ["ProfilerStep#{}", "aten::ones", "aten::add"]
    assert seen[0] == (4, [n.format(2) for n in rounds] + [n.format(3) for n in rounds])
    assert seen[1] == (8, [n.format(6) for n in rounds] + [n.format(7) for n in rounds])
    assert len(seen) == 2


def test_steps_without_a_schedule_are_one_trace() -> None:
    seen: list[Any] = []
    with profile(on_trace_ready=seen.append) as prof:
        for _ in range(3):
            step()
            prof.step()
    assert seen == [prof] and names(prof) == ["aten::ones", "aten::add"] * 3
    assert prof.current_action == ProfilerAction.RECORD


def test_every_step_may_be_saved() -> None:
    seen: list[int] = []
    with pytest.warns(UserWarning):
        plan = schedule(wait=0, warmup=0, active=1)
    with profile(schedule=plan, on_trace_ready=lambda p: seen.append(len(names(p))), acc_events=True) as prof:
        for _ in range(2):
            step()
            prof.step()
    assert seen == [3, 6, 7]  # what came before is kept


def test_activities() -> None:
    assert torch.profiler.supported_activities() == {ProfilerActivity.CPU}
    with pytest.raises(AssertionError, match="No valid profiler activities"):
        profile(activities=[])
    with pytest.raises(AssertionError, match="must be initialized"):
        profile().key_averages()


def test_recording_can_pause() -> None:
    with profile() as prof:
        step()
        prof.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
        torch.ones(2).mul(2)
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        step()
    assert names(prof) == ["aten::ones", "aten::add"] * 2


# ***** files *****


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_chrome_trace(tmp_path: Path, name: str) -> None:
    with profile(record_shapes=True, profile_memory=True) as prof:
        x = torch.ones(2, 3, requires_grad=True)
        with record_function('a "quoted" name'):
            (x * 2).sum().backward()
        prof.add_metadata("note", "what it was")
        prof.add_metadata_json("numbers", "[1, 2]")
    path = tmp_path / name
    prof.export_chrome_trace(str(path))
    opened: Any = gzip.open if name.endswith("gz") else open
    with opened(path, "rt") as file:
        trace = json.load(file)
    assert trace["note"] == "what it was" and trace["numbers"] == [1, 2] and trace["record_shapes"] == 1
    rows = [row for row in trace["traceEvents"] if row["ph"] == "X" and row["cat"] == "cpu_op"]
    mul = next(row for row in rows if row["name"] == "aten::mul")
    assert (
        mul["args"]["Input Dims"] == [[2, 3], []]
        and mul["args"]["Input type"] == ["float", "Scalar"]
        and mul["dur"] > 0
    )
    assert any(row["cat"] == "user_annotation" for row in trace["traceEvents"] if row["ph"] == "X")
    starts = {row["id"] for row in trace["traceEvents"] if row["ph"] == "s"}
    assert starts and starts == {row["id"] for row in trace["traceEvents"] if row["ph"] == "f"}
    assert any(row["name"] == "[memory]" and row["args"]["Bytes"] > 0 for row in trace["traceEvents"])
    assert [p.name for p in tmp_path.iterdir()] == [name]  # nothing unfinished beside it


def test_trace_handler(tmp_path: Path) -> None:
    with profile(
        on_trace_ready=torch.profiler.tensorboard_trace_handler(str(tmp_path / "logs"), "worker", use_gzip=True)
    ):
        step()
    (path,) = (tmp_path / "logs").iterdir()
    assert path.name.startswith("worker.") and path.name.endswith(".pt.trace.json.gz")


def test_execution_trace(tmp_path: Path) -> None:
    path = tmp_path / "et.json"
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
    with profile(execution_trace_observer=observer), record_function("outer"):
        torch.ones(2, 3).add(1)
    nodes = {node["name"]: node for node in json.loads(path.read_text())["nodes"]}
    assert nodes["aten::add"]["ctrl_deps"] == nodes["outer"]["id"]
    assert (
        nodes["aten::add"]["inputs"]["shapes"][0] == [2, 3]
        and nodes["aten::add"]["inputs"]["types"][0] == "Tensor(float)"
    )
    assert nodes["aten::add"]["inputs"]["values"][0] == nodes["aten::ones"]["outputs"]["values"][0]
    assert not observer.is_registered


# ***** the older module *****


def test_autograd_profiler() -> None:
    module = torch.autograd.profiler
    with module.profile(enabled=False) as nobody:
        step()
    assert nobody is None
    with module.profile() as prof:
        step()
    assert [row.key for row in prof.key_averages() if row.key.startswith("aten")] == ["aten::ones", "aten::add"]
    assert prof.self_cpu_time_total == prof.function_events.self_cpu_time_total > 0
    assert prof.total_average().count == len(prof.function_events)
    assert module.record_function is record_function
    with pytest.raises(RuntimeError, match="reentrant"), prof:
        pass
    for emitter in (module.emit_nvtx, module.emit_itt):
        with pytest.raises(RuntimeError, match="rushlight does not have"), emitter():
            pass
    with pytest.raises(RuntimeError, match="ITT functions not installed"):
        torch.profiler.itt.range_push("a")
    with (
        pytest.warns(FutureWarning, match="use_cuda"),
        pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"),
    ):
        module.profile(use_cuda=True)


def test_record_function_decorates_and_waits_for_futures() -> None:
    @record_function("twice")
    def twice(x: Any) -> Any:
        return x * 2

    future: Any = torch.futures.Future()
    with profile() as prof:
        assert twice(torch.ones(2)).tolist() == [2, 2]
        with record_function("later") as name:
            done = name._call_end_callbacks_on_future(future)
        step()
        future.set_result(3)
        assert done.wait() == 3
    found = {event.name: event for event in prof.events()}
    assert "aten::mul" in [c.name for c in found["twice"].cpu_children]
    assert "aten::ones" in [c.name for c in found["later"].cpu_children]


def test_older_names_of_the_same() -> None:
    assert torch.autograd.profiler_util.EventList is torch.autograd.profiler.EventList
    with pytest.warns(FutureWarning, match="profiler_legacy"), torch.autograd.profiler_legacy.profile() as prof:
        step()
    assert [e.name for e in prof.function_events if e.name.startswith("aten")] == ["aten::ones", "aten::add"]


def under(event: Any) -> list[str]:
    """The names of all rows inside of a row, from the outermost to the innermost."""
    return [
        name for child in event.cpu_children if child.name != "rushlight::plan" for name in [child.name, *under(child)]
    ]


def test_rows_inside_of_kernels() -> None:
    f = nn.functional
    x, w, b = (
        torch.randn(2, 3, requires_grad=True),
        torch.randn(4, 3, requires_grad=True),
        torch.randn(4, requires_grad=True),
    )
    image, kernel = torch.randn(1, 2, 4, 4, requires_grad=True), torch.randn(3, 2, 2, 2)
    for call, outer, inner in [
        (lambda: f.linear(x, w, b), "aten::linear", ["aten::addmm"]), (lambda: f.linear(x, w), "aten::linear", ["aten::matmul", "aten::mm"]),
        (lambda: torch.matmul(x.expand(5, 2, 3), w.t().expand(5, 3, 4)), "aten::matmul", ["aten::bmm"]),
        (lambda: f.conv2d(image, kernel), "aten::conv2d", ["aten::convolution", "aten::_convolution"]), (lambda: f.relu(x), "aten::relu", ["aten::clamp_min"]),
        (lambda: f.layer_norm(x, (3,)), "aten::layer_norm", ["aten::native_layer_norm"]),
        (lambda: f.batch_norm(image, None, None, training=True), "aten::batch_norm", ["aten::_batch_norm_impl_index", "aten::native_batch_norm"]),
    ]:  # fmt: skip
        for _ in range(2):
            with profile(profile_memory=True) as prof:
                call()
        row = next(e for e in prof.events() if e.name == outer)
        assert under(row) == inner
        for child in [e for e in prof.events() if e.name in inner]:  # one kernel: its time is the innermost row's
            assert child.time_range.start >= row.time_range.start and child.time_range.end == row.time_range.end
            assert child.cpu_memory_usage == row.cpu_memory_usage
        assert row.self_cpu_time_total == 0


def test_rows_inside_of_backward() -> None:
    x, w, b = (
        torch.randn(2, 3, requires_grad=True),
        torch.randn(4, 3, requires_grad=True),
        torch.randn(4, requires_grad=True),
    )

    def rows(make: Any, node: str) -> Any:
        for _ in range(2):
            loss = make().sum()
            with profile(with_flops=True, record_shapes=True) as prof:
                loss.backward()
        outer = next(e for e in prof.events() if e.name == f"autograd::engine::evaluate_function: {node}")
        assert [c.name for c in outer.cpu_children] == [node]
        return outer.cpu_children[0]

    row = rows(lambda: nn.functional.linear(x, w, b), "AddmmBackward0")
    products = [c for c in row.cpu_children if c.name == "aten::mm"]
    assert {c.name for c in row.cpu_children} == {"aten::t", "aten::mm", "aten::sum"} and [
        c.flops for c in products
    ] == [2 * 2 * 3 * 4] * 2
    assert all(c.cpu_time_total == 0 for c in row.cpu_children)  # one kernel does both: how long each took is not known
    assert sorted(products[0].input_shapes) == [[2, 4], [4, 3]]
    alone = rows(lambda: nn.functional.linear(x.detach(), w, b), "AddmmBackward0")
    product = next(c for c in alone.cpu_children if c.name == "aten::mm")
    assert product.cpu_time_total == pytest.approx(alone.cpu_time_total, abs=0.01) and len(alone.cpu_children) == 3
    assert under(rows(lambda: nn.functional.relu(x), "ReluBackward0")) == ["aten::threshold_backward"]
    assert "aten::bmm" in under(rows(lambda: torch.bmm(x[None], w.t()[None]), "BmmBackward0"))
    deep = rows(lambda: nn.functional.linear(x[None], w, b), "ViewBackward0")  # as PyTorch names it
    assert under(deep).count("aten::mm") == 2


def test_operations_of_a_step_are_counted_once() -> None:
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(5, 3)
    with profile(with_flops=True) as prof:
        model(x).sum().backward()
    counts = {row.key: row.flops for row in prof.key_averages() if row.flops}
    assert counts == {"aten::addmm": 2 * 5 * (3 * 4 + 4 * 2), "aten::mm": 2 * 5 * (3 * 4 + 2 * 4 * 2)}


def test_memory_timeline(tmp_path: Path) -> None:
    import gzip
    import json

    with profile() as prof:
        torch.ones(1)
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="with_stack=True required for memory profiling"):
        prof.export_memory_timeline(str(tmp_path / "x.json"))
    with profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        a = torch.ones(1024)
        b = a + 1
        del a
    with pytest.warns(FutureWarning):
        for name in ("x.json", "x.json.gz", "x.raw.json.gz", "x.html"):
            prof.export_memory_timeline(str(tmp_path / name), device="cpu")
    times, sizes = json.loads((tmp_path / "x.json").read_text())
    held = [row[-1] for row in sizes]
    assert (
        times == sorted(times)
        and len(times) == len(sizes)
        and all(len(row) == 9 and not any(row[:-1]) for row in sizes)
    )
    assert max(held) - held[0] >= 8192 and max(held) - held[-1] >= 4096 and b.numel()
    changes = json.loads(gzip.decompress((tmp_path / "x.raw.json.gz").read_bytes()))
    assert {action for _, action, _, _ in changes} <= {1, 2, 4} and all(
        (n < 0) == (action == 4) for _, action, n, _ in changes
    )
    assert sum(n for _, _, n, _ in changes) == held[-1]
    assert "<polygon" in (tmp_path / "x.html").read_text()

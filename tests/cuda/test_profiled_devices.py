"""Profiles of GPUs: kernels and copies with their times, in tables and in traces.  Which rows there are is asserted, not how long."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight.profiler import ProfilerActivity, profile, record_function, supported_activities

pytestmark = pytest.mark.cuda
BOTH = (ProfilerActivity.CPU, ProfilerActivity.CUDA)
CUDA = torch.autograd.DeviceType.CUDA


def of_devices(prof: Any) -> list[Any]:
    return [e for e in prof.events() if e.device_type is CUDA]


@pytest.fixture
def x() -> Iterator[Any]:
    made = torch.randn(64, 32, device="cuda")
    (made @ made.t()).exp().sum()
    torch.cuda.synchronize()
    yield made


def test_gpus_are_supported_where_there_are_any() -> None:
    assert supported_activities() == set(BOTH)


def test_kernels_belong_to_the_operators_that_started_them(x: Any) -> None:
    with profile(activities=BOTH) as prof, record_function("part"):
        y = (x @ x.t()).exp()
        torch.cuda.synchronize()
    found = of_devices(prof)
    assert len(found) == 2 and all(e.time_range.start >= 0 and e.device_index == 0 for e in found)
    rows = {e.name: e for e in prof.events()}
    assert [k.name for k in rows["aten::exp"].kernels] == [found[1].name]
    assert rows["aten::exp"].self_device_time_total == pytest.approx(found[1].device_time_total)
    assert rows["part"].device_time_total == pytest.approx(sum(e.device_time_total for e in found))
    assert rows["part"].self_device_time_total == pytest.approx(0, abs=1e-6)
    assert y.shape == (64, 64)


def test_copies_and_fills(x: Any) -> None:
    pinned = torch.ones(3).pin_memory()
    with profile(activities=BOTH) as prof:
        torch.ones(3).to("cuda")
        pinned.to("cuda", non_blocking=True)
        x.cpu()
        torch.zeros(10, device="cuda")
    names = [e.name for e in of_devices(prof)]
    assert names == [
        "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)", "Memset (Device)",
    ]  # fmt: skip


def test_the_table_has_columns_of_the_device(x: Any) -> None:
    with profile(activities=BOTH) as prof:
        x.exp()
    text = prof.key_averages().table(sort_by="self_cuda_time_total")
    for head in ("Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg", "Self CUDA time total:"):
        assert head in text
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        x.exp()
    assert "CUDA" not in prof.key_averages().table() and not of_devices(prof)


def test_memory_of_the_device(x: Any) -> None:
    with profile(activities=BOTH, profile_memory=True) as prof:
        y = torch.exp(x)
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["aten::exp"].device_memory_usage == y.nbytes == rows["aten::exp"].self_device_memory_usage
    assert rows["aten::exp"].cpu_memory_usage == 0
    assert "Self CUDA Mem" in prof.key_averages().table()


def test_compiled_programs_backward_and_steps(x: Any) -> None:
    model = torch.nn.Linear(32, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()

    compiled = torch.compile(step)
    for _ in range(3):
        step(), compiled()
    with profile(activities=BOTH) as prof:
        compiled()
    rows = {e.name: e for e in prof.events()}
    assert next(e for name, e in rows.items() if name.startswith("Torch-Compiled Region")).kernels
    with profile(activities=BOTH) as prof:
        step()
    rows = {e.name: e for e in prof.events()}
    assert rows["AddmmBackward0"].device_time_total > 0
    assert rows["Optimizer.step#SGD.step"].device_time_total > 0


def test_a_replay_is_one_activity_and_captures_are_not_timed(x: Any) -> None:
    graph = torch.cuda.CUDAGraph()
    with profile(activities=BOTH) as prof, torch.cuda.graph(graph):
        y = x * 2
    assert not [e for e in of_devices(prof) if not e.name.startswith("Mem")]
    with profile(activities=BOTH) as prof:
        graph.replay()
    assert [e.name for e in of_devices(prof)] == ["graph"]
    assert torch.equal(y, x * 2)


def test_afterwards_calls_are_native_again(x: Any) -> None:
    driver = torch._interface.cuda.backend_of(x.device).driver
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        x.exp()
    assert len(of_devices(prof)) == 1
    assert not [e for e in prof.events() if e.name.startswith("aten")]  # the CPU was not asked for
    assert "cuLaunchKernel" not in vars(driver)


def test_devices_are_left_out_for_a_part_of_a_program(x: Any) -> None:
    with profile(activities=BOTH) as prof:
        prof.toggle_collection_dynamic(False, [ProfilerActivity.CUDA])
        x.sin()
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CUDA])
        x.exp()
    rows = {e.name: e for e in prof.events()}
    assert not rows["aten::sin"].kernels and len(rows["aten::exp"].kernels) == len(of_devices(prof)) == 1


def test_kinds_of_events(x: Any) -> None:
    def names(activities: Any) -> list[str]:
        with profile(activities=activities) as prof:
            x.exp()
            x.cpu()
        return [e.name for e in prof.events()]

    assert names([{ProfilerActivity.CUDA: ["GPU_MEMCPY"]}]) == ["Memcpy DtoH (Device -> Pageable)"]
    assert names([{ProfilerActivity.CUDA: []}]) == []
    assert names([{ProfilerActivity.CUDA: ["CUDA_DRIVER"]}]) == ["cuLaunchKernel", "cuMemcpyDtoHAsync"]
    for activity, name in ((ProfilerActivity.CUDA, "CPU_OP"), (ProfilerActivity.CPU, "NOPE")):
        with pytest.raises(RuntimeError, match=f"Unknown or non-member activity type name: '{name}'"):
            names([{activity: [name]}])
    with pytest.raises(ValueError, match="specified more than once"):
        names([ProfilerActivity.CUDA, {ProfilerActivity.CUDA: ["GPU_MEMCPY"]}])


def test_traces(x: Any, tmp_path: Path) -> None:
    with profile(activities=BOTH) as prof:
        x.exp()
        x.cpu()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    (device,), rows = trace["deviceProperties"], trace["traceEvents"]
    facts = torch.cuda.get_device_properties(0)
    assert (device["id"], device["name"], device["numSms"]) == (0, facts.name, facts.multi_processor_count)
    (kernel,) = [r for r in rows if r.get("cat") == "kernel"]
    assert kernel["pid"] == 0 and kernel["args"]["grid"][1:] == [1, 1] and kernel["args"]["block"][0] % 32 == 0
    assert [r["name"] for r in rows if r.get("cat") == "gpu_memcpy"] == ["Memcpy DtoH (Device -> Pageable)"]
    (operator,) = [r for r in rows if r["name"] == "aten::exp"]
    assert kernel["args"]["External id"] == operator["args"]["External id"]
    (call,) = [r for r in rows if r["name"] == "cuLaunchKernel"]
    assert call["args"] == {k: kernel["args"][k] for k in ("External id", "correlation")}
    arrows = [r for r in rows if r.get("cat") == "ac2g" and r["id"] == kernel["args"]["correlation"]]
    assert [r["ph"] for r in arrows] == ["s", "f"]
    assert {"cuLaunchKernel", "cuMemcpyDtoHAsync"} <= {r["name"] for r in rows if r.get("cat") == "cuda_driver"}

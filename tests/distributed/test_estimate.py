"""The planner: counts of work, costs of collectives, pipelines, memory, and the order of layouts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.distributed.programs import watch_programs as programs
from tests.distributed.ranks import Ranks

import rushlight as torch
from rushlight.distributed.estimate import Layout, Link, Machine, better_layouts, estimate, model_work, table
from rushlight.distributed.estimate.layouts import tensor_parallel
from rushlight.distributed.estimate.machine import fitted
from rushlight.utils.flop_counter import FlopCounterMode

MACHINE = Machine(flops=1e12, bandwidth=1e30, near=Link(1e-5, 1e-9))


class Block(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.gelu = torch.nn.LayerNorm(width), torch.nn.Linear(width, 4 * width), torch.nn.GELU()
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        return x + self.down(self.gelu(self.up(self.norm(x))))


class Tower(torch.nn.Module):
    """Blocks in a list that is not called itself."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList([Block(width) for _ in range(depth)])

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return x


def even(depth: int = 8, width: int = 64, batch: int = 32) -> Any:
    """Layers that are all alike."""
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width, bias=False) for _ in range(depth)])
    return model_work(model, torch.empty(batch, width, requires_grad=True))


def test_work_is_that_of_a_step() -> None:
    model = Tower(16, 3)
    work = model_work(model, torch.empty(4, 5, 16))
    assert all(not p.is_meta for p in model.parameters()) and all(p.grad is None for p in model.parameters())
    with FlopCounterMode(display=False) as counter:
        model(torch.rand(4, 5, 16)).sum().backward()
    assert work.flops == counter.get_total_flops() and work.batch == 4
    assert work.elements == sum(p.numel() for p in model.parameters())
    names = [layer.name for layer in work.layers]
    assert (
        names[:5] == [f"Tower.blocks.0{part}" for part in (".norm", ".up", ".gelu", ".down", "")] and len(names) == 15
    )
    up = next(layer for layer in work.layers if layer.name == "Tower.blocks.1.up")
    assert (up.forward.flops, up.backward.flops) == (2 * 20 * 16 * 64, 4 * 20 * 16 * 64)
    assert (up.saved, up.given, up.made, up.kind) == (20 * 16 * 4, 20 * 16 * 4, 20 * 64 * 4, "Linear")
    double = work.scaled(8)
    assert double[1].forward.flops == 2 * work.layers[1].forward.flops and double[1].elements == work.layers[1].elements


def test_collectives_cost_what_the_model_says() -> None:
    ms = MACHINE.seconds
    assert ms("all_reduce", 1000, 4) == pytest.approx(2 * 2 * 1e-5 + 2 * 0.75 * 1000 * 1e-9)
    assert ms("all_gather", 1000, 4) == ms("reduce_scatter", 1000, 4) == pytest.approx(2e-5 + 0.75e-6)
    assert ms("send", 1000, 2) == pytest.approx(1e-5 + 1e-6) and ms("all_reduce", 1000, 1) == 0
    far = Machine(1e12, 1e12, Link(1e-6, 1e-10), far=Link(1e-4, 1e-9), ranks_per_node=4)
    assert far.seconds("broadcast", 1000, 4) == pytest.approx(2e-6 + 1e-7)
    assert far.seconds("broadcast", 1000, 2, stride=4) == pytest.approx(1e-4 + 1e-6)
    link = fitted("all_gather", 4, [(n, MACHINE.seconds("all_gather", n, 4)) for n in (256, 1 << 16, 1 << 20)])
    assert link.alpha == pytest.approx(1e-5) and link.beta == pytest.approx(1e-9)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
def test_pipelines_wait_as_theory_says(schedule: str) -> None:
    work, free = even(), Machine(flops=1e12, bandwidth=1e30, near=Link(0.0, 0.0))
    v = 2 if schedule == "interleaved" else 1
    one = estimate(work, Layout(pp=4, micro_batches=8, schedule=schedule, stages_per_rank=v), free, 32, "sgd")
    whole = work.flops / 1e12
    assert one.bubble == pytest.approx(3 / v / (8 + 3 / v), rel=0.05)
    assert one.seconds == pytest.approx(whole / 4 * (8 + 3 / v) / 8, rel=0.05) and one.compute == pytest.approx(
        whole / 4
    )
    micro = sum(layer.saved for layer in work.layers) / 8 / 4
    held = {"gpipe": 8, "1f1b": 4}.get(schedule)
    if held:  # the first rank keeps most
        assert one.memory.activations == pytest.approx(held * micro, rel=0.01)


def test_what_data_parallel_ranks_divide() -> None:
    work = even(depth=8, width=256)
    nbytes = 4 * work.elements
    found = {shard: estimate(work, Layout(dp=4, shard=shard), MACHINE, 128).memory for shard in ("none", "optimizer", "gradients", "parameters")}  # fmt: skip
    assert [m.optimizer / nbytes for m in found.values()] == [2, 0.5, 0.5, 0.5]
    assert [m.parameters / nbytes for m in found.values()] == [1, 1, 0.25, 0.25]
    assert [m.gradients / nbytes for m in found.values()] == [1, 1, 0.25, 0.25]
    assert [m.gathered / nbytes for m in found.values()] == [1, 1, 1, 0.25]  # two of eight layers at a time
    assert len({m.activations for m in found.values()}) == 1


def test_collectives_hide_behind_computing() -> None:
    work = even(depth=8, width=256)
    layout = Layout(dp=4, bucket_bytes=1)
    alone = estimate(work, Layout(), MACHINE, 32).seconds
    hidden = estimate(work, layout, MACHINE, 128)
    shown = estimate(work, layout, Machine(1e12, 1e30, MACHINE.near, overlap=0.0), 128)
    reduced = 8 * MACHINE.seconds("all_reduce", 4 * 256 * 256, 4)
    assert hidden.collectives == {"all_reduce": pytest.approx(reduced)}
    assert shown.seconds == pytest.approx(alone + reduced) and hidden.seconds < shown.seconds
    slow = Machine(1e12, 1e30, Link(0.0, 1e-3))  # then computing hides behind collectives, but for the last layer's
    last = work.flops / 1e12 / 3 * (1 + 2 / 8)
    assert estimate(work, layout, slow, 128, "sgd").seconds == pytest.approx(
        8 * slow.seconds("all_reduce", 4 * 256 * 256, 4) + last, rel=0.01
    )
    fsdp = estimate(work, Layout(dp=4, shard="parameters"), MACHINE, 128).collectives
    assert fsdp["all_gather"] == pytest.approx(2 * fsdp["reduce_scatter"])


def test_checkpointed_blocks_compute_twice_and_keep_their_inputs() -> None:
    work = model_work(Tower(64, 4), torch.empty(8, 64, requires_grad=True))
    plain, again = (estimate(work, Layout(checkpoint=way), MACHINE, 8) for way in (False, True))
    forward = sum(layer.forward.flops for layer in work.layers) / 1e12
    assert again.compute == pytest.approx(plain.compute + forward)
    block = sum(layer.saved for layer in work.layers[:5])
    assert again.memory.activations == pytest.approx(4 * 8 * 64 * 4 + block) and block < plain.memory.activations / 3


def test_tensor_parallel_divides_pairs_of_layers() -> None:
    work = model_work(Tower(64, 2), torch.empty(8, 64, requires_grad=True))
    spread = {s.layer.name.rpartition("blocks.")[2]: s for s in tensor_parallel(work.layers, 4)}
    whole = {layer.name.rpartition("blocks.")[2]: layer for layer in work.layers}
    for name in ("0.up", "0.down", "1.gelu"):
        assert spread[name].layer.forward.flops == whole[name].forward.flops / 4
        assert spread[name].layer.elements == -(-whole[name].elements // 4)
    assert spread["0.up"].after_backward == 8 * 64 * 4 == spread["0.down"].after_forward
    assert (
        spread["0.norm"].layer.elements == whole["0.norm"].elements
        and spread["0.up"].layer.saved == whole["0.up"].saved
    )
    assert not any(s.after_forward for s in tensor_parallel(work.layers, 4, {"blocks.*.up": "colwise"}))
    one = estimate(work, Layout(tp=4), MACHINE, 8)
    assert one.collectives["all_reduce"] == pytest.approx(4 * MACHINE.seconds("all_reduce", 8 * 64 * 4, 4))


def test_better_layouts_fit_and_come_in_order() -> None:
    work = model_work(Tower(256, 6), torch.empty(4, 128, 256))
    machine = Machine(5e13, 1e12, Link(5e-6, 1e-11), far=Link(3e-5, 1e-10), ranks_per_node=8, memory=2e8)
    found = better_layouts(work, machine, 256, 1024)
    assert len(found) == 5 and [one.seconds for one in found] == sorted(one.seconds for one in found)
    assert all(one.layout.ranks == 256 and one.memory.total <= 2e8 and one.layout.tp <= 8 for one in found)
    again = estimate(work, found[0].layout, machine, 1024)
    assert again.seconds == found[0].seconds and "step (predicted)" in str(again)
    assert table(found).splitlines()[0].split()[:2] == ["step", "(predicted)"] and len(table(found).splitlines()) == 6
    with pytest.raises(ValueError, match="no layout of 256 ranks fits"):
        better_layouts(work, Machine(5e13, 1e12, Link(5e-6, 1e-11), memory=1e5), 256, 1024)
    with pytest.raises(ValueError, match="there must be a layer for each"):
        estimate(even(depth=2), Layout(pp=4, micro_batches=4), MACHINE)
    for wrong in ({"shard": "all"}, {"dp": 0}, {"schedule": "zero"}, {"stages_per_rank": 2}):
        with pytest.raises(ValueError):
            Layout(**wrong)  # type: ignore[arg-type]


@pytest.mark.distributed
def test_a_running_group_is_measured(four: Ranks) -> None:
    found = four.run(programs.planned)
    assert len({machine for machine, _, _ in found}) == 1  # all ranks know the same machine
    for _, predicted, measured in found:
        assert 0.1 < predicted / measured < 10 and math.isfinite(predicted)  # the tests' machine is shared

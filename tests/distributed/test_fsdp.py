"""Training with parameters divided among processes: as one process, and as PyTorch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.distributed import fsdp_programs as programs
from tests.distributed.ranks import Ranks

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from rushlight.distributed.tensor import DTensor

SOME = (
    "parts and whole",
    "tied",
    "list",
    "meta",
    "near",
    "tensor parallel",
    "replicas, two batches",
    "checkpoint inside",
)


def check(found: dict[str, list[float]], size: int) -> None:
    """Losses are PyTorch's to 1e-6, and one process's; in bfloat16 to 1e-3."""
    stored = json.loads(programs.STORED.read_text())
    for name, losses in found.items():
        bound = 1e-3 if name == "narrow" else 1e-6
        assert losses == pytest.approx(stored[str(size)][name], rel=bound), name
        if name not in ("frozen", "momentum", "tensor parallel"):
            one = stored["1"]["tied" if name == "tied" else "plain"]
            assert losses == pytest.approx(one, rel=bound), name
        assert losses[-1] < losses[0]


def test_some_settings_train_as_pytorch(four: Ranks) -> None:
    check(four.run(programs.run, "rushlight", SOME, timeout=120)[0], 4)


@pytest.mark.distributed
@pytest.mark.parametrize("size", [2, 4])
def test_every_setting_trains_as_pytorch(mpi: None, size: int) -> None:
    ranks = Ranks(size)
    try:
        check(ranks.run(programs.run, timeout=600)[0], size)
    finally:
        ranks.close()


def test_what_only_several_processes_show(four: Ranks) -> None:
    for found in four.run(programs.edges, timeout=120):
        assert found["unused"] == [2.0, 0.5, None]
        assert found["scaler"] == (True, 2.0)
        assert found["divided"] == (True, [[3.0] * 3] * 2, "torch.float32")
        assert found["chunks"]


@pytest.fixture
def alone() -> Iterator[Any]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_whole_parameters_are_there_when_they_are_needed(alone: Any) -> None:
    """In forward and from the first gradient on; else modules and state_dict have the parts, and memory is given back."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    fully_shard(net[0])
    fully_shard(net)
    seen: list[bool] = []
    net[0].register_forward_pre_hook(lambda m, a: seen.append(isinstance(m.weight, DTensor)))
    group = net[0]._get_fsdp_state().groups[0]
    out = net(torch.ones(1, 3))
    assert seen == [False] and isinstance(net[0].weight, DTensor) and group.memory is None
    assert net._get_fsdp_state().groups[0].memory is not None  # the root's stay until backward
    out.sum().backward()
    assert group.memory is None and net._get_fsdp_state().groups[0].memory is None
    net[0].unshard()
    assert type(net[0].weight) is torch.nn.Parameter
    assert all(isinstance(x, DTensor) for x in net.state_dict().values())
    net[0].reshard()
    handle = net[0].unshard(async_op=True)
    handle.wait()
    assert not isinstance(net[0].weight, DTensor)
    net[0].reshard()


def test_changes_between_forward_and_backward_are_noticed(alone: Any) -> None:
    net = fully_shard(torch.nn.Linear(3, 2), reshard_after_forward=True)
    out = net(torch.ones(1, 3, requires_grad=True))
    with torch.no_grad():
        net.weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    net.reset_iter_state()
    net(torch.ones(1, 3)).sum().backward()
    assert net.weight.grad.full_tensor().tolist() == [[1.0] * 3] * 2


def test_an_error_in_forward_leaves_a_module_that_works(alone: Any) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    fully_shard(net[1])
    fully_shard(net)
    with pytest.raises(RuntimeError):
        net(torch.ones(1, 5))
    net.reset_iter_state()
    net(torch.ones(1, 3)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    with pytest.raises(RuntimeError, match="root"):
        net[1].reset_iter_state()


def test_hooks_and_methods(alone: Any) -> None:
    """Hooks of sharded parameters run; a method counts as forward; reductions can be watched and replaced."""
    calls: list[str] = []

    class Gather:
        def allocate(self, size: Any, *, dtype: Any, device: Any) -> Any:
            calls.append("allocate")
            return torch.empty(size, dtype=dtype, device=device)

        def __call__(self, output_tensor: Any, input_tensor: Any, group: Any, async_op: bool = False) -> Any:
            calls.append("gather")
            return dist.all_gather_into_tensor(output_tensor, input_tensor, group, async_op)

    class Net(torch.nn.Linear):
        def twice(self, x: Any) -> Any:
            return 2.0 * torch.nn.functional.linear(x, self.weight, self.bias)

    net = fully_shard(Net(3, 2), mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))
    net.set_custom_all_gather(Gather())
    net.set_all_reduce_hook(lambda x: calls.append("reduced"))
    register_fsdp_forward_method(net, "twice")
    net.weight.register_post_accumulate_grad_hook(lambda p: calls.append(type(p).__name__))
    net.twice(torch.ones(1, 3)).sum().backward()
    assert calls == ["allocate", "gather", "reduced", "DTensor"]
    assert net.weight.grad.full_tensor().tolist() == [[2.0] * 3] * 2


def test_what_is_refused(alone: Any) -> None:
    with torch.device("meta"):
        net = fully_shard(torch.nn.Linear(3, 2))
    with pytest.raises(RuntimeError, match="still on meta device: weight, bias"):
        net(torch.ones(1, 3))
    for value, error in (("x", TypeError), (0, ValueError), (True, TypeError)):
        with pytest.raises(error, match="max_input_buffers"):
            net.set_reduce_scatter_max_input_buffers(value)
    with pytest.raises(AssertionError, match="deepcopy"):
        __import__("copy").deepcopy(net)
    with pytest.raises(ValueError, match="non-trivial divisor"):
        fully_shard(torch.nn.Linear(3, 2), reshard_after_forward=2)
    with pytest.raises(ValueError, match="scalar parameters"):
        module = torch.nn.Module()
        module.scale = torch.nn.Parameter(torch.ones(()))
        fully_shard(module)
    with pytest.raises(ValueError, match="containers"):
        fully_shard(torch.nn.ModuleList([torch.nn.Linear(1, 1)]))
    with pytest.raises(ValueError, match="Expects FSDPModule"):
        net.set_modules_to_forward_prefetch([torch.nn.Linear(1, 1)])

"""Training with parameters divided among processes: as one process, and as PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.distributed.programs import fsdp_programs as programs
from tests.distributed.ranks import Ranks

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    fully_shard,
    register_fsdp_forward_method,
)
from rushlight.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from rushlight.distributed.tensor import DTensor, Replicate

SOME = (
    "parts and whole",
    "tied",
    "list",
    "meta",
    "near",
    "tensor parallel",
    "replicas, two batches",
    "replicate, two batches",
    "checkpoint inside",
)


def check(found: dict[str, list[float]], size: int) -> None:
    """Losses are PyTorch's to 1e-6, and one process's; in bfloat16 to 1e-3."""
    stored = programs.stored()
    for name, losses in found.items():
        bound = 1e-3 if "narrow" in name else 1e-6
        if name not in ("wrapper, synced", "wrapper, reloaded"):  # those of one process, see below
            assert losses == pytest.approx(stored[str(size)][name], rel=bound), name
        if name not in ("frozen", "momentum", "tensor parallel"):
            one = stored["1"]["tied" if "tied" in name else "plain"]
            assert losses == pytest.approx(one, rel=bound), name
        assert losses[-1] < losses[0]


@pytest.mark.slow
def test_some_settings_train_as_pytorch(four: Ranks) -> None:
    check(four.run(programs.run, "rushlight", SOME, timeout=120)[0], 4)


def test_replicas_by_the_machinery_of_shards(alone: Any) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    home = torch.distributed._composable.replicate_with_fsdp
    assert home.replicate([net[0]])[0] is net[0] and home.replicate(net) is net
    assert type(net[0]).__name__ == "ReplicateLinear" and isinstance(net[0], home.ReplicateModule)
    assert home.replicate.state(net) is not None and home.replicate.state(torch.nn.Linear(1, 1)) is None
    weight = net[0].weight
    assert isinstance(weight, DTensor) and weight.placements == (Replicate(),)
    assert weight.to_local().shape == (3, 2) and weight.device_mesh.mesh_dim_names == ("replicate",)
    net(torch.ones(1, 2)).sum().backward()
    assert isinstance(weight.grad, DTensor) and weight.grad.placements == (Replicate(),)
    with pytest.raises(RuntimeError, match="already managed by `fully_shard`"):
        home.replicate(fully_shard(torch.nn.Linear(2, 2)))
    with pytest.raises(AssertionError, match="replicate has already been"):
        home.replicate(net)
    with pytest.raises(ValueError, match="replicate expects a 1D DeviceMesh"):
        home.replicate(torch.nn.Linear(2, 2), mesh=torch.distributed.init_device_mesh("cpu", (1, 1)))
    with pytest.raises(ValueError, match="replicate does not support containers"):
        home.replicate(torch.nn.ModuleList([torch.nn.Linear(1, 1)]))


@pytest.mark.distributed
@pytest.mark.parametrize("size", [2, 4])
def test_every_setting_trains_as_pytorch(mpi: None, size: int) -> None:
    ranks = Ranks(size)
    try:
        check(ranks.run(programs.run, timeout=600)[0], size)
    finally:
        ranks.close()


def test_what_only_several_processes_show(four: Ranks) -> None:
    assert four.run(programs.big, timeout=120) == [[True] * 18] * 4
    for found in four.run(programs.edges, timeout=120):
        assert found["unused"] == [2.0, 0.5, None]
        assert found["scaler"] == (True, 2.0)
        assert found["divided"] == (True, [[3.0] * 3] * 2, "torch.float32")
        assert found["chunks"]
        assert found["replicated"] == ("DDPSequential", 3.0, True)


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
    assert type(net[1].weight) is torch.nn.Parameter  # the root's stay until backward
    out.sum().backward()
    assert all(isinstance(p, DTensor) and p.grad is not None for p in net.parameters())
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


def test_outputs_whose_gradients_cannot_be_watched(alone: Any) -> None:
    """Views that are changed in place, and objects with tensors in them."""

    class Hidden:
        def __init__(self, x: Any) -> None:
            self.x = x

    class Part(torch.nn.Linear):
        def __init__(self, form: Any) -> None:
            super().__init__(4, 4)
            self.form = form

        def forward(self, x: Any) -> Any:
            return self.form(super().forward(x))

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = Part(lambda y: y.view(-1, 2, 2)), Part(Hidden)

        def forward(self, x: Any) -> Any:
            y = self.first(x)
            y += 1.0
            return self.second(y.flatten(1)).x.square().sum()

    plain, net = Net(), Net()
    net.load_state_dict(plain.state_dict())
    for part in (net.first, net.second, net):
        fully_shard(part)
    grads = []
    for model in (plain, net):
        x = torch.arange(8.0).view(2, 4).requires_grad_()
        model(x).backward()
        grads.append(x.grad)
    assert torch.allclose(*grads)
    for a, b in zip(net.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(a.grad.full_tensor(), b.grad)


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
    with pytest.raises(RuntimeError, match=r"still on meta device: \['weight', 'bias'\]"):
        net(torch.ones(1, 3))
    for value, error in (("x", TypeError), (0, ValueError), (True, TypeError)):
        with pytest.raises(error, match="max_input_buffers"):
            net.set_reduce_scatter_max_input_buffers(value)
    with pytest.raises(AssertionError, match="deepcopy"):
        __import__("copy").deepcopy(net)
    with pytest.raises(ValueError, match="should be a factor of 1, not 2"):
        fully_shard(torch.nn.Linear(3, 2), reshard_after_forward=2)
    with pytest.raises(ValueError, match="scalar parameters"):
        module = torch.nn.Module()
        module.scale = torch.nn.Parameter(torch.ones(()))
        fully_shard(module)
    with pytest.raises(ValueError, match="containers"):
        fully_shard(torch.nn.ModuleList([torch.nn.Linear(1, 1)]))
    with pytest.raises(ValueError, match="Expects FSDPModule"):
        net.set_modules_to_forward_prefetch([torch.nn.Linear(1, 1)])


def test_state_dicts_of_wrappers(alone: Any) -> None:
    """Names without wrappers; each form loads again; whole parameters by hand; optimizers by names and numbers."""
    from rushlight.distributed.fsdp import FullyShardedDataParallel as FSDP
    from rushlight.distributed.fsdp import MixedPrecision, OptimStateKeyType, StateDictType
    from rushlight.distributed.fsdp.wrap import CustomPolicy

    def made() -> Any:
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))

    plain, model = made(), FSDP(made(), auto_wrap_policy=CustomPolicy(lambda m: isinstance(m, torch.nn.Linear)))
    steps = [torch.optim.AdamW(m.parameters(), lr=0.1) for m in (plain, model)]
    for m, step in zip((plain, model), steps, strict=True):
        m(torch.arange(15.0).view(5, 3).sin()).square().sum().backward()
        step.step()
    for kind in StateDictType:
        with FSDP.state_dict_type(model, kind):
            state = model.state_dict()
            assert list(state) == list(plain.state_dict())
            assert isinstance(state["0.weight"], DTensor) is (kind is StateDictType.SHARDED_STATE_DICT)
            model.load_state_dict(state)
            states = FSDP.optim_state_dict(model, steps[1])
            steps[1].load_state_dict(FSDP.optim_state_dict_to_load(model, steps[1], states))
    with FSDP.summon_full_params(model):
        for (name, a), (other, b) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
            assert name == other and torch.allclose(a, b)
        model[0].weight.data.fill_(5.0)
    assert model.state_dict()["0.weight"].tolist() == [[5.0] * 3] * 4
    full = FSDP.full_optim_state_dict(model, steps[1])
    assert full["state"]["2.bias"]["exp_avg"].shape == (2,) and full["param_groups"][0]["params"][0] == "0.weight"
    numbers = FSDP.rekey_optim_state_dict(full, OptimStateKeyType.PARAM_ID, model, optim=steps[1])
    assert list(numbers["state"]) == list(range(6))
    scattered = FSDP.scatter_full_optim_state_dict(full, model, optim=steps[1])
    assert torch.equal(scattered["state"][5]["exp_avg"].full_tensor(), full["state"]["2.bias"]["exp_avg"])
    half = MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    model = FSDP(made(), auto_wrap_policy=CustomPolicy(lambda m: False), mixed_precision=half)
    assert model(torch.ones(5, 3)).dtype is torch.bfloat16
    assert [type(m).__name__ for m in model.module] == ["Linear", "FullyShardedDataParallel", "Linear"]
    assert all(x.dtype is not torch.bfloat16 for x in model.state_dict().values())


def test_parameters_stay_whole_where_backward_keeps_them(alone: Any) -> None:
    net = fully_shard(torch.nn.Linear(2, 2, bias=False))
    net.set_reshard_after_backward(False)
    net(torch.ones(1, 2)).sum().backward()
    assert type(net.weight) is torch.nn.Parameter and net.weight.grad is None
    net.reshard()
    assert isinstance(net.weight, DTensor) and net.weight.grad.to_local().tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.parametrize("wrapper", [fully_shard, FullyShardedDataParallel])
def test_loaded_values_count_after_a_forward_without_backward(alone: Any, wrapper: Any) -> None:
    """The root keeps its whole parameters after forward: those of the values before."""
    net = wrapper(torch.nn.Linear(3, 2, bias=False))
    with torch.no_grad():
        net(torch.ones(1, 3))
        net.load_state_dict({name: torch.full_like(value, 2.0) for name, value in net.state_dict().items()})
        assert net(torch.ones(1, 3)).tolist() == [[6.0, 6.0]]


def test_wrappers_at_their_edges(alone: Any) -> None:
    from rushlight.distributed.fsdp import FullyShardedDataParallel as FSDP
    from rushlight.distributed.fsdp import MixedPrecision, ShardingStrategy

    with torch.device("meta"):
        net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    model = FSDP(net, ignored_modules=[])
    assert model.check_is_root() and model.module is net and model[0] is net[0]
    seen: list[Any] = []

    def hook(state: Any, grad: Any, out: Any = None) -> None:
        seen.append((state, grad.numel()))
        if out is not None:
            out.copy_(grad[: out.numel()])

    model.register_comm_hook("s", hook)
    model(torch.ones(1, 3)).sum().backward()
    assert seen[0][0] == "s" and model.clip_grad_norm_(100.0).item() >= 0.0
    for options, error in (
        ({"process_group": dist.group.WORLD, "device_mesh": alone}, ValueError),
        ({"mixed_precision": MixedPrecision(keep_low_precision_grads=True)}, NotImplementedError),
        ({"ignored_modules": [], "ignored_states": []}, ValueError),
        ({"param_init_fn": 42}, ValueError),
        ({"sharding_strategy": ShardingStrategy.HYBRID_SHARD, "device_mesh": alone}, ValueError),
    ):
        with pytest.raises(error):
            FSDP(torch.nn.Linear(1, 1), **options)
    with pytest.raises(NotImplementedError, match="rank0_only"):
        with FSDP.summon_full_params(model, rank0_only=True):
            pass
    for options in ({}, {"device_mesh": dist.init_device_mesh("cpu", (1, 1))}):  # axes without names
        model = FSDP(torch.nn.Linear(2, 2), sharding_strategy=ShardingStrategy.HYBRID_SHARD, **options)
        model(torch.ones(1, 2)).sum().backward()
        assert model.clip_grad_norm_(100.0).item() > 0.0
    scaler = ShardedGradScaler(init_scale=4.0)
    scaled = scaler.scale([torch.ones((), dtype=torch.float16), torch.ones(2)])
    assert [(x.dtype, x.sum().item()) for x in scaled] == [(torch.float16, 4.0), (torch.float32, 8.0)]
    frozen = torch.nn.Linear(2, 2)
    model = FSDP(torch.nn.Sequential(frozen, torch.nn.Linear(2, 2)), ignored_modules=[frozen])
    assert not isinstance(frozen.weight, DTensor) and isinstance(model[1].weight, DTensor)
    model(torch.ones(1, 2)).sum().backward()
    assert model.clip_grad_norm_(1.0).item() > 0.0 and frozen.weight.grad is not None


def test_modules_that_are_computed_again(alone: Any) -> None:
    """By wrappers around parts and in place, with names as without them, within sharded modules."""
    from rushlight.distributed._composable import checkpoint
    from rushlight.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        CheckpointImpl,
        CheckpointWrapper,
        apply_activation_checkpointing,
        checkpoint_wrapper,
        offload_wrapper,
    )

    calls: list[int] = []

    class Part(torch.nn.Linear):
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            calls.append(1)
            return super().forward(x).relu() * scale

    def made() -> Any:
        torch.manual_seed(2)
        return torch.nn.Sequential(Part(3, 4), torch.nn.Sequential(Part(4, 4), torch.nn.ReLU()), torch.nn.Linear(4, 2))

    plain, x = made(), torch.arange(6.0).view(2, 3).requires_grad_()
    plain(x).square().sum().backward()

    def reentrant(module: Any) -> Any:
        return checkpoint_wrapper(module, CheckpointImpl.REENTRANT)

    for wrapper, times in ((checkpoint_wrapper, 4), (reentrant, 4), (offload_wrapper, 2)):
        net = made()
        apply_activation_checkpointing(net, wrapper, check_fn=lambda m: isinstance(m, Part))
        assert [n for n, _ in net.named_parameters()] != [] and list(net.state_dict()) == list(plain.state_dict())
        net.load_state_dict(plain.state_dict())
        fully_shard(net)
        calls.clear()
        net(x).square().sum().backward()
        assert len(calls) == times
        for a, b in zip(net.parameters(), plain.parameters(), strict=True):
            assert torch.allclose(a.grad.full_tensor(), b.grad)
    net = made()
    fully_shard(checkpoint(net[0]))
    fully_shard(net)
    calls.clear()
    net(x).square().sum().backward()
    assert len(calls) == 3
    assert torch.allclose(net[0].weight.grad.full_tensor(), plain[0].weight.grad)
    one = CheckpointWrapper(Part(3, 4), CheckpointImpl.REENTRANT)
    assert torch.equal(one(x, scale=2.0), 2.0 * one(x)) and one.in_features == 3
    with pytest.raises(NotImplementedError, match="use_reentrant"):
        checkpoint(Part(1, 1), use_reentrant=True)


def test_an_optimizer_may_be_made_before_wrapping(four: Ranks) -> None:
    four.run(programs.made_before, timeout=150.0)

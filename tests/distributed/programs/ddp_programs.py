"""What the ranks of `test_ddp` do: gradients and parameters of `DistributedDataParallel` beside one process's."""

from __future__ import annotations

import copy
from typing import Any

import rushlight as torch
import rushlight.distributed as dist
import rushlight.nn as nn
import rushlight.nn.functional as F
from rushlight.distributed.algorithms.join import Join
from rushlight.distributed.optim import ZeroRedundancyOptimizer
from rushlight.nn.parallel import DistributedDataParallel as DDP


class Net(nn.Module):
    """Two ways, of which a call may leave one out."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.spare = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(6, 3)

    def forward(self, x: Any, spare: bool = True) -> Any:
        y = self.b(torch.relu(self.a(x)))
        return y + self.spare(x) if spare else y


def batch(rank: int, step: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(5, 6, generator=generator), torch.randint(0, 3, (5,), generator=generator)


def means(model: Any, ranks: list[int], step: int, **kwargs: Any) -> list[Any]:
    """The means of all ranks' gradients, computed here."""
    total: list[Any] = []
    for rank in ranks:
        model.zero_grad()
        x, y = batch(rank, step)
        F.cross_entropy(model(x, **kwargs), y).backward()
        grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        total = [
            g if t is None else t if g is None else t + g
            for t, g in zip(total or [None] * len(grads), grads, strict=True)
        ]
    return [None if t is None else t / len(ranks) for t in total]


def pair(rank: int, size: int) -> tuple[Any, list[int]]:
    """A group of two, whose sums do not depend on an order, and its ranks."""
    groups = [dist.new_group([k, k + 1]) for k in range(0, size, 2)]
    return groups[rank // 2], [rank // 2 * 2, rank // 2 * 2 + 1]


def check(model: Any, expected: list[Any], exact: bool, what: Any) -> None:
    for (name, p), wanted in zip(model.module.named_parameters(), expected, strict=True):
        if wanted is None:
            assert p.grad is None, (what, name)
        elif exact:
            assert torch.equal(p.grad, wanted), (what, name, p.grad, wanted)
        else:
            torch.testing.assert_close(p.grad, wanted, rtol=1e-5, atol=1e-7)


def steps(rank: int, size: int) -> int:
    """Three steps with every setting: two ranks to the bit, four within a bound; parameters stay equal."""
    two, ranks = pair(rank, size)
    three = dist.new_group([0, 1, 2])
    count = 0
    for group, members in ((two, ranks), (three, [0, 1, 2]), (dist.group.WORLD, list(range(size)))):
        if rank not in members:
            continue
        for settings in (
            {}, {"gradient_as_bucket_view": True}, {"find_unused_parameters": True}, {"static_graph": True}, {"bucket_cap_mb": 1e-4},
            {"static_graph": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 1e-4},
        ):  # fmt: skip
            torch.manual_seed(rank)  # the first rank's parameters count
            model = DDP(Net(), process_group=group, **settings)
            torch.manual_seed(members[0])
            alone = Net()
            optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, alone)]
            for step in range(3):
                expected = means(alone, members, step)
                optimizers[0].zero_grad(set_to_none=step != 1)
                x, y = batch(rank, step)
                F.cross_entropy(model(x), y).backward()
                check(model, expected, len(members) == 2, (settings, step))
                for p, g in zip(alone.parameters(), expected, strict=True):
                    p.grad = g
                for optimizer in optimizers:
                    optimizer.step()
                count += 1
            found = [torch.zeros(8, 6) for _ in members]
            dist.all_gather(found, model.module.a.weight.detach(), group=group)
            assert all(torch.equal(f, found[0]) for f in found)
    return count


def unused(rank: int, size: int) -> str:
    """Parameters without gradients: on all ranks, on some, and not asked for."""
    torch.manual_seed(0)
    model, alone = DDP(Net(), find_unused_parameters=True), Net()
    alone.load_state_dict(model.module.state_dict())
    for step, here in enumerate((True, False, rank == 1)):
        model.zero_grad()
        x, y = batch(rank, step)
        F.cross_entropy(model(x, spare=here), y).backward()
        spare = model.module.spare.weight.grad
        assert (spare is None) == (step == 1), (rank, step)
        if step == 2:
            alone.zero_grad()
            x, y = batch(1, step)
            F.cross_entropy(alone(x), y).backward()
            torch.testing.assert_close(spare, alone.spare.weight.grad / size)
    model = DDP(Net())
    x, y = batch(rank, 0)
    F.cross_entropy(model(x, spare=False), y).backward()
    try:
        model(x)
    except RuntimeError as error:
        return str(error)
    raise AssertionError("no error")


def accumulated(rank: int, size: int) -> None:
    """`no_sync`: local sums, reduced by the first backward after it."""
    two, ranks = pair(rank, size)
    for views in (False, True):
        torch.manual_seed(0)
        model = DDP(Net(), process_group=two, gradient_as_bucket_view=views)
        alone = copy.deepcopy(model.module)
        expected = [torch.zeros(p.shape) for p in alone.parameters()]
        for member in ranks:
            alone.zero_grad()
            for step in range(3):
                x, y = batch(member, step)
                F.cross_entropy(alone(x), y).backward()
            expected = [e + p.grad for e, p in zip(expected, alone.parameters(), strict=True)]
        with model.no_sync():
            for step in range(2):
                x, y = batch(rank, step)
                F.cross_entropy(model(x), y).backward()
        x, y = batch(rank, 2)
        F.cross_entropy(model(x), y).backward()
        check(model, [e / 2 for e in expected], True, views)


def buffers(rank: int, size: int) -> None:
    """Buffers of the first rank go to the others before each forward."""
    model = DDP(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    for _ in range(2):
        model(torch.full((3, 4), float(rank)) + torch.arange(3.0).unsqueeze(1)).sum().backward()
    with torch.no_grad():
        model.eval()
        model(torch.ones(2, 4))
    found = [torch.zeros(4) for _ in range(size)]
    dist.all_gather(found, model.module[1].running_mean)
    assert all(torch.equal(f, found[0]) for f in found)


def mismatched(rank: int, size: int) -> str:
    """Modules that differ."""
    try:
        DDP(nn.Linear(3, 4 if rank == 2 else 5))
    except RuntimeError as error:
        return str(error)
    raise AssertionError("no error")


def hooks(rank: int, size: int) -> None:
    """Communication hooks: own, allreduce, halves, PowerSGD."""
    from rushlight.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    for kind in dist.BuiltinCommHookType:
        model = DDP(nn.Linear(2, 1))
        model._register_builtin_comm_hook(kind)
        model(torch.full((1, 2), float(rank))).sum().backward()
        assert model.module.weight.grad.tolist() == [[sum(range(size)) / size] * 2]
    seen: list[Any] = []

    def own(state: Any, bucket: Any) -> Any:
        seen.append((bucket.index(), bucket.is_last(), len(bucket.parameters()), bucket.buffer().shape[0]))
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda f: f.value()[0].div_(size))

    cases = [
        (None, own, 1e-6), (None, default_hooks.allreduce_hook, 1e-6), (None, default_hooks.fp16_compress_hook, 2e-3),
        (None, default_hooks.bf16_compress_hook, 2e-2), (None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 2e-3),
    ]  # fmt: skip
    for state, hook, bound in cases:
        torch.manual_seed(0)
        model = DDP(Net())
        model.register_comm_hook(state, hook)
        alone = copy.deepcopy(model.module)
        for step in range(2):
            model.zero_grad()
            expected = means(alone, list(range(size)), step)
            x, y = batch(rank, step)
            F.cross_entropy(model(x), y).backward()
            for p, e in zip(model.parameters(), expected, strict=True):
                torch.testing.assert_close(p.grad, e, rtol=bound, atol=bound)
    assert seen[0][1] and seen[0][2] == 6 and seen[0][3] == sum(p.numel() for p in alone.parameters())
    model = DDP(nn.Linear(64, 64))
    state = powerSGD_hook.PowerSGDState(
        None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for step in range(4):
        model.zero_grad()
        generator = torch.Generator().manual_seed(step)  # a gradient of rank one, the same everywhere
        row = torch.randn(1, 64, generator=generator)
        (model(row) * (1.0 + rank)).sum().backward()
        expected = torch.ones(64, 1) * row * (sum(range(1, size + 1)) / size)
        torch.testing.assert_close(model.module.weight.grad, expected, rtol=1e-4, atol=1e-4)


def batch_statistics(rank: int, size: int) -> None:
    """SyncBatchNorm of batches of different sizes beside BatchNorm of the whole batch."""
    for shape, momentum in (((6, 3), 0.1), ((5, 3, 4), None)):
        rows = [torch.randn(k + 1, *shape[1:], generator=torch.Generator().manual_seed(k)) for k in range(size)]
        weights = [torch.randn(k + 1, *shape[1:], generator=torch.Generator().manual_seed(50 + k)) for k in range(size)]
        synced, alone = nn.SyncBatchNorm(3, momentum=momentum), nn.BatchNorm1d(3, momentum=momentum)
        with torch.no_grad():
            for layer in (synced, alone):
                layer.weight.copy_(torch.tensor([1.0, 2.0, 3.0]))
        for _ in range(2):
            x, whole = rows[rank].clone().requires_grad_(), torch.cat(rows).requires_grad_()
            y, expected = synced(x), alone(whole)
            start = sum(range(1, rank + 1))
            torch.testing.assert_close(y, expected[start : start + rank + 1], rtol=1e-5, atol=1e-5)
            for layer in (synced, alone):
                layer.zero_grad()
            (y * weights[rank]).sum().backward()
            (expected * torch.cat(weights)).sum().backward()
            torch.testing.assert_close(x.grad, whole.grad[start : start + rank + 1], rtol=1e-4, atol=1e-5)
            for p, q in zip(synced.parameters(), alone.parameters(), strict=True):
                total = p.grad.clone()
                dist.all_reduce(total)
                torch.testing.assert_close(total, q.grad, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(synced.running_mean, alone.running_mean)
            torch.testing.assert_close(synced.running_var, alone.running_var)
        assert torch.equal(
            synced.eval()(rows[0]),
            F.batch_norm(rows[0], synced.running_mean, synced.running_var, synced.weight, synced.bias),
        )


def divided(rank: int, size: int) -> None:
    """ZeroRedundancyOptimizer beside Adam: parameters, states that are brought together and loaded again."""
    from rushlight.distributed.optim import ZeroRedundancyOptimizer

    torch.manual_seed(0)
    model = Net()
    alone = copy.deepcopy(model)
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    adam = torch.optim.Adam(alone.parameters(), lr=0.01)
    assert sum(len(group["params"]) for group in zero.optim.param_groups) < len(list(model.parameters()))
    for step in range(4):
        for one, optimizer in ((model, zero), (alone, adam)):
            optimizer.param_groups[0]["lr"] = 0.01 / (step + 1)
            optimizer.zero_grad()
            x, y = batch(0, step)
            F.cross_entropy(one(x), y).backward()
            optimizer.step()
        for p, q in zip(model.parameters(), alone.parameters(), strict=True):
            assert torch.equal(p, q)
        if step == 1:
            zero.consolidate_state_dict(to=1)
            saved = [zero.state_dict() if rank == 1 else None]
            dist.broadcast_object_list(saved, 1)
            expected = adam.state_dict()
            assert saved[0]["param_groups"][0]["params"] == expected["param_groups"][0]["params"]
            for number, one in expected["state"].items():
                assert torch.equal(saved[0]["state"][number]["exp_avg"], one["exp_avg"])
            zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.5)
            zero.load_state_dict(saved[0])
    averaging(rank, size)


def averaging(rank: int, size: int) -> None:
    """Post-local SGD: local steps, then the mean of the parameters."""
    from rushlight.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from rushlight.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
    from rushlight.distributed.optim import PostLocalSGDOptimizer

    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    optimizer = PostLocalSGDOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), PeriodicModelAverager(period=2, warmup_steps=1)
    )
    for step in range(2):
        optimizer.zero_grad()
        (model(torch.ones(1, 2)) * (rank + 1)).sum().backward()
        optimizer.step()
        moved = rank + 1 if step == 0 else rank + 1 + sum(range(1, size + 1)) / size - (rank + 1)
    assert optimizer.state_dict()["step"] == 2 and moved
    expected = 1.0 - 2 * sum(range(1, size + 1)) / size
    assert torch.allclose(model.weight, torch.full((1, 2), expected))
    averager = HierarchicalModelAverager({1: 2, 2: size})
    for step in range(2):  # all at step 0, the neighbour at step 1
        model.weight.data.fill_(float(rank))
        averager.average_parameters(model.parameters())
        assert model.weight[0, 0].item() == (sum(range(size)) / size if step == 0 else rank // 2 * 2 + 0.5)


def joined(rank: int, size: int) -> None:
    """Batches of different numbers: those who have none left answer with zeros; all end with the same parameters."""
    for by_all in (True, False):
        for count in (lambda k: k + 1, lambda k: size - k, lambda k: 0 if k == 1 else 3):
            torch.manual_seed(0)
            model = DDP(nn.Sequential(Net(), nn.BatchNorm1d(3, affine=False)), bucket_cap_mb=1e-4)
            alone = copy.deepcopy(model.module[0])
            optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, alone)]
            with model.join(divide_by_initial_world_size=by_all):
                for step in range(count(rank)):
                    x, y = batch(rank, step)
                    optimizers[0].zero_grad()
                    model(x)  # its hooks wait for gradients, which may come from any use of the parameters
                    F.cross_entropy(model.module[0](x), y).backward()
                    optimizers[0].step()
            for step in range(max(count(k) for k in range(size))):
                active = [k for k in range(size) if count(k) > step]
                grads = means(alone, active, step)
                for p, g in zip(alone.parameters(), grads, strict=True):
                    p.grad = g * (len(active) / size) if by_all else g
                optimizers[1].step()
            for p, q in zip(model.module[0].parameters(), alone.parameters(), strict=True):
                torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)
            found = [torch.zeros(3) for _ in range(size)]
            dist.all_gather(found, model.module[1].running_mean)
            assert all(torch.equal(f, found[0]) for f in found)
    model = DDP(Net())
    try:
        with model.join(throw_on_early_termination=True):
            for step in range(1 + rank):
                x, y = batch(rank, step)
                F.cross_entropy(model(x), y).backward()
    except RuntimeError as error:
        assert "exhausted" in str(error)
    else:
        raise AssertionError("no error")


def joined_in_parts(rank: int, size: int) -> None:
    """An optimizer whose state is divided: a process without more batches steps its part with the gradients of the others."""
    for settings in ({}, {"gradient_as_bucket_view": True}, {"static_graph": True}):
        torch.manual_seed(0)
        model = DDP(Net(), bucket_cap_mb=1e-4, **settings)
        alone = copy.deepcopy(model.module)
        divided = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.05)
        plain = torch.optim.Adam(alone.parameters(), lr=0.05)
        with Join([model, divided]):
            for step in range(rank + 1):
                x, y = batch(rank, step)
                divided.zero_grad()
                F.cross_entropy(model(x), y).backward()
                divided.step()
        for step in range(size):
            active = [k for k in range(size) if k + 1 > step]
            for p, g in zip(alone.parameters(), means(alone, active, step), strict=True):
                p.grad = g * (len(active) / size)
            plain.step()
        for p, q in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def compiled(rank: int, size: int) -> None:
    """Compiled around and inside of the wrapper: the gradients of the eager one."""
    found = []
    for around, inside in ((False, False), (True, False), (False, True)):
        torch.manual_seed(0)
        net = Net()
        model = DDP(torch.compile(net) if inside else net)
        call = torch.compile(model) if around else model
        for step in range(3):
            model.zero_grad()
            x, y = batch(rank, step)
            F.cross_entropy(call(x), y).backward()
        found.append([p.grad.clone() for p in net.parameters()])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.equal(a, b)


def mixed(rank: int, size: int) -> None:
    """Forward and backward in bfloat16, gradients and parameters in float32."""
    from rushlight.nn.parallel.distributed import _MixedPrecision

    torch.manual_seed(0)
    net = nn.Sequential(Net(), nn.BatchNorm1d(3))
    model = DDP(net, mixed_precision=_MixedPrecision(torch.bfloat16, torch.float32, torch.float32))
    alone = copy.deepcopy(net).to(torch.bfloat16)
    for step in range(2):
        model.zero_grad()
        alone.zero_grad()
        x, y = batch(rank, step)
        out = model(x)
        assert out.dtype is torch.bfloat16
        F.cross_entropy(out.float(), y).backward()
        F.cross_entropy(alone(x.to(torch.bfloat16)).float(), y).backward()
        for p, q in zip(model.parameters(), alone.parameters(), strict=True):
            assert p.dtype is p.grad.dtype is torch.float32
            mean = q.grad.float()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            torch.testing.assert_close(p.grad, mean, rtol=2e-2, atol=2e-3)


def options(rank: int, size: int) -> None:
    """Buckets of sizes that are listed, parameters that nobody uses, and gradients that wait for another one."""
    group, members = pair(rank, size)
    torch.manual_seed(0)
    alone, one = Net(), Net()
    one.load_state_dict(alone.state_dict())
    expected, without = means(alone, members, 0), means(one, members, 0, spare=False)
    x, y = batch(rank, 0)
    listed = DDP(copy.deepcopy(alone), process_group=group, bucket_cap_mb_list=[1e-6, 1.0])
    assert [bucket.indices for bucket in listed.reducer.buckets] == [[5], [4, 3, 2, 1, 0]]
    assert listed.bucket_bytes_cap_list == [1, 1 << 20] and listed.bucket_bytes_cap == 1 << 20
    for _ in range(2):  # buckets are made anew
        listed.zero_grad()
        F.cross_entropy(listed(x), y).backward()
        check(listed, expected, True, "listed")

    skipping = DDP(
        copy.deepcopy(alone), process_group=group, find_unused_parameters=True, bucket_cap_mb=1e-6, skip_all_reduce_unused_params=True,
    )  # fmt: skip
    sent: list[int] = []
    skipping.register_comm_hook(None, lambda state, bucket: sent.append(bucket.index()) or _mean(group, bucket))
    F.cross_entropy(skipping(x, spare=False), y).backward()
    check(skipping, without, True, "skipping")
    assert sorted(sent) == [2, 3, 4, 5]

    module = copy.deepcopy(alone)
    late = [(name, p) for name, p in module.named_parameters() if not name.startswith("a.")]
    delayed = DDP(
        module, process_group=group, delay_all_reduce_named_params=late, param_to_hook_all_reduce=module.a.weight
    )
    for _ in range(2):
        delayed.zero_grad()
        F.cross_entropy(delayed(x), y).backward()
        check(delayed, expected, True, "delayed")
    assert delayed.delayed is not None and all(
        p.grad is v for (_, p), v in zip(late, delayed.delayed.views, strict=True)
    )


def _mean(group: Any, bucket: Any) -> Any:
    return dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, group=group, async_op=True).get_future()

"""What ranks run in the tests of pipelines: each function is called with (rank, size)."""

from __future__ import annotations

import copy
import threading
from typing import Any

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed.pipelining import PipelineStage, SplitPoint, orders, pipe_split, pipeline
from rushlight.distributed.pipelining.lowering import flat
from rushlight.distributed.pipelining.schedules import get_schedule_class
from rushlight.distributed.tensor import DTensor, Partial, Shard
from rushlight.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

GROUPS: dict[Any, Any] = {}
V = ("ZBVZeroBubble", "DualPipeV")
SINGLE = ("GPipe", "1F1B")


def group_of(rank: int, ranks: int) -> Any:
    """A group of so many neighbours, this rank among them."""
    if ranks not in GROUPS:
        for start in range(0, dist.get_world_size(), ranks):
            made = dist.new_group(list(range(start, start + ranks)))
            if start <= rank < start + ranks:
                GROUPS[ranks] = made
    return GROUPS[ranks]


class Block(torch.nn.Module):
    """A layer with a residual connection and a norm: several parameters, of which one is used twice."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(width, width), torch.nn.LayerNorm(width)
        self.scale = torch.nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Any) -> Any:
        return self.b(x + self.a(x).relu() * self.scale) * self.scale


def blocks(count: int, width: int = 6) -> list[Any]:
    torch.manual_seed(7)
    return [Block(width) for _ in range(count)]


def batch(size: int, width: int = 6) -> tuple[Any, Any]:
    torch.manual_seed(11)
    return torch.randn(size, width), torch.randn(size, width)


def alone(stages: list[Any], x: Any, target: Any, microbatches: int, backwards: list[int]) -> Any:
    """Losses and gradients of one process; gradients are added up in the order `backwards` of micro-batches."""
    net = torch.nn.Sequential(*stages)
    losses = [
        torch.nn.functional.mse_loss(net(a), b)
        for a, b in zip(x.tensor_split(microbatches), target.tensor_split(microbatches), strict=True)
    ]
    for m in backwards:
        losses[m].backward()
    for p in net.parameters():
        p.grad.div_(microbatches)
    return losses


def mine(name: str, rank: int, ranks: int, stages: int) -> list[int]:
    """The stages of a rank."""
    place = orders.stages_in_v if name in V else orders.stages_in_loop
    return [stage for stage, owner in place(ranks, stages).items() if owner == rank]


def schedule_of(name: str, parts: list[Any], group: Any, stages: int, microbatches: int, **options: Any) -> Any:
    """(schedule, this rank's stages)."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    held = [PipelineStage(parts[k], k, stages, "cpu", group=group) for k in mine(name, rank, ranks, stages)]
    kind: Any = get_schedule_class(name)
    loss = torch.nn.functional.mse_loss
    return kind(held[0] if name in SINGLE else held, microbatches, loss_fn=loss, **options), held


def schedules(rank: int, size: int, rows: list[tuple[str, int, int, int]]) -> int:
    """Losses and gradients of each schedule are those of one process, bit for bit: (name, ranks, stages, micro-batches)."""
    for name, ranks, stages, microbatches in rows:
        group, parts = group_of(rank, ranks), blocks(stages)
        one = copy.deepcopy(parts)
        schedule, held = schedule_of(name, parts, group, stages, microbatches)
        x, target = batch(2 * microbatches)
        backward = list(range(microbatches))
        expected = alone(one, x, target, microbatches, backward[::-1] if name == "LoopedBFS" else backward)
        for _ in range(2):  # a second step, after the gradients were dropped
            for part in parts:
                part.zero_grad()
            losses: list[Any] = []
            args = (x,) if any(stage.is_first for stage in held) else ()
            last = any(stage.is_last for stage in held)
            out = schedule.step(*args, target=target if last else None, losses=losses)
            assert (out is not None) == last == bool(losses)
            if last:
                assert [a.item() for a in losses] == [b.item() for b in expected], name
                assert torch.equal(out, torch.nn.Sequential(*one)(x)), name
            for stage in held:
                for (key, p), q in zip(
                    stage.submod.named_parameters(), one[stage.stage_index].parameters(), strict=True
                ):
                    assert torch.equal(p.grad, q.grad), (name, stage.stage_index, key, (p.grad - q.grad).abs().max())
        out = schedule.eval(*args, target=target if last else None)
        if last:
            assert torch.equal(out, torch.nn.Sequential(*one)(x))
    return len(rows)


def overlapped(rank: int, size: int) -> list[str]:
    """A function of one's own that runs a forward and the backward of another micro-batch in two threads, as programs
    for PyTorch write it: gradients are those without it.
    """
    from rushlight.distributed.pipelining.schedules import OVERLAP_F_B, _wait_batch_p2p

    ran: list[str] = []

    def both(action: Any, context: Any) -> None:
        schedule = context.schedule_ref
        stages = {stage.stage_index: stage for stage in schedule._stages}
        forward, backward = action.sub_actions
        ran.append(str(action))
        for held, one in ((schedule.fwd_recv_ops, forward), (schedule.bwd_recv_ops, backward)):
            _wait_batch_p2p(held.pop((one.stage_index, one.microbatch_index), ()))

        def back() -> None:
            stage, m = stages[backward.stage_index], backward.microbatch_index
            loss = schedule._maybe_get_loss(stage, m)
            schedule.backward_counter[stage.stage_index] += 1
            last = schedule.backward_counter[stage.stage_index] == schedule._n_microbatches
            stage.backward_one_chunk(m, loss=loss, full_backward=True, last_backward=last)
            if stage.stage_index - 1 in stages:
                stages[stage.stage_index - 1].set_local_bwd_input(stage.get_local_bwd_output(m), m)

        thread = threading.Thread(target=back)
        thread.start()
        stage, m = stages[forward.stage_index], forward.microbatch_index
        output = stage.forward_one_chunk(m, context.arg_mbs[m], context.kwarg_mbs[m])
        schedule._maybe_compute_loss(stage, output, context.target_mbs, m)
        if stage.stage_index + 1 in stages:
            stages[stage.stage_index + 1].set_local_fwd_input(output, m)
        thread.join()

    group, parts, microbatches = group_of(rank, 2), blocks(4), 6
    x, target = batch(2 * microbatches)
    found = []
    for function in (None, both):
        held_parts = copy.deepcopy(parts)
        schedule, held = schedule_of("DualPipeV", held_parts, group, 4, microbatches)
        if function is not None:
            schedule.register_custom_function(OVERLAP_F_B, function)
        args = (x,) if any(stage.is_first for stage in held) else ()
        schedule.step(*args, target=target if any(stage.is_last for stage in held) else None)
        found.append([p.grad for stage in held for p in stage.submod.parameters()])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)
    return ran


def at_most(name: str, ranks: int, stages: int, microbatches: int) -> int:
    """Sum over the ranks of the most micro-batches that each keeps at a time."""
    kinds: dict[str, Any] = {"GPipe": orders.gpipe, "1F1B": orders.one_forward_one_backward}
    found = 0
    for actions in kinds[name](ranks, microbatches).values():
        held, most = 0, 0
        for action in flat(actions):
            held += {"F": 1, "B": -1}.get(str(action.computation_type), 0)
            most = max(most, held)
        found += most
    return found


# ***** pipelines made from whole modules *****


class Net(torch.nn.Module):
    """Parts that no tracer could follow, a skip connection over a stage, a shared parameter, buffers, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.front, self.middle, self.back = Block(6), Untraceable(6), Block(6)
        self.norm, self.drop = torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.0)
        self.back.a.weight = self.front.a.weight

    def forward(self, x: Any, shift: Any, *, double: bool = False) -> Any:
        count = x.shape[0]
        x = self.front(x) + shift
        skip = x
        pipe_split()
        x = self.drop(self.middle(x))
        pipe_split()
        x = self.norm(self.back(x.reshape(count, 6)) + skip)
        return x * 2 if double else x


class Untraceable(torch.nn.Module):
    """Asks for elements of tensors."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = Block(width)

    def forward(self, x: Any) -> Any:
        return self.block(x) if x.sum().item() > -1e9 else x


def pipes(rank: int, size: int) -> Any:
    """A module that is divided by `pipe_split` trains as it does on one process."""
    group = group_of(rank, 2)
    torch.manual_seed(3)
    net = Net()
    state = copy.deepcopy(net.state_dict())
    pipe = pipeline(net, (torch.randn(2, 6), torch.randn(2, 6)), {"double": True})
    assert all(torch.equal(a, b) for a, b in zip(state.values(), net.state_dict().values(), strict=True))
    assert pipe.num_stages == 3 and len(pipe.replicated_params) == 1
    x, shift = batch(6)
    whole = copy.deepcopy(net)
    expected = torch.cat([whole(a, b, double=True) for a, b in zip(x.chunk(3), shift.chunk(3), strict=True)])
    pipe2 = pipeline(net, (x, shift), {"double": True}, split_spec={"middle": SplitPoint.END})
    assert pipe2.num_stages == 4  # split points in forward count too
    stages = [pipe2.build_stage(k, "cpu", group) for k in range(rank % 2, 4, 2)]
    schedule: Any = get_schedule_class("Interleaved1F1B")(stages, 2, loss_fn=lambda y, t: (y * t).mean())  # type: ignore[call-arg]
    one = copy.deepcopy(net)
    losses = [
        (one(a, b, double=True) * c).mean() for a, b, c in zip(x.chunk(2), shift.chunk(2), x.chunk(2), strict=True)
    ]
    for loss in losses:
        loss.backward()
    found: list[Any] = []
    args = (x, shift) if not rank % 2 else ()
    schedule.step(*args, target=x if rank % 2 else None, losses=found)
    if rank % 2:
        assert [a.item() for a in found] == [b.item() for b in losses]
    named = dict(one.named_parameters())
    shared = dict.fromkeys(("front.a.weight", "back.a.weight"))
    for stage in stages:
        for name, p in stage.submod.named_parameters():
            if name in shared:
                shared[name] = p.grad
            else:
                assert torch.equal(p.grad, named[name].grad / 2), name
    total = sum(g for g in shared.values() if g is not None)
    dist.all_reduce(total, group=group)
    assert torch.allclose(total, named["front.a.weight"].grad / 2, atol=1e-6)
    assert torch.equal(net.norm.running_mean, one.norm.running_mean) or not rank % 2
    return [tuple(expected.shape), [list(pipe.get_stage_module(k).state_dict()) for k in range(3)]]


class Passes(torch.nn.Module):
    """A layer that takes and gives DTensors: columns divided, then rows, by turns; the result lies as `gives`."""

    def __init__(self, layer: Any, rows: bool, gives: Any, last: bool) -> None:
        super().__init__()
        self.layer, self.rows, self.gives, self.last = layer, rows, gives, last

    def forward(self, x: Any) -> Any:
        if self.rows and isinstance(x, DTensor):
            x = x.redistribute(placements=[Shard(1)])
        y = self.layer(x).tanh() if not self.rows else self.layer(x)
        if not isinstance(y, DTensor) or self.last:
            return y.full_tensor() if isinstance(y, DTensor) else y
        if self.rows:
            return DTensor.from_local(y.to_local(grad_placements=[Partial()]) / 2, y.device_mesh, [Partial()])
        return y.redistribute(placements=[self.gives]) if self.gives is not None else y


def spread(rank: int, size: int, name: str, stages: int, gives: Any) -> None:
    """Stages of a pipeline exchange DTensors over the tensor parallel axis of a mesh of 2 x 2: one process's gradients."""
    if "mesh" not in GROUPS:
        GROUPS["mesh"] = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    mesh = GROUPS["mesh"]
    torch.manual_seed(3)
    whole = [torch.nn.Linear(6, 6) for _ in range(stages)]
    one = copy.deepcopy(whole)
    parts: list[Any] = []
    for k, layer in enumerate(whole):
        rows = bool(k % 2)
        style = RowwiseParallel if rows else ColwiseParallel
        parallelize_module(layer, mesh["tp"], style(use_local_output=False))
        parts.append(Passes(layer, rows, gives, k == stages - 1))
    schedule, held = schedule_of(name, parts, mesh["pp"].get_group(), stages, 2)
    for stage in held:
        stage._find_mesh = lambda names, layout: mesh[names]
    x, target = batch(4)

    def alone(y: Any) -> Any:
        for k, layer in enumerate(one):
            y = layer(y) if k % 2 else layer(y).tanh()
        return y

    expected = [torch.nn.functional.mse_loss(alone(a), b) for a, b in zip(x.chunk(2), target.chunk(2), strict=True)]
    for loss in expected:
        (loss / 2).backward()
    losses: list[Any] = []
    args = (x,) if any(stage.is_first for stage in held) else ()
    last = any(stage.is_last for stage in held)
    schedule.step(*args, target=target if last else None, losses=losses)
    if last:
        assert torch.allclose(torch.stack(losses), torch.stack(expected).detach(), rtol=1e-5, atol=1e-6)
    for stage in held:
        for p, q in zip(stage.submod.parameters(), one[stage.stage_index].parameters(), strict=True):
            assert torch.allclose(p.grad.full_tensor(), q.grad, rtol=1e-4, atol=1e-6), (name, stage.stage_index)


def messages_of_errors(rank: int, size: int) -> list[str]:
    """What goes wrong, by name."""
    group, parts = group_of(rank, 2), blocks(2)
    schedule, _ = schedule_of("GPipe", parts, group, 2, 2)
    x, target = batch(4)
    found = []
    for call in (
        lambda: schedule.step(x, target=target.tensor_split(1)[0], losses=()),
        lambda: torch.no_grad()(schedule.step)(x, target=target),
        lambda: get_schedule_class("Interleaved1F1B")([schedule._stage], 2),  # type: ignore[call-arg]
        lambda: get_schedule_class("ZBVZeroBubble")([schedule._stage] * 3, 2),  # type: ignore[call-arg]
        lambda: PipelineStage(parts[0], 0, 1, "cpu", group=group),
    ):
        try:
            call()
            found.append("")
        except (RuntimeError, ValueError, TypeError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def parts_of(text: str) -> tuple[int, str, str]:
    """Stage, kind and micro-batch of an action's text."""
    from rushlight.distributed.pipelining.actions import Action

    found = Action.from_str(text)
    assert found is not None
    return found.stage_index, str(found.computation_type), str(found.microbatch_index)


def stored(rank: int, size: int) -> Any:
    """The runs that PyTorch did."""
    from tests.distributed.programs.pipeline_runs import runs

    return runs(torch, "rushlight", rank)

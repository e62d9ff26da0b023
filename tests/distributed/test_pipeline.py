"""Pipelines: orders, messages, losses and gradients, against PyTorch and one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.distributed.programs import pipeline_programs as programs
from tests.distributed.programs import pipeline_runs
from tests.distributed.ranks import Ranks

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed.pipelining import (
    PipelineStage,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    SplitPoint,
    orders,
    pipe_split,
    pipeline,
)
from rushlight.distributed.pipelining.actions import Action, ComputationType, flat, read_table
from rushlight.distributed.pipelining.headers import Meta, Spread, packed, unpacked
from rushlight.distributed.pipelining.lowering import check, in_steps, merged, shown, with_late_receives, with_messages
from rushlight.distributed.pipelining.microbatch import (
    TensorChunkSpec,
    _Replicate,
    merge_chunks,
    split_args_kwargs_into_chunks,
    sum_reducer,
)
from rushlight.distributed.pipelining.schedules import _PipelineScheduleRuntime
from rushlight.distributed.tensor import Partial, Replicate, Shard
from rushlight.distributed.tensor.parallel import ColwiseParallel, parallelize_module

STORED: Any = json.loads(pipeline_runs.FILE.read_text())


def order_of(name: str, ranks: int, per_rank: int, microbatches: int) -> Any:
    kinds: dict[str, Any] = {
        "GPipe": lambda n, _, m: orders.gpipe(n, m), "1F1B": lambda n, _, m: orders.one_forward_one_backward(n, m),
        "Interleaved1F1B": orders.interleaved, "LoopedBFS": orders.breadth_first, "InterleavedZeroBubble": orders.interleaved_zero_bubble,
        "ZBVZeroBubble": lambda n, _, m: orders.zero_bubble_v(n, m), "DualPipeV": lambda n, _, m: orders.dual_pipe_v(n, m),
    }  # fmt: skip
    return kinds[name](ranks, per_rank, microbatches)


def test_orders_are_those_of_pytorch() -> None:
    for key, expected in STORED["orders"].items():
        name, *numbers = key.split()
        found = order_of(name, *map(int, numbers))
        assert [" ".join(map(str, found[rank])) for rank in sorted(found)] == expected, key


@pytest.mark.parametrize("late", [False, True])
def test_no_rank_waits_for_ever(late: bool) -> None:
    """With receives that block, and sends that block until they are received, every schedule ends."""
    for key in STORED["orders"]:
        name, *numbers = key.split()
        ranks, per_rank, microbatches = map(int, numbers)
        order = order_of(name, ranks, per_rank, microbatches)
        owner = check(order, ranks, ranks * per_rank, microbatches)
        full = with_messages(order, owner.__getitem__, ranks * per_rank)
        left = {r: [str(a) for a in flat(row)] for r, row in (with_late_receives(full) if late else full).items()}
        arrived: set[str] = set()
        while any(left.values()):
            before = sum(map(len, left.values()))
            for row in left.values():
                while row and ("RECV" not in row[0] or row[0] in arrived):
                    text = row.pop(0)
                    if "SEND" in text:
                        stage, kind, m = programs.parts_of(text)
                        arrived.add(f"{stage + 1 if kind == 'SEND_F' else stage - 1}RECV{kind[-2:]}{m}")
            assert sum(map(len, left.values())) < before, (key, left)


def test_fewer_micro_batches_are_kept_by_1f1b() -> None:
    assert programs.at_most("GPipe", 4, 4, 8) == 32
    assert programs.at_most("1F1B", 4, 4, 8) == 4 + 3 + 2 + 1


def test_bubbles() -> None:
    """Steps in which a rank waits, where F, I and W take one step: none in the middle of a zero-bubble schedule."""
    waits = {}
    for name, ranks, per_rank in (("InterleavedZeroBubble", 4, 1), ("ZBVZeroBubble", 4, 2)):
        steps = in_steps(order_of(name, ranks, per_rank, 12))
        waits[name] = sum(
            row[k] is None for row in steps.values() for k in range(row.index(next(filter(None, row))), len(row))
        )
    assert waits["ZBVZeroBubble"] == 0 < waits["InterleavedZeroBubble"]


def test_actions_as_text() -> None:
    for text in ("2F0", "10SEND_B3", "0REDUCE_GRAD", "(3F2;0B1)OVERLAP_F_B", "1UNSHARD", "4I7"):
        assert str(Action.from_str(text)) == text
    assert Action.from_str("  ") is None
    with pytest.raises(RuntimeError, match="Invalid action string: 2Q0"):
        Action.from_str("2Q0")
    assert ComputationType.from_str("W") is ComputationType.BACKWARD_WEIGHT
    table = read_table(["0F0,,0B0", "1F0,1I0,1W0"])
    assert table[0][1] is None and str(merged(table[1])) == "[1F0, 1B0]"
    assert "ERROR HERE" in shown(table, 1).splitlines()[2]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0F0,0B0"], "incorrect number of ranks"),
        (["0F0,0B0", "1F0"], "Stage 1 has B or I"),
        (["0F0,0B0,1F0", "1B0"], "Stage 1 is assigned to both"),
        (["0B0,0F0", "1F0,1B0"], "cannot go on"),
        (["0F0,0I0", "1F0,1B0"], "Stage 0 has I and W for different"),
    ],
)
def test_impossible_orders_are_refused(rows: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(read_table(rows), 2, 2, 1)


def test_what_the_schedules_need() -> None:
    with pytest.raises(ValueError, match="multiple of the number of rounds"):
        orders.interleaved(2, 2, 5)
    with pytest.raises(ValueError, match="at least as many microbatches as stages"):
        orders.dual_pipe_v(2, 3)
    with pytest.raises(ValueError, match="evenly divisible"):
        orders.stages_in_v(2, 3)


def test_schedules_give_the_gradients_of_one_process(four: Ranks) -> None:
    rows = [("1F1B", 2, 2, 4), ("InterleavedZeroBubble", 2, 4, 4), ("LoopedBFS", 2, 4, 3), ("ZBVZeroBubble", 2, 4, 2)]
    assert set(four.run(programs.schedules, rows)) == {len(rows)}


@pytest.mark.distributed
def test_more_schedules_give_the_gradients_of_one_process(four: Ranks) -> None:
    rows = [("GPipe", 2, 2, 3), ("Interleaved1F1B", 2, 6, 4), ("DualPipeV", 2, 4, 4), ("ZBVZeroBubble", 4, 8, 8)]
    rows += [
        ("1F1B", 4, 4, 6),
        ("Interleaved1F1B", 4, 8, 8),
        ("InterleavedZeroBubble", 4, 8, 8),
        ("DualPipeV", 4, 8, 9),
    ]
    assert set(four.run(programs.schedules, rows)) == {len(rows)}


def test_schedules_give_what_pytorch_gives(four: Ranks) -> None:
    for found, expected in zip(four.run(programs.stored), STORED["runs"], strict=True):
        assert found.keys() == expected.keys()
        for name, row in expected.items():
            assert found[name]["losses"] == pytest.approx(row["losses"], rel=1e-5), name
            assert found[name]["grads"].keys() == row["grads"].keys()
            for key, sums in row["grads"].items():
                assert found[name]["grads"][key] == pytest.approx(sums, rel=1e-4, abs=1e-6), (name, key)


def test_modules_that_are_divided(four: Ranks) -> None:
    shape, names = four.run(programs.pipes)[0]
    assert shape == (6, 6) and len(names) == 3
    assert names[1][0] == "middle.block.scale" and "norm.running_mean" in names[2]


@pytest.mark.parametrize(
    ("name", "stages", "gives"),
    [
        ("1F1B", 2, None),
        pytest.param("GPipe", 2, Replicate(), marks=pytest.mark.distributed),
        pytest.param("1F1B", 2, Shard(0), marks=pytest.mark.distributed),
        pytest.param("Interleaved1F1B", 4, None, marks=pytest.mark.distributed),
        ("ZBVZeroBubble", 4, None),  # with neighbours on one rank, backward in halves, terms of a sum on the way
    ],
)
def test_stages_exchange_dtensors(four: Ranks, name: str, stages: int, gives: Any) -> None:
    four.run(programs.spread, name, stages, gives)


def test_errors_have_names(four: Ranks) -> None:
    found = four.run(programs.messages_of_errors)[0]
    for text, part in zip(
        found,
        (
            "losses must be a list",
            "Please call eval() instead",
            "",
            "exactly 2 stages per rank",
            "cannot be larger than number of stages 1",
        ),
        strict=True,
    ):
        assert part in text


@pytest.fixture
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def two_stages() -> list[Any]:
    return [PipelineStage(part, k, 2, "cpu") for k, part in enumerate(programs.blocks(2))]


def test_micro_batches_of_other_shapes_are_refused(alone: None) -> None:
    x, target = programs.batch(5)
    schedule = ScheduleLoopedBFS(two_stages(), 2, loss_fn=torch.nn.functional.mse_loss)
    with pytest.raises(RuntimeError, match="all micro-batches of a step must give the same shapes"):
        schedule.step(x, target=target)
    with pytest.raises(AssertionError, match="Tensor size 1 is smaller than num_chunks 2"):
        schedule.step(x[:1], target=target)
    with pytest.raises(TypeError, match="needs target="):
        schedule.step(x)
    assert schedule.step(x[:4], target=target[:4]).shape == (4, 6)  # another size in another step


def test_files_and_functions_of_ones_own(alone: None, tmp_path: Any) -> None:
    x, target = programs.batch(4)
    stages = two_stages()
    schedule = _PipelineScheduleRuntime(stages, 2, loss_fn=torch.nn.functional.mse_loss)
    (tmp_path / "order.csv").write_text("0F0,1F0,1I0,0F1,1F1,1W0,1B1,0B0,0B1\n")
    schedule._load_csv(str(tmp_path / "order.csv"))
    schedule._dump_csv(str(tmp_path / "all.csv"))
    assert "1REDUCE_GRAD" in (tmp_path / "all.csv").read_text()
    seen: list[str] = []
    schedule.register_custom_function(
        ComputationType.UNSHARD, lambda action, context: seen.append(f"{action} of {len(context.arg_mbs)}")
    )
    schedule.step(x, target=target)
    assert seen == ["0UNSHARD of 2", "1UNSHARD of 2"]
    one = programs.blocks(2)
    programs.alone(one, x, target, 2, [0, 1])
    for stage, part in zip(stages, one, strict=True):
        for p, q in zip(stage.submod.parameters(), part.parameters(), strict=True):
            assert torch.equal(p.grad, q.grad)
    again = _PipelineScheduleRuntime(stages, 2, loss_fn=torch.nn.functional.mse_loss)
    again._load_csv(str(tmp_path / "all.csv"), "compute_comms")
    assert again.pipeline_order_with_comms == schedule.pipeline_order_with_comms


def test_a_forward_beside_a_backward(four: Ranks) -> None:
    for ran in four.run(programs.overlapped):
        assert ran and all(text.endswith("OVERLAP_F_B") for text in ran)


def test_gradients_of_parameters_by_a_function_of_ones_own(alone: None) -> None:
    ran: list[str] = []
    part = programs.blocks(1)[0]
    stages = [
        PipelineStage(part, k, 2, "cpu", dw_builder=lambda k=k: lambda: ran.append(f"weights of {k}")) for k in range(2)
    ]
    schedule = ScheduleInterleavedZeroBubble(stages, 2, loss_fn=torch.nn.functional.mse_loss)
    schedule.step(programs.batch(4)[0], target=programs.batch(4)[1])
    assert ran == ["weights of 1", "weights of 0"] * 2


def test_micro_batches() -> None:
    args, kwargs = split_args_kwargs_into_chunks(
        (torch.arange(10).view(2, 5), "a"), {"m": [torch.ones(3)]}, 2, (TensorChunkSpec(1), _Replicate())
    )
    assert [tuple(a.shape) for a, _ in args] == [(2, 3), (2, 2)] and [len(k["m"][0]) for k in kwargs] == [2, 1]
    assert torch.equal(merge_chunks([a for a, _ in args], TensorChunkSpec(1)), torch.arange(10).view(2, 5))
    total = merge_chunks([(torch.ones(2), torch.tensor(1.5))] * 2, (TensorChunkSpec(0), sum_reducer))
    assert total[0].shape == (4,) and total[1] == 3.0
    with pytest.raises(ValueError, match="args holds 2 values, but its spec is for 1"):
        split_args_kwargs_into_chunks((torch.ones(2), torch.ones(2)), {}, 2, (TensorChunkSpec(0),))


def test_what_cannot_be_divided_says_so() -> None:
    class Pairs(torch.nn.Module):
        def forward(self, x: Any, mode: Any = None) -> Any:
            found = torch.max(x, 0)
            pipe_split()
            return found.values, found

    class Asks(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            pipe_split()
            return x if x.sum().item() > 0 else -x

    with pytest.raises(RuntimeError, match="`max_1`, an object that holds tensors, goes from stage 0 to stage 1"):
        pipeline(Pairs(), (torch.ones(2, 2),))
    with pytest.raises(RuntimeError, match=r"elements of a tensor .* decide(.|\n)*traced \(Asks\)"):
        pipeline(Asks(), (torch.ones(2),))
    with pytest.raises(RuntimeError, match="argument mode is a object without tensors"):
        pipeline(Pairs(), (torch.ones(2, 2), object()))
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    with pytest.raises(AttributeError, match="no attribute `7`"):
        pipeline(net, (torch.ones(1, 2),), split_spec={"7": SplitPoint.END})


def test_sizes_may_decide_and_are_checked() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: Any, more: Any) -> Any:
            state = {"pair": (x + 1, x.mean(0)), "rows": [more[0], None], "scale": 2.0}
            size = x.shape[0]
            pipe_split()
            a, b = state["pair"]
            if x.shape[1] > 2:
                a = a * state["scale"]
            for k in range(len(more)):
                b = b + more[k] * int(x.size(1))
            return a.reshape(size, -1), b, state["rows"][0]

    x, more = torch.ones(4, 3), [torch.rand(3), torch.rand(3)]
    pipe = pipeline(Net(), (x, more))
    assert pipe.num_stages == 2 and "refuse_change" in pipe.get_stage_module(1).code
    for rows in (4, 5):  # the size that decides nothing is free
        y = torch.randn(rows, 3)
        for a, b in zip(pipe(y, more), Net()(y, more), strict=True):
            assert torch.equal(a, b)
    with pytest.raises(ValueError, match="a size or number is True, and here it is False"):
        pipe(torch.ones(4, 2), [torch.rand(2), torch.rand(2)])


def test_a_policy_and_constants() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.ModuleList(programs.blocks(3))

        def forward(self, x: Any, times: int = 1, *more: Any, **named: Any) -> Any:
            for part in self.parts:
                x = part(x) * times
            return {"x": x, "more": [x + more[0], named["y"]]}

    def policy(module: Any) -> Any:
        for node in list(module.graph.nodes):
            if node.target == "parts.1.a":
                with module.graph.inserting_before(node):
                    module.graph.call_function(pipe_split)
        module.recompile()
        return module

    torch.manual_seed(0)
    x, y = programs.batch(2)
    pipe = pipeline(net := Net(), (x, 2, y), {"y": y}, split_policy=policy)
    assert pipe.num_stages == 2
    expected = net(x, 2, y, y=y)
    for a, b in zip(pipe(x, 2, y, y), (expected["x"], *expected["more"]), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="made for times=2, got 3"):
        pipe(x, 3, y, y)


def test_headers_of_dtensors(alone: None) -> None:
    """What a header says is what it was told; a mesh that a stage does not know is named."""
    spread = Spread(("dp", "tp"), (2, 3), (4, 9, 5), (45, 5, 1), (Shard(1), Partial("max")))
    metas = (Meta((4, 5), torch.bfloat16, True), Meta((4, 5, 5), torch.float32, False, spread))
    assert unpacked(packed(metas)) == metas and "of [4, 9, 5] over (dp=2, tp=3)" in str(metas[1])
    stage = PipelineStage(torch.nn.Linear(2, 2), 0, 1, "cpu")
    with pytest.raises(RuntimeError, match=r"a DTensor of \[4, 9, 5\] over \(dp=2, tp=3\).* get_mesh="):
        stage._mesh_of(spread)
    mesh = dist.init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    one = Spread(("tp",), (1,), (2, 2), (2, 1), (Replicate(),))
    assert PipelineStage(stage.submod, 0, 1, "cpu", get_mesh=lambda names, layout: mesh[names])._mesh_of(one) == mesh
    parallelize_module(stage.submod, mesh, ColwiseParallel())
    assert stage._mesh_of(one) == mesh  # that of its parameters

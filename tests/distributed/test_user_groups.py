"""Process groups that a program writes itself, and registers under a name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import rushlight as torch
import rushlight.distributed as dist
from rushlight._C._distributed_c10d import _create_work_from_future
from rushlight.distributed.device_mesh import DeviceMesh, init_device_mesh
from rushlight.distributed.tensor import DTensor, Replicate, Shard
from rushlight.futures import Future


def _done(value: Any) -> Any:
    future: Future[Any] = Future()
    future.set_result(value)
    return _create_work_from_future(future)


class Twins(dist.ProcessGroup):
    """Two processes of which the other one has ten times what this one has."""

    def __init__(self, rank: int, size: int, name: str = "twins") -> None:
        super().__init__(rank, size)
        self.calls: list[str] = []
        self.backend = name

    def getBackendName(self) -> str:
        return self.backend

    def allreduce(self, tensors: Any, opts: Any) -> Any:
        self.calls.append(f"allreduce {tuple(tensors[0].shape)} {opts.reduceOp}")
        for x in tensors:
            x.detach().mul_(11)
        return _done(tensors)

    def allgather(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        self.calls.append(f"allgather {len(outputs[0])}")
        for out in outputs[0]:
            out.detach().copy_(inputs[0])
        return _done(outputs)

    def broadcast(self, tensors: Any, opts: Any) -> Any:
        self.calls.append(f"broadcast from {opts.rootRank}")
        return _done(tensors)


@pytest.fixture(autouse=True)
def twins() -> Iterator[None]:
    if "twins" not in dist.Backend.backend_list:
        dist.Backend.register_backend("twins", lambda store, rank, size, timeout: Twins(rank, size), devices=["cpu"])
    dist.init_process_group("twins", rank=0, world_size=2, store=dist.HashStore())
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def _calls() -> list[str]:
    world: Any = dist.group.WORLD
    return world.calls


def test_names() -> None:
    world: Any = dist.group.WORLD
    assert type(world) is Twins and world.name() == "twins" and world.group_desc == "default_pg"
    assert dist.get_backend() == "twins" and dist.get_backend_config() == "cpu:twins"
    assert dist.Backend("TWINS") == dist.Backend.TWINS == "twins" and dist.is_backend_available("twins")
    assert (dist.get_rank(), dist.get_world_size(), dist.get_process_group_ranks(None)) == (0, 2, [0, 1])


def test_collectives_get_the_tensors_themselves() -> None:
    x = torch.ones(2, 3)
    assert dist.all_reduce(x) is None
    assert x.tolist() == [[11.0] * 3] * 2
    work: Any = dist.all_reduce(x, dist.ReduceOp.MAX, async_op=True)
    assert work.wait() and work.result()[0] is x and work.get_future().value()[0] is x
    assert _calls()[:1] == [f"allreduce (2, 3) {dist.ReduceOp(dist.ReduceOp.SUM)}"]


def test_complex_numbers_go_as_pairs() -> None:
    x = torch.tensor([1 + 2j, 3 - 1j])
    dist.all_reduce(x)
    assert x.tolist() == [11 + 22j, 33 - 11j] and _calls()[0].startswith("allreduce (2, 2)")


def test_what_it_lacks_is_refused_by_name() -> None:
    with pytest.raises(RuntimeError, match="device type cpu.*Twins has no reduce_scatter"):
        dist.reduce_scatter(torch.ones(1), [torch.ones(1), torch.ones(1)])
    world: Any = dist.group.WORLD
    with pytest.raises(RuntimeError, match="Twins has no barrier"):
        world.barrier()


def test_objects_pass() -> None:
    found: list[Any] = [None, None]
    dist.all_gather_object(found, {"a": 1})
    assert found == [{"a": 1}] * 2


def test_a_compiled_program_calls_it() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    assert torch.compile(f)(torch.ones(3)).tolist() == [23.0] * 3
    assert _calls()[-1].startswith("allreduce (3,)")


def test_gradients_pass_through_it() -> None:
    from rushlight.distributed.nn.functional import all_reduce

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    all_reduce(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [11.0, 11.0]


def test_data_parallel_over_a_group_that_is_not_registered() -> None:
    model = torch.nn.Linear(2, 1, bias=False)
    group = Twins(0, 2, "other")
    wrapped = torch.nn.parallel.DistributedDataParallel(model, process_group=group)
    wrapped(torch.ones(1, 2)).sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[5.5, 5.5]]  # the mean of 1 and 10: divided first, so that a sum is enough
    assert any(call.startswith("allreduce") for call in group.calls)


def test_subgroups_are_made_by_the_same_function() -> None:
    part: Any = dist.new_group([0], timeout=timedelta(seconds=5))
    assert type(part) is Twins and part.size() == 1 and part.calls == []
    assert dist.new_group([1]) is dist.GroupMember.NON_GROUP_MEMBER


def test_spread_tensors_use_the_groups_and_the_place_of_their_own_mesh() -> None:
    # Calls are planned once: equal meshes of another world, or of another rank in this process, came to the first one's.
    for rank in (0, 1, 1):
        dist.destroy_process_group()
        dist.init_process_group("twins", rank=rank, world_size=2, store=dist.HashStore())
        mesh = init_device_mesh("cpu", (2,))
        part = DTensor.from_local(torch.ones(2), mesh, [Shard(0)])
        whole = DTensor.from_local(torch.arange(4.0), mesh, [Replicate()])
        for count in range(1, 4):
            assert part.sum().full_tensor().item() == 22.0
            assert len(_calls()) == count
            made = whole * part
            assert made.device_mesh is mesh and made.to_local().tolist() == [2.0 * rank, 2.0 * rank + 1]


class Threads(Twins):
    """Two processes that are threads: each waits for the other, and has a group of its own."""

    both: Any = None
    parts: dict[int, Any] = {}

    def allgather(self, outputs: Any, inputs: Any, opts: Any) -> Any:
        self.parts[self.rank()] = inputs[0]
        self.both.wait()
        for place, out in enumerate(outputs[0]):
            out.detach().copy_(self.parts[place])
        self.both.wait()
        return _done(outputs)

    def _allgather_base(self, output: Any, input: Any, opts: Any) -> Any:
        return self.allgather([list(output.chunk(2))], [input], opts)


def test_ranks_may_be_threads() -> None:
    Threads.both = threading.Barrier(2, timeout=20)
    gone: list[Any] = [None, None]

    def rank(place: int) -> None:
        group = Threads(place, 2, "threads")
        mesh = DeviceMesh("cpu", [0, 1], _rank=place, _groups=[group])
        for count in range(3):
            x = DTensor.from_local(torch.full((2,), place + 1.0), mesh, [Shard(0)])
            gone[place] = (x.detach() * (count + 1)).full_tensor().tolist()

    threads = [threading.Thread(target=rank, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert gone == [[3.0, 3.0, 6.0, 6.0]] * 2


def test_the_extended_form_gets_options() -> None:
    seen: list[Any] = []

    def make(options: Any, pg_options: Any) -> Twins:
        seen.extend((options.group_rank, options.group_size, options.global_ranks_in_group, pg_options))
        options.store.set("here", "yes")
        return Twins(options.group_rank, options.group_size, "twins2")

    dist.Backend.register_backend("twins2", make, extended_api=True, devices="cpu")
    made: Any = dist.new_group([0], backend="twins2", pg_options="mine")
    assert seen == [0, 1, [0], "mine"] and made.name() == "twins2"


def test_names_may_be_a_subclass_s_own() -> None:
    class Named(dist.ProcessGroup):
        def getRank(self) -> int:
            return 3

        def getSize(self) -> int:
            return 7

        def setGroupName(self, name: str) -> None:
            self.own = f"own {name}"

        def getGroupName(self) -> str:
            return self.own

    group = Named(0, 1)
    group._set_group_name("a")
    assert (group.rank(), group.size(), group.group_name) == (3, 7, "own a")
    group.abort()
    group.shutdown()


def test_other_results_are_refused() -> None:
    dist.Backend.register_backend("nothing", lambda *place: 3, devices=["cpu"])
    with pytest.raises(TypeError, match="gives a subclass of torch.distributed.ProcessGroup, got int"):
        dist.new_group([0], backend="nothing")


@pytest.fixture
def alone(twins: None) -> Iterator[Any]:
    """A group of one process on an engine of rushlight's, in the place of the twins."""
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD


def test_methods_refuse_roots_that_are_not_there(alone: Any) -> None:
    x, opts = torch.ones(2), dist.BroadcastOptions()
    opts.rootRank = 1
    with pytest.raises(RuntimeError, match="invalid root rank: 1"):
        alone.broadcast([x], opts)
    opts.rootRank, opts.rootTensor = 0, 1
    with pytest.raises(RuntimeError, match="invalid root tensor: 1"):
        alone.broadcast([x], opts)
    with pytest.raises(RuntimeError, match="requires non-empty tensor list"):
        alone.allreduce([])


def test_the_engine_of_a_device_is_the_group(alone: Any) -> None:
    assert alone._get_backend(torch.device("cpu")) is alone
    with pytest.raises(RuntimeError, match="No backend type associated with device type cuda"):
        alone._get_backend(torch.device("cuda"))


def test_coalesced_functions_give_futures(alone: Any) -> None:
    x, y = torch.ones(2), torch.ones(1)
    future: Any = dist.all_reduce_coalesced([x, y], async_op=True)
    assert isinstance(future, Future) and [t.tolist() for t in future.wait()] == [[1.0, 1.0], [1.0]]
    rows: Any = [[torch.zeros(2), torch.zeros(1)]]
    gathered: Any = dist.all_gather_coalesced(rows, [x, y], async_op=True)
    assert isinstance(gathered, Future) and gathered.wait() is not None and rows[0][0].tolist() == [1.0, 1.0]
    torch.futures.wait_all([future, gathered])

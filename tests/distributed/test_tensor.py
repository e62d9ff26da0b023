"""Tensors that are spread over processes give what the whole tensors give."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
from tests.distributed.programs import tensor_programs as programs
from tests.distributed.ranks import Ranks

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from rushlight.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from rushlight.distributed.tensor._redistribute import redistribute_local_tensor
from rushlight.distributed.tensor._utils import (
    compute_global_tensor_info,
    compute_global_tensor_shape,
    compute_local_shape_and_global_offset,
    compute_local_stride,
)
from rushlight.distributed.tensor.placement_types import _StridedShard


def test_every_placement_becomes_every_other(four: Ranks) -> None:
    assert four.run(programs.redistributions, timeout=120) == [81 + 9] * 4


@pytest.mark.parametrize("program", [programs.training, programs.tensor_parallel])
def test_networks_train_spread_over_a_mesh_as_whole(four: Ranks, program: object) -> None:
    for whole, spread in four.run(program, timeout=240):
        assert spread == pytest.approx(whole, rel=1e-5)
        assert spread[-1] < spread[0]


def test_operators_give_what_they_give_whole(four: Ranks) -> None:
    names = ["add", "sum", "softmax", "matmul", "cumsum", "index_select", "layer_norm"]
    assert four.run(programs.operators, names, 0, timeout=120) == [[]] * 4


def test_attention_divides_batches_and_heads(four: Ranks) -> None:
    assert four.run(programs.attention)[0] == [(*[(Shard(d),)] * 4, 0) for d in (0, 0, 1, 1)]


def test_changes_in_place_reach_the_tensor_or_are_refused(four: Ranks) -> None:
    row = [0.0, 2.0, -1.0, 5.0, 5.0, 5.0]
    for whole, *refused in four.run(programs.changes_in_place, timeout=120):
        assert whole == [row] * 4
        assert refused == [True] * 3


def test_copies_are_apart(four: Ranks) -> None:
    assert four.run(programs.copies, timeout=120) == [[]] * 4


def test_rows_of_a_spread_table_are_shortened(four: Ranks) -> None:
    four.run(programs.shortened_rows, timeout=120)


def test_gradients_may_lie_in_few_elements(four: Ranks) -> None:
    four.run(programs.broadcast_gradients, timeout=120)


def test_second_derivatives_cross_the_border(four: Ranks) -> None:
    four.run(programs.second_derivatives, timeout=120)


def test_random_numbers_are_those_of_the_first_process(four: Ranks) -> None:
    found = four.run(programs.random_numbers, timeout=120)
    assert all(one[:2] == found[0][:2] for one in found)
    assert all(one[2:] == [True, True] for one in found)


@pytest.mark.distributed
def test_random_numbers_on_gpus_are_those_of_the_first_process(mpi: None) -> None:
    ranks = Ranks(2, RUSHLIGHT_CUDA="emulated")
    found = ranks.run(programs.random_numbers_on_gpus, timeout=120)
    ranks.close()
    assert found[0][0] == found[1][0]
    assert all(one[1:] == [True, True] for one in found)


@pytest.fixture
def alone() -> object:
    """A job of one process, and a mesh over it."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.init_device_mesh("cpu", (1,), mesh_dim_names=("dp",))
    dist.destroy_process_group()


def test_what_a_tensor_says_of_itself(alone: dist.DeviceMesh) -> None:
    x = distribute_tensor(torch.arange(6.0).reshape(2, 3), alone, [Shard(-1)])
    assert x.placements == (Shard(1),) and x.device_mesh is alone and x.shape == (2, 3) and x.stride() == (3, 1)
    assert repr(x) == (
        "DTensor(local_tensor=tensor([[0., 1., 2.],\n        [3., 4., 5.]]), device_mesh=DeviceMesh((dp=1), 'cpu', "
        "stride=((),)), placements=(Shard(dim=1),))"
    )
    assert [str(p) for p in (Shard(0), Replicate(), Partial("max"))] == ["S(0)", "R", "P(max)"]


def test_what_is_refused(alone: dist.DeviceMesh) -> None:
    x = distribute_tensor(torch.ones(2, 3), alone, [Shard(0)])
    with pytest.raises(RuntimeError, match="got mixed torch.Tensor and DTensor"):
        x + torch.ones(2, 3)
    with pytest.raises(RuntimeError, match="redistributing to Partial is for internal use only"):
        x.redistribute(placements=[Partial()])
    with pytest.raises(AssertionError, match="Sharding dim 3 greater than tensor ndim 2"):
        distribute_tensor(torch.ones(2, 3), alone, [Shard(3)])
    with pytest.raises(ValueError, match="must have the same length"):
        x.redistribute(placements=[Shard(0), Replicate()])


def test_gradients_go_through_local_tensors(alone: dist.DeviceMesh) -> None:
    local = torch.tensor([1.0, 2.0], requires_grad=True)
    x = DTensor.from_local(local, alone, [Shard(0)])
    (x * 3.0).to_local().pow(2).sum().backward()
    assert local.grad is not None and local.grad.tolist() == [18.0, 36.0]


def test_terms_that_leave_and_come_back_have_whole_gradients(four: Ranks) -> None:
    assert four.run(programs.terms_leave_and_return, timeout=60) == [[1.0] * 4] * 4


def test_processes_outside_of_the_mesh_have_no_elements(four: Ranks) -> None:
    assert four.run(programs.outside_of_the_mesh, timeout=60) == [[24.0, [3, 4]], [0, [0]]] * 2


def test_the_norm_of_many_gradients_is_one_reduction(four: Ranks) -> None:
    assert four.run(programs.common_norms, timeout=60) == [[1] * 6] * 4


def test_outputs_that_nobody_uses_have_no_gradient(alone: dist.DeviceMesh) -> None:
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            ctx.set_materialize_grads(False)
            return a * 2, b * 3

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            assert b is None
            return a * 2, None

    first, _ = Two.apply(*(DTensor.from_local(t, alone, [Replicate()]) for t in (x, y)))
    first.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0] and y.grad is None


def test_files_hold_local_tensors_and_load_safely(alone: dist.DeviceMesh, tmp_path: Any) -> None:
    x = distribute_tensor(torch.arange(6.0).reshape(2, 3), alone, [Shard(0)])
    names = {"x": x, "p": torch.nn.Parameter(x), "max": distribute_tensor(torch.ones(2), alone, [Partial("max")])}
    torch.save(names, tmp_path / "file.pt")
    found = torch.load(tmp_path / "file.pt")
    assert type(found["x"]) is DTensor and found["x"].device_mesh == alone and found["x"].placements == (Shard(0),)
    assert found["x"].full_tensor().tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]  # its mesh finds groups again
    assert isinstance(found["p"], torch.nn.Parameter) and found["max"].placements == (Partial("max"),)
    torch.save(distribute_tensor(torch.empty(10**6, 10**4, device="meta"), alone, [Shard(0)]), tmp_path / "big.pt")


def test_a_mesh_s_block_names_it(alone: dist.DeviceMesh) -> None:
    plane = dist.init_device_mesh("cpu", (1, 1))
    with plane:
        x = distribute_tensor(torch.ones(2), placements=[Shard(0), Replicate()])
        with alone:
            assert DTensor.from_local(torch.ones(2), placements=[Shard(0)]).device_mesh is alone
        assert x.device_mesh is plane and distribute_tensor(torch.ones(2)).device_mesh is plane


def test_how_whole_tensors_mix_and_compare(alone: dist.DeviceMesh) -> None:
    x = distribute_tensor(torch.ones(2), alone, [Shard(0)])
    with pytest.warns(UserWarning, match="non-scalar tensor with numel=1"):
        assert (x + torch.tensor([1.0])).full_tensor().tolist() == [2.0, 2.0]
    torch.testing.assert_close(x, x + 0)
    with pytest.raises(AssertionError, match="DTensor placements do not match"):
        torch.testing.assert_close(x, distribute_tensor(torch.ones(2), alone, [Replicate()]))
    with pytest.raises(TypeError, match="ambiguous"):
        torch.testing.assert_close(x, torch.ones(2))
    with pytest.raises(RuntimeError, match="only accepts torch.Tensor"):
        DTensor.from_local(x, alone, [Shard(0)])
    with pytest.raises(RuntimeError, match="tolist.* not supported for tensor subclasses, got DTensor"):
        x.tolist()
    with pytest.raises(RuntimeError, match="numpy.* not supported for tensor subclasses"):
        x.numpy()


def test_automatic_casts_come_before_the_parts(alone: dist.DeviceMesh) -> None:
    """Whatever was computed before, with casts or without, and in backward too."""
    layer = distribute_module(torch.nn.Linear(4, 4), alone)
    x = distribute_tensor(torch.ones(2, 4), alone, [Replicate()])
    for lower in (False, True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=lower):
            y = layer(x)
        assert y.dtype is (torch.bfloat16 if lower else torch.float32)
        y.sum().backward()
    assert layer.weight.grad.dtype is torch.float32 and layer.weight.grad.full_tensor().tolist() == [[6.0] * 4] * 4


def test_functions_around_distributed_modules(alone: dist.DeviceMesh) -> None:
    x = distribute_tensor(torch.ones(2, 2), alone, [Replicate()])
    with pytest.warns(FutureWarning, match="Deprecating output_fn that takes two arguments"):
        layer = distribute_module(torch.nn.Linear(2, 2), alone, output_fn=lambda outputs, mesh: outputs.to_local())
    assert type(layer(x)) is torch.Tensor
    with pytest.raises(ValueError, match="input_fn should take in 3 arguments, but got 1"):
        distribute_module(torch.nn.Linear(2, 2), alone, input_fn=lambda inputs: inputs)


def test_what_fully_shard_refuses_and_says(alone: dist.DeviceMesh) -> None:
    from rushlight.distributed._composable.replicate import replicate
    from rushlight.distributed.fsdp import fully_shard

    layer = fully_shard(torch.nn.Linear(2, 2))
    assert fully_shard.state(layer) is not None and fully_shard.state(torch.nn.Linear(2, 2)) is None
    assert replicate.state(replicate(torch.nn.Linear(2, 2))) is not None
    with pytest.raises(AssertionError, match="fully_shard has already been applied"):
        fully_shard(layer)
    bare = torch.nn.Linear(2, 2)
    bare.scale = torch.nn.Parameter(torch.ones(()))
    with pytest.raises(ValueError, match="Change scale to a 1D tensor"):
        fully_shard(bare)
    with pytest.raises(AssertionError, match="2D mesh for HSDP with mesh_dim_names"):
        fully_shard(torch.nn.Linear(2, 2), mesh=dist.init_device_mesh("cpu", (1, 1)))
    with pytest.raises(ValueError, match="a factor of 1, not 3"):
        fully_shard(torch.nn.Linear(2, 2), reshard_after_forward=3)
    fully_shard(torch.nn.Linear(2, 2), reshard_after_forward=1)(torch.ones(1, 2)).sum().backward()
    with torch.device("meta"):
        empty = torch.nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match=r"still on meta device: \['weight', 'bias'\]"):
        fully_shard(empty)(torch.ones(1, 2))


def test_parts_of_sharded_containers_are_plain(alone: dist.DeviceMesh) -> None:
    from rushlight.distributed._composable.replicate import replicate
    from rushlight.distributed.fsdp import fully_shard

    whole = fully_shard(torch.nn.Sequential(*map(torch.nn.Linear, (2, 2, 2), (2, 2, 2))))
    part = whole[:2]
    assert type(part) is torch.nn.Sequential and len(part) == 2 and part[0] is whole[0]
    assert type(replicate(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))[:1]) is torch.nn.Sequential


def test_tensors_of_a_spec(alone: dist.DeviceMesh) -> None:
    from rushlight.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

    spec = DTensorSpec(alone, (Shard(0),), TensorMeta(torch.Size((2, 3)), (3, 1), torch.float32))
    x = DTensor(torch.ones(2, 3), spec, requires_grad=True)
    assert (
        x.requires_grad
        and x.shape == (2, 3)
        and x.placements == (Shard(0),)
        and spec == DTensorSpec(alone, (Shard(0),), spec.tensor_meta)
    )


def test_changes_in_place_and_views(alone: dist.DeviceMesh) -> None:
    x = distribute_tensor(torch.zeros(2, 3), alone, [Shard(0)])
    x[0].add_(1.0)
    x.view(6)[4:].mul_(2.0).sub_(1.0)
    assert x.full_tensor().tolist() == [[1.0, 1.0, 1.0], [0.0, -1.0, -1.0]]


@pytest.mark.slow
def test_sharded_parameters_train_as_whole(four: Ranks) -> None:
    for result in four.run(programs.sharded_parameters, timeout=240):
        for name, whole, spread in result:
            assert spread == pytest.approx(whole, rel=3e-2 if name == "narrow" else 1e-5), name
            assert spread[-1] < spread[0]


def test_a_mesh_is_the_group_of_data_parallel_training(alone: dist.DeviceMesh) -> None:
    wrap = torch.nn.parallel.DistributedDataParallel
    model = wrap(torch.nn.Linear(2, 2), device_mesh=alone)
    assert model.process_group is alone.get_group()
    with pytest.raises(RuntimeError, match="both process_group and device_mesh"):
        wrap(torch.nn.Linear(2, 2), device_mesh=alone, process_group=alone.get_group())
    with pytest.raises(RuntimeError, match="Only 1D device mesh"):
        wrap(torch.nn.Linear(2, 2), device_mesh=dist.init_device_mesh("cpu", (1, 1)))


def test_a_sharded_module_gathers_when_it_computes(alone: dist.DeviceMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before forward and before backward, or once where the parameters stay; else parts are back whatever happens."""
    from rushlight.distributed.fsdp import FSDPModule, fully_shard
    from rushlight.distributed.fsdp.groups import Group

    counts: list[int] = []
    real = Group._look
    monkeypatch.setattr(Group, "_look", lambda self: (counts.append(1), real(self))[1])
    for reshards, expected in ((False, 1), (True, 2)):
        net = fully_shard(torch.nn.Linear(3, 2), mesh=alone, reshard_after_forward=reshards)
        assert isinstance(net, FSDPModule) and type(net).__name__ == "FSDPLinear"
        counts.clear()
        net(torch.ones(4, 3, requires_grad=True)).sum().backward()
        assert len(counts) == expected
        assert isinstance(net.weight, DTensor) and net.weight.grad.full_tensor().tolist() == [[4.0] * 3] * 2
        assert all(isinstance(x, DTensor) for x in net.state_dict().values())
    with pytest.raises(RuntimeError):
        net(torch.ones(4, 5))
    assert isinstance(net.weight, DTensor)
    with pytest.raises(AssertionError, match="once"):
        fully_shard(net)


def test_a_spread_tensor_says_where_it_lies(alone: dist.DeviceMesh) -> None:
    """`DTensor._spec`, as programs read it to make tensors that lie alike."""
    x = distribute_tensor(torch.ones(4, 3), alone, [Shard(0)])
    spec: Any = x._spec
    assert spec.mesh is alone and spec.placements == (Shard(0),) and spec.tensor_meta == ((4, 3), (3, 1), torch.float32)
    assert isinstance(spec, DTensorSpec) and spec == DTensorSpec(alone, (Shard(0),), spec.tensor_meta)
    assert (spec.shape, spec.stride, spec.ndim) == ((4, 3), (3, 1), 2)
    assert DTensor(x.to_local(), spec, requires_grad=False)._spec is spec
    parameter = torch.nn.Parameter(x)
    (parameter * parameter).sum().backward()
    assert parameter._spec is spec and parameter.grad._spec is spec  # type: ignore[union-attr]
    assert (x + 1)._spec is spec and x.sum(0)._spec.placements == (Partial(),)  # type: ignore[attr-defined]
    parameter.grad = None
    parameter.sum().backward()
    assert parameter.grad.stride() == (3, 1)  # type: ignore[union-attr]
    copied: Any = copy.deepcopy(x)
    assert (copied + x).placements == copied._spec.placements == (Shard(0),)


def test_placements_that_cannot_be_are_refused(alone: dist.DeviceMesh) -> None:
    x = torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="unsupported placements rows on device mesh dimension 0"):
        distribute_tensor(x, alone, ["rows"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match=r"Partial\(product\) conversion is not supported"):
        distribute_tensor(x, alone, [Partial("product")])
    with pytest.warns(UserWarning, match="make requires_grad consistent"):
        spec = distribute_tensor(x, alone, [Shard(0)])._spec
        assert not DTensor(x.requires_grad_(), spec, requires_grad=False).requires_grad


@pytest.mark.parametrize(
    "change, shape, placement",
    [
        (lambda x: x.squeeze_(0), (2, 3), Shard(0)),
        (lambda x: x.squeeze_(), (2, 3), Shard(0)),
        (lambda x: x.unsqueeze_(0), (1, 1, 2, 3), Shard(2)),
        (lambda x: x.transpose_(1, 2), (1, 3, 2), Shard(2)),
        (lambda x: x.swapaxes_(0, 1), (2, 1, 3), Shard(0)),
        (lambda x: x.squeeze_(0).t_(), (3, 2), Shard(1)),
    ],
)
def test_shapes_of_spread_tensors_change_in_place(
    alone: dist.DeviceMesh, change: Any, shape: tuple[int, ...], placement: Any
) -> None:
    whole = torch.arange(6.0).reshape(1, 2, 3)
    x = distribute_tensor(whole.clone(), alone, [Shard(1)])
    local = x.to_local()
    assert change(x) is x and x.shape == x.to_local().shape == shape and x.placements == (placement,)
    assert torch.equal(x.full_tensor(), change(whole.clone()))
    x.add_(1.0)
    assert torch.equal(local, whole + 1.0)  # the same memory
    y = distribute_tensor(whole, alone, [Shard(1)]).requires_grad_()
    change(y * 2).sum().backward()
    assert y.grad.full_tensor().tolist() == torch.full((1, 2, 3), 2.0).tolist()  # type: ignore[union-attr]


def test_memory_of_spread_tensors_is_not_changed_in_place(alone: dist.DeviceMesh) -> None:
    x = distribute_tensor(torch.ones(2, 3), alone, [Shard(0)])
    for change in (lambda: x.set_(torch.ones(4)), lambda: x.resize_(40)):
        with pytest.raises(NotImplementedError, match="of a DTensor that lies as"):
            change()
        assert x.shape == (2, 3)


def test_constants_need_no_groups(alone: dist.DeviceMesh) -> None:
    mesh = dist.DeviceMesh("cpu", [0, 1], _init_backend=False)
    made = dist.tensor.full((2, 2), 3.0, device_mesh=mesh, placements=[Shard(0)])
    assert made.to_local().tolist() == [[3.0, 3.0]]
    assert dist.tensor.zeros(2, device_mesh=mesh).to_local().tolist() == [0.0, 0.0]


def test_calls_on_a_mesh_do_not_keep_it(alone: dist.DeviceMesh) -> None:
    mesh = dist.init_device_mesh("cpu", (1,), mesh_dim_names=("mine",))
    x = distribute_tensor(torch.ones(4, 4), mesh, [Shard(0)])
    for _ in range(2):
        y = (x @ x + 1.0).sum(0)
    kept = weakref.ref(mesh)
    del mesh, x, y
    gc.collect()
    assert kept() is None


def test_calls_that_were_made_before(four: Ranks) -> None:
    assert four.run(programs.calls_again, timeout=120.0) == [[]] * 4


def test_streams_are_exchanged_for_random_numbers_alone(four: Ranks) -> None:
    assert four.run(programs.exchanged_streams) == [[0, 0, 1, 1]] * 4


def test_what_has_no_mesh_is_plain() -> None:
    dist.init_process_group("fake", rank=0, world_size=2)
    try:
        mesh = dist.init_device_mesh("cpu", (2,))
        x = distribute_tensor(torch.ones(4, 3), mesh, [Shard(0)])
        assert type(x.new_tensor(2.0)) is torch.Tensor and x.new_empty((4, 3)).placements == (Shard(0),)
        assert distribute_tensor(torch.ones(4, 3, device="meta"), mesh, [Shard(0)]).to_local().shape == (2, 3)
    finally:
        dist.destroy_process_group()


def test_parts_lie_as_the_whole() -> None:
    """Also where a part has the shape of an operand that lies otherwise: eight rows by a transposed matrix of eight."""
    dist.init_process_group("fake", rank=0, world_size=2)
    try:
        mesh = dist.init_device_mesh("cpu", (2,))
        x = DTensor.from_local(torch.randn(2, 4, 8), mesh, [Replicate()])
        for _ in range(2):
            weight = distribute_tensor(torch.randn(16, 8), mesh, [Shard(0)])
            made = torch.nn.functional.linear(x, weight)
            assert made.placements == (Shard(2),) and made.to_local().is_contiguous()
    finally:
        dist.destroy_process_group()


class _Mesh:
    """What is asked of a mesh where nothing is sent."""

    def __init__(self, shape: tuple[int, ...], coordinate: tuple[int, ...]) -> None:
        self.shape, self.coordinate, self.ndim = shape, coordinate, len(shape)

    def size(self, axis: int) -> int:
        return self.shape[axis]

    def get_coordinate(self) -> tuple[int, ...]:
        return self.coordinate


@pytest.mark.parametrize(
    "shape, coordinate, placements, found",
    [
        ((9, 4), (1, 2), (Shard(0), Shard(0)), ((1, 4), (9 - 4 + 2, 0))),
        ((9, 4), (0, 3), (Shard(0), Shard(0)), ((0, 4), (9, 0))),
        ((3, 2), (0, 2), (Replicate(), Shard(1)), ((3, 0), (0, 2))),
        ((3, 2), (1, 0), (_StridedShard(0, split_factor=4), Shard(0)), ((0, 2), (3, 0))),
    ],
)
def test_empty_parts_begin_at_the_end(shape: Any, coordinate: Any, placements: Any, found: Any) -> None:
    """As in PyTorch 2.13."""
    mesh = _Mesh((2, 4), coordinate)
    assert compute_local_shape_and_global_offset(shape, mesh, placements) == found
    assert compute_local_shape_and_global_offset(shape, mesh, placements, skip_offset=True) == (found[0], ())


def test_what_a_spec_answers() -> None:
    mesh: Any = _Mesh((2, 4), (0, 0))
    meta = TensorMeta(torch.Size((8, 4)), (4, 1), torch.float32)

    def spec(*placements: Any) -> DTensorSpec:
        return DTensorSpec(mesh, placements, meta)

    terms = spec(Partial(), Shard(1))
    assert (terms.dim_map, terms.sums, terms.num_shards_map, terms.num_shards) == ([-1, 1], [0], [1, 4], 4)
    assert terms.is_sharded() and not terms.is_replicated() and spec(Replicate(), Replicate()).is_replicated()
    assert str(terms) == "Spec(f32[8, 4](P(sum)S(1)))" and terms == DTensorSpec.from_dim_map(mesh, [-1, 1], [0], meta)
    assert (
        str(spec(Shard(0), Shard(0))) == "Spec(f32[8, 4](S(0)[0]S(0)[1]))" and spec(Shard(0), Shard(0)).num_shards == 8
    )
    assert repr(terms).endswith(
        "shard_order=(ShardOrderEntry(tensor_dim=1, mesh_dims=(1,)),), use_strided_shard_as_shard_order=False)"
    )
    assert terms.shallow_copy_with_tensor_meta(None).tensor_meta is None
    with pytest.raises(ValueError, match="Tensor dim 0 is already sharded on mesh dim 0"):
        print(spec(Shard(0), Shard(0)).dim_map)
    with pytest.raises(RuntimeError, match="dimension 0 cannot be both shard and partial"):
        DTensorSpec.from_dim_map(mesh, [0, -1], [0], meta)
    assert compute_local_stride((1, 8), (4, 4)) == (1, 4)


def test_parts_by_specs(alone: dist.DeviceMesh) -> None:
    x: Any = distribute_tensor(torch.ones(4, 3), alone, [Shard(0)])
    target = DTensorSpec(alone, (Replicate(),), x._spec.tensor_meta)
    assert redistribute_local_tensor(x._local_tensor, x._spec, target).shape == (4, 3)
    assert x._spec.dim_map == [0, -1] and str(x._spec) == "Spec(f32[4, 3](S(0)))"
    assert compute_global_tensor_info(x._local_tensor, alone, [Shard(1)]) == ([4, 3], [3, 1])
    assert compute_global_tensor_shape(torch.Size((4, 3)), alone, [Shard(0)]) == (4, 3)
    DTensor._op_dispatcher._allow_implicit_replication = True
    try:
        assert (x + torch.ones(4, 3)).placements == (Shard(0),)
    finally:
        DTensor._op_dispatcher._allow_implicit_replication = False

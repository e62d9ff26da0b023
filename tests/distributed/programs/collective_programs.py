"""What the ranks of `test_collectives` do: every collective beside NumPy on all ranks' inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

import rushlight as torch
import rushlight.distributed as dist

REDUCED = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)
MOVED = (*REDUCED, "complex64", "complex128", "float8_e4m3fn", "complex32")
OPS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
HALF = ("float16", "bfloat16")


def numbers(rank: int, dtype: str, shape: tuple[int, ...] = (2, 3)) -> Any:
    """The numbers of a rank, which every rank knows: small, so that sums, products and means of halves are exact."""
    drawn = np.random.default_rng(7 * rank + len(dtype)).integers(1, 4, shape)
    if dtype == "bool":
        return drawn % 2 == 0
    return drawn.astype(np.int64 if dtype.startswith(("int", "uint")) else np.float64)


def values(rank: int, dtype: str, shape: tuple[int, ...] = (2, 3)) -> Any:
    """The tensor of a rank, made without kernels."""
    return torch.tensor(numbers(rank, dtype, shape).tolist(), dtype=getattr(torch, dtype))


def reduced(op: str, dtype: str, size: int, shape: tuple[int, ...] = (2, 3)) -> Any:
    """The reduction of all ranks' tensors, by NumPy in float64 or int64."""
    rows = np.stack([numbers(rank, dtype, shape) for rank in range(size)])
    function = {
        "SUM": np.add, "AVG": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum, "BAND": np.bitwise_and, "BOR": np.bitwise_or,
        "BXOR": np.bitwise_xor,
    }[op]  # fmt: skip
    whole = function.reduce(rows)
    if op == "AVG" and dtype != "bool":
        whole = whole / size if rows.dtype.kind == "f" else whole // size
    if rows.dtype.kind == "i":
        whole = whole.astype(dtype)  # products of many ranks wrap
    return torch.tensor(whole.tolist(), dtype=getattr(torch, dtype))


def same(found: Any, expected: Any, what: Any) -> None:
    """Equal, dtype included."""
    assert found.dtype is expected.dtype and found.tolist() == expected.tolist(), (what, found, expected)


def reductions(rank: int, size: int) -> int:
    """all_reduce, reduce and reduce_scatter for every dtype and operation."""
    count = 0
    for dtype in REDUCED:
        for op in OPS:
            if op.startswith("B") and getattr(torch, dtype).is_floating_point:
                continue
            expected = reduced(op, dtype, size)
            x = values(rank, dtype)
            assert dist.all_reduce(x, getattr(dist.ReduceOp, op)) is None
            same(x, expected, (dtype, op))
            x = values(rank, dtype)
            dist.reduce(x, size - 1, getattr(dist.ReduceOp, op))
            same(x, expected if rank == size - 1 else values(rank, dtype), ("reduce", dtype, op))
            whole, part = values(rank, dtype, (size, 3)), torch.empty(3, dtype=getattr(torch, dtype))
            dist.reduce_scatter_tensor(part, whole, getattr(dist.ReduceOp, op))
            same(part, reduced(op, dtype, size, (size, 3))[rank], ("reduce_scatter", dtype, op))
            count += 3
    x = torch.full((3,), 1.0 + rank)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    same(x, torch.full((3,), 0.5 * sum(range(1, size + 1))), "premul")
    x = torch.tensor([1 + 2j * rank])
    dist.all_reduce(x)
    same(x, torch.tensor([complex(size, size * (size - 1))]), "complex")
    return count


def moves(rank: int, size: int) -> int:
    """Everything that copies, for every dtype."""
    for dtype in MOVED:
        kind = getattr(torch, dtype)
        expected = [values(k, dtype) for k in range(size)]

        def like(*shape: int, kind: Any = kind) -> Any:
            return torch.empty(shape, dtype=kind)

        x = values(rank, dtype)
        dist.broadcast(x, size - 1)
        same(x, expected[-1], ("broadcast", dtype))
        rows = [like(2, 3) for _ in range(size)]
        dist.all_gather(rows, expected[rank])
        for row, one in zip(rows, expected, strict=True):
            same(row, one, ("all_gather", dtype))
        whole = like(2 * size, 3)
        dist.all_gather_into_tensor(whole, expected[rank])
        same(
            whole,
            torch.tensor([row for one in expected for row in one.tolist()], dtype=kind),
            ("all_gather_into_tensor", dtype),
        )
        rows = [like(2, 3) for _ in range(size)] if rank == 1 else None
        dist.gather(expected[rank], rows, 1)
        for row, one in zip(rows or [], expected, strict=False):
            same(row, one, ("gather", dtype))
        x = like(2, 3)
        dist.scatter(x, expected if rank == 0 else None, 0)
        same(x, expected[rank], ("scatter", dtype))
        whole = like(size, 3)
        dist.all_to_all_single(whole, values(rank, dtype, (size, 3)))
        rows = [numbers(k, dtype, (size, 3))[rank].tolist() for k in range(size)]
        same(whole, torch.tensor(rows, dtype=kind), ("all_to_all_single", dtype))
    return len(MOVED)


def uneven(rank: int, size: int) -> None:
    """Parts of different sizes, empty ones among them."""
    own = torch.full((rank, 2), float(rank))
    rows = [torch.empty(k, 2) for k in range(size)]
    dist.all_gather(rows, own)
    assert [r.tolist() for r in rows] == [[[float(k)] * 2] * k for k in range(size)]
    sent = [torch.full((rank + k,), float(10 * rank + k)) for k in range(size)]
    got = [torch.empty(rank + k) for k in range(size)]
    dist.all_to_all(got, sent)
    assert [g.tolist() for g in got] == [[float(10 * k + rank)] * (rank + k) for k in range(size)]
    out = torch.empty(sum(rank + k for k in range(size)))
    dist.all_to_all_single(out, torch.cat(sent), [rank + k for k in range(size)], [rank + k for k in range(size)])
    assert torch.equal(out, torch.cat(got))
    part = torch.empty(rank)
    dist.reduce_scatter(part, [torch.full((k,), float(rank)) for k in range(size)])
    assert part.tolist() == [float(sum(range(size)))] * rank
    empty = torch.empty(0)
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        dist.all_reduce(empty, op)
    # What one rank sees as even need not be even for others: here nobody sends to or gets from rank 0.
    row = [0 if rank == 0 or k == 0 else 1 for k in range(size)]
    out = torch.zeros(sum(row))
    dist.all_to_all_single(out, torch.full((sum(row),), float(rank)), row, row)
    same(out, torch.tensor([float(k) for k in range(size) if row[k]]), "a rank without parts")
    together = torch.empty(size, 2)
    parts = [together[k] for k in range(size)] if rank == 0 else [torch.empty(2) for _ in range(size)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    same(torch.stack(parts), torch.arange(float(size))[:, None].expand(size, 2), "parts that lie together on one rank")


def layouts(rank: int, size: int) -> None:
    """Tensors whose elements do not lie one behind the other."""
    total = float(sum(range(1, size + 1)))
    for make in (
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[:, :2],
        lambda x: x.expand(2, 3, 4).permute(2, 0, 1).clone().transpose(0, 2),
    ):
        base = torch.full((3, 4), 1.0 + rank)
        x = make(base)
        dist.all_reduce(x)
        assert torch.equal(x, torch.full(x.shape, total)), x
        x = make(torch.arange(12.0).reshape(3, 4) + 100 * rank)
        expected = make(torch.arange(12.0).reshape(3, 4))
        dist.broadcast(x, 0)
        assert torch.equal(x, expected)
        rows = [make(torch.zeros(3, 4)) for _ in range(size)]
        dist.all_gather(rows, make(torch.arange(12.0).reshape(3, 4) + 100 * rank))
        for k, row in enumerate(rows):
            assert torch.equal(row, expected + 100 * k)
    base = torch.full((4, 4), 1.0 + rank)
    dist.all_reduce(base[1:3, 1:3])
    expected = torch.full((4, 4), 1.0 + rank)
    expected[1:3, 1:3] = total
    assert torch.equal(base, expected)
    x = torch.ones(3)
    version = x._version
    dist.all_reduce(x)
    assert x._version == version + 1


def asynchronous(rank: int, size: int) -> None:
    """Many operations at once, waited for in another order; futures; results in place."""
    xs = [torch.full((1000 * (k + 1),), float(rank + k)) for k in range(12)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    y = torch.full((5,), 1.0)
    dist.all_reduce(y)  # behind the others
    assert y.tolist() == [float(size)] * 5
    for k in reversed(range(12)):
        assert works[k].wait() and works[k].is_completed() and works[k].is_success() and works[k].exception() is None
        assert torch.equal(xs[k], torch.full((1000 * (k + 1),), float(sum(r + k for r in range(size)))))
        assert works[k].result()[0] is xs[k]
    x = torch.full((3,), float(rank))
    future = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] / size)
    assert future.wait().tolist() == [sum(range(size)) / size] * 3
    x = torch.ones(4)
    after = (
        dist.all_reduce(x, async_op=True).get_future().then(lambda f: (dist.all_reduce(f.value()[0]), f.value()[0])[1])
    )
    assert after.wait().tolist() == [float(size * size)] * 4  # a collective inside of a callback
    work = dist.barrier(async_op=True)
    assert work.wait()
    with dist._coalescing_manager(async_ops=True) as together:
        for x in xs:
            dist.all_reduce(x, dist.ReduceOp.MAX)
    together.wait()
    with dist._coalescing_manager():
        whole = torch.empty(size)
        dist.all_gather_into_tensor(whole, torch.tensor([float(rank)]))
    assert whole.tolist() == list(map(float, range(size)))
    a, b = torch.ones(2), torch.ones(3)
    dist.all_reduce_coalesced([a, b])
    assert a.tolist() == [size] * 2 and b.tolist() == [size] * 3
    twice = torch.ones(2)
    dist.all_reduce_coalesced([twice, twice])
    assert twice.tolist() == [size] * 2  # as if each had been copied first
    rows = [[torch.empty(2), torch.empty(1)] for _ in range(size)]
    dist.all_gather_coalesced(rows, [torch.full((2,), float(rank)), torch.tensor([-1.0 * rank])])
    assert [r[1].item() for r in rows] == [-1.0 * k for k in range(size)]


def messages(rank: int, size: int) -> None:
    """A ring, batches, messages from anyone, tags, large ones both ways."""
    following, before = (rank + 1) % size, (rank - 1) % size
    for count in (1, 300_000):
        got = torch.empty(count)
        work = dist.isend(torch.full((count,), float(rank)), following)
        assert dist.recv(got, before) == before
        work.wait()
        assert (got == before).all()
        sent, got = torch.full((count,), float(rank)), torch.empty(count)
        ops = [dist.P2POp(dist.isend, sent, following), dist.P2POp(dist.irecv, got, before)]
        for one in dist.batch_isend_irecv(ops):
            one.wait()
        assert (got == before).all()
    if rank == 0:
        found = set()
        for _ in range(size - 1):
            x = torch.empty(2)
            source = dist.recv(x)
            assert x.tolist() == [float(source)] * 2
            found.add(source)
        assert found == set(range(1, size))
        work = dist.irecv(torch.empty(1), 1, tag=5)
        work.wait()
        assert work.source_rank() == 1
        strided = torch.zeros(3, 2).t()
        dist.recv(strided, 1, tag=6)
        assert strided.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    else:
        dist.send(torch.full((2,), float(rank)), 0)
        if rank == 1:
            dist.send(torch.arange(6.0).reshape(2, 3), 0, tag=6)
            dist.send(torch.ones(1), 0, tag=5)
    dist.monitored_barrier()


def objects(rank: int, size: int) -> None:
    """Objects of every rank, of different lengths."""
    own = {"rank": rank, "text": "x" * (100 * rank), "tensor": torch.full((rank,), 1.0)}
    found: list[Any] = [None] * size
    dist.all_gather_object(found, own)
    assert [f["rank"] for f in found] == list(range(size)) and len(found[-1]["text"]) == 100 * (size - 1)
    found = [None] * size
    dist.gather_object(own, found if rank == 1 else None, 1)
    assert rank != 1 or [f["tensor"].shape[0] for f in found] == list(range(size))
    some = ["a", {"b": 2}, own] if rank == 0 else [None] * 3
    dist.broadcast_object_list(some, 0)
    assert some[:2] == ["a", {"b": 2}] and some[2]["rank"] == 0
    out = [None]
    dist.scatter_object_list(out, [("for", k) for k in range(size)] if rank == 0 else None, 0)
    assert out == [("for", rank)]
    if rank == 0:
        dist.send_object_list([1, "two"], 1)
    elif rank == 1:
        got = [None, None]
        assert dist.recv_object_list(got, 0) == 0 and got == [1, "two"]


def groups(rank: int, size: int) -> None:
    """Groups of some ranks: members, ranks, collectives in each, at once."""
    odd, even = dist.new_group(range(1, size, 2)), dist.new_group(range(0, size, 2))
    mine, other = (odd, even) if rank % 2 else (even, odd)
    assert other is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(other) == -1
    members = list(range(rank % 2, size, 2))
    assert dist.get_process_group_ranks(mine) == members and dist.get_rank(mine) == members.index(rank)
    assert dist.get_global_rank(mine, 1) == members[1] and dist.get_group_rank(mine, members[1]) == 1
    x = torch.full((2,), float(rank))
    w = dist.all_reduce(x, group=mine, async_op=True)
    y = torch.full((2,), float(rank))
    dist.all_reduce(y)
    w.wait()
    assert x.tolist() == [float(sum(members))] * 2 and y.tolist() == [float(sum(range(size)))] * 2
    dist.broadcast(x, members[-1], group=mine)
    dist.broadcast(x, group_src=0, group=mine)
    row, rows = dist.new_subgroups(2)
    assert dist.get_world_size(row) == 2 and len(rows) == size // 2
    part = dist.split_group(split_ranks=[[0, 1], list(range(2, size))])
    assert dist.get_process_group_ranks(part) == ([0, 1] if rank < 2 else list(range(2, size)))
    dist.barrier(part)
    alone = dist.new_group([rank], use_local_synchronization=True)
    x = torch.ones(1)
    dist.all_reduce(x, group=alone)
    assert x.item() == 1.0
    local = dist.new_group(members, use_local_synchronization=True)
    dist.all_reduce(x, group=local)
    assert x.item() == len(members)
    dist.destroy_process_group(local)
    assert dist.get_backend(mine) == "gloo" and dist.is_initialized()
    dist.barrier()


def threads(rank: int, size: int) -> int:
    """How many threads communicate."""
    import threading

    return sum(thread.name == "rushlight-communication" for thread in threading.enumerate())


def differentiable(rank: int, size: int) -> None:
    """`distributed.nn.functional`: gradients are those of the sum of all ranks' losses."""
    from rushlight.distributed import _functional_collectives as plain
    from rushlight.distributed.nn import functional

    def leaf(k: int) -> Any:
        return (torch.arange(size * 2.0).reshape(size, 2) + 10 * k).requires_grad_()

    weights = [torch.arange(size * 2.0).reshape(size, 2) * (k + 1) for k in range(size)]
    total = sum(weights)
    x = leaf(rank)
    (functional.all_reduce(x) * weights[rank]).sum().backward()
    assert torch.equal(x.grad, total)
    x = leaf(rank)
    sum((row * weights[rank] * (k + 1)).sum() for k, row in enumerate(functional.all_gather(x))).backward()
    assert torch.equal(x.grad, total * (rank + 1))
    x = leaf(rank)
    (functional.broadcast(x, 1) * weights[rank]).sum().backward()
    assert torch.equal(x.grad, total if rank == 1 else torch.zeros(size, 2))
    x = leaf(rank)
    (functional.reduce_scatter(torch.empty(2), list(x)) * weights[rank][0]).sum().backward()
    assert torch.equal(x.grad, torch.stack([w[0] for w in weights]))
    x = leaf(rank)
    (functional.all_to_all_single(torch.empty(size, 2), x) * weights[rank]).sum().backward()
    assert torch.equal(x.grad, torch.stack([w[rank] for w in weights]))
    x = leaf(rank)
    y = functional.gather(x, 0)
    sum((row * (k + 1)).sum() for k, row in enumerate(y)).backward()
    assert torch.equal(x.grad, torch.full((size, 2), 1.0 + rank))
    x = leaf(rank)
    functional.scatter(list(x), 0).sum().mul(rank + 1).backward()
    expected = (torch.arange(1.0, size + 1).unsqueeze(1).expand(size, 2)) if rank == 0 else torch.zeros(size, 2)
    assert torch.equal(x.grad, expected)
    x = torch.full((2, 3), float(rank))
    assert (
        plain.wait_tensor(plain.all_reduce(x, "sum", dist.group.WORLD)).tolist() == [[float(sum(range(size)))] * 3] * 2
    )
    assert plain.all_gather_tensor(x, 1, list(range(size))).shape == (2, 3 * size)
    whole = torch.arange(2.0 * size).reshape(2, size)
    assert plain.reduce_scatter_tensor(whole, "avg", 1, dist.group.WORLD).tolist() == whole[:, rank : rank + 1].tolist()
    assert (
        plain.permute_tensor(x, [(k + 1) % size for k in range(size)], dist.group.WORLD)[0, 0].item()
        == (rank - 1) % size
    )


def meshes(rank: int, size: int) -> None:
    """A mesh of two rows: groups, parts, sums along each dim."""
    mesh = dist.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("dp", "tp"))
    columns = size // 2
    place = (rank // columns, rank % columns)
    assert repr(mesh) == f"DeviceMesh((dp=2, tp={columns}), 'cpu', stride=({columns}, 1))"
    assert mesh.get_coordinate() == place and mesh.size() == size and mesh.shape == (2, columns)
    assert dist.get_process_group_ranks(mesh.get_group("dp")) == [place[1], place[1] + columns]
    assert dist.get_process_group_ranks(mesh["tp"].get_group()) == [place[0] * columns + k for k in range(columns)]
    assert mesh["dp"].get_local_rank() == place[0] and mesh["tp"].mesh.tolist() == [
        place[0] * columns + k for k in range(columns)
    ]
    for name, ranks in (
        ("dp", [place[1], place[1] + columns]),
        ("tp", [place[0] * columns + k for k in range(columns)]),
    ):
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=mesh.get_group(name))
        assert x.item() == sum(ranks)
    assert dist.get_world_size(mesh._flatten("all").get_group()) == size and mesh["all"].mesh.tolist() == list(
        range(size)
    )
    one = dist.init_device_mesh("cpu", (size,))
    assert one.get_group() is dist.group.WORLD and one.get_local_rank() == rank
    part = dist.DeviceMesh("cpu", [0, 1])
    assert part.get_coordinate() == ((rank,) if rank < 2 else None)
    for wrong, error in (
        (lambda: mesh["xx"], KeyError),
        (mesh.get_group, RuntimeError),
        (lambda: dist.init_device_mesh("cpu", (2 * size,)), RuntimeError),
    ):
        try:
            wrong()
        except error:
            continue
        raise AssertionError("no error")
    after = dist.new_group(range(size))  # named alike on all ranks, though not all made the same groups before
    dist.barrier(after)


def methods(rank: int, size: int) -> None:
    """Collectives as methods of a group."""
    pg, total = dist.group.WORLD, float(sum(range(size)))
    x = torch.full((2,), float(rank))
    assert pg.allreduce([x]).wait() and x.tolist() == [total] * 2
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.MAX
    x = torch.full((2,), float(rank))
    pg.allreduce([x], options).wait()
    assert x.tolist() == [size - 1.0] * 2
    pg.broadcast(x.fill_(rank), 1).wait()
    assert x.tolist() == [1.0] * 2
    rows = [torch.empty(2) for _ in range(size)]
    pg.allgather([rows], [torch.full((2,), float(rank))]).wait()
    assert [r[0].item() for r in rows] == list(range(size))
    whole = torch.empty(2 * size)
    pg._allgather_base(whole, torch.full((2,), float(rank))).wait()
    part = torch.empty(2)
    pg._reduce_scatter_base(part, whole).wait()
    assert part.tolist() == [float(size * rank)] * 2
    pg.reduce_scatter([part], [list(whole.chunk(size))]).wait()
    out = torch.empty(size)
    pg.alltoall_base(out, torch.full((size,), float(rank)), [], []).wait()
    assert out.tolist() == list(range(size))
    got = torch.empty(1)
    work = pg.recv([got], (rank - 1) % size)
    pg.send([torch.tensor([float(rank)])], (rank + 1) % size).wait()
    work.wait()
    assert got.item() == (rank - 1) % size
    pg.barrier().wait()
    pg.monitored_barrier()
    assert pg.rank() == rank and pg.size() == size and pg.name() == "gloo" and pg.group_name == "0"


def shrunk(rank: int, size: int) -> Any:
    """Groups without some of their places, which only those who stay make; and the methods that make groups."""
    group = dist.new_group(list(range(size)))
    if rank != 1:
        smaller = dist.shrink_group([1], group)
        x = torch.tensor([float(rank)])
        dist.all_reduce(x, group=smaller)
        assert x.item() == sum(k for k in range(size) if k != 1), x
        assert dist.get_process_group_ranks(smaller) == [k for k in range(size) if k != 1]
        assert smaller.size() == size - 1 and smaller.rank() == rank - (rank > 1)
    for places, text in (
        ([], "empty"),
        ([0, 0], "duplicates"),
        ([size], "not within"),
        (list(range(size)), "exclude all"),
        ([rank], "is excluded"),
    ):
        try:
            dist.shrink_group(places, group)
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError(places)
    half = group.split_group([0, 1])
    assert (half is None) == (rank > 1) and (half is None or half.size() == 2)
    gloo = dist.ProcessGroupGloo(None, rank, size)
    x = torch.tensor([1.0])
    gloo.allreduce([x]).wait()
    rows = [[torch.zeros(1), torch.zeros(2)] for _ in range(size)]
    gloo.allgather_coalesced(rows, [torch.tensor([float(rank)]), torch.full((2,), float(rank))]).wait()
    assert x.item() == size and [row[1].tolist() for row in rows] == [[k, k] for k in range(size)]
    assert gloo.boxed() is gloo and dist.ProcessGroup.unbox(gloo) is gloo and isinstance(gloo, dist.ProcessGroup)
    return gloo.rank()

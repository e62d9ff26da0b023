"""What ranks run in the tests of long sequences and of functions on parts: each function is called with (rank, size)."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import rushlight as torch
import rushlight.nn.functional as F
from rushlight.distributed.device_mesh import DeviceMesh, init_device_mesh
from rushlight.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from rushlight.distributed.tensor.experimental import context_parallel, local_map, register_sharding
from rushlight.distributed.tensor.experimental._attention import (
    _context_parallel_shard,
    _ContextParallel,
    _cp_options,
    _disable_context_parallel_dispatcher,
    _enable_context_parallel_dispatcher,
    _HeadTailLoadBalancer,
    _PTRRLoadBalancer,
    context_parallel_unshard,
    set_rotate_method,
)
from rushlight.distributed.tensor.parallel import parallelize_module
from rushlight.nn.attention.flex_attention import create_block_mask, flex_attention
from rushlight.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

MESHES: dict[int, Any] = {}


def mesh_of(size: int) -> Any:
    """The axis of so many neighbours that holds this rank."""
    if size not in MESHES:
        whole = init_device_mesh("cpu", (4 // size, size), mesh_dim_names=("other", "cp"))
        MESHES[size] = whole["cp"]
    return MESHES[size]


ROWS = [
    (4, "alltoall", True, True), (2, "allgather", False, True), (4, "allgather", True, False), (2, "alltoall", True, True),
]  # fmt: skip


def attention(rank: int, size: int, rows: list[Any]) -> list[float]:
    """Attention over divided sequences against the whole: the largest difference of results and gradients, of each row of
    (ranks, way round, balanced, causal).
    """
    return [_attention(mesh_of(ranks), *row) for ranks, *row in rows]


def _attention(mesh: Any, method: str, balanced: bool, causal: bool) -> float:
    torch.manual_seed(5)
    groups = 2
    q, k, v, g = (torch.randn(1, heads, 16, width) for heads, width in ((4, 6), (groups, 6), (groups, 6), (4, 6)))
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    expected = F.scaled_dot_product_attention(*whole, is_causal=causal, enable_gqa=groups != 4)
    expected.backward(g)
    set_rotate_method(method)
    before, _cp_options.enable_load_balance = _cp_options.enable_load_balance, balanced
    parts = [x.clone() for x in (q, k, v, g)]
    attend = F.scaled_dot_product_attention
    try:
        with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 4, no_restore_buffers=set(parts[:3])):
            assert parts[0].shape[2] == 16 // mesh.size()
            for x in parts[:3]:
                x.requires_grad_()
            out = F.scaled_dot_product_attention(*parts[:3], is_causal=causal, enable_gqa=groups != 4)
            assert torch.equal(out, attend(*parts[:3], is_causal=causal, enable_gqa=groups != 4))
            out.backward(parts[3])
        assert torch.equal(parts[3], g)
        grads: list[Any] = [x.grad for x in parts[:3]]
        rows = context_parallel_unshard(mesh, [out, *grads], [2] * 4)
    finally:
        set_rotate_method("allgather")
        _cp_options.enable_load_balance = before
    return max((a - b).abs().max().item() for a, b in zip(rows, (expected, *(x.grad for x in whole)), strict=True))


class Transformer(torch.nn.Module):
    """Two layers of causal attention with encodings of places."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = torch.nn.Embedding(11, 8), torch.nn.Linear(8, 11)
        self.layers = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)
        )

    def forward(self, tokens: Any, places: Any) -> Any:
        x = self.embed(tokens) + places
        for layer in self.layers:
            x = x + layer.norm1(self.attend(layer.self_attn, x))
            x = x + layer.norm2(layer.linear2(layer.linear1(x).relu()))
        return self.out(x)

    def attend(self, part: Any, x: Any) -> Any:
        q, k, v = (y.unflatten(-1, (2, 4)).transpose(1, 2) for y in F.linear(x, part.in_proj_weight).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return part.out_proj(y.transpose(1, 2).flatten(2))


def training(rank: int, size: int) -> list[list[float]]:
    """Losses of a model whose sequences are divided among four ranks, and those of one process."""
    mesh = mesh_of(4)
    torch.manual_seed(1)
    net = Transformer()
    one = copy.deepcopy(net)
    tokens, places = torch.randint(11, (2, 17)), torch.randn(16, 8)
    rows: list[list[float]] = [[], []]
    for number, model in enumerate((one, net)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        for _ in range(3):
            optimizer.zero_grad()
            x, y, p = tokens[:, :-1].clone(), tokens[:, 1:].clone(), places.clone()
            if number == 0:
                loss = F.cross_entropy(model(x, p).flatten(0, 1), y.flatten())
                loss.backward()
            else:
                with context_parallel(mesh, buffers=[x, y, p], buffer_seq_dims=[1, 1, 0]):
                    loss = F.cross_entropy(model(x, p).flatten(0, 1), y.flatten())
                    loss.backward()
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        torch.distributed.all_reduce(parameter.grad, torch.distributed.ReduceOp.AVG)
                loss = loss.detach()
                torch.distributed.all_reduce(loss, torch.distributed.ReduceOp.AVG)
            optimizer.step()
            rows[number].append(loss.item())
    return rows


class Attention(torch.nn.Module):
    """Causal attention of three projections of one input."""

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class FlexAttention(torch.nn.Module):
    """The same by a block mask."""

    def forward(self, q: Any, k: Any, v: Any, *, block_mask: Any) -> Any:
        return flex_attention(q, k, v, block_mask=block_mask)


def styles(rank: int, size: int) -> dict[str, float]:
    """Differences of results and gradients from one process's, by how attention over parts was called."""
    mesh = mesh_of(2)
    torch.manual_seed(3)
    whole, weight = torch.randn(1, 2, 256, 4), torch.randn(1, 2, 256, 4)
    one = whole.clone().requires_grad_()
    expected = F.scaled_dot_product_attention(one * 2, one, one.sin(), is_causal=True)
    (expected * weight).sum().backward()
    found: dict[str, float] = {}

    def run(name: str, balancer: Any, attend: Any) -> None:
        x, w = _context_parallel_shard(mesh, (whole, weight), (2, 2), balancer)
        x.requires_grad_()
        out = attend(x)
        (out * w).sum().backward()
        rows = context_parallel_unshard(mesh, [out, x.grad], [2, 2], balancer)
        found[name] = max((a - b).abs().max().item() for a, b in zip(rows, (expected, one.grad), strict=True))

    balancer = _HeadTailLoadBalancer(256, 2, "cpu")
    part = parallelize_module(Attention(), mesh, _ContextParallel(2, _ContextParallel.AttentionType.SDPA))

    def attend(x: Any, part: Any = part) -> Any:
        return part(x * 2, x, x.sin())

    def policy(ctx: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        kept = func is torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    again = partial(checkpoint, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, policy))
    _enable_context_parallel_dispatcher()
    try:
        run("plain", balancer, attend)
        run("checkpointed", balancer, lambda x: checkpoint(attend, x, use_reentrant=False))
        run("selective", balancer, lambda x: again(attend, x))
        run("compiled", balancer, partial(attend, part=torch.compile(part)))
    finally:
        _disable_context_parallel_dispatcher()

    with context_parallel(mesh):
        run("context", balancer, lambda x: again(partial(attend, part=Attention()), x))
    flex = parallelize_module(FlexAttention(), mesh, _ContextParallel(2, _ContextParallel.AttentionType.FLEX))
    mask = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 256, 256)
    for name, order in (("flex", None), ("flex ordered", _PTRRLoadBalancer(mask, 2))):
        (mine,) = _context_parallel_shard(mesh, [mask], [2], order)
        assert mine.shape == (1, 1, 128, 256)
        run(name, order, lambda x, mine=mine: flex(x * 2, x, x.sin(), block_mask=mine))
    return found


def compiled_before(rank: int, size: int) -> list[float]:
    """Differences of a compiled function from eager calls: before attention goes round the ring, then, with other
    settings, and afterwards.
    """
    mesh, found = mesh_of(2), []
    torch.manual_seed(3)
    x = distribute_tensor(torch.randn(1, 2, 8, 4), mesh, [Shard(2)])
    before = _cp_options.enable_load_balance

    def attend(x: Any) -> Any:
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)

    compiled = torch.compile(attend, fullgraph=True)

    def compare() -> None:
        for _ in range(2):
            made, wanted = compiled(x), attend(x)
        assert made.placements == wanted.placements
        found.append((made.full_tensor() - wanted.full_tensor()).abs().max().item())

    compare()
    _enable_context_parallel_dispatcher()
    try:
        for _cp_options.enable_load_balance in (True, False):
            compare()
    finally:
        _disable_context_parallel_dispatcher()
        _cp_options.enable_load_balance = before
    compare()
    return found


def compiled_around(rank: int, size: int) -> list[float]:
    """Differences of compiled functions from eager calls: outside of the context, in contexts by both ways, the last like
    the first, and of one that enters the context itself.
    """
    mesh, found = mesh_of(4), []
    torch.manual_seed(4)
    net, whole = torch.nn.Linear(4, 4), torch.randn(1, 2, 16, 4)

    def attend(x: Any) -> Any:
        h = net(x)
        return F.scaled_dot_product_attention(h, h, h, is_causal=True)

    def gradients(function: Any, x: Any) -> Any:
        return torch.autograd.grad(function(x).square().sum(), net.parameters())

    def compare(made: Any, wanted: Any) -> None:
        found.append(max((a - b).abs().max().item() for a, b in zip(made, wanted, strict=True)))

    def entering(x: Any) -> Any:
        x = x.clone()
        with context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]):
            return torch.autograd.grad(attend(x).square().sum(), net.parameters())

    compiled = torch.compile(attend, fullgraph=True)
    compare(gradients(compiled, whole), gradients(attend, whole))
    try:
        for way in ("alltoall", "allgather", "alltoall"):
            set_rotate_method(way)
            x = whole.clone()
            stance = "fail_on_recompile" if len(found) == 3 else "default"
            with torch.compiler.set_stance(stance), context_parallel(mesh, buffers=[x], buffer_seq_dims=[2]):
                assert x.shape[2] == 4
                compare(gradients(compiled, x), gradients(attend, x))
        compare(torch.compile(entering)(whole), entering(whole))
    finally:
        set_rotate_method("allgather")
    with torch.compiler.set_stance("fail_on_recompile"):
        compare(gradients(compiled, whole), gradients(attend, whole))
    return found


def refusals(rank: int, size: int) -> list[str]:
    mesh, found = mesh_of(2), []
    x = torch.ones(1, 1, 6, 4)

    def inside(*args: Any, **kwargs: Any) -> Any:
        with context_parallel(mesh):
            return F.scaled_dot_product_attention(*args, **kwargs)

    def of(*buffers: Any, **kwargs: Any) -> Any:
        with context_parallel(mesh, buffers=list(buffers), **kwargs):
            pass

    for call in (
        lambda: of(torch.ones(7), buffer_seq_dims=[0]),
        lambda: of(torch.ones(8), buffer_seq_dims=[]),
        lambda: of(torch.ones(8), buffer_seq_dims=[0], no_restore_buffers={x}),
        lambda: of(torch.ones(8, requires_grad=True), buffer_seq_dims=[0]),
        lambda: inside(x, x, x, torch.ones(6, 6)),
        lambda: inside(x, x, x, dropout_p=0.5),
        lambda: inside(x, x[:, :, :4], x[:, :, :4], is_causal=True),
        lambda: set_rotate_method("x"),
    ):
        try:
            call()
            found.append("")
        except (RuntimeError, ValueError, NotImplementedError) as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


def on_parts(rank: int, size: int) -> list[str]:
    """`local_map` and `register_sharding`."""
    mesh: DeviceMesh = init_device_mesh("cpu", (4,))
    whole = torch.arange(24.0).reshape(8, 3)
    a = distribute_tensor(whole, mesh, [Shard(0)]).requires_grad_()
    b = distribute_tensor(torch.ones(3, 2), mesh, [Replicate()]).requires_grad_()
    product = local_map(
        lambda x, y, times: (x @ y * times, times),
        out_placements=([Shard(0)], None),
        in_placements=([Shard(0)], [Replicate()], None),
        in_grad_placements=([Shard(0)], [Partial()], None),
    )
    out, times = product(a, b, 2)
    assert times == 2 and torch.equal(out.full_tensor(), whole @ torch.ones(3, 2) * 2)
    out.sum().backward()
    assert torch.equal(b.grad.full_tensor(), (whole.sum(0) * 2)[:, None].expand(3, 2))
    moved = local_map(
        lambda x: x.sum(0), out_placements=[Partial()], in_placements=([Shard(1)],), redistribute_inputs=True
    )
    assert product(whole, torch.ones(3, 2), 1)[0].shape == (8, 2)
    assert type(moved(whole)) is torch.Tensor
    found = []
    for call in (
        lambda: product(b, b, 1),
        lambda: product(a, b),
        lambda: local_map(lambda x: (x, x), out_placements=[Shard(0)])(a),
        lambda: local_map(lambda x: 1, out_placements=[Shard(0)])(a),
    ):
        try:
            call()
            found.append("")
        except (AssertionError, ValueError) as error:
            found.append(str(error))
    seen: list[Any] = []
    op = torch.ops.aten._softmax.default

    @register_sharding(op)
    def ways(x: Any, dim: int, half: bool) -> Any:
        seen.append((x.shape, x.placements))
        dim = dim % x.ndim
        rows = [([Replicate()], [Replicate(), None, None])]
        return rows + [([Shard(d)], [Shard(d), None, None]) for d in range(x.ndim) if d != dim]

    from rushlight.distributed.tensor._by_hand import REGISTERED

    try:
        for placed, after in (([Shard(0)], (Shard(0),)), ([Shard(1)], None)):
            y = torch.ops.aten._softmax.default(distribute_tensor(whole, mesh, placed), 1, False)
            assert isinstance(y, DTensor) and torch.equal(y.full_tensor(), whole.softmax(1))
            assert after is None or y.placements == after
            assert y.placements in ((Shard(0),), (Replicate(),))
    finally:
        del REGISTERED[op]
    assert seen == [((8, 3), (Shard(0),)), ((8, 3), (Shard(1),))]
    return found

"""The meta device: shapes, dtypes and strides without memory; other devices."""

from __future__ import annotations

from typing import Any

from tests.engine.recording import Topic, attempt

topic = Topic()

FAMILIES: dict[str, Any] = {
    "unary": lambda x: x.exp(),
    "unary_strided": lambda x: x.permute(2, 0, 1).sin(),
    "binary": lambda x: x + x,
    "scalar": lambda x: x * 2,
    "broadcast": lambda x: x + x[0, 0],
    "compare": lambda x: x > 1,
    "where": lambda x: x.where(x > 0, x),
    "sum": lambda x: x.sum(),
    "sum_dim": lambda x: x.sum(1, keepdim=True),
    "mean": lambda x: x.mean((0, 2)),
    "max": lambda x: x.max(1),
    "argmax": lambda x: x.argmax(2),
    "var": lambda x: x.var(0),
    "any": lambda x: (x > 0).any(),
    "cumsum": lambda x: x.cumsum(1),
    "matmul": lambda x: x @ x.transpose(1, 2),
    "mm": lambda x: x[0] @ x[0].t(),
    "view": lambda x: x.view(6, 4),
    "reshape_copy": lambda x: x.transpose(0, 2).reshape(24),
    "expand": lambda x: x[:, :1].expand(2, 5, 4),
    "cat": lambda x: x.new_empty(0).new_zeros(2, 3),
    "index": lambda x: x[0, 1:],
    "softmax": lambda x: x.softmax(-1),
    "dtype": lambda x: x.to(dtype=x.double().dtype),
    "clone": lambda x: x.transpose(0, 1).clone(),
    "contiguous": lambda x: x.transpose(0, 1).contiguous(),
    "sort": lambda x: x.sort(1),
    "topk": lambda x: x.topk(2),
    "split": lambda x: x.split(2, 2),
    "unbind": lambda x: x.unbind(0),
    "flip": lambda x: x.flip(0),
    "repeat": lambda x: x.repeat(1, 2, 1),
    "tril": lambda x: x.tril(),
    "clamp": lambda x: x.clamp(0, 1),
    "pow": lambda x: x**2,
    "inplace": lambda x: x.add_(1),
    "zero_": lambda x: x.zero_(),
    "like": lambda x: x.new_ones(3),
    "empty_like": lambda x: x.permute(1, 0, 2).clone(),
    "norm": lambda x: x.norm(dim=1),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "detach": lambda x: x.detach(),
    "std": lambda x: x.std(),
    "prod": lambda x: x.prod(0),
    "logsumexp": lambda x: x.logsumexp(1),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "pad_like": lambda x: x.roll(1, 0),
    "complex": lambda x: x + 1j,
    "copy": lambda x: x.copy_(x[0]),
    "setitem": lambda x: (x.__setitem__(0, 1.0), x)[1],
}
for _name, _family in FAMILIES.items():
    topic.programs[_name] = lambda t, family=_family: family(t.empty(2, 3, 4, device="meta"))


@topic
def functions(t: Any) -> Any:
    x = t.empty(2, 3, 8, 8, device="meta")
    w = t.empty(5, 3, 3, 3, device="meta")
    i = t.zeros(2, 4, dtype=t.long, device="meta")
    f = t.nn.functional
    e = t.empty(10, 6, device="meta")
    return [
        f.conv2d(x, w, padding=1, stride=2),
        f.max_pool2d(x, 2),
        f.avg_pool2d(x, 2),
        f.layer_norm(x, (8, 8)),
        f.embedding(i, e),
        f.linear(x, t.empty(4, 8, device="meta")),
        f.relu(x),
        f.gelu(x),
        f.dropout(x, 0.0),
        f.cross_entropy(t.empty(4, 5, device="meta"), t.zeros(4, dtype=t.long, device="meta")),
        f.scaled_dot_product_attention(x, x, x),
        t.cat([x, x], 1),
        t.stack([x, x]),
        t.einsum("bchw,dc->bdhw", x, t.empty(4, 3, device="meta")).contiguous(),
        e.gather(0, i.new_zeros(2, 6)),
        e[i],
        e.index_select(0, i[0]),
        t.where(e > 0, e, 0.0),
        t.bmm(x[0], x[0]),
        f.pad(x, (1, 1)),
    ]


@topic
def factories(t: Any) -> Any:
    d = {"device": "meta"}
    return [
        t.zeros(2, **d),
        t.ones(2, dtype=t.int32, **d),
        t.arange(5, **d),
        t.arange(5.0, **d),
        t.full((2,), 3, **d),
        t.eye(3, **d),
        t.linspace(0, 1, 4, **d),
        t.rand(2, **d),
        t.randn(2, **d),
        t.randint(0, 5, (3,), **d),
        t.tensor([1, 2], **d),
        t.empty(3, **d),
        t.empty_strided((2, 3), (1, 2), **d),
        t.zeros_like(t.empty(2, **d)),
        t.ones(2).to("meta"),
        t.ones(2, 3).t().to("meta"),
        t.empty(2, **d).is_meta,
        t.empty(2, **d).data_ptr(),
        t.randperm(4, **d),
        t.zeros(2, **d).new_zeros(3),
    ]


@topic
def gradients(t: Any) -> Any:
    x = t.empty(2, 3, device="meta", requires_grad=True)
    w = t.empty(3, 4, device="meta", requires_grad=True)
    ((x @ w).relu().sum(1) * 2).mean().backward()
    return x.grad, w.grad, (x * 2)


@topic
def data_is_missing(t: Any) -> Any:
    x = t.ones(2, device="meta")
    return [
        attempt(lambda: x.item()),
        attempt(lambda: x[0].item()),
        attempt(lambda: x.tolist()),
        attempt(lambda: x.cpu()),
        attempt(lambda: x.to("cpu")),
        attempt(lambda: bool(x.sum())),
        attempt(lambda: x.nonzero()),
        attempt(lambda: t.ones(2).copy_(x)),
        attempt(lambda: x[x > 0]),
        repr(x),
        attempt(lambda: float(x.sum())),
        attempt(lambda: x.numpy()),
    ]


@topic
def mixed(t: Any) -> Any:
    x, y = t.ones(2, device="meta"), t.ones(2)
    return [
        attempt(lambda: x + y),
        attempt(lambda: x + t.tensor(2.0)),
        attempt(lambda: t.cat([x, y])),
        attempt(lambda: x @ y),
        attempt(lambda: x.copy_(y)),
        x.device == t.device("meta"),
    ]


@topic
def devices(t: Any) -> Any:
    d = t.device
    return [
        str(d("cpu")),
        repr(d("cpu")),
        d("cpu").type,
        d("cpu").index,
        str(d("cpu:0")),
        d("cpu:0").index,
        str(d("cuda", 1)),
        repr(d("cuda:1")),
        d("cpu") == d("cpu"),
        d("cpu") == d("cpu:0"),
        hash(d("cpu")) == hash(d("cpu")),
        attempt(lambda: d("nonsense")),
        attempt(lambda: d("cpu:x")),
        attempt(lambda: d("cuda:-1")),
        attempt(lambda: d(5.0)),
        d("meta"),
        t.ones(1).device,
        t.ones(1, device=d("cpu")).device,
        attempt(lambda: t.ones(1, device="nope")),
        d("cpu") == "cpu",
        attempt(lambda: t.ones(2).to("nope")),
        attempt(lambda: d("")),
        t.ones(1).to("cpu").device,
        t.ones(2).cpu().device,
        t.ones(1).get_device(),
        t.ones(1).is_cuda,
    ]

"""Operators that `cuda.py` times in rushlight and in PyTorch: each row builds its arrays and gives the call, the bytes that it
moves, and its products and sums.  What must be known comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["ROWS"]

Call = Callable[[], Any]
# Rows that run in both: (module, dry) -> call, bytes, products
Row = Callable[[Any, bool], tuple[Call, float, float]]
ROWS: dict[str, Row] = {}


def row(build: Row) -> Row:
    ROWS[build.__name__] = build
    return build


def _random(t: Any, *shape: int, dtype: str = "bfloat16", grad: bool = False) -> Any:
    return t.randn(*shape, device="cuda", dtype=getattr(t, dtype), requires_grad=grad)


@row
def copy(t: Any, dry: bool) -> tuple[Call, float, float]:
    x = _random(t, 1 << (10 if dry else 28))
    y = t.empty_like(x)
    return lambda: y.copy_(x), 2 * x.numel() * 2, 0


@row
def gelu(t: Any, dry: bool) -> tuple[Call, float, float]:
    x = _random(t, 1 << (10 if dry else 27))
    return lambda: t.nn.functional.gelu(x), 2 * x.numel() * 2, 0


@row
def softmax(t: Any, dry: bool) -> tuple[Call, float, float]:
    x = _random(t, 8 if dry else 1 << 15, 64 if dry else 8192)
    return lambda: t.softmax(x, -1), 2 * x.numel() * 2, 0


@row
def layer_norm(t: Any, dry: bool) -> tuple[Call, float, float]:
    n = 64 if dry else 4096
    x, w, b = _random(t, 8 if dry else 1 << 15, n), _random(t, n), _random(t, n)
    return lambda: t.nn.functional.layer_norm(x, (n,), w, b), 2 * x.numel() * 2, 0


@row
def cross_entropy(t: Any, dry: bool) -> tuple[Call, float, float]:
    x = _random(t, 8 if dry else 4096, 100 if dry else 50304, dtype="float32")
    target = t.zeros(x.shape[0], dtype=t.int64, device="cuda")
    return lambda: t.nn.functional.cross_entropy(x, target), x.numel() * 4, 0


@row
def adamw(t: Any, dry: bool) -> tuple[Call, float, float]:
    sizes = [(16, 16), (16,)] if dry else [(4096, 1024), (1024,), (1024, 4096), (4096,)] * 4
    params = [t.nn.Parameter(_random(t, *s, dtype="float32")) for s in sizes]
    for p in params:
        p.grad = t.randn_like(p)
    optimizer = t.optim.AdamW(params, fused=True)
    return optimizer.step, 28 * sum(p.numel() for p in params), 0


@row
def embedding_backward(t: Any, dry: bool) -> tuple[Call, float, float]:
    table = _random(t, 100 if dry else 50304, 16 if dry else 768, dtype="float32", grad=True)
    places = t.randint(0, table.shape[0], (64 if dry else 1 << 16,), device="cuda")
    upstream = _random(t, places.shape[0], table.shape[1], dtype="float32")

    def step() -> None:
        table.grad = None
        t.nn.functional.embedding(places, table).backward(upstream)

    return step, 3 * upstream.numel() * 4, 0


def _product(size: int, dtype: str) -> Row:
    def build(t: Any, dry: bool) -> tuple[Call, float, float]:
        n = 32 if dry else size
        a, b = _random(t, n, n, dtype=dtype), _random(t, n, n, dtype=dtype)
        return lambda: a @ b, 0, 2 * n**3

    build.__name__ = f"matmul_{dtype}_{size}"
    return build


row(_product(8192, "bfloat16"))


@row
def scaled_mm_8192(t: Any, dry: bool) -> tuple[Call, float, float]:
    """float8 by float8 with one scale each, to bfloat16."""
    n = 32 if dry else 8192
    a, b = (_random(t, n, n).to(t.float8_e4m3fn) for _ in range(2))
    one = t.ones((), device="cuda")
    return lambda: t._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=t.bfloat16), 0, 2 * n**3


def _attention(length: int, backward: bool) -> Row:
    def build(t: Any, dry: bool) -> tuple[Call, float, float]:
        n, heads = (64, 2) if dry else (length, 16)
        q, k, v = (_random(t, max(1, 16384 // n // (64 if dry else 1)), heads, n, 128, grad=backward) for _ in range(3))
        attend = lambda: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        flops = 4 * q.shape[0] * heads * n * n * 128 / 2
        if not backward:
            return attend, 0, flops
        out = attend()
        upstream = t.randn_like(out)
        return lambda: t.autograd.grad(out, (q, k, v), upstream, retain_graph=True), 0, 2.5 * flops

    build.__name__ = f"attention_{'backward' if backward else 'forward'}_{length}"
    return build


for _length in (16384, 4096):
    row(_attention(_length, False))
    row(_attention(_length, True))
for _size in (4096, 1024):
    row(_product(_size, "bfloat16"))
row(_product(4096, "float32"))


@row
def grouped_matmul(t: Any, dry: bool) -> tuple[Call, float, float]:
    """Sixteen thousand tokens among eight experts, the last with fifteen times the rows of the first."""
    tokens, experts, width, hidden = (64, 2, 16, 32) if dry else (16384, 8, 2048, 4096)
    a, b = _random(t, tokens, width), _random(t, experts, width, hidden)
    ends = [tokens * (n + 1) ** 2 // experts**2 for n in range(experts)]
    offsets = t.tensor(ends, dtype=t.int32, device="cuda")
    return lambda: t._grouped_mm(a, b, offs=offsets), 0, 2 * tokens * width * hidden


@row
def convolution_layer(t: Any, dry: bool) -> tuple[Call, float, float]:
    """A convolution of channels-last images, batch norm in inference, a residual and an activation, compiled."""
    batch, width, size = (2, 16, 8) if dry else (64, 128, 56)
    f, last = t.nn.functional, t.channels_last
    x, r = (_random(t, batch, width, size, size).contiguous(memory_format=last) for _ in range(2))
    w = _random(t, width, width, 3, 3).contiguous(memory_format=last)
    mean, bias, scale = _random(t, width), _random(t, width), t.ones(width, device="cuda", dtype=t.bfloat16)

    @t.compile  # type: ignore[misc]
    def layer() -> Any:
        return f.relu(f.batch_norm(f.conv2d(x, w, padding=1), mean, scale, scale, bias, False) + r)

    def call() -> Any:
        with t.no_grad():
            return layer()

    return call, 0, 2 * batch * size**2 * width**2 * 9


def _decode(sequences: int, keys: int) -> Row:
    """A query of each sequence to keys in pages of 16 tokens, 32 heads for 8 of keys."""

    def build(t: Any, dry: bool) -> tuple[Call, float, float]:
        from importlib import import_module

        attend = import_module(f"{t.__name__}.nn.attention.varlen").varlen_attn
        count, most = (2, 64) if dry else (sequences, keys)
        pages = count * most // 16
        q = _random(t, count, 32, 128)
        k, v = (_random(t, pages, 16, 8, 128) for _ in range(2))
        starts = t.arange(count + 1, dtype=t.int32, device="cuda")
        used = t.full((count,), most, dtype=t.int32, device="cuda")
        table = t.randperm(pages, device="cuda").to(t.int32).reshape(count, most // 16)
        options = {"window_size": (-1, 0), "enable_gqa": True, "seqused_k": used, "block_table": table}

        def call() -> Any:
            with t.no_grad():
                return attend(q, k, v, starts, None, 1, most, **options)

        return call, 2 * count * most * 8 * 128 * 2, 0

    build.__name__ = f"paged_decode_{sequences}_{keys}"
    return build


row(_decode(64, 4096))
row(_decode(1, 1 << 15))

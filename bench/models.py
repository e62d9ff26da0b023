"""Whole models for `first_pass.py`, written with `nn` alone: each function takes the module and returns what one pass is.

A pass is forward and backward of one small batch, or a generated sequence; it returns the loss (or what stands for it).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Pass = Callable[[], Any]
MODELS: dict[str, Callable[[Any], Pass]] = {}


def model(name: str) -> Callable[[Callable[[Any], Pass]], Callable[[Any], Pass]]:
    def add(make: Callable[[Any], Pass]) -> Callable[[Any], Pass]:
        MODELS[name] = make
        return make

    return add


def _trained(network: Any, loss: Callable[[], Any]) -> Pass:
    def step() -> Any:
        network.zero_grad()
        found = loss()
        found.backward()
        return found

    network.train()
    return step


# ***** an encoder and a decoder with relative positions, as T5 *****


def _t5(t: Any, width: int = 64, heads: int = 4, inner: int = 128, layers: int = 2, vocab: int = 512) -> Any:
    nn = t.nn

    class Norm(nn.Module):
        """By the root of the mean square, computed in float32."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(t.ones(width))

        def forward(self, x: Any) -> Any:
            square = x.to(t.float32).pow(2).mean(-1, keepdim=True)
            return self.weight * (x * t.rsqrt(square + 1e-6))

    def buckets(distance: Any, both: bool, count: int = 32, far: int = 128) -> Any:
        """Near distances have a bucket each, far ones share them by their logarithm."""
        first = t.zeros_like(distance)
        if both:
            count //= 2
            first = (distance > 0).to(t.long) * count
            distance = distance.abs()
        else:
            distance = -t.min(distance, t.zeros_like(distance))
        near = count // 2
        scaled = t.log(distance.float() / near) / math.log(far / near) * (count - near)
        large = t.min(near + scaled.to(t.long), t.full_like(distance, count - 1))
        return first + t.where(distance < near, distance, large)

    class Attention(nn.Module):
        def __init__(self, biased: bool, both: bool) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
            self.both, self.bias = both, nn.Embedding(32, heads) if biased else None

        def split(self, x: Any) -> Any:
            return x.view(x.shape[0], -1, heads, width // heads).transpose(1, 2)

        def positions(self, queries: int, keys: int) -> Any:
            distance = t.arange(keys)[None, :] - t.arange(keys - queries, keys)[:, None]
            return self.bias(buckets(distance, self.both)).permute(2, 0, 1).unsqueeze(0)

        def forward(
            self, x: Any, source: Any, bias: Any, mask: Any = None, kept: dict | None = None
        ) -> tuple[Any, Any]:
            q = self.split(self.q(x))
            if kept is not None and source is not None and "k" in kept:  # cross attention: the source stays
                k, v = kept["k"], kept["v"]
            else:
                seen = x if source is None else source
                k, v = self.split(self.k(seen)), self.split(self.v(seen))
                if kept is not None:
                    if source is None and "k" in kept:
                        k, v = t.cat([kept["k"], k], 2), t.cat([kept["v"], v], 2)
                    kept["k"], kept["v"] = k, v
            scores = q @ k.transpose(3, 2)
            if bias is None:
                bias = self.positions(q.shape[2], k.shape[2]) if self.bias is not None else t.zeros(1, heads, 1, 1)
                bias = bias if mask is None else bias + mask
            weights = nn.functional.softmax((scores + bias).float(), -1).type_as(scores)
            weights = nn.functional.dropout(weights, 0.1, self.training)
            y = (weights @ v).transpose(1, 2).contiguous().view(x.shape[0], -1, width)
            return self.o(y), bias

    class Block(nn.Module):
        def __init__(self, first: bool, decodes: bool) -> None:
            super().__init__()
            self.own, self.norm_1, self.norm_3 = Attention(first, not decodes), Norm(), Norm()
            self.cross, self.norm_2 = (Attention(False, True), Norm()) if decodes else (None, None)
            self.wide, self.back = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)
            self.drop = nn.Dropout(0.1)

        def forward(
            self, x: Any, bias: Any, mask: Any, source: Any = None, kept: dict | None = None
        ) -> tuple[Any, Any]:
            own, cross = (kept.setdefault(name, {}) for name in ("own", "cross")) if kept is not None else (None, None)
            y, bias = self.own(self.norm_1(x), None, bias, mask, own)
            x = x + self.drop(y)
            if self.cross is not None:
                x = x + self.drop(self.cross(self.norm_2(x), source, None, None, cross)[0])
            y = self.back(self.drop(nn.functional.relu(self.wide(self.norm_3(x)))))
            return x + self.drop(y), bias

    class Stack(nn.Module):
        def __init__(self, words: Any, decodes: bool) -> None:
            super().__init__()
            self.words, self.norm, self.drop, self.decodes = words, Norm(), nn.Dropout(0.1), decodes
            self.blocks = nn.ModuleList([Block(i == 0, decodes) for i in range(layers)])

        def forward(self, ids: Any, mask: Any = None, source: Any = None, kept: list | None = None) -> Any:
            x, bias = self.drop(self.words(ids)), None
            n = ids.shape[1]
            hidden = None
            if self.decodes and n > 1:
                hidden = (1.0 - t.tril(t.ones(n, n)))[None, None] * t.finfo(t.float32).min
            elif mask is not None:
                hidden = (1.0 - mask[:, None, None, :].float()) * t.finfo(t.float32).min
            for i, block in enumerate(self.blocks):
                x, bias = block(x, bias, hidden, source, None if kept is None else kept[i])
            return self.drop(self.norm(x))

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(vocab, width)
            self.encoder, self.decoder = Stack(self.words, False), Stack(self.words, True)

        def scores(self, x: Any) -> Any:
            return (x * width**-0.5) @ self.words.weight.t()

        def forward(self, ids: Any, mask: Any, labels: Any) -> Any:
            source = self.encoder(ids, mask)
            shifted = labels.new_zeros(labels.shape)
            shifted[:, 1:] = labels[:, :-1].clone()
            found = self.scores(self.decoder(shifted.masked_fill(shifted == -100, 0), None, source))
            return nn.functional.cross_entropy(found.view(-1, vocab), labels.view(-1), ignore_index=-100)

        def generate(self, ids: Any, steps: int) -> Any:
            with t.no_grad():
                source = self.encoder(ids, t.ones_like(ids))
                kept: list[dict] = [{} for _ in range(layers)]
                out = t.zeros(ids.shape[0], 1, dtype=t.long)
                for _ in range(steps):
                    scores = self.scores(self.decoder(out[:, -1:], None, source, kept))[:, -1, :]
                    out = t.cat([out, scores.argmax(-1)[:, None]], -1)
                return out

    return Whole()


@model("tiny_t5")
def tiny_t5(t: Any) -> Pass:
    """Two layers: forward and backward."""
    network = _t5(t)
    ids, labels, mask = t.randint(1, 512, (2, 12)), t.randint(1, 512, (2, 8)), t.ones(2, 12, dtype=t.long)
    mask[1, 9:] = 0
    return _trained(network, lambda: network(ids, mask, labels))


@model("tiny_t5_generates")
def tiny_t5_generates(t: Any) -> Pass:
    """The same model: twelve words, each the likeliest, with keys and values kept."""
    network = _t5(t).eval()
    ids = t.randint(1, 512, (2, 12))
    return lambda: network.generate(ids, 12).float().mean()


# ***** an encoder as large as BERT-base *****


@model("bert_base")
def bert_base(t: Any) -> Pass:
    """12 layers, 768 wide, 12 heads; masked words of 2 texts of 64: forward and backward."""
    nn, width, heads, vocab, length = t.nn, 768, 12, 30522, 64

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
            self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.norm_1, self.norm_2, self.drop = (
                nn.LayerNorm(width, 1e-12),
                nn.LayerNorm(width, 1e-12),
                nn.Dropout(0.1),
            )

        def forward(self, x: Any, mask: Any) -> Any:
            b, n, _ = x.shape
            q, k, v = (f(x).view(b, n, heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
            p = 0.1 if self.training else 0.0
            y = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
            x = self.norm_1(x + self.drop(self.o(y.transpose(1, 2).reshape(b, n, width))))
            return self.norm_2(x + self.drop(self.back(nn.functional.gelu(self.wide(x)))))

    class Bert(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.positions, self.kinds = (
                nn.Embedding(vocab, width),
                nn.Embedding(512, width),
                nn.Embedding(2, width),
            )
            self.norm, self.drop, self.layers = (
                nn.LayerNorm(width, 1e-12),
                nn.Dropout(0.1),
                nn.ModuleList([Layer() for _ in range(12)]),
            )
            self.head, self.head_norm, self.bias = (
                nn.Linear(width, width),
                nn.LayerNorm(width),
                nn.Parameter(t.zeros(vocab)),
            )

        def forward(self, ids: Any, mask: Any) -> Any:
            x = self.words(ids) + self.positions(t.arange(ids.shape[1])[None]) + self.kinds(t.zeros_like(ids))
            x, hidden = self.drop(self.norm(x)), (1.0 - mask[:, None, None, :].float()) * t.finfo(t.float32).min
            for layer in self.layers:
                x = layer(x, hidden)
            return nn.functional.linear(self.head_norm(nn.functional.gelu(self.head(x))), self.words.weight, self.bias)

    network = Bert()
    ids, labels, mask = t.randint(0, vocab, (2, length)), t.randint(0, vocab, (2, length)), t.ones(2, length)
    mask[1, 50:] = 0
    labels[:, ::2] = -100
    return _trained(network, lambda: nn.functional.cross_entropy(network(ids, mask).view(-1, vocab), labels.view(-1)))


# ***** convolutions *****


@model("resnet_50")
def resnet_50(t: Any) -> Pass:
    """Two pictures of 224 x 224: forward and backward."""
    nn = t.nn

    class Bottleneck(nn.Module):
        def __init__(self, before: int, middle: int, stride: int) -> None:
            super().__init__()
            after = 4 * middle
            self.c1, self.n1 = nn.Conv2d(before, middle, 1, bias=False), nn.BatchNorm2d(middle)
            self.c2, self.n2 = nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle)
            self.c3, self.n3 = nn.Conv2d(middle, after, 1, bias=False), nn.BatchNorm2d(after)
            self.relu = nn.ReLU(inplace=True)
            fits = before == after and stride == 1
            self.side = (
                None if fits else nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))
            )

        def forward(self, x: Any) -> Any:
            y = self.relu(self.n1(self.c1(x)))
            y = self.n3(self.c3(self.relu(self.n2(self.c2(y)))))
            y += x if self.side is None else self.side(x)
            return self.relu(y)

    layers: list[Any] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    width = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        for i in range(count):
            layers.append(Bottleneck(width, 64 << stage, 2 if stage and not i else 1))
            width = 4 * (64 << stage)
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))
    x, y = t.randn(2, 3, 224, 224), t.randint(0, 1000, (2,))
    return _trained(network, lambda: nn.functional.cross_entropy(network(x), y))


@model("u_net")
def u_net(t: Any) -> Pass:
    """Four levels from 32 channels, one picture of 128 x 128: forward and backward."""
    nn = t.nn

    def twice(before: int, after: int) -> Any:
        parts = [nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(8, after), nn.SiLU()]
        return nn.Sequential(*parts, nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(8, after), nn.SiLU())

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [32, 64, 128, 256]
            self.down = nn.ModuleList([twice(a, b) for a, b in zip([3, *widths], widths)])
            self.bottom, self.pool = twice(256, 512), nn.MaxPool2d(2)
            self.up = nn.ModuleList([nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths)])
            self.back = nn.ModuleList([twice(2 * w, w) for w in reversed(widths)])
            self.last = nn.Conv2d(32, 4, 1)

        def forward(self, x: Any) -> Any:
            skipped = []
            for block in self.down:
                x = block(x)
                skipped.append(x)
                x = self.pool(x)
            x = self.bottom(x)
            for up, block in zip(self.up, self.back):
                x = block(t.cat([skipped.pop(), up(x)], 1))
            return self.last(x)

    network = UNet()
    x, y = t.randn(1, 3, 128, 128), t.randint(0, 4, (1, 128, 128))
    return _trained(network, lambda: nn.functional.cross_entropy(network(x), y))

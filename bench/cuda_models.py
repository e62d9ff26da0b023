"""Whole models on a GPU, written with `nn` alone for rushlight and for PyTorch: what a training step and a decoded word take.

call, words = MODELS["gpt2_training"](module, compiled=False, small=False)

`small` models have the same layers with few channels, so that a run without a GPU can try them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench.compiled import gpt_of

__all__ = ["MODELS"]

Built = tuple[Callable[[], Any], int]  # the call, and how many items (words, images) it goes through
MODELS: dict[str, Callable[[Any, bool, bool], Built]] = {}


def model(build: Callable[[Any, bool, bool], Built]) -> Callable[[Any, bool, bool], Built]:
    MODELS[build.__name__] = build
    return build


def _step(t: Any, network: Any, optimizer: Any, x: Any, y: Any) -> Callable[[], Any]:
    """A training step under automatic casts to bfloat16."""

    def step() -> Any:
        optimizer.zero_grad()
        with t.autocast("cuda", t.bfloat16):
            scores = network(x)
            loss = t.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]).float(), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@model
def gpt2_training(t: Any, compiled: bool, small: bool) -> Built:
    """GPT-2 of 124M parameters, sequences of 1,024 words, AdamW in one launch."""
    layers, width, heads, words, length, batch = (2, 64, 2, 100, 32, 2) if small else (12, 768, 12, 50304, 1024, 8)
    network = gpt_of(t)(layers, width, heads, words, length).to("cuda")
    optimizer = t.optim.AdamW(network.parameters(), lr=1e-4, fused=True)
    x, y = (t.randint(0, words, (batch, length), device="cuda") for _ in range(2))
    step = _step(t, network, optimizer, x, y)
    return t.compile(step) if compiled else step, batch * length


def _bottleneck(t: Any) -> Any:
    nn, f = t.nn, t.nn.functional

    class Bottleneck(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            after = 4 * width
            self.c1, self.b1 = nn.Conv2d(before, width, 1, bias=False), nn.BatchNorm2d(width)
            self.c2, self.b2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.c3, self.b3 = nn.Conv2d(width, after, 1, bias=False), nn.BatchNorm2d(after)
            shortcut = [nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)]
            self.down = nn.Sequential(*shortcut) if stride != 1 or before != after else None

        def forward(self, x: Any) -> Any:
            y = f.relu(self.b1(self.c1(x)))
            y = self.b3(self.c3(f.relu(self.b2(self.c2(y)))))
            return f.relu(y + (x if self.down is None else self.down(x)))

    return Bottleneck


def _resnet(t: Any, width: int, depths: tuple[int, ...], classes: int) -> Any:
    nn, block = t.nn, _bottleneck(t)
    layers = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    before = width
    for i, depth in enumerate(depths):
        for j in range(depth):
            layers.append(block(before, width << i, 2 if i and not j else 1))
            before = 4 * width << i
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))


@model
def resnet50_training(t: Any, compiled: bool, small: bool) -> Built:
    """ResNet-50, channels last, SGD with momentum."""
    width, depths, size, batch = (8, (1, 1), 32, 2) if small else (64, (3, 4, 6, 3), 224, 64)
    network = _resnet(t, width, depths, 1000).to("cuda", memory_format=t.channels_last)
    optimizer = t.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    x = t.randn(batch, 3, size, size, device="cuda").to(memory_format=t.channels_last)
    step = _step(t, network, optimizer, x, t.randint(0, 1000, (batch,), device="cuda"))
    return t.compile(step) if compiled else step, batch


def _llama(t: Any, layers: int, width: int, heads: int, groups: int, inner: int, words: int, room: int) -> Any:
    """A decoder with rotary positions, grouped queries and a gated network, which keeps its keys and values."""
    nn, f = t.nn, t.nn.functional
    size = width // heads
    angles = t.arange(room)[:, None] / 10000.0 ** (t.arange(0, size, 2) / size)

    def turned(x: Any, place: Any, cos: Any, sin: Any) -> Any:
        a, b = x.chunk(2, -1)
        c, s = cos[place], sin[place]
        return t.cat([a * c - b * s, b * c + a * s], -1)

    class Layer(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm_1, self.norm_2 = nn.RMSNorm(width), nn.RMSNorm(width)
            self.qkv = nn.Linear(width, (heads + 2 * groups) * size, bias=False)
            self.out = nn.Linear(heads * size, width, bias=False)
            self.gate_up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
            for name in ("keys", "values"):
                self.register_buffer(name, t.zeros(1, groups, room, size))

        def forward(self, x: Any, place: Any, seen: Any, cos: Any, sin: Any) -> Any:
            parts = self.qkv(self.norm_1(x)).view(1, 1, -1, size).transpose(1, 2)
            q, k, v = parts.split([heads, groups, groups], 1)
            self.keys.index_copy_(2, place, turned(k, place, cos, sin))
            self.values.index_copy_(2, place, v)
            q = turned(q, place, cos, sin)
            y = f.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=seen, enable_gqa=True)
            x = x + self.out(y.transpose(1, 2).reshape(1, 1, -1))
            gate, up = self.gate_up(self.norm_2(x)).chunk(2, -1)
            return x + self.down(f.silu(gate) * up)

    class Llama(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.token, self.norm = nn.Embedding(words, width), nn.RMSNorm(width)
            self.layers = nn.ModuleList([Layer() for _ in range(layers)])
            self.head = nn.Linear(width, words, bias=False)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())
            self.register_buffer("places", t.arange(room))

        def forward(self, word: Any, place: Any) -> Any:
            x, seen = self.token(word), (self.places <= place).view(1, 1, 1, room)
            for layer in self.layers:
                x = layer(x, place, seen, self.cos, self.sin)
            return self.head(self.norm(x))[:, -1].argmax(-1, keepdim=True)

    return Llama()


@model
def llama1b_decode(t: Any, compiled: bool, small: bool) -> Built:
    """A word of a decoder with the sizes of Llama 3.2 1B, bfloat16, with room for 1,024 words."""
    sizes = (2, 64, 4, 2, 128, 100, 32) if small else (16, 2048, 32, 8, 8192, 128256, 1024)
    network = _llama(t, *sizes).to("cuda").to(t.bfloat16).eval().requires_grad_(False)
    run = t.compile(network, mode="reduce-overhead") if compiled else network
    word, place = t.zeros(1, 1, dtype=t.int64, device="cuda"), t.tensor([17], device="cuda")

    def decode() -> Any:
        with t.no_grad():
            return run(word, place)

    return decode, 1

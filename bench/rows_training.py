"""Rows of training steps: zero the gradients, forward, backward, the optimizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from registry import Call, row


def _step(model: Callable[..., Any], optimizer: Any, loss: Callable[[], Any]) -> Call:
    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    model.train()
    return step


@row("train/adamw_100_parameters", 3.0)
def adamw(t: Any) -> Call:
    params = [t.nn.Parameter(t.randn(32, 32)) for _ in range(100)]
    optimizer = t.optim.AdamW(params, lr=1e-3)
    for p in params:
        p.grad = t.randn(32, 32)
    return optimizer.step


@row("train/mlp_784_512_512_10", 1.0)
def mlp(t: Any) -> Call:
    nn = t.nn
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = t.optim.SGD(model.parameters(), lr=0.01)
    x, y = t.randn(64, 784), t.randint(0, 10, (64,))

    return _step(model, optimizer, lambda: nn.functional.cross_entropy(model(x), y))


def _block(t: Any, width: int, heads: int) -> Any:
    """A block of a GPT: causal attention and a perceptron, each behind a norm, each added to what came in."""
    nn = t.nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            b, n, _ = x.shape
            q, k, v = (
                part.view(b, n, heads, width // heads).transpose(1, 2)
                for part in self.qkv(self.ln_1(x)).split(width, 2)
            )
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(b, n, width))
            return x + self.mlp(self.ln_2(x))

    return Block()


@row("train/gpt_4_layers_256_wide_8x128", 1.0)
def gpt(t: Any) -> Call:
    nn, vocab, width, length = t.nn, 1024, 256, 128
    words, places = nn.Embedding(vocab, width), nn.Embedding(length, width)
    rest = nn.Sequential(
        *(_block(t, width, 4) for _ in range(4)), nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
    )
    model = nn.ModuleList([words, places, rest])
    optimizer = t.optim.AdamW(model.parameters(), lr=3e-4)
    x, y, at = t.randint(0, vocab, (8, length)), t.randint(0, vocab, (8 * length,)), t.arange(length)
    return _step(model, optimizer, lambda: nn.functional.cross_entropy(rest(words(x) + places(at)).view(-1, vocab), y))


@row("train/cnn_4_convolutions_64x3x32x32", 1.0)
def cnn(t: Any) -> Call:
    nn = t.nn

    def stage(before: int, after: int, *more: Any) -> list[Any]:
        return [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(), *more]

    layers = [
        *stage(3, 32),
        *stage(32, 64, nn.MaxPool2d(2)),
        *stage(64, 128, nn.MaxPool2d(2)),
        *stage(128, 128, nn.AdaptiveAvgPool2d(1)),
    ]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10))
    optimizer = t.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    x, y = t.randn(64, 3, 32, 32), t.randint(0, 10, (64,))
    return _step(model, optimizer, lambda: nn.functional.cross_entropy(model(x), y))

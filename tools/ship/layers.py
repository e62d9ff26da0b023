"""Training steps of the commonest layers, losses and optimizers, and the commonest calls on tensors, in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.nn import functional as F

B, C, T, D = 4, 8, 12, 32


def trained(layer: Any, *inputs: Any) -> None:
    """Forward and backward, with gradients of the inputs as well and without."""
    for wanted in (True, False):
        given = [
            x.clone().requires_grad_(wanted) if torch.is_tensor(x) and x.is_floating_point() else x for x in inputs
        ]
        found = layer(*given)
        found = found[0] if isinstance(found, tuple) else found
        if found.requires_grad:
            found.sum().backward()
            found = layer(*given)
            found = found[0] if isinstance(found, tuple) else found
            (found * found.detach()).mean().backward()


def layers() -> None:
    rows, words = torch.randn(B, T, D), torch.randint(0, 50, (B, T))
    image, sound = torch.randn(B, C, 16, 16), torch.randn(B, C, 32)
    for layer in (
        nn.Linear(D, 48), nn.Linear(D, 48, bias=False), nn.LayerNorm(D), nn.RMSNorm(D), nn.Dropout(0.1), nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Tanh(),
        nn.GELU(approximate="tanh"), nn.Sigmoid(), nn.Softmax(dim=-1), nn.LogSoftmax(dim=-1), nn.LeakyReLU(0.1), nn.ELU(), nn.Softplus(),
        nn.Hardswish(), nn.ReLU6(), nn.Identity(), nn.Flatten(), nn.Bilinear(D, D, 8),
    ):  # fmt: skip
        trained(layer, *([rows, rows] if isinstance(layer, nn.Bilinear) else [rows]))
        if not isinstance(layer, nn.Bilinear):
            trained(layer, torch.randn(B, D))
    trained(nn.Embedding(50, D), words)
    for layer in (
        nn.Conv2d(C, 16, 3, padding=1), nn.Conv2d(C, 16, 3, padding=1, bias=False), nn.Conv2d(C, 16, 1), nn.Conv2d(C, 16, 3, stride=2, padding=1),
        nn.Conv2d(C, C, 3, padding=1, groups=C), nn.Conv2d(C, 16, 7, stride=2, padding=3, bias=False), nn.ConvTranspose2d(C, 8, 2, stride=2),
        nn.BatchNorm2d(C), nn.BatchNorm2d(C).eval(), nn.GroupNorm(2, C), nn.InstanceNorm2d(C), nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(1), nn.Upsample(scale_factor=2), nn.Dropout2d(0.1), nn.ReLU(), nn.ReLU(inplace=True), nn.Flatten(), nn.PixelShuffle(2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
    ):  # fmt: skip
        trained(layer if not getattr(layer, "inplace", False) else lambda x, layer=layer: layer(x * 1), image)
    for layer in (nn.Conv1d(C, 16, 3, padding=1), nn.BatchNorm1d(C), nn.MaxPool1d(2), nn.AvgPool1d(2)):
        trained(layer, sound)
    trained(nn.BatchNorm1d(D), torch.randn(B, D))
    trained(nn.Conv2d(3, 64, 3, padding=1), torch.randn(B, 3, 32, 32))
    trained(nn.Conv2d(64, 64, 3, padding=1), torch.randn(B, 64, 32, 32))
    for layer in (nn.LSTM(D, D, batch_first=True), nn.GRU(D, D, batch_first=True), nn.RNN(D, D, batch_first=True)):
        trained(layer, rows)


def attention() -> None:
    rows = torch.randn(B, T, D)
    causal = nn.Transformer.generate_square_subsequent_mask(T)
    q, mask = torch.randn(B, 4, T, 8), torch.ones(T, T, dtype=torch.bool).tril()
    trained(lambda x: F.scaled_dot_product_attention(x, x, x), q)
    trained(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), q)
    trained(lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=mask), q)

    def by_hand(x: Any) -> Any:
        scores = (x @ x.transpose(-2, -1)) / 8**0.5
        return (scores.masked_fill(~mask, float("-inf")).softmax(-1) @ x).transpose(1, 2).reshape(B, T, D)

    trained(by_hand, q)
    many = nn.MultiheadAttention(D, 4, batch_first=True)
    trained(lambda x: many(x, x, x)[0], rows)
    trained(lambda x: many(x, x, x, need_weights=False)[0], rows)
    trained(lambda x: many(x, x, x, attn_mask=causal, need_weights=False)[0], rows)
    for first in (False, True):
        trained(nn.TransformerEncoderLayer(D, 4, 64, batch_first=True, norm_first=first), rows)
        decoder = nn.TransformerDecoderLayer(D, 4, 64, batch_first=True, norm_first=first)
        trained(decoder, rows, rows)


def losses() -> None:
    scores, target, where = torch.randn(B * T, 10), torch.randn(B * T, 10), torch.randint(0, 10, (B * T,))
    trained(lambda x: F.cross_entropy(x, where), scores)
    trained(lambda x: F.cross_entropy(x, where, label_smoothing=0.1), scores)
    trained(lambda x: F.cross_entropy(x, where, ignore_index=0), scores)
    trained(lambda x: F.nll_loss(F.log_softmax(x, -1), where), scores)
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
        trained(lambda x, loss=loss: loss(x, target), scores)
    trained(lambda x: F.binary_cross_entropy_with_logits(x, target.sigmoid()), scores)
    trained(lambda x: F.binary_cross_entropy(x.sigmoid(), target.sigmoid()), scores)
    trained(lambda x: F.kl_div(F.log_softmax(x, -1), target.softmax(-1), reduction="batchmean"), scores)
    trained(lambda x: F.cosine_similarity(x, target), scores)


def optimizers() -> None:
    o = torch.optim
    for make in (
        lambda p: o.SGD(p, 0.1), lambda p: o.SGD(p, 0.1, momentum=0.9), lambda p: o.SGD(p, 0.1, momentum=0.9, weight_decay=1e-4),
        lambda p: o.Adam(p, 1e-3), lambda p: o.AdamW(p, 1e-3), lambda p: o.RMSprop(p, 1e-3), lambda p: o.Adagrad(p, 1e-3),
    ):  # fmt: skip
        net = nn.Sequential(nn.Linear(D, D), nn.ReLU(), nn.Linear(D, 4))
        optimizer = make(net.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            net(torch.randn(B, D)).square().mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()


def calls() -> None:
    x, y = torch.randn(B, T, D), torch.randn(B, T, D)
    row, wide, column = torch.randn(D), torch.randn(B, 1, D), torch.randn(B, T, 1)
    two: list[Callable[..., Any]] = [
        lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a / b, torch.maximum, torch.minimum,
    ]  # fmt: skip
    for call in two:
        for other in (y, row, wide, column, 2.0):
            trained(lambda a, b, call=call: call(a, b if torch.is_tensor(b) else torch.tensor(b)), x, other)
            trained(lambda a, call=call: call(a, 2.0) if call in two[:4] else a, x)
    for name in (
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "abs",
        "neg",
        "sin",
        "cos",
        "tanh",
        "sigmoid",
        "relu",
        "square",
        "reciprocal",
        "erf",
        "log1p",
    ):
        trained(lambda a, name=name: getattr(a, name)(), x.abs() + 0.1)
    for call in (
        lambda a: a.sum(), lambda a: a.mean(), lambda a: a.sum(-1), lambda a: a.mean(-1), lambda a: a.mean(-1, keepdim=True), lambda a: a.sum(0),
        lambda a: a.mean((0, 1)), lambda a: a.var(-1), lambda a: a.std(-1), lambda a: a.max(-1)[0], lambda a: a.amax(-1), lambda a: a.norm(),
        lambda a: a.cumsum(-1), lambda a: a.logsumexp(-1), lambda a: a.max(), lambda a: a.min(), lambda a: a.prod(-1), lambda a: a.pow(2),
        lambda a: a.pow(3), lambda a: a**0.5, lambda a: a.clamp(0.1, 1), lambda a: a.clamp(min=0.1), lambda a: a.transpose(1, 2).contiguous(),
        lambda a: a.transpose(0, 1).reshape(T, -1), lambda a: torch.cat([a, a], -1), lambda a: torch.cat([a, a], 0), lambda a: torch.stack([a, a]),
        lambda a: a[:, -1], lambda a: a[:, 1:], lambda a: a[..., ::2], lambda a: a.chunk(2, -1)[0] * a.chunk(2, -1)[1], lambda a: a @ a.transpose(1, 2),
        lambda a: torch.where(a > 0.5, a, 0.0), lambda a: a.masked_fill(a > 0.5, 0.0), lambda a: torch.einsum("btd,bsd->bts", a, a), lambda a: 1 - a,
        lambda a: a.expand(2, B, T, D).sum(0), lambda a: a.repeat(2, 1, 1), lambda a: F.pad(a, (1, 1)), lambda a: a.flip(-1), lambda a: a.tril(),
        lambda a: F.normalize(a, dim=-1), lambda a: a.roll(1, 0), lambda a: a.softmax(1), lambda a: a.float().double().float(), lambda a: a.sort(-1)[0],
        lambda a: a.topk(3, -1)[0], lambda a: a.gather(-1, torch.zeros(B, T, 2, dtype=torch.int64)), lambda a: a.index_select(1, torch.arange(3)),
        lambda a: a.unfold(1, 4, 2).sum(), lambda a: (a.view(B * T, D) @ a.view(B * T, D).T),
    ):  # fmt: skip
        trained(call, x.abs() + 0.1)
    numbers, flags = torch.arange(B * T).reshape(B, T), x > 0
    for call in (
        lambda: x.argmax(-1), lambda: x.argmin(-1), lambda: x.argsort(-1), lambda: x > 0, lambda: x == y, lambda: x != y, lambda: x <= y, lambda: ~flags,
        lambda: flags & (y > 0), lambda: flags | (y > 0), lambda: flags.any(), lambda: flags.all(), lambda: flags.sum(), lambda: numbers + 1,
        lambda: numbers * 2, lambda: numbers % 3, lambda: numbers // 3, lambda: numbers == 3, lambda: numbers < 3, lambda: numbers.float(),
        lambda: flags.float(), lambda: numbers.sum(), lambda: (numbers == numbers.flip(0)).float().mean(), lambda: x[numbers[0] % B],
        lambda: torch.zeros(B, T), lambda: torch.ones(B, T), lambda: torch.full((B, T), 2.0), lambda: torch.eye(T), lambda: torch.linspace(0, 1, T),
        lambda: torch.rand(B, T), lambda: torch.randperm(T), lambda: torch.multinomial(torch.rand(B, T), 2), lambda: torch.bernoulli(torch.rand(B, T)),
        lambda: F.one_hot(numbers % 5, 5), lambda: numbers.clamp(0, 5), lambda: x.isnan().any(), lambda: x.allclose(y), lambda: torch.equal(x, y),
        lambda: x.clone().add_(1), lambda: x.clone().mul_(2), lambda: x.clone().zero_(), lambda: x.clone().copy_(y), lambda: x.clone().fill_(1),
        lambda: x.clone().normal_(), lambda: x.clone().uniform_(), lambda: x.double() + 1, lambda: x.tolist(), lambda: str(x), lambda: x.numpy().sum(),
        lambda: nn.init.kaiming_normal_(torch.empty(8, 8)), lambda: nn.init.trunc_normal_(torch.empty(8, 8)), lambda: nn.init.orthogonal_(torch.empty(8, 8)),
    ):  # fmt: skip
        call()


torch.manual_seed(0)
for part in (layers, attention, losses, optimizers, calls):
    part()

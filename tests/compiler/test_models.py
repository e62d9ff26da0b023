"""Models of common kinds, compiled by rushlight's own backend and by one that runs fx graphs: outputs, gradients and buffers are eager's."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn


class Residual(nn.Module):
    """Convolutions with batch normalization around a shortcut, activations in place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norms, self.relu = nn.ModuleList([nn.BatchNorm2d(width) for _ in range(2)]), nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        y = self.relu(self.norms[0](self.first(x)))
        return self.relu(self.norms[1](self.second(y)) + x)


class Language(nn.Module):
    """A causal transformer whose embedding is its head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(20, 16), nn.Parameter(torch.randn(8, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu")
        self.blocks = nn.ModuleList([copy.deepcopy(layer) for _ in range(2)])
        self.head = nn.Linear(16, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Any, targets: Any = None) -> Any:
        length = tokens.shape[1]
        mask = torch.triu(torch.full((length, length), float("-inf")), 1)
        x = self.embed(tokens) + self.place[:length]
        for block in self.blocks:
            x = block(x, src_mask=mask)
        logits = self.head(x)
        return logits, None if targets is None else nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Recurrent(nn.Module):
    """The last step of an LSTM, and its state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(4, 8, 2, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        y, (h, _) = self.lstm(x)
        return self.out(y[:, -1]) + h[-1, :, :2]


class Variational(nn.Module):
    """Random numbers in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 4), nn.Linear(2, 8)

    def forward(self, x: Any) -> Any:
        mean, log = self.encode(x).chunk(2, 1)
        return self.decode(mean + torch.randn_like(mean) * (log / 2).exp()), (mean**2 + log.exp() - log).sum()


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "residual": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), Residual(4), nn.AdaptiveAvgPool2d(1), nn.Flatten()), (torch.randn(2, 3, 8, 8),)),
    "language": lambda: (Language(), (torch.randint(0, 20, (2, 8)), torch.randint(0, 20, (2, 8)))),
    "recurrent": lambda: (Recurrent(), (torch.randn(2, 5, 4),)),
    "variational": lambda: (Variational(), (torch.randn(3, 8),)),
    "parametrized": lambda: (nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)), (torch.randn(2, 3),)),
    "normed": lambda: (nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU(), nn.PReLU(), nn.Softmax(1)), (torch.randn(2, 4, 3),)),
}  # fmt: skip


def tensors(value: Any) -> list[Any]:
    return (
        [leaf for each in value for leaf in tensors(each)]
        if isinstance(value, tuple)
        else []
        if value is None
        else [value]
    )


@pytest.mark.parametrize("backend", ["inductor", "eager"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_models_are_compiled_whole(name: str, training: bool, backend: str) -> None:
    torch.manual_seed(0)
    plain, arguments = MODELS[name]()
    plain.train(training)
    copied = copy.deepcopy(plain)
    compiled = torch.compile(copied, backend=backend, fullgraph=True)
    for step in range(2):
        found = []
        for model in (compiled, plain):
            torch.manual_seed(step)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                outputs = tensors(model(*arguments))
            sum(output.sum() for output in outputs).backward()
            found.append(outputs)
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(*found, strict=True))
    for (label, mine), theirs in zip(copied.named_parameters(), plain.parameters(), strict=True):
        assert (mine.grad is None and theirs.grad is None) or torch.equal(mine.grad, theirs.grad), label
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(copied.buffers(), plain.buffers(), strict=True))

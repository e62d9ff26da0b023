"""Writes the archives of `tests/jit/archives` with PyTorch: each holds its inputs and results as a further record.

python tools/tables/torchscript_archives.py tests/jit/archives
"""

import enum
import json
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.steps = 3

    def forward(self, x, h: Tensor | None = None):
        if h is None:
            h = torch.zeros_like(x)
        for _i in range(self.steps):
            h = torch.tanh(self.lin(x) + h)
            if bool(h.sum() > 0):
                h = h * 2
            else:
                h = h - 1
        assert h.dim() == 2, "bad"
        return h, f"{self.steps} steps"


class Control(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = Cell()

    def forward(self, x, ys: list[int], d: dict[str, int]):
        h, s = self.cell(x)
        r = [y + 1 for y in ys]
        while len(r) < 9:
            r.append(d["a"])
            if len(r) == 7:
                break
        for i, y in enumerate(ys):
            if i == 1:
                continue
            h = h + y / (i + 1)
        return h, s, r


class Early(nn.Module):
    def forward(self, x, n: int):
        for i in range(n):
            if bool(x.sum() > 20):
                return x, i
            x = x * 2
        return -x, n


class Sequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(8, 2)

    def forward(self, x):
        out, (h, c) = self.lstm(x)
        out, g = self.gru(out)
        return out, h, c, g


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Pair(NamedTuple):
    first: Tensor
    second: int


@torch.jit.script
class Counter:
    def __init__(self, start: int):
        self.value = start

    def add(self, n: int) -> int:
        self.value += n
        return self.value


class Kinds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.names = ["a", "b"]
        self.table = {"k": 1.5}
        self.pair = (1, torch.ones(2))
        self.color = Color.GREEN
        self.register_buffer("seen", torch.zeros(1))

    @torch.jit.export
    def named(self, x: Tensor, n: int) -> Pair:
        return Pair(x * n, n)

    def forward(self, x):
        counter = Counter(3)
        counter.add(2)
        self.seen += 1
        color = self.color
        if color == Color.GREEN:
            x = x * counter.value
        p = self.named(x, 2)
        return p.first + self.pair[1] * self.table["k"], p.second, "-".join(self.names), self.seen


class Indexing(nn.Module):
    def forward(self, x, at):
        y = x.clone()
        y[0, 1:] = 7.0
        y[:, ::2] += 1
        y[at] = 0.5
        return y, x[..., -1], x[at, 1], x[None, 1], x[:, 1:3].sum(dim=1), x.max(dim=1)[1]


class Convolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


def _plain(value):
    if isinstance(value, Tensor):
        return {"tensor": value.tolist(), "dtype": str(value.dtype)}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    return value


def _write(folder: Path, name: str, module, *inputs) -> None:
    results = module(*[i.clone() if isinstance(i, Tensor) else i for i in inputs])
    text = json.dumps({"inputs": _plain(inputs), "results": _plain(results), "code": module.code})
    again = torch.jit.load(str(_saved(folder, name, module, {})))
    results = again(*[i.clone() if isinstance(i, Tensor) else i for i in inputs])
    text = json.dumps({"inputs": _plain(inputs), "results": _plain(results), "code": module.code})
    _saved(folder, name, module, {"expected.json": text})


def _saved(folder: Path, name: str, module, extra) -> Path:
    path = folder / f"{name}.pt"
    torch.jit.save(module, str(path), _extra_files=extra)
    return path


def main(folder: Path) -> None:
    """Write every archive."""
    torch.manual_seed(0)
    x = torch.randn(2, 4)
    _write(folder, "control", torch.jit.script(Control()), x, [1, 2, 3], {"a": 7})
    _write(folder, "early", torch.jit.script(Early()), x.abs() + 1, 5)
    _write(folder, "sequence", torch.jit.script(Sequence().eval()), torch.randn(2, 5, 3))
    kinds = torch.jit.script(Kinds())
    _write(folder, "kinds", kinds, torch.ones(2))
    _write(folder, "indexing", torch.jit.script(Indexing()), torch.arange(12.0).reshape(3, 4), torch.tensor([1, 2]))
    image = torch.randn(2, 1, 8, 8)
    net = Convolution().eval()
    _write(folder, "convolution", torch.jit.script(net), image)
    _write(folder, "traced", torch.jit.trace(net, image), image)
    _write(folder, "frozen", torch.jit.freeze(torch.jit.script(net)), image)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

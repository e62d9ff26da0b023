"""Calls that a type checker must refuse: each line marked `# E` and no other."""

from __future__ import annotations

import rushlight as torch
from rushlight import Tensor, nn
from rushlight.nn import functional as F


def functions(x: Tensor) -> None:
    torch.add(x)  # E
    torch.add(x, "1")  # E
    torch.exp(x, 2)  # E
    torch.exp(x, out=3)  # E
    torch.zeros("2")  # E
    torch.zeros(2, dtype="float32")  # E
    torch.cat(x, dim="rows")  # E
    torch.softmax(x, axis_of_rows=1)  # E
    torch.no_such_function(x)  # E
    torch.max(x, 0).value  # E
    torch.sort(x, out=x)  # E


def methods(x: Tensor) -> None:
    x.add()  # E
    x.no_such_method()  # E
    x.relu(out=x)  # E
    x.view("1")  # E
    x.to(1.5)  # E
    x.size("rows")  # E
    x["rows"]  # E
    x + "1"  # E
    x @ 2  # E
    x.requires_grad = "yes"  # E
    x.shape = (1,)  # E


def results(x: Tensor) -> None:
    number: int = x.sum()  # E
    values: Tensor = x.max(0)  # E
    text: str = x.dtype  # E
    print(number, values, text)


def pages(x: Tensor) -> None:
    F.relu(x, in_place=True)  # E
    F.cross_entropy(x)  # E
    F.no_such_loss(x)  # E
    torch.linalg.norm("x")  # E
    nn.Linear(2)  # E
    nn.NoSuchLayer()  # E
    torch.optim.SGD()  # E
    torch.set_num_threads("2")  # E

"""Graphs written above autograd, and counts of operations, beside those that PyTorch 2.13 gave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight.fx.experimental.proxy_tensor import make_fx
from rushlight.utils.flop_counter import FlopCounterMode

F, nn = torch.nn.functional, torch.nn
ones = torch.ones

PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (
        lambda x, w, b: F.relu(F.linear(x, w, b)).reshape(-1).sum(), (ones(2, 3), ones(4, 3), ones(4)),
        "linear.default relu.default reshape.default sum.default",
    ),
    (
        lambda x, w: F.max_pool2d(F.conv2d(x, w, padding=1), 2).flatten(1), (ones(1, 2, 4, 4), ones(3, 2, 3, 3)),
        "conv2d.default max_pool2d.default flatten.using_ints",
    ),
    (
        lambda x, w, b: F.dropout(F.layer_norm(x, (4,), w, b), 0.5)[0] + 1, (ones(2, 4), ones(4), ones(4)),
        "layer_norm.default dropout.default select.int add.Tensor",
    ),
    (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v).transpose(1, 2).contiguous(), (ones(1, 2, 3, 4),) * 3,
        "scaled_dot_product_attention.default transpose.int contiguous.default",
    ),
    (
        lambda x, y: (x @ y).to(torch.float64).chunk(2, 1)[0].softmax(-1), (ones(2, 3), ones(3, 4)),
        "matmul.default to.dtype chunk.default getitem getitem softmax.int",
    ),
    (lambda x, y: F.cross_entropy(x, y), (ones(3, 5), torch.tensor([0, 2, 1])), "cross_entropy_loss.default"),
    (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (ones(2, 3, 4), ones(3), ones(3)), "batch_norm.default"),
    (lambda i, w: F.embedding(i, w) + torch.embedding(w, i), (torch.tensor([1, 0]), ones(3, 2)), "embedding.default embedding.default add.Tensor"),
]  # fmt: skip


@pytest.mark.parametrize("mode", ["real", "fake"])
@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_operators_above_autograd_are_those_that_are_called(number: int, mode: str) -> None:
    f, args, wanted = PROGRAMS[number]
    graph = make_fx(f, tracing_mode=mode, pre_dispatch=True)(*args)
    nodes = [n for n in graph.graph.nodes if n.op == "call_function"]
    names = [n.name.split("_")[0] if "getitem" in n.name else str(n.target).removeprefix("aten.") for n in nodes]
    assert names == wanted.split()
    torch.manual_seed(0)
    found = graph(*args)
    torch.manual_seed(0)
    assert torch.equal(found, f(*args))


# (model, input, operations forward and backward by operator)
MODELS: list[tuple[Callable[[], Any], tuple[int, ...], dict[str, int]]] = [
    (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), (3, 8),
        {"addmm": 1152, "mm": 1536},
    ),
    (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, groups=2)), (2, 3, 8, 8),
        {"convolution": 65664, "convolution_backward": 86400},
    ),
    (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2), (1, 3, 5, 5), {"convolution": 5400, "convolution_backward": 5400}),
    (lambda: nn.Conv1d(3, 4, 3, dilation=2), (2, 3, 9), {"convolution": 720, "convolution_backward": 720}),
    (lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4), {"convolution": 2592, "convolution_backward": 2592}),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MODELS)))
def test_counts_of_operations_are_pytorchs(number: int) -> None:
    make, shape, wanted = MODELS[number]
    model = make()
    with FlopCounterMode(display=False) as mode:
        model(ones(*shape)).sum().backward()
    assert {str(k).removeprefix("aten."): v for k, v in mode.get_flop_counts()["Global"].items()} == wanted

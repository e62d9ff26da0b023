"""Modules of `torch.nn` export to aten operators, and compute what they compute: a sweep."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import rushlight as torch

nn = torch.nn
X, IMAGE, ROWS = (2, 4, 6), (2, 4, 8, 8), (2, 5, 4)

PLAIN = "ReLU ReLU6 SELU SiLU Mish Hardswish Hardsigmoid CELU LeakyReLU Hardtanh ELU GELU Sigmoid Tanh Softplus Softsign Softshrink Tanhshrink GLU PReLU".split()
EACH: list[tuple[Any, tuple[int, ...]]] = [(lambda name=name: getattr(nn, name)(), X) for name in PLAIN]
EACH += [
    (lambda: nn.Softmax(1), X), (lambda: nn.Threshold(0.1, 2.0), X), (lambda: nn.Conv1d(4, 2, 3), X), (lambda: nn.Conv2d(4, 2, 3, padding="same"), IMAGE),
    (lambda: nn.ConvTranspose2d(4, 2, 3), IMAGE), (lambda: nn.MaxPool2d(2), IMAGE), (lambda: nn.AvgPool2d(2), IMAGE), (lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
    (lambda: nn.BatchNorm2d(4), IMAGE), (lambda: nn.InstanceNorm2d(4, affine=True), IMAGE), (lambda: nn.GroupNorm(2, 4), IMAGE), (lambda: nn.LayerNorm(6), X),
    (lambda: nn.ReflectionPad2d(1), IMAGE), (lambda: nn.CircularPad2d(1), IMAGE), (lambda: nn.PixelShuffle(2), IMAGE),
    (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE), (lambda: nn.Unfold(2), IMAGE), (lambda: nn.LSTM(4, 3, bidirectional=True), ROWS),
    (lambda: nn.GRU(4, 3), ROWS), (lambda: nn.Dropout(), X), (lambda: nn.Identity(), X),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(EACH)))
def test_a_module_exports(number: int) -> None:
    make, shape = EACH[number]
    module, x = make().eval(), torch.rand(shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, (x,))
        decomposed = program.run_decompositions()
    leaves = torch.utils._pytree.tree_leaves
    wanted = leaves(module(x))
    assert all(torch.equal(a, b) for a, b in zip(leaves(program.module()(x)), wanted, strict=True))
    for a, b in zip(leaves(decomposed.module()(x)), wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_what_is_no_operator_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="lp_pool_core has no counterpart"):
        torch.export.export(nn.LPPool2d(2, 2), (torch.rand(IMAGE),))

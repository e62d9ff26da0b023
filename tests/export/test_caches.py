"""Modules that keep tensors of their calls in plain attributes, as timm's LeViT keeps its attention biases in a dict."""

from __future__ import annotations

import warnings

import pytest

import rushlight as torch
from rushlight import nn


class Biased(nn.Module):
    def __init__(self):
        super().__init__()
        self.biases = nn.Parameter(torch.arange(6.0).reshape(2, 3))
        self.register_buffer("places", torch.tensor([[0, 1], [2, 0]]), persistent=False)
        self.cache, self.listed, self.last, self.count = {}, [{"kept": torch.zeros(1)}], None, {"calls": 0}

    def forward(self, x):
        self.count["calls"] += 1
        self.last = x * 2
        self.listed[0]["more"] = x * 3
        self.listed.append(x * 4)
        if "bias" not in self.cache:
            self.cache["bias"] = self.biases[:, self.places]
        return x + self.cache["bias"]


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Biased()

    def forward(self, x):
        return self.inner(x) * 2


def _exported(module, x, strict=False):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = torch.export.export(module, (x,), strict=strict)
    return program, [str(each.message) for each in caught]


@pytest.mark.parametrize("strict", [False, True])
def test_a_trace_leaves_nothing_in_a_module(strict):
    """Fake tensors stayed in the dict: later calls gave fake results, and a second export failed."""
    module, x = Outer().eval(), torch.ones(2, 2, 2)
    inner = module.inner
    cache, listed, kept = inner.cache, inner.listed, inner.listed[0]["kept"]
    names = []
    for _ in range(2):
        program, said = _exported(module, x, strict)
        names.append([node.name for node in program.graph.nodes])
        assert inner.cache is cache and cache == {} and inner.listed is listed and len(listed) == 1
        assert listed[0] == {"kept": kept} and inner.last is None and inner.count == {"calls": 0}
        (text,) = said
        assert text.startswith(
            "The tensor attributes self.inner.last, self.inner.cache['bias'], self.inner.listed[1], self.inner.listed[0]['more'] were assigned "
            "during export."
        ), text
    assert names[0] == names[1] and "index" in names[0]
    assert torch.equal(program.module()(x), module(x)) and type(module(x)) is torch.Tensor


def test_a_tensor_that_was_kept_before_is_a_constant_without_gradient():
    module, x = Outer().eval(), torch.ones(2, 2, 2)
    wanted = module(x)
    module.inner.last = None
    program, said = _exported(module, x)
    assert [name for name in program.constants if "lifted" in name] == ["inner.lifted_tensor_0"]
    assert any(
        "A model attribute `inner.lifted_tensor_0` requires gradient but it's not properly registered" in s
        for s in said
    )
    assert not program.constants["inner.lifted_tensor_0"].requires_grad
    found = program.module()(x)
    assert torch.equal(found, wanted) and not found.requires_grad


def test_a_trace_that_fails_leaves_nothing_either():
    class Failing(Biased):
        def forward(self, x):
            super().forward(x)
            raise ValueError("no further")

    module = Failing().eval()
    with pytest.raises(ValueError, match="no further"), warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.export.export(module, (torch.ones(2, 2, 2),))
    assert module.cache == {} and len(module.listed) == 1

"""`MultiheadAttention` and the Transformer against stored results of PyTorch."""

from __future__ import annotations

import json
import math
import pathlib
from functools import partial
from typing import Any

import pytest
from tests.nn import stored
from tests.nn.attention_cases import ATTENTION, TRANSFORMERS, run_attention, run_transformer

import rushlight as torch
from rushlight import nn

EXPECTED = json.loads(pathlib.Path(__file__).with_name("attention.json").read_text())


same = partial(stored.same, rel=2e-4, abs=1e-4)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    same(run_attention(torch, name), EXPECTED[name])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformer(name: str, training: bool) -> None:
    same(run_transformer(torch, name, training), EXPECTED[f"{name} {training}"])


def test_attention_without_a_batch() -> None:
    layer = nn.MultiheadAttention(4, 2)
    x = torch.randn(5, 4)
    out, weights = layer(x, x, x)
    batched, _ = layer(*(x.unsqueeze(1),) * 3)
    assert out.shape == (5, 4) and weights.shape == (5, 5)
    assert torch.allclose(out, batched.squeeze(1))


def test_a_hint_stands_for_the_causal_mask() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0)
    x = torch.randn(6, 2, 4)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    assert mask[0].tolist() == [0] + [-float("inf")] * 5
    assert torch.allclose(layer(x, mask), layer(x, mask, is_causal=True), atol=1e-6)
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        layer(x, is_causal=True)


def test_errors() -> None:
    x = torch.ones(2, 3, 4)
    layer = nn.MultiheadAttention(4, 2)
    for bad in (
        lambda: nn.MultiheadAttention(5, 2),
        lambda: layer(x[0], x, x),
        lambda: layer(x, x, x[:1]),
        lambda: layer(x, x, x, key_padding_mask=torch.zeros(3, dtype=torch.bool)),
        lambda: layer(x, x, x, attn_mask=torch.zeros(2, 2, dtype=torch.int64)),
        lambda: layer(torch.ones(2, 3, 6), x, x),
    ):
        with pytest.raises(AssertionError):
            bad()
    with pytest.raises(RuntimeError, match="shape of the 2D attn_mask"):
        layer(x, x, x, attn_mask=torch.zeros(3, 2))
    with pytest.raises(ValueError, match="must be greater than 0"):
        nn.MultiheadAttention(0, 1)
    with pytest.raises(RuntimeError, match="activation should be relu/gelu, not silu"):
        nn.TransformerEncoderLayer(4, 2, activation="silu")
    with pytest.warns(UserWarning, match="enable_nested_tensor is True, but"):
        nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2), 1)
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask is deprecated"):
        layer(x, x, x, key_padding_mask=torch.zeros(3, 2, dtype=torch.bool), attn_mask=torch.zeros(2, 2))
    with pytest.warns(UserWarning):
        model = nn.Transformer(4, 2, 1, 1, 8)
    for source, target in ((x, torch.ones(2, 2, 4)), (x, torch.ones(2, 3, 6))):
        with pytest.raises(RuntimeError, match="must be equal"):
            model(source, target)


def test_a_causal_hint_without_a_mask_where_pytorch_computes_natively() -> None:
    """There the hint says nothing: no keys are left out."""
    torch.manual_seed(0)
    layer, x = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(2, 3, 8)
    with torch.no_grad():
        assert torch.equal(layer(x, x, x, is_causal=True)[0], layer(x, x, x)[0])
        for change in (layer.train, lambda: setattr(layer.eval(), "batch_first", False)):
            change()
            with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
                layer(x, x, x, is_causal=True)


@pytest.mark.parametrize("added", [False, True])
def test_a_query_without_keys_is_zero_under_dropout(added: bool) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 8, requires_grad=True) for _ in range(3))
    mask = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]]) > 0
    if added:
        mask = torch.zeros(4, 4).masked_fill(~mask, -math.inf)
    out = nn.functional.scaled_dot_product_attention(q, k, v, mask, 0.5)
    assert torch.equal(out[:, 1], torch.zeros(2, 8)) and out[:, 2].any()
    out.pow(2).sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v)) and not q.grad[:, 1].any()


@pytest.mark.parametrize("added", [False, True])
def test_a_mask_and_is_causal_are_both_heeded(added: bool) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, 4, 8, requires_grad=True), torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    mask = torch.randn(4, 6) if added else torch.rand(4, 6) > 0.3
    attention = nn.functional.scaled_dot_product_attention
    low = torch.ones(4, 6, dtype=torch.bool).tril()
    both = mask.masked_fill(~low, -math.inf) if added else mask & low
    out, want = attention(q, k, v, mask, is_causal=True), attention(q, k, v, both)
    assert torch.equal(out, want)
    grads = [torch.autograd.grad(x.square().sum(), q)[0] for x in (out, want)]
    assert torch.equal(*grads) and grads[0].any()


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize(("keys", "values", "mask", "options", "text"), [
    (torch.ones(2, 4, 8), torch.ones(2, 4, 8), torch.zeros(4, 4), {"is_causal": True}, "attn_mask should not be set when is_causal=True"),
    (torch.ones(2, 4, 8), torch.ones(2, 4, 8), torch.zeros(4, 4, dtype=torch.int32), {}, "bool or float or to match query dtype, but got attn_mask.dtype: int"),
    (torch.ones(2, 4, 8), torch.ones(8), None, {}, "at least 2 dimensional"),
    (torch.ones(2, 4, 8).half(), torch.ones(2, 4, 8), None, {}, "the same dtype, but got query.dtype: float key.dtype: c10::Half"),
    (torch.ones(2, 4, 5), torch.ones(2, 4, 8), None, {}, "Expected size for first two dimensions"),
    (torch.ones(3, 4, 8), torch.ones(3, 4, 8), None, {"enable_gqa": True}, "must divide the number of heads"),
])  # fmt: skip
def test_operands_that_do_not_belong_together(
    keys: Any, values: Any, mask: Any, options: Any, text: str, dropout: float
) -> None:
    with pytest.raises(RuntimeError, match=text):
        nn.functional.scaled_dot_product_attention(torch.ones(2, 4, 8), keys, values, mask, dropout, **options)

"""Operators that PyTorch's own functions are made of, beside the functions."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight.library.aten.internal import ROWS
from rushlight.library.aten.schemas import forms_of

aten, F = torch.ops.aten, torch.nn.functional


def some(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_every_row_has_a_schema() -> None:
    assert [name for name in ROWS if not forms_of(name)] == []


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("mode", ["same", "valid"])
def test_convolutions_with_a_word_for_the_padding(dims: int, mode: str) -> None:
    x, weight, bias = some(1, 2, *[6] * dims), some(3, 2, *[3] * dims), some(3)
    found = aten._convolution_mode(x, weight, bias, [1] * dims, mode, [1] * dims, 1)
    assert torch.equal(found, (F.conv1d, F.conv2d, F.conv3d)[dims - 1](x, weight, bias, padding=mode))


def test_weight_norm_gives_the_weight_and_the_norms() -> None:
    v, g = some(3, 4), some(3, 1)
    weight, norms = aten._weight_norm_interface(v, g, 0)
    wanted = (v * v).sum(1, keepdim=True).sqrt()
    assert torch.allclose(norms, wanted) and torch.allclose(weight, v * g / wanted)


def test_packed_sequences() -> None:
    x, lengths = some(2, 3, 4), torch.tensor([3, 2])
    data, sizes = aten._pack_padded_sequence(x, lengths, True)
    assert sizes.tolist() == [2, 2, 1] and torch.equal(data, torch.cat([x[:, 0], x[:, 1], x[:1, 2]]))
    again, found = aten._pad_packed_sequence(data, sizes, True, 0.5, 4)
    assert found.tolist() == [3, 2] and again.shape == (2, 4, 4) and bool((again[1, 2:] == 0.5).all())
    assert torch.equal(again[0, :3], x[0])


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_a_whole_encoder_layer(norm_first: bool, masked: bool) -> None:
    layer = torch.nn.TransformerEncoderLayer(
        4, 2, 8, batch_first=True, norm_first=norm_first, activation="gelu", dtype=torch.float64
    ).eval()
    x, p = some(2, 3, 4), [q.detach() for q in layer.parameters()]
    keys = torch.tensor([[False, False, True], [False, False, False]]) if masked else None
    found = aten._transformer_encoder_layer_fwd(
        x, 4, 2, *p[:4], True, norm_first, 1e-5, *p[8:], *p[4:8], keys, 1 if masked else None
    )
    with torch.enable_grad():  # the layer's own composite
        assert torch.allclose(found, layer(x, src_key_padding_mask=keys))


def test_attention_and_its_weights() -> None:
    q, k, v = some(1, 2, 3, 4), some(1, 2, 3, 5)[..., :4], some(1, 2, 3, 4)
    for causal in (False, True):
        made, weights = aten._scaled_dot_product_attention_math(q, k, v, None, 0.0, causal)
        assert torch.allclose(made, F.scaled_dot_product_attention(q, k, v, is_causal=causal))
        assert torch.allclose(weights.sum(-1), torch.ones(1, 2, 3, dtype=torch.float64))


def test_normalisation_that_keeps_its_statistics() -> None:
    x, mean, var = some(3, 2, 4), torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64)
    made = aten._native_batch_norm_legit(x, None, None, mean, var, True, 0.1, 1e-5)
    assert torch.allclose(made[0], F.batch_norm(x, None, None, training=True))
    assert torch.allclose(mean, 0.1 * x.mean((0, 2))) and torch.allclose(made[1], x.mean((0, 2)))
    plain = aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5)
    assert (
        torch.equal(plain[0], made[0])
        and aten._batch_norm_impl_index(x, None, None, None, None, True, 0.1, 1e-5, False)[4] == 0
    )


def test_small_ones() -> None:
    x = some(2, 3)
    assert torch.equal(aten._stack([x, x], 1), torch.stack([x, x], 1))
    assert torch.equal(aten._add_relu(x, x), (2 * x).relu()) and aten._dim_arange(x, 1).tolist() == [0, 1, 2]
    assert [t.item() for t in aten._aminmax(x)] == [x.min().item(), x.max().item()]
    assert torch.equal(aten._pad_enum(x[None], [1, 1], 1, None), F.pad(x[None], [1, 1], "replicate"))
    flat = aten.flatten_dense_tensors([x, x[0]])
    assert [t.shape for t in aten.unflatten_dense_tensors(flat, [x, x[0]])] == [(2, 3), (3,)]
    assert [t.tolist() for t in aten.nonzero_numpy(torch.tensor([[1, 0], [0, 2]]))] == [[0, 1], [0, 1]]
    assert torch.equal(aten.numpy_T(x), x.T) and not aten.is_vulkan_available()


def test_a_graph_that_holds_one_runs() -> None:
    graph = torch._C.parse_ir("""
graph(%x : Tensor, %w : Tensor):
  %1 : NoneType = prim::Constant()
  %2 : int = prim::Constant[value=1]()
  %3 : int[] = prim::ListConstruct(%2, %2)
  %4 : str = prim::Constant[value="same"]()
  %5 : Tensor = aten::_convolution_mode(%x, %w, %1, %3, %4, %3, %2)
  return (%5)""")
    x, w = some(1, 2, 6, 6), some(3, 2, 3, 3).requires_grad_()
    made = torch._C._create_function_from_graph("run", graph)(x, w)
    assert torch.equal(made, F.conv2d(x, w, padding="same"))
    (found,) = torch.autograd.grad(made.sum(), w)
    assert torch.equal(found, torch.autograd.grad(F.conv2d(x, w, padding="same").sum(), w)[0])

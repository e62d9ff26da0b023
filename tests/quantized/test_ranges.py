"""Arguments out of range: refused as PyTorch refuses them, in eager and compiled calls alike."""

import numpy as np
import pytest

import rushlight as torch

ONES = torch.ones(3)
quantized = torch.ops.quantized


def _integers(*values):
    return torch.tensor(values, dtype=torch.int32)


def _weight(*shape, dtype=torch.qint8):
    return torch.quantize_per_tensor(torch.linspace(-1, 1, int(np.prod(shape))).reshape(shape), 0.1, 0, dtype)


@pytest.mark.parametrize("outside", [300, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_zero_points_of_channels(outside, dtype):
    x, zero = torch.randn(3, 4).to(dtype), _integers(0, outside, 0)
    calls = [
        lambda: torch.fake_quantize_per_channel_affine(x, ONES, zero, 0, 0, 255),
        lambda: torch.compile(torch.fake_quantize_per_channel_affine)(x, ONES, zero, 0, 0, 255),
        lambda: torch.fake_quantize_per_channel_affine(x.clone().requires_grad_(), ONES, zero, 0, 0, 255),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match="`zero_point` must be between `quant_min` and `quant_max`"):
            call()


def test_zero_points_at_the_ends_and_fractions():
    x = torch.tensor([[-4.0, 0.2, 7.6], [300.0, 1.0, -1.0]])
    made = torch.fake_quantize_per_channel_affine(x, torch.ones(2), _integers(0, 255), 0, 0, 255)
    steps = np.clip(np.round(x.numpy()) + np.array([[0], [255]]), 0, 255) - np.array([[0], [255]])
    assert (made.numpy() == steps).all()
    fractions = torch.tensor([0.5, 300.0])
    assert torch.fake_quantize_per_channel_affine(x, torch.ones(2), fractions, 0, 0, 255).shape == x.shape
    with pytest.raises(RuntimeError, match="found Double"):
        torch.fake_quantize_per_channel_affine(x, torch.ones(2), torch.zeros(2, dtype=torch.float64), 0, 0, 255)


def test_dynamic_layers_refuse_numbers_that_are_none():
    packed, x = quantized.linear_prepack(_weight(5, 4), None), torch.ones(2, 4)
    assert quantized.linear_dynamic(x, packed).shape == (2, 5)
    x[1, 2] = float("nan")
    for call in (
        lambda: quantized.linear_dynamic(x, packed),
        lambda: torch.compile(quantized.linear_dynamic)(x, packed),
        lambda: torch.quantize_per_tensor_dynamic(x, torch.quint8, False),
    ):
        with pytest.raises(RuntimeError, match="min should be less than or equal to max"):
            call()


def test_scales_along_another_dim_are_no_channels():
    """A square weight would fit either way."""
    weight = torch.quantize_per_channel(
        torch.ones(4, 4), torch.arange(1.0, 5) / 10, torch.zeros(4, dtype=torch.int64), 1, torch.qint8
    )
    with pytest.raises(RuntimeError, match="along dim 0, not along dim 1"):
        quantized.linear_prepack(weight, None)


def test_geometry_and_biases_are_looked_at_when_weights_are_packed():
    kernel, rest = _weight(4, 3, 3, 3), {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1]}
    for name, value in (("stride", [0, 0]), ("padding", [-1, -1]), ("dilation", [0, 1])):
        with pytest.raises(RuntimeError, match=f"{name} should be"):
            quantized.conv2d_prepack(kernel, None, *{**rest, name: value}.values(), 1)
    with pytest.raises(RuntimeError, match="bias should have N elements: 4"):
        quantized.conv2d_prepack(kernel, torch.ones(3), *rest.values(), 1)
    with pytest.raises(RuntimeError, match="bias should have N elements: 5"):
        quantized.linear_prepack(_weight(5, 4), torch.ones(4))
    with pytest.raises(RuntimeError, match="2-dimensional"):
        quantized.linear_prepack(_weight(4), None)


def test_bags_lie_within_their_indices():
    rows = torch.quantize_per_channel(torch.rand(5, 8), torch.full((5,), 0.1), torch.zeros(5), 0, torch.quint8)
    packed, indices = quantized.embedding_bag_prepack(rows), torch.tensor([0, 1, 2])
    for offsets in ([0, 5], [1, 2], [0, 2, 1]):
        with pytest.raises(RuntimeError, match="offsets must begin at 0"):
            quantized.embedding_bag_byte(packed, indices, torch.tensor(offsets))
    made = quantized.embedding_bag_byte(packed, indices, torch.tensor([0, 2]))
    wide = rows.dequantize().numpy()
    np.testing.assert_allclose(made.numpy(), [wide[0] + wide[1], wide[2]], rtol=1e-6)


def test_zero_points_of_results_and_mixed_dtypes():
    x, signed = _weight(3, 4, dtype=torch.quint8), _weight(3, 4)
    for call in (
        lambda z: quantized.cat([x, x], 0, 0.1, z),
        lambda z: quantized.softmax(x, 1, 0.1, z),
        lambda z: quantized.matmul(x, x.t(), 0.1, z),
    ):
        for zero, side in ((300, "above upper"), (-1, "below lower")):
            with pytest.raises(RuntimeError, match=f"zero_point {zero} is {side} bound"):
                call(zero)
    for call in (lambda: torch.cat([x, signed]), lambda: quantized.cat([x, signed], 0, 0.1, 0)):
        with pytest.raises(RuntimeError, match="All dtypes must be the same"):
            call()


def test_what_is_made_of_another_keeps_how_it_is_quantized():
    layer = torch.nn.BatchNorm2d(3)
    layer.qconfig = torch.ao.quantization.default_qconfig
    synced = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(layer))
    assert synced[0].qconfig is layer.qconfig
    assert torch.empty_like(_weight(3), dtype=torch.qint8).dtype is torch.qint8
    for other in (torch.quint8, torch.float32):
        with pytest.raises(RuntimeError, match="has its dtype"):
            torch.empty_like(_weight(3), dtype=other)

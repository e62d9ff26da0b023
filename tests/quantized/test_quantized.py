"""Quantized tensors: the integers, what they stand for, printing, views, and fake quantization with its gradient; values are PyTorch's."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.backends import pages

X = [[-1.0, 0.0, 0.25], [1.0, 2.0, 100.0]]


def quantized(zero_point: int = 10, dtype: torch.dtype = torch.quint8):
    return torch.quantize_per_tensor(torch.tensor(X), 0.1, zero_point, dtype)


def by_channel():
    return torch.quantize_per_channel(torch.tensor(X), torch.tensor([0.1, 0.5]), torch.tensor([1, 2]), 0, torch.quint8)


def test_integers_and_numbers() -> None:
    q = quantized()
    assert (
        q.int_repr().tolist() == [[0, 10, 12], [20, 30, 255]]
        and q.int_repr().dtype is torch.uint8
        and q.is_quantized
        and q.dtype is torch.quint8
    )
    assert (q.q_scale(), q.q_zero_point(), q.qscheme(), q.type(), q.element_size()) == (
        0.1,
        10,
        torch.per_tensor_affine,
        "torch.quantized.QUInt8Tensor",
        1,
    )
    np.testing.assert_allclose(q.dequantize().numpy(), [[-1.0, 0.0, 0.2], [1.0, 2.0, 24.5]], rtol=1e-6)
    assert quantized(3, torch.qint8).int_repr().tolist() == [[-7, 3, 6], [13, 23, 127]]
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30])
    assert torch.quantize_per_tensor(special, 0.1, 3, torch.qint8).int_repr().tolist() == [127, 127, -128, 127]
    ties = torch.tensor([0.5, 1.5, 2.5, -0.5])
    assert torch.quantize_per_tensor(ties, 1.0, 0, torch.qint32).int_repr().tolist() == [0, 2, 2, 0]
    assert quantized(0, torch.quint4x2).int_repr().tolist() == [0, 162, 255] and quantized(
        0, torch.quint2x4
    ).int_repr().tolist() == [224, 15]
    several = torch.quantize_per_tensor(
        [torch.ones(2), torch.ones(2)], torch.tensor([0.1, 0.5]), torch.tensor([0, 1]), torch.qint8
    )
    assert [s.int_repr().tolist() for s in several] == [[10, 10], [3, 3]] and [
        d.tolist() for d in torch.dequantize([several[1]])
    ] == [[1.0, 1.0]]


def test_scales_by_channel() -> None:
    q = by_channel()
    assert (
        q.int_repr().tolist() == [[0, 1, 4], [4, 6, 202]]
        and q.qscheme() is torch.per_channel_affine
        and q.q_per_channel_axis() == 0
    )
    assert q.q_per_channel_scales().dtype is torch.float64 and q.q_per_channel_zero_points().tolist() == [1, 2]
    assert q[0].q_zero_point() == 1 and q.clone().dequantize().equal(q.dequantize())
    floats = torch.quantize_per_channel(
        torch.tensor(X), torch.tensor([0.1, 0.5]), torch.tensor([1.5, 2.0]), 0, torch.quint8
    )
    assert floats.qscheme() is torch.per_channel_affine_float_qparams and floats.int_repr().tolist() == [
        [0, 2, 4],
        [4, 6, 202],
    ]
    for call in (
        lambda: q.q_scale(),
        lambda: quantized().q_per_channel_scales(),
        lambda: q.t(),
        lambda: torch.cat([q, q]),
    ):
        with pytest.raises(RuntimeError):
            call()


def test_scales_that_fit() -> None:
    x = torch.tensor(X)
    q = torch.quantize_per_tensor_dynamic(x, torch.quint8, False)
    assert (q.q_scale(), q.q_zero_point()) == (0.396078431372549, 3)
    q = torch.quantize_per_tensor_dynamic(x, torch.qint8, True)
    assert (q.q_scale(), q.q_zero_point()) == (0.7952755905511811, -63)
    assert torch.quantize_per_tensor_dynamic(torch.zeros(3), torch.quint8, False).q_scale() == 0.1
    high, low = torch.choose_qparams_optimized(torch.linspace(-1, 3, 50), 50, 200, 0.16, 4)
    np.testing.assert_allclose([high.item(), low.item()], [2.86, -0.86], rtol=1e-5)


def test_printed_form() -> None:
    assert repr(quantized()) == (
        "tensor([[-1.0000,  0.0000,  0.2000],\n        [ 1.0000,  2.0000, 24.5000]], size=(2, 3), dtype=torch.quint8,\n"
        "       quantization_scheme=torch.per_tensor_affine, scale=0.1, zero_point=10)"
    )
    assert repr(by_channel()) == (
        "tensor([[ -0.1000,   0.0000,   0.3000],\n        [  1.0000,   2.0000, 100.0000]], size=(2, 3), dtype=torch.quint8,\n"
        "       quantization_scheme=torch.per_channel_affine,\n       scale=tensor([0.1000, 0.5000], dtype=torch.float64),\n"
        "       zero_point=tensor([1, 2]), axis=0)"
    )
    assert repr(torch.quantize_per_tensor(torch.zeros(0, 3), 0.5, 0, torch.qint32)) == (
        "tensor([], size=(0, 3), dtype=torch.qint32,\n       quantization_scheme=torch.per_tensor_affine, scale=0.5, zero_point=0)"
    )


def test_views_copies_and_comparisons() -> None:
    q = quantized()
    assert (
        q.t().int_repr().tolist() == [[0, 20], [10, 30], [12, 255]]
        and q.view(3, 2).shape == (3, 2)
        and q[0, 1].item() == 0.0
        and q.T.shape == (3, 2)
    )
    assert (
        q[torch.tensor([1, 0])].int_repr()[0].tolist() == [20, 30, 255]
        and [s.shape for s in q.split(1)] == [(1, 3)] * 2
        and not q.t().is_contiguous()
    )
    for made in (q.clone(), copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        assert torch.equal(made, q)
    joined = torch.cat([q, torch.quantize_per_tensor(torch.tensor(X), 0.2, 0, torch.quint8)])
    assert joined.int_repr().tolist()[2:] == [[10, 10, 12], [20, 30, 255]]
    assert (
        (q == q).all()
        and (q < 0.5).tolist() == [[True] * 3, [False] * 3]
        and torch.relu(q).int_repr()[0].tolist() == [10, 10, 12]
    )
    assert (
        q.max().int_repr().item() == 255
        and q.clamp(0.0, 1.0).int_repr()[1].tolist() == [20, 20, 20]
        and q.mean().int_repr().item() == 54
    )
    other = q.clone().copy_(torch.tensor(X) * 2)
    other[0] = 1.0
    assert other.int_repr().tolist() == [[20, 20, 20], [30, 50, 255]]
    assert torch.empty_quantized([2], q).q_scale() == 0.1


def test_what_quantized_tensors_refuse() -> None:
    q = quantized()
    for call in (
        lambda: q + q,
        lambda: -q,
        lambda: q.sum(),
        lambda: q @ q.t(),
        lambda: torch.ones(2).q_scale(),
        lambda: torch.ones(2).int_repr(),
    ):
        with pytest.raises(NotImplementedError, match="Could not run 'aten::"):
            call()
    with pytest.raises(TypeError, match="Got unsupported ScalarType QUInt8"):
        q.numpy()
    with pytest.raises(RuntimeError, match="zero_point 300 is above upper bound"):
        quantized(300)
    with pytest.raises(RuntimeError, match="Quantize only works on Float Tensor, got Double"):
        torch.quantize_per_tensor(torch.tensor(X).double(), 0.1, 0, torch.qint8)
    with pytest.raises(RuntimeError, match="ScalarType Char is not supported in new_qtensor"):
        quantized(0, torch.int8)


def test_fake_quantization_passes_gradients_inside() -> None:
    x = torch.tensor(X, requires_grad=True)
    y = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 15)
    y.sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), [[0.0, 0.0, 0.2], [1.0, 1.5, 1.5]], rtol=1e-6)
    assert (
        x.grad.tolist() == [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
        and y.grad_fn.name() == "FakeQuantizePerTensorAffineCachemaskBackward0"
    )
    x.grad = None
    y = torch.fake_quantize_per_channel_affine(
        x, torch.tensor([0.1, 0.2]), torch.tensor([0, 1], dtype=torch.int32), 0, 0, 15
    )
    y.sum().backward()
    np.testing.assert_allclose(y.detach().numpy(), [[0.0, 0.0, 0.2], [1.0, 2.0, 2.8]], rtol=1e-6)
    assert x.grad.tolist() == [[0.0, 1.0, 1.0], [1.0, 1.0, 0.0]]
    odd = torch.tensor([float("nan"), float("inf"), 0.05, 0.15, 0.25, -0.05])
    np.testing.assert_allclose(
        torch.fake_quantize_per_tensor_affine(odd, 0.1, 0, -8, 7).numpy(), [-0.8, 0.7, 0.0, 0.2, 0.2, 0.0], atol=1e-7
    )
    with pytest.raises(RuntimeError, match="`zero_point` must be between"):
        torch.fake_quantize_per_tensor_affine(x, 0.1, 300, 0, 255)
    with pytest.raises(RuntimeError, match="Zero-point must be Int32, Float or Half, found Long"):
        torch.fake_quantize_per_channel_affine(x, torch.ones(2), torch.zeros(2, dtype=torch.int64), 0, 0, 15)


@pytest.mark.parametrize(
    ("per_row", "symmetric", "scale", "zero_point", "low"),
    [(False, False, [0.4000392], [3], [-1.01]), (False, True, [0.795276], [128], [-1.01]), (True, False, [0.00495098, 0.396078], [204, 0], [-1.01, 1.01]),
     (True, True, [0.00789063, 0.396078], [128, 0], [-1.01, 1.01])],
)  # fmt: skip
def test_fused_observation(
    per_row: bool, symmetric: bool, scale: list[float], zero_point: list[int], low: list[float]
) -> None:
    n = 2 if per_row else 1
    least, most = torch.full((n,), float("inf")), torch.full((n,), -float("inf"))
    scales, zeros, on = torch.ones(n), torch.zeros(n, dtype=torch.int32), torch.tensor(1)
    for factor in (1.0, 2.0):
        torch.fused_moving_avg_obs_fake_quant(
            torch.tensor(X) * factor, on, on, least, most, scales, zeros, 0.01, 0, 255, 0, per_row, symmetric
        )
    np.testing.assert_allclose(scales.numpy(), scale, rtol=1e-5)
    np.testing.assert_allclose(least.numpy(), low, rtol=1e-5)
    assert zeros.tolist() == zero_point


def through(save, load, value):
    """What `load` reads of what `save` wrote."""
    stream = io.BytesIO()
    save(value, stream)
    stream.seek(0)
    return load(stream)


def test_files_hold_quantized_tensors() -> None:
    for q in (quantized().t(), by_channel(), quantized(0, torch.qint32)):
        found = through(torch.save, torch.load, {"w": q})["w"]
        assert torch.equal(found, q) and found.stride() == q.stride()


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_beside_pytorch() -> None:
    theirs = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32) * 3
    for name, zero_point in (("quint8", 100), ("qint8", -3), ("qint8", 4), ("qint32", 17)):
        mine, other = (
            m.quantize_per_tensor(m.from_numpy(x), 0.0371, zero_point, getattr(m, name)) for m in (torch, theirs)
        )
        np.testing.assert_array_equal(mine.int_repr().numpy(), other.int_repr().numpy())
        np.testing.assert_array_equal(mine.dequantize().numpy(), other.dequantize().numpy())
        assert (
            repr(mine) == repr(other)
            and repr(through(theirs.save, torch.load, other)) == repr(mine)
            and repr(through(torch.save, theirs.load, mine)) == repr(other)
        )
    scales, zeros = np.linspace(0.01, 0.2, 40, dtype=np.float32), np.arange(40)
    made = [
        m.quantize_per_channel(m.from_numpy(x), m.from_numpy(scales), m.from_numpy(zeros), 0, m.quint8)
        for m in (torch, theirs)
    ]
    np.testing.assert_array_equal(made[0].int_repr().numpy(), made[1].int_repr().numpy())
    np.testing.assert_array_equal(made[0].dequantize().numpy(), made[1].dequantize().numpy())


@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8, torch.qint32])
def test_channels_last_stays_channels_last(dtype):
    x = torch.randn(2, 8, 4, 5)
    last = x.contiguous(memory_format=torch.channels_last)
    wanted, found = (torch.quantize_per_tensor(v, 0.1, 3, dtype) for v in (x, last))
    assert found.stride() == last.stride() and torch.equal(found.int_repr(), wanted.int_repr())
    assert torch.quantize_per_tensor(x.transpose(1, 2), 0.1, 3, dtype).is_contiguous()  # as PyTorch has it
    axis = torch.quantize_per_channel(last, torch.full((8,), 0.1), torch.full((8,), 3), 1, dtype)
    assert axis.stride() == last.stride() and torch.equal(axis.int_repr(), wanted.int_repr())


def test_bytes_of_what_has_no_number():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30, -0.0, 0.05, 0.15])
    found = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8).int_repr()
    assert found.tolist() == [255, 255, 0, 255, 3, 4, 4]


@pytest.mark.parametrize("scale", [200.0, 300.0, 1e6, 1e30])
@pytest.mark.parametrize("dtype", [torch.quint8, torch.qint8], ids=str)
def test_scales_beyond_the_integers(scale: float, dtype: torch.dtype) -> None:
    """A scale is no element of the result: it need not fit into a byte."""
    x = np.array([0.0, 2.0, -1.0, 300.0, -1e6], np.float32)
    least, most = (0, 255) if dtype is torch.quint8 else (-128, 127)
    inverse = np.float32(1.0) / np.float32(scale)
    want = np.clip(np.round(x * np.float32(scale) * inverse + 10), least, most)
    q = torch.quantize_per_tensor(torch.from_numpy(x * np.float32(scale)), scale, 10, dtype)
    assert q.int_repr().tolist() == want.tolist()
    total = torch.ops.quantized.add(q, q, 2 * scale, 10)
    assert total.int_repr().tolist() == want.tolist()


def test_scales_that_fit_small_numbers() -> None:
    """No scale is chosen below 6.1e-5; of numbers without a range it is 0.1 (PyTorch's numbers)."""
    small = 6.0999998822808266e-05
    for numbers, scale, zero_point in (
        ([-1e-9, 3e-9], small, 64),
        ([-1e-9, 0.0], small, 255),
        ([-5e-3, 3e-3], small, 159),
        ([2e-39, 0.0], 0.1, 0),
        ([-1.0, 2.0], 3 / 255, 85),
    ):
        x = torch.tensor(numbers)
        q = torch.quantize_per_tensor_dynamic(x, torch.quint8, False)
        assert (q.q_scale(), q.q_zero_point()) == torch._choose_qparams_per_tensor(x) == (scale, zero_point)
    layer = torch.ao.nn.quantized.dynamic.Linear(2, 1, bias_=False)
    layer.set_weight_bias(torch.quantize_per_tensor(torch.tensor([[1.0, -1.0]]), 1 / 64, 0, torch.qint8), None)
    x = torch.tensor([[3e-5, -1e-9]])  # rounds to no step
    assert layer(x).item() == 0.0 and layer(x + 1e-4 * torch.tensor([[1.0, 0.0]])).item() == np.float32(2 * small)


def test_limits_of_quantized_dtypes() -> None:
    found = [
        (limits.min, limits.max, limits.bits) for limits in map(torch.iinfo, (torch.qint8, torch.quint8, torch.qint32))
    ]
    assert found == [(-128, 127, 8), (0, 255, 8), (-(2**31), 2**31 - 1, 32)]


def test_the_engine_may_change_after_flags_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_frozen", True)
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = "fbgemm"
    assert torch.backends.quantized.engine == "fbgemm"
    torch.backends.quantized.engine = before
    with pytest.raises(RuntimeError, match="not a valid value for quantized engine"):
        torch.backends.quantized.engine = "other"


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "layer, sizes, strides",
    [
        (lambda q: q.Conv1d(4, 6, 3), (9,), (42, 1, 6)),
        (lambda q: q.Conv2d(4, 6, 3), (9, 8), (252, 1, 36, 6)),
        (lambda q: q.Conv2d(4, 4, 3, groups=4), (9, 8), (168, 1, 24, 4)),
        (lambda q: q.Conv2d(4, 1, 3), (9, 8), (42, 1, 6, 1)),
        (lambda q: q.Conv3d(4, 6, 3), (5, 6, 7), (360, 1, 120, 30, 6)),
        (lambda q: q.ConvTranspose2d(4, 6, 3), (5, 6), (336, 1, 48, 6)),
        (lambda q: q.BatchNorm2d(4), (3, 5), (60, 1, 20, 4)),
        (lambda q: q.BatchNorm3d(4), (3, 5, 2), (120, 1, 40, 8, 4)),
    ],
)
def test_images_of_quantized_layers_are_channels_last(layer, sizes, strides, last):
    """PyTorch's strides, whatever the input's; views and copies of such images keep the numbers."""
    numbers = torch.rand(2, 4, *sizes)
    if last and len(sizes) > 1:
        numbers = numbers.contiguous(memory_format=(torch.channels_last, torch.channels_last_3d)[len(sizes) - 2])
    made = layer(torch.ao.nn.quantized)(torch.quantize_per_tensor(numbers, 0.01, 3, torch.quint8))
    assert made.stride() == strides
    flat = torch.flatten(made, 1)
    assert np.array_equal(flat.int_repr().numpy(), made.int_repr().numpy().reshape(2, -1))


def test_operators_that_move_or_fill_quantized_numbers():
    numbers = torch.randn(2, 4, 3, 5)
    made = torch.quantize_per_tensor(numbers, 0.05, 100, torch.quint8)
    ints = made.int_repr().numpy()
    moved = {
        "tile": (made.tile(2), np.tile(ints, 2)),
        "channel_shuffle": (torch.channel_shuffle(made, 2), ints[:, [0, 2, 1, 3]]),
        "pixel_unshuffle": (torch.nn.functional.pixel_unshuffle(made, 1), ints),
        "as_strided": (made.as_strided((2, 2), (1, 2)), ints.reshape(-1)[[[0, 2], [1, 3]]]),
        "full_like": (torch.full_like(made, 1.0), np.full_like(ints, 120)),
        "ones_like": (torch.ones_like(made), np.full_like(ints, 120)),
    }
    for name, (found, wanted) in moved.items():
        assert found.is_quantized and found.q_scale() == 0.05 and np.array_equal(found.int_repr(), wanted), name
    shown = made.data
    assert shown.data_ptr() == made.data_ptr() and not shown.requires_grad
    made.masked_fill_(numbers > 0, 0.5)
    assert np.array_equal(made.int_repr(), np.where(numbers.numpy() > 0, 110, ints))


def assigned(change: Any) -> None:
    """The integers after a change are those of the changed numbers."""
    numbers = torch.linspace(-1, 1, 20).reshape(5, 4)
    scales, zeros = torch.tensor([0.1, 0.2, 0.1, 0.3, 0.2]), torch.tensor([1, 2, 3, 4, 5])
    for made in (
        torch.quantize_per_tensor(numbers, 0.1, 100, torch.quint8),
        torch.quantize_per_channel(numbers, scales, zeros, 0, torch.qint8),
    ):
        wanted = made.dequantize()
        change(wanted)
        change(made)
        if made.qscheme() is torch.per_tensor_affine:
            again = torch.quantize_per_tensor(wanted, 0.1, 100, torch.quint8)
        else:
            again = torch.quantize_per_channel(wanted, scales, zeros, 0, torch.qint8)
        assert made.int_repr().tolist() == again.int_repr().tolist()


def test_assigning_to_places_that_an_index_picks() -> None:
    """What such an index gives is no view: writing to it changed nothing."""
    places = torch.tensor([0, 2])
    for index, value in (
        (0, 0.5), ((0, 1), 0.5), ((0, 1), torch.tensor([0.5])), (slice(1, 3), torch.ones(2, 4)), (places, 0.5), ([1, 4], 0.25),
        (places, torch.full((2, 4), 0.75)), (torch.eye(5, 4) > 0, 0.0), ((places, places), torch.tensor([0.1, 0.2])),
    ):  # fmt: skip
        assigned(lambda x, index=index, value=value: x.__setitem__(index, value))
    assigned(lambda x: x.index_put_((torch.tensor([0, 3]),), torch.tensor([0.3])))
    made = quantized()
    with pytest.raises(RuntimeError, match="should not be quantized"):
        made[torch.tensor([0])] = made[:1]
    with pytest.raises(RuntimeError, match="accumulate=False"):
        made.index_put_((torch.tensor([0]),), torch.tensor([0.3]), accumulate=True)
    assert made.index_put((torch.tensor([0]),), torch.tensor([1.0])).int_repr().tolist()[0] == [20, 20, 20]
    assert made.int_repr().tolist() == quantized().int_repr().tolist()


def test_quantized_tensors_of_integers_and_empty_ones() -> None:
    ints = torch.tensor([[1, 2]], dtype=torch.int8)
    one = torch._make_per_tensor_quantized_tensor(ints, 0.5, 3)
    assert (one.dtype, one.q_scale(), one.q_zero_point(), one.dequantize().tolist()) == (
        torch.qint8,
        0.5,
        3,
        [[-1.0, -0.5]],
    )
    each = torch._make_per_channel_quantized_tensor(ints, torch.tensor([0.5, 1.0]), torch.tensor([3, 0]), 1)
    assert each.q_per_channel_axis() == 1 and each.dequantize().tolist() == [[-1.0, 2.0]]
    with pytest.raises(RuntimeError, match="requires quantized dtype"):
        torch._make_per_tensor_quantized_tensor(torch.ones(2), 0.5, 3)
    shape = (2, 2, 3, 3)
    empty = torch._empty_affine_quantized(
        shape, scale=0.5, zero_point=3, dtype=torch.qint8, memory_format=torch.channels_last
    )
    assert empty.stride() == (18, 1, 6, 2) and empty.fill_(1.0).int_repr().unique().tolist() == [5]
    parts = torch._empty_per_channel_affine_quantized(
        [2, 3], scales=torch.tensor([0.5, 0.2]), zero_points=torch.tensor([3, 4]), axis=0, dtype=torch.quint8
    )
    assert parts.fill_(1.0).int_repr().tolist() == [[5] * 3, [9] * 3]
    assert parts.unsqueeze(0).q_per_channel_axis() == 1 and parts.unsqueeze(-1).q_per_channel_axis() == 0
    row = torch.quantize_per_tensor(torch.rand(shape), 0.1, 3, torch.quint8)
    assert row.to(memory_format=torch.channels_last).stride() == (18, 1, 6, 2)

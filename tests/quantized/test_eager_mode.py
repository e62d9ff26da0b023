"""Eager mode: calibration, training, dynamic layers, states; beside PyTorch bit for bit where it is installed."""

from __future__ import annotations

import copy
import io
import warnings

import numpy as np
import pytest
from tests.quantized import models

import rushlight as torch

q = torch.ao.quantization
pytestmark = pytest.mark.filterwarnings(
    "ignore:Please use quant_min:UserWarning", "ignore:.*deprecated:DeprecationWarning"
)


@pytest.mark.parametrize("trained", [False, True])
def test_integers_are_near_the_floats(trained: bool) -> None:
    _, made, before, after = models.converted(torch, trained)
    assert (before - after).abs().max() < 0.02
    assert type(made.c1).__name__ == "ConvReLU2d" and made.c1.weight().dtype is torch.qint8
    assert "scale" in made.c1.state_dict() and not hasattr(made, "qconfig")


def test_states_are_saved_and_loaded() -> None:
    _, made, _, after = models.converted(torch, False)
    file = io.BytesIO()
    torch.save(made.state_dict(), file)
    file.seek(0)
    other = q.prepare(_fused())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing was observed
        other = q.convert(other)
    other.load_state_dict(torch.load(file, weights_only=False))
    assert torch.equal(other(torch.from_numpy(models.X)), after)
    assert torch.equal(copy.deepcopy(made)(torch.from_numpy(models.X)), after)


def _fused() -> torch.nn.Module:
    model = q.fuse_modules(models.network(torch).eval(), models.FUSED)
    model.qconfig = q.get_default_qconfig("x86")
    return model


def test_dynamic_layers_are_near_the_floats() -> None:
    made, found = models.dynamic(torch)
    plain = models.filled(torch, torch.nn.ModuleDict({"l": torch.nn.Linear(6, 7)}), 1)
    assert "DynamicQuantizedLSTM(6, 5, num_layers=2, bidirectional=True)" in repr(made)
    layer = q.quantize_dynamic(plain)["l"]
    x = torch.from_numpy(models.SEQUENCES)
    assert (layer(x) - plain["l"](x)).abs().max() < 0.1
    assert found[1].shape == (5, 2, 10)


def test_what_is_not_here_says_so() -> None:
    with pytest.raises(NotImplementedError, match="quantize_jit"):
        q.quantize_jit(None, {}, None)
    with pytest.raises(NotImplementedError, match="non-observed LSTM"):
        torch.ao.nn.quantized.LSTM.from_float(torch.nn.LSTM(2, 2))


# ***** beside PyTorch *****


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("trained", [False, True])
def test_eager_mode_as_pytorch(trained: bool) -> None:
    theirs = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine, other = models.converted(torch, trained), models.converted(theirs, trained)
    assert np.array_equal(mine[2].numpy(), other[2].numpy()) or abs(mine[2].numpy() - other[2].numpy()).max() < 1e-5
    assert abs(mine[3].numpy() - other[3].numpy()).max() <= 1 / 256  # a step of the last sigmoid
    for a, b in zip(mine[:2], other[:2], strict=True):
        assert list(a.state_dict()) == list(b.state_dict())


@pytest.mark.oracle
def test_dynamic_layers_as_pytorch() -> None:
    theirs = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (mine, found), (other, expected) = models.dynamic(torch), models.dynamic(theirs)
    assert repr(mine) == repr(other) and set(mine.state_dict()) == set(other.state_dict())
    for a, b in zip(found, expected, strict=True):
        assert abs(a.numpy() - b.numpy()).max() < 1e-6


OBSERVERS = ("MinMaxObserver", "MovingAverageMinMaxObserver", "PerChannelMinMaxObserver", "HistogramObserver")


@pytest.mark.oracle
@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("dtype", ["quint8", "qint8", "uint16"])
@pytest.mark.parametrize("kind", ["affine", "symmetric"])
def test_observers_as_pytorch(name: str, dtype: str, kind: str) -> None:
    theirs = pytest.importorskip("torch")
    rng, found = np.random.default_rng(3), []
    inputs = [(rng.normal(size=(8, 50)) * (1 + k)).astype(np.float32) for k in range(4)]
    for T in (torch, theirs):
        scheme = getattr(T, f"per_{'channel' if 'Channel' in name else 'tensor'}_{kind}")
        observer = getattr(T.ao.quantization, name)(dtype=getattr(T, dtype), qscheme=scheme)
        for x in inputs:
            observer(T.from_numpy(x))
        found.append([v.numpy() for v in observer.calculate_qparams()])
    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(*found, strict=True))


def test_symmetric_words_are_around_their_middle() -> None:
    observer = torch.ao.quantization.MinMaxObserver(dtype=torch.uint16, qscheme=torch.per_tensor_symmetric)
    observer(torch.tensor([-1.0, 2.5, 3.0]))
    assert int(observer.calculate_qparams()[1]) == 2**15


def test_fake_numbers_in_float64_are_steps_of_a_float32_scale() -> None:
    x = torch.tensor([0.3, -1.27, 5.0], dtype=torch.float64)
    wanted = [float(np.float32(k) * np.float32(0.1)) for k in (3, -13, 50)]
    assert torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127).tolist() == wanted


CASES = {
    "add": (0.05, 120), "mul": (0.05, 120), "add_relu": (0.05, 20), "mul_relu": (0.05, 20), "add_scalar": (5.0,), "mul_scalar": (-2.0,),
    "hardswish": (0.02, 10), "leaky_relu": (0.2, False, 0.02, 30), "elu": (0.02, 50), "celu": (0.02, 50), "sigmoid": (1 / 256, 0),
    "softmax": (1, 1 / 256, 0), "relu6": (), "threshold": (0.1, 0.2),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # of real PyTorch, once in a process
@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES)
def test_operators_as_pytorch(name: str) -> None:
    theirs = pytest.importorskip("torch")
    x, found = np.random.default_rng(4).normal(size=(5, 16)).astype(np.float32), []
    for T in (torch, theirs):
        a = T.quantize_per_tensor(T.from_numpy(x), 0.03, 100, T.quint8)
        b = T.quantize_per_tensor(T.from_numpy(x[::-1].copy()), 0.02, 90, T.quint8)
        first = (a, b) if name in ("add", "mul", "add_relu", "mul_relu") else (a,)
        y = getattr(T.ops.quantized, name)(*first, *CASES[name])
        found.append((y.int_repr().numpy().astype(int), y.q_scale(), y.q_zero_point()))
    assert abs(found[0][0] - found[1][0]).max() <= 1 and found[0][1:] == found[1][1:]

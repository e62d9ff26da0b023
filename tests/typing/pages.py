"""Pages beside the tensors themselves: linear algebra, transforms, distributions, saving, settings."""

from __future__ import annotations

import io
from typing import assert_type

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import Tensor, nn, return_types
from rushlight.autograd import functional as AF
from rushlight.nn.utils.rnn import pad_sequence
from rushlight.optim.lr_scheduler import LambdaLR
from rushlight.utils.data import DataLoader, RandomSampler, Subset, TensorDataset


def linear_algebra(a: Tensor) -> None:
    assert_type(torch.linalg.svd(a), return_types.linalg_svd)
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    assert_type(u @ torch.diag(s) @ vh, Tensor)
    assert_type(torch.linalg.eigh(a).eigenvalues, Tensor)
    assert_type(torch.linalg.inv(a), Tensor)
    assert_type(torch.linalg.solve(a, a), Tensor)
    q, r = torch.linalg.qr(a)
    assert_type(q @ r, Tensor)
    assert_type(torch.linalg.matrix_norm(a, ord=2, dim=(-2, -1)), Tensor)


def transforms(x: Tensor) -> None:
    spectrum = torch.fft.rfft(x, n=8, norm="ortho")
    assert_type(spectrum, Tensor)
    assert_type(torch.fft.irfft(spectrum, dim=-1).abs(), Tensor)
    assert_type(torch.fft.fftshift(x), Tensor)
    assert_type(torch.special.logsumexp(x, 0), Tensor)
    assert_type(torch.signal.windows.hann(4, sym=False), Tensor)


def saving(model: nn.Module) -> None:
    buffer = io.BytesIO()
    torch.save({"model": model.state_dict(), "step": 3}, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=True)
    model.load_state_dict(loaded["model"], strict=True)


def settings() -> None:
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float32)
    assert_type(torch.get_default_dtype(), torch.dtype)
    assert_type(torch.cuda.is_available(), bool)
    assert_type(torch.get_num_threads(), int)
    assert_type(torch.finfo(torch.float32).eps, float)
    assert_type(torch.is_grad_enabled(), bool)
    assert_type(torch.__version__ >= "0.1", bool)
    with torch.no_grad(), torch.autograd.set_detect_anomaly(False):
        torch.set_printoptions(precision=4)


def learning(x: Tensor) -> None:
    layer = nn.LSTM(2, 3, batch_first=True)
    outputs, (hidden, cell) = layer(x)
    assert outputs.shape[-1] == hidden.shape[-1] == cell.shape[-1]
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3, weight_decay=0.1)
    schedule = LambdaLR(optimizer, lambda step: 0.9**step)
    optimizer.step()
    schedule.step()
    data = TensorDataset(torch.arange(4.0))
    for (batch,) in DataLoader(Subset(data, [0, 2]), sampler=RandomSampler([0, 1])):
        assert_type(F.mse_loss(batch, batch), Tensor)
    assert_type(pad_sequence([torch.ones(2), torch.ones(3)], batch_first=True).sum(), Tensor)
    AF.jacobian(lambda v: v * v, torch.ones(2))


if __name__ == "__main__":
    linear_algebra(torch.tensor([[2.0, 1.0], [1.0, 3.0]]))
    transforms(torch.arange(8.0))
    saving(nn.Linear(2, 2))
    settings()
    learning(torch.ones(1, 2, 2))

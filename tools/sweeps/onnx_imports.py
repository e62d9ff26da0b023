"""Modules exported by PyTorch, run by `rushlight.onnx.load` and by onnxruntime on the same inputs.

    python tools/sweeps/onnx_imports.py [--classic] [NAME ...]

Each row tells the largest difference from PyTorch's own result, as a part of its largest value; rows beyond 1e-5 and errors end the run with 1.
"""

from __future__ import annotations

import argparse
import io
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import rushlight

BOUND = 1e-5


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *xs: Any) -> Any:
        return self.function(*xs)


class Last(nn.Module):
    """A recurrent network's outputs and states, flat."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        y, state = self.inner(x)
        return (y, *state) if isinstance(state, tuple) else (y, state)


def image(*shape: int) -> Any:
    return torch.randn(*(shape or (2, 3, 10, 9)))


def _convolutions() -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    return {
        "conv1d": (nn.Conv1d(4, 6, 3, 2, 1, 2), (torch.randn(2, 4, 17),)),
        "conv2d groups": (nn.Conv2d(4, 6, 3, padding=(1, 2), groups=2), (image(2, 4, 9, 8),)),
        "conv3d": (nn.Conv3d(2, 3, 3, padding=1), (torch.randn(1, 2, 5, 6, 7),)),
        "conv same": (nn.Conv2d(3, 4, 4, padding="same", dilation=2), (image(),)),
        "conv reflect": (nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (image(),)),
        "conv transposed": (nn.ConvTranspose2d(3, 4, 3, 2, 1, 1, groups=1), (image(),)),
        "conv transposed 1d": (nn.ConvTranspose1d(3, 4, 5, 3, 2, 1), (torch.randn(2, 3, 8),)),
        "batch norm": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU6()), (image(),)),
        "group norm": (nn.GroupNorm(2, 6), (torch.randn(2, 6, 5),)),
        "instance norm": (nn.InstanceNorm2d(3, affine=True), (image(),)),
        "layer norm": (nn.LayerNorm([4, 5]), (torch.randn(3, 4, 5),)),
        "lrn": (nn.LocalResponseNorm(3), (image(),)),
        "max pool": (nn.MaxPool2d(3, 2, 1, ceil_mode=True), (image(),)),
        "max pool indices": (nn.MaxPool2d(2, return_indices=True), (image(),)),
        "average pool": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (image(),)),
        "average pool ceil": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), (image(),)),
        "adaptive pools": (nn.AdaptiveAvgPool2d((5, 3)), (image(2, 3, 10, 9),)),
        "pixel shuffle": (nn.PixelShuffle(2), (image(1, 8, 3, 4),)),
        "upsample nearest": (nn.Upsample(scale_factor=2), (image(),)),
        "upsample bilinear": (nn.Upsample(scale_factor=1.5, mode="bilinear"), (image(),)),
        "upsample aligned": (nn.Upsample(size=(7, 13), mode="bilinear", align_corners=True), (image(),)),
        "upsample bicubic": (nn.Upsample(scale_factor=2, mode="bicubic"), (image(),)),
        "grid sample": (Call(lambda x, g: F.grid_sample(x, g, align_corners=False)), (image(), torch.rand(2, 4, 5, 2) * 2 - 1)),
    }  # fmt: skip


def _sequences() -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    tokens = torch.randint(0, 20, (2, 7))
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return {
        "lstm": (Last(nn.LSTM(5, 6, 2, bidirectional=True)), (torch.randn(7, 2, 5),)),
        "lstm batch first": (Last(nn.LSTM(5, 6, batch_first=True)), (torch.randn(2, 7, 5),)),
        "gru": (Last(nn.GRU(5, 6, 2)), (torch.randn(7, 2, 5),)),
        "rnn": (Last(nn.RNN(5, 6, nonlinearity="relu", bidirectional=True)), (torch.randn(7, 2, 5),)),
        "embedding": (nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 3)), (tokens,)),
        "encoder": (nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(2, 7, 16),)),
        "decoder": (nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, 32, batch_first=True), 1), (torch.randn(2, 5, 16), torch.randn(2, 7, 16))),
        "attention causal": (Call(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)), (torch.randn(2, 3, 6, 8),) * 3),
        "attention masked": (Call(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m)), (*(torch.randn(2, 3, 6, 8),) * 3, torch.rand(6, 6) > 0.3)),
        "rms norm": (nn.RMSNorm(8), (torch.randn(3, 8),)),
    }  # fmt: skip


def _functions() -> dict[str, tuple[nn.Module, tuple[Any, ...]]]:
    x, y = torch.randn(3, 4, 5), torch.randn(4, 5)
    index = torch.tensor([[0, 2], [1, 3], [3, 0]])
    rows: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "arithmetic": (lambda a, b: (a + b * 2 - a / (b.abs() + 1)) ** 2 % 3, (x, y)),
        "integers": (lambda a, b: (a // b, a % b, a * b, -a, a & b, a << 1), (torch.arange(-6, 6), torch.tensor([4] * 12))),
        "activations": (lambda a: F.gelu(a) + F.silu(a) + F.elu(a) + F.softplus(a) + F.hardswish(a) + F.mish(a) + F.leaky_relu(a), (x,)),
        "clamps": (lambda a: a.clamp(-1, 1) + F.hardtanh(a) + F.relu6(a) + a.clamp(min=0.1), (x,)),
        "reductions": (lambda a: (a.sum(1), a.mean((0, 2)), a.amax(-1), a.prod(0), a.std(1), a.logsumexp(2), a.norm(dim=1)), (x,)),
        "comparisons": (lambda a, b: torch.where((a > b) | (a < -1), a, b), (x, y)),
        "softmaxes": (lambda a: (a.softmax(-1), a.log_softmax(1)), (x,)),
        "views": (lambda a: a.transpose(0, 2).reshape(5, -1)[1:4, ::2].unsqueeze(0).expand(2, -1, -1), (x,)),
        "joins": (lambda a, b: (torch.cat([a, a], 1), torch.stack([b, b], 1), *a.split(2, 1)), (x, y)),
        "gathers": (lambda a, i: (a[i], torch.gather(a, 1, i), a.index_select(0, i[0])), (torch.randn(4, 5), torch.tensor([[0, 2], [1, 3], [3, 0], [1, 1]]))),
        "scatters": (lambda a, i: (a.scatter(1, i, 2.0), a.scatter_add(1, i, a[:, :2])), (torch.randn(3, 5), index)),
        "top-k": (lambda a: a.topk(3, -1), (x,)),
        "sort": (lambda a: a.sort(-1, descending=True), (x,)),
        "cumulative": (lambda a: a.cumsum(1), (x,)),
        "einsum": (lambda a, b: torch.einsum("nij,ij->ni", a, b), (x, y)),
        "products": (lambda a, b: (a @ b.T, torch.bmm(a, a.transpose(1, 2)), torch.addmm(b[:, :4], b, b.T)), (x, y)),
        "pads": (lambda a: F.pad(a, (1, 2, 0, 1), value=3.0), (x,)),
        "pad modes": (lambda a: (F.pad(a, (1, 2), mode="reflect"), F.pad(a, (1, 2), mode="replicate"), F.pad(a, (1, 2), mode="circular")), (x,)),
        "triangles": (lambda a: (a.tril(), a.triu(1)), (x,)),
        "one-hot": (lambda i: F.one_hot(i, 5), (index,)),
        "dtypes": (lambda a: (a.to(torch.int32), a.to(torch.float64), (a > 0).to(torch.float32), a.half().float()), (x,)),
        "sizes": (lambda a: a.reshape(a.shape[0], -1) + torch.arange(a.shape[1] * a.shape[2]), (x,)),
        "rounding": (lambda a: (a.round(), a.floor(), a.ceil(), a.trunc(), a.sign(), a.frac()), (x * 3,)),
        "trigonometry": (lambda a: a.sin() + a.cos() + a.tanh() + a.atan() + torch.atan2(a, a + 1), (x,)),
        "argmax": (lambda a: (a.argmax(1), a.argmin(-1, keepdim=True)), (x,)),
        "masked fill": (lambda a: a.masked_fill(a > 0, -float("inf")).softmax(-1).nan_to_num(), (x,)),
        "rolls": (lambda a: (a.roll(1, 1), a.flip(2)), (x,)),
        "complex attention": (lambda q: (q @ q.transpose(-1, -2) / 2.0).softmax(-1) @ q, (torch.randn(2, 3, 4, 8),)),
        "losses": (lambda a, t: F.cross_entropy(a, t), (torch.randn(4, 5), torch.tensor([0, 4, 2, 1]))),
        "repeat": (lambda a: (a.repeat(2, 1, 1), a.repeat_interleave(2, 1)), (x,)),
    }  # fmt: skip
    return {name: (Call(function), inputs) for name, (function, inputs) in rows.items()}


def exported(module: nn.Module, inputs: tuple[Any, ...], classic: bool) -> bytes:
    file = io.BytesIO()
    if classic:
        torch.onnx.export(module, inputs, file, dynamo=False, opset_version=17)
    else:
        torch.onnx.export(module, inputs, dynamo=True, verbose=False).save(file)
    return file.getvalue()


def difference(wanted: Any, found: Any) -> float:
    """The largest difference as a part of the largest value; infinite where shapes or dtypes differ."""
    wanted, found = np.asarray(wanted), np.asarray(found)
    if wanted.shape != found.shape or wanted.dtype != found.dtype:
        return float("inf")
    if not np.array_equal(np.isnan(wanted), np.isnan(found)):
        return float("inf")
    gap = np.nan_to_num(np.abs(wanted.astype(np.float64) - found.astype(np.float64)), nan=0.0)
    return float(gap.max(initial=0) / max(np.nan_to_num(np.abs(wanted.astype(np.float64))).max(initial=0), 1e-30))


def row(name: str, module: nn.Module, inputs: tuple[Any, ...], classic: bool) -> str | None:
    """Print a row; what is wrong with it, or None."""
    import onnxruntime

    module.eval()
    with torch.no_grad():
        wanted = module(*inputs)
    wanted = [one.numpy() for one in (wanted if isinstance(wanted, (tuple, list)) else [wanted])]
    try:
        data = exported(module, inputs, classic)
    except Exception as error:
        print(f"{name:24}PyTorch does not export it: {type(error).__name__}")
        return None
    arrays = [x.numpy() for x in inputs]
    theirs = None
    try:
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        theirs = session.run(None, {one.name: array for one, array in zip(session.get_inputs(), arrays)})
    except Exception as error:
        print(f"{name:24}onnxruntime: {type(error).__name__}")
    given = [rushlight.from_numpy(array) for array in arrays]
    try:
        worst = 0.0
        for trainable in (True, False):
            with rushlight.no_grad():
                found = rushlight.onnx.load(data, trainable=trainable)(*given)
            found = [one.numpy() for one in (found if isinstance(found, tuple) else (found,))]
            gaps = [difference(a, b) for a, b in zip(wanted, found, strict=True)]
            worst = max(worst, *gaps)
    except Exception as error:
        print(f"{name:24}FAILS: {type(error).__name__}: {error}")
        return f"{name}: {error}"
    other = 0.0 if theirs is None else max(difference(a, b) for a, b in zip(wanted, theirs, strict=True))
    print(f"{name:24}{worst:10.1e}   onnxruntime {other:10.1e}", flush=True)
    return f"{name}: {worst}" if worst > max(BOUND, other) else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--classic", action="store_true", help="the exporter from TorchScript, operator set 17")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    cases = _convolutions() | _sequences() | _functions()
    wrong = [row(name, *cases[name], given.classic) for name in given.names or cases]
    wrong = [one for one in wrong if one]
    print("\n".join(wrong) or "all agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Layers with inputs for them. The same lines run with rushlight and with PyTorch; `expected.json` holds PyTorch's results.

`python tests/nn/cases.py` writes the stored results again (PyTorch must be installed).
"""

from __future__ import annotations

import json
import pathlib
from typing import Any


def _x(*shape: int) -> Any:
    return lambda t: (t.randn(*shape),)


def _two(*shape: int) -> Any:
    return lambda t: (t.randn(*shape), t.randn(*shape))


def _classes(t: Any) -> Any:
    return t.randn(4, 5), t.tensor([1, 0, 4, 2])


def _binary(t: Any) -> Any:
    return t.rand(4, 3), (t.rand(4, 3) > 0.5).float()


def _signs(t: Any) -> Any:
    return t.randn(4), t.tensor([1.0, -1.0, 1.0, -1.0])


def _pairs(t: Any) -> Any:
    return t.randn(4, 3), t.randn(4, 3), t.tensor([1.0, -1.0, 1.0, -1.0])


# name: (constructor given `nn`, inputs given the library)
LAYERS: dict[str, tuple[Any, Any]] = {
    "Linear": (lambda nn: nn.Linear(3, 4), _x(2, 3)),
    "Linear no bias": (lambda nn: nn.Linear(3, 4, bias=False), _x(3)),
    "Linear 3d": (lambda nn: nn.Linear(3, 2), _x(2, 5, 3)),
    "Bilinear": (lambda nn: nn.Bilinear(2, 3, 4), lambda t: (t.randn(5, 2), t.randn(5, 3))),
    "Identity": (lambda nn: nn.Identity(7, x=1), _x(2)),
    "Conv1d": (lambda nn: nn.Conv1d(2, 3, 3, padding=1), _x(2, 2, 7)),
    "Conv2d": (lambda nn: nn.Conv2d(2, 4, 3, stride=2, padding=1), _x(2, 2, 6, 5)),
    "Conv2d unbatched": (lambda nn: nn.Conv2d(2, 4, 3), _x(2, 6, 5)),
    "Conv2d groups": (lambda nn: nn.Conv2d(4, 6, (3, 2), padding=(1, 2), groups=2, bias=False), _x(1, 4, 5, 5)),
    "Conv2d same": (lambda nn: nn.Conv2d(1, 2, (3, 4), padding="same", dilation=2), _x(1, 1, 8, 9)),
    "Conv2d valid": (lambda nn: nn.Conv2d(1, 2, 3, padding="valid"), _x(1, 1, 5, 5)),
    "Conv2d reflect": (lambda nn: nn.Conv2d(1, 2, 3, padding=(1, 2), padding_mode="reflect"), _x(1, 1, 5, 5)),
    "Conv2d circular": (lambda nn: nn.Conv2d(1, 2, 3, padding="same", padding_mode="circular"), _x(1, 1, 5, 5)),
    "Conv2d replicate": (lambda nn: nn.Conv2d(1, 2, 3, padding=1, padding_mode="replicate"), _x(1, 1, 5, 5)),
    "ConvTranspose1d": (lambda nn: nn.ConvTranspose1d(2, 3, 3, stride=2, padding=1), _x(2, 2, 5)),
    "ConvTranspose2d": (
        lambda nn: nn.ConvTranspose2d(4, 6, (3, 2), stride=2, output_padding=1, groups=2, dilation=2),
        _x(1, 4, 3, 3),
    ),
    "ConvTranspose3d": (lambda nn: nn.ConvTranspose3d(1, 2, 2, bias=False), _x(1, 1, 2, 3, 2)),
    "Unfold": (lambda nn: nn.Unfold((2, 3), padding=1), _x(1, 2, 3, 4)),
    "Fold": (lambda nn: nn.Fold((3, 4), (2, 2)), _x(1, 4, 6)),
    "InstanceNorm1d": (lambda nn: nn.InstanceNorm1d(3), _x(2, 3, 5)),
    "InstanceNorm2d": (lambda nn: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), _x(2, 3, 4, 3)),
    "InstanceNorm2d unbatched": (lambda nn: nn.InstanceNorm2d(3), _x(3, 4, 3)),
    "InstanceNorm3d eval": (lambda nn: nn.InstanceNorm3d(2, track_running_stats=True).eval(), _x(1, 2, 2, 3, 2)),
    "LPPool1d": (lambda nn: nn.LPPool1d(2, 3), _x(1, 2, 7)),
    "LPPool2d": (lambda nn: nn.LPPool2d(1.5, 2, stride=1), lambda t: (t.rand(1, 2, 4, 4),)),
    "ChannelShuffle": (lambda nn: nn.ChannelShuffle(2), _x(1, 4, 2, 2)),
    "MaxUnpool2d": (
        lambda nn: nn.MaxUnpool2d(2),
        lambda t: (t.randn(1, 1, 2, 2), t.tensor([[[[0, 3], [9, 14]]]])),
    ),
    "MultiLabelMarginLoss": (
        lambda nn: nn.MultiLabelMarginLoss(),
        lambda t: (t.randn(2, 4), t.tensor([[3, 0, -1, 1], [1, -1, 0, 2]])),
    ),
    "Embedding": (lambda nn: nn.Embedding(5, 3, padding_idx=-1), lambda t: (t.tensor([[0, 4], [2, 2]]),)),
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(3), _x(4, 3)),
    "BatchNorm1d 3d": (lambda nn: nn.BatchNorm1d(3, momentum=None), _x(4, 3, 5)),
    "BatchNorm2d": (lambda nn: nn.BatchNorm2d(3), _x(2, 3, 4, 4)),
    "BatchNorm2d bare": (lambda nn: nn.BatchNorm2d(3, affine=False, track_running_stats=False), _x(2, 3, 4, 4)),
    "BatchNorm3d": (lambda nn: nn.BatchNorm3d(2), _x(2, 2, 2, 3, 2)),
    "BatchNorm2d eval": (lambda nn: nn.BatchNorm2d(3).eval(), _x(2, 3, 4, 4)),
    "LayerNorm": (lambda nn: nn.LayerNorm(4), _x(3, 4)),
    "LayerNorm 2d": (lambda nn: nn.LayerNorm((3, 4), bias=False), _x(2, 3, 4)),
    "LayerNorm bare": (lambda nn: nn.LayerNorm(4, elementwise_affine=False), _x(3, 4)),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, 4), _x(2, 4, 3)),
    "RMSNorm": (lambda nn: nn.RMSNorm(4), _x(3, 4)),
    "LocalResponseNorm": (lambda nn: nn.LocalResponseNorm(2), _x(2, 4, 3)),
    "Flatten": (lambda nn: nn.Flatten(), _x(2, 3, 2)),
    "Unflatten": (lambda nn: nn.Unflatten(1, (2, -1)), _x(2, 6)),
    "MaxPool1d": (lambda nn: nn.MaxPool1d(2), _x(1, 2, 7)),
    "MaxPool2d": (lambda nn: nn.MaxPool2d(2, stride=1, padding=1), _x(1, 2, 5, 4)),
    "AvgPool1d": (lambda nn: nn.AvgPool1d(3), _x(1, 2, 7)),
    "AvgPool2d": (lambda nn: nn.AvgPool2d(3, 2, 1), _x(1, 2, 6, 6)),
    "AdaptiveAvgPool1d": (lambda nn: nn.AdaptiveAvgPool1d(3), _x(1, 2, 7)),
    "AdaptiveAvgPool2d": (lambda nn: nn.AdaptiveAvgPool2d((1, None)), _x(1, 2, 5, 4)),
    "AdaptiveMaxPool2d": (lambda nn: nn.AdaptiveMaxPool2d(2), _x(1, 2, 5, 4)),
    "ZeroPad2d": (lambda nn: nn.ZeroPad2d((1, 0, 2, 1)), _x(1, 1, 2, 3)),
    "ConstantPad1d": (lambda nn: nn.ConstantPad1d((2, -1), 1.5), _x(1, 1, 4)),
    "ReflectionPad2d": (lambda nn: nn.ReflectionPad2d((1, 2, 0, 1)), _x(1, 1, 3, 4)),
    "ReplicationPad1d": (lambda nn: nn.ReplicationPad1d((3, 1)), _x(1, 2, 3)),
    "CircularPad2d": (lambda nn: nn.CircularPad2d(1), _x(1, 1, 2, 3)),
    "Upsample": (lambda nn: nn.Upsample(scale_factor=2), _x(1, 1, 2, 3)),
    "Upsample bilinear": (lambda nn: nn.Upsample(size=(3, 5), mode="bilinear"), _x(1, 1, 2, 3)),
    "Upsample aligned": (
        lambda nn: nn.Upsample(scale_factor=1.5, mode="bilinear", align_corners=True),
        _x(1, 1, 3, 4),
    ),
    "PixelShuffle": (lambda nn: nn.PixelShuffle(2), _x(1, 4, 2, 3)),
    "PixelUnshuffle": (lambda nn: nn.PixelUnshuffle(2), _x(1, 1, 4, 2)),
    "Sequential": (lambda nn: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), _x(2, 3)),
    "CosineSimilarity": (lambda nn: nn.CosineSimilarity(), _two(3, 4)),
    "PairwiseDistance": (lambda nn: nn.PairwiseDistance(), _two(3, 4)),
    "L1Loss": (lambda nn: nn.L1Loss(), _two(2, 3)),
    "MSELoss": (lambda nn: nn.MSELoss(reduction="sum"), _two(2, 3)),
    "SmoothL1Loss": (lambda nn: nn.SmoothL1Loss(beta=0.5), _two(2, 3)),
    "HuberLoss": (lambda nn: nn.HuberLoss(delta=0.7, reduction="none"), _two(2, 3)),
    "CrossEntropyLoss": (lambda nn: nn.CrossEntropyLoss(), _classes),
    "CrossEntropyLoss smooth": (lambda nn: nn.CrossEntropyLoss(label_smoothing=0.1, ignore_index=0), _classes),
    "NLLLoss": (lambda nn: nn.NLLLoss(reduction="none"), _classes),
    "BCELoss": (lambda nn: nn.BCELoss(), _binary),
    "BCEWithLogitsLoss": (lambda nn: nn.BCEWithLogitsLoss(), _binary),
    "KLDivLoss": (lambda nn: nn.KLDivLoss(reduction="batchmean"), lambda t: (t.randn(2, 3), t.rand(2, 3))),
    "MultiLabelSoftMarginLoss": (lambda nn: nn.MultiLabelSoftMarginLoss(), _binary),
    "HingeEmbeddingLoss": (lambda nn: nn.HingeEmbeddingLoss(), _signs),
    "SoftMarginLoss": (lambda nn: nn.SoftMarginLoss(), _signs),
    "CosineEmbeddingLoss": (lambda nn: nn.CosineEmbeddingLoss(margin=0.1), _pairs),
    "MarginRankingLoss": (
        lambda nn: nn.MarginRankingLoss(0.2),
        lambda t: (t.randn(4), t.randn(4), t.tensor([1.0, -1.0, 1.0, -1.0])),
    ),
    "TripletMarginLoss": (
        lambda nn: nn.TripletMarginLoss(swap=True),
        lambda t: (t.randn(3, 4), t.randn(3, 4), t.randn(3, 4)),
    ),
    "TripletMarginWithDistanceLoss": (
        lambda nn: nn.TripletMarginWithDistanceLoss(margin=0.5),
        lambda t: (t.randn(3, 4), t.randn(3, 4), t.randn(3, 4)),
    ),
    "MultiMarginLoss": (lambda nn: nn.MultiMarginLoss(), _classes),
    "GaussianNLLLoss": (lambda nn: nn.GaussianNLLLoss(), lambda t: (t.randn(3), t.randn(3), t.rand(3))),
    "PoissonNLLLoss": (lambda nn: nn.PoissonNLLLoss(), lambda t: (t.randn(3), t.tensor([1.0, 0.0, 3.0]))),
    **{
        name: ((lambda n: lambda nn: getattr(nn, n)())(name), _x(3, 4))
        for name in (
            "ReLU LeakyReLU PReLU ELU SELU CELU GELU SiLU Mish Sigmoid Tanh Softplus Hardtanh ReLU6 Hardswish "
            "Hardsigmoid LogSigmoid Softsign Tanhshrink Hardshrink Softshrink GLU"
        ).split()
    },
    "GELU tanh": (lambda nn: nn.GELU(approximate="tanh"), _x(3, 4)),
    "Softmax": (lambda nn: nn.Softmax(dim=1), _x(3, 4)),
    "LogSoftmax": (lambda nn: nn.LogSoftmax(dim=0), _x(3, 4)),
    "Softmin": (lambda nn: nn.Softmin(dim=-1), _x(3, 4)),
    "Softmax2d": (lambda nn: nn.Softmax2d(), _x(1, 3, 2, 2)),
    "Threshold": (lambda nn: nn.Threshold(0.1, 20), _x(3, 4)),
    "ReLU inplace": (lambda nn: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), _x(3, 4)),
    "Dropout": (lambda nn: nn.Dropout(0.3), _x(4, 5)),
    "Dropout eval": (lambda nn: nn.Dropout(0.3).eval(), _x(4, 5)),
    "Dropout1d": (lambda nn: nn.Dropout1d(0.5), _x(2, 4, 3)),
    "Dropout2d": (lambda nn: nn.Dropout2d(0.5), _x(2, 4, 2, 2)),
    "AlphaDropout": (lambda nn: nn.AlphaDropout(0.2), _x(4, 5)),
}


def _numbers(tensor: Any) -> list[float]:
    return [round(float(v), 7) for v in tensor.detach().reshape(-1).tolist()]


def run(t: Any, name: str) -> dict[str, Any]:
    """Make the layer, call it, differentiate: everything that must be equal."""
    make, inputs = LAYERS[name]
    t.manual_seed(1)
    layer = make(t.nn)
    args = inputs(t)
    first = args[0]
    if first.is_floating_point():
        first.requires_grad_(True)
    start = {key: [list(value.shape), _numbers(value)] for key, value in layer.state_dict().items()}
    out = layer(*args)
    wave = t.arange(out.numel(), dtype=out.dtype).reshape(out.shape).sin()
    if out.requires_grad:
        (out * wave).sum().backward()
    return {
        "repr": repr(layer),
        "start": start,
        "shape": list(out.shape),
        "out": _numbers(out),
        "grad": _numbers(first.grad) if first.is_floating_point() and first.grad is not None else None,
        "grads": {key: _numbers(p.grad) for key, p in layer.named_parameters() if p.grad is not None},
        "end": {key: _numbers(value) for key, value in layer.named_buffers()},
        "draw": _numbers(t.rand(2)),
    }


if __name__ == "__main__":
    import torch

    results = {name: run(torch, name) for name in LAYERS}
    path = pathlib.Path(__file__).with_name("expected.json")
    path.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in results.items()) + "\n}\n")

"""Layers with inputs for them. The same lines run with rushlight and with PyTorch; `expected.json` holds PyTorch's results.

`python tests/nn/cases.py` writes the stored results again (PyTorch must be installed).
"""

from __future__ import annotations

import json
import pathlib
from importlib import import_module
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


def _prune(nn: Any) -> Any:
    return import_module(f"{nn.__name__}.utils.prune")


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
    "MaxUnpool2d": (lambda nn: nn.MaxUnpool2d(2), lambda t: (t.randn(1, 1, 2, 2), t.tensor([[[[0, 3], [9, 14]]]]))),
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
    "Upsample aligned": (lambda nn: nn.Upsample(scale_factor=1.5, mode="bilinear", align_corners=True), _x(1, 1, 3, 4)),
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
    "Dropout3d": (lambda nn: nn.Dropout3d(0.4), _x(2, 3, 2, 1, 2)),
    "FeatureAlphaDropout": (lambda nn: nn.FeatureAlphaDropout(0.4), _x(2, 4, 3)),
    "RReLU": (lambda nn: nn.RReLU(0.1, 0.4), _x(3, 4)),
    "Conv3d": (lambda nn: nn.Conv3d(1, 2, (2, 3, 2), padding=(0, 1, 0)), _x(1, 1, 3, 3, 3)),
    "AdaptiveAvgPool3d": (lambda nn: nn.AdaptiveAvgPool3d((2, None, 1)), _x(1, 2, 3, 2, 3)),
    "AdaptiveMaxPool1d": (lambda nn: nn.AdaptiveMaxPool1d(2), _x(1, 2, 5)),
    "AdaptiveMaxPool3d": (lambda nn: nn.AdaptiveMaxPool3d(2, return_indices=True), _x(1, 1, 3, 2, 3)),
    "AvgPool3d": (lambda nn: nn.AvgPool3d(2, 1, divisor_override=3), _x(1, 1, 3, 2, 3)),
    "MaxPool3d": (lambda nn: nn.MaxPool3d(2, 1), _x(1, 1, 3, 2, 3)),
    "MaxPool1d indices": (lambda nn: nn.MaxPool1d(2, return_indices=True, ceil_mode=True), _x(1, 2, 5)),
    "MaxUnpool1d": (lambda nn: nn.MaxUnpool1d(2), lambda t: (t.randn(1, 1, 2), t.tensor([[[0, 3]]]))),
    "MaxUnpool3d": (lambda nn: nn.MaxUnpool3d(2), lambda t: (t.randn(1, 1, 1, 1, 2), t.tensor([[[[[0, 14]]]]]))),
    "LPPool3d": (lambda nn: nn.LPPool3d(2, 2, ceil_mode=True), _x(1, 1, 3, 2, 2)),
    "FractionalMaxPool2d": (lambda nn: nn.FractionalMaxPool2d(2, output_ratio=(0.6, 0.7)), _x(1, 2, 5, 6)),
    "FractionalMaxPool3d": (lambda nn: nn.FractionalMaxPool3d(2, output_size=2), _x(1, 1, 5, 4, 4)),
    "ZeroPad1d": (lambda nn: nn.ZeroPad1d((2, 0)), _x(1, 1, 3)),
    "ZeroPad3d": (lambda nn: nn.ZeroPad3d(1), _x(1, 1, 1, 2, 1)),
    "ConstantPad2d": (lambda nn: nn.ConstantPad2d((1, 2, -1, 0), 2.5), _x(1, 1, 3, 2)),
    "ConstantPad3d": (lambda nn: nn.ConstantPad3d((0, 1, 1, 0, 0, 2), -1.0), _x(1, 1, 1, 2, 2)),
    "ReflectionPad1d": (lambda nn: nn.ReflectionPad1d((2, 1)), _x(1, 2, 4)),
    "ReflectionPad3d": (lambda nn: nn.ReflectionPad3d(1), _x(1, 1, 2, 2, 3)),
    "ReplicationPad2d": (lambda nn: nn.ReplicationPad2d((1, 0, 2, 1)), _x(1, 1, 2, 3)),
    "ReplicationPad3d": (lambda nn: nn.ReplicationPad3d(1), _x(1, 1, 1, 2, 2)),
    "CircularPad1d": (lambda nn: nn.CircularPad1d((2, 1)), _x(1, 2, 3)),
    "CircularPad3d": (lambda nn: nn.CircularPad3d(1), _x(1, 1, 2, 1, 2)),
    "UpsamplingBilinear2d": (lambda nn: nn.UpsamplingBilinear2d(scale_factor=2), _x(1, 1, 2, 3)),
    "UpsamplingNearest2d": (lambda nn: nn.UpsamplingNearest2d(size=(3, 4)), _x(1, 1, 2, 3)),
    "SyncBatchNorm": (lambda nn: nn.SyncBatchNorm(3), _x(4, 3, 2)),
    "EmbeddingBag": (
        lambda nn: nn.EmbeddingBag(5, 3, mode="sum", padding_idx=0),
        lambda t: (t.tensor([1, 2, 4, 0]), t.tensor([0, 3])),
    ),
    "RNN": (lambda nn: nn.RNN(2, 3, nonlinearity="relu", batch_first=True), _x(2, 4, 2)),
    "LSTM": (lambda nn: nn.LSTM(2, 3, num_layers=2, bidirectional=True, proj_size=2), _x(3, 2, 2)),
    "GRU": (lambda nn: nn.GRU(2, 3, bias=False), _x(3, 2)),
    "RNNCell": (lambda nn: nn.RNNCell(2, 3), _x(4, 2)),
    "LSTMCell": (lambda nn: nn.LSTMCell(2, 3), _x(4, 2)),
    "GRUCell": (lambda nn: nn.GRUCell(2, 3, bias=False), _x(2)),
    "MultiheadAttention": (
        lambda nn: nn.MultiheadAttention(4, 2, add_bias_kv=True, kdim=3, vdim=2),
        lambda t: (t.randn(3, 2, 4), t.randn(5, 2, 3), t.randn(5, 2, 2)),
    ),
    "TransformerEncoderLayer": (
        lambda nn: nn.TransformerEncoderLayer(4, 2, 8, 0.1, activation="gelu", norm_first=True),
        _x(3, 2, 4),
    ),
    "TransformerDecoderLayer": (
        lambda nn: nn.TransformerDecoderLayer(4, 2, 8, 0.0, batch_first=True, bias=False),
        _two(2, 3, 4),
    ),
    "Transformer": (lambda nn: nn.Transformer(4, 2, 1, 2, 8, 0.0, batch_first=True), _two(2, 3, 4)),
    "AdaptiveLogSoftmaxWithLoss": (
        lambda nn: nn.AdaptiveLogSoftmaxWithLoss(4, 8, [3, 5], div_value=2.0),
        lambda t: (t.randn(4, 4), t.tensor([7, 0, 3, 4])),
    ),
    "CTCLoss": (
        lambda nn: nn.CTCLoss(),
        lambda t: (t.randn(5, 2, 4), t.tensor([[1, 2], [3, 3]]), t.tensor([5, 4]), t.tensor([2, 1])),
    ),
    "LinearCrossEntropyLoss": (
        lambda nn: nn.LinearCrossEntropyLoss(3, 5, bias=True),
        lambda t: (t.randn(4, 3), t.tensor([1, 0, 4, 2])),
    ),
    # Shapes from the first input.
    "LazyLinear": (lambda nn: nn.LazyLinear(4, bias=False), _x(2, 3)),
    "LazyConv1d": (lambda nn: nn.LazyConv1d(3, 2), _x(2, 2, 4)),
    "LazyConv2d": (lambda nn: nn.LazyConv2d(4, 3, padding=1, groups=2), _x(2, 4, 3)),
    "LazyConv3d": (lambda nn: nn.LazyConv3d(1, 2), _x(1, 1, 2, 2, 3)),
    "LazyConvTranspose1d": (lambda nn: nn.LazyConvTranspose1d(3, 2), _x(2, 2, 3)),
    "LazyConvTranspose2d": (lambda nn: nn.LazyConvTranspose2d(3, 2, stride=2, bias=False), _x(1, 2, 2, 2)),
    "LazyConvTranspose3d": (lambda nn: nn.LazyConvTranspose3d(1, 2), _x(1, 2, 1, 2, 1)),
    "LazyBatchNorm1d": (lambda nn: nn.LazyBatchNorm1d(), _x(4, 3)),
    "LazyBatchNorm2d": (lambda nn: nn.LazyBatchNorm2d(affine=False), _x(2, 3, 2, 2)),
    "LazyBatchNorm3d": (lambda nn: nn.LazyBatchNorm3d(track_running_stats=False), _x(2, 2, 1, 2, 2)),
    "LazyInstanceNorm1d": (lambda nn: nn.LazyInstanceNorm1d(), _x(2, 3, 4)),
    "LazyInstanceNorm2d": (lambda nn: nn.LazyInstanceNorm2d(affine=False), _x(2, 3, 2, 2)),
    "LazyInstanceNorm3d": (lambda nn: nn.LazyInstanceNorm3d(track_running_stats=False), _x(1, 2, 2, 2, 1)),
    # Parameters that are functions of others.
    "weight norm": (lambda nn: nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 3, 2), dim=1), _x(1, 2, 4)),
    "spectral norm": (
        lambda nn: nn.utils.parametrizations.spectral_norm(nn.ConvTranspose1d(2, 3, 2), n_power_iterations=2),
        _x(1, 2, 3),
    ),
    "orthogonal": (lambda nn: nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)), _x(2, 3)),
    "orthogonal tall": (
        lambda nn: nn.utils.parametrizations.orthogonal(nn.Linear(2, 4), use_trivialization=False),
        _x(2, 2),
    ),
    "orthogonal wide": (
        lambda nn: nn.utils.parametrizations.orthogonal(nn.Linear(4, 2), orthogonal_map="cayley"),
        _x(2, 4),
    ),
    "old spectral norm": (lambda nn: nn.utils.spectral_norm(nn.Linear(3, 4)), _x(2, 3)),
    "pruned": (lambda nn: _prune(nn).random_unstructured(nn.Linear(3, 4), "weight", 0.4), _x(2, 3)),
    "pruned twice": (
        lambda nn: _prune(nn).ln_structured(
            _prune(nn).l1_unstructured(nn.Linear(3, 4), "weight", 3), "weight", 1, 2, 0
        ),
        _x(2, 3),
    ),
}

# What has no forward of its own, or needs no case here: tested elsewhere. (PyTorch's gradient of CrossMapLRN2d is not its slope.)
WITHOUT_CASE = {
    "Container", "CrossMapLRN2d", "DataParallel", "Module", "NLLLoss2d", "ParameterDict", "ParameterList", "RNNBase",
    "RNNCellBase",
}  # fmt: skip


def _numbers(tensor: Any) -> list[float]:
    return [round(float(v), 7) for v in tensor.detach().reshape(-1).tolist()]


def tensors(out: Any) -> list[Any]:
    """The tensors in a result, which may be a tuple of tensors and tuples."""
    return [t for part in out for t in tensors(part)] if isinstance(out, tuple) else [out]


def build(t: Any, name: str) -> tuple[Any, tuple[Any, ...]]:
    """The layer and its arguments, with the same random numbers in each library."""
    make, inputs = LAYERS[name]
    t.manual_seed(1)
    return make(t.nn), inputs(t)


def start(t: Any, layer: Any) -> dict[str, Any]:
    """Shape and values of everything in the state dict; its printed form for what has no shape yet."""
    lazy = t.nn.parameter.is_lazy
    return {
        key: repr(value) if lazy(value) else [list(value.shape), _numbers(value)]
        for key, value in layer.state_dict().items()
    }


def run(t: Any, name: str) -> dict[str, Any]:
    """Make the layer, call it, differentiate: everything that must be equal."""
    layer, args = build(t, name)
    first = args[0]
    if first.is_floating_point():
        first.requires_grad_(True)
    text, before = repr(layer), start(t, layer)
    outs = tensors(layer(*args))
    waves = [
        (out * t.arange(out.numel(), dtype=out.dtype).reshape(out.shape).sin()).sum()
        for out in outs
        if out.requires_grad
    ]
    if waves:
        sum(waves).backward()
    return {
        "repr": text,
        "start": before,
        "shape": [list(out.shape) for out in outs],
        "out": [v for out in outs for v in _numbers(out)],
        "grad": _numbers(first.grad) if first.is_floating_point() and first.grad is not None else None,
        "grads": {key: _numbers(p.grad) for key, p in layer.named_parameters() if p.grad is not None},
        "end": {key: _numbers(value) for key, value in layer.named_buffers()},
        "after": repr(layer) if repr(layer) != text else "",
        "draw": _numbers(t.rand(2)),
    }


if __name__ == "__main__":
    import torch

    results = {name: run(torch, name) for name in LAYERS}
    path = pathlib.Path(__file__).with_name("expected.json")
    path.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in results.items()) + "\n}\n")

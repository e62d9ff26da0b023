"""The layers. `_PLACES` says in which file each class lives; a file is loaded when one of its classes is first used."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

_FILES = {
    "activation": (
        "CELU", "ELU", "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU", "LogSigmoid",
        "LogSoftmax", "Mish", "MultiheadAttention", "PReLU", "ReLU", "ReLU6", "RReLU", "SELU", "SiLU", "Sigmoid", "Softmax", "Softmax2d",
        "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
    ),
    "adaptive": ("AdaptiveLogSoftmaxWithLoss",),
    "batchnorm": ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "SyncBatchNorm"),
    "container": ("Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"),
    "channelshuffle": ("ChannelShuffle",),
    "conv": (
        "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LazyConv1d", "LazyConv2d", "LazyConv3d",
        "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
    ),
    "distance": ("CosineSimilarity", "PairwiseDistance"),
    "dropout": ("AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"),
    "fold": ("Fold", "Unfold"),
    "instancenorm": (
        "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d",
    ),
    "flatten": ("Flatten", "Unflatten"),
    "linear": ("Bilinear", "Identity", "LazyLinear", "Linear"),
    "linear_cross_entropy_options": ("LinearCrossEntropyOptions",),
    "loss": (
        "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "GaussianNLLLoss",
        "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "LinearCrossEntropyLoss", "MSELoss", "MarginRankingLoss",
        "MultiLabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "NLLLoss2d", "PoissonNLLLoss", "SmoothL1Loss",
        "SoftMarginLoss",
        "TripletMarginLoss", "TripletMarginWithDistanceLoss",
    ),
    "module": ("Module",),
    "normalization": ("CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"),
    "pixelshuffle": ("PixelShuffle", "PixelUnshuffle"),
    "sparse": ("Embedding", "EmbeddingBag"),
    "upsampling": ("Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"),
    "padding": (
        "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
        "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d",
        "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
    ),
    "pooling": (
        "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
        "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d",
        "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d",
    ),
    "rnn": ("GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"),
    "transformer": (
        "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
    ),
}  # fmt: skip

_PLACES = {name: file for file, names in _FILES.items() for name in names}

__all__ = list(_PLACES)


__getattr__ = lazy_files(__name__, _PLACES, {*_FILES, "lazy", "utils"})


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, *_FILES})

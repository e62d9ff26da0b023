"""How modules in a row are fused: batch norm goes into the weight before it, activations are kept beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight import nn
from rushlight.ao.nn import intrinsic as nni
from rushlight.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

__all__ = [
    "fuse_conv_bn",
    "fuse_conv_bn_relu",
    "fuse_convtranspose_bn",
    "fuse_linear_bn",
    "get_fuser_method",
    "get_fuser_method_new",
]


def _same_mode(*modules: Any) -> None:
    if len({m.training for m in modules}) != 1:
        raise AssertionError("Conv and BN both must be in the same mode (train or eval).")


def fuse_conv_bn(is_qat: bool, conv: Any, bn: Any) -> Any:
    """A convolution and its batch norm: a pair to train, or the convolution with batch norm folded in.

    >>> import rushlight as torch
    >>> conv, bn = torch.nn.Conv2d(1, 2, 3).eval(), torch.nn.BatchNorm2d(2).eval()
    >>> type(torch.ao.quantization.fuse_conv_bn(False, conv, bn)).__name__
    'Conv2d'
    """
    _same_mode(conv, bn)
    if not is_qat:
        return fuse_conv_bn_eval(conv, bn)
    if bn.num_features != conv.out_channels:
        raise AssertionError("Output channel of Conv2d must match num_features of BatchNorm2d")
    if not bn.affine:
        raise AssertionError("Only support fusing BatchNorm2d with affine set to True")
    if not bn.track_running_stats:
        raise AssertionError("Only support fusing BatchNorm2d with tracking_running_stats set to True")
    made = {nn.Conv1d: nni.ConvBn1d, nn.Conv2d: nni.ConvBn2d, nn.Conv3d: nni.ConvBn3d}.get(type(conv))
    if made is None:
        raise NotImplementedError(f"Cannot fuse train modules: {(conv, bn)}")
    return made(conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: Any, bn: Any, relu: Any) -> Any:
    """A convolution, its batch norm and ReLU: three to train, or the convolution with batch norm folded in, and ReLU."""
    _same_mode(conv, bn, relu)
    if is_qat:
        made = {nn.Conv1d: nni.ConvBnReLU1d, nn.Conv2d: nni.ConvBnReLU2d, nn.Conv3d: nni.ConvBnReLU3d}.get(type(conv))
        if made is None:
            raise NotImplementedError(f"Cannot fuse train modules: {(conv, bn, relu)}")
        return made(conv, bn, relu)
    pair = {nn.Conv1d: nni.ConvReLU1d, nn.Conv2d: nni.ConvReLU2d, nn.Conv3d: nni.ConvReLU3d}.get(type(conv))
    if pair is None:
        raise NotImplementedError(f"Cannot fuse eval modules: {(conv, bn, relu)}")
    return pair(fuse_conv_bn_eval(conv, bn), relu)


def fuse_linear_bn(is_qat: bool, linear: Any, bn: Any) -> Any:
    """A linear layer and its batch norm: a pair to train, or the layer with batch norm folded in."""
    _same_mode(linear, bn)
    if not is_qat:
        return fuse_linear_bn_eval(linear, bn)
    if bn.num_features != linear.out_features:
        raise AssertionError("Output features of Linear must match num_features of BatchNorm1d")
    return nni.LinearBn1d(linear, bn)


def fuse_convtranspose_bn(is_qat: bool, convt: Any, bn: Any) -> Any:
    """A transposed convolution with its batch norm folded in."""
    _same_mode(convt, bn)
    if is_qat:
        raise Exception("Fusing ConvTranspose+BatchNorm not yet supported in QAT.")
    return fuse_conv_bn_eval(convt, bn, transpose=True)


def _pair(kind: Any) -> Callable[[bool, Any, Any], Any]:
    def fuser_method(is_qat: bool, m1: Any, m2: Any) -> Any:
        return kind(m1, m2)

    return fuser_method


_DEFAULT_OP_LIST_TO_FUSER_METHOD: dict[tuple[Any, ...], Any] = {
    **{(getattr(nn, f"Conv{n}d"), getattr(nn, f"BatchNorm{n}d")): fuse_conv_bn for n in (1, 2, 3)},
    **{(getattr(nn, f"Conv{n}d"), getattr(nn, f"BatchNorm{n}d"), nn.ReLU): fuse_conv_bn_relu for n in (1, 2, 3)},
    **{(getattr(nn, f"Conv{n}d"), nn.ReLU): _pair(getattr(nni, f"ConvReLU{n}d")) for n in (1, 2, 3)},
    (nn.Linear, nn.BatchNorm1d): fuse_linear_bn,
    (nn.Linear, nn.ReLU): _pair(nni.LinearReLU),
    **{(getattr(nn, f"BatchNorm{n}d"), nn.ReLU): _pair(getattr(nni, f"BNReLU{n}d")) for n in (2, 3)},
    **{(getattr(nn, f"ConvTranspose{n}d"), getattr(nn, f"BatchNorm{n}d")): fuse_convtranspose_bn for n in (1, 2, 3)},
}


def get_fuser_method(op_list: Any, additional_fuser_method_mapping: Any = None) -> Any:
    """The function that fuses modules of these classes; None for classes that are not fused."""
    found = {**_DEFAULT_OP_LIST_TO_FUSER_METHOD, **(additional_fuser_method_mapping or {})}.get(tuple(op_list))
    if found is None:
        raise AssertionError(f"did not find fuser method for: {op_list} ")
    return found


def get_fuser_method_new(op_pattern: Any, fuser_method_mapping: Any) -> Any:
    """The function that fuses a pattern, by a mapping of patterns."""
    found = fuser_method_mapping.get(op_pattern) or _DEFAULT_OP_LIST_TO_FUSER_METHOD.get(
        op_pattern if isinstance(op_pattern, tuple) else (op_pattern,)
    )
    if found is None:
        raise AssertionError(f"did not find fuser method for: {op_pattern} ")
    return found

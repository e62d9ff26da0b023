"""Products of bytes in exported graphs whose values are rounded by `torch.ops.quantized_decomposed`.

A graph of `torchao`'s PT2E says what is of integers, and computes in floats: integers become numbers, are multiplied, and are
rounded again.  `with_integer_products` puts kernels of bytes in the place of such products.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import rushlight as torch
from rushlight import nn
from rushlight._interface.operators import function_of
from rushlight._interface.quantized import Quantizer, make_quantized
from rushlight.ao.operators.packed import ConvPackedParams, LinearPackedParams
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node

__all__ = ["IntegerProduct", "with_integer_products"]

_linear = function_of("quantized_linear")
_BYTES = {torch.uint8: ("uint8", 0, 255), torch.int8: ("int8", -128, 127)}
_Source = tuple[float, int]  # scale and zero point


class IntegerProduct(nn.Module):
    """A linear layer or a convolution of bytes, whose result is rounded to bytes too, or is float32.

    - `packed`: the weight and the bias; `source`: scale and zero point of the input
    - `result`: "uint8", "int8" or "float32"; `target`: scale and zero point of it (1 and 0 for floats)
    """

    def __init__(self, packed: Any, source: _Source, result: str, target: _Source, relu: bool) -> None:
        super().__init__()
        self.packed, self.source, self.result, self.target, self.relu = packed, source, result, target, relu

    def extra_repr(self) -> str:
        """Scales, zero points and the result's dtype."""
        return f"source={self.source}, result={self.result}, target={self.target}, relu={self.relu}"

    def forward(self, x: Any) -> Any:
        """The product of integers [..., K] or [N, C, *S]."""
        scale, zero = self.target
        if isinstance(self.packed, ConvPackedParams):
            return self.packed._run(x, self.source, scale, zero, self.result, self.relu)
        columns = self.packed.columns(*self.source, scale)
        return _linear(x, self.packed.ints, *columns, zero, result=self.result, relu=self.relu)


def with_integer_products(module: GraphModule) -> GraphModule:
    """Compute linear layers and 2-d convolutions of bytes with kernels of bytes: the module, which is changed.

    Those are replaced whose input and weight (int8, by output channel) are dequantized, as modules have them or as
    decompositions leave them (`addmm` of a transposed weight, `convolution`); a ReLU and a quantization behind them go along.
    Sums are exact; a result may be the next integer where the float product was rounded.
    """
    importlib.import_module("rushlight.ao.quantization.fx._decomposed")
    for node in list(module.graph.nodes):
        found = _product_of(node) if node.op == "call_function" else None
        if found is not None:
            _replace(module, node, found)
    module.graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()
    return module


class _Product(NamedTuple):
    """Operands of a product node: `rest` are the geometry of a convolution, None for a linear layer."""

    x: Any
    weight: Any
    bias: Any
    rest: dict[str, Any] | None


def _product_of(node: Node) -> _Product | None:
    aten, args = torch.ops.aten, node.args
    if node.kwargs:
        return None
    if node.target is aten.linear.default:
        return _Product(args[0], args[1], args[2] if len(args) > 2 else None, None)
    if node.target is aten.addmm.default:
        return _Product(args[1], _transposed(args[2]), args[0], None)
    if node.target is aten.mm.default:
        return _Product(args[0], _transposed(args[1]), None, None)
    if node.target is aten.conv2d.default:
        names = ("stride", "padding", "dilation", "groups")
        return _Product(args[0], args[1], args[2] if len(args) > 2 else None, dict(zip(names, args[3:], strict=False)))
    if node.target is aten.convolution.default and not args[6] and len(args[3]) == 2:
        names = ("stride", "padding", "dilation", "groups")
        return _Product(args[0], args[1], args[2], dict(zip(names, (*args[3:6], args[8]), strict=True)))
    return None


def _transposed(node: Any) -> Any:
    """The matrix of which a node is the transpose; None for another node."""
    if isinstance(node, Node) and node.target is torch.ops.aten.permute.default and list(node.args[1]) == [1, 0]:
        return node.args[0]
    return node.args[0] if isinstance(node, Node) and node.target is torch.ops.aten.t.default else None


def _replace(module: GraphModule, node: Node, product: _Product) -> None:
    name = f"{node.name}_of_integers"
    node, product = _over_rows(node, product)
    source, packed = _input_of(product.x), _packed_of(module, product)
    if source is None or packed is None:
        return
    last, relu, result, target = _ending(node)
    x = product.x.args[0]
    module.add_submodule(name, IntegerProduct(packed, source, result, target, relu))
    with module.graph.inserting_before(last):
        made = module.graph.call_module(name, (x,))
    made.meta.update(last.meta)
    last.replace_all_uses_with(made)


def _over_rows(node: Node, product: _Product) -> tuple[Node, _Product]:
    """A matrix product between views of [..., K] and [..., N] is a linear layer over the last dim."""
    views, given, user = (torch.ops.aten.view.default, torch.ops.aten.reshape.default), product.x, _only_user(node)
    if product.rest is not None or not isinstance(given, Node) or given.target not in views:
        return node, product
    if user is None or user.target not in views:
        return node, product
    shapes = [getattr(each.meta.get("val"), "shape", None) for each in (given.args[0], given, node, user)]
    if any(shape is None for shape in shapes):
        return node, product
    before, flat, made, after = (tuple(shape or ()) for shape in shapes)
    if before[-1:] == flat[-1:] and after == (*before[:-1], *made[-1:]):
        return user, product._replace(x=given.args[0])
    return node, product


def _input_of(node: Any) -> _Source | None:
    """Scale and zero point of an input of bytes with one scale."""
    form = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    if not isinstance(node, Node) or node.target is not form or node.args[5] not in _BYTES or node.kwargs:
        return None
    return float(node.args[1]), int(node.args[2])


def _packed_of(module: GraphModule, product: _Product) -> Any:
    """The weight and the bias, packed; None where they are no constants, or the weight is not int8 by output channel."""
    space, weight = torch.ops.quantized_decomposed, product.weight
    if not isinstance(weight, Node) or weight.kwargs:
        return None
    if weight.target is space.dequantize_per_channel.default:
        ints, scales, zeros = (_constant(module, each) for each in weight.args[:3])
        if weight.args[3] != 0 or scales is None or zeros is None:
            return None
        quantizer = Quantizer(torch.per_channel_affine, scales.double(), zeros.long(), 0)
    elif weight.target is space.dequantize_per_tensor.default:
        ints = _constant(module, weight.args[0])
        quantizer = Quantizer(torch.per_tensor_affine, float(weight.args[1]), int(weight.args[2]))
    else:
        return None
    bias = _constant(module, product.bias)
    if (
        not isinstance(ints, torch.Tensor)
        or ints.dtype is not torch.int8
        or (bias is None) is not (product.bias is None)
    ):
        return None
    held = make_quantized(ints, torch.qint8, quantizer)
    return LinearPackedParams(held, bias) if product.rest is None else ConvPackedParams(held, bias, **product.rest)


def _constant(module: GraphModule, node: Any) -> Any:
    """The tensor that a node reads from the module; None for another node."""
    if not isinstance(node, Node) or node.op != "get_attr":
        return None
    value: Any = module
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value.detach() if isinstance(value, torch.Tensor) else None


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _ending(node: Node) -> tuple[Node, bool, str, _Source]:
    """The last node that the product takes in, whether a ReLU is among them, and what the result is."""
    last, relu, user = node, False, _only_user(node)
    if user is not None and user.target in (torch.ops.aten.relu.default, torch.ops.aten.relu_.default):
        last, relu, user = user, True, _only_user(user)
    if user is not None and user.target is torch.ops.quantized_decomposed.quantize_per_tensor.default:
        _, scale, zero, low, high, dtype = user.args
        name, *ends = _BYTES.get(dtype, ("", None, None))
        if ends == [low, high]:
            return user, relu, str(name), (float(scale), int(zero))
    return last, relu, "float32", (1.0, 0)

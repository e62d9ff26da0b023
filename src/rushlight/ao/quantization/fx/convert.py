"""Converting a graph: observers become quantization, and floats between integers become operators on integers."""

from __future__ import annotations

import copy
from typing import Any

import rushlight as torch
from rushlight import nn
from rushlight.ao.nn import intrinsic as nni
from rushlight.ao.nn import quantized as nnq
from rushlight.ao.nn.intrinsic import quantized as nniq
from rushlight.ao.nn.quantized import reference as nnqr
from rushlight.ao.quantization.backend_config.native import (
    FIXED,
    OWN_FUNCTIONS,
    PAIRS,
    RELUS,
    SHARED,
    SIZES,
    WEIGHTED,
    WEIGHTED_FUNCTIONS,
)
from rushlight.ao.quantization.fake_quantize import _is_activation_post_process
from rushlight.ao.quantization.fx.fuse import kind_of
from rushlight.ao.quantization.fx.prepare import is_observer
from rushlight.ao.quantization.observer import NoopObserver, PlaceholderObserver
from rushlight.ao.quantization.quantization_mappings import DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS
from rushlight.fx import GraphModule

__all__ = ["QuantizedGraphModule", "convert", "convert_to_reference"]

_CHANNELS = (torch.per_channel_affine, torch.per_channel_symmetric)
_FUSED: dict[Any, Any] = {
    **{getattr(nni, f"ConvReLU{n}d"): getattr(nniq, f"ConvReLU{n}d") for n in (1, 2, 3)},
    nni.LinearReLU: nniq.LinearReLU,
}
_OF_REFERENCE: dict[Any, Any] = {getattr(nnqr, k.__name__): getattr(nnq, k.__name__) for k in WEIGHTED}
_OWN: dict[Any, Any] = {
    nn.ELU: nnq.ELU, nn.LeakyReLU: nnq.LeakyReLU, nn.Hardswish: nnq.Hardswish, nn.InstanceNorm1d: nnq.InstanceNorm1d,
    nn.InstanceNorm2d: nnq.InstanceNorm2d, nn.InstanceNorm3d: nnq.InstanceNorm3d, nn.GroupNorm: nnq.GroupNorm, nn.LayerNorm: nnq.LayerNorm,
    nn.PReLU: nnq.PReLU, nn.BatchNorm2d: nnq.BatchNorm2d, nn.BatchNorm3d: nnq.BatchNorm3d, nni.BNReLU2d: nniq.BNReLU2d,
    nni.BNReLU3d: nniq.BNReLU3d, nn.Softmax: nnq.Softmax, nn.Dropout: nnq.Dropout,
}  # fmt: skip


class QuantizedGraphModule(GraphModule):
    """A graph module whose state holds packed weights too."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, value in self.__dict__.items():
            if name.startswith("_packed_weight_"):
                destination[prefix + name] = value

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *more: Any) -> None:
        for name in [n for n in self.__dict__ if n.startswith("_packed_weight_")]:
            if prefix + name in state_dict:
                setattr(self, name, state_dict.pop(prefix + name))
        super()._load_from_state_dict(state_dict, prefix, *more)


def _set(model: Any, target: str, module: Any) -> None:
    parent, _, last = target.rpartition(".")
    setattr(model.get_submodule(parent), last, module)


# ***** reference models *****


class _Reference:
    """Observers replaced by `quantize_per_tensor` and `dequantize`."""

    def __init__(self, model: Any) -> None:
        self.model, self.graph, self.modules = model, model.graph, dict(model.named_modules(remove_duplicate=False))
        self.names: dict[str, int] = {}

    def buffer(self, prefix: str, value: Any) -> Any:
        """A node that reads a new buffer of the model."""
        k = 0
        while hasattr(self.model, f"{prefix}{k}"):
            k += 1
        self.model.register_buffer(f"{prefix}{k}", value)
        return self.graph.get_attr(f"{prefix}{k}")

    def prefix_of(self, node: Any) -> str:
        """The module that an observer's value belongs to: that which made it, or that which takes it."""
        source = node.args[0]
        if source.op == "placeholder":
            user = next(iter(node.users), None)
            path = user.target if user is not None and user.op == "call_module" else self._scope(user)
            return f"{path}_input" if path else "_input"
        return source.target if source.op == "call_module" else self._scope(source)

    def _scope(self, node: Any) -> str:
        return "" if node is None else self.model._scopes.get(node.name, "")

    def replace(self, node: Any) -> None:
        """One observer."""
        watch = self.modules[node.target]
        source = node.args[0]
        if isinstance(watch, (PlaceholderObserver, NoopObserver)):
            node.replace_all_uses_with(source)
            self.graph.erase_node(node)
            return
        scale, zero = watch.calculate_qparams()
        path = self.prefix_of(node).replace(".", "_")
        with self.graph.inserting_before(node):
            if watch.qscheme in _CHANNELS:
                numbers = self.buffer(f"{path}_scale_", scale.double()), self.buffer(f"{path}_zero_point_", zero.long())
                made = self.graph.call_function(
                    torch.quantize_per_channel, (source, *numbers, watch.ch_axis, watch.dtype)
                )
            else:
                numbers = (
                    self.buffer(f"{path}_scale_", torch.tensor(float(scale))),
                    self.buffer(f"{path}_zero_point_", torch.tensor(int(zero))),
                )
                made = self.graph.call_function(torch.quantize_per_tensor, (source, *numbers, watch.dtype))
            back = self.graph.call_method("dequantize", (made,))
        node.replace_all_uses_with(back)
        self.graph.erase_node(node)

    def module(self, node: Any) -> None:
        """One module with a weight: its reference module, or the quantized one where that takes floats."""
        module = self.modules[node.target]
        qconfig = getattr(module, "qconfig", None)
        if qconfig is None or _is_activation_post_process(module):
            return
        watch = getattr(module, "weight_fake_quant", None)
        if watch is not None:
            module = module.to_float()
        made, layer = module, module[0] if isinstance(module, nni._FusedModule) else module
        activation = qconfig.activation()
        if type(made) in DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS and getattr(activation, "is_dynamic", False):
            made.qconfig = qconfig
            made = DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS[type(made)].from_float(made)
        elif type(layer) in (nn.Embedding, nn.EmbeddingBag):
            layer.qconfig = qconfig
            made = DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS[type(layer)].from_float(layer)
        elif type(layer) in WEIGHTED:
            watch = qconfig.weight() if watch is None else watch
            if not hasattr(watch, "qscheme") or watch.dtype is not torch.qint8:
                return
            watch(layer.weight.detach())
            scale, zero = watch.calculate_qparams()
            qparams = {
                "qscheme": watch.qscheme,
                "dtype": watch.dtype,
                "scale": scale,
                "zero_point": zero,
                "axis": getattr(watch, "ch_axis", 0),
            }
            reference = getattr(nnqr, type(layer).__name__).from_float(layer, qparams)
            if made is layer:
                made = reference
            else:
                made[0] = reference
        made.training = False
        _set(self.model, node.target, made)
        self.modules[node.target] = made

    def run(self) -> None:
        """The whole graph."""
        for node in list(self.graph.nodes):
            if is_observer(node, self.modules):
                self.replace(node)
        for target in dict.fromkeys(n.target for n in self.graph.nodes if n.op == "call_module"):
            self.module(next(n for n in self.graph.nodes if n.op == "call_module" and n.target == target))


def convert_to_reference(model: Any) -> Any:
    """The reference model of a prepared one: floats, rounded where integers will be."""
    scopes, custom = model._scopes, model._custom
    model = copy.deepcopy(model)
    model._scopes = scopes
    _Reference(model).run()
    _keep_quantized_results(model, custom)
    return _finished(model)


def _keep_quantized_results(model: Any, custom: Any) -> None:
    """Results that were asked for as integers are not made floats."""
    indexes = custom.output_quantized_indexes
    if not indexes:
        return
    output = next(n for n in model.graph.nodes if n.op == "output")
    values = output.args[0]
    many = isinstance(values, (list, tuple))
    items = list(values) if many else [values]
    for k in indexes:
        if items[k].op == "call_method" and items[k].target == "dequantize":
            items[k] = items[k].args[0]
    output.args = (type(values)(items) if many else items[0],)


def _finished(model: Any) -> Any:
    model.graph.eliminate_dead_code()
    for name in [n for n, m in model.named_children() if _is_activation_post_process(m)]:
        delattr(model, name)
    used = {n.target for n in model.graph.nodes if n.op == "get_attr"}
    for name in list(model._buffers):
        if ("_scale_" in name or "_zero_point_" in name) and name not in used:
            del model._buffers[name]
    model.graph.lint()
    made = QuantizedGraphModule(model, model.graph, class_name="GraphModule")
    for name in used:
        if name.startswith("_packed_weight_"):
            setattr(made, name, getattr(model, name))
    for module in made.modules():
        if hasattr(module, "qconfig"):
            del module.qconfig
    made.train(model.training)
    return made


# ***** operators on integers *****


class _Lowering:
    """Floats between `dequantize` and `quantize_per_tensor` replaced by operators on integers."""

    def __init__(self, model: Any) -> None:
        self.model, self.graph, self.modules = model, model.graph, dict(model.named_modules())
        self.packed = 0

    @staticmethod
    def source(node: Any) -> Any:
        """The quantized tensor that a node makes floats of; None for other nodes."""
        if getattr(node, "op", "") == "call_method" and node.target == "dequantize":
            return node.args[0]
        return None

    def replaced(self, args: Any) -> Any:
        """Arguments with quantized tensors in the place of their floats."""
        return torch.fx.map_arg(args, lambda n: self.source(n) if self.source(n) is not None else n)

    def floats(self, node: Any) -> list[Any]:
        """The arguments of a node that are floats made from integers."""
        return [n for n in node.all_input_nodes if self.source(n) is not None]

    def run(self) -> None:
        """The whole graph."""
        for node in list(self.graph.nodes):
            if node.op == "call_function" and node.target is torch.quantize_per_tensor:
                self.lower(node)
            elif kind_of(node, self.modules) in SIZES and self.floats(node):
                node.args = self.replaced(node.args)

    def lower(self, quantize: Any) -> None:
        """One `quantize_per_tensor`, with what it is made of."""
        last: Any = quantize.args[0]
        if last.op not in ("call_module", "call_function", "call_method") or len(last.users) != 1:
            return
        root: Any = last
        relu = False
        before: Any = last.args[0] if last.args else None
        if (
            kind_of(last, self.modules) in RELUS
            and getattr(before, "op", "") == "call_function"
            and len(before.users) == 1
        ):
            if before.target in PAIRS or before.target in WEIGHTED_FUNCTIONS:
                root, relu = before, True
        if not self.floats(root):
            return
        kind = kind_of(root, self.modules)
        if root.op == "call_module" and kind not in SHARED and kind not in FIXED:
            made = self.of_module(root, quantize)
        elif root.op == "call_function" and kind in PAIRS:
            made = self.of_pair(root, quantize, relu)
        elif root.op == "call_function" and kind in WEIGHTED_FUNCTIONS:
            made = self.of_weighted(root, quantize, relu)
        elif root.op == "call_function" and kind in OWN_FUNCTIONS:
            made = self.of_function(root, quantize)
        elif kind in SHARED or kind in FIXED:
            made = self.of_shared(root)
        else:
            return
        if made is None:
            return
        quantize.replace_all_uses_with(made)
        self.graph.erase_node(quantize)
        for node in (last, root):
            if node is not made and node in self.graph.nodes and not node.users:
                self.graph.erase_node(node)

    def parameters(self, quantize: Any) -> tuple[float, int]:
        """Scale and zero point of a `quantize_per_tensor`."""
        scale, zero = (getattr(self.model, n.target) for n in quantize.args[1:3])
        return float(scale), int(zero)

    def of_module(self, root: Any, quantize: Any) -> Any:
        """A module with a scale of its own."""
        module, parameters = self.modules[root.target], self.parameters(quantize)
        if type(module) in _FUSED and type(module[0]) in _OF_REFERENCE:
            made = _FUSED[type(module)].from_reference(module[0], *parameters)
        elif type(module) in _OF_REFERENCE:
            made = _OF_REFERENCE[type(module)].from_reference(module, *parameters)
        elif type(module) in _OWN:
            made = _OWN[type(module)].from_reference(module, *parameters)
        else:
            return None
        if sum(n.op == "call_module" and n.target == root.target for n in self.graph.nodes) > 1:
            return None  # called twice, by two scales
        _set(self.model, root.target, made)
        self.modules[root.target] = made
        root.args, root.kwargs = self.replaced(root.args), self.replaced(root.kwargs)
        return root

    def of_pair(self, root: Any, quantize: Any, relu: bool) -> Any:
        """A sum or a product."""
        name = PAIRS[root.target] + ("_relu" if relu else "")
        args = root.args[:2]
        tensors = [a for a in args if isinstance(a, torch.fx.Node)]
        if root.kwargs or any(self.source(a) is None for a in tensors):
            return None
        with self.graph.inserting_after(quantize.args[2] if len(tensors) == 2 else root):
            more = quantize.args[1:3] if len(tensors) == 2 else ()
            return self.graph.call_function(getattr(torch.ops.quantized, name), (*self.replaced(args), *more))

    def of_weighted(self, root: Any, quantize: Any, relu: bool) -> Any:
        """A linear layer or a convolution as a function of its weight: the weight is packed now."""
        bound = root.normalized_arguments(self.model, normalize_to_only_use_kwargs=True) if root.kwargs else None
        names = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
        given = dict(bound.kwargs) if bound is not None else dict(zip(names, root.args, strict=False))
        weight = self.source(given["weight"])
        if weight is None or weight.args[0].op != "get_attr" or self.source(given["input"]) is None:
            return None
        bias = given.get("bias")
        values = [self._attribute(n) for n in weight.args]
        held = weight.target(values[0].detach(), *values[1:])
        bias = self._attribute(bias)
        if root.target is torch.nn.functional.linear:
            packed = torch.ops.quantized.linear_prepack(held, bias)
        else:
            sizes = [given.get(n, d) for n, d in (("stride", 1), ("padding", 0), ("dilation", 1))]
            sizes = [(s,) if isinstance(s, int) else s for s in sizes]
            packed = torch.ops.quantized.conv2d_prepack(held, bias, *sizes, given.get("groups", 1))
        name = f"_packed_weight_{self.packed}"
        self.packed += 1
        setattr(self.model, name, packed)
        operator = getattr(torch.ops.quantized, WEIGHTED_FUNCTIONS[root.target] + ("_relu" if relu else ""))
        with self.graph.inserting_before(quantize.args[1]):
            node = self.graph.get_attr(name)
        with self.graph.inserting_before(quantize):
            return self.graph.call_function(operator, (self.source(given["input"]), node, *quantize.args[1:3]))

    def _attribute(self, node: Any) -> Any:
        if not isinstance(node, torch.fx.Node):
            return node
        if self.source(node) is not None:
            node = self.source(node).args[0]
        found = self.model
        for part in node.target.split("."):
            found = getattr(found, part)
        return found

    def of_function(self, root: Any, quantize: Any) -> Any:
        """A function whose result has a scale of its own."""
        name = OWN_FUNCTIONS[root.target]
        if name == "dropout":
            return self.source(root.args[0])
        args, kwargs = self.replaced(root.args), dict(self.replaced(root.kwargs))
        parameters = dict(zip(("output_scale", "output_zero_point"), quantize.args[1:3], strict=True))
        if name == "matmul":
            if len(self.floats(root)) != len(set(root.args)):
                return None
            args, parameters = (*args, *quantize.args[1:3]), {}
        elif name in ("hardswish", "elu", "leaky_relu"):
            kwargs.pop("inplace", None)
            if name == "leaky_relu":
                kwargs = {
                    "negative_slope": kwargs.get("negative_slope", args[1] if len(args) > 1 else 0.01),
                    "inplace": False,
                }
            elif name == "elu":
                kwargs = {"alpha": kwargs.get("alpha", args[1] if len(args) > 1 else 1.0)}
            args = args[:1]
        elif name == "layer_norm":
            order = ("normalized_shape", "weight", "bias", "eps")
            given = dict(zip(order, args[1:], strict=False)) | kwargs
            args, kwargs = (args[0], *(given.get(n, 1e-5 if n == "eps" else None) for n in order)), {}
        else:
            return None
        with self.graph.inserting_before(quantize):
            return self.graph.call_function(getattr(torch.ops.quantized, name), args, {**kwargs, **parameters})

    def of_shared(self, root: Any) -> Any:
        """The integer form of a node that chooses, moves or averages numbers."""
        root.args, root.kwargs = self.replaced(root.args), self.replaced(root.kwargs)
        return root


def convert(model: Any) -> Any:
    """The quantized model of a prepared one."""
    scopes, custom = model._scopes, model._custom
    model = copy.deepcopy(model)
    model._scopes = scopes
    _Reference(model).run()
    _keep_quantized_results(model, custom)
    model.graph.eliminate_dead_code()
    _Lowering(model).run()
    return _finished(model)

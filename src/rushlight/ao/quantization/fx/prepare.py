"""Preparing a graph: each value that will be of integers gets an observer."""

from __future__ import annotations

import copy
from typing import Any

from rushlight import nn
from rushlight.ao.nn.intrinsic import qat as nniqat
from rushlight.ao.quantization.backend_config.configs import ObservationType
from rushlight.ao.quantization.backend_config.native import RELUS, WEIGHTED_FUNCTIONS
from rushlight.ao.quantization.fake_quantize import FakeQuantizeBase
from rushlight.ao.quantization.fx._equalize import is_equalization_observer
from rushlight.ao.quantization.fx.fuse import kind_of
from rushlight.ao.quantization.fx.graph_module import ObservedGraphModuleAttrs
from rushlight.ao.quantization.fx.utils import assert_and_get_unique_device, get_new_attr_name_with_prefix
from rushlight.ao.quantization.observer import ObserverBase, ReuseInputObserver

__all__ = ["is_observer", "prepare"]

_SIZES = ("size", "dim", "numel")


def is_observer(node: Any, modules: dict[str, Any]) -> bool:
    """Whether a node calls an observer."""
    return node.op == "call_module" and isinstance(modules.get(node.target), (ObserverBase, FakeQuantizeBase))


class _Preparer:
    """Observers for one graph."""

    def __init__(
        self, model: Any, mapping: Any, scopes: dict[str, Any], backend_config: Any, custom: Any, is_qat: bool
    ) -> None:
        self.model, self.mapping, self.scopes, self.custom, self.is_qat = model, mapping, scopes, custom, is_qat
        self.modules = dict(model.named_modules())
        self.patterns = {c.pattern: c for c in backend_config.configs}
        self.count = 0
        self.observed: dict[Any, Any] = {}  # node -> the observer's node
        self.kinds_of: dict[str, tuple[Any, ...]] = {}
        self.indices: dict[Any, int] = {}
        self.qconfigs: dict[str, Any] = {}

    # ***** qconfigs *****

    def names_of(self, node: Any) -> list[str]:
        """The modules that a node is in, outermost first; its own module is the last."""
        path = node.target if node.op == "call_module" else self.scopes.get(node.name, ("", None))[0]
        parts = path.split(".") if path else []
        return [".".join(parts[: k + 1]) for k in range(len(parts))]

    def qconfig_of(self, node: Any) -> Any:
        """The qconfig of a node."""
        kind = kind_of(node, self.modules)
        kinds: list[Any] = [kind]
        if node.op == "call_module":
            module = self.modules[node.target]
            inner = module[0] if isinstance(module, nn.Sequential) and len(module) else None
            kinds = [type(inner), kind] if inner is not None else kinds
            for base in type(module).__mro__[1:]:  # a trained module as the float one that it was
                if base in self.mapping.object_type_qconfigs and type(module).__module__.partition(".")[2].startswith(
                    "ao.nn"
                ):
                    kinds.insert(0, base)
        scope = self.scopes.get(node.name, ("", None))[0]
        index = self.indices.get((scope, kind), 0)
        self.indices[scope, kind] = index + 1
        return self.mapping._for_names(self.names_of(node), tuple(kinds), index)

    # ***** observers *****

    def add(self, after: Any, observer: Any) -> Any:
        """A node that calls an observer with `after`."""
        name = f"activation_post_process_{self.count}"
        while hasattr(self.model, name):
            self.count += 1
            name = f"activation_post_process_{self.count}"
        self.count += 1
        self.model.add_submodule(name, observer)
        self.modules[name] = observer
        with self.model.graph.inserting_after(after):
            node = self.model.graph.call_module(name, (after,))
        return node

    def is_value(self, node: Any) -> bool:
        """Whether a node is a tensor, not a size."""
        if node.op == "call_method" and node.target in _SIZES:
            return False
        name = getattr(node.target, "__name__", "")
        if node.op == "call_function" and name == "getattr":
            return node.args[1] not in ("shape", "ndim", "dtype", "device")
        if node.op == "call_function" and name in ("getitem", "floordiv", "add", "mul", "sub", "mod", "int", "len"):
            inputs = node.all_input_nodes
            return not inputs or any(self.is_value(n) for n in inputs)
        return True

    def input_observer(self, arg: Any, qconfig: Any, weight: bool) -> Any:
        """The observed form of an input of a pattern."""
        if is_observer(arg, self.modules) or not self.is_value(arg):
            return arg
        if arg.op == "placeholder":
            place = [n for n in self.model.graph.nodes if n.op == "placeholder"].index(arg)
            if place in self.custom.input_quantized_indexes:
                return arg
        if arg not in self.observed:
            self.observed[arg] = self.add(arg, (qconfig.weight if weight else qconfig.activation)())
        return self.observed[arg]

    def chain(self, node: Any) -> tuple[list[Any], Any] | None:
        """The pattern that begins at a node, and its nodes: with a ReLU behind it where that is one pattern."""
        kind = kind_of(node, self.modules)
        users = list(node.users)
        if len(users) == 1 and kind_of(users[0], self.modules) in RELUS:
            relu = kind_of(users[0], self.modules)
            if (kind, relu) in self.patterns:
                return [node, users[0]], self.patterns[kind, relu]
        if kind in self.patterns:
            return [node], self.patterns[kind]
        if node.op == "call_module" and (
            type(self.modules[node.target]) in nniqat.__dict__.values()
            or hasattr(self.modules[node.target], "weight_fake_quant")
        ):
            return [node], None
        return None

    def observe(self) -> None:
        """Give every pattern its observers."""
        taken: set[Any] = set()
        for node in list(self.model.graph.nodes):
            if (
                node in taken
                or node.op not in ("call_module", "call_function", "call_method")
                or is_observer(node, self.modules)
            ):
                continue
            hit = self.chain(node) if self.is_value(node) else None
            if hit is None:
                continue
            qconfig = self.qconfig_of(node)
            if qconfig is None:
                continue
            nodes, config = hit
            taken.update(nodes)
            if node.op == "call_module":
                self.modules[node.target].qconfig = qconfig
            if self.is_static(qconfig, node):
                self.pattern(nodes, config, qconfig)

    def is_static(self, qconfig: Any, node: Any) -> bool:
        """Whether results become integers: not for dynamic, weight-only and float16 kinds."""
        watch = qconfig.activation()
        if isinstance(watch, nn.Identity) or getattr(watch, "is_dynamic", False):
            return False
        if isinstance(watch, ReuseInputObserver):
            return True
        return str(watch.dtype).rpartition(".")[2] in ("quint8", "qint8")

    def pattern(self, nodes: list[Any], config: Any, qconfig: Any) -> None:
        """Observers of one pattern: its inputs, and its result."""
        root, last = nodes[0], nodes[-1]
        how = config.observation_type if config is not None else ObservationType.OUTPUT_USE_DIFFERENT_OBSERVER_AS_INPUT
        if how is ObservationType.INPUT_OUTPUT_NOT_OBSERVED:
            return
        tensors = [n for n in root.all_input_nodes if self.is_value(n)]
        if config is not None and config._num_tensor_args_to_observation_type:
            how = config._num_tensor_args_to_observation_type.get(len([a for a in root.args if a in tensors]), how)
        if how is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT and not any(
            is_observer(t, self.modules) for t in tensors
        ):
            if root.target not in ("relu", "relu_") and isinstance(qconfig.activation(), ReuseInputObserver):
                return
        weights = root.args[1:2] if root.target in WEIGHTED_FUNCTIONS else ()
        skipped = root.args[2:3] if root.target in WEIGHTED_FUNCTIONS else ()
        if getattr(root.target, "__name__", "") in ("layer_norm", "instance_norm", "group_norm", "batch_norm"):
            skipped = tuple(n for n in root.all_input_nodes if n.op == "get_attr")
        for arg in root.all_input_nodes:
            if arg in skipped:
                continue
            seen = self.input_observer(arg, qconfig, arg in weights)
            if seen is not arg:
                root.replace_input_with(arg, seen)
        self.result(last, root, how, qconfig)

    def result(self, last: Any, root: Any, how: ObservationType, qconfig: Any) -> None:
        users = list(last.users)
        shared = how is ObservationType.OUTPUT_SHARE_OBSERVER_WITH_INPUT
        inputs = [n for n in root.all_input_nodes if is_observer(n, self.modules)]
        if shared or isinstance(qconfig.activation(), ReuseInputObserver):
            if not inputs:
                return
            observer = self.modules[inputs[0].target]
            for other in inputs[1:]:  # tensors that are joined have one scale
                setattr(self.model, other.target, observer)
                self.modules[other.target] = observer
        else:
            observer = qconfig.activation()
        node = self.add(last, observer)
        for user in users:
            user.replace_input_with(last, node)
        self.observed[last] = node


def _trained(model: Any, backend_config: Any, preparer: _Preparer) -> None:
    """Modules with a qconfig become ones with a rounded weight."""
    table = {c.pattern: c.qat_module for c in backend_config.configs if c.qat_module is not None}
    for node in model.graph.nodes:
        if node.op != "call_module":
            continue
        module = preparer.modules[node.target]
        if type(module) in table:
            qconfig = preparer.qconfig_of(node)
            if qconfig is None:
                continue
            module.qconfig = qconfig
            made = table[type(module)].from_float(module)
            parent, _, last = node.target.rpartition(".")
            setattr(model.get_submodule(parent), last, made)
            preparer.modules[node.target] = made
    preparer.indices.clear()


def prepare(model: Any, mapping: Any, scopes: dict[str, Any], backend_config: Any, custom: Any, is_qat: bool) -> Any:
    """The graph module with observers, in place."""
    preparer = _Preparer(model, copy.deepcopy(mapping), scopes, backend_config, custom, is_qat)
    if is_qat:
        _trained(model, backend_config, preparer)
    for node in model.graph.nodes:
        if node.op == "call_module" and type(preparer.modules[node.target]) in custom.float_to_observed_mapping:
            module = preparer.modules[node.target]
            module.qconfig = preparer.qconfig_of(node)
            made = custom.float_to_observed_mapping[type(module)].from_float(module)
            parent, _, last = node.target.rpartition(".")
            setattr(model.get_submodule(parent), last, made)
    preparer.observe()
    model.graph.lint()
    model.recompile()
    model._scopes = {n.name: scopes.get(n.name, ("", None))[0] for n in model.graph.nodes}
    model._custom, model._is_qat = custom, is_qat
    return model


# ***** for quantizers of exported graphs *****


def _insert_obs_or_fq(
    node: Any, obs_or_fq: Any, model: Any, named_modules: dict[str, Any], graph: Any, model_device: Any = None
) -> Any:
    """A node behind `node` that calls an observer, which becomes a module of the model on its device."""
    device = assert_and_get_unique_device(model) if model_device is None else model_device
    if device:
        obs_or_fq.to(device)
    equalizes = is_equalization_observer(obs_or_fq)
    name = get_new_attr_name_with_prefix(
        f"{node.name}_equalization_process_" if equalizes else "activation_post_process_"
    )(model)
    setattr(model, name, obs_or_fq)
    named_modules[name] = obs_or_fq
    with graph.inserting_after(node):
        return graph.create_node("call_module", name, (node,), {})


def _save_state(observed: Any, *notes: Any) -> None:
    """Note in the metadata of a prepared module what conversion asks for, in the order of `ObservedGraphModuleAttrs`."""
    observed.meta["_observed_graph_module_attrs"] = ObservedGraphModuleAttrs(*notes)

"""The work of a model in one step, layer by layer: found by running it on tensors without memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.dispatch import Observer, observe, unobserve
from rushlight.distributed.tensor.debug._modules import ROOT, Modules
from rushlight.func import functional_call
from rushlight.nn import Module
from rushlight.utils._pytree import tree_flatten, tree_map
from rushlight.utils.flop_counter import backward_counts, forward_counts

__all__ = ["Layer", "ModelWork", "Work", "model_work"]


@dataclass
class Work:
    """Floating point operations of products, bytes read and written by everything else, and calls of operators."""

    flops: float = 0.0
    nbytes: float = 0.0
    calls: int = 0

    def scaled(self, factor: float) -> Work:
        """The work of `factor` times the data; calls stay."""
        return Work(self.flops * factor, self.nbytes * factor, self.calls)


@dataclass
class Layer:
    """A module with work of its own: its parameters, its work, and what it keeps for backward (bytes)."""

    name: str
    kind: str = ""
    elements: int = 0  # of its parameters
    itemsize: int = 4  # bytes of one of them
    forward: Work = field(default_factory=Work)
    backward: Work = field(default_factory=Work)
    saved: float = 0.0
    given: float = 0.0  # bytes of its inputs
    made: float = 0.0  # bytes of its outputs


@dataclass
class ModelWork:
    """The layers of a model in the order in which they run, for a batch of `batch` items."""

    layers: list[Layer]
    batch: int

    @property
    def elements(self) -> int:
        """How many parameters the model has."""
        return sum(layer.elements for layer in self.layers)

    @property
    def flops(self) -> float:
        """Of a step, forward and backward."""
        return sum(layer.forward.flops + layer.backward.flops for layer in self.layers)

    def scaled(self, batch: float) -> list[Layer]:
        """The layers for another batch: all but calls and parameters grows with it."""
        factor = batch / self.batch
        return [
            replace(
                layer, forward=layer.forward.scaled(factor), backward=layer.backward.scaled(factor), saved=layer.saved * factor,
                given=layer.given * factor, made=layer.made * factor,
            )
            for layer in self.layers
        ]  # fmt: skip


def _bytes_of(value: Any) -> int:
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in tree_flatten(value)[0] if isinstance(x, Tensor))


class _Named(Modules):
    """Names modules by their paths in the model, whether what they are in is called or not."""

    def __init__(self, model: Module) -> None:
        super().__init__()
        root = type(model).__name__
        for name, module in model.named_modules():
            self._names[module] = f"{root}.{name}" if name else root


class _Meter(Observer):
    """Adds what runs to the layer of the module that is computed."""

    def __init__(self, modules: Modules, layers: dict[str, Layer]) -> None:
        self.modules, self.layers = modules, layers

    def layer(self) -> Layer:
        """That of the innermost module."""
        name = self.modules.current
        return self.layers.setdefault(name, Layer(name))

    def enter(self, kind: str, name: str, given: Callable[[], list[tuple[str, Any]]], subject: Any) -> Any:
        """A call begins."""
        return kind, given, subject

    def leave(self, mark: Any, made: Any) -> None:
        """A call ends: only calls with a kernel of their own count."""
        kind, given, subject = mark
        if made is None or subject is None:
            return
        if kind == "operator":
            op, template, inputs = subject
            work = self.layer().backward if self.modules.is_bw else self.layer().forward
            work.calls += 1
            if op.kind != "view":
                flops = sum(forward_counts(op, template, inputs, made).values())
                work.flops += flops
                if not flops:  # products read and write while they compute
                    work.nbytes += _bytes_of([v for _, v in given()]) + _bytes_of(made)
        elif kind == "node" and getattr(subject, "info", None) is not None:
            info = subject.info
            work = self.layer().backward
            work.calls += 1
            if info.origin is None or info.origin[0].kind != "view":
                flops = sum(backward_counts(subject).values())
                work.flops += flops
                work.nbytes += (
                    0
                    if flops
                    else sum(math.prod(v.shape) * v.dtype.itemsize for v in info.graph.inputs) + _bytes_of(made)
                )


def model_work(
    model: Module, args: Any, kwargs: Mapping[str, Any] | None = None, loss: Callable[[Any], Tensor] | None = None
) -> ModelWork:
    """The layers of a model: it runs forward and backward once on meta tensors of the shapes of `args`.

    `args` is a tensor or a tuple; the first dim of the first tensor is the batch.  `loss` makes a number of the outputs
    (without it: the sum of the first one).  Nothing is computed, so models of any size can be looked at; what reads numbers
    of tensors, as data-dependent control flow does, raises as on meta tensors.

    Example: `model_work(torch.nn.Linear(4, 2), torch.empty(8, 4)).flops`
    """
    args = args if isinstance(args, tuple) else (args,)
    given = tree_map(_on_meta, args)
    batch = next((x.shape[0] for x in tree_flatten(given)[0] if isinstance(x, Tensor) and x.ndim), 1)
    held = {name: _on_meta(p) for name, p in model.named_parameters()}
    own: dict[str, Tensor] = {**held, **{name: _on_meta(b) for name, b in model.named_buffers()}}
    modules, layers = _Named(model), dict[str, Layer]()
    meter, saved = _Meter(modules, layers), _Saved(modules, layers, list(own.values()))
    hooks = _Flows(modules, layers)
    with modules, rushlight.autograd.graph.saved_tensors_hooks(saved.pack, lambda x: x):
        hooks.begin(model)
        observe(meter)
        try:
            made = functional_call(model, own, given, dict(tree_map(_on_meta, kwargs or {})))
            (_first(made).sum() if loss is None else loss(made)).backward()
        finally:
            unobserve(meter)
            hooks.end()
        _add_parameters(model, modules, layers)
    return ModelWork([layer for name, layer in layers.items() if name != ROOT or layer.elements], batch)


def _on_meta(value: Any) -> Any:
    return value.detach().to("meta").requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value


def _first(made: Any) -> Tensor:
    return next(x for x in tree_flatten(made)[0] if isinstance(x, Tensor) and x.is_floating_point())


def _add_parameters(model: Module, modules: Modules, layers: dict[str, Layer]) -> None:
    """Each parameter counts in the first module that has it."""
    seen: set[int] = set()
    for module in model.modules():
        name = modules.name_of(module)
        for parameter in module._parameters.values():
            if parameter is None or id(parameter) in seen:
                continue
            seen.add(id(parameter))
            layer = layers.setdefault(name, Layer(name))
            layer.kind = type(module).__name__
            layer.elements += parameter.numel()
            layer.itemsize = parameter.dtype.itemsize


class _Saved:
    """Bytes that autograd keeps, each memory once; parameters are there in any case."""

    def __init__(self, modules: Modules, layers: dict[str, Layer], parameters: Sequence[Tensor]) -> None:
        self.modules, self.layers = modules, layers
        self.seen: dict[int, Any] = {id(x): x for x in parameters}  # tensors that own memory

    def pack(self, x: Tensor) -> Tensor:
        """Something is kept."""
        owner = x if x._base is None else x._base
        if id(owner) not in self.seen:
            self.seen[id(owner)] = owner
            name = self.modules.current
            self.layers.setdefault(name, Layer(name)).saved += _bytes_of(x)
        return x


class _Flows:
    """Bytes that go into modules and come out."""

    def __init__(self, modules: Modules, layers: dict[str, Layer]) -> None:
        self.modules, self.layers = modules, layers
        self.handles: list[Any] = []

    def begin(self, model: Module) -> None:
        """Watch all modules."""
        for module in model.modules():
            self.handles.append(module.register_forward_hook(self._passed))

    def end(self) -> None:
        """Watch no more."""
        for handle in self.handles:
            handle.remove()

    def _passed(self, module: Module, args: Any, made: Any) -> None:
        name = self.modules.name_of(module)
        layer = self.layers.setdefault(name, Layer(name)) if name in self.layers else None
        if layer is not None:
            layer.kind = type(module).__name__
            layer.given, layer.made = _bytes_of(args), _bytes_of(made)

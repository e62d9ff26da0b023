"""The interface of `onnx.backend.base`: models run by rushlight, with NumPy arrays going in and out.

`onnx.backend.test` takes this module as a backend.  For work with models use `rushlight.onnx.load`, which gives a
module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight as torch
from rushlight.onnx.importing.graph import Graph, Model, find_latest
from rushlight.onnx.importing.module import OnnxModule, load
from rushlight.onnx.importing.values import from_numpy, to_numpy

__all__ = ["BackendRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]


class BackendRep:
    """A prepared model; `run(inputs)` returns the outputs as a tuple of arrays."""

    def __init__(self, module: OnnxModule) -> None:
        self.module = module

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run on arrays in the order of the graph's inputs, or on a dict by name."""
        if kwargs:
            raise TypeError(f"unknown options {sorted(kwargs)}")
        named: dict[str, Any] = {}
        if isinstance(inputs, dict):
            named, inputs = inputs, ()
        elif not isinstance(inputs, (list, tuple)):
            inputs = (inputs,)
        with torch.no_grad():
            return tuple(to_numpy(value) for value in self.module.run(inputs, named))


def prepare(model: Any, device: str = "CPU", **kwargs: Any) -> BackendRep:
    """A model (as for `rushlight.onnx.load`), ready to be run."""
    if not supports_device(device):
        raise ValueError(f"device {device!r} is not supported")
    return BackendRep(load(model, **kwargs))


def run_model(model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
    """Prepare a model and run it once."""
    return prepare(model, device, **kwargs).run(inputs)


def run_node(
    node: Any, inputs: Sequence[Any], device: str = "CPU", outputs_info: Any = None, *, opset_version: int | None = None
) -> tuple[Any, ...]:
    """Run one node on arrays; `opset_version` is the version of its operator set, by default the latest."""
    if not supports_device(device):
        raise ValueError(f"device {device!r} is not supported")
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = opset_version or find_latest(domain) or 1
    graph = Graph(
        Model({domain: version}),
        [node],
        list(dict.fromkeys(filter(None, node.input))),
        [name for name in node.output if name],
    )
    values = dict(zip([name for name in node.input if name], map(from_numpy, inputs)))
    with torch.no_grad():
        return tuple(to_numpy(value) for value in graph.run([values[name] for name in graph.inputs]))


def supports_device(device: str) -> bool:
    """Whether models run on a device: `"CPU"`, with or without a number."""
    return device.partition(":")[0].upper() == "CPU"


def is_compatible(model: Any, device: str = "CPU", **kwargs: Any) -> bool:
    """Whether a model can be prepared."""
    try:
        prepare(model, device, **kwargs)
    except (NotImplementedError, ValueError):
        return False
    return True

"""Simplifications that constant initializers allow: batch normalisation folded into the convolution before it, and a
choice of layout.

Folded products round otherwise than the two nodes: results agree to about 1e-6 of the largest value.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import rushlight as torch
from rushlight.onnx.importing.graph import Graph, Step
from rushlight.onnx.importing.values import tensor

__all__ = ["favours_channels_last", "fold_batch_norms"]

FEW_CHANNELS = 4  # of images that a first convolution reads


def fold_batch_norms(graph: Graph) -> int:
    """Fold every batch normalisation that follows a convolution whose output nothing else reads; how many there were."""
    uses = Counter(name for step in graph.steps for name in step.reads)
    uses.update(graph.outputs)
    makers = {step.outputs[0]: step for step in graph.steps if step.op == "Conv" and not step.domain}
    kept, count = [], 0
    for step in graph.steps:
        conv = makers.get(step.inputs[0]) if step.op == "BatchNormalization" and not step.domain else None
        if conv is None or uses[step.inputs[0]] != 1 or not _foldable(graph, conv, step):
            kept.append(step)
            continue
        _fold(graph, conv, step)
        # The next one may fold into the same convolution.
        makers[conv.outputs[0]] = conv
        count += 1
    graph.steps = kept
    graph.set_ends()
    return count


def _foldable(graph: Graph, conv: Step, norm: Step) -> bool:
    """Whether all operands are constants, and the normalisation uses the statistics it is given."""
    constants = [*conv.inputs[1:], *norm.inputs[1:]]
    known = all(name in graph.constants for name in constants if name)
    trains = norm.attributes.get("training_mode", 0) or len(norm.outputs) > 1 or not norm.attributes.get("spatial", 1)
    return known and not trains


def _fold(graph: Graph, conv: Step, norm: Step) -> None:
    def value(name: str) -> Any:
        return tensor(graph.constants[name])

    weight = value(conv.inputs[1])
    scale, shift, mean, variance = (value(name).to(torch.float64) for name in norm.inputs[1:5])
    # The factors in float64, so that each folded number is rounded once.
    factor = scale / torch.sqrt(variance + norm.attributes.get("epsilon", 1e-5))
    bias = value(conv.inputs[2]).to(torch.float64) if len(conv.inputs) > 2 else torch.zeros_like(mean)
    folded = weight.to(torch.float64) * factor.reshape(-1, *[1] * (weight.ndim - 1))
    names = [f"{norm.outputs[0]}.folded_weight", f"{norm.outputs[0]}.folded_bias"]
    graph.constants[names[0]] = folded.to(weight.dtype)
    graph.constants[names[1]] = ((bias - mean) * factor + shift).to(weight.dtype)
    conv.rewire([conv.inputs[0], *names], norm.outputs[:1])


def favours_channels_last(graph: Graph) -> bool:
    """Whether all convolutions of images are pointwise, depthwise, or read few channels, as in MobileNets.

    With channels last a pointwise convolution has its weight on the right of a product, whose columns are then
    channels: they fill vectors whatever the size of the image.
    """
    convs = [step for step in graph.steps if step.op == "Conv" and not step.domain]
    pointwise = 0
    for step in convs:
        if step.inputs[1] not in graph.constants:
            return False
        shape = tensor(graph.constants[step.inputs[1]]).shape
        if len(shape) != 4 or shape[1] > FEW_CHANNELS and shape[2:] != (1, 1):
            return False
        pointwise += shape[1] > FEW_CHANNELS
    return pointwise > len(convs) // 2

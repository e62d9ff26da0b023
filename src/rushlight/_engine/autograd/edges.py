"""What a node shows of its inputs: one place for each argument that could have a gradient, also where it has none.

The graph itself holds only the edges along which gradients flow; users see the others as (None, 0).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from rushlight._engine.lower import Literal, Slot
from rushlight._ops.table import Operator
from rushlight._types.spec import Spec

__all__ = ["argument_places", "call_fact", "is_flat", "saved_names"]

# Arguments that have no gradient whatever their dtype: statistics, weights of classes, places.
_WITHOUT = frozenset((
    "attn_mask", "condition", "ind", "index", "indices", "mask", "per_sample_weights", "pos_weight", "running_mean", "running_var", "sorted_sequence",
    "boundaries", "pivots", "LU_pivots", "repeats", "offsets", "atol", "rtol", "_random_samples",
))  # fmt: skip
# Operators with a form of their own for a Python number in place of a tensor: it is no argument of the node.
_NUMBER_FORMS = frozenset((
    "clamp", "clamp_max", "clamp_min", "copysign", "fill", "float_power", "fmod", "index_fill", "lerp", "masked_fill", "pow", "remainder", "rsub", "scatter",
    "xlog1py", "xlogy", "zeta",
))  # fmt: skip
# Operators that PyTorch makes of several: their node, the last one's, has no places for what the others take.
_COMPOUND = frozenset((
    "bilinear", "cosine_similarity", "cross_entropy", "kl_div", "l1_loss", "multi_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "normalize",
    "pairwise_distance", "soft_margin_loss", "triplet_margin_loss",
))  # fmt: skip
_WEIGHTED = frozenset(("binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss", "mse_loss"))  # a weight gets no gradient
# Operators whose node PyTorch takes from others, which have their arguments in another order.
_ORDERS = {"linear": (2, 0, 1)}


_RESHAPED = ("View", "UnsafeView", "Squeeze", "Mean")
# Nodes whose gradient is differentiated again by the argument, with zeros as the result, although it does not depend on it.
_FLAT = re.compile(
    r"(Relu|LeakyRelu|PreluKernel|Hardtanh|Threshold|Softshrink|Hardshrink|NllLoss(2D)?|"
    r"(Adaptive)?(Avg|Max)Pool\dD(WithIndices)?|(Reflection|Replication)Pad\dD)Backward\d"
)
_FLAT_OPERATORS = frozenset(("avg_pool1d", "adaptive_avg_pool1d"))  # their nodes are named after the view that PyTorch ends them with


def argument_places(op: Operator, template: Sequence[Any], specs: Sequence[Spec], wrt: Sequence[int], name: str = "") -> tuple[int | None, ...]:
    """For each argument that could have a gradient the number of its edge, or None where it has none."""
    if op.public in _COMPOUND or (name.startswith(_RESHAPED) and len(specs) > 1):
        return tuple(range(len(wrt)))
    edge_of_tensor = {tensor: edge for edge, tensor in enumerate(wrt)}
    groups: list[list[int | None]] = []
    at = 0
    for argument, item in zip(op.schema.arguments, template, strict=True):
        groups.append([])
        if argument.name == "weight" and op.public in _WEIGHTED and not (isinstance(item, Slot) and at in edge_of_tensor):
            at += isinstance(item, Slot)
            continue
        if isinstance(item, Slot) and item.kind in ("tensor", "list"):
            for tensor in range(at, at + item.count):
                if tensor in edge_of_tensor or (argument.name not in _WITHOUT and _may_differ(op, argument.name, specs[tensor])):
                    groups[-1].append(edge_of_tensor.get(tensor))
            at += item.count
        elif argument.base == "Tensor" and argument.name not in _WITHOUT and not argument.is_sequence and op.public not in _ORDERS:
            number = isinstance(item, Slot) or (isinstance(item, Literal) and item.value is not None)
            if op.public not in _NUMBER_FORMS or not number and op.public == "clamp" and len(specs) > 1:
                groups[-1].append(None)
    order = _ORDERS.get(op.public, range(len(groups)))
    return tuple([place for g in order for place in groups[g]])


@cache
def is_flat(node: str, operator: str | None) -> bool:
    """Whether second derivatives by the arguments are zeros that belong to the graph; elsewhere no path leads to them."""
    return _FLAT.fullmatch(node) is not None or (operator in _FLAT_OPERATORS and node.startswith("Squeeze"))


def _may_differ(op: Operator, name: str, spec: Spec) -> bool:
    """Whether an argument could have a gradient: one of float dtype, or one that is converted to the dtype of the others."""
    if spec.dtype.is_floating_point or spec.dtype.is_complex:
        return True
    return op.promote in ("same", "float") and (op.promote_over is None or name in op.promote_over)


_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
_FACTS: dict[str, Any] = {
    "sym_sizes": lambda spec: tuple(spec.shape), "sym_strides": lambda spec: tuple(spec.strides), "sym_numel": lambda spec: spec.numel,
    "scalar_type": lambda spec: spec.dtype,
}  # fmt: skip


def call_fact(op: Operator, template: Sequence[Any], specs: Sequence[Spec], name: str) -> Any:
    """What PyTorch's nodes know of a call besides tensors: `dim`, `keepdim`, ..., `self_sym_sizes`; KeyError for other names.

    Ints are without a sign, as PyTorch shows them: dim -1 is 2**64 - 1.
    """
    subject, _, fact = name.partition("_sym_") if "_sym_" in name else name.partition("_scalar_")
    fact = name[len(subject) + 1 :]
    at = 0
    for argument, item in zip(op.schema.arguments, template, strict=True):
        shown = "self" if argument is op.schema.arguments[0] and argument.name == "input" else argument.name
        if isinstance(item, Slot) and item.kind in ("tensor", "list"):
            if item.kind == "tensor" and shown == subject and fact in _FACTS:
                return _FACTS[fact](specs[at])
            at += item.count
        elif shown == name and not isinstance(item, Slot):
            value = item.value if isinstance(item, Literal) else item
            if name == "reduction":
                return _REDUCTIONS.get(value, value)
            if argument.base == "int":
                value = (value,) if argument.is_sequence and type(value) is int else value
                return tuple(v % 2**64 for v in value) if isinstance(value, tuple) else value % 2**64 if type(value) is int else value
            return value
    raise KeyError(name)


def saved_names(op: Operator, template: Sequence[Any], sources: Sequence[tuple[str, int]] | None = None) -> list[str | None]:
    """What users call the values that a node keeps: `self`, `other`, ..., `result`; None for values that have no name.

    Without `sources`, the names of all values that it could keep.
    """
    names: list[str] = []
    numbers: list[str] = []
    for argument, item in zip(op.schema.arguments, template, strict=True):
        name = "self" if argument is op.schema.arguments[0] and argument.name == "input" else argument.name
        if isinstance(item, Slot):
            (names if item.kind in ("tensor", "list") else numbers).extend([name] * (item.count if item.kind == "list" else 1))
    names += numbers
    results = op.schema.results
    if sources is None:
        return [*names, *(["result"] if len(results) == 1 else [f"result{i}" for i in range(len(results))])]
    found: list[str | None] = []
    for kind, number in sources:
        if kind == "input":
            found.append(names[number] if number < len(names) else None)
        else:
            found.append(None if kind != "output" else "result" if len(results) == 1 else f"result{number}")
    return found

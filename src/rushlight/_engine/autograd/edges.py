"""`next_functions` of a node: one entry for each argument that could have a gradient, also if it has none.

The graph itself holds only edges along which gradients flow; users see the others as (None, 0).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from rushlight._engine.dispatch.lower import Literal, Slot
from rushlight._ops.table import Operator
from rushlight._types.spec import Spec

__all__ = ["are_operands", "argument_places", "is_flat"]

# Arguments that have no gradient for any dtype: statistics, class weights, indices.
_WITHOUT = frozenset((
    "attn_mask", "condition", "ind", "index", "indices", "mask", "per_sample_weights", "pos_weight", "running_mean", "running_var", "sorted_sequence",
    "boundaries", "pivots", "LU_pivots", "repeats", "offsets", "atol", "rtol", "_random_samples",
))  # fmt: skip
# Operators with a separate overload for a Python number in place of a tensor: the number is no argument of the node.
_NUMBER_FORMS = frozenset((
    "clamp", "clamp_max", "clamp_min", "copysign", "fill", "float_power", "fmod", "index_fill", "lerp", "masked_fill", "pow", "remainder", "rsub", "scatter",
    "xlog1py", "xlogy", "zeta",
))  # fmt: skip
# Operators that PyTorch composes of several: the last one's node has no entries for arguments of the others.
_COMPOUND = frozenset((
    "bilinear", "cosine_similarity", "cross_entropy", "kl_div", "l1_loss", "multi_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "normalize",
    "pairwise_distance", "soft_margin_loss", "triplet_margin_loss",
))  # fmt: skip
# A weight gets no gradient
_WEIGHTED = frozenset(("binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss", "mse_loss"))
# Operators whose node belongs to another operator in PyTorch, with its arguments in another order.
_ORDERS = {"linear": (2, 0, 1)}


_RESHAPED = ("View", "UnsafeView", "Squeeze", "Mean")
# Nodes whose gradient does not depend on the argument, but whose second derivative is zeros, not None.
_FLAT = re.compile(
    r"(Relu|LeakyRelu|PreluKernel|Hardtanh|Threshold|Softshrink|Hardshrink|NllLoss(2D)?|"
    r"(Adaptive)?(Avg|Max)Pool\dD(WithIndices)?|(Reflection|Replication)Pad\dD)Backward\d"
)
# Their nodes have the name of the view that is PyTorch's last step
_FLAT_OPERATORS = frozenset(("avg_pool1d", "adaptive_avg_pool1d"))


def are_operands(op: Operator, template: Sequence[Any]) -> list[bool]:
    """For each value given to a call, tensors before numbers: whether it is a tensor, or a number that PyTorch makes
    one of (the 2 of `x * 2`, not a factor as `alpha`).
    """
    tensors, numbers = list[bool](), list[bool]()
    for argument, item in zip(op.schema.arguments, template, strict=True):
        if isinstance(item, Slot):
            if item.kind in ("tensor", "list"):
                tensors += [True] * item.count
            else:
                numbers += [argument.base == "Tensor" and op.public not in _NUMBER_FORMS] * item.count
    return tensors + numbers


def argument_places(
    op: Operator, template: Sequence[Any], specs: Sequence[Spec], wrt: Sequence[int], name: str = ""
) -> tuple[int | None, ...]:
    """The number of the edge for each argument that could have a gradient; None for one without an edge."""
    if op.public in _COMPOUND or (name.startswith(_RESHAPED) and len(specs) > 1):
        return tuple(range(len(wrt)))
    edge_of_tensor = {tensor: edge for edge, tensor in enumerate(wrt)}
    groups: list[list[int | None]] = []
    at = 0
    for argument, item in zip(op.schema.arguments, template, strict=True):
        groups.append([])
        if (
            argument.name == "weight"
            and op.public in _WEIGHTED
            and not (isinstance(item, Slot) and at in edge_of_tensor)
        ):
            at += isinstance(item, Slot)
            continue
        if isinstance(item, Slot) and item.kind in ("tensor", "list"):
            for tensor in range(at, at + item.count):
                if tensor in edge_of_tensor or (
                    argument.name not in _WITHOUT and _may_differ(op, argument.name, specs[tensor])
                ):
                    groups[-1].append(edge_of_tensor.get(tensor))
            at += item.count
        elif (
            argument.base == "Tensor"
            and argument.name not in _WITHOUT
            and not argument.is_sequence
            and op.public not in _ORDERS
        ):
            number = isinstance(item, Slot) or (isinstance(item, Literal) and item.value is not None)
            if op.public not in _NUMBER_FORMS or not number and op.public == "clamp" and len(specs) > 1:
                groups[-1].append(None)
    order = _ORDERS.get(op.public, range(len(groups)))
    return tuple([place for g in order for place in groups[g]])


@cache
def is_flat(node: str, operator: str | None) -> bool:
    """Whether second derivatives by the arguments are zeros in the graph, rather than unreachable (None)."""
    return _FLAT.fullmatch(node) is not None or (operator in _FLAT_OPERATORS and node.startswith("Squeeze"))


def _may_differ(op: Operator, name: str, spec: Spec) -> bool:
    """Whether an argument could have a gradient: one of float dtype, or one that is converted to the dtype of the
    others.
    """
    if spec.dtype.is_floating_point or spec.dtype.is_complex:
        return True
    return op.promote in ("same", "float") and (op.promote_over is None or name in op.promote_over)

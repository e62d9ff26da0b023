"""Functions of `nn.functional` that take their arguments otherwise than the aten operators that they call: for each the
operator's name, and its arguments in its order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["FRONTS"]

Front = Callable[..., tuple[str, tuple[Any, ...]]]
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> tuple[str, tuple[Any, ...]]:
    return "dropout_" if inplace else "dropout", (input, p, training)


def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> tuple[str, tuple[Any, ...]]:
    return "cross_entropy_loss", (input, target, weight, _REDUCTIONS[reduction], ignore_index, label_smoothing)


def batch_norm(input: Any, *args: Any, **kwargs: Any) -> tuple[str, tuple[Any, ...]]:
    if len(args) == 8:  # the native function itself
        return "batch_norm", (input, *args)
    return "batch_norm", (input, *_statistics(("training", False), args, kwargs))


def instance_norm(input: Any, *args: Any, **kwargs: Any) -> tuple[str, tuple[Any, ...]]:
    if len(args) == 8:
        return "instance_norm", (input, *args)
    return "instance_norm", (input, *_statistics(("use_input_stats", True), args, kwargs))


def _statistics(flag: tuple[str, bool], args: Any, kwargs: Any) -> tuple[Any, ...]:
    names = ("running_mean", "running_var", "weight", "bias", flag[0], "momentum", "eps")
    given = (
        dict.fromkeys(names)
        | {flag[0]: flag[1], "momentum": 0.1, "eps": 1e-5}
        | dict(zip(names, args, strict=False))
        | kwargs
    )
    order = ("weight", "bias", "running_mean", "running_var", flag[0], "momentum", "eps")
    return (*[given[n] for n in order], True)


def embedding(
    input: Any,
    weight: Any,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> tuple[str, tuple[Any, ...]]:
    if input.is_floating_point():  # of `torch.embedding`: the weight comes first
        return "embedding", (input, weight, -1 if padding_idx is None else padding_idx)
    if max_norm is not None:  # the weight is changed first
        return "", ()
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    return "embedding", (weight, input, -1 if padding_idx is None else padding_idx, scale_grad_by_freq, sparse)


def refused(*args: Any, **kwargs: Any) -> tuple[str, tuple[Any, ...]]:
    """Functions that are shown as the operators they are made of."""
    return "", ()


FRONTS: dict[str, Front] = {
    "dropout": dropout, "cross_entropy": cross_entropy, "batch_norm": batch_norm, "instance_norm": instance_norm, "embedding": embedding,
    "embedding_bag": refused,
}  # fmt: skip

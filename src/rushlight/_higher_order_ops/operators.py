"""`torch.ops.higher_order`: what nodes of fx graphs call that choose between graphs.

The graphs take tensors and give tuples of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight.library.operators import namespace

__all__ = ["cond"]


def cond(
    pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()
) -> tuple[Any, ...]:  # fmt: skip
    """The results of `true_fn(*operands)` where `pred` holds, else those of `false_fn(*operands)`, as a tuple.

    >>> import rushlight as torch
    >>> torch.ops.higher_order.cond(torch.tensor(True), lambda x: (x + 1,), lambda x: (x - 1,), (torch.ones(2),))
    (tensor([2., 2.]),)
    """
    found = (true_fn if pred else false_fn)(*operands)
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


cond.__module__ = "rushlight.ops.higher_order"
namespace("higher_order").__dict__["cond"] = cond

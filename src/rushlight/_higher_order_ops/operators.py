"""`torch.ops.higher_order`: what nodes of fx graphs call that choose between graphs.

The graphs take tensors and give tuples of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._higher_order_ops.associative_scan import associative_scan as _associative_scan
from rushlight._higher_order_ops.map import map as _map
from rushlight._higher_order_ops.scan import scan as _scan
from rushlight._higher_order_ops.while_loop import while_loop as _while_loop
from rushlight.library.operators import namespace

__all__ = ["associative_scan", "cond", "map_impl", "scan", "while_loop"]


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


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any], additional_inputs: Sequence[Any] = ()
) -> tuple[Any, ...]:  # fmt: skip
    """`carried = body_fn(*carried, *additional)` as long as `cond_fn(*carried, *additional)` holds, as a tuple."""
    more = tuple(additional_inputs)

    def ahead(*carried: Any) -> Any:
        found = cond_fn(*carried, *more)
        return found[0] if isinstance(found, (tuple, list)) else found

    found = _while_loop(ahead, lambda *carried: tuple(body_fn(*carried, *more)), tuple(carried_inputs))
    return tuple(found)


def scan(
    combine_fn: Callable[..., Any], init: Sequence[Any], xs: Sequence[Any], additional_inputs: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """The last carry and the stacked results of `combine_fn(*carry, *slices, *additional)` along dim 0, as one tuple."""
    more, count = tuple(additional_inputs), len(init)

    def combined(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        found = list(combine_fn(*carry, *slices, *more))
        return found[:count], found[count:]

    carry, made = _scan(combined, list(init), list(xs))
    return (*carry, *made)


def map_impl(f: Callable[..., Any], xs: Sequence[Any], pos_args: Sequence[Any] = ()) -> tuple[Any, ...]:
    """`f(*slices, *pos_args)` for each slice of the `xs` along dim 0, its results stacked, as a tuple."""
    found = _map(lambda slices: list(f(*slices, *pos_args)), list(xs))
    return tuple(found)


def associative_scan(
    combine_fn: Callable[..., Any], xs: Sequence[Any], additional_inputs: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """The running results of `combine_fn(*left, *right, *additional)` along dim 0, as a tuple."""
    more = tuple(additional_inputs)
    found = _associative_scan(
        lambda left, right: list(combine_fn(*left, *right, *more)), list(xs), 0, combine_mode="generic"
    )
    return tuple(found)


for _each in (associative_scan, cond, map_impl, scan, while_loop):
    _each.__module__ = "rushlight.ops.higher_order"
    namespace("higher_order").__dict__[_each.__name__] = _each

"""`torch.ops.higher_order`: what nodes of fx graphs call that choose between graphs, or run them several times.

The graphs take tensors and give tuples of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight._higher_order_ops.checks import writing
from rushlight._interface.sizes import Undecided
from rushlight.library.operators import namespace

__all__ = ["OPERATORS", "HigherOrderOperator", "cond", "map_impl", "scan", "while_loop", "wrap_with_set_grad_enabled"]

Graph = Callable[..., Any]


def _parts(found: Any) -> tuple[Any, ...]:
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def cond(pred: Any, true_fn: Graph, false_fn: Graph, operands: Sequence[Any] = ()) -> tuple[Any, ...]:
    """The results of `true_fn(*operands)` where `pred` holds, else those of `false_fn(*operands)`, as a tuple.

    >>> import rushlight as torch
    >>> torch.ops.higher_order.cond(torch.tensor(True), lambda x: (x + 1,), lambda x: (x - 1,), (torch.ones(2),))
    (tensor([2., 2.]),)
    """
    mode = writing("cond") if isinstance(pred, (rushlight.Tensor, Undecided)) else None
    if mode is not None:
        return _parts(mode.control("cond", pred, true_fn, false_fn, tuple(operands)))
    return _parts((true_fn if pred else false_fn)(*operands))


def while_loop(
    cond_fn: Graph, body_fn: Graph, carried_inputs: Sequence[Any], additional_inputs: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """Apply `body_fn` to the carried values while `cond_fn` holds of them."""
    carried, additional = tuple(carried_inputs), tuple(additional_inputs)
    mode = writing("while_loop")
    if mode is not None:
        return _parts(mode.control("while_loop", cond_fn, body_fn, carried, additional))
    while cond_fn(*carried, *additional_inputs):
        carried = _parts(body_fn(*carried, *additional_inputs))
    return carried


def scan(
    combine_fn: Graph, init: Sequence[Any], xs: Sequence[Any], additional_inputs: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """The last carried values, and for each step's outputs all of them stacked: `combine_fn(*carry, *rows, *additional)`."""
    mode = writing("scan")
    if mode is not None:
        extra = tuple(additional_inputs)
        made, _ = mode.control("scan", lambda *values: combine_fn(*values, *extra), list(init), list(xs), None)
        return tuple(made)
    carry, rows = tuple(init), []
    for place in range(xs[0].shape[0]):
        found = _parts(combine_fn(*carry, *[x[place] for x in xs], *additional_inputs))
        carry, outs = found[: len(carry)], found[len(carry) :]
        rows.append(outs)
    return (*carry, *[rushlight.stack(list(column)) for column in zip(*rows, strict=True)])


def map_impl(f: Graph, xs: Sequence[Any], pos_args: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Apply `f` to each row of `xs`; the results are stacked."""
    mode = writing("map_impl")
    if mode is not None:
        made, _ = mode.control("map_impl", f, list(xs), list(pos_args))
        return tuple(made)
    rows = [_parts(f(*[x[place] for x in xs], *pos_args)) for place in range(xs[0].shape[0])]
    return tuple(rushlight.stack(list(column)) for column in zip(*rows, strict=True))


def associative_scan(combine_fn: Graph, xs: Sequence[Any], additional_inputs: Sequence[Any] = ()) -> tuple[Any, ...]:
    """All prefixes of `xs` combined, along their first dim."""
    rows = [tuple(x[0] for x in xs)]
    for place in range(1, xs[0].shape[0]):
        rows.append(_parts(combine_fn(*rows[-1], *[x[place] for x in xs], *additional_inputs)))
    return tuple(rushlight.stack(list(column)) for column in zip(*rows, strict=True))


def wrap_with_set_grad_enabled(enable_grad: bool, wrapped_func: Graph, *args: Any) -> Any:
    """`wrapped_func(*args)` with gradients on or off."""
    with rushlight.set_grad_enabled(enable_grad):
        return wrapped_func(*args)


def wrap_with_autocast(
    device_type: str, dtype: Any, enabled: bool, cache_enabled: Any, wrapped_func: Graph, *args: Any, **kwargs: Any
) -> Any:
    """`wrapped_func(*args)` under `torch.autocast`."""
    with rushlight.autocast(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled):
        return wrapped_func(*args, **kwargs)


def invoke_subgraph(subgraph: Graph, identifier: Any, *operands: Any) -> Any:
    """`subgraph(*operands)`."""
    return subgraph(*operands)


OPERATORS = {f.__name__: f for f in (
    cond, while_loop, scan, map_impl, associative_scan, wrap_with_set_grad_enabled, wrap_with_autocast, invoke_subgraph,
)}  # fmt: skip
for _name, _function in OPERATORS.items():
    _function.__module__ = "rushlight.ops.higher_order"
    namespace("higher_order").__dict__[_name] = _function


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return any(value is each for each in OPERATORS.values())


class HigherOrderOperator(metaclass=_Kind):
    """The class of operators of graphs, here plain functions: PyTorch's `torch._ops` has this class."""


sys.modules["rushlight._ops"].__dict__["HigherOrderOperator"] = HigherOrderOperator

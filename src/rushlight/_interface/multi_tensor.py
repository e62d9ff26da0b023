"""One update rule over all parameters of an optimizer, in one native loop."""

from __future__ import annotations

from rushlight._engine.core.convert import assumed_zero
from rushlight._engine.dispatch.multi_tensor import (
    Rule,
    count_steps,
    factored_update,
    flat_dtype,
    is_captured,
    is_counter,
    moved,
    on_device,
    rule_of,
    update_elements,
    update_recorded,
)

__all__ = [
    "assumed_zero",  # whether an element is not zero, which a recorded program takes not to happen
    "Rule",  # a traced rule for one element
    "rule_of",  # that of an optimizer's class
    "moved",  # a step of one array along another
    "update_elements",  # run it over rows of tensors
    "update_recorded",  # the same as one call of a program that is being recorded
    "factored_update",  # Adafactor's step
    "count_steps",  # advance counters
    "flat_dtype",  # the dtype in which tensors can be taken as flat rows
    "is_counter",  # a tensor that counts steps
    "is_captured",  # whether work on a tensor becomes a graph that is replayed without the host
    "on_device",  # a tensor whose elements the host waits for
]

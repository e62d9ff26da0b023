"""Steps of schedulers of learning rates: they count and compute in Python, and are called when the trace ends.

What they change, the options of the optimizer's groups and the scheduler itself, cannot be read in the trace from then
on: whoever reads it ends the trace before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._capture.trace.objects import attributes
from rushlight._capture.trace.outside import ABSENT
from rushlight._engine.core.tensor import Tensor

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["scheduler_step"]


def scheduler_step(tracer: Tracer, *args: Any, **kwargs: Any) -> Any:
    """Put a step off until the end of the trace; ABSENT where it is to be followed."""
    if len(args) != 1 or kwargs or not hasattr(type(args[0]), "get_last_lr"):
        return ABSENT
    (scheduler,) = args
    held = getattr(scheduler, "__dict__", {})
    groups = getattr(held.get("optimizer"), "__dict__", {}).get("param_groups")
    if type(groups) is not list or not tracer.outside.is_outside(scheduler):
        return ABSENT
    copies = [tracer.outside.values.get(id(group)) for group in groups]
    if any(copy is None for copy in copies) or any(isinstance(x, Tensor) for g in groups for x in _options(g)):
        return ABSENT
    tracer.last_effects.append((type(scheduler).step, (scheduler,)))
    attributes.guard_names(tracer, type(scheduler))
    tracer.stale.update(map(id, (scheduler, *copies)))
    return None


def _options(group: Any) -> list[Any]:
    return [value for key, value in group.items() if key != "params"]

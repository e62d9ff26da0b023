"""Functions of process groups in a trace: they run as they are, and are guarded by the groups that they are given.

Ranks and sizes are constants of a trace.  A trace that depends on the default group is used while that is the same.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from rushlight._base.own_names import own_module
from rushlight._capture.trace.outside import is_plain
from rushlight._capture.trace.reports.events import Break
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.core.tensor import Tensor

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["called", "communicates", "depends"]


def communicates(function: types.FunctionType) -> bool:
    """Whether a function is one of those that depend on process groups."""
    inner = getattr(function, "__wrapped__", function)  # public pages show their functions under their own names
    module = own_module(getattr(inner, "__globals__", {}).get("__name__"))
    names = HOOKS.communicating.get(module)
    return names is not None and (function.__name__ in names if names else not function.__name__.startswith("__"))


def called(tracer: Tracer, function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of process groups: it returns tensors of the recording, a rank or a size."""
    depends(tracer)
    for x in (*args, *kwargs.values()):
        _guard(tracer, x)
    made = tracer.native(function, *args, **kwargs)
    for x in made if isinstance(made, (tuple, list)) else (made,):
        if isinstance(x, Tensor) and not tracer.rec.is_recorded(x):
            raise Break(f"{function.__qualname__}() gives a tensor that is not recorded")
    return tracer.wrap_constant(made) if hasattr(made, "group_name") else made


def depends(tracer: Tracer) -> None:
    """Require that the default group is the same."""
    world = HOOKS.world()
    default = tracer.constants.name(world.default)
    tracer.reads.check(tracer.reads.constant(world), f"{{}}.default is {default}")
    tracer.unkept = "it communicates with other processes"


def _guard(tracer: Tracer, value: Any) -> None:
    """Require that groups and meshes among the arguments are the same."""
    if isinstance(value, (tuple, list)):
        for x in value:
            _guard(tracer, x)
    elif not is_plain(value) and not isinstance(value, Tensor) and tracer.outside.is_outside(value):
        source = tracer.outside.sources[id(value)]
        if not source.is_constant:
            tracer.reads.check(source, f"{{}} is {tracer.constants.name(value)}")

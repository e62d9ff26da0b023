"""Who may take part in a call: overrides, observers, automatic casts."""

from __future__ import annotations

from rushlight._engine.core.convert import ITEMS
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.core.state import TRANSFORMS
from rushlight._engine.core.tensor import dispatch_classes as DISPATCH_CLASSES
from rushlight._engine.dispatch.autocast import PLACES, place_of, set_casting
from rushlight._engine.dispatch.override import disabled_torch_function, dispatch, has_override, plain_attribute
from rushlight._engine.dispatch.watch import Observer, observe, observed_call, on_observers, unobserve
from rushlight._engine.dispatch_types.base import call_name, cast_first

__all__ = [
    # Overrides.
    "disabled_torch_function",  # of classes that never override
    "dispatch",  # hand a call to the class or mode that wants it
    "has_override",  # the arguments whose classes want it
    "plain_attribute",  # an attribute of Tensor before it is watched
    "ITEMS",  # for specs of one element what reads it
    "DISPATCH_CLASSES",  # classes that are
    "call_name",  # the name of a function in the table of operators
    # Observers.
    "Observer",
    "observe",
    "unobserve",
    "observed_call",  # run a call of which observers are told
    "on_observers",  # a function that is called when the first observer comes and the last one goes
    "HOOKS",  # what the engine is given from elsewhere, `override` among it
    "TRANSFORMS",  # who is given applications of functions before they run: transforms, an exporter
    # Automatic casts.
    "PLACES",  # device type -> dtype
    "cast_first",  # a call by the name of its operator, with its arguments cast
    "place_of",  # the device type, checked
    "set_casting",  # all that a region sets; gives what was set
]

"""Handles of registered hooks."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import Any

__all__ = ["RemovableHandle"]


class RemovableHandle:
    """The handle of a registered hook: `remove()` deletes the hook from every table that has it.

    `hooks_dict` is the table that holds the hook under `handle.id`; `extra_dict` is one table or a list of tables with
    flags for the same id.  Tables are referenced weakly, so a handle never keeps a module alive.  Works as a context
    manager.

    Example: `with module.register_forward_hook(hook): module(x)`
    """

    id: int
    next_id: int = 0

    def __init__(self, hooks_dict: Any, *, extra_dict: Any = None) -> None:
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extras = [extra_dict] if isinstance(extra_dict, dict) else list(extra_dict or ())
        self.extra_dict_ref: tuple[Any, ...] = tuple(weakref.ref(table) for table in extras)

    def remove(self) -> None:
        """Remove the hook.  Removing twice, or after the owner died, does nothing."""
        for ref in (self.hooks_dict_ref, *self.extra_dict_ref):
            table = ref()
            if table is not None:
                table.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, ...]:
        return self.hooks_dict_ref(), self.id, tuple(ref() for ref in self.extra_dict_ref)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        # A dead owner is revived as a reference to an empty table that dies at once: `remove` stays harmless.
        self.hooks_dict_ref = weakref.ref(OrderedDict() if state[0] is None else state[0])
        self.id = state[1]
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)
        extras = state[2] if len(state) > 2 and state[2] is not None else ()
        self.extra_dict_ref = tuple(weakref.ref(OrderedDict() if table is None else table) for table in extras)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

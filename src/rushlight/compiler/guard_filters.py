"""Filters of guards for `compile(options={"guard_filter_fn": ...})`: for each guard, whether it is kept.

A guard that is left out is not checked: if what it guards changes, results are wrong.  A guard entry has `guard_type`,
`name`, `is_global`, `value`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.nn.modules.module import Module

__all__ = [
    "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe",
]  # fmt: skip

_OF_THIS_PROCESS = (
    "CLOSURE_MATCH",
    "CLASS_MATCH",
    "FUNCTION_MATCH",
    "ID_MATCH",
    "MODULE_MATCH",
    "NN_MODULE",
    "WEAKREF_ALIVE",
    "BUILTIN_MATCH",
)


def _of_module(entry: Any, inbuilt: bool) -> bool:
    value = getattr(entry, "value", None)
    ours = type(value).__module__.partition(".")[2].startswith("nn.modules")
    return isinstance(value, Module) and (ours or not inbuilt)


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """No guards on modules of `torch.nn`: whoever changes a hook or an attribute of theirs gets wrong results."""
    return [not _of_module(entry, inbuilt=True) for entry in guard_entries]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """No guards on modules."""
    return [not _of_module(entry, inbuilt=False) for entry in guard_entries]


def keep_tensor_guards_unsafe(guard_entries: Sequence[Any], keep_parameters: bool = False) -> list[bool]:
    """Guards on tensors alone: without those on parameters, unless `keep_parameters`."""
    from_tensors = [entry.guard_type == "TENSOR_MATCH" for entry in guard_entries]
    return [
        kept and (keep_parameters or not type(getattr(entry, "value", None)).__name__.endswith("Parameter"))
        for kept, entry in zip(from_tensors, guard_entries, strict=True)
    ]


def skip_guard_on_globals_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """No guards on globals."""
    return [not entry.is_global for entry in guard_entries]


def skip_all_guards_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """No guards: one program for every call."""
    return [False for _ in guard_entries]


def keep_portable_guards_unsafe(guard_entries: Sequence[Any]) -> list[bool]:
    """Guards that mean the same in another process."""
    return [entry.guard_type not in _OF_THIS_PROCESS for entry in guard_entries]

"""Modules whose attributes are settings: checked when they are set, read from where they are kept."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight._interface.operators import FP32_PRECISION

__all__ = ["Precision", "Setting", "freeze", "frozen", "make_page", "mixed", "precision_of", "set_precision"]

# Whether `disable_global_flags` was called: from then on settings change only by `flags(...)`.
_frozen = False


def freeze() -> None:
    """Let no flag be changed from now on."""
    global _frozen
    _frozen = True


def frozen() -> bool:
    """Whether `freeze` was called."""
    return _frozen


_PRECISIONS = {
    "generic": ("none", "ieee", "tf32", "bf16"),
    "cuda": ("none", "ieee", "tf32"),
    "mkldnn": ("none", "ieee", "tf32", "bf16"),
}


class Setting:
    """A module's attribute: `check(value)` raises for what it may not be, `value` is what it is."""

    def __init__(self, value: Any, check: Callable[[Any], Any] | None = None) -> None:
        self.value, self.check = value, check

    def get(self) -> Any:
        """Its kind."""
        return self.value

    def set(self, value: Any) -> None:
        """Change it."""
        if self.check is not None:
            self.check(value)
        self.value = value


class _Property:
    """A setting as an attribute of a module; RuntimeError for setting it once flags are frozen, if it does not outlast
    that (`outlasts`)."""

    def __init__(self, name: str, setting: Any) -> None:
        self.name, self.setting = name, setting

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else self.setting.get()

    def __set__(self, instance: Any, value: Any) -> None:
        if _frozen and not getattr(self.setting, "outlasts", False):
            raise RuntimeError(
                f"not allowed to set {instance.__name__.replace('rushlight', 'torch')} flags after disable_global_flags; please use flags() "
                "context manager instead"
            )
        self.setting.set(value)


def make_page(name: str, **settings: Any) -> None:
    """Give the module `name` these settings as attributes."""
    members = {key: _Property(key, setting) for key, setting in settings.items()}
    sys.modules[name].__class__ = type("Page", (ModuleType,), members)


def boolean(name: str) -> Callable[[Any], None]:
    """A check for True and False."""

    def check(value: Any) -> None:
        if not isinstance(value, bool):
            raise RuntimeError(f"set_{name} expects a bool, but got {type(value).__name__}")

    return check


# ***** the precision inside of float32 operations *****


def mixed(name: str) -> str:
    """The error for a setting that newer, finer ones contradict."""
    return (
        f"{name} was asked for, but fp32_precision was set otherwise: this is a mix of the legacy and new APIs, of which "
        "only the new one, fp32_precision, says what holds"
    )


def precision_of(backend: str, op: str) -> str:
    """The precision allowed for this, or for all that it belongs to; "none" where nothing was said."""
    for key in ((backend, op), (backend, "all"), ("generic", "all")):
        word = FP32_PRECISION.get(key, "none")
        if word != "none":
            return word
    return "none"


@trace_marks.changes_later_calls
def set_precision(backend: str, op: str, value: Any) -> None:
    """Allow a precision; RuntimeError for what is none, or none of this library."""
    if value not in _PRECISIONS["generic"]:
        raise RuntimeError(f"Unknown precision: {value}")
    if value not in _PRECISIONS[backend]:
        raise RuntimeError(f"backend '{backend}' does not support precision '{value}'")
    FP32_PRECISION[backend, op] = value


class PrecisionSetting:
    """`fp32_precision` of a library or of one kind of its operations."""

    def __init__(self, backend: str, op: str = "all") -> None:
        self.backend, self.op = backend, op

    def get(self) -> str:
        """The precision that is allowed."""
        return precision_of(self.backend, self.op)

    def set(self, value: Any) -> None:
        """Allow a precision."""
        set_precision(self.backend, self.op, value)


class Precision:
    """One kind of operations of a library, with its `fp32_precision`."""

    def __init__(self, backend: str, op: str) -> None:
        self.__dict__.update(backend=backend, op=op)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "fp32_precision":
            raise AttributeError(f"Unknown attribute {name}")
        set_precision(self.__dict__["backend"], self.__dict__["op"], value)

    def __getattr__(self, name: str) -> str:
        if name == "fp32_precision":
            return precision_of(self.__dict__["backend"], self.__dict__["op"])
        raise AttributeError(f"Unknown attribute {name}")

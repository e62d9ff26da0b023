"""Our own exceptions, and the user's location in a program.

Where PyTorch raises a built-in exception (`RuntimeError`, `IndexError`, `TypeError`, `ValueError`) we raise the same
class; the classes here refine those that a caller may want to distinguish.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rushlight_loader.errors import PackageError as PackageError

__all__ = [
    "AcceleratorError",
    "set_warn_always",
    "warns_always",
    "DTypeError",
    "OperandError",
    "MissingDeviceError",
    "MissingExtraError",
    "MissingFeatureError",
    "MissingTypeError",
    "NotDifferentiableError",
    "OutOfMemoryError",
    "PACKAGE",
    "PackageError",
    "WARNING_LISTENERS",
    "code_location",
    "deferred_warnings",
    "give_warnings",
    "describe_code",
    "describe_location",
    "install_command",
    "user_code",
    "user_frame",
    "user_line",
    "warn_once",
    "warn_user",
]

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def __getattr__(name: str) -> Any:
    """`PackageError` is the loader's, a package beside this one, which `import rushlight` does not load."""
    if name == "PackageError":
        from rushlight_loader.errors import PackageError

        return PackageError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class DTypeError(TypeError):
    """A primitive does not support a dtype: `dtype`."""

    def __init__(self, text: str, dtype: Any) -> None:
        super().__init__(text)
        self.dtype = dtype


class OperandError(ValueError):
    """Shapes or parameters that a primitive does not take."""


class MissingFeatureError(NotImplementedError):
    """A part of PyTorch that rushlight lacks; the text names it."""


class MissingDeviceError(AssertionError, RuntimeError):
    """A device that this machine, or rushlight, lacks; PyTorch's CPU builds raise AssertionError for it."""


class MissingTypeError(MissingDeviceError, TypeError):
    """A type of tensors on a device that this machine lacks; PyTorch's CPU builds raise TypeError for it."""


def install_command(extra: str) -> str:
    """The command that installs an extra, into a checkout if that is running."""
    checkout = os.path.dirname(os.path.dirname(PACKAGE.rstrip(os.sep)))
    if os.path.isfile(os.path.join(checkout, "pyproject.toml")):
        return f"pip install -e '{checkout}[{extra}]'"
    return f"pip install 'rushlight[{extra}]'"


class MissingExtraError(ImportError):
    """A library of one of our extras is not installed."""

    def __init__(self, module: str, extra: str) -> None:
        super().__init__(
            f"{module} is not installed; it belongs to the extra '{extra}': {install_command(extra)}", name=module
        )


class NotDifferentiableError(NotImplementedError):
    """A derivative that does not exist was requested; the text says of what, and why."""


class OutOfMemoryError(RuntimeError):
    """A device has no memory for a request; the text gives the requested and the reserved bytes."""

    __module__ = "torch"


class AcceleratorError(RuntimeError):
    """An accelerator failed: `error_code` is the number that its driver gave."""

    __module__ = "torch"
    error_code = 0


def user_frame() -> tuple[str, int, str] | None:
    """File, line number and function of the innermost frame outside this package, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE) and not name.startswith("<frozen"):
            return name, frame.f_lineno, frame.f_code.co_name
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def user_line() -> str:
    """The user's location as one line of text: `file.py:12 in train: loss = f(x)`."""
    return describe_location(user_frame())


def describe_location(location: tuple[str, int, str] | None) -> str:
    """Text for a location from `user_frame`, with the source line if it can be read."""
    if location is None:
        return "<unknown location>"
    import linecache

    file, line, function = location
    text = linecache.getline(file, line).strip()
    return f"{file}:{line} in {function}" + (f": {text}" if text else "")


def user_code(depth: int = 2) -> tuple[Any, int]:
    """The user's location as (code object, instruction): cheap to record, turned into text by `describe_code` when an
    error needs it.

    The search starts `depth` frames up: a caller that knows its depth saves steps.
    """
    frame = sys._getframe(depth)
    while frame.f_code.co_filename.startswith(PACKAGE):
        back = frame.f_back
        if back is None:
            break
        frame = back
    return frame.f_code, frame.f_lasti


# Called when a warning is given: whoever caches the call that runs would drop it from later ones.
WARNING_LISTENERS: list[Callable[[], None]] = []
DeferredWarning = tuple[str, type[Warning], bool]  # text, category, whether it is given once


class _Deferring(threading.local):
    warnings: list[DeferredWarning] | None = None


_deferring = _Deferring()


@contextmanager
def deferred_warnings() -> Iterator[list[DeferredWarning]]:
    """A region whose warnings are collected for `give_warnings`: code that runs once for many calls, each of which has
    to warn.
    """
    outer, _deferring.warnings = _deferring.warnings, []
    try:
        yield _deferring.warnings
    finally:
        _deferring.warnings = outer


def _defer(warning: DeferredWarning) -> None:
    """Keep a warning for later, once for a body that builds on another's."""
    assert _deferring.warnings is not None
    if warning not in _deferring.warnings:
        _deferring.warnings.append(warning)


def give_warnings(collected: Sequence[DeferredWarning]) -> None:
    """Warn at the user's line, as `warn_user` and `warn_once` would have."""
    for text, category, once in collected:
        (warn_once if once else warn_user)(text, category)


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line, whatever the depth of the caller in the package."""
    if _deferring.warnings is not None:
        _defer((text, category, False))
        return
    for listener in WARNING_LISTENERS:
        listener()
    frame, level = sys._getframe(1), 1
    while frame.f_code.co_filename.startswith(PACKAGE) and frame.f_back is not None:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level + 1)


_SAID: set[str] = set()
_warns_always = False


def set_warn_always(enabled: bool) -> None:
    """Set whether warnings given once by default are given every time (`torch.set_warn_always`)."""
    global _warns_always
    _warns_always = enabled


def warns_always() -> bool:
    """The value of `set_warn_always`."""
    return _warns_always


def warn_once(text: str, category: type[Warning] = UserWarning) -> None:
    """`warn_user`, once in a program unless `set_warn_always(True)`."""
    if _deferring.warnings is not None:
        _defer((text, category, True))
    elif warns_again(text):
        warn_user(text, category)


def warns_again(text: str) -> bool:
    """Whether `warn_once` would give this warning now; it has been given then."""
    again = _warns_always or text not in _SAID
    _SAID.add(text)
    return again


def forget_warning(text: str) -> None:
    """Let `warn_once` give this warning again."""
    _SAID.discard(text)


def code_location(location: tuple[Any, int] | None) -> tuple[str, int, str]:
    """(file, line, function) of a location from `user_code`."""
    if location is None:
        return "<unknown>", 0, "<unknown>"
    code, at = location
    for start, stop, line in code.co_lines():
        if start <= at < stop and line is not None:
            return code.co_filename, line, code.co_name
    return code.co_filename, code.co_firstlineno, code.co_name


def describe_code(location: tuple[Any, int] | None) -> str:
    """Text for a location from `user_code`."""
    if location is None:
        return "a line that is no longer known"
    return describe_location(code_location(location))

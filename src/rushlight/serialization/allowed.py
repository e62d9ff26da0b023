"""Names that a file may use when it is loaded safely, and how a program allows more."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.serialization.names import tensor_globals, torch_global

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals"]

_allowed_by_user: list[Any] = []


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Allow classes and functions in files that are loaded with `weights_only=True`.

    Each entry is an object, or a pair (object, "full.name.in.the.file"). Only allow what does no harm when it is called
    with any arguments.
    """
    for entry in safe_globals:
        if entry not in _allowed_by_user:
            _allowed_by_user.append(entry)


def get_safe_globals() -> list[Any]:
    """The names that `add_safe_globals` has allowed so far."""
    return list(_allowed_by_user)


def clear_safe_globals() -> None:
    """Forget everything that `add_safe_globals` allowed."""
    _allowed_by_user.clear()


class safe_globals:
    """Allow classes and functions inside a `with` block; see `add_safe_globals`."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self.safe_globals = safe_globals
        self._added: list[Any] = []

    def __enter__(self) -> None:
        self._added = [entry for entry in self.safe_globals if entry not in _allowed_by_user]
        add_safe_globals(self._added)

    def __exit__(self, *exc: object) -> None:
        for entry in self._added:
            if entry in _allowed_by_user:
                _allowed_by_user.remove(entry)


def user_globals() -> dict[str, Any]:
    """The allowed objects by the names that files may have for them."""
    found: dict[str, Any] = {}
    for entry in _allowed_by_user:
        if isinstance(entry, tuple):
            if len(entry) != 2:
                raise ValueError(
                    f"Expected tuple of length 2 (global, str of callable full path), but got tuple of length: {len(entry)}"
                )
            if not isinstance(entry[1], str):
                raise TypeError(
                    f"Expected second item in tuple to be str of callable full path, but got: {type(entry[1])}"
                )
            found[entry[1]] = entry[0]
            continue
        found[f"{entry.__module__}.{entry.__qualname__}"] = entry
        theirs = torch_global(entry)
        if theirs is not None:
            found[".".join(theirs)] = entry
    return found


# ***** allowed from the start: every one checks its arguments, for a file may give it any *****


def _encode(text: Any, encoding: Any = "utf-8") -> bytes:
    # Files hold bytes as latin-1 text. Other codecs are refused: looking one up imports a module by name.
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise bad_arguments("_codecs.encode", (text, encoding))
    return text.encode(encoding)


def _bytearray(*args: Any) -> bytearray:
    # An int would ask for that much memory.
    if args and not isinstance(args[0], (bytes, str)):
        raise bad_arguments("bytearray", args)
    return bytearray(*(args if not args or isinstance(args[0], bytes) else (_encode(*args),)))


def _bytes(*args: Any) -> bytes:
    # Old protocols write b"" as a call without arguments; an int would ask for that much memory.
    if args:
        raise bad_arguments("bytes", args)
    return b""


def _set(*args: Any) -> set[Any]:
    return set(*args)


def _complex(*args: Any) -> complex:
    return complex(*args)


def _counter(*args: Any) -> Any:
    if args and not isinstance(args[0], (dict, list, tuple, str)):
        raise bad_arguments("Counter", args)
    return collections.Counter(*args)


def _ordered_dict(*args: Any) -> Any:
    return collections.OrderedDict(*args)


def _size(*args: Any) -> Any:
    if len(args) != 1 or not isinstance(args[0], (tuple, list)) or not all(type(n) is int for n in args[0]):
        raise bad_arguments("torch.Size", args)
    return rushlight.Size(args[0])


def _device(*args: Any) -> Any:
    if not args or not isinstance(args[0], str):
        raise bad_arguments("torch.device", args)
    return rushlight.device(*args)


def bad_arguments(name: str, args: Any) -> Exception:
    """The error for arguments that an honest file never gives."""
    from pickle import UnpicklingError

    return UnpicklingError(f"refused to call {name} with arguments of types {[type(a).__name__ for a in args]}")


_BUILTIN: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _counter,
    "_codecs.encode": _encode,
    "builtins.bytearray": _bytearray,
    "builtins.bytes": _bytes,
    "builtins.set": _set,
    "builtins.complex": _complex,
    "torch.Size": _size,
    "torch.device": _device,
}
_always: dict[str, Any] = {}


def always_allowed() -> dict[str, Any]:
    """The names that need no permission, with what they stand for when a file calls them."""
    if not _always:
        _always.update(tensor_globals())
        _always.update(_BUILTIN)
    return _always

"""Why a program does not fit a call, in words: the condition that failed, with names in the place of places and values
in the place of constants.

>>> readable("type(s[0]) is c7 and {}._spec is c8".replace("{}", "s[0]"), {"c7": int}, ["x"], [3])
"type(x) is <class 'int'> and x._spec is c8"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

from rushlight._capture.trace.guards.sources import parts
from rushlight._engine.core.tensor import Tensor
from rushlight._types.spec import Spec

__all__ = ["listed", "readable", "tells_of_sizes"]

_SPEC = re.compile(r"(\S+)\._spec is (c\d+)")
_PLACE = re.compile(r"^s\[(\d+)\]$")
_ATTRIBUTE = re.compile(r"\.__dict__\['(\w+)'\]")
_STATE = re.compile(r"^(c\d+)\.word == \d+")
_FLAG = re.compile(r"^(\S+)\.(requires_grad|is_leaf) is (True|False)$")
_FACTS = re.compile(r"^c\d+\((\S+)\) == \d$")
_MEMBER = re.compile(r"\._(?:modules|parameters|buffers)\['(\w+)'\]")
_GLOBAL = re.compile(r"globals of ([\w.]+)\['(\w+)'\]")
_LONGEST = 60


def readable(reason: str, space: Mapping[str, Any], names: Sequence[str], state: Sequence[Any]) -> str:
    """A failed condition of a segment, whose constants are in `space`; `names` are of the values in `state`."""
    tensor = _SPEC.search(reason)
    if tensor is not None:
        wanted, place = space.get(tensor[2]), _PLACE.match(tensor[1])
        found = state[int(place[1])] if place is not None and int(place[1]) < len(state) else None
        name = _named(tensor[1], space, names)
        if isinstance(wanted, Spec) and isinstance(found, Tensor) and found._spec is not wanted:
            return f"tensor {name!r}: {_difference(wanted, found._spec)}"
        if isinstance(found, Tensor):
            return f"tensor {name!r}: {_changed(reason, found)}"
        if isinstance(wanted, Spec):
            return f"tensor {name!r} was {wanted}"
    flag = _FLAG.match(reason)
    if flag is not None:
        name, wanted = _named(flag[1], space, names), flag[3] == "True"
        return f"tensor {name!r}: {flag[2]} mismatch. expected {wanted}, actual {not wanted}"
    facts = _FACTS.match(reason)
    if facts is not None:
        return f"tensor {_named(facts[1], space, names)!r}: other hooks, or made in another mode of inference"
    mode = _STATE.match(reason)
    if mode is not None and type(space.get(mode[1])).__name__ == "_State":
        return "gradient mode, inference mode, automatic casts and transforms are as they were"
    return _named(reason, space, names)


def listed(segment: Any, names: Sequence[str]) -> list[str]:
    """All conditions of a segment, one a line."""
    reads = segment.guard.reads
    found: dict[str, None] = {}
    for number, (kind, _, condition) in enumerate(reads.entries):
        for part in range(len(parts(condition))) if kind == "check" else ():
            found[f"  {_named(reads.told(number, part), segment.space, names)}"] = None
    return list(found)


def _changed(reason: str, found: Tensor) -> str:
    """In which of its attributes a tensor of the same shape differs."""
    for word in ("requires_grad", "is_leaf"):
        wanted = re.search(rf"\.{word} is (True|False)", reason)
        if wanted is not None and str(getattr(found, word)) != wanted[1]:
            return f"{word} mismatch. expected {wanted[1]}, actual {getattr(found, word)}"
    return "another class, or marks that were not there"


def _named(text: str, space: Mapping[str, Any], names: Sequence[str]) -> str:
    text = re.sub(r"\bs\[(\d+)\]", lambda m: names[int(m[1])] if int(m[1]) < len(names) else m[0], text)
    text = re.sub(r"\bc\d+\b(?:\.cell_contents\b)?", lambda m: _constant(m[0], space), text)
    text = _MEMBER.sub(lambda m: f"[{m[1]}]" if m[1].isdigit() else f".{m[1]}", _ATTRIBUTE.sub(r".\1", text))
    return _GLOBAL.sub(r"\2 of \1", text)


def _constant(word: str, space: Mapping[str, Any]) -> str:
    """A constant by its value, a cell by the variable that it holds."""
    name, _, contents = word.partition(".")
    if name not in space:
        return word
    value = space[name]
    if contents:
        for function in space.values():
            cells = (function.__closure__ or ()) if isinstance(function, FunctionType) else ()
            for number, cell in enumerate(cells):
                if cell is value:  # cells compare by what they hold, and tensors element by element
                    return function.__code__.co_freevars[number]
    return _short(value) + (f".{contents}" if contents else "")


def _short(value: Any) -> str:
    if type(value) is dict and "__name__" in value:
        return f"globals of {value['__name__']}"
    if isinstance(value, FunctionType):
        return value.__qualname__
    if isinstance(getattr(type(value), "__repr__", None), FunctionType):  # code of the program
        return f"<{type(value).__qualname__}>"
    text = repr(value)
    if " object at 0x" in text:
        text = f"<{type(value).__qualname__}>"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _difference(wanted: Spec, found: Spec) -> str:
    """The first thing in which two specs differ."""
    if found.dtype is not wanted.dtype:
        return f"dtype mismatch. expected {wanted.dtype}, actual {found.dtype}"
    if found.device != wanted.device:
        return f"device mismatch. expected {wanted.device}, actual {found.device}"
    if len(found.shape) != len(wanted.shape):
        return f"rank mismatch. expected {len(wanted.shape)}, actual {len(found.shape)}"
    for kind, mine, theirs in (("size", wanted.shape, found.shape), ("stride", wanted.strides, found.strides)):
        for index, (one, two) in enumerate(zip(mine, theirs, strict=True)):
            if one != two:
                return f"{kind} mismatch at index {index}. expected {one}, actual {two}"
    return f"expected {wanted}, actual {found}"


def tells_of_sizes(reason: str) -> bool:
    """Whether a reason is that a tensor's sizes differ, and nothing else of it."""
    return reason.startswith("tensor ") and ": size mismatch at index " in reason

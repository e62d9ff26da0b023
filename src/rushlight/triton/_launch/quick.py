"""Repeated launches: a kernel is found by a flat key, which code made for the classes of the arguments computes.

The key tells more apart than the kernel's own (`specialize`) does, so several may mean one kernel; what it cannot tell
is left to the long way.

>>> from rushlight.triton._launch.quick import Signature
>>> signature = Signature(["n", "BLOCK"], [False, True])
>>> signature.words((int, int))(0, 32, 64)
((0, False, True, 64), (32,))
>>> signature.words((int, int))(0, 1 << 40, 64) is None
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import rushlight

__all__ = ["NAMED_OPTIONS", "Signature", "binder"]

# Options of launches that are often given; they come first in a key.
NAMED_OPTIONS = ("num_warps", "num_stages", "num_ctas")
_SIMPLE = (int, bool, float, str, type(None))


def binder(names: Sequence[str], defaults: Sequence[Any], missing: Any) -> Callable[..., Any] | None:
    """A function of a kernel's arguments by place or name that gives (their values in order, `NAMED_OPTIONS`).

    TypeError for arguments or options that do not fit; None for names that cannot be those of a function.
    """
    if not all(name.isidentifier() for name in names) or set(names) & set(NAMED_OPTIONS):
        return None
    scope: dict[str, Any] = {"_none": None, **{f"_d{i}": d for i, d in enumerate(defaults)}}
    params = [
        name if d is missing else f"{name}=_d{i}" for i, (name, d) in enumerate(zip(names, defaults, strict=True))
    ]
    options = [f"{name}=_none" for name in NAMED_OPTIONS]
    text = f"lambda {', '.join([*params, '*', *options])}: (({_tuple(names)}), ({_tuple(NAMED_OPTIONS)}))"
    try:
        return eval(text, scope)  # noqa: S307 - names of parameters alone
    except SyntaxError:
        return None


def _tuple(items: Sequence[str]) -> str:
    return "".join(f"{item}, " for item in items)


class Signature:
    """The parameters of a kernel: their names, and which are constexpr."""

    def __init__(self, names: Sequence[str], constant: Sequence[bool]) -> None:
        self.names, self.constant = list(names), list(constant)
        self._made: dict[tuple[type, ...], Any] = {}

    def words(self, types: tuple[type, ...]) -> Any:
        """A function of options and values of these classes: (key, what a kernel may be passed), or None where the values
        need the long way.  None in its place for other classes.
        """
        if types not in self._made:
            self._made[types] = self._function(types)
        return self._made[types]

    def _function(self, types: tuple[type, ...]) -> Any:
        lines: list[str] = []
        key, words, tests = ["options"], [], []
        device = ""
        for i, (kind, constant) in enumerate(zip(types, self.constant, strict=True)):
            if constant:
                if kind not in _SIMPLE:
                    return None
                key.append(f"a{i}")
            elif issubclass(kind, rushlight.Tensor):
                lines.append(f"p{i} = a{i}.data_ptr()")
                key += [f"a{i}.dtype", f"p{i} & 15"]
                words.append(f"p{i}")
                if device:
                    tests.append(f"a{i}.device is not device")
                else:
                    device = f"device = a{i}.device"
                    key.append("device")
            elif kind is int:
                tests.append(f"not -0x80000000 <= a{i} < 0x80000000")
                key += [f"a{i} == 1", f"not a{i} & 15"]
                words.append(f"a{i}")
            elif kind is float:
                words.append(f"a{i}")
            elif kind is not type(None):
                return None
        lines = [device, *([f"if {' or '.join(tests)}: return None"] if tests else []), *lines]
        body = [line for line in lines if line]
        body.append(f"return ({_tuple(key)}), ({_tuple(words)})")
        params = ", ".join(["options", *(f"a{i}" for i in range(len(types)))])
        scope: dict[str, Any] = {}
        exec(f"def words({params}):\n" + "\n".join(f"    {line}" for line in body), scope)  # noqa: S102 - numbered names
        return scope["words"]

    def places(self, types: tuple[type, ...]) -> list[int]:
        """The parameters that the words of such values are of."""
        rows = enumerate(zip(types, self.constant, strict=True))
        return [i for i, (kind, constant) in rows if not constant and kind is not type(None)]

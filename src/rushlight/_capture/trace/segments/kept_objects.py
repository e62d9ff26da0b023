"""Objects that a segment speaks of, as recipes by which another process finds its own.

A recipe is plain data: a value, a module, what a module or a class holds under a name, or a way from the state of a
call or from an object that was found before (`Ways`).  Code is found by name and believed by content: for functions,
code objects and classes a recipe comes with a digest, and an object with another one is not the one that is meant.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import sys
import types
from collections.abc import Iterable, Sequence
from typing import Any

from rushlight._base.digest import digest
from rushlight._base.lazy import require
from rushlight._capture.recording.running.kept_compiled import packed_spec, unpacked_spec
from rushlight._engine.dispatch.plans.results import result_type_of
from rushlight._graph.packing import RecordError, UnpackableError, unpacked_dtype
from rushlight._types.dtype import DType
from rushlight._types.spec import Spec

__all__ = ["PACKAGE", "ElsewhereError", "Finder", "Namer", "Way", "content", "is_result_type", "way_of"]

PACKAGE = __name__.partition(".")[0]
_STEP = r"\.[A-Za-z_]\w*|\[-?\d+\]|\['[^'\\]*'\]"
_WAY = re.compile(rf"(s\[\d+\]|c\d+)((?:{_STEP})*)\Z")
_STEPS = re.compile(_STEP)
_CODE = (types.FunctionType, types.CodeType, type, classmethod, staticmethod, property)
_SIMPLE = frozenset((bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented)))

_MOST_FIELDS = 32  # of named results

Way = tuple[str, str]  # where it begins ("s[0]", "c3"), and the steps from there


def way_of(text: str) -> Way | None:
    """An expression as a way; None for one that is none.

    >>> way_of("c8.cell_contents.__dict__['weight']")
    ('c8', ".cell_contents.__dict__['weight']")
    """
    found = _WAY.match(text)
    return None if found is None else (found[1], found[2])


# ***** what code says *****


def content(value: Any) -> str:
    """A digest of what a function, a code object, a property or a class does; empty for other objects."""
    if not isinstance(value, _CODE):
        return ""
    parts: list[str] = []
    _tell(value, parts)
    return digest("\0".join(parts).encode("utf-8", "surrogatepass")).hex()[:32]


def _tell(value: Any, parts: list[str]) -> None:
    if isinstance(value, types.FunctionType):
        parts += ["function", value.__module__ or "", value.__qualname__]
        _tell(value.__code__, parts)
    elif isinstance(value, types.CodeType):
        parts += [
            "code", value.co_name, value.co_code.hex(), repr(value.co_names), repr(value.co_varnames), repr(value.co_freevars),
            repr(value.co_cellvars), repr((value.co_flags, value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount)),
            getattr(value, "co_exceptiontable", b"").hex(),
        ]  # fmt: skip
        for held in value.co_consts:
            _tell_constant(held, parts)
    elif isinstance(value, type):
        parts += ["class", *[f"{each.__module__}.{each.__qualname__}" for each in value.__mro__]]
    elif isinstance(value, property):
        for part in (value.fget, value.fset, value.fdel):
            parts.append("part")
            if part is not None:
                _tell(part, parts)
    elif isinstance(value, (classmethod, staticmethod)):
        parts.append(type(value).__name__)
        _tell(value.__func__, parts)
    else:
        parts.append(f"{type(value).__module__}.{type(value).__qualname__}")


def _tell_constant(value: Any, parts: list[str]) -> None:
    if isinstance(value, types.CodeType):
        _tell(value, parts)
    elif type(value) is frozenset:
        parts.append(f"frozenset {sorted(map(repr, value))}")
    elif type(value) is tuple:
        parts.append(f"tuple {len(value)}")
        for item in value:
            _tell_constant(item, parts)
    else:
        parts.append(f"{type(value).__name__} {value!r}")


# ***** values *****


def packed_plain(value: Any) -> Any:
    """A value that is the same in every process, as plain data."""
    kind = type(value)
    if kind in (bool, str, type(None)):
        return value
    if kind is int:
        return {"int": str(value)}
    if kind is float:
        return {"float": value.hex() if value == value else "nan"}
    if kind is complex:
        return {"complex": [packed_plain(value.real), packed_plain(value.imag)]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if value is Ellipsis or value is NotImplemented:
        return {"single": repr(value)}
    if kind is slice:
        return {"slice": [packed_plain(x) for x in (value.start, value.stop, value.step)]}
    if kind in (tuple, frozenset, list):
        return {kind.__name__: [packed_plain(x) for x in (sorted(value, key=repr) if kind is frozenset else value)]}
    if kind is DType:
        return {"dtype": value.name}
    if kind is Spec:
        return {"spec": packed_spec(value)}
    raise UnpackableError(f"an object of {kind.__module__}.{kind.__qualname__}")


def unpacked_plain(data: Any) -> Any:
    """The value."""
    if type(data) in (bool, str, type(None)):
        return data
    if type(data) is not dict or len(data) != 1:
        raise RecordError("no value")
    ((kind, held),) = data.items()
    if kind == "int":
        return int(held)
    if kind == "float":
        return float.fromhex(held)
    if kind == "complex":
        return complex(*[unpacked_plain(x) for x in held])
    if kind == "bytes":
        return bytes.fromhex(held)
    if kind == "single":
        return {"Ellipsis": Ellipsis, "NotImplemented": NotImplemented}[held]
    if kind == "slice":
        return slice(*[unpacked_plain(x) for x in held])
    if kind in ("tuple", "frozenset", "list"):
        return {"tuple": tuple, "frozenset": frozenset, "list": list}[kind]([unpacked_plain(x) for x in held])
    if kind == "dtype":
        return unpacked_dtype(held)
    if kind == "spec":
        return unpacked_spec(held)
    raise RecordError("a value of no known kind")


# Values of which there may be several that are equal.
_MADE = frozenset((int, float, complex, str, bytes, tuple, frozenset, slice))


def _said(value: Any) -> str:
    """A text that identifies an object beside its place."""
    if type(value) is tuple and value and all(isinstance(each, type) for each in value):  # an order of classes
        return " ".join(map(content, value))
    return f"= {json.dumps(packed_plain(value))}" if type(value) in _MADE else content(value)


# ***** names *****


def _raw(module: str, qualname: str, how: str) -> Any:
    """The raw entry of a module or of a class in it: `how` is "" for the object itself, "func" or "fget" for what that
    is around; AttributeError where there is nothing.
    """
    held = sys.modules.get(module)
    if held is None and module.partition(".")[0] == PACKAGE:
        held = require(module)
    if held is None:
        raise AttributeError(module)
    found: Any = held
    for name in qualname.split("."):
        if isinstance(found, type):
            found = next((k.__dict__[name] for k in found.__mro__ if name in k.__dict__), None)
        else:
            own = module.partition(".")[0] == PACKAGE and found is held  # its names may be loaded by their first use
            found = getattr(found, name, None) if own else vars(found).get(name)
        if found is None:
            raise AttributeError(qualname)
    if how == "func":
        return found.__func__
    return getattr(found, how) if how in ("fget", "fset") else found


class Namer:
    """Finds recipes for the objects of one segment.  `ways` are those that conditions know: (name, way, whether it is
    the type of what is there), `asked` the names of objects that conditions ask for by their identity, `again` the
    method that runs a function as it is.
    """

    def __init__(
        self,
        space: dict[str, Any],
        target: types.FunctionType,
        ways: Sequence[tuple[str, Way, bool]],
        asked: set[str],
        again: Any,
    ) -> None:
        self.space, self.target, self.asked, self.again = space, target, asked, again
        self.recipes: dict[str, list[Any]] = {}
        self._ways = list(ways)
        self._index: dict[int, tuple[str, str]] | None = None
        self._wanted: list[str] = []

    def run(self, wanted: Iterable[str]) -> dict[str, list[Any]]:
        """Recipes of the objects with these names, in an order in which they can be found; UnpackableError where one
        has none.
        """
        self._wanted = list(wanted)
        needed = [name for name in self._wanted if not self._direct(name)]
        # A needed object may be held by one that the segment does not mention.
        left = [
            *needed,
            *[n for n, x in self.space.items() if n not in needed and isinstance(x, _CODE) and not self._direct(n)],
        ]
        self._ways += self._structural(left)
        while left:
            before = len(left)
            left = [name for name in left if not self._along(name)]
            if len(left) == before:
                break
        for name in needed:
            if name not in self.recipes:
                value = self.space[name]
                raise UnpackableError(f"an object of {type(value).__module__}.{type(value).__qualname__}")
        return self._only()

    def _only(self) -> dict[str, list[Any]]:
        """The recipes that are of use."""
        used = set(self._wanted)
        for name in reversed(self.recipes):
            kind, base, *_ = self.recipes[name]
            if name in used and kind == "way":
                used.add(base)
        return {name: recipe for name, recipe in self.recipes.items() if name in used}

    def _direct(self, name: str) -> bool:
        if name in self.recipes:
            return True
        value = self.space[name]
        recipe = None if name in self.asked and type(value) in _MADE and value != () else self._recipe(value)
        if recipe is not None:
            self.recipes[name] = [*recipe, _said(value)]
        return recipe is not None

    def _recipe(self, value: Any) -> list[Any] | None:
        if value is self.target:
            return ["target"]
        if type(value) is functools.partial and getattr(value.func, "__func__", None) is self.again:
            return ["again"]
        if type(value) in (*_SIMPLE, DType, Spec, tuple, frozenset, slice):
            return ["value", packed_plain(value)]
        if is_result_type(value):
            return ["results", value.__name__, list(value.__match_args__)]
        if isinstance(value, types.ModuleType):
            return ["module", value.__name__] if sys.modules.get(value.__name__) is value else None
        if type(value) is dict and type(value.get("__name__")) is str:
            module = sys.modules.get(value["__name__"])
            return ["globals", value["__name__"]] if module is not None and vars(module) is value else None
        named = self._named(value)
        if named is None and type(value) is list and all(type(x) in _SIMPLE for x in value):
            return ["value", packed_plain(value)]
        return named

    def _named(self, value: Any) -> list[Any] | None:
        """The recipe of an object that has a name in a module, or None."""
        inner = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
        module, qualname = getattr(inner, "__module__", None), getattr(inner, "__qualname__", None)
        if type(module) is not str and isinstance(value, types.BuiltinFunctionType):
            module = "builtins"
        if type(module) is str and type(qualname) is str and "<" not in qualname:
            for how in ("", "func", "fget"):
                try:
                    if _raw(module, qualname, how) is value:
                        return ["name", module, qualname, how]
                except (AttributeError, ImportError, TypeError):
                    continue
        if self._index is None:
            self._index = _index()
        found = self._index.get(id(value))
        return None if found is None else ["name", *found, ""]

    def _structural(self, left: Sequence[str]) -> list[tuple[str, Way, bool]]:
        """Ways along which code is held by other code."""
        names = {id(self.space[name]): name for name in left}
        found: list[tuple[str, Way, bool]] = []

        def add(value: Any, base: str, steps: str) -> None:
            if id(value) in names:
                found.append((names[id(value)], (base, steps), False))

        for name, value in self.space.items():
            if isinstance(value, types.FunctionType):
                add(value.__code__, name, ".__code__")
                for k, cell in enumerate(value.__closure__ or ()):
                    add(cell, name, f".__closure__[{k}]")
            elif isinstance(value, (classmethod, staticmethod)):
                add(value.__func__, name, ".__func__")
            elif isinstance(value, property):
                add(value.fget, name, ".fget")
            elif isinstance(value, type):
                add(value.__mro__, name, ".__mro__")
                for k, each in enumerate(value.__mro__):
                    add(each, name, f".__mro__[{k}]")
        return found

    def _along(self, name: str) -> bool:
        """Find an object along a way; only code, which is known by its content, and cells, whose contents are guarded."""
        value = self.space[name]
        if not isinstance(value, (*_CODE, types.CellType)) and type(value) not in _MADE:
            return False
        for known, (base, steps), is_type in self._ways:
            if known == name and base != name and (base[0] == "s" or base in self.recipes):
                self.recipes[name] = ["way", base, steps, is_type, _said(value)]
                return True
        return False


def _index() -> dict[int, tuple[str, str]]:
    """The objects that our own modules, and those of the language, hold under a name."""
    found: dict[int, tuple[str, str]] = {}
    for module, held in list(sys.modules.items()):
        if held is None or not (
            module.partition(".")[0] == PACKAGE or module in ("types", "builtins", "collections", "os", "operator")
        ):
            continue
        for name, value in list(vars(held).items()):
            if type(value) not in _SIMPLE and not isinstance(value, types.ModuleType):
                found.setdefault(id(value), (module, name))
    return found


def is_result_type(value: Any) -> bool:
    """Whether an object is the type of an operator's named results."""
    if not isinstance(value, type) or value.__module__ != "torch.return_types" or value.__bases__ != (tuple,):
        return False
    return result_type_of(value.__name__, value.__dict__["__match_args__"]) is value


def _result_type(name: Any, fields: Any) -> Any:
    """The type of named results; its name and its fields may come from anywhere."""
    names = [name, *fields]
    if len(names) > _MOST_FIELDS or not all(type(each) is str and each.isidentifier() for each in names):
        raise RecordError("no named results")
    return result_type_of(name, tuple(fields))


class ElsewhereError(RecordError):
    """A record of a world where some code is another one."""


class Finder:
    """Finds the objects that recipes tell of.  ElsewhereError where one is not there, or is another."""

    def __init__(self, target: types.FunctionType, again: Any, state: Sequence[Any]) -> None:
        self.target, self.again, self.state = target, again, state
        self.space: dict[str, Any] = {}

    def find(self, name: str, recipe: Any) -> None:
        """Add the object of one recipe."""
        if type(recipe) is not list or len(recipe) < 2 or not re.fullmatch(r"c\d+", name):
            raise RecordError("no recipe")
        *what, said = recipe
        try:
            value = self._found(*what)
        except RecordError:
            raise
        except Exception as error:  # ways lead through objects of the program
            raise ElsewhereError(f"{name} is not there: {type(error).__name__}: {error}") from None
        if _said(value) != said:
            raise ElsewhereError(f"{name} is another one")
        self.space[name] = value

    def _found(self, kind: str, *rest: Any) -> Any:
        if kind in ("target", "again"):
            return self.target if kind == "target" else self.again
        if kind == "value":
            return unpacked_plain(rest[0])
        if kind in ("module", "globals"):
            module = sys.modules[rest[0]]
            return module if kind == "module" else vars(module)
        if kind == "name":
            return _raw(*rest)
        if kind == "results":
            return _result_type(*rest)
        if kind != "way":
            raise RecordError("a recipe of no known kind")
        base, steps, is_type = rest
        if way_of(f"{base}{steps}") is None:
            raise RecordError("no way")
        value = self.state[int(base[2:-1])] if base[0] == "s" else self.space[base]
        for step in _STEPS.findall(steps):
            value = getattr(value, step[1:]) if step[0] == "." else value[ast.literal_eval(step[1:-1])]
        if is_type:
            return type(value)
        if not isinstance(value, (*_CODE, types.CellType)) and type(value) not in _MADE:
            raise RecordError("a way to something else than code")
        return value

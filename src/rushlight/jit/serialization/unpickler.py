"""Reads the pickles of archives: tensors, containers, and objects of the archive's own classes."""

from __future__ import annotations

from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

from rushlight.jit.ir import types as T
from rushlight.jit.runtime.objects import enum_class, tuple_class
from rushlight.serialization.unpickler import SafeUnpickler, _Allowed

__all__ = ["ModelUnpickler", "RawObject"]


class RawObject:
    """An object of a class of the archive: its type and its state."""

    __slots__ = ("kind", "made", "state")

    def __init__(self, kind: T.ClassType) -> None:
        self.kind, self.state, self.made = kind, None, None


def _listed(values: Any) -> list[Any]:
    if not isinstance(values, list):
        raise UnpicklingError("a typed list must be made of a list")
    return values


def _tagged(value: Any, tag: Any) -> Any:
    return value


class ModelUnpickler(SafeUnpickler):
    """Reads one pickle; `find` knows the archive's classes by qualified names, `tensor` the constants by number."""

    def __init__(self, data: bytes, load: Callable[[Any], Any], find: Callable[[str], Any], tensors: Any = ()) -> None:
        super().__init__(data, load)
        self._find, self._tensors = find, tensors

    def _push_global(self, module: str, name: str) -> None:
        if module == "__torch__" or module.startswith("__torch__."):
            found = self._find(f"{module}.{name}")
            if not isinstance(found, T.Type):
                raise UnpicklingError(f"there is no class {module}.{name} in the archive")
            self._stack.append(_Allowed(f"{module}.{name}", self._maker(found), by_user=False))
            return
        if module == "torch.jit._pickle":
            makers: dict[str, Any] = {
                "build_intlist": _listed, "build_doublelist": _listed, "build_boollist": _listed, "build_tensorlist": _listed,
                "restore_type_tag": _tagged, "build_tensor_from_id": self._tensor,
            }  # fmt: skip
            if name in makers:
                self._stack.append(_Allowed(f"{module}.{name}", makers[name], by_user=False))
                return
        super()._push_global(module, name)

    def _tensor(self, at: Any) -> Any:
        if type(at) is not int or not 0 <= at < len(self._tensors):
            raise UnpicklingError("there is no such tensor in the archive")
        return self._tensors[at]

    def _maker(self, kind: Any) -> Callable[..., Any]:
        def make(*args: Any) -> Any:
            if isinstance(kind, T.ClassType):
                return RawObject(kind)
            if isinstance(kind, T.EnumType):
                name = next((n for n, v in kind.values.items() if len(args) == 1 and v == args[0]), None)
                if name is None:
                    raise UnpicklingError(f"{kind.name} has no such member")
                return enum_class(kind)[name]
            if isinstance(kind, T.NamedTupleType):
                values = args[0] if len(args) == 1 and isinstance(args[0], tuple) and len(kind.fields) != 1 else args
                if len(values) != len(kind.fields):
                    raise UnpicklingError(f"{kind.name} has {len(kind.fields)} fields")
                return tuple_class(kind)(*values)
            raise UnpicklingError(f"{kind} makes no objects")

        return make

    def _reduce(self) -> None:
        # Members of enumerations are written with their bare value.
        if len(self._stack) > 1 and not isinstance(self._stack[-1], tuple) and isinstance(self._stack[-2], _Allowed):
            if self._stack[-2].name.startswith("__torch__."):
                self._stack[-1] = (self._stack[-1],)
        super()._reduce()

    def _build(self) -> None:
        target = self._stack[-2] if len(self._stack) > 1 else None
        if isinstance(target, RawObject):
            target.state = self._pop()
            return
        super()._build()

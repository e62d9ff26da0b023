"""Which module is computed now, with what is known of it: its kind, parameters and their placements."""

from __future__ import annotations

from typing import Any

from rushlight.distributed.tensor._api import DTensor
from rushlight.utils.module_tracker import ModuleTracker

__all__ = ["ROOT", "Modules"]

ROOT = "Global"


class Modules(ModuleTracker):
    """Modules in the order in which they were met; `current` is the innermost that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, dict[str, Any]] = {}
        self.outer: dict[str, list[str]] = {}  # the modules around each
        self.children: dict[str, list[str]] = {}
        self.parameters: dict[str, dict[str, Any]] = {}
        self.placements: dict[str, Any] = {}
        self._backward: list[str] = []
        self._recomputed: list[str] = []

    def __enter__(self) -> Modules:
        for table in (self.known, self.outer, self.children, self.parameters, self.placements):
            table.clear()
        self.known[ROOT], self.outer[ROOT] = {"depth": 0}, []
        self._backward, self._recomputed = [], []
        super().__enter__()
        return self

    @property
    def current(self) -> str:
        """The name of the innermost module; `ROOT` outside of all."""
        stack = (self._recomputed or self._backward) if self.is_bw else self._open
        return stack[-1] if stack else ROOT

    @property
    def recomputes(self) -> bool:
        """Whether forward runs again within backward."""
        return bool(self._recomputed)

    def around(self, name: str) -> list[str]:
        """The module and those around it, each once."""
        return list(dict.fromkeys([name, *self.outer.get(name, [ROOT])]))

    def _begins(self, module: Any, args: Any) -> None:
        name = self.name_of(module)
        if self.is_bw:
            self._recomputed.append(name)
        elif name not in self.known:
            self._meet(name, module)
        super()._begins(module, args)

    def _ends(self, module: Any, args: Any, output: Any) -> None:
        name = self.name_of(module)
        while self._recomputed and self._recomputed.pop() != name:
            pass
        super()._ends(module, args, output)

    def _meet(self, name: str, module: Any) -> None:
        outer = [ROOT, *self._open]
        self.outer[name] = outer
        self.children.setdefault(outer[-1], []).append(name)
        self.known[name] = {"depth": len(outer), "module_type": str(type(module)).strip("<>")}
        for word, parameter in module.named_parameters(recurse=False):
            self.parameters.setdefault(name, {})[word] = parameter.data
            if isinstance(parameter, DTensor):
                self.placements[f"{name}.{word}"] = parameter.placements
                self.known[name].setdefault("parameters", {})[word] = str(parameter.placements)

    def _enter(self, name: str) -> None:
        super()._enter(name)
        place = len(self._backward)
        while place and name in self.outer.get(self._backward[place - 1], ()):
            place -= 1  # an output of both: the module within stays the innermost
        self._backward.insert(place, name)

    def _leave(self, name: str) -> None:
        super()._leave(name)
        if name in self._backward:
            self._backward.remove(name)

"""Guards on the arguments of a call: sizes, values of numbers, and relations between sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rushlight import Tensor
from rushlight._interface.sizes import Integer, as_double, double_bits, single, truncated
from rushlight.export.graph_signature import InputKind
from rushlight.nn.modules.module import Module

__all__ = ["GuardsFn", "InputGuards", "computed", "holds"]


@dataclass
class InputGuards:
    """Conditions on the leaves of the arguments as Python text, over their names as placeholders."""

    conditions: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)  # the same in terms of `L['x']`

    @classmethod
    def of(cls, traced: Any) -> InputGuards:
        """Those of a trace."""
        names = [i.node.name for i in traced.inputs if i.kind == "user"]
        made = cls()
        sources: dict[str, str] = {}
        for name, each in zip(names, [i for i in traced.inputs if i.kind == "user"], strict=True):
            made._leaf(name, each.value, sources)
        made._sizes(traced.sizes.env, sources)
        return made

    @classmethod
    def of_program(cls, program: Any) -> InputGuards:
        """Those that the inputs of a graph and the ranges of their sizes tell."""
        made = cls()
        sources: dict[str, str] = {}
        nodes = [n for n in program.graph.nodes if n.op == "placeholder"]
        for node, spec in zip(nodes, program.graph_signature.input_specs, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                made._leaf(node.name, node.meta.get("val"), sources)
        if program._shape_env is not None:
            made._sizes(program._shape_env, sources)
        return made

    def _leaf(self, name: str, value: Any, sources: dict[str, str]) -> None:
        if isinstance(value, Tensor):
            for d, size in enumerate(value.shape):
                if type(size) is Integer:
                    self._size(size, f"{name}.size()[{d}]", sources)
                else:
                    self.conditions.append(f"{name}.size()[{d}] == {size}")
        elif type(value) is Integer:
            self._size(value, name, sources)
        elif value is None or isinstance(value, (bool, str)):
            self.conditions.append(f"{name} is {value}" if not isinstance(value, str) else f"{name} == {value!r}")
        else:
            self.conditions.append(f"{name} == {value!r}")

    def _size(self, size: Any, text: str, sources: dict[str, str]) -> None:
        """A size that varies: the first place of a symbol tells it, others must be equal."""
        shown = size.shape_env.text(size.terms)
        if len(size.terms) != 1 or size.terms[0][1] != 1 or len(size.terms[0][0]) != 1:
            formula = _in_terms_of(size.shape_env, shown, sources)
            if formula is not None:
                self.conditions.append(f"{text} == {formula}")
        elif sources.setdefault(shown, text) != text:
            self.conditions.append(f"{text} == {sources[shown]}")

    def _sizes(self, env: Any, sources: dict[str, str]) -> None:
        """Conditions on sizes, and their declared bounds."""
        for number, name in enumerate(env._symbol_names):
            if name not in sources:
                continue
            symbol = env.symbols[number]
            low, high = env.bounds(symbol.terms)
            if low > 2:
                self.conditions.append(f"{sources[name]} >= {int(low)}")
            if high < 1 << 40:
                self.conditions.append(f"{sources[name]} <= {int(high)}")
        for condition in env.conditions():
            text = _in_terms_of(env, condition, sources)
            if text is not None:
                self.conditions.append(text)


def _in_terms_of(env: Any, condition: str, sources: dict[str, str]) -> str | None:
    """A condition over the names of arguments; None for one on sizes that no argument tells."""
    unknown = False

    def shown(match: re.Match[str]) -> str:
        nonlocal unknown
        name = match.group(0)
        if name in sources:
            return sources[name]
        if name in env._lines:
            return f"({re.sub(_NAME, shown, env._lines[name])})"
        unknown = unknown or name in env._symbol_names
        return name

    text = re.sub(_NAME, shown, condition)
    for sign in ("==", "<=", ">=", "!="):
        text = text.replace(sign, f" {sign} ")
    return None if unknown else text


_NAME = re.compile(r"[A-Za-z_]\w*")


def computed(text: str, values: dict[str, Any]) -> Any:
    """The value of a formula of a `ShapeEnv`: text of names and numbers."""
    return eval(text, dict(_SCOPE), values)  # noqa: S307


def holds(condition: str, values: dict[str, Any]) -> bool:
    """Whether a condition of a `ShapeEnv` holds for these values."""
    return bool(computed(condition, values))


class GuardsFn(Module):
    """Refuses arguments for which a program does not hold: AssertionError with the condition."""

    _is_impure = True  # it stays in graphs although nobody uses its result

    def __init__(self, names: Sequence[str] = (), conditions: Sequence[str] = ()) -> None:
        super().__init__()
        self.names, self.conditions = list(names), list(conditions)
        body = " and ".join(f"({c})" for c in self.conditions) or "True"
        # Text made of the names of placeholders, sizes and numbers alone; see `InputGuards`.
        self.__dict__["_all"] = eval(f"lambda {', '.join(self.names)}: {body}", dict(_SCOPE))  # noqa: S307

    def forward(self, *args: Any) -> None:
        """Check the leaves of a call."""
        if self._all(*args):
            return
        values = dict(zip(self.names, args, strict=True))
        for condition in self.conditions:
            if not holds(condition, values):
                raise AssertionError(f"Guard failed: {condition}")

    def __deepcopy__(self, memo: Any) -> GuardsFn:
        return GuardsFn(self.names, self.conditions)

    def __reduce__(self) -> Any:
        return GuardsFn, (self.names, self.conditions)


_SCOPE: dict[str, Any] = {
    "__builtins__": {}, "min": min, "max": max, "abs": abs, "int": int, "float": float, "round": round, "as_double": as_double,
    "bits": double_bits, "single": single, "truncated": truncated, "math": math, "sqrt": math.sqrt,
}  # fmt: skip

"""Eager programs as data: a list of steps over tensors that can be taken in any module with PyTorch's names, and printed as a script."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

ERRORS = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, ZeroDivisionError, OverflowError)
DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "complex128",
    "complex64",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
)
_OPERATORS = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b, "/": lambda a, b: a / b, "//": lambda a, b: a // b,
    "%": lambda a, b: a % b, "@": lambda a, b: a @ b, "&": lambda a, b: a & b, "|": lambda a, b: a | b, "^": lambda a, b: a ^ b,
    "<": lambda a, b: a < b, "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, "==": lambda a, b: a == b, "!=": lambda a, b: a != b,
    "<<": lambda a, b: a << b, ">>": lambda a, b: a >> b, "**": lambda a, b: a**b,
}  # fmt: skip


@dataclass(frozen=True)
class Ref:
    """An earlier value."""

    place: int


@dataclass(frozen=True)
class Name:
    """Something of the module, such as a dtype."""

    text: str


@dataclass(frozen=True)
class Leaf:
    """A tensor that the program begins with."""

    numbers: Any
    dtype: str
    grad: bool
    kind: str = ""  # of which class it is, one of `CLASSES`; a plain tensor without


@dataclass(frozen=True)
class Step:
    """`kind` says how `name` and `args` are written: function, method, attribute, operator, index, store."""

    kind: str
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    part: int | None = None  # of a result that is a tuple
    no_grad: bool = False

    def take(self, module: Any, values: Sequence[Any]) -> Any:
        """The step's value; what a method returns that changes its tensor is that tensor."""
        args = [resolve(a, module, values) for a in self.args]
        kwargs = {k: resolve(a, module, values) for k, a in self.kwargs.items()}
        if self.no_grad:
            with module.no_grad():
                return self.call(module, args, kwargs)
        return self.call(module, args, kwargs)

    def call(self, module: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if self.kind == "function":
            owner = module
            for part in self.name.split("."):
                owner = getattr(owner, part)
            made = owner(*args, **kwargs)
        elif self.kind == "method":
            made = getattr(args[0], self.name)(*args[1:], **kwargs)
        elif self.kind == "attribute":
            made = getattr(args[0], self.name)
        elif self.kind == "operator":
            made = _OPERATORS[self.name](*args)
        elif self.kind == "index":
            made = args[0][args[1]]
        else:
            args[0][args[1]] = args[2]
            made = args[0]
        return made if self.part is None else made[self.part]

    def text(self, target: str) -> str:
        """One line of Python (two where gradients are off)."""
        shown = [show(a) for a in self.args]
        rest = [f"{k}={show(a)}" for k, a in self.kwargs.items()]
        match self.kind:
            case "function":
                made = f"torch.{self.name}({', '.join(shown + rest)})"
            case "method":
                made = f"{shown[0]}.{self.name}({', '.join(shown[1:] + rest)})"
            case "attribute":
                made = f"{shown[0]}.{self.name}"
            case "operator":
                made = f"{shown[0]} {self.name} {shown[1]}"
            case "index":
                made = f"{shown[0]}[{place_text(self.args[1])}]"
            case _:
                made = f"{shown[0]}[{place_text(self.args[1])}] = {shown[2]}; {target} = {shown[0]}"
        if self.part is not None:
            made += f"[{self.part}]"
        line = made if self.kind == "store" else f"{target} = {made}"
        return f"with torch.no_grad():\n    {line}" if self.no_grad else line


def resolve(a: Any, module: Any, values: Sequence[Any]) -> Any:
    if isinstance(a, Ref):
        return values[a.place]
    if isinstance(a, Name):
        return getattr(module, a.text)
    if isinstance(a, tuple):
        return tuple(resolve(x, module, values) for x in a)
    if isinstance(a, list):
        return [resolve(x, module, values) for x in a]
    return a


def show(a: Any) -> str:
    if isinstance(a, Ref):
        return f"v{a.place}"
    if isinstance(a, Name):
        return f"torch.{a.text}"
    if isinstance(a, tuple):
        return "(" + "".join(f"{show(x)}, " for x in a).rstrip() + ")"
    if isinstance(a, list):
        return "[" + ", ".join(show(x) for x in a) + "]"
    return repr(a)


def place_text(a: Any) -> str:
    if isinstance(a, tuple) and a:
        return ", ".join(place_text(x) for x in a)
    if isinstance(a, slice):
        parts = ["" if p is None else str(p) for p in (a.start, a.stop)]
        return ":".join(parts) + ("" if a.step is None else f":{a.step}")
    return "..." if a is Ellipsis else show(a)


CLASSES = {
    "Quiet": "class Quiet(torch.Tensor):\n    pass\n",
    "Asking": "class Asking(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, func, types, args=(), kwargs=None):\n"
    "        return super().__torch_function__(func, types, args, kwargs or {})\n",
}
_MADE: dict[Any, Any] = {}


def class_of(module: Any, kind: str) -> Any:
    """The class of a kind in a module: without an override, or with one that hands on to that of `Tensor`."""
    if module not in _MADE:

        class Quiet(module.Tensor):  # type: ignore[name-defined, misc]
            pass

        class Asking(module.Tensor):  # type: ignore[name-defined, misc]
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return super().__torch_function__(func, types, args, kwargs or {})

        _MADE[module] = {"Quiet": Quiet, "Asking": Asking}
    return _MADE[module][kind]


@dataclass
class Program:
    """Leaves, steps, and how gradients are asked for at the end (`""`, "backward", "twice" or "second")."""

    leaves: list[Leaf]
    steps: list[Step] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)  # the values whose squares are differentiated
    ending: str = ""

    def start(self, module: Any) -> list[Any]:
        found = [
            module.tensor(leaf.numbers, dtype=getattr(module, leaf.dtype), requires_grad=leaf.grad)
            for leaf in self.leaves
        ]
        for place, leaf in enumerate(self.leaves):
            if leaf.kind:
                found[place] = module.Tensor._make_subclass(
                    class_of(module, leaf.kind), found[place].detach(), leaf.grad
                )
        return found

    def finish(self, module: Any, values: list[Any]) -> list[Any]:
        """Gradients for the leaves that want one, and for values that keep theirs."""
        outs = [values[i] for i in self.seeds]
        wanted = [values[i] for i, leaf in enumerate(self.leaves) if leaf.grad]
        cts = [v.detach().clone() for v in outs]
        if self.ending == "second":
            first = module.autograd.grad(outs, wanted, cts, create_graph=True, allow_unused=True)
            again = [g for g in first if g is not None and g.requires_grad]
            if again:
                module.autograd.backward(again, [g.detach().clone() for g in again])
            return [*first, *(v.grad for v in wanted)]
        if self.ending == "twice":
            module.autograd.backward(outs, cts, retain_graph=True)
        module.autograd.backward(outs, cts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `.grad` of what is no leaf
            return [v.grad for v in values]

    def script(self, why: str = "") -> str:
        """The program as a file that runs in either library."""
        lines = [f"# {line}" for line in why.splitlines()]
        lines += [
            "import sys",
            "import importlib",
            'torch = importlib.import_module(sys.argv[1])  # "torch" or "rushlight"',
            "",
        ]
        for i, leaf in enumerate(self.leaves):
            grad = ", requires_grad=True" if leaf.grad else ""
            numbers = repr(leaf.numbers).replace("nan", 'float("nan")').replace("inf", 'float("inf")')
            lines.append(f"v{i} = torch.tensor({numbers}, dtype=torch.{leaf.dtype}{grad})")
            if leaf.kind:
                lines += [
                    CLASSES[leaf.kind],
                    f"v{i} = torch.Tensor._make_subclass({leaf.kind}, v{i}.detach(), {leaf.grad})",
                ]
        for i, step in enumerate(self.steps, len(self.leaves)):
            lines += [step.text(f"v{i}"), f"print('v{i}', v{i}.dtype, tuple(v{i}.shape), v{i}.stride(), v{i})"]
        if self.ending:
            lines += self.ending_text()
        return "\n".join(lines) + "\n"

    def ending_text(self) -> list[str]:
        outs = "[" + ", ".join(f"v{i}" for i in self.seeds) + "]"
        cts = "[" + ", ".join(f"v{i}.detach().clone()" for i in self.seeds) + "]"
        wanted = [f"v{i}" for i, leaf in enumerate(self.leaves) if leaf.grad]
        all_wanted = "[" + ", ".join(wanted) + "]"
        if self.ending == "second":
            lines = [
                f"first = torch.autograd.grad({outs}, {all_wanted}, {cts}, create_graph=True, allow_unused=True)",
                "print(first)",
                "again = [g for g in first if g is not None and g.requires_grad]",
                "torch.autograd.backward(again, [g.detach().clone() for g in again])",
            ]
        else:
            lines = [f"torch.autograd.backward({outs}, {cts}, retain_graph=True)"] if self.ending == "twice" else []
            lines.append(f"torch.autograd.backward({outs}, {cts})")
        return [*lines, f"print([v.grad for v in {all_wanted}])"]

"""Types in the words of a stub: where a name of an annotation comes from, and what the stub must import for it.

A stub writes every type with an underscore in front (`_Tensor`, `_int`), because the public names of the package shadow
half of Python's: `torch.float` is a dtype, `torch.sum` a function, `Tensor.bool` a method.
"""

from __future__ import annotations

import ast
import builtins
import sys
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["Names", "UnknownType", "home_of", "imports_of"]

_TYPING = ("Any", "Literal", "NamedTuple", "NoReturn", "Optional", "Self", "TypeAlias", "TypeVar", "Union", "overload")
_COLLECTIONS = ("Callable", "Iterable", "Iterator", "Mapping", "Sequence")
# Names that a form or a schema may use, independent of the imports of the function's module.
WORDS: dict[str, tuple[str, str]] = {
    **{name: ("typing", name) for name in _TYPING},
    **{name: ("collections.abc", name) for name in _COLLECTIONS},
    "Tensor": ("rushlight._engine.core.tensor", "Tensor"),
    "dtype": ("rushlight._types.dtype", "DType"),
    "device": ("rushlight._types.device", "Device"),
    "layout": ("rushlight._types.formats", "Layout"),
    "memory_format": ("rushlight._types.formats", "MemoryFormat"),
    "Size": ("rushlight._types.layout", "Size"),
    "Generator": ("rushlight._engine.random.random", "Generator"),
    "DeviceLike": ("rushlight._typing", "DeviceLike"),
    "Index": ("rushlight._typing", "Index"),
    "Number": ("rushlight._typing", "Number"),
    "Scalar": ("rushlight._typing", "Scalar"),
    "ndarray": ("numpy", "ndarray"),
    "RemovableHandle": ("rushlight._base.handles", "RemovableHandle"),
}


class UnknownType(NameError):
    """An annotation uses a name that cannot be found."""


class Names:
    """The imports of one stub, gathered while its types are written."""

    def __init__(self) -> None:
        self.imports: dict[tuple[str, str], str] = {}
        self.modules: dict[str, str] = {}

    def use(self, module: str, name: str) -> str:
        """The word by which the stub says `name` of `module`."""
        if module == "rushlight":  # the package re-exports names of other modules
            module, name = imports_of(module).get(name, (module, name))
        known = self.imports.get((module, name))
        if known is not None:
            return known
        word = "_" + name.lstrip("_")
        while word in self.imports.values() or word in self.modules.values():
            word = "_" + word
        self.imports[module, name] = word
        return word

    def word(self, name: str) -> str:
        """One of `WORDS`, or a builtin."""
        return self.use(*WORDS.get(name, ("builtins", name)))

    def use_module(self, module: str) -> str:
        """The word for a whole module."""
        return self.modules.setdefault(module, "_" + module.replace(".", "_"))

    def translate(self, annotation: Any, context: str, *, words_first: bool = False) -> str:
        """An annotation, as text or as syntax tree, in this stub's words; `context` is the module in which it was
        written.
        """
        tree = ast.parse(annotation.strip(), mode="eval").body if isinstance(annotation, str) else annotation
        return ast.unparse(_Renamer(self, context, words_first).visit(tree))

    def resolve(self, name: str, context: str, words_first: bool) -> str:
        """One identifier."""
        if words_first and name in WORDS:
            return self.word(name)
        place = imports_of(context).get(name)
        if place is not None:
            return self.use(*place) if place[1] else self.use_module(place[0])
        if name in WORDS:
            return self.word(name)
        if name == "return_types":
            return self.use_module("rushlight.return_types")
        if hasattr(builtins, name):
            return self.use("builtins", name)
        raise UnknownType(f"{context}: the annotation uses {name!r}, which that module neither defines nor imports")

    def lines(self) -> list[str]:
        """The import statements."""
        plain = [f"import {module} as {word}" for module, word in sorted(self.modules.items())]
        grouped: dict[str, list[str]] = {}
        for (module, name), word in sorted(self.imports.items()):
            grouped.setdefault(module, []).append(f"{name} as {word}")
        return [*plain, *[f"from {module} import {', '.join(words)}" for module, words in grouped.items()]]


class _Renamer(ast.NodeTransformer):
    def __init__(self, names: Names, context: str, words_first: bool) -> None:
        self.names, self.context, self.words_first = names, context, words_first

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.names.resolve(node.id, self.context, self.words_first))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return self.visit(ast.parse(node.value, mode="eval").body) if isinstance(node.value, str) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        literal = isinstance(node.value, ast.Name) and node.value.id == "Literal"
        return ast.Subscript(self.visit(node.value), node.slice if literal else self.visit(node.slice))


@cache
def imports_of(module: str) -> dict[str, tuple[str, str]]:
    """For each name that a module imports or defines: (module, name there); ("numpy", "") for a whole module.

    Read from the source, because what stands under `if TYPE_CHECKING` does not exist at run time.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    found: dict[str, tuple[str, str]] = {}
    if file is None or not file.endswith(".py"):  # built in, or compiled: nothing to read
        return found
    package = module if file.endswith("__init__.py") else module.rpartition(".")[0]
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join(
                    [*package.split(".")[: len(package.split(".")) - node.level + 1], *filter(None, [node.module])]
                )
            for each in node.names:
                typing = base == "typing" and each.name in _COLLECTIONS
                found[each.asname or each.name] = ("collections.abc" if typing else base, each.name)
        elif isinstance(node, ast.Import):
            for each in node.names:
                found[each.asname or each.name.partition(".")[0]] = (
                    each.name if each.asname else each.name.partition(".")[0],
                    "",
                )
    for node in tree.body:
        targets: list[Any] = []
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found[node.name] = (module, node.name)
        elif isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name):
                found[target.id] = (module, target.id)
    found.pop("annotations", None)
    return found


def home_of(value: Any, name: str) -> tuple[str, str] | None:
    """Where a class or function is written as a definition that a type checker can read: (module, name), or None.

    Asked of the source: classes and functions that are made by functions have no such place, and some say another
    module on purpose.
    """
    named = getattr(value, "__module__", None)
    code = value
    if isinstance(value, type):  # a class may go by its page's name; its functions know better
        code = vars(value).get("__init__") or getattr(vars(value).get("__new__"), "__func__", None)
    function = getattr(code, "__globals__", {}).get("__name__")
    for module in (named, function):
        for word in (getattr(value, "__qualname__", None), getattr(value, "__name__", None), name):
            if not isinstance(module, str) or not isinstance(word, str) or module not in sys.modules:
                continue
            if imports_of(module).get(word) == (module, word) and getattr(sys.modules[module], word, None) is value:
                return module, word
    return None

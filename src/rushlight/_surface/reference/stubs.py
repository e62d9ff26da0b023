"""Type stubs, written from the operator table and from the live package.

Everything that is ordinary Python is typed where it stands (`py.typed`).  Stubs are needed where names come into being
by use: the package's own page, the pages of functions (`linalg`, `nn.functional`, ...), the pages that load their parts
late, and the methods of Tensor.  They make a partial stub package (PEP 561) beside the package, so that the inner rooms
are checked against their own sources and users against these files.

`python -m rushlight stubs` writes them.
"""

from __future__ import annotations

import ast
import copy
import enum
import importlib
import inspect
import pkgutil
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.plans.native_plans import is_function
from rushlight._ops.table import OPERATORS, Operator
from rushlight._surface.operators import BINARY, INPLACE, REVERSED, UNARY
from rushlight._surface.reference.annotations import Names, home_of, imports_of
from rushlight._surface.reference.signatures import Form, Parameter, operator_forms, python_forms, render
from rushlight._surface.registry import SPACES, LazyMethod, row_of
from rushlight._types.dtype import DType

__all__ = ["FOLDER", "changed", "needs_stub", "public_modules", "public_names", "stub_files", "write"]

PACKAGE = "rushlight"
FOLDER = Path(__file__).resolve().parents[3] / "rushlight-stubs"
HEADER = '"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""\n'

# Types that only stubs know: `rushlight._typing` does not exist at run time.
TYPING = """
from builtins import bool as _bool, complex as _complex, float as _float, int as _int, str as _str
from types import EllipsisType as _EllipsisType
from typing import Any as _Any, Protocol as _Protocol, SupportsIndex as _SupportsIndex, TypeAlias as _TypeAlias, Union as _Union

from rushlight._engine.core.tensor import Tensor as _Tensor
from rushlight._types.device import Device as _Device

Number: _TypeAlias = _Union[_int, _float, _bool]
Scalar: _TypeAlias = _Union[_int, _float, _bool, _complex]
DeviceLike: _TypeAlias = _Union[_Device, _str, _int, None]

class Array(_Protocol):
    def __array__(self, *args: _Any, **kwargs: _Any) -> _Any: ...

Index: _TypeAlias = _Union[_SupportsIndex, None, slice, _EllipsisType, _Tensor, Array, list[_Any], tuple[_Any, ...], range]
"""


# ***** which modules and names are public *****


# Cannot be imported without an extra, and need no stub: type checkers read their source.
_WITH_EXTRAS = ("rushlight.utils.tensorboard",)


def public_modules() -> list[str]:
    """All public modules, from the package's folders."""
    found = [PACKAGE]
    for info in pkgutil.walk_packages(importlib.import_module(PACKAGE).__path__, f"{PACKAGE}."):
        if not any(part.startswith("_") for part in info.name.split(".")[1:]) and not info.name.startswith(
            _WITH_EXTRAS
        ):
            found.append(info.name)
    return found


def public_names(module: ModuleType) -> dict[str, Any]:
    """The public names of a module: those that are neither private nor imported for its own use."""
    found = {}
    for name in sorted({*dir(module), *getattr(module, "__all__", ())}):
        if name.startswith("_") and name not in ("__version__", "__config__", "__future__"):
            continue
        try:
            value = getattr(module, name)
        except AttributeError:  # a page that is announced and does not exist yet
            continue
        if name in getattr(module, "__all__", ()) or not _is_tool(module.__name__, name, value):
            found[name] = value
    return found


def _is_tool(module: str, name: str, value: Any) -> bool:
    """Whether the name is there because the module itself needs it: what it imports from elsewhere, typing words,
    private parts.
    """
    if isinstance(value, ModuleType):
        return not value.__name__.startswith(PACKAGE) or value.__name__.rpartition(".")[0] != module
    place = imports_of(module).get(name)
    if place is not None and place[0] != module:
        top = place[0].partition(".")[0]
        private = any(part.startswith("_") for part in place[0].split(".")[1:])
        return top != PACKAGE or private
    return name == "annotations"


def needs_stub(module: ModuleType) -> bool:
    """Whether some public name of a module cannot be seen in its source."""
    if module.__name__ in (f"{PACKAGE}._engine.core.tensor", PACKAGE) or "__getattr__" in vars(module):
        return True
    seen = imports_of(module.__name__)
    return any(name not in seen and not isinstance(value, ModuleType) for name, value in public_names(module).items())


# ***** one page *****


def page_stub(module: ModuleType) -> str:
    """The stub of a public module."""
    names, lines = Names(), []
    space: Any = SPACES.get(module.__name__.removeprefix(f"{PACKAGE}.") if module.__name__ != PACKAGE else "torch", {})
    for name, value in sorted(public_names(module).items()):
        lines += _entry(module, name, value, space, names)
    return "\n".join([HEADER, *names.lines(), "", *lines, ""])


def _entry(module: ModuleType, name: str, value: Any, space: Any, names: Names) -> list[str]:
    """The lines of one public name."""
    if isinstance(value, ModuleType):
        parent, _, last = value.__name__.rpartition(".")
        return [f"from {parent} import {last} as {name}"]
    if name in space and space[name] is value and is_function(value):
        return function_lines(name, value, names)
    if not isinstance(value, type) and not inspect.isroutine(value) and not callable(value):
        return [f"{name}: {value_type(value, names)}"]
    home = home_of(value, name) or _defined_in(module.__name__, name)
    if home is not None and home[0] != module.__name__:
        same = home[1] == name  # a stub shows a name to others only where it keeps it
        return [f"from {home[0]} import {name} as {name}" if same else f"{name} = {names.use(*home)}"]
    if home is not None and isinstance(value, type) and _class_statement(home) is not None:
        return class_lines(home, names)
    if isinstance(value, type):
        return _made_class(name, value, names)
    if is_function(value):
        return function_lines(name, value, names)
    return [f"{name}: {value_type(value, names)}"]


def _class_statement(home: tuple[str, str]) -> ast.ClassDef | None:
    """The statement that makes a class; None for one that a function made."""
    return next((n for n in _tree(home[0]).body if isinstance(n, ast.ClassDef) and n.name == home[1]), None)


def _defined_in(module: str, name: str) -> tuple[str, str] | None:
    """Where a module imports a name from."""
    place = imports_of(module).get(name)
    return place if place is not None and place[1] and place[0].startswith(PACKAGE) and place[0] != module else None


def function_lines(name: str, value: Any, names: Names) -> list[str]:
    """A function: from its row of the table, or from its own signature."""
    return render(name, function_forms(value, names), names)


def function_forms(value: Any, names: Names) -> list[Form]:
    """The forms of a public function."""
    row = row_of(value)
    if row is None or row_is_wrapped(value):
        return python_forms(value, names)
    flags = vars(inspect.unwrap(value)) if is_function(value) else {}
    return operator_forms(
        row[1],
        names,
        inplace=row[0] == "inplace",
        inplace_flag=flags.get("inplace_flag", False),
        out=flags.get("takes_out"),
    )


def row_is_wrapped(value: Any) -> bool:
    """Whether a function says its own forms although it is made from a row."""
    return bool(getattr(inspect.unwrap(value), "__forms__", None)) if is_function(value) else False


def value_type(value: Any, names: Names) -> str:
    """The type of a constant."""
    if value is None:
        return "None"
    if isinstance(value, (dict, list, set, frozenset, tuple)):
        word = names.word(type(value).__name__) if type(value).__module__ == "builtins" else names.word("Any")
        return f"{word}[{names.word('str')}, {names.word('Any')}]" if type(value) is dict else word
    home = (DType.__module__, "DType") if isinstance(value, DType) else home_of(type(value), type(value).__name__)
    if home is None and type(value).__module__ == "builtins":
        home = ("builtins", type(value).__name__)
    return names.use(*home) if home is not None else names.word("Any")


def _made_class(name: str, value: type, names: Names) -> list[str]:
    """A class that a function made: a named tuple, or one known by its bases."""
    fields = getattr(value, "__match_args__", ())
    if fields and issubclass(value, tuple):
        return _named_tuple(name, fields, names)
    if issubclass(value, enum.Enum):
        members = [f"    {member} = {value[member].value!r}" for member in value.__members__]
        return [f"class {name}({names.use('enum', 'Enum')}):", *(members or ["    ..."])]
    for base in value.__mro__[1:]:
        home = home_of(base, base.__name__) or (
            ("builtins", base.__name__) if base.__module__ == "builtins" and base is not object else None
        )
        if home is not None:
            return [f"class {name}({names.use(*home)}): ..."]
    if type(value) is not type:  # a class whose metaclass decides what it makes
        return [f"class {name}({names.word('Tensor')}): ..."]
    return [f"class {name}: ..."]


def _named_tuple(name: str, fields: tuple[str, ...], names: Names) -> list[str]:
    """The type of named results: a tuple of tensors, made from one sequence, with a property for each."""
    tensor = names.word("Tensor")
    items = ", ".join([tensor] * len(fields))
    lines = [f"class {name}({names.word('tuple')}[{items}]):"]
    lines.append(
        f"    def __new__(cls, sequence: {names.word('Sequence')}[{tensor}], dict: {names.word('Any')} = None) -> {names.word('Self')}: ..."
    )
    for field in fields:
        lines += [f"    @{names.word('property')}", f"    def {field}(self) -> {tensor}: ..."]
    return lines


# ***** classes of a page *****


def class_lines(home: tuple[str, str], names: Names) -> list[str]:
    """A class that a page defines itself: its source, without the bodies."""
    tree = copy.deepcopy(_class_statement(home))
    assert tree is not None
    return ast.unparse(_Bare(names, home[0]).visit(tree)).split("\n")


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(Path(str(importlib.import_module(module).__file__)).read_text(encoding="utf-8"))


class _Bare(ast.NodeTransformer):
    """A class's definition with `...` for bodies, and types in the stub's words."""

    def __init__(self, names: Names, context: str) -> None:
        self.names, self.context = names, context

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        counted = any(ast.unparse(b).endswith(("Enum", "Flag")) for b in node.bases)  # whose members are assigned
        kinds = (ast.FunctionDef, ast.AnnAssign, ast.Assign) if counted else (ast.FunctionDef, ast.AnnAssign)
        kept = [self.visit(n) for n in node.body if isinstance(n, kinds)]
        bases = [self._type(b) for b in node.bases]
        node.bases, node.keywords, node.body, node.decorator_list = bases, [], kept or [ast.Expr(ast.Constant(...))], []
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        for argument in [
            *node.args.posonlyargs,
            *node.args.args,
            *node.args.kwonlyargs,
            node.args.vararg,
            node.args.kwarg,
        ]:
            if argument is not None and argument.annotation is not None:
                argument.annotation = self._type(argument.annotation)
        node.returns = self._type(node.returns) if node.returns is not None else None
        node.args.defaults = [ast.Constant(...) for _ in node.args.defaults]
        node.args.kw_defaults = [None if d is None else ast.Constant(...) for d in node.args.kw_defaults]
        node.body = [ast.Expr(ast.Constant(...))]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation, node.value = self._type(node.annotation), None
        return node

    def _type(self, node: ast.AST) -> Any:
        return ast.parse(self.names.translate(node, self.context), mode="eval").body


# ***** Tensor *****

_NOT_METHODS = {"__repr__", "__init_subclass__", "__dict__", "__weakref__", "__slots__", "__module__", "__doc__", "__annotations__", "__firstlineno__",
                "__static_attributes__"}  # fmt: skip
_UNLIKE_OBJECT = {"__eq__", "__ne__"}  # their results are tensors, where `object` promises a bool
_OPERATORS = {**BINARY, **REVERSED, **INPLACE, **UNARY}


def tensor_stub() -> str:
    """The stub of Tensor's module: every attribute, method, in-place form and operator; what else the module has is for
    the inner rooms.
    """
    names = Names()
    names.imports["rushlight._engine.core.tensor", "Tensor"] = "Tensor"
    lines = ["", "class Tensor:"]
    lines += [f"    def __init__(self, *args: {names.word('Any')}, **kwargs: {names.word('Any')}) -> None: ..."]
    for name, value in sorted(vars(Tensor).items()):
        if name in _NOT_METHODS or inspect.ismemberdescriptor(value) or inspect.isgetsetdescriptor(value):
            continue
        if not _is_private(name) or isinstance(value, (property, staticmethod, classmethod)):
            lines += [f"    {line}" for line in _member(name, value, names)]
    del names.imports["rushlight._engine.core.tensor", "Tensor"]
    lines += ["", f"def __getattr__(name: {names.word('str')}) -> {names.word('Any')}: ..."]
    return "\n".join([HEADER, *names.lines(), *lines, ""])


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def _member(name: str, value: Any, names: Names) -> list[str]:
    # Not from the table: what it will become says its own forms
    if isinstance(value, LazyMethod) and row_of(value) is None:
        try:
            value = value.make(value.argument)
        except (AttributeError, KeyError):  # announced, and not there yet
            return []
    if isinstance(value, property):
        return _property(name, value, names)
    if isinstance(value, (classmethod, staticmethod)):
        kind = names.word(type(value).__name__)
        first = [Parameter("cls", "")] if isinstance(value, classmethod) else []
        forms = python_forms(value.__func__, names)
        rest = [Form([*first, *[p for p in f.parameters if p.name != "cls" or not first]], f.result) for f in forms]
        return [f"@{kind}", *render(name, rest, names)]
    if not callable(value) and not isinstance(value, LazyMethod):
        return [f"{name}: {value_type(value, names)}"]
    note = "  # type: ignore[override]" if name in _UNLIKE_OBJECT else ""
    return render(name, method_forms(name, value, names), names, note=note)


def method_forms(name: str, value: Any, names: Names) -> list[Form]:
    """The forms of a method."""
    if name in _OPERATORS:
        return [_python_operator(name, names)]
    row = None if row_is_wrapped(value) else row_of(value)
    if row is None:
        forms = python_forms(value, names)
    else:
        forms = operator_forms(row[1], names, inplace=row[0] == "inplace", out=False)  # methods take no `out=`
    return [form.as_method(names, name) for form in forms]


def _python_operator(name: str, names: Names) -> Form:
    """`__add__` and its kin: a tensor or a number on the other side, where the row takes one."""
    row = OPERATORS[_OPERATORS[name]]
    result = names.word("Self") if name in INPLACE else names.word("Tensor")
    if name in UNARY:
        return Form([Parameter("self", "")], result)
    number = f" | {names.word('Scalar')}" if _takes_number(row) else ""
    return Form([Parameter("self", ""), Parameter("other", names.word("Tensor") + number), Parameter("/", "")], result)


def _takes_number(row: Operator) -> bool:
    other = row.schema.arguments[1]
    return other.base == "Scalar" or other.name in row.numbers


def _property(name: str, value: property, names: Names) -> list[str]:
    """A property: the type its getter declares, or that of its value on a small tensor."""
    declared = python_forms(value.fget, names)[0].result
    if declared == names.word("Any"):
        found = value.fget(SPACES["torch"]["ones"](1, 1)) if value.fget is not None else None
        declared = (
            names.word("Tensor")
            if isinstance(found, Tensor)
            else names.word("Any")
            if found is None
            else value_type(found, names)
        )
    word = names.word("property")
    lines = [f"@{word}", f"def {name}(self) -> {declared}: ..."]
    if value.fset is not None:
        takes = python_forms(value.fset, names)[0].parameters[1].type
        lines += [f"@{name}.setter", f"def {name}(self, value: {takes}) -> None: ..."]
    if value.fdel is not None:
        lines += [f"@{name}.deleter", f"def {name}(self) -> None: ..."]
    return lines


# ***** files *****


def stub_files() -> dict[str, str]:
    """Everything that belongs into the stub package: path -> text."""
    # All first: a page shows its parts once they are loaded
    modules = {name: importlib.import_module(name) for name in public_modules()}
    files = {"py.typed": "partial\n", "_typing.pyi": HEADER + TYPING, "_engine/core/tensor.pyi": tensor_stub()}
    for name, module in modules.items():
        if needs_stub(module):
            path = name.replace(".", "/").removeprefix(PACKAGE).lstrip("/")
            package = hasattr(module, "__path__")
            files[f"{path}/__init__.pyi".lstrip("/") if package else f"{path}.pyi"] = page_stub(module)
    return files


def changed(folder: Path = FOLDER) -> list[str]:
    """The files under `folder` that are not what the package says today: written by hand, missing, or left over."""
    return _different(folder, stub_files())


def _different(folder: Path, files: dict[str, str]) -> list[str]:
    there = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()} if folder.is_dir() else set()
    different = [
        name for name, text in files.items() if name not in there or (folder / name).read_text(encoding="utf-8") != text
    ]
    return sorted([*different, *there.difference(files)])


def write(folder: Path = FOLDER) -> list[str]:
    """Write the files that differ, remove those that are left over; the names of both."""
    files = stub_files()
    names = _different(folder, files)
    for name in names:
        path = folder / name
        if name in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[name], encoding="utf-8")
        else:
            path.unlink()
    return names

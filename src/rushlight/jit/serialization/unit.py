"""The code of an archive: functions and classes, read when they are first needed.

The text is the typed subset of Python that TorchScript writes.  It is parsed into a syntax tree and compiled to graphs;
nothing of it is run as Python.
"""

from __future__ import annotations

import ast
import functools
import re
import threading
from typing import Any

import rushlight
from rushlight.jit.frontend.archive import ArchiveNames, dotted_name, read_type
from rushlight.jit.frontend.emitter import Emitter
from rushlight.jit.frontend.errors import CompileError, FrontendError, Source
from rushlight.jit.frontend.inference import type_of
from rushlight.jit.ir import types as T
from rushlight.jit.ir.function import Function
from rushlight.jit.ir.schemas import NO_DEFAULT, Argument, Schema
from rushlight.jit.ir.types import Type
from rushlight.jit.runtime.objects import enum_class
from rushlight.jit.serialization.upgraders import CHANGED, CODE

__all__ = ["ArchiveUnit", "parse_text"]

_LONGEST = 1 << 24
_DEEPEST = 90


def parse_text(text: str, where: str) -> ast.Module:
    """The syntax tree of a text; RuntimeError where it is none, or is nested too deeply."""
    if len(text) > _LONGEST:
        raise RuntimeError(f"{where}: the code is too long")
    depth = most = 0
    for letter in re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', '""', text):
        depth += (letter in "([{") - (letter in ")]}")
        most = max(most, depth)
    if most > _DEEPEST or re.search(
        r"(?:[-+~]\s*){40}|(?:\bnot\s+){40}|(?:\*\*\s*[-\w]+\s*){60}|(?:\blambda\b.*){20}", text
    ):
        raise RuntimeError(f"{where}: the code is nested too deeply")
    for line in text.splitlines():
        if len(line) - len(line.lstrip(" ")) > 180 or line.count(".") > 2000 or line.startswith(tuple("\t\f\v")):
            raise RuntimeError(f"{where}: the code is nested too deeply")
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise RuntimeError(f"{where}: the code is damaged ({error})") from None


_UPGRADERS = "__torch__.upgraders"


def _packed_type(owner: str) -> Type:
    """The type of `_packed_params` in a class of quantized layers; early archives say that it is a tensor."""
    matched = re.search(r"\.quantized\..*\.(Linear|Conv[123]d|ConvReLU[123]d)[A-Za-z]*$", owner)
    if matched is None:
        return T.TENSOR
    kind = "Linear" if matched[1] == "Linear" else "Conv3d" if matched[1].endswith("3d") else "Conv2d"
    return T.PACKED[f"__torch__.torch.classes.quantized.{kind}PackedParamsBase"]


@functools.cache
def _upgrading() -> ArchiveUnit:
    """The functions for archives of earlier versions."""
    return ArchiveUnit({"code/__torch__/upgraders.py": CODE.encode()}.get, "upgraders")


class ArchiveUnit:
    """Functions and classes by qualified name."""

    def __init__(self, read: Any, where: str, version: int = 10) -> None:
        self.read, self.where, self.version = read, where, version
        self.constants: list[Any] = []
        self.names = ArchiveNames(self, self.constants)
        self.found: dict[str, Any] = {}
        self.files: dict[str, tuple[Source, dict[str, ast.stmt]] | None] = {}
        self.lock = threading.RLock()

    def find(self, name: str) -> Any:
        """A function, a class; None for none."""
        if name in self.found:
            return self.found[name]
        if name in T.PACKED:
            return T.PACKED[name]
        with self.lock:
            place, _, short = name.rpartition(".")
            held = self._file(place)
            if held is None or short not in held[1]:
                return None
            source, definitions = held
            node = definitions[short]
            if isinstance(node, ast.FunctionDef):
                self.found[name] = self.function(name, node, source, None)
            else:
                self._class(name, node, source)  # type: ignore[arg-type]
            return self.found.get(name)

    def upgraders(self, operator: str) -> list[Any]:
        """The functions that an operator means in an archive of this version; none where it is the operator of today."""
        changed, forms = CHANGED.get(operator, (0, ()))
        return [_upgrading().find(f"{_UPGRADERS}.{form}") for form in forms] if self.version < changed else []

    def find_type(self, name: str) -> Type | None:
        """A class; None for none."""
        if not name.startswith("__torch__."):
            return None
        found = self.find(name)
        return found if isinstance(found, Type) else None

    def _file(self, place: str) -> tuple[Source, dict[str, ast.stmt]] | None:
        if place not in self.files:
            if not place or not all(re.fullmatch(r"\w+", part) for part in place.split(".")):
                return None
            record = f"code/{place.replace('.', '/')}.py"
            data = self.read(record)
            if data is None:
                self.files[place] = None
                return None
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError as error:
                raise RuntimeError(f"{self.where}: {record} is damaged ({error})") from None
            tree = parse_text(text, f"{self.where}: {record}")
            definitions: dict[str, ast.stmt] = {}
            for node in tree.body:
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    definitions[node.name] = node
                elif not isinstance(node, (ast.Assign, ast.Expr, ast.Pass)):
                    raise RuntimeError(
                        f"{self.where}: {record} has a statement that no archive has: {type(node).__name__}"
                    )
            self.files[place] = (Source(text, record), definitions)
        return self.files[place]

    # ***** functions *****

    def function(self, name: str, node: ast.FunctionDef, source: Source, owner: Type | None) -> Function:
        """A function that is compiled when it is first needed."""
        schema = self._schema(node, source, owner)

        def define(function: Function) -> None:
            with self.lock:
                emitter = Emitter(source, self.names)
                arguments = schema.arguments[1:] if owner is not None else schema.arguments
                try:
                    function.graph, _ = emitter.function(node, arguments, schema.returns[0].type, owner)
                except FrontendError as error:
                    raise RuntimeError(f"{self.where}: the code of {name} is damaged: {error}") from None
                except RecursionError:
                    raise RuntimeError(f"{self.where}: {name} is nested too deeply") from None

        made = Function(name, define, schema)
        made.owner = owner
        return made

    def _schema(self, node: ast.FunctionDef, source: Source, owner: Type | None) -> Schema:
        at = source.at(node)
        args = node.args
        if args.vararg or args.kwarg or args.kwonlyargs or node.decorator_list:
            raise CompileError("functions of archives have plain arguments", at)
        names = [*args.posonlyargs, *args.args]
        defaults = [None] * (len(names) - len(args.defaults)) + list(args.defaults)
        arguments = []
        for i, (arg, default) in enumerate(zip(names, defaults, strict=True)):
            if owner is not None and i == 0:
                kind: Type = owner
            else:
                kind = T.TENSOR if arg.annotation is None else read_type(arg.annotation, self.find_type, at)
            value = NO_DEFAULT if default is None else self.literal(default, at)
            if isinstance(value, int) and not isinstance(value, bool) and kind == T.FLOAT:
                value = float(value)
            arguments.append(Argument(arg.arg, kind, value))
        if owner is not None and not arguments:
            raise CompileError("methods must have a self argument", at)
        returns = T.TENSOR if node.returns is None else read_type(node.returns, self.find_type, at)
        return Schema(node.name, "", arguments, [Argument("", returns)])

    def literal(self, node: ast.expr, at: Any) -> Any:
        """The value of a literal."""
        if isinstance(node, ast.Constant) and not isinstance(node.value, bytes) and node.value is not Ellipsis:
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.literal(node.operand, at)
            if isinstance(value, (int, float, complex)):
                return -value
        if isinstance(node, (ast.Tuple, ast.List)):
            values = [self.literal(n, at) for n in node.elts]
            return tuple(values) if isinstance(node, ast.Tuple) else values
        if isinstance(node, ast.Dict) and None not in node.keys:
            return {self.literal(k, at): self.literal(v, at) for k, v in zip(node.keys, node.values, strict=True)}  # type: ignore[arg-type]
        if isinstance(node, ast.Call) and len(node.args) == 2 and dotted_name(node.func) == "annotate":
            return self.literal(node.args[1], at)
        if isinstance(node, ast.Call) and len(node.args) == 1 and dotted_name(node.func) == "torch.device":
            return rushlight.device(str(self.literal(node.args[0], at)))
        if isinstance(node, ast.Call) and len(node.args) == 1 and dotted_name(node.func) == "float":
            return float(str(self.literal(node.args[0], at)))
        name = dotted_name(node) or ""
        if name in ("inf", "nan"):
            return float(name)
        if matched := re.fullmatch(r"CONSTANTS\.c(\d+)", name):
            if int(matched[1]) < len(self.constants):
                return self.constants[int(matched[1])]
        found = self.find(name.rpartition(".")[0]) if name.startswith("__torch__.") else None
        if isinstance(found, T.EnumType) and name.rpartition(".")[2] in found.values:
            return enum_class(found)[name.rpartition(".")[2]]
        raise CompileError("this is no literal", at)

    # ***** classes *****

    def _class(self, name: str, node: ast.ClassDef, source: Source) -> None:
        base = dotted_name(node.bases[0]) if node.bases else ""
        if base == "NamedTuple":
            self._named_tuple(name, node, source)
        elif base == "Enum":
            self._enum(name, node, source)
        elif base in ("Interface", "ModuleInterface"):
            self._interface(name, node, source, base == "ModuleInterface")
        elif base in ("", "Module"):
            self._plain(name, node, source, base == "Module")
        else:
            raise CompileError(f"unknown kind of class {base}", source.at(node))

    def _named_tuple(self, name: str, node: ast.ClassDef, source: Source) -> None:
        fields, kinds, defaults = [], [], []
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                fields.append(each.target.id)
                kinds.append(read_type(each.annotation, self.find_type, source.at(each)))
                if each.value is not None:
                    defaults.append(self.literal(each.value, source.at(each)))
        if len(set(fields)) != len(fields):
            raise CompileError("two fields have one name", source.at(node))
        self.found[name] = T.named_tuple(name, fields, kinds, defaults)

    def _enum(self, name: str, node: ast.ClassDef, source: Source) -> None:
        values = {}
        for each in node.body:
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                values[each.targets[0].id] = self.literal(each.value, source.at(each))
        kind = type_of(next(iter(values.values()))) if values else T.INT
        self.found[name] = T.EnumType(name, kind, values)

    def _interface(self, name: str, node: ast.ClassDef, source: Source, is_module: bool) -> None:
        made = T.InterfaceType(name, is_module)
        self.found[name] = made
        for each in node.body:
            if isinstance(each, ast.FunctionDef):
                made.methods[each.name] = Function(f"{name}.{each.name}", schema=self._schema(each, source, made))

    def _plain(self, name: str, node: ast.ClassDef, source: Source, is_module: bool) -> None:
        made = T.ClassType(name, is_module)
        self.found[name] = made
        made.context = self
        methods: dict[str, ast.FunctionDef] = {}
        for each in node.body:
            at = source.at(each)
            if isinstance(each, ast.FunctionDef):
                methods[each.name] = each
            elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                self._field(made, each.target.id, each, at)
            elif isinstance(each, ast.Assign):
                self._listed(made, each, at)
            elif not isinstance(each, (ast.Pass, ast.Expr)):
                raise CompileError("a class of an archive has fields and methods", at)

        def define(method: str) -> Function | None:
            found = methods.get(method)
            if found is None:
                return None
            made.methods[method] = self.function(f"{name}.{method}", found, source, made)
            return made.methods[method]

        made.define = define
        made.raw = {}
        made.overloads = {}
        made.context = (self, list(methods))

    def _field(self, made: T.ClassType, name: str, node: ast.AnnAssign, at: Any) -> None:
        kind = read_type(node.annotation, self.find_type, at)
        if name == "_packed_params" and kind == T.TENSOR:
            kind = _packed_type(made.name)
        if node.value is not None:
            made.constants[name] = (kind, self.literal(node.value, at))
        else:
            made.attributes[name] = kind

    def _listed(self, made: T.ClassType, node: ast.Assign, at: Any) -> None:
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and dotted_name(target.value) == "__annotations__":
            key = self.literal(target.slice, at)
            made.attributes[str(key)] = read_type(node.value, self.find_type, at)
            return
        name = dotted_name(target)
        if name == "__annotations__":
            return
        values = self.literal(node.value, at)
        if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
            raise CompileError("a list of names was expected", at)
        if name == "__parameters__":
            made.parameters = set(values)
        elif name == "__buffers__":
            made.buffers = set(values)
        elif name == "__forward_hooks__":
            made.forward_hooks = values
        elif name == "__forward_pre_hooks__":
            made.pre_hooks = values
        else:
            raise CompileError(f"unknown list {name}", at)

"""The Python that a graph is: names for its values, a line for every node, and the globals that the lines need."""

from __future__ import annotations

import builtins
import enum
import inspect
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

from rushlight import device as Device
from rushlight import dtype as DType
from rushlight._interface.sizes import Undecided, is_symbolic
from rushlight.fx.node import Node, _get_qualified_name, _type_repr, map_arg
from rushlight.utils import _pytree as pytree

__all__ = ["CodeGen", "Namespace", "PyTreeCodeGen", "PyTreeInfo", "PythonCode"]

# How calls of functions of the module `operator` are written.
BINARY = {
    "add": "+", "and_": "&", "eq": "==", "floordiv": "//", "ge": ">=", "gt": ">", "le": "<=", "lshift": "<<", "lt": "<", "matmul": "@", "mod": "%",
    "mul": "*", "ne": "!=", "or_": "|", "pow": "**", "rshift": ">>", "sub": "-", "truediv": "/", "xor": "^",
}  # fmt: skip
UNARY = {"invert": "~", "neg": "-", "pos": "+"}
INPLACE = {
    "iadd": "+=", "iand": "&=", "ifloordiv": "//=", "ilshift": "<<=", "imatmul": "@=", "imod": "%=", "imul": "*=", "ior": "|=", "ipow": "**=",
    "irshift": ">>=", "isub": "-=", "itruediv": "/=", "ixor": "^=",
}  # fmt: skip


class Builtin(NamedTuple):
    """A global that generated code may always use, and the statement that imports it."""

    import_str: str
    obj: Any


def _torch() -> Any:
    return import_module("rushlight")


def builtin_globals() -> dict[str, Builtin]:
    """Name -> what generated code may use without asking."""
    return {
        "inf": Builtin("from math import inf", math.inf),
        "nan": Builtin("from math import nan", math.nan),
        "NoneType": Builtin("NoneType = type(None)", type(None)),
        "torch": Builtin("import torch", _torch()),
        "device": Builtin("from torch import device", Device),
        "fx_pytree": Builtin("import torch.fx._pytree as fx_pytree", import_module("rushlight.fx._pytree")),
        "pytree": Builtin("import torch.utils._pytree as pytree", pytree),
    }


# ***** names *****


class Namespace:
    """Names for values and globals: Python identifiers, each given out once."""

    _ILLEGAL = re.compile("[^0-9a-zA-Z_]+")
    _NUMBERED = re.compile(r"(.*)_(\d+)$")

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def create_name(self, candidate: str, obj: Any) -> str:
        """A name like `candidate` that is free; with `obj` (which then keeps its name) the name of a global may be a
        builtin's own.
        """
        if obj is not None and obj in self._names:
            return self._names[obj]
        candidate = self._ILLEGAL.sub("_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        numbered = self._NUMBERED.match(candidate)
        base, number = (candidate, 0) if numbered is None else (numbered[1], int(numbered[2]))
        if numbered is None or candidate in self._used:
            number = max(number, self._counts.get(base, 0))
        while candidate in self._used or self._is_illegal(candidate, obj):
            number += 1
            candidate = f"{base}_{number}"
        self._used.add(candidate)
        self._counts[base] = number
        if obj is not None:
            self._names[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """`obj` (a node) has this name."""
        if self._names.setdefault(obj, name) is not name:
            raise AssertionError("obj is already associated")

    @staticmethod
    def _is_illegal(name: str, obj: Any) -> bool:
        if keyword.iskeyword(name):
            return True
        if name in builtins.__dict__:
            return obj is not builtins.__dict__[name]
        return name in _RESERVED and obj is not builtin_globals()[name].obj

    def copy(self) -> Namespace:
        """One with the same names taken."""
        made = Namespace()
        made._names, made._used, made._counts = dict(self._names), set(self._used), dict(self._counts)
        return made


_RESERVED = frozenset(("inf", "nan", "NoneType", "torch", "device", "fx_pytree", "pytree"))


# ***** code *****


@dataclass
class PythonCode:
    """Source of a function, and the objects its names stand for."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None = None


class PyTreeInfo(NamedTuple):
    """Nested inputs and outputs of a graph whose placeholders are their leaves."""

    orig_args: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec | None


def _is_ours(obj: Any) -> bool:
    """Whether generated code reaches an object as `torch.x`."""
    module = getattr(obj, "__module__", None) or ""
    return module.partition(".")[0] in ("rushlight", "torch") or _named_of_ours(obj)


def _named_of_ours(obj: Any) -> bool:
    try:
        return _get_qualified_name(obj).startswith("torch.")
    except (RuntimeError, AttributeError):
        return False


def format_target(base: str, target: str) -> str:
    """`base.a.b`, where parts that are no identifiers are asked for by `getattr`."""
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


def last_uses(nodes: Iterable[Node]) -> dict[Node, list[Node]]:
    """Node -> the values that it is the last to take."""
    seen: set[Node] = set()
    found: dict[Node, list[Node]] = {}
    for node in reversed(list(nodes)):

        def note(used: Node, user: Node = node) -> None:
            if used not in seen:
                seen.add(used)
                found.setdefault(user, []).append(used)

        map_arg((node.args, node.kwargs), note)
    return found


@dataclass
class _Writer:
    """State while one function is written."""

    root: str
    namespace: Namespace
    verbose: bool
    globals: dict[str, Any] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)
    wrapped: dict[str, None] = field(default_factory=dict)
    returns: str = ""
    trace: str = ""

    def global_name(self, hint: str, obj: Any) -> str:
        """The name by which the code calls an object of the outside."""
        if obj is not Device and not isinstance(obj, DType) and _is_ours(obj):
            return _get_qualified_name(obj) if callable(obj) and not isinstance(obj, type) else _type_repr(obj)
        name = self.namespace.create_name(hint.replace(".", "_"), obj if _hashable(obj) else None)
        if name in self.globals:
            if self.globals[name] is not obj:
                raise AssertionError(f"two globals of the name {name}")
            return name
        self.globals[name] = obj
        return name

    def type_name(self, annotation: Any) -> str:
        """An annotation: types of Python and ours by name, generic ones with their arguments."""
        if annotation == ():
            return "()"
        origin = getattr(annotation, "__origin__", None)
        if origin is not None and not isinstance(annotation, type):
            name = getattr(annotation, "_name", None) or getattr(origin, "__name__", None) or repr(origin)
            base = self.global_name(f"typing_{name}" if origin.__module__ == "typing" else _type_repr(origin), origin)
            inner = [self.type_name(each) for each in getattr(annotation, "__args__", ())]
            return f"{base}[{', '.join(inner)}]" if inner else base
        if isinstance(annotation, str):
            return repr(annotation)
        return self.global_name(_type_repr(annotation), annotation)

    def value(self, arg: Any) -> str:
        """An argument as Python writes it."""
        if isinstance(arg, Node):
            return repr(arg)
        if isinstance(arg, tuple) and hasattr(arg, "_fields"):
            name = self.global_name(_type_repr(type(arg)), type(arg))
            return f"{name}({', '.join(self.value(item) for item in arg)})"
        if isinstance(arg, tuple):
            return f"({', '.join(map(self.value, arg))}{',' if len(arg) == 1 else ''})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.value, arg))}]"
        if isinstance(arg, dict):
            return f"{{{', '.join(f'{key!r}: {self.value(item)}' for key, item in arg.items())}}}"
        if isinstance(arg, slice):
            return f"slice({self.value(arg.start)}, {self.value(arg.stop)}, {self.value(arg.step)})"
        if isinstance(arg, enum.Enum):
            return f"{self.global_name(type(arg).__name__, type(arg))}.{arg.name}"
        if isinstance(arg, Device):
            self.globals.setdefault("device", Device)
            return repr(arg)
        if isinstance(arg, float) and not math.isfinite(arg):
            for name, number in (("inf", math.inf), ("nan", math.nan)):
                self.globals.setdefault(name, number)
        if isinstance(arg, type):
            return self.global_name(_type_repr(arg), arg)
        if callable(arg) and getattr(arg, "__module__", None) is not None and hasattr(arg, "__name__"):
            return self.global_name(_get_qualified_name(arg), arg)
        return repr(arg)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The arguments of a call."""
        return ", ".join(
            [*(self.value(each) for each in args), *(f"{key} = {self.value(each)}" for key, each in kwargs.items())]
        )

    def node(self, node: Node) -> None:
        """The lines of one node, without what frees the values it was the last to take."""
        kind = f" : {self.type_name(node.type)}" if node.type is not None else self.told(node)
        head = f"{node!r}{kind}"
        if node.op == "placeholder":
            default = f" = {self.value(node.args[0])}" if node.args else ""
            self.parameters.append(f"{node.target}{kind}{default}")
            raw = str(node.target).replace("*", "")
            if raw != repr(node):
                self.body.append(f"{node!r} = {raw}\n")
        elif node.op == "output":
            if node.type is not None:
                self.returns = f" -> {self.type_name(node.type)}"
        elif node.op == "get_attr":
            self.body.append(f"{head} = {format_target(self.root, str(node.target))}")
        elif node.op == "call_module":
            self.body.append(
                f"{head} = {format_target(self.root, str(node.target))}({self.call(node.args, node.kwargs)})"
            )
        elif node.op == "call_method":
            self.body.append(
                f"{head} = {format_target(self.value(node.args[0]), str(node.target))}({self.call(node.args[1:], node.kwargs)})"
            )
        else:
            self.function(node, head)

    def told(self, node: Node) -> str:
        """Dtype and shape of the value, as an annotation; only where the code is for readers."""
        if not self.verbose or node.op == "output":
            return ""
        text = described(node.meta.get("val", node.meta.get("tensor_meta")))
        return "" if text is None else f': "{text}"'

    def function(self, node: Node, head: str) -> None:
        """A call of a function: operators as such, attributes with a dot, everything else by its name."""
        target: Any = node.target
        name = getattr(target, "__name__", "")
        if getattr(target, "__module__", None) == "_operator" and not node.kwargs:
            shown = [self.value(each) for each in node.args]
            if name in INPLACE:
                self.body.append(f"{shown[0]} {INPLACE[name]} {shown[1]};  {head} = {shown[0]}")
                return
            text = (
                f"{shown[0]} {BINARY[name]} {shown[1]}"
                if name in BINARY
                else f"{UNARY[name]}{shown[0]}"
                if name in UNARY
                else f"{shown[0]}[{shown[1]}]"
                if target is operator.getitem
                else None
            )
            if text is not None:
                self.body.append(f"{head} = {text}")
                return
        called = self.global_name(_get_qualified_name(target), target)
        if (
            called == "getattr"
            and len(node.args) == 2
            and isinstance(node.args[1], str)
            and node.args[1].isidentifier()
        ):
            self.body.append(f"{head} = {format_target(self.value(node.args[0]), node.args[1])}")
            return
        self.body.append(f"{head} = {called}({self.call(node.args, node.kwargs)})")
        if node.meta.get("is_wrapped", False):
            self.wrapped.setdefault(called)

    def summary(self, node: Node) -> None:
        """Before a node, the user's line that it stems from, where that is another than the last node's."""
        if node.op in ("placeholder", "output"):
            return
        trace = node.stack_trace or ""
        if trace != self.trace or not self.body_has_note:
            self.trace, self.body_has_note = trace, True
            blank = "\n" if self.body else ""
            self.body.append(f"{blank}{_told_line(trace)}\n")

    body_has_note: bool = False


_FRAME = re.compile(r'File "(.*)", line (\d+), in (.*)')


def _told_line(trace: str) -> str:
    """The innermost line of a stack trace as a comment."""
    lines = [line.strip() for line in trace.strip().split("\n")]
    found = [(place, match) for place, line in enumerate(lines) if (match := _FRAME.match(line))]
    if not found:
        return "# No stacktrace found for following nodes"
    place, match = found[-1]
    code = lines[place + 1] if place + 1 < len(lines) else ""
    return f"# File: {match[1]}:{match[2]} in {match[3]}, code: {code}"


_SHORT = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "complex32": "c32", "complex64": "c64", "complex128": "c128",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "bool": "b8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip


def described(value: Any) -> str | None:
    """A tensor as `f32[3, 4]`, a symbolic number as `Sym(s77)`; None for other values."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        name = str(value.dtype).rpartition(".")[2]
        return f"{_SHORT.get(name, name)}[{', '.join(map(str, value.shape))}]"
    return f"Sym({value})" if is_symbolic(value) or isinstance(value, Undecided) else None


def _hashable(obj: Any) -> bool:
    try:
        hash(obj)
    except TypeError:
        return False
    return True


class CodeGen:
    """How a graph becomes a function; a subclass may give it other parameters or another return."""

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line with `def`, and lines that take the arguments apart."""
        if not free_vars or free_vars[0] != "self":
            free_vars = ["self", *free_vars]
        return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr) -> str:
        """The statement with `return`."""
        return f"return {repr_fn(output_args)}"

    def _returned(self, output_args: Any, writer: _Writer) -> str:
        """`generate_output` of this class, or of a subclass that takes the value alone."""
        known = inspect.signature(self.generate_output).parameters
        named = "repr_fn" in known or any(p.kind is p.VAR_KEYWORD for p in known.values())
        return self.generate_output(output_args, **({"repr_fn": writer.value} if named else {}))

    def process_inputs(self, *args: Any) -> Any:
        """The arguments of the function as the graph's placeholders take them."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """The graph's output in the form that the function returns."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Globals that the function uses in any case."""
        return []

    def _gen_python_code(
        self, nodes: Iterable[Node], root_module: str, namespace: Namespace, *, verbose: bool = False
    ) -> PythonCode:
        nodes = list(nodes)
        writer = _Writer(root_module, namespace, verbose)
        for name, obj in self.additional_globals():
            writer.global_name(name, obj)
        freed = last_uses(nodes)
        for node in nodes:
            if verbose:
                writer.summary(node)
            writer.node(node)
            if node.op == "output":
                writer.body.append(self._returned(node.args[0], writer))
            elif node.op != "placeholder":
                done = [*freed.get(node, []), *([] if node.users else [node])]
                writer.body.append(f";  {' = '.join([*map(repr, done), 'None'])}\n" if done else "\n")
        body = writer.body or ["pass\n"]
        if self._body_transformer is not None:
            body = self._body_transformer(body)
        wraps = "\n".join(f'torch.fx._symbolic_trace.wrap("{name}")' for name in writer.wrapped)
        lines = "".join(body).split("\n")
        code = "\n".join(f"    {line}" for line in lines)
        head = self.gen_fn_def(writer.parameters, writer.returns)
        for name in ("torch",):
            writer.globals.setdefault(name, builtin_globals()[name].obj)
        return PythonCode(f"\n{wraps}\n\n{head}\n{code}\n    ", writer.globals)


class PyTreeCodeGen(CodeGen):
    """A function whose parameters are nested, for a graph whose placeholders are their leaves."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *args: Any) -> Any:
        """The leaves of the arguments."""
        return pytree.arg_tree_leaves(*args)

    def process_outputs(self, outputs: Any) -> Any:
        """The leaves in the shape that the function returns."""
        spec = self.pytree_info.out_spec
        return (
            outputs
            if spec is None
            else pytree.tree_unflatten(outputs if isinstance(outputs, (list, tuple)) else [outputs], spec)
        )

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The original parameters, and the line that flattens them."""
        names = self.pytree_info.orig_args
        head = super().gen_fn_def(names[:], maybe_return_annotation)
        if not free_vars:
            return head
        given = [name for name in names if name != "self"]
        spec = self.pytree_info.in_spec
        if spec.type is tuple and [c.type for c in spec.children()] == [tuple, dict]:  # (args, kwargs)
            args, kwargs = spec.children()
            count = len(args.children())
            pairs = [f"{key!r}:{name}" for key, name in zip(kwargs.context, given[count:], strict=True)]
            given = [f"[{', '.join(given[:count])}]", f"{{{', '.join(pairs)}}}"]
            shown = f"({', '.join(given)})"
        else:
            shown = f"[{', '.join(given)}]"
        bare = [variable.split(":")[0].split("=")[0].strip() for variable in free_vars]
        return f"{head}\n    {', '.join(bare)}, = fx_pytree.tree_flatten_spec({shown}, self._in_spec)"

    def generate_output(self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr) -> str:
        """The statement that puts the leaves together again."""
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args, repr_fn=repr_fn)
        return f"return pytree.tree_unflatten({repr_fn(output_args)}, self._out_spec)"

    def additional_globals(self) -> list[tuple[str, Any]]:
        """The two modules that flatten."""
        return [(name, builtin_globals()[name].obj) for name in ("pytree", "fx_pytree")]

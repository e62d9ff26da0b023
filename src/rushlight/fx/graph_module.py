"""`torch.fx.graph_module`: a module whose `forward` is generated from a graph.

>>> import rushlight as torch
>>> module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()))
>>> print(module.code.strip())
def forward(self, input):
    input_1 = input
    _0 = getattr(self, "0")(input_1);  input_1 = None
    _1 = getattr(self, "1")(_0);  _0 = None
    return _1
"""

from __future__ import annotations

import copy
import itertools
import linecache
import os
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from rushlight import Tensor
from rushlight.fx.codegen import CodeGen, PythonCode, PyTreeCodeGen, builtin_globals
from rushlight.fx.graph import Graph
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter

__all__ = ["GraphModule", "reduce_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_numbers = itertools.count()


def _compiled(
    code: PythonCode | str, space: dict[str, Any], traced: dict[str, Any] | None = None
) -> Callable[..., Any]:
    """The function of generated code; its lines are there for tracebacks and `inspect.getsource`, under a name that
    says which function was traced.
    """
    source = code if isinstance(code, str) else code.src
    name = f"<eval_with_key>.{next(_numbers)}"
    if traced:
        name += f" from {traced['co_filename']}:{traced['co_firstlineno']} in {traced['co_name']}"
    made = dict(space)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), made)  # noqa: S102 - code made from a graph
    return made["forward"]


def _format_import(name: str, obj: Any) -> str:
    """The statement by which pickled code finds a global."""
    known = builtin_globals()
    if name in known:
        return known[name].import_str
    module, attribute = obj.__module__, obj.__name__
    return f"from {module} import {attribute} as {name}" if attribute != name else f"from {module} import {attribute}"


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Give a module what another one has at a path; plain modules stand on the way where there is nothing."""
    *way, last = target.split(".")
    for part in way:
        source, there = getattr(from_module, part), getattr(to_module, part, None)
        if source is there:
            return
        if there is None:
            there = Module()
            setattr(to_module, part, there)
        from_module, to_module = source, there
    value = getattr(from_module, last)
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(last, value)
    else:
        setattr(to_module, last, value)


def _assign_attr(value: Any, to_module: Module, target: str) -> None:
    """Put a value at a path of a module."""
    *way, last = target.split(".")
    for part in way:
        there = getattr(to_module, part, None)
        if there is None:
            there = Module()
            setattr(to_module, part, there)
        to_module = there
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        to_module.register_buffer(last, value)
    else:
        setattr(to_module, last, value)


class _CodeOnlyModule(Module):
    """Module that stands for a pickled graph module while its code is traced again."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def reduce_graph_module(body: dict[str, Any], import_block: str) -> Module:
    """Make a pickled graph module again: its code is run, and traced without looking into its modules."""
    space: dict[str, Any] = {}
    for line in import_block.splitlines():
        exec(re.sub(r"^(from|import) torch\b", r"\1 rushlight", line), space)  # noqa: S102 - imports that a pickled module names
    space["torch"] = import_module("rushlight")
    forward = _compiled(body["_code"], space)
    graph_module_cls = body.pop("_graphmodule_cls_name", "GraphModule")
    tracer_cls = body.pop("_tracer_cls", None) or import_module("rushlight.fx._symbolic_trace").Tracer

    class KeepModules(tracer_cls):  # type: ignore[misc, valid-type]
        def is_leaf_module(self, _: Module, __: str) -> bool:
            return True

    only = _CodeOnlyModule(body)
    type(only).forward = forward
    try:
        graph = KeepModules().trace(only)
    finally:
        del _CodeOnlyModule.forward
    graph._tracer_cls = tracer_cls
    codegen = body.get("_graph_codegen")
    if codegen is not None:
        graph.set_codegen(codegen)
    made = GraphModule(only, graph, class_name=graph_module_cls)
    for name, value in body.items():
        if name not in made.__dict__:
            setattr(made, name, value)
    for kind in ("_modules", "_parameters", "_buffers"):  # those that the code does not read are kept too
        for name, value in body.get(kind, {}).items():
            made.__dict__[kind].setdefault(name, value)
    made._non_persistent_buffers_set |= body.get("_non_persistent_buffers_set", set())
    return made


class GraphModule(Module):
    """A module that runs a graph: its `forward` is the graph's code.

    `root` is the module whose parameters and modules the graph names (they are shared with it), or a dict of path ->
    object.  `graph` may be assigned; after nodes were changed, `recompile()` makes the code anew.  Each object has a
    class of its own, so `forward` is an ordinary method.
    """

    __jit_unused_properties__ = ["graph"]

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        for each in cls.__mro__:
            if each.__qualname__ != "GraphModuleImpl":
                cls = each
                break

        class GraphModuleImpl(cls):  # type: ignore[misc, valid-type]
            pass

        return Module.__new__(GraphModuleImpl)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        targets = list(
            dict.fromkeys(str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module"))
        )
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for target in targets:
                _copy_attr(root, self, target)
        elif isinstance(root, dict):
            for target in targets:
                if target not in root:
                    raise RuntimeError(
                        f"GraphModule is constructed with a dict that has no {target!r}, which a node of the graph names; it has {', '.join(map(repr, root)) or 'nothing'}"
                    )
            for target in sorted(targets, key=lambda path: path.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {type(root)} passed for root: a module or a dict is expected")
        self.graph = graph
        self._tracer_cls = (
            graph._tracer_cls
            if graph._tracer_cls is not None and "<locals>" not in graph._tracer_cls.__qualname__
            else None
        )
        self._tracer_extras = graph._tracer_extras or {}
        self.meta: dict[str, Any] = {}

    # Children and other attributes of the root are found as those of any module.

    @property
    def graph(self) -> Graph:
        """The graph; an assigned one is compiled, and belongs to this module from then on."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    def recompile(self) -> PythonCode:
        """Make the code and `forward` anew after the graph was changed."""
        codegen = self._graph._codegen
        if isinstance(codegen, PyTreeCodeGen):
            self._in_spec, self._out_spec = codegen.pytree_info.in_spec, codegen.pytree_info.out_spec
        made = self._graph.python_code(root_module="self")
        self._code, self._made = made.src, made
        type(self).forward = _compiled(made, made.globals, self._graph._co_fields)
        return made

    @property
    def code(self) -> str:
        """The Python of `forward`."""
        return self._code

    # ***** modules *****

    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module at a path, with plain modules on the way; False where something else stands there."""
        *way, last = target.split(".")
        place: Module = self
        for part in way:
            there = getattr(place, part, None)
            if there is None:
                there = Module()
                setattr(place, part, there)
            if not isinstance(there, Module):
                return False
            place = there
        place.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take the module at a path out; False where there is none.  Nodes that call it are not changed."""
        *way, last = target.split(".")
        place: Any = self
        for part in way:
            place = getattr(place, part, None)
            if not isinstance(place, Module):
                return False
        if not isinstance(getattr(place, last, None), Module):
            return False
        delattr(place, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take out the modules that the graph neither calls nor reads from (nor their parents, nor what is in a called
        one).
        """
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = str(node.target).split(".")
                used.update(".".join(parts[:length]) for length in range(1, len(parts) + 1))
                if node.op == "call_module":
                    try:
                        inner = self.get_submodule(str(node.target))
                    except AttributeError:
                        continue
                    used.update(f"{node.target}.{name}" for name, _ in inner.named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # ***** copies, files, printing *****

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: value for name, value in self.__dict__.items() if name not in ("_graph", "_made")}
        state["_graphmodule_cls_name"] = type(self).__name__
        codegen = self._graph._codegen
        if type(codegen) is not CodeGen:
            state["_graph_codegen"] = codegen
            self._graph._codegen = CodeGen()  # what is traced again takes and gives the graph's own values
            try:
                state["_code"] = self._graph.python_code(root_module="self").src
            finally:
                self._graph._codegen = codegen
        imports = "\n".join(
            sorted({_format_import(name, obj) for name, obj in {**self._made.globals, "torch": None}.items()})
        )
        return reduce_graph_module, (state, imports)

    def __deepcopy__(self, memo: dict[int, Any]) -> GraphModule:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        state = {name: value for name, value in self.__dict__.items() if name not in ("_graph", "_made")}
        Module.__init__(made)
        made.__dict__.update(copy.deepcopy(state, memo))
        type(made).__name__ = type(self).__name__
        made.graph = copy.deepcopy(self._graph, memo)
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, copy.deepcopy(self._graph), class_name=type(self).__name__)
        made.meta = getattr(self, "meta", {})
        return made

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Write the module as a package: `module.py` with the code, and its modules, parameters and buffers beside it."""
        from pathlib import Path

        torch = import_module("rushlight")
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        torch.save(self.state_dict(), place / "state_dict.pt")
        lines = [
            "import torch",
            *(_format_import(name, obj) for name, obj in self._made.globals.items() if name != "torch"),
            "",
            "from torch.nn import *",
            "",
            "",
        ]
        lines += [f"class {module_name}(torch.nn.Module):", "    def __init__(self):", "        super().__init__()"]
        for name, child in self.named_children():
            torch.save(child, place / f"{name}.pt")
            lines.append(
                f"        self.add_module({name!r}, torch.load(r'{place / name}.pt', weights_only=False))  # {type(child).__name__}"
            )
        for name, parameter in self._parameters.items():
            if parameter is not None:
                lines.append(
                    f"        self.{name} = torch.nn.Parameter(torch.empty({list(parameter.shape)}, dtype={parameter.dtype}))"
                )
        for name, buffer in self._buffers.items():
            if buffer is not None:
                lines.append(
                    f"        self.register_buffer({name!r}, torch.empty({list(buffer.shape)}, dtype={buffer.dtype}))"
                )
        lines.append(f"        self.load_state_dict(torch.load(r'{place / 'state_dict.pt'}'))")
        lines += [f"    {line}" if line.strip() else "" for line in self.code.split("\n")]
        (place / "module.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (place / "__init__.py").write_text("from .module import *\n", encoding="utf-8")

    def print_readable(self, print_output: bool = True, **printing: Any) -> str:
        """The module as a class with its code, and the graph modules in it; printed, and returned."""
        text = self._readable(type(self).__name__)
        if print_output:
            print(text)
        return text

    def _readable(self, name: str) -> str:
        source = self._graph.python_code(root_module="self", verbose=True).src.lstrip("\n")
        inner = [child._readable(key) for key, child in self.named_children() if isinstance(child, GraphModule)]
        lines = [
            f"class {name}(torch.nn.Module):",
            *(f"    {line}" if line.strip() else "" for line in source.rstrip().split("\n")),
        ]
        text = "\n".join([*lines, ""])
        shown = ["\n".join(f"    {line}" if line else "" for line in each.split("\n")) for each in inner]
        return "\n".join([text, *shown]) if shown else text

    def __str__(self) -> str:
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__repr__(), self._code, hint])

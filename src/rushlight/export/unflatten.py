"""`torch.export.unflatten`: an exported program as modules in modules, like those of the original one.

>>> import rushlight as torch
>>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
>>> module = torch.export.unflatten(torch.export.export(net, (torch.ones(1, 2),)))
>>> [name for name, _ in module.named_modules()]
['', '0', '1']
>>> module(torch.ones(1, 2)).shape
torch.Size([1, 3])
"""

from __future__ import annotations

import abc
import copy
import operator
import sys
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._functorch.functional_graphs import is_number
from rushlight.export._guards import InputGuards, holds
from rushlight.export._preserved import flattened, parent_call, placeholders
from rushlight.export._unlift import assign
from rushlight.export.exported_program import ExportedProgram
from rushlight.export.graph_signature import ConstantArgument, InputKind, OutputKind
from rushlight.fx.graph import Graph
from rushlight.fx.interpreter import Interpreter
from rushlight.fx.node import Node, map_arg
from rushlight.nn.modules.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

_item = operator.getitem  # of the leaves of a call with a signature
batch_norm = rushlight.ops.aten.batch_norm.default  # changes running statistics, which its schema does not say

__all__ = ["FlatArgsAdapter", "InterpreterModule", "InterpreterModuleDispatcher", "UnflattenedModule", "unflatten"]


class _AttrKind(Enum):
    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT = "constant"
    MODULE = "module"


_KINDS = {
    _AttrKind.PARAMETER: InputKind.PARAMETER, _AttrKind.BUFFER: InputKind.BUFFER, _AttrKind.CONSTANT: InputKind.CONSTANT_TENSOR,
}  # fmt: skip


def _assign_attr(from_obj: Any, to_module: Module, target: str, attr_kind: _AttrKind, persistent: bool = True) -> None:
    """Let a module have a value at a path; modules on the way are made."""
    if attr_kind is _AttrKind.PARAMETER and not isinstance(from_obj, Parameter):
        raise AssertionError(f"expected torch.nn.Parameter for PARAMETER attr_kind, got {type(from_obj)}")
    if attr_kind is _AttrKind.BUFFER and not isinstance(from_obj, Tensor):
        raise AssertionError(f"expected torch.Tensor for BUFFER attr_kind, got {type(from_obj)}")
    assign(to_module, target, from_obj, _KINDS.get(attr_kind, InputKind.CUSTOM_OBJ), persistent)


class FlatArgsAdapter(abc.ABC):
    """Makes of the leaves of a call with other structures those that the program was exported with."""

    @abc.abstractmethod
    def adapt(
        self, target_spec: TreeSpec, input_spec: TreeSpec, input_args: list[Any], metadata: Any = None, obj: Any = None
    ) -> list[Any]:
        """The leaves in the structure `target_spec`, of those in `input_spec`."""


class InterpreterModule(Module):
    """A graph as a module; calls of its submodules are nodes."""

    graph: Graph

    def __init__(self, graph: Graph, ty: str | None = None) -> None:
        super().__init__()
        self.__dict__["graph"] = graph
        self.__dict__["_ty"] = ty

    def type_name(self) -> str | None:
        """The class of the original module."""
        return self.__dict__["_ty"]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph."""
        names = [str(node.target) for node in self.graph.nodes if node.op == "placeholder"][len(args) :]
        if len(names) != len(kwargs) or any(name not in kwargs for name in names):
            raise TypeError(f"this module was exported with the further arguments {names}, not {list(kwargs)}")
        return Interpreter(self, graph=self.graph).run(*args, *[kwargs[name] for name in names])

    def print_readable(self, print_output: bool = True, **printing: Any) -> str:
        """The code of the graph; printed, and returned."""
        text = self.graph.python_code("self", verbose=True).src
        if print_output:
            print(text)
        return text


class InterpreterModuleDispatcher(Module):
    """A module whose calls have different graphs: each call runs the next of them, and after the last the first."""

    def __init__(self, attrs: set[str], call_modules: list[InterpreterModule]) -> None:
        super().__init__()
        if not call_modules:
            raise AssertionError("call_modules must not be empty")
        first = call_modules[0]
        for table in ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set"):
            self.__dict__[table] = first.__dict__[table]
        for name in attrs:
            if not hasattr(self, name):
                setattr(self, name, getattr(first, name))
        self.__dict__["_ty"], self.__dict__["_call_modules"] = first.type_name(), call_modules
        self._num_calls = 0

    def type_name(self) -> str | None:
        """The class of the original module."""
        return self.__dict__["_ty"]

    def call_modules(self) -> list[InterpreterModule]:
        """The modules of the calls, in their order."""
        return self.__dict__["_call_modules"]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph of the next call."""
        module = self.call_modules()[self._num_calls]
        self._num_calls = (self._num_calls + 1) % len(self.call_modules())
        try:
            return module(*args, **kwargs)
        except Exception:
            self._num_calls = 0
            raise

    def print_readable(self, print_output: bool = True, **printing: Any) -> str:
        """The code of all graphs; printed, and returned."""
        return "\n".join(module.print_readable(print_output, **printing) for module in self.call_modules())


@dataclass
class _Part:
    """A module on its way: its graph, and what stands in it for nodes of the program."""

    prefix: str
    graph: Graph
    module: Any
    values: dict[Node, Node] = field(default_factory=dict)
    inputs: list[Node] = field(default_factory=list)
    sealed: bool = False  # its inputs are those of a signature


class UnflattenedModule(InterpreterModule):
    """See `unflatten`."""

    def __init__(self, export_module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> None:
        super().__init__(Graph(), None)
        self.__dict__["adapter"] = flat_args_adapter
        entry = export_module.module_call_graph[0].signature
        self.__dict__["_specs"] = entry.in_spec, entry.out_spec  # type: ignore[union-attr]
        self.__dict__["_names"] = entry.forward_arg_names or []  # type: ignore[union-attr]
        guards = export_module._guards or InputGuards.of_program(export_module)
        self.__dict__["_conditions"] = list(guards.conditions)
        _Builder(self, export_module).build()
        self.__dict__["_user_inputs"] = [
            s.arg.name for s in export_module.graph_signature.input_specs if s.kind is InputKind.USER_INPUT
        ]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arguments of the structure that the program was exported with, or what the adapter makes of others."""
        in_spec, out_spec = self.__dict__["_specs"]
        flat, given = tree_flatten((args, kwargs))
        if given != in_spec and self.__dict__["adapter"] is not None:
            flat = self.__dict__["adapter"].adapt(target_spec=in_spec, input_spec=given, input_args=flat, obj=self)
        elif given != in_spec:
            raise TypeError(
                f"There is no flat args adapter specified. Are you sure you are calling this with the right arguments? {given} is not {in_spec}"
            )
        if len(flat) != in_spec.num_leaves:
            raise TypeError(
                f"Flat args adaption failed, number of args mismatch Adatped: {len(flat)} \nExported module: {in_spec.num_leaves}"
            )
        values = dict(zip(self.__dict__["_user_inputs"], flat, strict=True))
        for condition in self.__dict__["_conditions"]:
            if not holds(condition, values):
                raise AssertionError(f"Guard failed: {condition}")
        return tree_unflatten(list(Interpreter(self, graph=self.graph).run(*flat)), out_spec)


class _Builder:
    """Divides the nodes of a program among modules, by the modules that they come from."""

    def __init__(self, root: UnflattenedModule, program: ExportedProgram) -> None:
        self.root, self.program = root, program
        self.held: dict[Node, tuple[Any, Any]] = {}  # placeholder -> (spec, value)
        self.forms: dict[str, list[tuple[str, Any, Any]]] = {}  # of a submodule: suffixes, graphs, modules of its forms
        self.known: dict[int, Any] = {}
        self.named = {n.name: n for n in program.graph.nodes}
        self.signatures = {e.fqn: e.signature for e in program.module_call_graph[1:] if e.signature is not None}
        self.preserved: dict[str, list[Any]] = {}  # the form of each call with a signature, in the order of the calls
        # Result of an operator that writes to what the module holds -> its placeholder
        self.written: dict[Node, Node] = {}

    def build(self) -> None:
        """Fill the root."""
        top = _Part("", self.root.graph, self.root)
        placeholders = [n for n in self.program.graph.nodes if n.op == "placeholder"]
        for node, spec in zip(placeholders, self.program.graph_signature.input_specs, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                top.values[node] = top.graph.placeholder(node.name)
                top.values[node].meta = copy.copy(node.meta)
            else:
                self.held[node] = spec, self._copied(self.program._held(spec))
        self._note_written()
        dead: set[Node] = set()
        for node in reversed(self.program.graph.nodes):
            if node.op == "call_function" and all(u in dead for u in node.users) and _is_pure(node):
                dead.add(node)
        self.dead = dead
        nodes = [n for n in self.program.graph.nodes if n.op in ("call_function", "get_attr") and n not in dead]
        for name, child in self.program.graph_module.named_children():
            self.root.add_module(name, child)
        self._fill(top, nodes, 1)
        results = self.program.graph.output_node().args[0]
        top.graph.output(self._returned(top, results))
        for spec, value in self.held.values():
            _ensure(self.root, spec, value)
        self._dispatch()

    def _returned(self, top: _Part, results: Any) -> tuple[Any, ...]:
        """The results of the program; new values of buffers and arguments are written into those instead."""
        sources = {spec.target: node for node, (spec, _) in self.held.items()}
        sources.update({node.name: node for node in self.named.values() if node.op == "placeholder"})
        found: list[Any] = []
        for result, spec in zip(results, self.program.graph_signature.output_specs, strict=True):
            value = self._value(top, result) if isinstance(result, Node) else result
            if spec.kind is OutputKind.USER_OUTPUT:
                found.append(value)
            else:
                top.graph.call_function(
                    rushlight.ops.aten.copy_.default, (self._value(top, sources[spec.target]), value)
                )
        return tuple(found)

    def _note_written(self) -> None:
        """Note results of operators in place that are buffers themselves: any part reads its own attribute for them."""
        for node in self.program.graph.nodes:
            first = node.args[0] if node.args and node.op == "call_function" else None
            if (
                isinstance(first, Node)
                and (source := self.written.get(first, first)) in self.held
                and _is_in_place(node)
            ):
                self.written[node] = source

    def _dispatch(self) -> None:
        """Let calls with a signature whose graphs differ share one module, which tells them apart by their order."""
        shared: dict[int, Any] = {}
        for forms in self.preserved.values():
            if any(module is not forms[0] for module in forms):
                for one, two in [(forms[0], each) for each in forms[1:]] + [(each, forms[0]) for each in forms[1:]]:
                    _adopt(one, two)
                dispatcher = InterpreterModuleDispatcher(_constants(forms[0]), forms)
                shared.update({id(module): dispatcher for module in forms})
        waiting, seen = [self.root, *[m for forms in self.preserved.values() for m in forms]], set[int]()
        while shared and waiting:
            module: Any = waiting.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            waiting += [child for child in module._modules.values() if child is not None]
            for name, child in module._modules.items():
                module._modules[name] = shared.get(id(child), child)

    def _copied(self, value: Any) -> Any:
        found = self.known.get(id(value))
        if found is None:
            found = value.detach().clone()
            found = Parameter(found, value.requires_grad) if isinstance(value, Parameter) else found
            self.known[id(value)] = found
        return found

    def _fill(self, part: _Part, nodes: list[Node], depth: int) -> None:
        """Write nodes into a part's graph; runs of nodes that come from one submodule become a call of it."""
        place = 0
        while place < len(nodes):
            key = _key(nodes[place], depth)
            if key is None:
                node = nodes[place]
                if node.op == "get_attr" and part.prefix:
                    part.values[node] = self._taken(part, node)
                else:
                    part.values[node] = part.graph.node_copy(node, lambda n: self._value(part, n))
                place += 1
                continue
            end = place
            while end < len(nodes) and _key(nodes[end], depth) == key:
                end += 1
            self._call(part, nodes[place:end], depth, key)
            place = end

    def _taken(self, part: _Part, node: Node) -> Node:
        """A graph in the graph, which the part takes along."""
        name = str(node.target)
        if not hasattr(part.module, name):
            part.module.add_module(name, self.program.graph_module.get_submodule(name))
        return part.graph.node_copy(node)

    def _value(self, part: _Part, node: Node) -> Node:
        """The value of a node inside a part: an attribute of its module, or one more input."""
        node = self.written.get(node, node)
        if node in part.values:
            return part.values[node]
        inside = f"{part.prefix}." if part.prefix else ""
        if node in self.held and self.held[node][0].target.startswith(inside):
            spec, value = self.held[node]
            path = spec.target[len(inside) :]
            assign(part.module, path, value, spec.kind, bool(spec.persistent))
            first = next((n for n in part.graph.nodes if n.op != "placeholder"), None)
            with part.graph.inserting_before(first) if first is not None else part.graph.inserting_after():
                made = part.graph.create_node("get_attr", path, name=path.replace(".", "_"))
            made.meta = copy.copy(node.meta)
        elif part.sealed:
            made = self._reached(part, node)
        elif not part.prefix:
            made = self._recomputed(part, node)
        else:
            last = [n for n in part.graph.nodes if n.op == "placeholder"]
            with part.graph.inserting_after(last[-1]) if last else part.graph.inserting_before():
                made = part.graph.placeholder(node.name)
            made.meta = copy.copy(node.meta)
            part.inputs.append(node)
        part.values[node] = made
        return made

    def _reached(self, part: _Part, node: Node) -> Node:
        """The value, inside a part with a signature, of a node that is no argument: a tensor of another module, or a size
        of an argument.
        """
        first = next(n for n in part.graph.nodes if n.op not in ("placeholder", "get_attr"))
        if node in self.held:
            spec, value = self.held[node]
            path = spec.target.replace(".", "_")
            assign(part.module, path, value, spec.kind, bool(spec.persistent))
            with part.graph.inserting_before(first):
                return part.graph.create_node("get_attr", path, name=path)
        for argument, item in part.values.items():
            value = argument.meta.get("val")
            for dim, size in enumerate(value.shape if isinstance(value, Tensor) else ()):
                if item.target is _item and str(size) == str(node.meta.get("val")):
                    with part.graph.inserting_after(max(n for n in part.graph.nodes if n.target is _item)):
                        return part.graph.call_function(rushlight.ops.aten.sym_size.int, (item, dim))
        return self._recomputed(part, node)

    def _recomputed(self, part: _Part, node: Node) -> Node:
        """A number that a part with a signature computes, computed once more; tensors are refused."""
        if node.op == "call_function" and is_number(node) and _is_pure(node):
            return part.graph.node_copy(node, lambda n: self._value(part, n))
        raise NotImplementedError(
            f"torch.export.unflatten: {part.prefix or 'the program'} reads {node.name}, which is neither argument nor result of a module "
            "that keeps its signature"
        )

    def _call_with_signature(
        self, part: _Part, nodes: list[Node], depth: int, key: tuple[str, str], signature: Any
    ) -> None:
        """As `_call`, with the arguments and the result that the module had in Python."""
        word, fqn = key
        graph = Graph()
        inner = _Part(fqn, graph, InterpreterModule(graph, nodes[0].meta["nn_module_stack"][word][1]), sealed=True)
        for each, item in zip(signature.inputs, placeholders(inner.module, graph, signature), strict=True):
            leaf = self.named.get(each.name)
            if leaf is not None:
                item.meta["val"] = leaf.meta.get("val")
                inner.values.setdefault(self.written.get(leaf, leaf), item)
        self._fill(inner, nodes, depth + 1)
        results = [self._leaf(inner, each) for each in signature.outputs]
        flattened(inner.module, graph, results, signature)
        leaves = [self._leaf(part, each) for each in signature.inputs]
        relative = fqn[len(part.prefix) + 1 :] if part.prefix else fqn
        _, items = parent_call(part.module, part.graph, relative, leaves, signature)
        for each, item in zip(signature.outputs, items, strict=True):
            if each.name and each.name in self.named:
                item.meta["val"] = self.named[each.name].meta.get("val")
                part.values[self.named[each.name]] = item
        self._place_call(part, fqn, relative, inner)

    def _leaf(self, part: _Part, each: Any) -> Any:
        """The value of a signature's leaf inside a part; None for a result that nobody reads."""
        if isinstance(each, ConstantArgument):
            return each.value
        node = self.named.get(each.name)
        return None if node is None or node in self.dead else self._value(part, node)

    def _place_call(self, part: _Part, fqn: str, relative: str, inner: _Part) -> None:
        """Let the part have the module of a call; `_dispatch` puts one that tells them apart in the place of several."""
        calls = self.preserved.setdefault(fqn, [])
        code = _nodes_of(inner.graph)
        calls.append(next((module for module in calls if _nodes_of(module.graph) == code), inner.module))
        self._put(part, relative, calls[0])

    def _call(self, part: _Part, nodes: list[Node], depth: int, key: tuple[str, str]) -> None:
        word, fqn = key
        call_number = word.rpartition("@")[2] if "@" in word else ""
        signature = self.signatures.get(f"{fqn}@{call_number}" if call_number else fqn)
        if signature is not None:
            self._call_with_signature(part, nodes, depth, key, signature)
            return
        kind = nodes[0].meta["nn_module_stack"][word][1]
        graph = Graph()
        inner = _Part(fqn, graph, InterpreterModule(graph, kind))
        self._fill(inner, nodes, depth + 1)
        inside = set(nodes)
        outs = [n for n in nodes if any(u not in inside and u not in self.dead for u in n.users)]
        outs = [n for n in outs if n.op != "get_attr" and n not in self.written]
        single = len(outs) == 1
        graph.output(inner.values[outs[0]] if single else [inner.values[n] for n in outs])
        name = self._placed(part, fqn, inner, f"@{call_number}" if call_number else "")
        call = part.graph.create_node(
            "call_module", name, tuple([self._value(part, n) for n in inner.inputs]), {}, name=name.rpartition(".")[2].replace("@", "_")
        )  # fmt: skip
        if not single:
            call.meta["val"] = [n.meta.get("val") for n in outs]
        for number, node in enumerate(outs):
            if single:
                part.values[node] = call
                call.meta["val"] = node.meta.get("val")
            else:
                item = part.graph.call_function(_getitem, (call, number), name="getitem")
                item.meta["val"] = node.meta.get("val")
                part.values[node] = item

    def _placed(self, part: _Part, fqn: str, inner: _Part, suffix: str) -> str:
        """The path of a submodule in the part: that of an earlier call with the same graph, or a new one.

        Forms belong to the program, not to the part, so a path means one graph whichever part calls it.
        """
        relative = fqn[len(part.prefix) + 1 :] if part.prefix else fqn
        code = _nodes_of(inner.graph)
        forms = self.forms.setdefault(fqn, [])
        known = next(((held, module) for held, nodes, module in forms if nodes == code), None)
        if known is None:
            known = _free_suffix(suffix, [held for held, _, _ in forms]), inner.module
            forms.append((known[0], code, inner.module))
        self._put(part, relative + known[0], known[1])
        return relative + known[0]

    def _put(self, part: _Part, name: str, module: Any) -> None:
        """Let a part have a submodule at a path."""
        *prefix, last = name.split(".")
        holder: Any = part.module
        for word in prefix:
            if word not in holder._modules:
                holder.add_module(word, InterpreterModule(Graph()))
            holder = holder._modules[word]
        _set_child(holder, last, module)


def _free_suffix(wanted: str, taken: list[str]) -> str:
    """The suffix of a new form: none for the first one, the number of its call, or a number that is free."""
    if not taken:
        return ""
    numbers = (f"@{number}" for number in range(1, len(taken) + 2))
    return wanted if wanted not in taken else next(each for each in numbers if each not in taken)


def _set_child(holder: Any, name: str, module: Any) -> None:
    """Let a module have a child; one without a graph that was made for what lies in it gives way."""
    known = holder._modules.get(name)
    if known is None or known is module:
        holder._modules[name] = module
    elif _is_empty(module):
        _adopt(known, module)
    elif _is_empty(known):
        _adopt(module, known)
        holder._modules[name] = module
    elif isinstance(known, InterpreterModule) and _nodes_of(known.graph) == _nodes_of(module.graph):
        _adopt(known, module)
    else:
        raise NotImplementedError(f"torch.export.unflatten: two different modules would have the name {name}")


def _adopt(module: Any, other: Any) -> None:
    """Give a module what another one at its place holds."""
    if module is other:
        return
    for table in ("_parameters", "_buffers"):
        for name, value in other.__dict__[table].items():
            module.__dict__[table].setdefault(name, value)
    module._non_persistent_buffers_set |= other._non_persistent_buffers_set
    for name in _constants(other):
        module.__dict__.setdefault(name, other.__dict__[name])
    for name, child in list(other._modules.items()):
        _set_child(module, name, child)


def _constants(module: Any) -> set[str]:
    """The names of tensors that are plain attributes."""
    return {name for name, value in module.__dict__.items() if isinstance(value, Tensor)}


def _is_empty(module: Any) -> bool:
    return type(module) is Module or type(module) is InterpreterModule and not len(module.graph.nodes)


def _nodes_of(graph: Graph) -> list[Any]:
    """A graph without names, to compare it with others."""
    numbers: dict[Node, int] = {}
    rows = []
    for node in graph.nodes:
        numbers[node] = len(numbers)
        args = map_arg((node.args, node.kwargs), lambda n: f"%{numbers[n]}")
        rows.append((node.op, "" if node.op == "placeholder" else str(node.target), str(args)))
    return rows


def _is_pure(node: Node) -> bool:
    """Whether a call changes nothing but makes a value."""
    if node.target is batch_norm:
        return False
    if getattr(node.target, "__module__", "") == "_operator":
        return True
    try:
        schema = getattr(node.target, "_schema", None)
    except NotImplementedError:
        return True
    return schema is not None and not schema.is_mutable and bool(schema.returns)


def _is_in_place(node: Node) -> bool:
    """Whether a call writes to its first argument and gives that back."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable or len(schema.returns) != 1 or not schema.arguments:
        return False
    read, made = schema.arguments[0].alias_info, schema.returns[0].alias_info
    return read is not None and made is not None and read.is_write and read.after_set == made.after_set


def _getitem(values: Any, number: int) -> Any:
    return values[number]


_getitem.__module__, _getitem.__name__ = "_operator", "getitem"


def _key(node: Node, depth: int) -> tuple[str, str] | None:
    """The submodule that a node comes from at this depth: the word of its call, and its path."""
    inside = ""
    for number, (word, (path, _)) in enumerate((node.meta.get("nn_module_stack") or {}).items()):
        if not path.startswith(inside):  # a module that was reached by a reference, not through its parent
            return None
        if number == depth:
            return word, path
        inside = f"{path}." if path else ""
    return None


def _ensure(root: Module, spec: Any, value: Any) -> None:
    """Let the root have a tensor that no graph reads."""
    inner: Any = root
    *prefix, name = spec.target.split(".")
    for part in prefix:
        if not hasattr(inner, part):
            inner.add_module(part, Module())
        inner = getattr(inner, part)
    if not isinstance(getattr(inner, name, None), Tensor):
        assign(root, spec.target, value, spec.kind, bool(spec.persistent))


def unflatten(module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> UnflattenedModule:
    """The program as a module with submodules like the original's, each with its part of the graph.

    - `flat_args_adapter`: makes of calls with other structures those that the program was exported with

    NotImplementedError where a module that keeps its signature reads what is no argument of it; TypeError where a call does
    not fit.
    """
    return UnflattenedModule(module, flat_args_adapter)


class _Function(ModuleType):
    """`torch.export.unflatten` is this module and the function in it."""

    def __call__(self, module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None) -> UnflattenedModule:
        return unflatten(module, flat_args_adapter)


sys.modules[__name__].__class__ = _Function

"""From the record of a trace to graphs: one for each call of a module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import rushlight
from rushlight.jit.frontend.errors import Source
from rushlight.jit.frontend.python import UNIT, qualified_name
from rushlight.jit.ir import types as T
from rushlight.jit.ir.function import Function
from rushlight.jit.ir.graph import Graph, Location, Value
from rushlight.jit.ir.passes.constants import remove_dead
from rushlight.jit.ir.schemas import Argument, Schema, variants
from rushlight.jit.ir.types import Type
from rushlight.jit.modules import RecursiveScriptModule, is_compiled, wrap_module
from rushlight.jit.runtime.constants import number_of
from rushlight.jit.serialization.packed import packed_type
from rushlight.jit.tracing.recording import Attribute, Call, Recorder, Ref, Step, shaped_type

__all__ = ["Builder"]


class Builder:
    """Builds functions, or the methods of a module and of those in it."""

    def __init__(self, module: Any, made: dict[int, Any]) -> None:
        self.root = module
        self.kinds: dict[int, T.ClassType] = {}
        self.used: set[tuple[int, str]] = set()
        self.counts: dict[int, int] = {}
        self.modules: dict[int, Any] = made
        if module is not None:
            self._types(module)

    # ***** types *****

    def _types(self, module: Any) -> T.ClassType:
        found = self.kinds.get(id(module))
        if found is not None:
            return found
        if is_compiled(module):
            self.kinds[id(module)] = module._type
            return module._type
        kind = T.ClassType(qualified_name(type(module), UNIT, object()), is_module=True)
        kind.python = type(module)
        self.kinds[id(module)] = kind
        for table, names in ((module._parameters, kind.parameters), (module._buffers, kind.buffers)):
            for name, value in table.items():
                if value is not None:
                    kind.attributes[name] = T.TENSOR
                    names.add(name)
        for name, value in module.__dict__.items():
            held = T.TENSOR if isinstance(value, rushlight.Tensor) else packed_type(value)
            if held is not None:
                kind.attributes[name] = held
        kind.attributes["training"] = T.BOOL
        kind.attributes["_is_full_backward_hook"] = T.optional(T.BOOL)
        for name, child in module._modules.items():
            if child is not None:
                kind.attributes[name] = self._types(child)
        return kind

    def module(self, cls: Any = RecursiveScriptModule) -> Any:
        """The traced module."""
        return self._wrapped(self.root, cls)

    def _wrapped(self, module: Any, cls: Any) -> Any:
        found = self.modules.get(id(module))
        if found is not None:
            return found
        if is_compiled(module):
            return module
        made = self.modules[id(module)] = wrap_module(self.kinds[id(module)], cls)
        made.__dict__["_original_name"] = type(module).__name__
        made._parameters.update({n: v for n, v in module._parameters.items() if v is not None})
        made._buffers.update({n: v for n, v in module._buffers.items() if v is not None})
        made.__dict__["_non_persistent_buffers_set"] = set(module._non_persistent_buffers_set)
        made.training = module.training
        for name, value in module.__dict__.items():
            if isinstance(value, rushlight.Tensor) or packed_type(value) is not None:
                made.__dict__[name] = value
        for name, child in module._modules.items():
            if child is not None:
                made._modules[name] = self._wrapped(child, RecursiveScriptModule)
        return made

    # ***** functions and methods *****

    def function(self, name: str, call: Call, recorder: Recorder, names: Sequence[str]) -> Function:
        """A traced function."""
        return _Body(self, recorder).top(name, call, None, names)

    def method(self, name: str, call: Call, recorder: Recorder, names: Sequence[str]) -> Function:
        """A traced method of the module."""
        kind = self.kinds[id(self.root)]
        made = _Body(self, recorder).top(f"{kind.name}.{name}", call, kind, names)
        kind.methods[name] = made
        return made


def _place_of(location: Any) -> Location | None:
    if location is None:
        return None
    return Location(Source("", location[0], location[1]), 1, 0, 1)


class _Body:
    """Builds the graphs of one record."""

    def __init__(self, builder: Builder, recorder: Recorder) -> None:
        self.builder, self.recorder = builder, recorder
        self.paths: dict[int, dict[int, list[str]]] = {}

    def _path(self, top: Any, module: Any) -> list[str] | None:
        """The names that lead from a module to one in it; None where there are none."""
        found = self.paths.get(id(top))
        if found is None:
            found = self.paths[id(top)] = {}
            for name, inner in top.named_modules():
                found[id(inner)] = str(name).split(".") if name else []
        return found.get(id(module))

    def top(self, name: str, call: Call, kind: T.ClassType | None, names: Sequence[str]) -> Function:
        """The graph of the whole record."""
        graph = Graph()
        values: dict[int, Value] = {}
        owner = graph.block.add_input(kind, "self") if kind is not None else None
        arguments = [Argument("self", kind)] if kind is not None else []
        for given, word in zip(self.recorder.inputs, names, strict=True):
            type_ = self._input_type(given)
            value = graph.block.add_input(type_, word)
            arguments.append(Argument(word, type_))
            self._take_apart(graph, value, given, values)
        self.graph_of(graph, call, owner, values)
        result = self._result(graph, self.recorder.result, values, owner, call)
        graph.block.add_result(result)
        remove_dead(graph)
        schema = Schema(name.rpartition(".")[2], "", arguments, [Argument("", result.type)])
        made = Function(name, schema=schema)
        made.graph, made.owner = graph, kind
        return made

    def _input_type(self, given: Any) -> Type:
        if isinstance(given, rushlight.Tensor):
            return T.TENSOR
        if isinstance(given, tuple):
            return T.tuple_of(*[self._input_type(v) for v in given])
        if isinstance(given, list):
            return T.list_of(self._input_type(given[0]) if given else T.TENSOR)
        if isinstance(given, dict):
            return T.dict_of(T.STR, self._input_type(next(iter(given.values()))) if given else T.TENSOR)
        raise RuntimeError(
            f"Type '{type(given).__name__}' cannot be traced. Only Tensors and (possibly nested) Lists, Dicts, and Tuples of Tensors can be traced"
        )

    def _take_apart(self, graph: Graph, value: Value, given: Any, values: dict[int, Value]) -> None:
        if isinstance(given, rushlight.Tensor):
            values[self._first_number(given)] = value
            value.type = self.recorder.shapes[self._first_number(given)]
            return
        if isinstance(given, (tuple, list)) and given:
            kinds = value.type.inner if isinstance(given, tuple) else value.type.inner * len(given)
            word = "Tuple" if isinstance(given, tuple) else "List"
            parts = graph.insert(graph.create(f"prim::{word}Unpack", [value], kinds)).outputs
            for part, inner in zip(parts, given, strict=True):
                self._take_apart(graph, part, inner, values)
        elif isinstance(given, dict):
            for key, inner in given.items():
                node = graph.create("aten::__getitem__", [value, graph.constant(key, T.STR)], [value.type.inner[1]])
                node.schema = next(s for s in variants("aten::__getitem__") if s.overload_name == "Dict_str")
                self._take_apart(graph, graph.insert(node).outputs[0], inner, values)

    def _first_number(self, given: Any) -> int:
        if not hasattr(self, "_firsts"):
            self._firsts: dict[int, int] = {}
            for held, number in self.recorder.noted:
                self._firsts.setdefault(id(held), number)
        return self._firsts[id(given)]

    # ***** calls *****

    def graph_of(self, graph: Graph, call: Call, owner: Value | None, values: dict[int, Value]) -> None:
        """Write the steps of a call into a graph."""
        for step in call.steps:
            if isinstance(step, Call):
                self._inner(graph, step, call, owner, values)
            else:
                self._step(graph, step, owner, values, call)

    def _inner(self, graph: Graph, call: Call, outer: Call, owner: Value | None, values: dict[int, Value]) -> None:
        """A call of a module in a call: a method of that module."""
        if not call.steps:
            return
        assert owner is not None
        needed = [n for n in _needed(call) if n in values]
        given = [n for n in _given(call) if n in self._used_after(call)]
        body = Graph()
        kind: T.ClassType = self.builder.kinds[id(call.module)]
        inner_self = body.block.add_input(kind, "self")
        inner: dict[int, Value] = {}
        arguments = [Argument("self", kind)]
        for at, number in enumerate(needed):
            word = "x" if len(needed) == 1 else f"argument_{at + 1}"
            inner[number] = body.block.add_input(values[number].type, word)
            arguments.append(Argument(word, values[number].type))
        self.graph_of(body, call, inner_self, inner)
        results = [inner[n] for n in given]
        result = (
            results[0]
            if len(results) == 1
            else body.op("prim::TupleConstruct", results, T.tuple_of(*[v.type for v in results]))
        )
        body.block.add_result(result)
        remove_dead(body)
        at = self.builder.counts.get(id(call.module), 0)
        self.builder.counts[id(call.module)] = at + 1
        name = f"forward{at or ''}"
        made = Function(f"{kind.name}.{name}", schema=Schema(name, "", arguments, [Argument("", result.type)]))
        made.graph, made.owner = body, kind
        kind.methods[name] = made
        place = self._module_value(graph, call.module, owner, outer.module)
        called = graph.op("prim::CallMethod", [place, *[values[n] for n in needed]], result.type, name=name)
        if len(given) == 1:
            values[given[0]] = called
        elif given:
            parts = graph.insert(graph.create("prim::TupleUnpack", [called], result.type.inner)).outputs
            values.update(zip(given, parts, strict=True))

    def _used_after(self, call: Call) -> set[int]:
        """The numbers that are used outside of a call."""
        root = call
        while root.outer is not None:
            root = root.outer
        used: set[int] = set()
        _uses_outside(root, call, used)
        _refs(self.recorder, self.recorder.result, used)
        return used

    def _module_value(self, graph: Graph, module: Any, owner: Value, at: Any) -> Value:
        """The value of a module, from that of one above it."""
        path = self._path(at, module)
        if path is None:
            raise RuntimeError(
                f"a module of class {type(module).__name__} is called from a module that does not hold it: it cannot be traced"
            )
        for name in path:
            kind: Any = owner.type
            owner = graph.op("prim::GetAttr", [owner], kind.attributes[name], name=name)
            if not name[0].isdigit():
                owner.set_name(name)
        return owner

    # ***** steps *****

    def _step(self, graph: Graph, step: Step, owner: Value | None, values: dict[int, Value], call: Call) -> None:
        graph.location = _place_of(step.location)
        if step.function is not None:
            self._call_function(graph, step, owner, values, call)
            return
        schema = next((s for s in variants(step.kind) if s.overload_name == step.overload), None)
        if schema is None:
            raise RuntimeError(f"there is no schema for {step.kind}.{step.overload}")
        inputs = [
            self._value(graph, v, a.type, owner, values, call)
            for v, a in zip(step.arguments, schema.arguments, strict=True)
        ]
        kinds = [r.type for r in schema.returns]
        node = graph.create(step.kind, inputs, kinds)
        node.schema, node.scope = schema, step.scope
        graph.insert(node)
        for ref, value in zip(step.outputs, node.outputs, strict=False):
            self._bind(graph, ref, value, values)

    def _bind(self, graph: Graph, ref: Any, value: Value, values: dict[int, Value]) -> None:
        if isinstance(ref, Ref):
            values[ref.number] = value
            value.type = self.recorder.shapes.get(ref.number, value.type)
            name = self.recorder.names.get(ref.number)
            if name and value.node is not None:
                value.set_name(name)
        elif isinstance(ref, (list, tuple)) and ref:
            kinds = value.type.inner * len(ref) if value.type.name == "List" else value.type.inner
            word = "List" if value.type.name == "List" else "Tuple"
            parts = graph.insert(graph.create(f"prim::{word}Unpack", [value], kinds)).outputs
            for inner, part in zip(ref, parts, strict=True):
                self._bind(graph, inner, part, values)

    def _call_function(
        self, graph: Graph, step: Step, owner: Value | None, values: dict[int, Value], call: Call
    ) -> None:
        schema = step.function.schema
        wanted = schema.arguments if step.module is None else schema.arguments[1:]
        inputs = [
            self._value(graph, v, a.type, owner, values, call) for v, a in zip(step.arguments, wanted, strict=True)
        ]
        if step.module is None:
            called = graph.constant(step.function, T.FunctionType(step.function))
            made = graph.op(step.kind, [called, *inputs], schema.returns[0].type)
        else:
            assert owner is not None
            place = self._module_value(graph, step.module, owner, call.module)
            made = graph.op(step.kind, [place, *inputs], schema.returns[0].type, name=schema.name)
        self._bind(graph, step.outputs[0], made, values)

    def _value(
        self, graph: Graph, held: Any, kind: Type, owner: Value | None, values: dict[int, Value], call: Call
    ) -> Value:
        if isinstance(held, Ref):
            found = values.get(held.number)
            if found is None:
                raise RuntimeError("a value of the trace is used where its module cannot see it")
            if kind == T.TENSOR and found.type == T.INT:
                node = graph.create("prim::NumToTensor", [found], [T.TENSOR])
                node.schema = variants("prim::NumToTensor")[0]
                return graph.insert(node).outputs[0]
            return found
        if isinstance(held, Attribute):
            if owner is None:
                raise RuntimeError("a parameter is used outside of its module")
            return self._attribute(graph, held, owner, call)
        if held is None:
            return graph.constant(None, T.NONE).unplaced()
        if isinstance(held, rushlight.Tensor):
            return _tensor_constant(graph, held)
        if isinstance(held, (list, tuple)):
            element = (kind.inner[0] if kind.name == "Optional" else kind).inner[0]
            parts = [self._value(graph, v, element, owner, values, call) for v in held]
            return graph.op("prim::ListConstruct", parts, T.list_of(element))
        return _number(graph, held, kind)

    def _attribute(self, graph: Graph, held: Attribute, owner: Value, call: Call) -> Value:
        if self._path(call.module, held.module) is None:
            raise RuntimeError(
                f"the parameter {held.name} of a module of class {type(held.module).__name__} is used by a module that does not hold it: it cannot be traced"
            )
        place = self._module_value(graph, held.module, owner, call.module)
        kind: Any = place.type
        value = graph.op("prim::GetAttr", [place], kind.attributes.get(held.name, T.TENSOR), name=held.name)
        value.set_name(held.name)
        return value

    def _result(self, graph: Graph, held: Any, values: dict[int, Value], owner: Value | None, call: Call) -> Value:
        if isinstance(held, rushlight.Tensor):
            return self._value(graph, self.recorder.ref(held), T.TENSOR, owner, values, call)
        if isinstance(held, tuple):
            parts = [self._result(graph, v, values, owner, call) for v in held]
            return graph.op("prim::TupleConstruct", parts, T.tuple_of(*[p.type for p in parts]))
        if isinstance(held, (list, dict)):
            if self.recorder.strict:
                what = "list" if isinstance(held, list) else "dict"
                raise RuntimeError(
                    f"Encountering a {what} at the output of the tracer might cause the trace to be incorrect, this is only valid if the container structure does not change based on the module's inputs. Consider using a constant container instead (e.g. for `list`, use a `tuple` instead. for `dict`, use a `NamedTuple` instead). If you absolutely need this and know the side effects, pass strict=False to trace() to allow this behavior."
                )
            if isinstance(held, list):
                parts = [self._result(graph, v, values, owner, call) for v in held]
                return graph.op("prim::ListConstruct", parts, T.list_of(parts[0].type if parts else T.TENSOR))
            pairs = []
            for key, inner in held.items():
                pairs += [graph.constant(key, T.STR), self._result(graph, inner, values, owner, call)]
            return graph.op("prim::DictConstruct", pairs, T.dict_of(T.STR, pairs[1].type if pairs else T.TENSOR))
        if held is None or isinstance(held, (int, float, bool)):
            raise RuntimeError(
                f"Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from traced functions, but got {type(held).__name__}"
            )
        raise RuntimeError(f"a value of type {type(held).__name__} cannot be the output of a traced function")


def _number(graph: Graph, held: Any, kind: Type) -> Value:
    wanted = kind.inner[0] if kind.name == "Optional" else kind
    if isinstance(held, (rushlight.dtype, rushlight.layout, rushlight.memory_format)):
        return graph.constant(number_of(held), T.INT)
    if isinstance(held, rushlight.device):
        return graph.constant(held, T.DEVICE)
    if isinstance(held, bool):
        return graph.constant(held, T.BOOL)
    if isinstance(held, int):
        if wanted == T.FLOAT:
            return graph.constant(float(held), T.FLOAT)
        return _number_constant(graph, int(held), T.INT, wanted)
    if isinstance(held, float):
        return _number_constant(graph, held, T.FLOAT, wanted)
    if isinstance(held, complex):
        return _number_constant(graph, held, T.COMPLEX, wanted)
    if isinstance(held, str):
        return graph.constant(held, T.STR)
    raise RuntimeError(f"a value of type {type(held).__name__} cannot be recorded by torch.jit.trace")


def _number_constant(graph: Graph, held: Any, kind: Type, wanted: Type) -> Value:
    """A number; where the schema wants a tensor, a constant tensor without dims."""
    if wanted != T.TENSOR:
        return graph.constant(held, kind)
    dtype = {T.INT: rushlight.int64, T.FLOAT: rushlight.float64, T.COMPLEX: rushlight.complex128}[kind]
    return _tensor_constant(graph, rushlight.scalar_tensor(held, dtype=dtype))


def _tensor_constant(graph: Graph, held: Any) -> Value:
    return graph.constant(held, shaped_type(held))


def _collect(held: Any, into: dict[int, None]) -> None:
    if isinstance(held, Ref):
        into[held.number] = None
    elif isinstance(held, (list, tuple)):
        for each in held:
            _collect(each, into)


def _given(call: Call) -> dict[int, None]:
    """The numbers that a call defines."""
    found: dict[int, None] = {}
    for step in call.steps:
        if isinstance(step, Call):
            found |= _given(step)
        else:
            _collect(step.outputs, found)
    return found


def _needed(call: Call) -> list[int]:
    """The numbers that a call uses and does not define."""
    used: dict[int, None] = {}
    _all_uses(call, used)
    own = _given(call)
    return [n for n in used if n not in own]


def _all_uses(call: Call, into: dict[int, None]) -> None:
    for step in call.steps:
        if isinstance(step, Call):
            _all_uses(step, into)
        else:
            _collect(step.arguments, into)


def _uses_outside(call: Call, without: Call, into: set[int]) -> None:
    for step in call.steps:
        if step is without:
            continue
        if isinstance(step, Call):
            _uses_outside(step, without, into)
        else:
            found: dict[int, None] = {}
            _collect(step.arguments, found)
            into.update(found)


def _refs(recorder: Recorder, held: Any, into: set[int]) -> None:
    if isinstance(held, rushlight.Tensor):
        found = recorder.ref(held)
        if isinstance(found, Ref):
            into.add(found.number)
    elif isinstance(held, (tuple, list)):
        for each in held:
            _refs(recorder, each, into)
    elif isinstance(held, dict):
        for each in held.values():
            _refs(recorder, each, into)

"""Graphs as lists of steps, prepared once: attributes decoded, implementations found, constants computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import rushlight as torch
from rushlight.onnx.importing import operators as operators  # enters the operators into the table
from rushlight.onnx.importing.errors import InvalidModelError, OperatorError, UnsupportedOperatorError
from rushlight.onnx.importing.table import HOST, Row, find
from rushlight.onnx.importing.values import (
    Host,
    Narrow,
    check_dims,
    constant,
    element_type,
    from_numpy,
    from_proto,
    map_tensors,
    numpy,
    onnx,
    tensor,
)

__all__ = ["Graph", "Model", "Step", "dense"]

_DEPTH = 32  # of bodies within bodies, and of functions within functions
_LARGEST_SPARSE = 2**31
# Operators that make much of little, or differ from call to call: never computed while a model is prepared.
_LATE = {
    "ConstantOfShape", "EyeLike", "Expand", "Tile", "Range", "OneHot", "Pad", "Resize", "Upsample", "If", "Loop", "Scan", "SequenceMap", "Bernoulli",
    "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "MelWeightMatrix", "HannWindow", "HammingWindow",
    "BlackmanWindow", "Gradient", "ImageDecoder",
}  # fmt: skip
_FOLDED_ELEMENTS = 1 << 20


class Model:
    """State that the graphs of a model share: versions of operator sets, functions, and how tensors of the file are
    read.
    """

    def __init__(
        self, opsets: Mapping[str, int], functions: Iterable[Any] = (), read: Callable[[Any], Any] = from_proto
    ) -> None:
        self.read = read
        self.opsets = {("" if domain == "ai.onnx" else domain): version for domain, version in opsets.items()}
        self.functions = {(_domain(f.domain), f.name, getattr(f, "overload", "")): f for f in functions}
        self.bodies: dict[Any, Graph] = {}
        self.stack: list[Any] = []

    def version(self, domain: str) -> int:
        """The version of an operator set that the model asks for."""
        if domain not in self.opsets:
            known = find_latest(domain)
            if known is None:
                raise InvalidModelError(
                    f"the model uses the operator set {domain or 'ai.onnx'!r} and does not import it"
                )
            return known
        return self.opsets[domain]

    def function_body(self, function: Any, attributes: dict[str, Any], key: Any) -> Graph:
        """The graph of a function of ONNX with its attributes bound; functions that need themselves are refused."""
        if key in self.stack or len(self.stack) >= _DEPTH:
            raise InvalidModelError(f"function {function.name!r} calls itself, or functions are too deep")
        self.stack.append(key)
        try:
            inner = Model({one.domain: one.version for one in function.opset_import}, read=self.read)
            inner.functions, inner.stack = self.functions, self.stack
            for domain, version in self.opsets.items():
                inner.opsets.setdefault(domain, version)
            bound = {one.name: one for one in function.attribute_proto} | attributes
            binding = {name: bound.get(name) for name in [*function.attribute, *bound]}
            return Graph(
                inner, function.node, list(function.input), list(function.output), binding=binding, function=True
            )
        finally:
            self.stack.pop()


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def find_latest(domain: str) -> int | None:
    """The latest version of an operator set that the installed `onnx` knows; for graphs that import none."""
    versions = {"": onnx.defs.onnx_opset_version(), "com.microsoft": 1}
    return versions.get(domain)


class Graph:
    """Steps in order, the names they start from and the names they end with."""

    def __init__(
        self,
        model: Model,
        nodes: Iterable[Any],
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        constants: dict[str, Any] | None = None,
        outer: Iterable[str] = (),
        binding: Mapping[str, Any] | None = None,
        function: bool = False,
    ) -> None:
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.constants: dict[str, Any] = constants or {}
        self.steps: list[Step] = []
        self.captured: list[str] = []
        outside = set(outer)
        inside = {*self.inputs, *self.constants}
        for node in nodes:
            step = Step(model, node, binding, outside | inside)
            for name in step.reads:
                self._note(name, inside, outside, f"node {step.label} reads")
            for name in filter(None, step.outputs):
                if name in inside:
                    raise InvalidModelError(f"value {name!r} is made twice")
                inside.add(name)
            self._add(step)
        for name in self.outputs:
            if function and name not in inside:
                # Bodies leave out what the node did not ask for.
                self.constants[name] = None
            self._note(name, inside | set(self.constants), outside, "the graph returns")
        self.records = any(step.op == "Gradient" for step in self.steps)
        self.set_ends()

    def _note(self, name: str, inside: set[str], outside: set[str], what: str) -> None:
        if name in inside:
            return
        if name not in outside:
            raise InvalidModelError(f"{what} {name!r}, which nothing before it makes")
        if name not in self.captured:
            self.captured.append(name)

    def _add(self, step: Step) -> None:
        """Compute a step whose inputs are all known; keep any other."""
        foldable = step.op not in _LATE and not step.bodies and step.row is not None
        if foldable and all(name in self.constants for name in step.reads):
            values = {name: self.constants[name] for name in step.reads}
            try:
                with torch.no_grad():
                    step.run(values)
            except (OperatorError, UnsupportedOperatorError):  # said when the step is run
                self.steps.append(step)
                return
            made = {name: values[name] for name in step.outputs if name}
            if all(_elements(value) <= _FOLDED_ELEMENTS for value in made.values()):
                self.constants.update({name: constant(value) for name, value in made.items()})
                return
        self.steps.append(step)

    def set_ends(self) -> None:
        """Let every step drop the values that nobody reads after it."""
        seen = {*self.outputs, *self.constants, *self.captured}
        for step in reversed(self.steps):
            last = [name for name in dict.fromkeys([*step.reads, *filter(None, step.outputs)]) if name not in seen]
            step.ends = last
            seen.update(last)

    def run(self, arguments: Sequence[Any], scope: Mapping[str, Any] | None = None) -> list[Any]:
        """The graph's outputs for its inputs; `scope` has the values around a body."""
        values = dict(self.constants)
        if scope is not None:
            for name in self.captured:
                values[name] = scope[name]
        for name, value in zip(self.inputs, arguments):
            values[name] = value
        for name in self.inputs[len(arguments) :]:
            values[name] = None
        return self.follow(values)

    def follow(self, values: dict[str, Any]) -> list[Any]:
        """Run all steps over `values`, which has every name that they start from."""
        if self.records:
            return self._follow_recorded(values)
        return self._follow(values)

    def _follow_recorded(self, values: dict[str, Any]) -> list[Any]:
        """The same with gradients recorded from all inputs, for graphs with a node that asks for them."""
        for name in self.inputs:
            value = tensor(values[name])
            if isinstance(value, torch.Tensor) and value.is_floating_point() and not value.requires_grad:
                values[name] = value.detach().requires_grad_()
        with torch.enable_grad():
            return self._follow(values)

    def _follow(self, values: dict[str, Any]) -> list[Any]:
        for step in self.steps:
            step.run(values)
            for name in step.ends:
                del values[name]
        return [values[name] for name in self.outputs]

    def lines(self, indent: str = "") -> list[str]:
        """The steps as text, one a line, bodies indented below."""
        found = []
        for step in self.steps:
            found.append(f"{indent}{step}")
            for name, body in step.bodies.items():
                found.append(f"{indent}  {name}({', '.join(body.inputs)}):")
                found.extend(body.lines(indent + "    "))
                found.append(f"{indent}    return {', '.join(body.outputs)}")
        return found


def _elements(value: Any) -> int:
    return value.numel() if isinstance(value, torch.Tensor) else 0


class Step:
    """One node: its implementation, the names it reads and makes, its attributes."""

    def __init__(self, model: Model, node: Any, binding: Mapping[str, Any] | None, seen: set[str]) -> None:
        self.model, self.op, self.domain = model, node.op_type, _domain(node.domain)
        self.label = node.name or f"{node.op_type} -> {', '.join(node.output)}"
        self.inputs, self.outputs = list(node.input), list(node.output)
        self.ends: list[str] = []
        self.protos = dict(_bound(node.attribute, binding))
        self.function = model.functions.get((self.domain, self.op, getattr(node, "overload", "")))
        self.row: Row | None = None
        self.body: Graph | None = None
        self.expanded: dict[Any, Graph] = {}
        self.opset = 0
        if self.function is not None:
            key = (self.domain, self.op, *((n, p.SerializeToString()) for n, p in sorted(self.protos.items())))
            if key not in model.bodies:
                model.bodies[key] = model.function_body(self.function, self.protos, key)
            self.body = model.bodies[key]
        else:
            self.opset = model.version(self.domain)
            self.row = find(self.domain, self.op, self.opset)
            if self.row is None and not _has_function(self):
                name = f"{self.domain or 'ai.onnx'}::{self.op}"
                raise UnsupportedOperatorError(f"operator {name} (operator set {self.opset}) is not implemented here")
        self.attributes = {} if self.row is None else _decoded(model, self.protos, seen)
        self.bodies = {name: value for name, value in self.attributes.items() if isinstance(value, Graph)}
        inner = [name for body in self.bodies.values() for name in body.captured]
        if self.op == "Gradient":
            inner += [*self.attributes.get("xs", ()), self.attributes.get("y", ""), *self.attributes.get("zs", ())]
        self.reads = list(dict.fromkeys([*filter(None, self.inputs), *inner]))
        while self.inputs and not self.inputs[-1]:
            self.inputs.pop()
        if self.row is not None:
            self._check()

    def rewire(self, inputs: list[str], outputs: list[str]) -> None:
        """Read and make other names."""
        self.inputs, self.outputs = inputs, outputs
        self.reads = list(dict.fromkeys(filter(None, inputs)))
        self._check()

    def _check(self) -> None:
        """The node against the implementation's parameters."""
        row: Any = self.row
        wrong = [] if row.open else sorted(set(self.attributes) - row.attributes)
        if wrong:
            raise UnsupportedOperatorError(f"node {self.label}: {self.op} knows no attribute {', '.join(wrong)}")
        if len(self.inputs) > len(row.kinds) and not row.variadic:
            raise InvalidModelError(
                f"node {self.label}: {self.op} takes {len(row.kinds)} inputs, not {len(self.inputs)}"
            )
        self.host = HOST.get(self.op) if not self.domain else None
        last = row.kinds[-1] if row.kinds else ""
        count = len(self.inputs)
        self.kinds = (row.kinds + (last,) * count)[:count] if row.variadic else row.kinds[:count]
        if "outputs" in row.extras:
            self.attributes["outputs"] = [bool(name) for name in self.outputs]
        if "opset" in row.extras:
            self.attributes["opset"] = self.opset

    def run(self, values: dict[str, Any]) -> None:
        """Compute the node's outputs and put them beside its inputs."""
        arguments = [values[name] if name else None for name in self.inputs]
        try:
            made = self._compute(arguments, values)
        except UnsupportedOperatorError:
            raise
        except NotImplementedError as error:
            raise UnsupportedOperatorError(f"node {self.label} ({self.op}): {error}") from error
        except OperatorError:
            raise
        except (
            ArithmeticError,
            AssertionError,
            AttributeError,
            LookupError,
            OSError,
            MemoryError,
            RuntimeError,
            TypeError,
            ValueError,
        ) as error:
            raise OperatorError(f"node {self.label} ({self.op}): {type(error).__name__}: {error}") from error
        if len(self.outputs) == 1 and not isinstance(made, tuple):
            values[self.outputs[0]] = made
            return
        made = made if isinstance(made, tuple) else (made,)
        if len(made) < len(self.outputs):
            raise OperatorError(f"node {self.label} ({self.op}) has {len(made)} results, and {len(self.outputs)} names")
        for name, value in zip(self.outputs, made):
            if name:
                values[name] = value

    def _compute(self, arguments: list[Any], values: dict[str, Any]) -> Any:
        row = self.row
        if row is None:
            return tuple(self._expand(arguments).run([map_tensors(tensor, value) for value in arguments]))
        if self.host is not None and all(isinstance(value, Host) or value is None for value in arguments):
            made = self.host(*arguments, **self.attributes)
            if made is not NotImplemented:
                return made
        passed = [_as_kind(value, kind) for value, kind in zip(arguments, self.kinds)]
        if "scope" in row.extras:
            return row.function(*passed, scope=values, **self.attributes)
        if row.moves and passed and isinstance(passed[0], Narrow):
            number = passed[0].number
            plain = [value.data if isinstance(value, Narrow) else value for value in passed]
            made = row.function(*plain, **self.attributes)
            return (
                Narrow(made, number)
                if not isinstance(made, (tuple, list))
                else type(made)(Narrow(x, number) for x in made)
            )
        return row.function(*passed, **self.attributes)

    def _expand(self, arguments: list[Any]) -> Graph:
        """The body of a function of the model or of ONNX; some of ONNX's depend on the types of what comes in."""
        if self.body is not None:
            return self.body
        key = tuple([_type_key(value) for value in arguments])
        if key not in self.expanded:
            self.expanded[key] = self.model.function_body(
                _schema_function(self, arguments), self.protos, (self.op, key)
            )
        return self.expanded[key]

    def __str__(self) -> str:
        shown = [
            f"{name}={_shown(value)}"
            for name, value in self.attributes.items()
            if name not in ("outputs", "opset") and name not in self.bodies
        ]
        given = ", ".join([name or "None" for name in self.inputs] + shown)
        domain = f"{self.domain}::" if self.domain else ""
        return f"{', '.join(name or '_' for name in self.outputs)} = {domain}{self.op}({given})"


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, (Host, torch.Tensor)) else f"tensor{tuple(value.shape)}"
    return text if len(text) <= 60 else text[:57] + "..."


def _as_kind(value: Any, kind: str) -> Any:
    """An argument in the form that the implementation's parameter asks for."""
    if kind == "Value":
        return value
    if kind == "Numbers":
        if isinstance(value, Host):
            return value.plain()
        return value.tolist() if isinstance(value, torch.Tensor) else value
    if isinstance(value, list):
        return [tensor(item) for item in value]
    return tensor(value)


# ***** functions that ONNX defines *****


def _schema(step: Step) -> Any:
    try:
        return onnx.defs.get_schema(step.op, step.opset, step.domain)
    except onnx.defs.SchemaError:
        return None


def _has_function(step: Step) -> bool:
    schema = _schema(step)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _type_key(value: Any) -> Any:
    if value is None or isinstance(value, (list, dict)):
        return type(value).__name__
    return element_type(value), tuple(value.shape)


def _schema_function(step: Step, arguments: list[Any]) -> Any:
    schema = _schema(step)
    if schema.has_function:
        known = [one for one in schema.function_opset_versions if one <= step.opset]
        body = schema.get_function_with_opset_version(max(known))
    else:
        known = [one for one in schema.context_dependent_function_opset_versions if one <= step.opset]
        inputs = [name if value is not None else "" for name, value in zip(step.inputs, arguments)]
        node = onnx.helper.make_node(step.op, inputs, step.outputs, domain=step.domain)
        node.attribute.extend(step.protos.values())
        _check_node(step, node)
        if any(isinstance(value, (list, dict)) for value in arguments):
            raise UnsupportedOperatorError(f"node {step.label}: {step.op} takes no sequences here")
        types = [_type_proto(value).SerializeToString() for value in arguments]
        body = schema.get_context_dependent_function_with_opset_version(max(known), node.SerializeToString(), types)
    function = onnx.FunctionProto()
    function.ParseFromString(body)
    given = {*step.protos, *(one.name for one in function.attribute_proto)}
    defaults = [a.default_value for name, a in schema.attributes.items() if name not in given and a.default_value.name]
    function.attribute_proto.extend(defaults)
    return function


def _check_node(step: Step, node: Any) -> None:
    """Functions are built by native code of `onnx` from the node: nodes that contradict their schema must not get
    there.
    """
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = {"": step.model.version(""), **step.model.opsets, step.domain: step.opset}
    try:
        onnx.checker.check_node(node, context)
    except onnx.checker.ValidationError as error:
        raise InvalidModelError(f"node {step.label}: {error}") from error


def _type_proto(value: Any) -> Any:
    if value is None or isinstance(value, (list, dict)):
        return onnx.TypeProto()
    return onnx.helper.make_tensor_type_proto(element_type(value), list(value.shape))


# ***** attributes *****


def _bound(protos: Iterable[Any], binding: Mapping[str, Any] | None) -> Iterable[tuple[str, Any]]:
    """A node's attributes, those that stand for a function's attribute replaced by it."""
    for proto in protos:
        if not proto.ref_attr_name:
            yield proto.name, proto
            continue
        if binding is None or proto.ref_attr_name not in binding:
            raise InvalidModelError(f"attribute {proto.name!r} refers to the unknown {proto.ref_attr_name!r}")
        given = binding[proto.ref_attr_name]
        if given is not None:
            copy = onnx.AttributeProto()
            copy.CopyFrom(given)
            copy.name = proto.name
            yield proto.name, copy


def _decoded(model: Model, protos: Mapping[str, Any], seen: set[str]) -> dict[str, Any]:
    return {name: _attribute(model, proto, seen) for name, proto in protos.items()}


def _attribute(model: Model, proto: Any, seen: set[str]) -> Any:
    """An attribute's value: numbers, texts, values, graphs, or lists of these."""
    kind = onnx.AttributeProto.AttributeType.Name(proto.type)
    if kind in ("INT", "FLOAT"):
        return proto.i if kind == "INT" else proto.f
    if kind in ("INTS", "FLOATS"):
        return list(proto.ints if kind == "INTS" else proto.floats)
    if kind == "STRING":
        return proto.s.decode("utf-8", "surrogateescape")
    if kind == "STRINGS":
        return [one.decode("utf-8", "surrogateescape") for one in proto.strings]
    if kind == "TENSOR":
        return model.read(proto.t)
    if kind == "TENSORS":
        return [model.read(one) for one in proto.tensors]
    if kind == "SPARSE_TENSOR":
        return dense(proto.sparse_tensor)
    if kind == "GRAPH":
        return _body(model, proto.g, seen)
    if kind == "TYPE_PROTO":
        return proto.tp
    raise UnsupportedOperatorError(f"attribute {proto.name!r} has the type {kind}, which is not supported here")


def _body(model: Model, proto: Any, seen: set[str]) -> Graph:
    """The body of a control-flow operator, which sees the names around it."""
    if len(model.stack) >= _DEPTH:
        raise InvalidModelError("graphs are nested too deeply")
    model.stack.append("body")
    try:
        constants = {one.name: model.read(one) for one in proto.initializer}
        constants |= {one.values.name: dense(one) for one in proto.sparse_initializer}
        inputs = [one.name for one in proto.input]
        outputs = [one.name for one in proto.output]
        return Graph(model, proto.node, inputs, outputs, constants=constants, outer=seen)
    finally:
        model.stack.pop()


def dense(proto: Any) -> Any:
    """The dense tensor of a SparseTensorProto."""
    what = f"sparse tensor {proto.values.name!r}"
    if check_dims(proto, what) > _LARGEST_SPARSE:
        raise InvalidModelError(f"{what} has too many elements to be made dense")
    values = tensor(from_proto(proto.values, what))
    indices = tensor(from_proto(proto.indices, what)).numpy()
    dims = tuple(proto.dims)
    if indices.ndim == 2:
        if indices.shape[1] != len(dims):
            raise InvalidModelError(f"{what} has indices of {indices.shape[1]} dims and {len(dims)} dims")
        inside = all(((indices[:, i] >= 0) & (indices[:, i] < dims[i])).all() for i in range(len(dims)))
        flat = numpy.ravel_multi_index(tuple(indices.T), dims) if inside and len(indices) else indices.sum(1)
    else:
        flat = indices
        inside = bool(((flat >= 0) & (flat < max(1, int(numpy.prod(dims))))).all())
    if not inside or len(flat) != values.shape[0]:
        raise InvalidModelError(f"{what} has indices outside its dims, or not one for each value")
    result = torch.zeros(int(numpy.prod(dims)), dtype=values.dtype)
    result[from_numpy(flat.astype("int64"))] = values
    return constant(result.reshape(dims))

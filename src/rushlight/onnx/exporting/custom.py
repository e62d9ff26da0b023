"""Translations by users: `custom_translation_table`, and symbolic functions by `register_custom_op_symbolic`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.onnx.errors import OnnxExporterError, SymbolicValueError
from rushlight.onnx.exporting.table import Call
from rushlight.onnx.exporting.values import OnnxTensor, Value, element_type, numpy_dtype
from rushlight.onnx.exporting.writer import Writer

__all__ = ["Custom", "GraphContext", "custom_table", "finished", "register", "unregister"]

np: Any = LazyModule("numpy")

# Symbolic functions by operator (`ns::name`) and opset.
_SYMBOLIC: dict[str, dict[int, Callable[..., Any]]] = {}
_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.\w+)?")


def register(symbolic_name: str, symbolic_fn: Callable[..., Any], opset_version: int) -> None:
    """See `torch.onnx.register_custom_op_symbolic`."""
    if _NAME.fullmatch(symbolic_name) is None:
        raise ValueError(
            f"Failed to register operator {symbolic_name}. The symbolic name must match the format domain::name, and should "
            "start with a letter and contain only alphanumerical characters"
        )
    _SYMBOLIC.setdefault(symbolic_name, {})[opset_version] = symbolic_fn


def unregister(symbolic_name: str, opset_version: int) -> None:
    """See `torch.onnx.unregister_custom_op_symbolic`."""
    _SYMBOLIC.get(symbolic_name, {}).pop(opset_version, None)


class Custom(Mapping[Any, Callable[..., Any]]):
    """Translations by users, by the target of a call."""

    def __init__(self, table: Mapping[Any, Any], opset: int) -> None:
        self.table, self.opset = dict(table), opset

    def _find(self, target: Any) -> Callable[..., Any] | None:
        given = self.table.get(target)
        if given is not None:
            return _translation(given)
        if not hasattr(target, "_opname") or not _SYMBOLIC:
            return None
        name = f"{target.namespace}::{target._opname}"
        for key in (f"{name}.{target._overloadname}", name):
            versions = _SYMBOLIC.get(key)
            fitting = [v for v in versions or () if v <= self.opset]
            if fitting:
                return _symbolic((versions or {})[max(fitting)], key)
        return None

    def __getitem__(self, target: Any) -> Callable[..., Any]:
        found = self._find(target)
        if found is None:
            raise KeyError(target)
        return found

    def __contains__(self, target: Any) -> bool:
        return self._find(target) is not None

    def get(self, target: Any, default: Any = None) -> Any:
        """The translation of a target, or the default."""
        return self._find(target) or default

    def __iter__(self) -> Iterator[Any]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)


def custom_table(table: Mapping[Any, Any] | None, opset: int) -> Custom:
    """The translations of a call of `export`; TypeError for targets that are no operators."""
    for target in table or {}:
        if not callable(target):
            raise TypeError(f"custom_translation_table: {target!r} is no operator")
    return Custom(table or {}, opset)


def finished(call: Call, made: Any) -> Any:
    """Results with the dtypes and shapes that the program says."""
    values = [made] if isinstance(made, Value) else list(made)
    for value, (dtype, shape) in zip(values, call.results, strict=False):
        if isinstance(value, Value) and value.producer is not None:
            value.dtype = dtype if dtype is not None else value.dtype
            value.shape = shape if value.shape is None else value.shape
    return made if isinstance(made, Value) else values


# ***** functions of custom_translation_table *****


def _translation(given: Any) -> Callable[..., Any]:
    functions = list(given) if isinstance(given, (list, tuple)) else [given]

    def translate(call: Call, node: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        failure: Exception | None = None
        for function in functions:
            try:
                return finished(call, _run(call, function, args, kwargs))
            except TypeError as error:  # another number of arguments: the next overload may fit
                failure = error
        raise OnnxExporterError(f"no function of custom_translation_table fits the call: {failure}") from failure

    translate.takes_node = True  # type: ignore[attr-defined]
    return translate


def _run(call: Call, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    if hasattr(function, "to_function_proto"):
        return _Evaluator(call.writer).eval_function(function, args, kwargs)
    parameters = inspect.signature(function).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        kwargs = {k: v for k, v in kwargs.items() if k in parameters}
    first = next(iter(parameters), "")
    if first in ("g", "call"):
        return function(GraphContext(call) if first == "g" else call, *args, **kwargs)
    with _onnxscript_writes(call.writer):
        return function(*args, **kwargs)


class _onnxscript_writes:
    """A context in which operators of the package onnxscript are written to the graph; without that package, none are."""

    def __init__(self, writer: Writer) -> None:
        self.context: Any = None
        if "onnxscript" in sys.modules:
            from onnxscript import evaluator

            self.context = evaluator.default_as(_Evaluator(writer))

    def __enter__(self) -> None:
        if self.context is not None:
            self.context.__enter__()

    def __exit__(self, *error: object) -> None:
        if self.context is not None:
            self.context.__exit__(*error)


class _Evaluator:
    """Evaluator that onnxscript calls for each operator: it writes a node."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer

    def eval_op(self, op: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """One call of an ONNX operator."""
        domain = op.opset.domain
        if domain:
            self.writer.domains[domain] = op.opset.version
        schema = op.op_schema
        count = len(schema.outputs) if schema is not None else 1
        if count > 1 and schema is not None:
            count = max(schema.min_output, 1)
        return _called(self.writer, op.name, domain, args, kwargs, count)

    def eval_function(self, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """One call of a function of onnxscript, which the model gets as one of its own."""
        proto = function.to_function_proto()
        self.writer.functions[(proto.domain, proto.name)] = proto
        self.writer.domains[proto.domain] = 1
        for entry in proto.opset_import:
            if entry.domain:
                self.writer.domains.setdefault(entry.domain, entry.version)
        names = list(proto.attribute) + [a.name for a in proto.attribute_proto]
        inputs = list(args)
        attrs = {k: v for k, v in kwargs.items() if k in names}
        for extra in inputs[len(proto.input) :]:
            attrs[names[len(attrs)]] = extra
        return _called(self.writer, proto.name, proto.domain, inputs[: len(proto.input)], attrs, len(proto.output))


def _called(writer: Writer, kind: str, domain: str, args: Sequence[Any], attrs: Mapping[str, Any], count: int) -> Any:
    like = next((a.dtype for a in args if isinstance(a, Value)), None)
    given = [operand(writer, a, like) for a in args]
    dtype = attrs.get("to")
    kept: Any = _dtype_of(dtype) if kind == "Cast" and dtype is not None else like
    if kind in ("Shape", "Size", "NonZero", "ArgMax", "ArgMin"):
        kept = rushlight.int64
    elif kind in (
        "Equal",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
        "And",
        "Or",
        "Xor",
        "Not",
        "IsNaN",
        "IsInf",
    ):
        kept = rushlight.bool
    made = writer.ops(kind, *given, results=[(kept, None)] * count, domain=domain, **dict(attrs))
    return made[0] if count == 1 else tuple(made)


def _dtype_of(number: int) -> Any:
    for name in ("float32", "uint8", "int8", "int16", "int32", "int64", "bool", "float16", "float64", "bfloat16"):
        if element_type(getattr(rushlight, name)) == number:
            return getattr(rushlight, name)
    return rushlight.float32


def operand(writer: Writer, item: Any, like: Any = None) -> Value | None:
    """An operand of a user's: values as they are, numbers and lists of them as constants."""
    if item is None or isinstance(item, Value):
        return item
    if isinstance(item, rushlight.Tensor):
        return writer.array(OnnxTensor(item).numpy(), item.dtype)
    if isinstance(item, (list, tuple)) and any(isinstance(i, Value) for i in item):
        return writer.ints(item)
    if isinstance(item, bool):
        return writer.const(item, rushlight.bool)
    if isinstance(item, (int, float)):
        whole = isinstance(item, int)
        dtype = (
            like
            if like is not None and (like.is_floating_point or whole)
            else rushlight.int64
            if whole
            else rushlight.float32
        )
        return writer.const(item, dtype if dtype != rushlight.bool else rushlight.int64)
    if isinstance(item, (list, tuple)):
        whole = all(isinstance(i, int) for i in item)
        return writer.array(np.asarray(item, numpy_dtype(rushlight.int64 if whole else rushlight.float32)))
    array = np.asarray(item)
    return writer.array(array, getattr(rushlight, array.dtype.name))


# ***** symbolic functions *****


class GraphContext:
    """The writer of a symbolic function: `g.op("Relu", x)`, `g.op("my.domain::Op", x, alpha_f=0.5, outputs=2)`.

    The last letter of an attribute says its type: _i (int), _f (float), _s (text), _t (tensor), and lists of them.
    """

    def __init__(self, call: Call) -> None:
        self.call, self.opset = call, call.opset
        self.graph = self.block = self

    def op(self, opname: str, *args: Any, outputs: int = 1, **attrs: Any) -> Any:
        """Write a node; its result, or several."""
        domain, _, kind = opname.rpartition("::")
        if domain == "aten":
            raise OnnxExporterError(f"{opname} is no operator of ONNX: aten fallback is not supported")
        domain = "" if domain in ("onnx", "ai.onnx") else domain
        writer = self.call.writer
        if domain:
            writer.domains.setdefault(domain, 1)
        found = {name: _attribute(key, value) for key, value in attrs.items() for name in (key.rpartition("_")[0],)}
        if kind == "Constant" and not domain:
            return operand(writer, found["value"])
        return _called(writer, kind, domain, args, found, outputs)

    def at(self, operator: str, *args: Any, **kwargs: Any) -> Any:
        """Nodes of ATen are not written: OnnxExporterError."""
        raise OnnxExporterError(f"aten::{operator}: models have operators of ONNX, not of ATen")


def _attribute(key: str, value: Any) -> Any:
    name, _, kind = key.rpartition("_")
    if not name or kind not in ("i", "f", "s", "t", "g"):
        raise ValueError(f"the attribute {key!r} does not say its type: end it in _i, _f, _s or _t")
    convert: Any = {"i": int, "f": float, "s": str}.get(kind)
    if convert is None:
        return value
    return [convert(v) for v in value] if isinstance(value, (list, tuple)) else convert(value)


def _symbolic(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A symbolic function as a translation: it gets all arguments of the schema, in order."""

    def translate(call: Call, node: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        given = list(args)
        for argument in node.target._schema.arguments[len(args) :]:
            if argument.name in kwargs:
                given.append(kwargs[argument.name])
            elif argument.has_default:
                given.append(argument.default)
        try:
            made = function(GraphContext(call), *given)
        except (AttributeError, TypeError) as error:
            raise SymbolicValueError(f"the symbolic function of {name} failed: {error}") from error
        return finished(call, made)

    translate.takes_node = True  # type: ignore[attr-defined]
    return translate

"""From the graph of a captured program to nodes of ONNX: each call is looked up in the table of translations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.fx.node import Node as FxNode
from rushlight.onnx.errors import OnnxExporterError, UnsupportedOperatorError
from rushlight.onnx.exporting.numbers import NUMBERS
from rushlight.onnx.exporting.table import Call, keywords, translations
from rushlight.onnx.exporting.values import Value, dims_text, shape_of
from rushlight.onnx.exporting.writer import Writer

__all__ = ["Translator", "operator_name", "user_line"]

# Keyword-only arguments that say where and how results lie in memory: they change no element.
_IDLE = frozenset("layout device pin_memory memory_format generator non_blocking copy requires_grad".split())


def operator_name(target: Any) -> str:
    """`aten::add.Tensor` for an overload, `module.name` for a function."""
    if hasattr(target, "_opname"):
        suffix = "" if target._overloadname in ("default", "") else f".{target._overloadname}"
        return f"{target.namespace}::{target._opname}{suffix}"
    name = getattr(target, "__name__", None) or getattr(target, "_name", None) or str(target)
    if str(getattr(target, "__module__", "")).endswith((".higher_order", "_higher_order_ops.operators")):
        return f"higher_order::{name}"
    return str(name)


def user_line(node: Any) -> str:
    """The innermost line of the user's program that made a node; "" where it is not known."""
    lines = [line.strip() for line in str(node.meta.get("stack_trace") or "").splitlines() if "File " in line]
    own = [line for line in lines if "/rushlight/" not in line]
    return (own or lines)[-1] if lines else ""


@cache
def _plan(target: Any) -> tuple[tuple[tuple[str, bool, Any, bool], ...], bool]:
    """Arguments of an overload's schema: (name, has default, default, keyword-only)."""
    arguments = target._schema.arguments
    return tuple((a.name, a.has_default, a.default, a.kwarg_only) for a in arguments), True


def _bound(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], wanted: frozenset[str]) -> Any:
    """Positional arguments in order, defaults filled in; keyword-only ones that the translation takes."""
    if getattr(target, "form", None) is None and target.namespace == "rushlight":
        return list(args), dict(kwargs)
    arguments, _ = _plan(target)
    positional = [a for a in arguments if not a[3]]
    given = list(args)
    for name, has, default, _ in positional[len(args) :]:
        if name in kwargs:
            given.append(kwargs[name])
        elif has:
            given.append(list(default) if isinstance(default, list) else default)
        else:
            raise OnnxExporterError(f"{operator_name(target)}: the argument {name} is missing")
    named = {}
    for name, _, _, only in arguments:
        if only and name in kwargs:
            if name in wanted:
                named[name] = kwargs[name]
            elif name not in _IDLE and kwargs[name] is not None:
                raise UnsupportedOperatorError(f"{operator_name(target)}: the argument {name} is not translated")
    return given, named


class Translator:
    """Translates one graph with a writer; `env` holds what each node of it became."""

    def __init__(self, writer: Writer, custom: Mapping[Any, Callable[..., Any]], module: Any) -> None:
        self.writer, self.custom, self.module = writer, custom, module
        self.env: dict[Any, Any] = {}
        self.decomposed: list[str] = []

    def value(self, item: Any) -> Any:
        """An argument with values in the place of nodes."""
        if isinstance(item, FxNode):
            return self.env[item]
        if isinstance(item, (list, tuple)):
            return [self.value(i) for i in item]
        if isinstance(item, slice):
            return slice(*(self.value(i) for i in (item.start, item.stop, item.step)))
        return {k: self.value(v) for k, v in item.items()} if isinstance(item, dict) else item

    def run(self, nodes: Sequence[Any]) -> Any:
        """Translate all nodes; the results of the graph."""
        for node in nodes:
            if node.op == "output":
                return self.value(node.args[0])
            if node.op == "call_function":
                self.writer.source = node
                self.env[node] = self.call(node)
            elif node.op == "get_attr" and node not in self.env:
                self.env[node] = self.attribute(node)
            elif node.op not in ("placeholder", "get_attr"):
                raise OnnxExporterError(f"a captured program has no {node.op} nodes: {node.format_node()}")
        return None

    def attribute(self, node: Any) -> Any:
        """A constant, or a graph, that the graph has as an attribute."""
        found = self.module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if not isinstance(found, Tensor):
            return found
        if found.numel() <= 64 and found.dtype not in (rushlight.bfloat16,) and not found.is_floating_point():
            return self.writer.array(found.detach().numpy(), found.dtype)
        return self.writer.tensor(found, str(node.target))

    def call(self, node: Any) -> Any:
        """One call."""
        target = node.target
        if target is operator.getitem:
            return self.value(node.args[0])[self.value(node.args[1])]
        function = self.custom.get(target)
        name = operator_name(target)
        if function is None and target in NUMBERS:
            return NUMBERS[target](self.writer, *self.value(node.args))
        if function is None:
            function = translations().get(name)
        if function is None:
            raise self.unsupported(node, name)
        try:
            made = self._translated(function, node, name)
        except OnnxExporterError as error:
            raise self._placed(error, node) from error.__cause__
        return self._named(node, made)

    def _translated(self, function: Callable[..., Any], node: Any, name: str) -> Any:
        results = _results(node.meta.get("val"))
        call = Call(self.writer, name, results)
        if name.startswith("higher_order::"):
            return function(call, self, *self.value(node.args), **self.value(dict(node.kwargs)))
        if getattr(function, "takes_node", False):
            return function(call, node, self.value(node.args), self.value(dict(node.kwargs)))
        args, kwargs = _bound(node.target, node.args, node.kwargs, keywords(function))
        return function(call, *[self.value(a) for a in args], **{k: self.value(v) for k, v in kwargs.items()})

    def _named(self, node: Any, made: Any) -> Any:
        """Name results after the node, and note their shapes."""
        val = node.meta.get("val")
        if isinstance(made, Value):
            made = [made] if isinstance(val, (tuple, list)) else made
        if isinstance(made, Value):
            self._note(made, val, node.name)
        elif isinstance(made, (list, tuple)):
            for i, value in enumerate(made):
                if isinstance(value, Value) and isinstance(val, (list, tuple)) and i < len(val):
                    self._note(value, val[i], f"{node.name}_{i}" if i else node.name)
        return made

    def _note(self, value: Value, val: Any, name: str) -> None:
        if isinstance(val, Tensor):
            if value.shape is None:
                value.shape = shape_of(val)
            if value.dtype is None:
                value.dtype = val.dtype
            elif value.dtype != val.dtype:
                raise OnnxExporterError(f"{name}: its translation gives {value.dtype}, and the program has {val.dtype}")
        if value.producer is not None and value.name.startswith("val_") and value.producer.source is self.writer.source:
            value.name = name

    def unsupported(self, node: Any, name: str) -> UnsupportedOperatorError:
        """The error of an operator without a translation."""
        line = user_line(node)
        example = f"custom_translation_table={{{node.target}: function}}"
        return UnsupportedOperatorError(
            f"no translation of {name} to ONNX" + (f" (called at {line})" if line else "") + ".  What would work: "
            f"{example} with a function that writes ONNX operators, torch.onnx.ops.symbolic in the model, or "
            "another operator in its place"
        )

    def _placed(self, error: OnnxExporterError, node: Any) -> OnnxExporterError:
        line = user_line(node)
        text = str(error)
        if "  [in " in text:
            return error
        return type(error)(f"{text}  [in {node.format_node()}{', called at ' + line if line else ''}]")


def _results(val: Any) -> list[tuple[Any, Any]]:
    leaves = list(val) if isinstance(val, (tuple, list)) else [val]
    return [(v.dtype, shape_of(v)) if isinstance(v, Tensor) else (_number_dtype(v), (1,)) for v in leaves]


def _number_dtype(val: Any) -> Any:
    if val is None or isinstance(val, (list, tuple)):
        return None
    if isinstance(val, (bool, rushlight.SymBool)):
        return rushlight.bool
    return rushlight.float32 if isinstance(val, (float, rushlight.SymFloat)) else rushlight.int64


__all__ += ["dims_text"]

"""Operators run by hand: arguments bound to the schema, the body traced, the graph evaluated by the primitives' NumPy references.

So the operators are tested by themselves: without tensors, memory, kernels or the engine's plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rushlight._engine.dispatch.lower import NUMBERS, TENSOR, Literal, Slot, differentiate, trace_operator
from rushlight._graph.core import Graph, evaluate
from rushlight._ops.table import Operator
from rushlight._types.device import Device
from rushlight._types.dtype import BFLOAT16, DType, from_numpy_name
from rushlight._types.spec import Spec

CPU = Device("cpu")


class Arr:
    """An array with its dtype; bfloat16 is held as float32."""

    def __init__(self, array: Any, dtype: DType | None = None) -> None:
        self.array = np.asarray(array)
        self.dtype = dtype or from_numpy_name(self.array.dtype.name)

    @property
    def spec(self) -> Spec:
        return Spec.of(self.dtype, CPU, self.array.shape)

    def __repr__(self) -> str:
        return f"Arr({self.dtype.name}{list(self.array.shape)})"


class Unbindable(TypeError):
    """The arguments do not fit the schema."""


class Bound:
    """A call taken apart: the template of the engine, the tensors, and the Python numbers."""

    def __init__(self) -> None:
        self.template: list[Any] = []
        self.tensors: list[Arr] = []
        self.numbers: list[Any] = []
        self.named: dict[str, Any] = {}

    @property
    def specs(self) -> list[Spec]:
        return [t.spec for t in self.tensors]

    def inputs(self) -> list[Any]:
        """What the traced graph takes."""
        kinds = {bool: "bool", int: "int64", float: "float64", complex: "complex128"}
        return [t.array for t in self.tensors] + [np.asarray(n, dtype=kinds[type(n)]) for n in self.numbers]


def _sequence(argument: Any, value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        if not argument.repeat:
            raise Unbindable(f"{argument.name} takes a sequence, got {value!r}")
        return (value,) * (argument.repeat if argument.base != "int" or argument.repeat > 1 else 1)
    return tuple(value)


def _literal(op: Operator, argument: Any, value: Any) -> bool:
    same = not argument.required and type(value) is type(argument.default) and value == argument.default
    return same or argument.name in op.static


def _add(bound: Bound, op: Operator, argument: Any, value: Any) -> None:
    if argument.base == "Tensor" and argument.is_sequence and value is not None:
        bound.template.append(Slot("list", len(value)))
        bound.tensors += list(value)
        bound.named[argument.name] = [v.spec for v in value]
    elif isinstance(value, Arr):
        if argument.base != "Tensor":
            raise Unbindable(f"{argument.name} is no tensor")
        bound.template.append(TENSOR)
        bound.tensors.append(value)
        bound.named[argument.name] = value.spec
    elif argument.base in ("Tensor", "Scalar") and type(value) in NUMBERS_TYPES:
        if argument.base == "Tensor" and argument.name not in op.numbers:
            raise Unbindable(f"{argument.name} takes no number")
        bound.named[argument.name] = value
        if _literal(op, argument, value):
            bound.template.append(Literal(value))
        else:
            bound.template.append(NUMBERS[type(value)])
            bound.numbers.append(value)
    else:
        if argument.base == "Tensor" and value is not None:
            raise Unbindable(f"{argument.name} takes a tensor, got {value!r}")
        value = _sequence(argument, value) if argument.is_sequence else value
        bound.template.append(value)
        bound.named[argument.name] = value


NUMBERS_TYPES = frozenset(NUMBERS)


def bind(op: Operator, args: Sequence[Any], kwargs: dict[str, Any] | None = None) -> Bound:
    """Fit a call to the operator's schema."""
    kwargs = dict(kwargs or {})
    arguments = op.schema.arguments
    args = list(args)
    sequences = [
        i for i, a in enumerate(arguments) if a.is_sequence and a.base == "int" and not (a.keyword_only or a.holes)
    ]
    if (
        sequences
        and len(args) > sequences[0]
        and isinstance(args[sequences[0]], int)
        and sequences[0] == op.schema.positional - 1
    ):
        args[sequences[0] :] = [tuple(args[sequences[0] :])]
    if len(args) > op.schema.positional:
        raise Unbindable(f"{op.name} takes {op.schema.positional} positional arguments, got {len(args)}")
    bound = Bound()
    for i, argument in enumerate(arguments):
        if i < len(args):
            value = args[i]
        elif argument.name in kwargs:
            value = kwargs.pop(argument.name)
        elif argument.required:
            raise Unbindable(f"{op.name} misses {argument.name}")
        else:
            value = argument.default
        _add(bound, op, argument, value)
    if kwargs:
        raise Unbindable(f"{op.name} has no arguments {sorted(kwargs)}")
    return bound


def run_graph(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate by the references; checks that every result has the shape that its record declares."""

    def apply(node: Any, values: list[Any]) -> Any:
        with np.errstate(all="ignore"):
            result = node.prim.reference(*values, **node.params)
        results = result if node.prim.multiple else (result,)
        for out, item in zip(node.outputs, results, strict=True):
            assert np.shape(item) == out.shape, f"{node.prim.name}: {np.shape(item)} instead of {out.shape}"
        return results if node.prim.multiple else results[0]

    return evaluate(graph, list(inputs), apply)


def call(op: Operator, *args: Any, **kwargs: Any) -> list[Arr]:
    """The operator's results."""
    bound = bind(op, args, kwargs)
    graph, count = trace_operator(op, bound.template, bound.specs)
    assert count == len(graph.outputs)
    return [Arr(a, v.dtype) for a, v in zip(run_graph(graph, bound.inputs()), graph.outputs, strict=True)]


def gradients(op: Operator, bound: Bound, wrt: Sequence[int], cts: Sequence[Arr | None]) -> list[Arr | None]:
    """Cotangents of the tensors numbered `wrt`, given those of the results (None for a result that nothing uses)."""
    backward = differentiate(op, bound.template, bound.specs, list(wrt), [c is not None for c in cts])
    inputs = bound.inputs()
    results = run_graph(backward.forward, inputs)
    residual = len(cts)
    held = {"input": inputs, "output": results, "residual": results[residual:]}
    saved = [held[where][i] for where, i in backward.saved]
    found = run_graph(backward.graph, saved + [c.array for c in cts if c is not None])
    outs = backward.graph.outputs
    return [None if place is None else Arr(found[place], outs[place].dtype) for place in backward.outputs]


def round_half(array: Any, dtype: DType) -> Any:
    """Random numbers as a dtype holds them."""
    if dtype is BFLOAT16:
        bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).astype(np.uint32).view(np.float32)
    return array.astype(dtype.numpy_name)

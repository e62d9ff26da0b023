"""One executed example of an operator: a sample of the table, run by the primitives' NumPy references, in the words of
a session.

No kernel is compiled for it, so hundreds of pages are made in seconds.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Any

from rushlight._backends.reference import run
from rushlight._base.lazy import numpy as np
from rushlight._engine.core.printing import tensor_repr
from rushlight._engine.core.tensor import Tensor, make
from rushlight._engine.dispatch.lower import trace_operator
from rushlight._engine.dispatch.plans.bind import bind, flatten
from rushlight._engine.dispatch.plans.results import result_name
from rushlight._graph.core import Graph
from rushlight._ops import samples
from rushlight._ops.samples import Call, Draw, samples_of
from rushlight._ops.table import Operator
from rushlight._prims.numbers import holder
from rushlight._types.device import CPU
from rushlight._types.dtype import COMPLEX64, COMPLEX128, FLOAT32, FLOAT64, DType
from rushlight._types.spec import Spec

__all__ = ["Example", "example_of", "load_samples"]

_SINGLE = {FLOAT64: FLOAT32, COMPLEX128: COMPLEX64}
SMALL = 24  # elements of all arguments together that an example may show


@cache
def load_samples() -> None:
    """Import the tables of samples."""
    for folder in samples.__path__:
        for file in sorted(os.listdir(folder)):
            if file.endswith(".py") and file != "__init__.py":
                importlib.import_module(f"rushlight._ops.samples.{file.removesuffix('.py')}")


class Example:
    """A call with its traced graph and its results.

    `arrays` are the tensors' numbers in the order of the graph's inputs; `template` and `specs` are what the engine
    makes plans from.
    """

    def __init__(self, op: Operator, call: Call) -> None:
        self.op = op
        rng = np.random.default_rng(5)
        self._arrays: dict[int, Any] = {}
        self.args = [self._given(a, rng) for a in call.args]
        self.kwargs = {name: self._given(a, rng) for name, a in call.kwargs.items()}
        values = bind(op, op.public, self.args, dict(self.kwargs))
        self.named = {
            a.name: v._spec if isinstance(v, Tensor) else v for a, v in zip(op.schema.arguments, values, strict=True)
        }
        self.template, tensors, self.numbers = flatten(op, values)
        self.arrays = [self._arrays[id(t)] for t in tensors]
        self.specs = [t._spec for t in tensors]
        self.graph: Graph
        self.graph, self.count = trace_operator(op, self.template, self.specs)

    def _given(self, value: Any, rng: Any) -> Any:
        """An argument, with tensors that have no memory in place of draws; numbers are rounded, so that they print as
        they are.
        """
        if isinstance(value, list):
            return [self._given(v, rng) for v in value]
        if isinstance(value, DType):
            return _SINGLE.get(value, value)
        if not isinstance(value, Draw):
            return value
        dtype = _SINGLE.get(value.dtype, value.dtype)
        array = value.array(rng)
        array = np.asarray(np.round(array, 2) if array.dtype.kind in "fc" else array).astype(holder(dtype))
        tensor = make(None, Spec.of(dtype, CPU, array.shape), 0)
        self._arrays[id(tensor)] = array
        return tensor

    def session(self) -> list[str]:
        """The example as lines of a Python session, results included."""
        names: dict[int, str] = {}
        lines: list[str] = []
        positional = iter(self.op.schema.arguments)
        words = [self._word(v, next(positional, None), names, lines) for v in self.args]
        named = {a.name: a for a in self.op.schema.arguments}
        words += [f"{n}={self._word(v, named.get(n), names, lines)}" for n, v in self.kwargs.items()]
        lines.append(f">>> {call_name(self.op)}({', '.join(words)})")
        return lines + self._results()

    def _word(self, value: Any, argument: Any, names: dict[int, str], lines: list[str]) -> str:
        if isinstance(value, list) and any(isinstance(v, Tensor) for v in value):
            return f"[{', '.join(self._word(v, argument, names, lines) for v in value)}]"
        if not isinstance(value, Tensor):
            return repr(value)
        if id(value) not in names:
            base = argument.name if argument is not None and not argument.is_sequence else "x"
            names[id(value)] = base if base not in names.values() else f"{base}{len(names)}"
            text = _printed(self._arrays[id(value)], value._spec.dtype)
            first, *rest = [line for line in text.split("\n") if line]
            start = f">>> {names[id(value)]} = torch."
            lines += [start + first, *["..." + " " * (len(start) - 3) + line for line in rest]]
        return names[id(value)]

    def _results(self) -> list[str]:
        inputs = [*self.arrays, *self.numbers]
        found = [np.asarray(a) for a in run(self.graph, inputs)[: self.count]]
        texts = [_printed(a, v.dtype) for a, v in zip(found, self.graph.outputs, strict=False)]
        if self.count == 1 and not self.op.schema.returns_list:
            return texts[0].split("\n")
        names = self.op.schema.results
        if all(names) and len(names) == len(texts) and not self.op.schema.returns_list:
            body = ",\n".join(f"{n}={t}" for n, t in zip(names, texts, strict=True))
            return f"torch.return_types.{result_name(self.op)}(\n{body})".split("\n")
        return (
            "(" + ",\n ".join(t.replace("\n", "\n ") for t in texts) + ("," if len(texts) == 1 else "") + ")"
        ).split("\n")


def _printed(array: Any, dtype: DType) -> str:
    return tensor_repr(array, dtype=dtype, default_dtype=FLOAT32, shape=tuple(array.shape))


def call_name(op: Operator) -> str:
    """How users write the operator's name; its key for one that only other functions call."""
    if op.spaces:
        return "torch." + (
            op.public if op.spaces[0] == "torch" else f"{op.spaces[0]}.{op.public.removeprefix(op.spaces[0] + '_')}"
        )
    return f"torch.Tensor.{op.method if isinstance(op.method, str) else op.public}" if op.method else op.name


def _plain_call(op: Operator) -> Call:
    """A call for an operator without samples, which only the engine uses: copies, casts, fills, other shapes of six
    elements.
    """
    plain = {"Tensor": Draw(), "dtype": FLOAT64, "Scalar": 1.5, "float": 1.5, "int": 1, "bool": False}
    _, *others = [(3, 2) if a.is_sequence else plain.get(a.base) for a in op.schema.arguments if a.required]
    return Call(Draw(2, 3), *others)


@cache
def example_of(op: Operator) -> Example | None:
    """The example of an operator: the first of its samples that is small and has something in it, else the first that
    can be traced.
    """
    load_samples()
    found: list[Example] = []
    for call in samples_of(op) or [_plain_call(op)]:
        try:
            example = Example(op, call)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue  # samples are in double precision; a few have no single one
        total = sum(a.size for a in example.arrays)
        if 0 < total <= SMALL or total == 0 and not example.specs:
            return example
        found.append(example)
    return min(found, key=lambda e: sum(a.size for a in e.arrays) or 10**9, default=None)

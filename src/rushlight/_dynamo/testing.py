"""`torch._dynamo.testing`: backends that count and keep graphs, for tests of programs that are compiled.

>>> import rushlight as torch
>>> torch._dynamo.testing.CompileCounter().frame_count
0
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight._dynamo.utils import same
from rushlight.compiler import reset
from rushlight.compiler.backends import lookup_backend
from rushlight.compiler.compilation import optimize_assert

__all__ = [
    "AotEagerAndRecordGraphs", "CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs", "normalize_gm", "optimize_assert",
    "rand_strided", "reduce_to_scalar_loss", "remove_optimized_module_prefix", "remove_trailing_space", "reset", "same", "strip_comment",
]  # fmt: skip


def _calls(gm: Any) -> int:
    """Nodes of a graph that call something."""
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)


class CompileCounter:
    """A backend that runs graphs as they are: `frame_count` graphs with `op_count` calls were made."""

    def __init__(self) -> None:
        self.frame_count = self.op_count = 0

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += _calls(gm)
        return gm.forward

    def clear(self) -> None:
        """Count from zero."""
        self.frame_count = self.op_count = 0


class CompileCounterWithBackend:
    """A backend that counts and keeps graphs, and hands them to another one."""

    def __init__(self, backend: str) -> None:
        self.frame_count = self.op_count = 0
        self.backend, self.graphs = backend, []  # type: ignore[var-annotated]

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += _calls(gm)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs)

    def clear(self) -> None:
        """Count from zero, and keep nothing."""
        self.frame_count = self.op_count = 0
        self.graphs = []


class EagerAndRecordGraphs:
    """A backend that keeps graphs and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        return gm.forward


class AotEagerAndRecordGraphs:
    """A backend that traces forward and backward ahead of time, and keeps the graphs of both."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []
        self.fw_graphs: list[Any] = []
        self.bw_graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)

        def forward(module: Any, inputs: Sequence[Any]) -> Any:
            self.fw_graphs.append(module)
            return module.forward

        def backward(module: Any, inputs: Sequence[Any]) -> Any:
            self.bw_graphs.append(module)
            return module.forward

        return lookup_backend("aot_eager")(gm, example_inputs, fw_compiler=forward, bw_compiler=backward)


def strip_comment(code: str) -> str:
    """Code without comments."""
    return re.sub(r"(?m)^ *#.*\n?", "", str(code))


def remove_trailing_space(code: str) -> str:
    """Code without spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in code.split("\n"))


def normalize_gm(gm_str: str) -> str:
    """The printed form of a graph module without comments and trailing spaces, several blank lines as one."""
    lines = remove_trailing_space(strip_comment(gm_str)).split("\n")
    return "\n".join(line for line, before in zip(lines, ["first", *lines], strict=False) if line or before)


def remove_optimized_module_prefix(name: str) -> str:
    """The name of a parameter without the prefix of compiled modules."""
    return re.sub(r"^_orig_mod[.]", "", name)


def rand_strided(
    size: Sequence[int], stride: Sequence[int], dtype: Any = rushlight.float32, device: Any = "cpu", extra_size: int = 0
) -> Any:
    """Random numbers in a tensor of a shape with given strides; zeros for dtypes that are no floating point numbers."""
    needed = sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1 + extra_size
    if dtype.is_floating_point:
        buffer = rushlight.randn(needed, dtype=dtype, device=device)
    else:
        buffer = rushlight.zeros(size=[needed], dtype=dtype, device=device)
    return rushlight.as_strided(buffer, size, stride)


def reduce_to_scalar_loss(out: Any) -> Any:
    """One number from nested results, for `backward`."""
    if isinstance(out, rushlight.Tensor):
        return out.sum() / out.numel()
    if isinstance(out, (list, tuple)):
        return sum(reduce_to_scalar_loss(x) for x in out) / len(out)
    if isinstance(out, dict):
        return sum(reduce_to_scalar_loss(value) for value in out.values()) / len(out)
    raise NotImplementedError("Don't know how to reduce", type(out))

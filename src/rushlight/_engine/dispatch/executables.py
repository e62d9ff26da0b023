"""Executables: a graph and layouts compiled by the backend of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.lazy import require
from rushlight._base.log import enabled, log
from rushlight._engine.core.hooks import HOOKS
from rushlight._engine.dispatch.watch import Watched
from rushlight._graph.core import Graph, GraphBuilder, evaluate
from rushlight._prims import build, prim
from rushlight._types.device import Device
from rushlight._types.shape_env import ShapeEnv
from rushlight._types.spec import Spec, check_memory, check_sizes

__all__ = ["executable", "program_template", "step_count"]


def executable(graph: Graph, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec], **options: Any) -> Any:
    """The compiled form of `graph` for these layouts; see `Backend.compile` for `aliases` and `overlaps`."""
    check_sizes(*in_specs, *out_specs)
    graph, in_layouts, out_layouts, device = _laid_out(graph, in_specs, out_specs)
    exe = backend_of(device).compile(graph, in_layouts, out_layouts, device, **options)
    if enabled("schedule"):
        log("schedule", "\n".join([HOOKS.operator_name, *exe.notes]))
    return exe if HOOKS.recorder is None else Watched(exe)


def program_template(
    graph: Graph, in_specs: Sequence[Any], out_specs: Sequence[Any], shape_env: ShapeEnv, **options: Any
) -> Any:
    """The same with symbolic sizes, from which executables are cast."""
    graph, in_layouts, out_layouts, device = _laid_out(graph, in_specs, out_specs)
    return backend_of(device).template(graph, in_layouts, out_layouts, shape_env, **options)


def step_count(graph: Graph, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec]) -> int:
    """How many kernels and library calls the graph becomes."""
    graph, in_layouts, out_layouts, device = _laid_out(graph, in_specs, out_specs)
    return backend_of(device).steps(graph, in_layouts, out_layouts)


def _laid_out(
    graph: Graph, in_specs: Sequence[Any], out_specs: Sequence[Any]
) -> tuple[Graph, list[Any], list[Any], Device]:
    """Arguments for a backend: the graph on memory as it is, the strides of inputs and outputs, the device."""
    check_memory(*in_specs, *out_specs)
    if any(s is not None and s.conj for s in (*in_specs, *out_specs)):
        graph = _through_conjugates(graph, in_specs, out_specs)
    if enabled("graph"):
        log("graph", "\n".join([HOOKS.operator_name, *require("rushlight._graph.listing").graph_lines(graph)]))
    device = next(s.device for s in (*out_specs, *in_specs) if s is not None)
    return graph, [None if s is None else s.strides for s in in_specs], [s.strides for s in out_specs], device


def _through_conjugates(graph: Graph, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec]) -> Graph:
    """The graph with a conjugation (of real numbers: a negation) at each input and output whose memory holds
    conjugates.
    """
    builder = GraphBuilder()
    inputs = [builder.input(v.shape, v.dtype, v.weak) for v in graph.inputs]
    with builder:
        operands = [_conjugated(v) if s is not None and s.conj else v for v, s in zip(inputs, in_specs, strict=True)]
        results = evaluate(graph, operands)
        outputs = [_conjugated(v) if s.conj else v for v, s in zip(results, out_specs, strict=True)]
    return builder.finish(outputs)


def _conjugated(v: Any) -> Any:
    return prim.conj(v) if v.dtype.is_complex else build.convert(prim.neg(build.convert(v, v.dtype.wide)), v.dtype)

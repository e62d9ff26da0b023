"""From a graph and layouts to what runs it: the program, and the compiled form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.lazy import require
from rushlight._base.log import enabled, log
from rushlight._engine.dispatch.watch import NAMING, RECORDER, Watched
from rushlight._graph.core import Graph, GraphBuilder, evaluate
from rushlight._prims import build, prim
from rushlight._types.spec import Spec, check_memory, check_sizes

__all__ = ["executable", "program_of"]


def executable(graph: Graph, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec], **options: Any) -> Any:
    """The compiled form of `graph` for these layouts; see `_backends.cpu.program.assemble.compile_graph` for `aliases` and `overlaps`."""
    check_sizes(*in_specs, *out_specs)
    program = program_of(graph, in_specs, out_specs, **options)
    if enabled("schedule"):
        log("schedule", "\n".join([NAMING[0], *program.notes]))
    exe = require("rushlight._backends.cpu.compile").build(program)
    return exe if RECORDER[0] is None else Watched(exe)


def program_of(graph: Graph, in_specs: Sequence[Any], out_specs: Sequence[Any], **options: Any) -> Any:
    """The same before kernels are compiled; sizes may be symbolic."""
    check_memory(*in_specs, *out_specs)
    if any(s is not None and s.conj for s in (*in_specs, *out_specs)):
        graph = _through_conjugates(graph, in_specs, out_specs)
    if enabled("graph"):
        log("graph", "\n".join([NAMING[0], *require("rushlight._graph.listing").graph_lines(graph)]))
    options["target"] = require("rushlight._backends.cpu.kernels").host()
    layouts = [None if s is None else s.strides for s in in_specs]
    compile_graph = require("rushlight._backends.cpu.program.assemble").compile_graph
    return compile_graph(graph, layouts, [s.strides for s in out_specs], **options)


def _through_conjugates(graph: Graph, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec]) -> Graph:
    """The graph around memory that holds conjugates (of real numbers: negatives): it turns what it reads from there, and what it writes there."""
    builder = GraphBuilder()
    inputs = [builder.input(v.shape, v.dtype, v.weak) for v in graph.inputs]
    with builder:
        read = [_turned(v) if s is not None and s.conj else v for v, s in zip(inputs, in_specs, strict=True)]
        made = [_turned(v) if s.conj else v for v, s in zip(evaluate(graph, read), out_specs, strict=True)]
    return builder.finish(made)


def _turned(v: Any) -> Any:
    return prim.conj(v) if v.dtype.is_complex else build.convert(prim.neg(build.convert(v, v.dtype.wide)), v.dtype)

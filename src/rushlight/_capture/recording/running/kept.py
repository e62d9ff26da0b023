"""Linked programs that earlier processes kept: the executable of a joined graph without cutting, fusing and scheduling.

A program is found by its graph as plain data, the layouts of its inputs and results, the switches of passes, and what
else the backend chooses by; the store adds the sources of the package, the versions and the machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.digest import hasher
from rushlight._base.log import log
from rushlight._engine.dispatch.kept.kept_programs import compare
from rushlight._engine.dispatch.kept.plan_packing import packed_alone, packed_program, read_program
from rushlight._engine.dispatch.kept.plan_store import CHECK_PLANS, keep, store
from rushlight._graph.core import Graph
from rushlight._graph.packing import RecordError, UnpackableError, packed_graph, unpacked_graph
from rushlight._transforms.passes import switches
from rushlight._types.device import CPU
from rushlight._types.dtype import DType
from rushlight._types.layout import extent
from rushlight._types.spec import Spec

__all__ = ["COUNTS", "Laid", "graph_of", "kept_executable", "program_key", "text_of"]

# How often this process linked programs, and how often it found them kept.
COUNTS = {"linked": 0, "kept": 0}


class Laid:
    """How a program lies in memory: the specs of its inputs (None: a number), dtypes, shapes and strides of its results,
    which of them lie in which inputs, and the options of passes.
    """

    __slots__ = ("aliases", "in_layouts", "in_specs", "options", "results")

    def __init__(
        self,
        in_specs: Sequence[Spec | None],
        results: Sequence[tuple[DType, Sequence[int]]],
        strides: Sequence[Sequence[int]],
        aliases: Mapping[int, int],
        options: Mapping[str, Any] | None,
    ) -> None:
        self.in_specs, self.aliases, self.options = list(in_specs), dict(aliases), options
        self.in_layouts = [None if s is None else s.strides for s in in_specs]
        self.results = [(d, tuple(shape), tuple(s)) for (d, shape), s in zip(results, strides, strict=True)]

    def sizes(self) -> list[int | None]:
        """The bytes of each result, None for one that lies in an input."""
        return [
            None if k in self.aliases else 0 if 0 in shape else extent(shape, strides) * dtype.itemsize
            for k, (dtype, shape, strides) in enumerate(self.results)
        ]

    def text(self) -> str:
        """All of it, as text."""
        inputs = [None if s is None else (s.dtype.name, s.shape, s.strides) for s in self.in_specs]
        results = [(d.name, shape, strides) for d, shape, strides in self.results]
        return f"{inputs} {results} {sorted(self.aliases.items())} {switches(self.options)}"


def text_of(graph: Graph) -> str | None:
    """A graph as text; None where it cannot be one, and where nothing is kept."""
    if store() is None:
        return None
    try:
        return json.dumps(packed_graph(graph, communicates=True), separators=(",", ":"))
    except (UnpackableError, TypeError):
        return None


def graph_of(text: str) -> Graph:
    """The graph that `text_of` wrote."""
    return unpacked_graph(json.loads(text))


def program_key(graph: str, laid: Laid) -> bytes:
    """The key of the program of a graph."""
    h = hasher(b"linked program")
    h.update("\0".join([graph, laid.text(), backend_of(CPU).choices]).encode())
    return h.digest()


def kept_executable(key: bytes, laid: Laid, compile_now: Callable[[], Any]) -> Any:
    """The executable of a kept program; where there is none it is compiled now, and kept."""
    kept, backend = store(), backend_of(CPU)
    body = None if kept is None else kept.get(key)
    if body is not None:
        try:
            found = backend.unpacked_linked(read_program(body), laid.in_specs, laid.sizes(), compile_now)
        except (RecordError, NotImplementedError) as error:
            log("cache", f"record {key.hex()[:16]} is left aside: {error}")
            found = None
        if found is not None:
            if CHECK_PLANS.get():
                compare(body, packed_alone(packed_program(compile_now(), CPU)), laid.in_specs, CPU)
            COUNTS["kept"] += 1
            return found
    made = compile_now()
    COUNTS["linked"] += 1
    if kept is not None:
        body = packed_alone(packed_program(made, CPU))  # now: what waits to be written must not hold programs
        keep(key, lambda: body)
    return made

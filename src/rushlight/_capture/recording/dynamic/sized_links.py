"""Linked programs with symbolic sizes: cut, fused and scheduled once, and filled with the numbers of each set of sizes.

What decides by a size on the way is a condition, as in eager's plan templates.  Where none of the links fits, another
one is made for the sizes at hand; where sizes decide too much, as those of convolutions do, programs are linked one by
one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.log import log
from rushlight._capture.recording.dynamic.sizes import Sizes
from rushlight._capture.recording.running.kept import Laid
from rushlight._engine.dispatch.plans.plan_templates import framed_data
from rushlight._engine.dispatch.plans.shape_classes import CHECK, SHAPE_CLASSES
from rushlight._graph.core import Graph
from rushlight._graph.packing import RecordError, UnpackableError
from rushlight._types.device import CPU
from rushlight._types.symbols import Hole, SpecializationError, filled, filler

__all__ = ["SizedLinks"]

MOST = 32  # links of one program
PARTS = 8  # of each of its programs, those for so many sizes are kept
TRIES = 2  # links made before it is asked whether they were of use
FAILURES = 2  # sizes that decided too much, before programs are linked one by one
# Whose kernels are looked up for each size.
_LOOKED_UP = frozenset(("conv", "conv_windows"))


class _Link:
    """A linked program as plain data with formulas; `numbers_at(*sizes)` gives the numbers, None where a condition does
    not hold.
    """

    __slots__ = ("_alike", "_made", "_template", "_tensors", "_varying", "choices", "frame", "numbers_at", "parts")

    def __init__(self, program: Any, sizes: Sizes) -> None:
        backend, laid = backend_of(CPU), program.laid()
        self.choices = backend.choices
        data = backend.linked_template(
            program.graph, laid.in_layouts, [strides for _, _, strides in laid.results], sizes.env, laid.aliases, laid.options,
            CHECK.get(),
        )  # fmt: skip
        numbers: list[Any] = []
        self.frame = framed_data(data, numbers)
        self.parts = [_SizedPart(row) for row in self.frame.pop("parts")]
        if any(sizes.env.is_pinned(k) for k in range(len(sizes.values))):
            raise SpecializationError("a size decides too much")
        self.numbers_at = sizes.env.compiled(numbers)
        rows = self.frame["clusters"]
        self._varying = {k: row[0] for k, row in enumerate(rows) if _places(row) or self.parts[row[0]].places}
        self._tensors = {k: rows[k][1] for k in self._varying if _places(rows[k])}
        # A template has the same clusters for all sizes, but for the memory of their tensors.
        others = [row[:1] + row[2:] for row in rows], [v for name, v in self.frame.items() if name != "clusters"]
        self._made, self._template, self._alike = 0, None, not _places(others)

    def executable(self, laid: Laid, sizes: Sequence[int], compile_now: Callable[[], Any]) -> Any:
        """The executable for these sizes; None where a condition does not hold, or a kernel is not at hand."""
        backend = backend_of(CPU)
        numbers = self.numbers_at(*sizes) if self.choices == backend.choices else None
        if numbers is None:
            return None
        parts = [part.at(numbers, backend.unpacked_part) for part in self.parts]
        if any(part is None for part in parts):
            return None

        def data() -> dict[str, Any]:
            return {**filled(self.frame, numbers), "parts": parts}

        if CHECK.get():
            self._check_texts(data(), numbers, sizes, compile_now)
        specs, nbytes = laid.in_specs, laid.sizes()
        if self._template is not None:
            tensors = {k: filled(row, numbers) for k, row in self._tensors.items()}
            made = self._template.refilled(
                tensors, parts, lambda: backend.unpacked_wiring(data(), specs, nbytes), lambda: compile_now().linked
            )
            if made is not None:
                if CHECK.get():
                    self._template.check(made)
                return made
        self._made += 1
        roomy = self._varying if self._made > 1 and self._alike else {}  # one size needs no room
        made = backend.unpacked_linked(data(), specs, nbytes, compile_now, roomy)
        self._template = backend.linked_for_sizes(made, roomy) if roomy and made is not None else None
        return made

    def _check_texts(
        self, data: dict[str, Any], numbers: Sequence[Any], sizes: Sequence[int], compile_now: Callable[[], Any]
    ) -> None:
        """AssertionError where the program that is linked for these sizes alone is another one."""
        backend = backend_of(CPU)
        data["parts"] = [filled(part.frame, numbers) for part in self.parts]
        texts = [backend.packed_text(each, False) for each in (data, backend.packed(compile_now(), True))]
        if texts[0] != texts[1]:
            raise AssertionError(f"a linked program for sizes {list(sizes)} is not\n{texts[1]}\nbut\n{texts[0]}")


class _SizedPart:
    """The program of clusters in a link.  Those in which no number changes are made once."""

    __slots__ = ("fill", "frame", "known", "places")

    def __init__(self, frame: Any) -> None:
        self.frame, self.places = frame, _places(frame)
        self.fill = filler(frame) or (lambda numbers: frame)
        self.known: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    def at(self, numbers: Sequence[Any], unpacked: Callable[[Any], Any]) -> Any:
        """The part with these numbers of the link."""
        key = tuple([numbers[k] for k in self.places])
        found = self.known.get(key)
        if found is None:
            found = unpacked(self.fill(numbers))
            if found is not None:
                self.known[key] = found
                if len(self.known) > PARTS:
                    self.known.popitem(last=False)
        return found


def _places(frame: Any) -> list[int]:
    """The numbers that a frame has holes for."""
    if type(frame) is Hole:
        return [frame.place]
    items = frame.values() if type(frame) is dict else frame if type(frame) in (tuple, list) else ()
    return [place for item in items for place in _places(item)]


class SizedLinks:
    """The links of one program; `program_at(sizes)` gives it for sizes, which may be symbols.

    Backends that are not `symbolic` have none: there the program is compiled for each set of sizes.
    """

    def __init__(self, graph: Graph, program_at: Callable[[Sequence[Any]], Any], symbolic: bool) -> None:
        self._program_at, self._lock = program_at, Lock()
        self._links: list[_Link] = []
        self.made = self.used = self.failures = 0
        if not symbolic or any(node.prim.name in _LOOKED_UP for node in graph.nodes):
            self.failures = FAILURES

    def executable(self, laid: Laid, sizes: Sequence[int], compile_now: Callable[[], Any]) -> Any:
        """The executable for these sizes; None where the program is to be linked for them alone."""
        if not SHAPE_CLASSES.get():
            return None
        with self._lock:
            for number, link in enumerate(self._links):
                made = link.executable(laid, sizes, compile_now)
                if made is not None:
                    self.used += 1
                    self._links.insert(0, self._links.pop(number))
                    return made
            if self.failures >= FAILURES or self.made >= TRIES + self.used:
                return None
            try:
                link = self._linked(sizes)
                made = link.executable(laid, sizes, compile_now)
            except (
                SpecializationError,
                RecordError,
                UnpackableError,
                NotImplementedError,
                TypeError,
                ValueError,
            ) as error:
                self.failures += 1
                log("sizes", f"linked for single sizes: {error}")
                return None
            self.made += 1
            self._links.insert(0, link)
            del self._links[MOST:]
            return made

    def _linked(self, sizes: Sequence[int]) -> _Link:
        symbols = Sizes()
        for size in sizes:
            symbols.add(size)
        return _Link(self._program_at(tuple(symbols.env.symbols)), symbols)

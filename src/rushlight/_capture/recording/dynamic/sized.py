"""Programs with symbolic sizes: recorded once, and made for each set of sizes without a trace.

    sized = SizedProgram(program, sizes.env)       # `program` is what `Recording.finish` gave
    made = sized.at((12, 7))                       # a `CompiledProgram`

What a program for single sizes consists of are graphs, layouts and offsets, all of them formulas here.  So it is the
program that a recording for these sizes would have given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._capture.recording.derivatives.records import Derived, How, Variant
from rushlight._capture.recording.derivatives.specs import ProgramBackwardSpec
from rushlight._capture.recording.dynamic.sized_links import SizedLinks
from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.recording.running.compiled import CompiledProgram
from rushlight._capture.recording.running.results import Changed
from rushlight._engine.dispatch.backward_spec import SizedBackward
from rushlight._graph.core import Graph
from rushlight._graph.frames import graph_frame, graph_from
from rushlight._types.spec import Spec
from rushlight._types.symbols import Hole, env_of, filled, framed, is_symbolic

__all__ = ["SizedProgram", "SizedValues", "holds_sizes"]

# Fields of a program that depend on sizes, beside its graphs.
_PARTS = (
    "specs", "made", "draws", "_layouts", "_changed", "_sources", "_in_specs", "_residuals", "_held", "_results",
)  # fmt: skip


class _SpecFrame:
    """A symbolic spec with its formulas taken out."""

    __slots__ = ("shape", "spec", "strides")

    def __init__(self, spec: Spec, numbers: list[Any]) -> None:
        self.spec = spec
        self.shape, self.strides = framed(tuple(spec.shape), numbers), framed(tuple(spec.strides), numbers)

    def filled(self, values: Sequence[Any]) -> Spec:
        """The spec with these numbers."""
        spec = self.spec
        return Spec.of(
            spec.dtype, spec.device, filled(self.shape, values), filled(self.strides, values), spec.conj, spec.released
        )


class _Parts:
    """A container taken apart.  One in which no number is symbolic stands for itself."""

    __slots__ = ("make", "parts")

    def __init__(self, make: Callable[[list[Any]], Any], parts: list[Any]) -> None:
        self.make, self.parts = make, parts


def _taken_apart(value: Any, numbers: list[Any]) -> Any:
    """As `framed`, through specs and tuples of classes as well."""
    if isinstance(value, Spec):
        return value if env_of((*value.shape, *value.strides)) is None else _SpecFrame(value, numbers)
    kind: Any = type(value)
    if isinstance(value, (tuple, list, dict)):
        items: Any = value.values() if isinstance(value, dict) else value
        parts = [_taken_apart(v, numbers) for v in items]
        if all(a is b for a, b in zip(parts, items, strict=True)):
            return value
        return _Parts(partial(_as_dict, tuple(value)) if kind is dict else getattr(kind, "_make", kind), parts)
    return framed(value, numbers)


def _as_dict(keys: Sequence[Any], values: list[Any]) -> dict[Any, Any]:
    return dict(zip(keys, values, strict=True))


def _put_together(frame: Any, values: Sequence[Any]) -> Any:
    kind = type(frame)
    if kind is _Parts:
        return frame.make([_put_together(v, values) for v in frame.parts])
    if kind is _SpecFrame:
        return frame.filled(values)
    return values[frame.place] if kind is Hole else frame


class SizedValues:
    """Values with symbolic sizes in them: numbers, specs, and tuples, lists and dicts of such.

    `at(sizes)` gives them for one set of sizes, None where a decision of the trace would differ.
    """

    __slots__ = ("_frame", "_numbers_at")

    def __init__(self, values: Any, env: Any, guarded: bool = True) -> None:
        numbers: list[Any] = []
        self._frame = _taken_apart(values, numbers)
        self._numbers_at = env.compiled(numbers, guarded)

    def at(self, sizes: Sequence[int]) -> Any:
        """See the class."""
        numbers = self._numbers_at(*sizes)
        return None if numbers is None else _put_together(self._frame, numbers)


def holds_sizes(value: Any) -> bool:
    """Whether there are symbolic sizes in a value."""
    if isinstance(value, Spec):
        return env_of((*value.shape, *value.strides)) is not None
    if type(value) is dict:
        value = list(value.values())
    return any(holds_sizes(v) for v in value) if isinstance(value, (tuple, list)) else is_symbolic(value)


class SizedProgram:
    """See the module's text.  Whether the decisions are the same is asked of the trace that the program is a part of."""

    def __init__(self, program: CompiledProgram, env: Any) -> None:
        self._program, self._env, self._lock = program, env, Lock()
        numbers: list[Any] = []
        parts = {name: getattr(program, name) for name in _PARTS if name != "_changed"}
        parts["_changed"] = [Changed(each.given, None) for each in program._changed]
        self._parts: dict[str, Any] = {name: _taken_apart(part, numbers) for name, part in parts.items()}
        self._graph = graph_frame(program.graph, numbers)
        self._numbers_at: Callable[..., Any] = env.compiled(numbers, guarded=False)
        spec = program._backward
        backward: Any = None if spec is None else spec._backward
        self._backward = None if spec is None else SizedBackward(backward, env)
        self._links = SizedLinks(program.graph, self.at, backend_of(program.device).symbolic)
        self._further = None if spec is None else _Further(spec.level, env)

    def at(self, sizes: Sequence[int]) -> CompiledProgram:
        """The program for these sizes of the symbols."""
        numbers = self._numbers_at(*sizes)
        made = CompiledProgram.__new__(CompiledProgram)
        made.__dict__.update(self._program.__dict__)
        made.__dict__.update({name: _put_together(part, numbers) for name, part in self._parts.items()})
        made._graph = made._text = made._key = None
        made.graph_at = lambda: graph_from(self._graph, numbers)
        made.links = lambda laid, compile_now: self._links.executable(laid, sizes, compile_now)
        spec = self._program._backward
        if spec is not None and self._backward is not None and (further := self._further) is not None:
            backward: Any = _BackwardAt(self._backward, sizes)
            level = _LevelAt(further, sizes)
            made._backward = ProgramBackwardSpec(backward, spec.wrt, spec.mask, made.device, level, spec.several)
            made._backward.take_histories(spec)
        return made


class _Further:
    """Further backward of a program with symbolic sizes, recorded once for all sizes (see `ProgramBackwardSpec`)."""

    def __init__(self, level: Any, env: Any) -> None:
        self.level, self._env = level, env
        self._lock = Lock()
        self._variants: dict[tuple[tuple[bool, ...], How], Any] = {}
        self._derived: dict[tuple[tuple[bool, ...], How], Any] = {}

    def variant(self, mask: tuple[bool, ...], how: How, sizes: Sequence[int]) -> Variant:
        """Backward from some of the outputs."""
        with self._lock:
            if (mask, how) not in self._variants:
                graph, saved, outputs = self.level.variant(mask, how)
                numbers: list[Any] = []
                frame = graph_frame(graph, numbers)
                self._variants[mask, how] = frame, self._env.compiled(numbers), saved, outputs
        frame, numbers_at, saved, outputs = self._variants[mask, how]
        return graph_from(frame, _at(numbers_at, sizes)), saved, outputs

    def derived(self, mask: tuple[bool, ...], how: How, sizes: Sequence[int]) -> Derived | None:
        """Backward that can be differentiated again."""
        with self._lock:
            if (mask, how) not in self._derived:
                self._derived[mask, how] = self._framed(self.level.derive(mask, how))
        if self._derived[mask, how] is None:
            return None
        found, forward, backward, numbers_at, further = self._derived[mask, how]
        values = _at(numbers_at, sizes)

        graphs = {"forward": graph_from(forward, values), "backward": graph_from(backward, values)}
        made: Derived = found._replace(**graphs, level=_LevelAt(further, sizes))
        return made

    def _framed(self, found: Derived | None) -> Any:
        if found is None:
            return None
        numbers: list[Any] = []
        frames = [graph_frame(found.forward, numbers), graph_frame(found.backward, numbers)]
        return found, *frames, self._env.compiled(numbers), _Further(found.level, self._env)


class _LevelAt:
    """A level of a program with symbolic sizes, for one set of sizes."""

    __slots__ = ("_further", "_sizes")

    def __init__(self, further: _Further, sizes: Sequence[int]) -> None:
        self._further, self._sizes = further, sizes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._further.level, name)

    def variant(self, mask: tuple[bool, ...], how: How) -> Variant:
        return self._further.variant(mask, how, self._sizes)

    def derive(self, mask: tuple[bool, ...], how: How) -> Derived | None:
        return self._further.derived(mask, how, self._sizes)


def _at(numbers_at: Callable[..., Any], sizes: Sequence[int]) -> Any:
    found = numbers_at(*sizes)
    if found is None:
        raise RecordingError("the backward from some of the outputs of a compiled program differs at other sizes")
    return found


class _BackwardAt:
    """The backward of a program for one set of sizes; its graphs are made on first use.  They are of many calls: for
    such there are no shape classes.
    """

    __slots__ = ("_at", "outputs", "parts", "saved")

    def __init__(self, shared: SizedBackward, sizes: Sequence[int]) -> None:
        self._at = shared.at(sizes)
        self.saved, self.outputs, self.parts = self._at.saved, self._at.outputs, self._at.parts

    @property
    def forward(self) -> Graph:
        """The forward graph, with residuals."""
        return self._at.forward

    @property
    def graph(self) -> Graph:
        """The backward graph."""
        return self._at.graph

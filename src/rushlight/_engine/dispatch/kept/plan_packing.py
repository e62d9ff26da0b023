"""Plans as bytes: what a plan is made of, kernels apart, as JSON; the graphs of its derivative stand behind it and are
read when somebody asks.

A record is the number of bytes of its head (four of them), the head, and the graphs.  The head of a plan:

| field | what it is |
| --- | --- |
| `name`, `wrt`, `mask`, `refused`, `bounds`, `several`, `results`, `complex` | as in `LoweredCall` |
| `specs` | dtype, shape and strides of each result and residual |
| `program` | what the backend makes of an executable (`Backend.packed`) |
| `passed` | for each output of a backward graph the input that it is, or -1; empty where none is one |
| `saved`, `outputs`, `parts` | as in `Backward`; None where nothing is recorded |

A plan that only shows its inputs under other strides has `layouts` alone; a program without a plan around it `program`
alone.  The plan of a view operator has `views` (shape, strides, offset), how its nodes are called, and `saved`,
`outputs` and `parts` of each derivative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.lazy import LazyModule
from rushlight._engine.dispatch.kept.plan_store import CHECK_PLANS
from rushlight._graph.core import Graph
from rushlight._graph.packing import (
    RecordError,
    UnpackableError,
    packed_graph,
    unpacked_dtype,
    unpacked_graph,
    unpacked_ints,
)
from rushlight._types.device import Device
from rushlight._types.layout import extent
from rushlight._types.spec import Spec

__all__ = [
    "KeptBackward",
    "PlanRecord",
    "ViewRecord",
    "packed_alone",
    "packed_layouts",
    "packed_plan",
    "packed_program",
    "packed_view",
    "read_program",
    "read_record",
    "record_text",
]

json: Any = LazyModule("json")


# ***** writing *****


def packed_program(program: Any, device: Device) -> Any:
    """An executable of a device, or a template of one (with symbolic sizes), as plain data; None where it cannot be."""
    backend = backend_of(device)
    try:
        return backend.packed(program, CHECK_PLANS.get()) if backend.keeps_programs else None
    except UnpackableError:
        return None


def packed_plan(
    lowered: Any, specs: Sequence[Spec], program: list[Any] | None, backward: Any, passed: Sequence[int] = ()
) -> bytes | None:
    """The record of a plan; None where something of it cannot be kept."""
    head = {
        "name": lowered.name,
        "wrt": list(lowered.wrt),
        "mask": [bool(m) for m in lowered.mask],
        "refused": lowered.refused,
        "bounds": None if lowered.bounds is None else list(lowered.bounds),
        "several": lowered.several,
        "results": lowered.n_results,
        "complex": lowered.in_complex,
        "specs": [[s.dtype.name, list(s.shape), list(s.strides)] for s in specs],
        "program": program,
        "passed": list(passed),
        "saved": None if backward is None else [list(source) for source in backward.saved],
        "outputs": None if backward is None else list(backward.outputs),
        "parts": backward is not None and backward.parts,
    }
    if program is None or any(s.conj or s.released or s.device is not specs[0].device for s in specs):
        return None
    try:
        graphs = b"" if backward is None else _written([packed_graph(backward.forward), packed_graph(backward.graph)])
        return _joined(head, graphs)
    except UnpackableError:
        return None


def packed_alone(program: Any) -> bytes | None:
    """The record of a program without a plan around it; `program` as plain data."""
    try:
        return None if program is None else _joined({"program": program}, b"")
    except UnpackableError:
        return None


def packed_layouts(layouts: Sequence[tuple[int, Sequence[int], Sequence[int], int]]) -> bytes | None:
    """The record of a plan that shows its inputs under other layouts."""
    return _joined({"layouts": [[number, list(a), list(b), offset] for number, a, b, offset in layouts]}, b"")


def packed_view(pieces: Any, layouts: Sequence[Any], backwards: Sequence[Any]) -> bytes | None:
    """The record of a view; `pieces` says how its nodes are called and whether each result has one of its own."""
    head = {
        "views": [[list(shape), list(strides), offset] for shape, strides, offset in layouts],
        "name": pieces.name,
        "several": pieces.several,
        "apart": pieces.apart,
        "backwards": [[[list(source) for source in b.saved], list(b.outputs), b.parts] for b in backwards],
    }
    try:
        graphs = [_written([packed_graph(b.forward), packed_graph(b.graph)]).decode() for b in backwards]
        return _joined(head, _written(graphs))
    except UnpackableError:
        return None


def _joined(head: Any, graphs: bytes) -> bytes:
    text = _written(head)
    return len(text).to_bytes(4, "little") + text + graphs


def _written(data: Any) -> bytes:
    try:
        text: str = json.dumps(data, separators=(",", ":"))
    except TypeError as error:
        raise UnpackableError(str(error)) from None
    return text.encode()


# ***** reading *****

# Errors of reading data that are no record.
_REFUSED = (ValueError, KeyError, TypeError, IndexError, RuntimeError, OverflowError)


class KeptBackward:
    """A `Backward` that was kept: its graphs are read when somebody asks for them.

    `derive`, once it is set, gives the `Backward` that was kept, for graphs that cannot be read.
    """

    __slots__ = ("_graphs", "_text", "derive", "outputs", "parts", "saved")

    def __init__(self, saved: list[tuple[str, int]], outputs: list[int | None], parts: bool, text: bytes) -> None:
        self.saved, self.outputs, self.parts, self._text = saved, outputs, parts, text
        self._graphs: list[Graph] | None = None
        self.derive: Callable[[], Any] | None = None

    def _graph(self, which: int) -> Graph:
        if self._graphs is None:
            try:
                self._graphs = _graphs_of(self._text)
            except RecordError:
                if self.derive is None:
                    raise
                derived = self.derive()
                self._graphs = [derived.forward, derived.graph]
        return self._graphs[which]

    @property
    def forward(self) -> Graph:
        """The forward graph, with residuals."""
        return self._graph(0)

    @property
    def graph(self) -> Graph:
        """The backward graph."""
        return self._graph(1)


def _graphs_of(text: bytes) -> list[Graph]:
    try:
        data = json.loads(text)
        forward, backward = _typed(data, list)
        return [unpacked_graph(forward), unpacked_graph(backward)]
    except _REFUSED as error:
        raise RecordError(f"{type(error).__name__}: {error}") from None


class PlanRecord:
    """A checked record: the fields of the head, with `specs` and `layouts` as plain values and `backward` as
    a `KeptBackward`.
    """

    __slots__ = (
        "backward", "bounds", "in_complex", "layouts", "mask", "n_results", "name", "passed", "program", "refused", "several", "specs", "wrt",
    )  # fmt: skip

    def __init__(self, head: dict[str, Any], graphs: bytes, in_specs: Sequence[Spec | None], device: Device) -> None:
        """`in_specs` are the specs of the call's tensors, None for numbers; `device` is where its results lie."""
        inputs = len(in_specs)
        self.layouts: list[Any] | None = None
        self.specs: list[Spec] = []
        if "layouts" in head:
            self.layouts = [_layout(row, in_specs) for row in _typed(head["layouts"], list)]
            return
        self.name, self.refused = _typed(head["name"], str), _typed(head["refused"], str, True)
        self.several, self.in_complex = _typed(head["several"], bool), _typed(head["complex"], bool)
        self.wrt = _places(head["wrt"], inputs)
        self.mask = [_typed(m, bool) for m in _typed(head["mask"], list)]
        self.bounds = None if head["bounds"] is None else unpacked_ints(head["bounds"])
        self.specs = [_spec(row, device) for row in _typed(head["specs"], list)]
        self.n_results = _places([head["results"]], len(self.specs) + 1)[0]
        self.passed = unpacked_ints(head["passed"], -1)
        self.program: Any = head["program"]
        if self.passed and max(self.passed) >= inputs or self.bounds is not None and len(self.bounds) != 2:
            raise RecordError("an output that is no input, or bounds that are not two")
        self.backward = None
        if head["saved"] is not None:
            self.backward = self._backward(head, graphs, inputs)

    def _backward(self, head: dict[str, Any], graphs: bytes, inputs: int) -> KeptBackward:
        ends = {"input": inputs, "output": self.n_results, "residual": len(self.specs) - self.n_results}
        saved = []
        for row in _typed(head["saved"], list):
            kind, number = _typed(row, list) if len(row) == 2 else ("", 0)
            if type(kind) is not str or kind not in ends:
                raise RecordError("a saved value from nowhere")
            saved.append((kind, _places([number], ends[kind])[0]))
        outputs = [None if o is None else _places([o], 1 << 16)[0] for o in _typed(head["outputs"], list)]
        if len(self.mask) != self.n_results or len(outputs) != len(self.wrt) or not self.name:
            raise RecordError("a derivative of other results")
        return KeptBackward(saved, outputs, _typed(head["parts"], bool), graphs)


class ViewRecord:
    """The checked record of a view: `name`, `several`, `apart`, the `layouts` of the results, and a
    `KeptBackward` for each derivative.
    """

    __slots__ = ("apart", "backwards", "layouts", "name", "several")

    def __init__(self, body: bytes, spec: Spec) -> None:
        """RecordError for whatever is no view of a tensor with this spec."""
        head, texts = _taken_apart(body)
        try:
            self.name, self.several = _typed(head["name"], str), _typed(head["several"], bool)
            self.apart = _typed(head["apart"], bool)
            self.layouts = [_layout([0, *row], [spec])[1:] for row in _typed(head["views"], list)]
            rows, graphs = _typed(head["backwards"], list), _typed(json.loads(texts), list)
            if len(rows) != len(graphs) or len(rows) not in (0, 1, len(self.layouts)) or rows and not self.name:
                raise RecordError("derivatives of other results")
            if not self.layouts or len(self.layouts) > 1 and not self.several:
                raise RecordError("other results than a view has")
            self.backwards = []
            for (saved, outputs, parts), text in zip(rows, graphs, strict=True):
                if saved or outputs not in ([0], [None]):
                    raise RecordError("a view keeps nothing for its derivative")
                self.backwards.append(KeptBackward([], outputs, _typed(parts, bool), _typed(text, str).encode()))
        except _REFUSED as error:
            raise RecordError(f"{type(error).__name__}: {error}") from None


def read_record(body: bytes, in_specs: Sequence[Spec | None], device: Device) -> PlanRecord:
    """The record of a call with these tensors and numbers; RecordError for whatever is none."""
    head, graphs = _taken_apart(body)
    try:
        return PlanRecord(head, graphs, in_specs, device)
    except _REFUSED as error:
        raise RecordError(f"{type(error).__name__}: {error}") from None


def read_program(body: bytes) -> Any:
    """The program of a record of `packed_alone`, as plain data."""
    head, _ = _taken_apart(body)
    return head.get("program")


def record_text(body: bytes | None, device: Device) -> str:
    """Text of a record that was written under `CHECK_PLANS`: equal texts stand for plans that do the same in the same way."""
    if body is None:
        return "nothing"
    head, graphs = _taken_apart(body)
    program = head.pop("program", None)
    steps = "" if program is None else backend_of(device).packed_text(program)
    return "\n".join([str(head), steps, graphs.decode()])


def _taken_apart(body: bytes) -> tuple[dict[str, Any], bytes]:
    """The head and the graphs."""
    size = int.from_bytes(body[:4], "little")
    if size > len(body) - 4:
        raise RecordError("cut off")
    try:
        return _typed(json.loads(body[4 : 4 + size]), dict), body[4 + size :]
    except _REFUSED as error:
        raise RecordError(f"{type(error).__name__}: {error}") from None


def _typed(value: Any, kind: type, optional: bool = False) -> Any:
    if type(value) is not kind and not (optional and value is None):
        raise RecordError(f"no {kind.__name__}")
    return value


def _places(data: Any, end: int) -> tuple[int, ...]:
    """Numbers from 0 to before `end`."""
    found = unpacked_ints(data, 0)
    if found and max(found) >= end:
        raise RecordError("a number beyond what there is")
    return found


def _spec(row: Any, device: Device) -> Spec:
    name, shape, strides = row
    sizes, steps = unpacked_ints(shape, 0), unpacked_ints(strides, 0)
    if len(sizes) != len(steps):
        raise RecordError("as many strides as sizes are wanted")
    return Spec.of(unpacked_dtype(name), device, sizes, steps)


def _layout(row: Any, in_specs: Sequence[Spec | None]) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
    """(input, shape, strides, offset) of what is shown: it lies within the memory of that input."""
    number, shape, strides, offset = row
    place = _places([number], len(in_specs))[0]
    sizes, steps, start = unpacked_ints(shape, 0), unpacked_ints(strides, 0), unpacked_ints([offset])[0]
    whole = in_specs[place]
    if whole is None or len(sizes) != len(steps):
        raise RecordError("a view of a number, or of other dims")
    if 0 not in sizes and (start < 0 or start + extent(sizes, steps) > extent(whole.shape, whole.strides)):
        raise RecordError("a view beyond its tensor")
    return place, sizes, steps, start

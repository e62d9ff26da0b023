"""Plans made of what earlier processes kept: without tracing, differentiating or scheduling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.log import log
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.backward_spec import BackwardSpec, GraphCalls
from rushlight._engine.dispatch.executables import executable
from rushlight._engine.dispatch.kept.kept_programs import compare, executable_of
from rushlight._engine.dispatch.kept.plan_packing import (
    PlanRecord,
    ViewRecord,
    packed_layouts,
    packed_plan,
    packed_program,
    packed_view,
    read_record,
)
from rushlight._engine.dispatch.kept.plan_store import CHECK_PLANS, PlanNote, store
from rushlight._engine.dispatch.plans.plan import LoweredCall, PlanShape
from rushlight._engine.dispatch.plans.plan_templates import passing, showing
from rushlight._graph.packing import RecordError
from rushlight._types.device import CPU, Device
from rushlight._types.spec import Spec

__all__ = ["KeptCall", "kept_call", "kept_graph_plan", "kept_inplace", "kept_view"]


class KeptCall:
    """The plan of an operator's call, and why it has no derivative where one is wanted."""

    __slots__ = ("plan", "refused")

    def __init__(self, plan: Callable[..., Any], refused: str | None) -> None:
        self.plan, self.refused = plan, refused


def kept_call(
    key: bytes,
    specs: Sequence[Spec],
    numbers: int,
    device: Device,
    origin: Any,
    graphs: GraphCalls,
    derive: Callable[..., LoweredCall],
) -> KeptCall | None:
    """The kept plan of a call with tensors of these specs and so many numbers; None where there is none.

    `origin` is the call that its backward spec belongs to, `graphs` runs its backward graph; `derive` gives what was
    kept, for graphs that cannot be read and for `CHECK_PLANS`.
    """
    in_specs = [*specs, *[None] * numbers]
    found = _read(key, in_specs, device, derive)
    if found is None:
        return None
    record, exe = found
    if exe is None or record.passed:
        return None
    backward_spec = None
    if record.backward is not None:
        record.backward.derive = lambda: derive().backward
        backward_spec = BackwardSpec(
            record.name, record.backward, record.wrt, record.mask, device, graphs, record.specs
        )
        backward_spec.origin, backward_spec.record = origin, key
    return KeptCall(_shape(record).around(exe, in_specs, record.specs, backward_spec), record.refused)


def kept_graph_plan(
    key: bytes, inputs: Sequence[Any], derive: Callable[[PlanNote], LoweredCall | list[Any]]
) -> Callable[..., Any] | None:
    """The kept plan of a backward graph for these inputs, which records nothing; None where there is none.

    `derive(note)` gives its lowered call or its layouts, and notes what is passed on.
    """
    in_specs = [i._spec if isinstance(i, Tensor) else None for i in inputs]
    device = next((s.device for s in in_specs if s is not None), CPU)
    found = _read(key, in_specs, device, derive)
    if found is None:
        return None
    record, exe = found
    if record.layouts is not None:
        return showing(record.layouts, in_specs)
    if record.backward is not None:
        return None
    return passing(record.passed, _shape(record).around(exe, in_specs, record.specs, None))


def kept_inplace(
    key: bytes, specs: Sequence[Spec], numbers: int, device: Device, derive: Callable[..., bytes | None]
) -> tuple[PlanRecord, Any] | None:
    """The record of a kept change in place of the first of these tensors, and its executable; None where there is none.

    The first spec of the record is that of the tensor, the others are those of what is kept for the derivative.
    `derive` gives the record anew.
    """
    found = _read(key, [*specs, *[None] * numbers], device, derive, written=1)
    if found is None or found[1] is None or found[0].passed or found[0].specs[0] is not specs[0]:
        return None
    return found


def kept_view(key: bytes, spec: Spec, derive: Callable[[], Any]) -> ViewRecord | None:
    """The kept layouts and derivatives of a view of a tensor with this spec; None where there are none.

    `derive()` gives them anew (`layouts`, `backwards` and the rest of `ViewPieces`), for graphs that cannot be read and
    for `CHECK_PLANS`.
    """
    kept = store()
    body = None if kept is None else kept.get(key)
    if body is None:
        return None
    try:
        record = ViewRecord(body, spec)
    except RecordError as error:
        log("cache", f"record {key.hex()[:16]} is left aside: {error}")
        return None
    if CHECK_PLANS.get():
        fresh = derive()
        compare(body, packed_view(fresh, fresh.layouts, fresh.backwards), [spec], spec.device)
    for number, backward in enumerate(record.backwards):
        backward.derive = lambda number=number: derive().backwards[number]
    return record


def _read(
    key: bytes, in_specs: Sequence[Spec | None], device: Device, derive: Callable[..., Any], written: int = 0
) -> tuple[PlanRecord, Any] | None:
    """The record with this key and its executable (None: it shows its inputs under other layouts); None where there is
    no record that can be used.
    """
    kept = store()
    body = None if kept is None else kept.get(key)
    if body is None:
        return None
    try:
        record, exe = read_record(body, in_specs, device), None
        if record.layouts is None:
            if not record.specs:
                raise RecordError("no results")
            exe = executable_of(record.program, in_specs, record.specs[written:], device)
            if exe is None:
                return None
    except (RecordError, NotImplementedError) as error:
        log("cache", f"record {key.hex()[:16]} is left aside: {error}")
        return None
    if CHECK_PLANS.get():
        _check(body, key, in_specs, device, derive)
    return record, exe


def _shape(record: PlanRecord) -> PlanShape:
    return PlanShape(
        record.name,
        record.n_results,
        record.in_complex,
        record.wrt,
        record.mask,
        record.refused,
        record.several,
        record.bounds,  # type: ignore[arg-type]
    )


def _check(
    body: bytes, key: bytes, in_specs: Sequence[Spec | None], device: Device, derive: Callable[..., Any]
) -> None:
    """AssertionError where a record is another than what is derived now."""
    note = PlanNote(key)
    lowered = derive(note)
    fresh: bytes | None
    if lowered is None or isinstance(lowered, bytes):
        fresh = lowered
    elif isinstance(lowered, list):
        fresh = packed_layouts(lowered)
    else:
        exe = executable(lowered.forward, lowered.in_specs, lowered.specs)
        program = packed_program(exe, lowered.specs[0].device)
        fresh = packed_plan(lowered, lowered.specs, program, lowered.backward, note.passed)
    compare(body, fresh, in_specs, device)

"""Executables made of programs that earlier processes kept: without a graph and without a schedule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._base.log import log
from rushlight._engine.dispatch.kept.plan_packing import packed_alone, packed_program, read_program, record_text
from rushlight._engine.dispatch.kept.plan_store import CHECK_PLANS, keep, store
from rushlight._graph.packing import RecordError
from rushlight._types.device import Device
from rushlight._types.spec import Spec

__all__ = ["compare", "executable_of", "keep_program", "kept_executable"]


def kept_executable(
    key: bytes, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec], derive: Callable[[], Any]
) -> Any:
    """The executable of a kept program with these inputs and new results; None where there is none.  `derive` gives the
    executable that was kept.
    """
    kept = store()
    body = None if kept is None else kept.get(key)
    if body is None:
        return None
    try:
        exe = executable_of(read_program(body), in_specs, out_specs, out_specs[0].device)
    except (RecordError, NotImplementedError) as error:
        log("cache", f"record {key.hex()[:16]} is left aside: {error}")
        return None
    if exe is not None and CHECK_PLANS.get():
        compare(body, packed_alone(packed_program(derive(), out_specs[0].device)), in_specs, out_specs[0].device)
    return exe


def keep_program(key: bytes, program: Callable[[], Any]) -> None:
    """Keep the program that `program()` gives as plain data."""
    keep(key, lambda: packed_alone(program()))


def executable_of(program: Any, in_specs: Sequence[Spec | None], out_specs: Sequence[Spec], device: Device) -> Any:
    """The executable of a record's program; None where a kernel was deleted."""
    numbers = sum(s is None for s in in_specs)
    return backend_of(device).unpacked(program, len(in_specs) - numbers, numbers, [s.nbytes for s in out_specs])


def compare(body: bytes, fresh: bytes | None, in_specs: Sequence[Spec | None], device: Device) -> None:
    """AssertionError where what is kept for these inputs is not what is derived now."""
    if fresh != body:
        kept, derived = record_text(body, device), record_text(fresh, device)
        if kept != derived:
            raise AssertionError(f"for {list(in_specs)} is kept\n{kept}\nbut derived\n{derived}")

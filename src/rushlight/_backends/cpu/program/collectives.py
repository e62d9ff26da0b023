"""Collectives in linked programs: Python functions that the program calls between its kernels.

A collective is one launch, on the caller's thread.  Its *halves* are two: the first gives it to the communication thread,
the second waits; a program uses these where there is work between them (see `overlap`).
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.program.steps import ExternStep
from rushlight._backends.cpu.runtime.host_call_native import FUNCTION, call_host
from rushlight._backends.cpu.runtime.stubs import make_kernel_callable, native_address
from rushlight._distributed.engines.buffers import Buffer
from rushlight._distributed.groups.table import IN_PLACE, operation_of
from rushlight._host.device_records import MAY_UNLOCK
from rushlight._types.device import CPU
from rushlight._types.layout import contiguous_strides, numel
from rushlight._types.spec import Spec

__all__ = ["abandon", "collective_call", "host_launch"]

_HELD = threading.local()  # operations that this thread's programs have started, by where the results go
_FOUR, _THREE, _ONE = ctypes.c_int64 * 4, ctypes.c_int64 * 3, ctypes.c_int64
_CALLABLE: list[Any] = []  # the kernel, once


def host_launch(function: Any, words: Any, sizes: Any = (), flags: int = 0) -> Launch:
    """The launch of `function(address of its words)`: addresses of new buffers of these sizes, then `words`."""
    if not _CALLABLE:
        _CALLABLE.append(make_kernel_callable(native_address(call_host), "call_host"))
    head = [1, flags, len(sizes), *sizes]
    ints = [*head, *[0] * (FUNCTION - len(head)), id(function)]
    made = Launch(_CALLABLE[0], ints, words, keep=function)
    made.host = True
    return made


class _Collective:
    """One collective of a program: `name` and parameters of the primitive, counts and dtype of operand and result."""

    def __init__(self, name: str, params: dict[str, Any], x: Any, out: Any) -> None:
        self.group, self.name, self.params = params["group"], name, {k: v for k, v in params.items() if k != "group"}
        self.specs = Spec.of(x.dtype, CPU, x.shape), Spec.of(out.dtype, CPU, out.shape)
        self.x = Buffer(0, numel(x.shape), x.dtype.name, x.dtype.itemsize)
        self.out = Buffer(0, numel(out.shape), out.dtype.name, out.dtype.itemsize)

    def operation(self, x: int, out: int) -> Any:
        """The operation from one address to another."""
        buffers = self.x._replace(address=x), self.out._replace(address=out)
        return operation_of(self.group, self.name, buffers, self.specs, self.params)

    def run(self, address: int) -> None:
        """Words: the order and the result, the order and the operand."""
        _, out, _, x = _FOUR.from_address(address)
        operation = self.operation(x, out)
        operation.group.run(operation)

    def start(self, address: int) -> None:
        """Words: as those of `run`."""
        _, out, _, x = _FOUR.from_address(address)
        operation = self.operation(x, out)
        _held()[out] = operation.group.start(operation)

    def finish(self, address: int) -> None:
        """Words: the result, and the operand where that is elsewhere."""
        operation = _held().pop(_ONE.from_address(address).value)
        operation.group.wait(operation)

    def run_there(self, address: int) -> None:
        """In place.  Words: the order, the order, the operand."""
        x = _THREE.from_address(address)[2]
        operation = self.operation(x, x)
        operation.group.run(operation)

    def start_there(self, address: int) -> None:
        """In place.  Words: as those of `run_there`."""
        x = _THREE.from_address(address)[2]
        operation = self.operation(x, x)
        _held()[x] = operation.group.start(operation)


def _held() -> dict[int, Any]:
    held: dict[int, Any] | None = getattr(_HELD, "operations", None)
    if held is None:
        held = _HELD.operations = {}
    return held


def abandon() -> None:
    """A program of this thread has failed: wait until nobody reads or writes its memory any more."""
    held = _held()
    while held:
        _, operation = held.popitem()
        try:
            operation.group.wait(operation)
        except Exception:  # the program raises what made it fail
            continue


def collective_call(step: ExternStep) -> list[Launch]:
    """One launch; `halves` are those that begin and end it, `there` does it in place."""
    (_, x), (_, out) = step.inputs, step.outputs
    for each in (x, out):
        if each.strides != contiguous_strides(each.shape) and numel(each.shape):
            raise NotImplementedError(f"prim.{step.name} takes row-major memory, got strides {list(each.strides)}")
    work = _Collective(step.name, step.params, x, out)
    made = host_launch(work.run, (0, 1), step.sizes)
    made.halves = host_launch(work.start, (0, 1), step.sizes, MAY_UNLOCK), host_launch(work.finish, (-2, 1))
    if step.name in IN_PLACE:
        there = made.there = host_launch(work.run_there, (0, 1), step.sizes[:1])
        there.halves = (
            host_launch(work.start_there, (0, 1), step.sizes[:1], MAY_UNLOCK), host_launch(work.finish, (1,)),
        )  # fmt: skip
    return [made]

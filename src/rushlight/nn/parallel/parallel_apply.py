"""Modules called side by side, one on each device."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import rushlight as torch
from rushlight import Tensor
from rushlight._interface.base import LazyModule
from rushlight._utils import _get_available_device_type, _get_device_index
from rushlight.nn.modules.module import Module

__all__ = ["get_a_var", "parallel_apply"]

_worker: Any = LazyModule("rushlight.utils.data._utils.worker")


def get_a_var(obj: Any) -> Tensor | None:
    """A tensor in nested lists, tuples and dicts; None where there is none."""
    if isinstance(obj, Tensor):
        return obj
    values = obj if isinstance(obj, (list, tuple)) else obj.values() if isinstance(obj, dict) else ()
    return next((found for found in map(get_a_var, values) if found is not None), None)


class _Modes:
    """State of the calling thread that its helpers take over: whether gradients are recorded, and automatic casts."""

    def __init__(self, device_type: str) -> None:
        self.device_type, self.gradients = device_type, torch.is_grad_enabled()
        self.casts, self.dtype = torch.is_autocast_enabled(device_type), torch.get_autocast_dtype(device_type)

    def call(self, module: Module, given: Any, named: Any, place: Any, stream: Any) -> Any:
        """The result of a module on a device."""
        arguments = given if isinstance(given, (list, tuple)) else (given,)
        with (
            torch.set_grad_enabled(self.gradients),
            torch.accelerator.device_index(place.index),
            stream,
            torch.autocast(self.device_type, dtype=self.dtype, enabled=self.casts),
        ):
            return module(*arguments, **named)


def _place(device_type: str, device: Any, given: Any, number: int) -> Any:
    """The device of a replica: the one that was given, else that of a tensor among its inputs."""
    if device is not None:
        return torch.device(device_type, _get_device_index(device, True))
    found = get_a_var(given)
    if found is None:
        raise RuntimeError(
            f"in replica {number}, no device was provided and no tensor input was found; device cannot be resolved"
        )
    return found.device


def parallel_apply(
    modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Any = None, devices: Any = None
) -> list[Any]:
    """Each module on its inputs, each on an accelerator of its own, in a thread of its own.

    What a module raises is raised here, and says which replica it was.  AssertionError unless there are as many inputs as
    modules; RuntimeError without accelerators, ValueError for a device that is none.
    """
    for what, given in (("inputs", inputs), ("kwargs_tup", kwargs_tup), ("devices", devices)):
        if given is not None and len(modules) != len(given):
            raise AssertionError(
                f"The number of modules {len(modules)} is not equal to the number of {what} {len(given)}"
            )
    if not modules:
        raise AssertionError("No available accelerator found.")
    named = [_get_device_index(d, True) for d in devices or () if d is not None]
    device_type = _get_available_device_type()
    if device_type is None:
        raise RuntimeError(f"Cannot access accelerator device when none is available: {named or 'none'} was asked for.")
    places = [_place(device_type, *row) for row in zip(devices or [None] * len(inputs), inputs, range(len(inputs)), strict=True)]  # fmt: skip
    modes, streams = _Modes(device_type), [torch.accelerator.current_stream(place) for place in places]
    results: list[Any] = [None] * len(modules)
    failed: dict[int, Any] = {}

    def work(number: int) -> None:
        place, kwargs = places[number], {} if kwargs_tup is None else kwargs_tup[number]
        try:
            results[number] = modes.call(modules[number], inputs[number], kwargs, place, streams[number])
        except Exception:
            failed[number] = _worker.ExceptionWrapper(where=f"in replica {number} on device {place.index}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, len(modules))]
    for thread in threads:
        thread.start()
    work(0)
    for thread in threads:
        thread.join()
    if failed:
        failed[min(failed)].reraise()
    return results

"""Seeds and states of the default random generator, as `torch.random`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rushlight import Tensor
from rushlight import device as Device
from rushlight._engine.random.random import Generator as Generator
from rushlight._engine.random.random import default_generator as default_generator
from rushlight._interface.base import trace_marks
from rushlight._interface.devices import backends, fresh_seed, keep_states, seed_all

__all__ = [
    "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state", "thread_safe_generator",
]  # fmt: skip


@trace_marks.changes_later_calls
def manual_seed(seed: Any) -> Generator:
    """Seed the default generators of all devices with an integer from -2**63 to 2**64 - 1, and return the CPU's.

    For one seed the numbers are those of PyTorch on the CPU, bit for bit.

        >>> torch.manual_seed(0).initial_seed()
        0
    """
    return seed_all(int(seed))


@trace_marks.changes_later_calls
def seed() -> int:
    """Seed the default generators with a number from the operating system, and return that number."""
    return seed_all(fresh_seed()).initial_seed()


@trace_marks.changes_later_calls
def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state: a uint8 tensor of 5056 elements, in PyTorch's format."""
    return default_generator.get_state()


def set_rng_state(new_state: Any) -> None:
    """Continue from a state that `get_rng_state` (here or in PyTorch) returned."""
    default_generator.set_state(new_state)


@contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """Inside `with`, random numbers may be drawn and seeds set; afterwards the default generators are as before.

    `devices` are of type `device_type` ("cuda" unless another is named): AssertionError for any of a type that has no
    backend.  With `enabled=False` nothing is kept.  RuntimeError for a `device_type` that is none.

        >>> with torch.random.fork_rng():
        ...     _ = torch.rand(3)
    """
    kind = Device(device_type or "cuda").type
    if not enabled or kind == "meta":
        yield
        return
    if kind not in backends() and devices is not None and list(devices):
        raise AssertionError(
            f"Torch not compiled with {kind.upper()} enabled: {_caller}({_devices_kw}={list(devices)!r}) names devices, and there are none"
        )
    restore = keep_states()
    try:
        yield
    finally:
        restore()


def thread_safe_generator() -> Generator | None:
    """The generator of a data loader's worker thread; None elsewhere (workers are never threads here)."""
    return None

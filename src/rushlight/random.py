"""Seeds and states of the default random generator, as `torch.random`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rushlight import Tensor
from rushlight._engine.random.random import Generator as Generator
from rushlight._engine.random.random import default_generator as default_generator
from rushlight._types.device import Device

__all__ = [
    "default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state", "thread_safe_generator",
]  # fmt: skip


def manual_seed(seed: Any) -> Generator:
    """Seed the default generator with an integer from -2**63 to 2**64 - 1, and return it.

    For one seed the numbers are those of PyTorch on the CPU, bit for bit.

        >>> torch.manual_seed(0).initial_seed()
        0
    """
    return default_generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the default generator with a number from the operating system, and return that number."""
    return default_generator.seed()


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
    """Inside `with`, random numbers may be drawn and seeds set; afterwards the default generator is as before.

    `devices` are those of type `device_type` ("cuda" unless another is named) whose generators are kept too: AssertionError for any, as none
    is there.  With `enabled=False` nothing is kept.  RuntimeError for a `device_type` that is none.

        >>> with torch.random.fork_rng():
        ...     _ = torch.rand(3)
    """
    kind = Device(device_type or "cuda").type
    if not enabled or kind == "meta":
        yield
        return
    if kind != "cpu" and devices is not None and list(devices):
        raise AssertionError(
            f"Torch not compiled with {kind.upper()} enabled: {_caller}({_devices_kw}={list(devices)!r}) names devices, and there are none"
        )
    state = default_generator.state_bytes()
    try:
        yield
    finally:
        default_generator.set_state_bytes(state)


def thread_safe_generator() -> Generator | None:
    """The generator of a data loader's worker thread; None elsewhere (workers are never threads here)."""
    return None

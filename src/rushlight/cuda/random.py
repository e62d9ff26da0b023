"""The random generators of GPUs, as `torch.cuda.random`.

Each GPU has a default generator.  Seeds are taken without a GPU, too, as PyTorch takes them, and change nothing then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rushlight import device as Device
from rushlight._interface.base import trace_marks
from rushlight._interface.devices import generator_of
from rushlight.cuda.access import device_of, gpu, gpus, on_gpu, why_no_gpu

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all",
]  # fmt: skip


def _all() -> list[Any]:
    if why_no_gpu() is not None:
        return []
    return [generator_of(Device("cuda", index)) for index in range(gpus().device_count())]


@trace_marks.changes_later_calls
def manual_seed(seed: int) -> None:
    """Seed the current GPU's generator; without a GPU nothing."""
    seed = int(seed)
    if why_no_gpu() is None:
        generator_of(device_of(None)).manual_seed(seed)


@trace_marks.changes_later_calls
def manual_seed_all(seed: int) -> None:
    """Seed the generators of all GPUs; without a GPU nothing."""
    seed = int(seed)
    for generator in _all():
        generator.manual_seed(seed)


@trace_marks.changes_later_calls
def seed() -> None:
    """Seed the current GPU's generator with a number that nobody can foresee."""
    if why_no_gpu() is None:
        generator_of(device_of(None)).seed()


@trace_marks.changes_later_calls
def seed_all() -> None:
    """Seed the generators of all GPUs alike, with a number that nobody can foresee."""
    generators = _all()
    if generators:
        first = generators[0].seed()
        for generator in generators[1:]:
            generator.manual_seed(first)


@trace_marks.changes_later_calls
@on_gpu
def initial_seed() -> int:
    """The seed from which the current GPU's generator last started."""
    return int(generator_of(device_of(None)).initial_seed())


@on_gpu
def get_rng_state(device: Any = "cuda") -> Any:
    """The state of a GPU's generator, as a tensor of bytes on the CPU."""
    return generator_of(device_of(device)).get_state()


@on_gpu
def set_rng_state(new_state: Any, device: Any = "cuda") -> None:
    """Put a generator's state back."""
    generator_of(device_of(device)).set_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The state of every GPU's generator."""
    return [generator.get_state() for generator in _all()]


def set_rng_state_all(new_states: Iterable[Any]) -> None:
    """Put the states of all GPUs' generators back; RuntimeError for more states than there are GPUs."""
    states, generators = list(new_states), _all()
    if len(states) > len(generators):
        gpu("set_rng_state_all")
        raise RuntimeError(f"torch.cuda.set_rng_state_all got {len(states)} states for {len(generators)} GPUs")
    for generator, state in zip(generators, states, strict=False):
        generator.set_state(state)


def _get_rng_state_offset(device: Any = "cuda") -> int:
    """How many numbers a GPU's generator has drawn, as its state counts them."""
    gpu("_get_rng_state_offset")
    return int(generator_of(device_of(device)).get_offset())


def _set_rng_state_offset(offset: int, device: Any = "cuda") -> None:
    """Let it go on from another place."""
    gpu("_set_rng_state_offset")
    generator_of(device_of(device)).set_offset(offset)

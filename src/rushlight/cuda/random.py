"""The generators of GPUs, as `torch.cuda.random`: there are none.  Seeds are taken, as PyTorch takes them without a
GPU, and change nothing.
"""

from __future__ import annotations

from typing import Any

from rushlight.cuda.refusals import needs_gpu

__all__ = [
    "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "set_rng_state_all",
]  # fmt: skip


def manual_seed(seed: int) -> None:
    """Nothing, as in PyTorch without a GPU; the seed must still be an integer."""
    int(seed)


def manual_seed_all(seed: int) -> None:
    """Nothing, as in PyTorch without a GPU; the seed must still be an integer."""
    int(seed)


def seed() -> None:
    """Nothing."""


def seed_all() -> None:
    """Nothing."""


def get_rng_state_all() -> list[Any]:
    """The state of every GPU's generator: none."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Put the states of all GPUs' generators back; RuntimeError for more states than the none there are."""
    if len(list(new_states)):
        raise RuntimeError("torch.cuda.set_rng_state_all needs a CUDA GPU, and rushlight computes on the CPU only")


get_rng_state, set_rng_state, initial_seed = (
    needs_gpu("get_rng_state"),
    needs_gpu("set_rng_state"),
    needs_gpu("initial_seed"),
)

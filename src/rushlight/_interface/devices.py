"""Devices by what they can do, and the states of their random generators."""

from __future__ import annotations

from rushlight._backends.protocol import Backend
from rushlight._backends.registry import accelerator, backend_of, backends, host
from rushlight._engine.random.random import default_generators, fresh_seed, generator_of, keep_states, seed_all
from rushlight._surface.captured import CapturedWork
from rushlight._types.device import private_type, rename_private_type

__all__ = [
    "Backend",  # what a device does
    "backends",  # the types of device that have one
    "backend_of",  # that of a device
    "host",  # the backend of the host's own memory
    "CapturedWork",  # the base of recorded graphs as users see them
    "accelerator",  # the backend of the accelerator, or None
    "private_type",  # the name of the users' own type of device
    "rename_private_type",
    "fresh_seed",  # a number from the system
    "generator_of",  # the default random generator of a device
    "default_generators",  # the default random generators of all devices in use
    "keep_states",  # restore the states of all default generators
    "seed_all",  # seed all default generators
]

"""Which CUDA driver a process uses, and why it has none.

`RUSHLIGHT_CUDA=emulated` chooses the emulated one.  Otherwise NVIDIA's library is looked for, once, when a program first
asks for a GPU.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from uuid import UUID

from rushlight._backends.cuda.driver.api import Driver
from rushlight._backends.cuda.driver.errors import CudaError
from rushlight._base.errors import MissingDeviceError
from rushlight._base.knobs import Knob, one_of
from rushlight._base.lazy import require

__all__ = ["LEAST_VERSION", "Absent", "driver", "unavailable", "visible_devices"]

LEAST_VERSION = 12000  # of CUDA: tensor maps, clusters and PTX 8.0


CUDA = Knob(
    "cuda", env="RUSHLIGHT_CUDA", kind=one_of("driver", "emulated", "none"), default="driver",
    doc="Which GPUs there are: those of NVIDIA's driver, `emulated` ones on the host, or `none`.",
)  # fmt: skip
EMULATED_DEVICES = Knob(
    "emulated_cuda_devices", env="RUSHLIGHT_EMULATED_CUDA_DEVICES", kind=int, default=1,
    doc="How many GPUs the emulated driver has.",
)  # fmt: skip
EMULATED_MEMORY = Knob(
    "emulated_cuda_memory", env="RUSHLIGHT_EMULATED_CUDA_MEMORY_MB", kind=int, default=4096,
    doc="Megabytes of memory that each emulated GPU has.",
)  # fmt: skip
EMULATED_SEED = Knob(
    "emulated_cuda_seed", env="RUSHLIGHT_EMULATED_CUDA_SEED", kind=int, default=0,
    doc="What draws the order in which emulated streams run.",
)  # fmt: skip


class Absent(Exception):
    """There is no driver; the text says why."""


def visible_devices(text: str | None, identities: Sequence[str]) -> list[int]:
    """The devices of a machine that `CUDA_VISIBLE_DEVICES` leaves: those before the first that there is not, none where one
    is named twice.  They are numbers, or begins of identities (`GPU-...`) that fit one device; a part of a device
    (`MIG-...`) is none that there is.

    >>> ids = ["GPU-72ab", "GPU-72cd"]
    >>> visible_devices(None, ids), visible_devices("1,0", ids), visible_devices("0,7,1", ids), visible_devices("", ids)
    ([0, 1], [1, 0], [0], [])
    >>> visible_devices("GPU-72c,0", ids), visible_devices("GPU-72", ids), visible_devices("1,1", ids), visible_devices("MIG-1", ids)
    ([1], [], [], [])
    """
    if text is None:
        return list(range(len(identities)))
    found: list[int] = []
    named = text.startswith(("GPU-", "MIG-"))
    for word in text.split(","):
        number = _named(word.strip(), identities) if named else _number(word.strip())
        if not 0 <= number < len(identities):
            break
        if number in found:
            return []
        found.append(number)
    return found


def _named(word: str, identities: Sequence[str]) -> int:
    fitting = [i for i, identity in enumerate(identities) if word.startswith("GPU-") and identity.startswith(word)]
    return fitting[0] if len(fitting) == 1 else -1


def _number(word: str) -> int:
    """The number that a word begins with, as `strtoul` reads it."""
    found = re.match(r"[+-]?\d+", word)
    return int(found[0]) if found else -1


def _emulated() -> Driver:
    machine = require("rushlight._backends.cuda.driver.emulated.machine")
    identities = [f"GPU-{UUID(bytes=machine.identity(i))}" for i in range(EMULATED_DEVICES.get())]
    numbers = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"), identities)
    if not numbers:
        raise Absent(f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')!r} hides all emulated devices")
    cls = require("rushlight._backends.cuda.driver.emulated.driver").EmulatedDriver
    made: Driver = cls(len(numbers), EMULATED_MEMORY.get() << 20, EMULATED_SEED.get())
    made.numbers = numbers  # type: ignore[attr-defined]
    made.cuInit()
    return made


def _real() -> Driver:
    try:
        made: Driver = require("rushlight._backends.cuda.driver.library").LibraryDriver()
    except OSError as error:
        raise Absent(f"NVIDIA's driver is not installed: {error}") from None
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        version = made.cuDriverGetVersion()
        if version < LEAST_VERSION:
            raise Absent(
                f"NVIDIA's driver is too old: it supports CUDA {_version(version)}, and {_version(LEAST_VERSION)} is the least; install a newer "
                "driver"
            )
        made.cuInit()
        count = made.cuDeviceGetCount()
    except CudaError as error:
        if error.name != "CUDA_ERROR_NO_DEVICE":
            raise Absent(f"NVIDIA's driver cannot start: {error}") from None
        count = 0
    if not count:
        raise Absent(
            "NVIDIA's driver sees no GPU"
            if hidden is None
            else f"CUDA_VISIBLE_DEVICES={hidden!r} hides all GPUs, or names none that there is"
        )
    return made


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


@lru_cache(maxsize=1)
def _found() -> Driver | str:
    """The driver, initialised, or the reason why there is none."""
    choice = CUDA.get()
    if choice == "none":
        return "RUSHLIGHT_CUDA=none"
    try:
        return _emulated() if choice == "emulated" else _real()
    except Absent as reason:
        return str(reason)


def unavailable() -> str | None:
    """Why no GPU can be used; None where one can."""
    found = _found()
    return found if isinstance(found, str) else None


def driver() -> Driver:
    """The driver, initialised; MissingDeviceError where there is none."""
    found = _found()
    if isinstance(found, str):
        raise MissingDeviceError(f"rushlight was asked for device 'cuda', but there is no CUDA GPU to use: {found}")
    return found

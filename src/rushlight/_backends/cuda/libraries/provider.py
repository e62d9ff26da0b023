"""Choice between our kernels and NVIDIA's libraries: its settings, and measurements that are kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._backends.cuda.libraries.loader import Wheel
from rushlight._backends.registry import backend_of
from rushlight._base.errors import MissingExtraError
from rushlight._base.knobs import Knob, one_of
from rushlight._native.cache import default_cache
from rushlight._types.device import Device

__all__ = ["cuda_backend", "current_device", "is_usable", "measured_once", "provider_knob"]


def provider_knob(env: str, work: str, library: str, ours: str = "`ours`", auto: str = "") -> Knob[str]:
    """The setting of who does some work: `ours`, `library` or `auto`; `ours` and `auto` add to its description."""
    return Knob(
        env.removeprefix("RUSHLIGHT_").lower(), env=env, kind=one_of("auto", "ours", "library"), default="auto", planned=True,
        doc=f"Who {work} on GPUs: {ours}, `library` ({library}), or `auto`: whoever was measured to be faster{auto}.",
    )  # fmt: skip


def is_usable(provider: Knob[str], wheel: Wheel) -> bool:
    """Whether a library may be called: it is installed, and devices are real.

    MissingExtraError where the setting demands the library and it is not installed.
    """
    if wheel.path() is None:
        if provider.get() == "library":
            raise MissingExtraError(f"{provider.env}=library, and {wheel.title}", wheel.extra)
        return False
    return not cuda_backend().driver.emulated


def cuda_backend() -> Any:
    """The backend of GPUs."""
    return backend_of(Device("cuda", 0))


def current_device() -> int:
    """The number of the thread's current GPU."""
    return int(cuda_backend().current_device())


def measured_once(backend: Any, kind: str, words: list[str], measure: Callable[[Device], bytes]) -> bytes | None:
    """The answer of `measure` for the current device, kept on disk for `kind`, the device's model and `words`.

    None where it is not known yet while a graph is captured: to wait for the device would spoil the capture.
    """
    device = Device("cuda", backend.current_device())
    cache = default_cache()
    key = cache.key(kind, str(backend.properties(device).get("name", "")), *words)
    found = cache.get(key)
    if found is None and not backend.captures:
        found = measure(device)
        cache.put(key, found)
    return found

"""Where storages are and where they go: the tags that files carry for devices, and what `map_location` means."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight._interface.devices import backends
from rushlight.storage import UntypedStorage

__all__ = [
    "SourceChangeWarning", "check_module_version_greater_or_equal", "default_restore_location", "is_meta", "location_tag", "register_package",
    "restorer", "validate_cuda_device", "validate_hpu_device",
]  # fmt: skip


class SourceChangeWarning(Warning):
    """The source of a module's class differs from what it was when the file was written."""


# ***** devices *****


def _validated(location: str, backend: str) -> Any:
    """The device that a tag names; RuntimeError where there is no such device."""
    hint = (
        "On a machine without it, use torch.load with map_location=torch.device('cpu') to map your storages to the CPU."
    )
    module = getattr(rushlight, backend, None)
    if module is None:
        raise RuntimeError(f"The {backend.upper()} device module is not registered. {hint}")
    if not module.is_available():
        raise RuntimeError(
            f"Attempting to deserialize object on a {backend.upper()} device but torch.{backend}.is_available() is False. {hint}"
        )
    device = rushlight.device(location)
    if hasattr(module, "device_count") and (device.index or 0) >= module.device_count():
        raise RuntimeError(
            f"Attempting to deserialize object on {backend.upper()} device {device.index} but torch.{backend}.device_count() is "
            f"{module.device_count()}: use torch.load with map_location to map your storages to a device that exists."
        )
    return device


def validate_cuda_device(location: str) -> int | None:
    """The index of the CUDA device that a tag names; RuntimeError where there is none."""
    return _validated(location, "cuda").index


def validate_hpu_device(location: str) -> int | None:
    """The index of the HPU device that a tag names; RuntimeError where there is none."""
    return _validated(location, "hpu").index


def _names_device(location: str, backend: str) -> bool:
    rest = location.removeprefix(backend)
    return rest == "" or (rest != location and (rest[0] == ":" or rest[0].isdigit()))


def _tagger(backend: str) -> Callable[[Any], str | None]:
    def tag(storage: Any) -> str | None:
        return str(storage.device) if storage.device.type == backend else None

    return tag


def _restore_to(backend: str) -> Callable[[Any, str], Any]:
    def restore(storage: Any, location: str) -> Any:
        if not _names_device(location, backend):
            return None
        return storage.to(device=_validated(location, backend))

    return restore


def _restore_cpu(storage: Any, location: str) -> Any:
    return storage if location == "cpu" else None


def _restore_meta(storage: Any, location: str) -> Any:
    return UntypedStorage(storage.nbytes(), device="meta") if location == "meta" else None


_registry: list[tuple[int, Callable[[Any], str | None], Callable[[Any, str], Any]]] = []


def register_package(
    priority: int, tagger: Callable[[Any], str | None], deserializer: Callable[[Any, str], Any]
) -> None:
    """Teach `save` and `load` another kind of place for storages; smaller priorities are asked first.

    `tagger(storage)` gives the tag that a file carries for a storage's place, `deserializer(storage, tag)` a storage in
    that place from one in ordinary memory; each gives None for what it does not know.
    """
    _registry.append((priority, tagger, deserializer))
    _registry.sort(key=lambda entry: entry[0])


register_package(10, _tagger("cpu"), _restore_cpu)
register_package(20, _tagger("cuda"), _restore_to("cuda"))
register_package(21, _tagger("mps"), _restore_to("mps"))
register_package(22, _tagger("meta"), _restore_meta)
for _number, _backend in enumerate(("hpu", "xpu", "mtia")):
    register_package(24 + _number, _tagger(_backend), _restore_to(_backend))


def _tag_registered(storage: Any) -> str | None:
    """The tag of a storage on a device whose backend came from outside."""
    return str(storage.device) if storage.device.type in backends() else None


def _restore_registered(storage: Any, location: str) -> Any:
    kind = location.partition(":")[0]
    return storage.to(device=location) if kind in backends() else None


register_package(40, _tag_registered, _restore_registered)


def location_tag(storage: Any) -> str:
    """The tag of the place where a storage is: `cpu` for ordinary memory."""
    for _, tagger, _ in _registry:
        found = tagger(storage)
        if found:
            return found
    raise RuntimeError(f"don't know how to determine data location of {_type_name(storage)}")


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage in the place that a tag names.  RuntimeError where nobody knows the place, or where it does not
    exist.
    """
    for _, _, restore in _registry:
        found = restore(storage, location)
        if found is not None:
            return found
    raise RuntimeError(f"don't know how to restore data location of {_type_name(storage)} (tagged with {location})")


def _type_name(value: Any) -> str:
    module = type(value).__module__
    return (
        f"torch.storage.{type(value).__name__}"
        if module.startswith("rushlight")
        else f"{module}.{type(value).__name__}"
    )


# ***** map_location *****


def is_meta(map_location: Any) -> bool:
    """Whether everything goes to the meta device, so that no bytes need be read."""
    return isinstance(map_location, (str, rushlight.device)) and str(map_location) == "meta"


def restorer(map_location: Any) -> Callable[[Any, str], Any]:
    """The function that puts a storage, read into ordinary memory and tagged with a place, where `map_location` wants
    it.
    """
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        return lambda storage, location: default_restore_location(storage, str(map_location.get(location, location)))
    if isinstance(map_location, (str, rushlight.device)):
        return lambda storage, location: default_restore_location(storage, str(map_location))
    if isinstance(map_location, bytes):
        return lambda storage, location: default_restore_location(storage, map_location.decode("ascii"))
    if not callable(map_location):
        raise TypeError(
            f"'{type(map_location).__name__}' object is not callable: map_location is a device, a string, a dict or a function"
        )

    def restore(storage: Any, location: str) -> Any:
        found = map_location(storage, location)
        return default_restore_location(storage, location) if found is None else found

    return restore


def check_module_version_greater_or_equal(
    module: Any, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True
) -> bool:
    """Whether a module's `__version__` is at least the given one, as far as that goes.

    A version that cannot be compared is a RuntimeError, or a warning and True where `error_if_malformed` is False.
    """
    try:
        parts = module.__version__.split(".")
        return tuple(type(wanted)(part) for wanted, part in zip(req_version_tuple, parts, strict=False)) >= tuple(
            req_version_tuple
        )
    except Exception as error:
        message = f"'{module.__name__}' module version string is malformed '{module.__version__}' and cannot be compared with tuple {req_version_tuple}"
        if error_if_malformed:
            raise RuntimeError(message) from error
        warnings.warn(f"{message}, but continuing assuming that requirement is met", stacklevel=2)
        return True

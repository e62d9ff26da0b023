"""`save_cache_artifacts` and `load_cache_artifacts`: what compiling derived, for the caches of other machines."""

from __future__ import annotations

from dataclasses import dataclass, field

from rushlight._interface.artifacts import packed_artifacts, put_artifacts

__all__ = ["CacheInfo", "load_cache_artifacts", "save_cache_artifacts"]


@dataclass
class CacheInfo:
    """Contents of artifacts: keys by kind, "inductor" for machine code, "precompile" for programs and what was traced."""

    artifacts: dict[str, list[str]] = field(default_factory=dict)

    @property
    def inductor_artifacts(self) -> list[str]:
        """Keys of machine code."""
        return self.artifacts.get("inductor", [])

    @property
    def precompile_artifacts(self) -> list[str]:
        """Keys of programs, and of what was traced."""
        return self.artifacts.get("precompile", [])

    @property
    def autotune_artifacts(self) -> list[str]:
        """None: choices that were measured are kept with machine code."""
        return self.artifacts.get("autotune", [])

    @property
    def aot_autograd_artifacts(self) -> list[str]:
        """None: derivatives are part of programs."""
        return self.artifacts.get("aot_autograd", [])

    @property
    def pgo_artifacts(self) -> list[str]:
        """None: nothing is kept of runs."""
        return self.artifacts.get("pgo", [])

    def add(self, kind: str, key: str) -> None:
        """Add a key."""
        self.artifacts.setdefault(kind, []).append(key)

    def clear(self) -> None:
        """Forget all keys."""
        self.artifacts.clear()

    def empty(self) -> bool:
        """Whether there are no keys."""
        return not any(self.artifacts.values())


def _info(found: dict[str, list[str]]) -> CacheInfo:
    names = {"objects": "inductor", "records": "precompile"}
    return CacheInfo({names[kind]: keys for kind, keys in found.items() if keys})


def save_cache_artifacts() -> tuple[bytes, CacheInfo] | None:
    """Serialize what this process compiled, or found compiled: bytes and their contents; None where that is nothing.

    Another process on the same kind of machine, with the same version, gives the bytes to `load_cache_artifacts` and
    compiles nothing again.

    >>> import rushlight as torch
    >>> double = torch.compile(lambda x: x * 2 + 1)
    >>> double(torch.ones(2))
    tensor([3., 3.])
    >>> artifacts, info = torch.compiler.save_cache_artifacts()
    >>> torch.compiler.load_cache_artifacts(artifacts) == info
    True
    """
    data, found = packed_artifacts()
    info = _info(found)
    return None if info.empty() else (data, info)


def load_cache_artifacts(serialized_artifacts: bytes) -> CacheInfo | None:
    """Put what `save_cache_artifacts` gave into this machine's cache; None where it is of another kind of machine or of
    another version.

    TypeError for what is not bytes, ValueError for other bytes.  Reading executes nothing, but there is machine code in
    them that programs execute: load only what comes from whom you would take a program.
    """
    if not isinstance(serialized_artifacts, (bytes, bytearray)):
        raise TypeError(f"load_cache_artifacts() takes bytes, not {type(serialized_artifacts).__name__}")
    found = put_artifacts(bytes(serialized_artifacts))
    return None if found is None else _info(found)

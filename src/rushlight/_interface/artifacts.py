"""Results of compiling that are kept on disk, as bytes."""

from __future__ import annotations

from rushlight._engine.dispatch.kept.kept_artifacts import packed_artifacts, put_artifacts

__all__ = [
    "packed_artifacts",  # what this process kept or found, as bytes
    "put_artifacts",  # those bytes into the cache
]

"""Functions that are plain Python over tensors, by topic."""

from __future__ import annotations

from importlib import import_module

__all__ = ["TOPICS", "register_composites"]

TOPICS = (
    "attention",
    "calculus",
    "copies",
    "factors",
    "fourier",
    "joining",
    "linear",
    "lobpcg",
    "lowrank",
    "lu",
    "measures",
    "pooling",
    "selecting",
    "shapes",
    "spectra",
    "statistics",
    "targets",
    "writes",
)


def register_composites() -> None:
    """Import every topic; each registers its functions."""
    for topic in TOPICS:
        import_module(f"{__name__}.{topic}")

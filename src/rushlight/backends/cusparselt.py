"""cuSPARSELt, which rushlight does not use: semi-structured products are its own kernels."""

from __future__ import annotations

__all__ = ["get_max_alg_id", "is_available", "version"]


def version() -> int | None:
    """None: there is no version."""
    return None


def is_available() -> bool:
    """False."""
    return False


def get_max_alg_id() -> int | None:
    """None: there are no algorithms to choose from."""
    return None

"""Loggers of launchers."""

from __future__ import annotations

import logging
import os
import sys

__all__ = ["get_logger"]


def get_logger(name: str | None = None) -> logging.Logger:
    """A logger by this name, or the caller's module's, of the level that `LOGLEVEL` says (WARNING)."""
    found = logging.getLogger(name or sys._getframe(1).f_globals.get("__name__", ""))
    found.setLevel(os.environ.get("LOGLEVEL", "WARNING"))
    return found

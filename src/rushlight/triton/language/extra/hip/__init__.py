"""`triton.language.extra.hip`: the names of AMD's library."""

from __future__ import annotations

from . import libdevice

__all__ = ["libdevice"]

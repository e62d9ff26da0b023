"""From Python, or from the code of an archive, to graphs."""

from __future__ import annotations

from rushlight.jit.frontend.errors import FrontendError, FrontendTypeError, NotSupportedError, UnsupportedNodeError

__all__ = ["FrontendError", "FrontendTypeError", "NotSupportedError", "UnsupportedNodeError"]

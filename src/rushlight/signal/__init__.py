"""Signal processing: window functions in `signal.windows`."""

from rushlight.signal import windows

__all__ = ["windows"]

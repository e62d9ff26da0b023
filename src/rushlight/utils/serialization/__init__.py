"""Settings of `save` and `load`: `rushlight.utils.serialization.config`."""

from rushlight.utils.serialization import config as config

__all__ = ["config"]

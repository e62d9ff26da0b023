"""`torch._logging.scribe`: events for a service of PyTorch's builders.  None leaves the machine."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["make_scribe_logger", "open_source_signpost"]


def make_scribe_logger(name: str, thrift_src: str) -> Callable[..., None]:
    """A function that takes the fields of an event as keywords, and drops them."""

    def log(**fields: object) -> None:
        """Nothing."""

    return log


open_source_signpost = make_scribe_logger("TorchOpenSourceSignpost", "")

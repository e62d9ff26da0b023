"""`torch.distributed.elastic.rendezvous`: how agents meet, and what goes wrong when they cannot."""

from __future__ import annotations

from rushlight._distributed.launch.rounds import RendezvousClosedError as RendezvousClosedError
from rushlight._distributed.launch.rounds import RendezvousConnectionError as RendezvousConnectionError
from rushlight._distributed.launch.rounds import RendezvousError as RendezvousError
from rushlight._distributed.launch.rounds import RendezvousGracefulExitError as RendezvousGracefulExitError
from rushlight._distributed.launch.rounds import RendezvousStateError as RendezvousStateError
from rushlight._distributed.launch.rounds import RendezvousTimeoutError as RendezvousTimeoutError
from rushlight._interface.base import lazy_files

__all__ = [
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousError",
    "RendezvousGracefulExitError",
    "RendezvousHandler",
    "RendezvousHandlerRegistry",
    "RendezvousInfo",
    "RendezvousParameters",
    "RendezvousStateError",
    "RendezvousStoreInfo",
    "RendezvousTimeoutError",
    "rendezvous_handler_registry",
]

_API = (
    "RendezvousHandler",
    "RendezvousHandlerRegistry",
    "RendezvousInfo",
    "RendezvousParameters",
    "RendezvousStoreInfo",
)
# The registry comes by the module that fills it.
__getattr__ = lazy_files(
    __name__,
    {**dict.fromkeys(_API, "api"), "rendezvous_handler_registry": "registry"},
    ("api", "dynamic_rendezvous", "endpoints", "registry"),
)

"""`torch.distributed.elastic.rendezvous`: the errors of agents that cannot meet."""

from __future__ import annotations

from rushlight._distributed.launch.rounds import RendezvousClosedError as RendezvousClosedError
from rushlight._distributed.launch.rounds import RendezvousConnectionError as RendezvousConnectionError
from rushlight._distributed.launch.rounds import RendezvousError as RendezvousError
from rushlight._distributed.launch.rounds import RendezvousGracefulExitError as RendezvousGracefulExitError
from rushlight._distributed.launch.rounds import RendezvousStateError as RendezvousStateError
from rushlight._distributed.launch.rounds import RendezvousTimeoutError as RendezvousTimeoutError

__all__ = [
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousError",
    "RendezvousGracefulExitError",
    "RendezvousStateError",
    "RendezvousTimeoutError",
]

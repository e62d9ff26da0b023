"""`torch.distributed.rendezvous`: from a URL to a store, a rank and the number of ranks."""

from __future__ import annotations

from rushlight._distributed.launch.rendezvous import register_rendezvous_handler as register_rendezvous_handler
from rushlight._distributed.launch.rendezvous import rendezvous as rendezvous

__all__ = ["register_rendezvous_handler", "rendezvous"]

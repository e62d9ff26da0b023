"""Messages between workers, each with an answer."""

from __future__ import annotations

from rushlight._distributed.calls.frames import MOST_INTEGERS, Frame, FrameType
from rushlight._distributed.calls.network import Network, WorkerGoneError, address_of_interface, interface_towards
from rushlight._distributed.calls.pool import Pool
from rushlight._distributed.calls.requests import Requests
from rushlight._distributed.stores.tcp_store import TCPStore
from rushlight._engine.autograd.pieces import BackwardInPieces, Gradients

__all__ = [
    "Frame",  # a message: kind, number, integers, parts of bytes
    "FrameType",
    "MOST_INTEGERS",  # of one message
    "Network",  # the connections of a worker
    "WorkerGoneError",  # a message for one that has died, or left
    "address_of_interface",  # by its name
    "interface_towards",  # the own address on the way to a store
    "Pool",  # threads
    "Requests",  # what waits for answers
    "TCPStore",
    "BackwardInPieces",  # a backward pass whose roots get their gradients one after the other
    "Gradients",  # of leaves, beside their `.grad`
]

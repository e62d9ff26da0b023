"""`torch.distributed.elastic.events`: what happens to the nodes and workers of a job, as records for a log."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

__all__ = [
    "Event", "EventSource", "NodeState", "RdzvEvent", "construct_and_record_rdzv_event", "get_logging_handler", "record", "record_rdzv_event",
]  # fmt: skip


class EventSource(str, Enum):  # noqa: UP042  (its text is PyTorch's)
    """Who reports an event."""

    AGENT = "AGENT"
    WORKER = "WORKER"


class NodeState(str, Enum):  # noqa: UP042
    """How far a node of a job is."""

    INIT = "INIT"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"


@dataclass
class Event:
    """Something that happened; `metadata` holds numbers and texts.

    >>> from rushlight.distributed.elastic.events import Event, EventSource
    >>> event = Event("started", EventSource.AGENT, metadata={"workers": 2})
    >>> Event.deserialize(event.serialize()) == event
    True
    """

    name: str
    source: EventSource
    timestamp: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: str | Event) -> Event:
        """The event of a text that `serialize` made."""
        if isinstance(data, Event):
            return data
        found = json.loads(data)
        return Event(**{**found, "source": EventSource(found["source"])})

    def serialize(self) -> str:
        """The event as JSON."""
        return json.dumps(asdict(self))


@dataclass
class RdzvEvent:
    """Something that happened while the agents of a job met."""

    name: str
    run_id: str
    message: str
    hostname: str
    pid: int
    node_state: NodeState
    master_endpoint: str = ""
    rank: int | None = None
    local_id: int | None = None
    error_trace: str = ""

    def __str__(self) -> str:
        return self.serialize()

    @staticmethod
    def deserialize(data: str | RdzvEvent) -> RdzvEvent:
        """The event of a text that `serialize` made."""
        if isinstance(data, RdzvEvent):
            return data
        found = json.loads(data)
        return RdzvEvent(**{**found, "node_state": NodeState(found["node_state"])})

    def serialize(self) -> str:
        """The event as JSON."""
        return json.dumps(asdict(self))


def get_logging_handler(destination: str = "null") -> logging.Handler:
    """The handler of a destination: "console" writes to the error stream, "null" drops; KeyError for another."""
    return {"console": logging.StreamHandler, "null": logging.NullHandler}[destination]()


def _logger(destination: str) -> logging.Logger:
    logger = logging.getLogger(f"torchelastic-events-{destination}")
    if not logger.handlers:
        logger.addHandler(get_logging_handler(destination))
        logger.setLevel(logging.INFO)
        logger.propagate = False
    return logger


def record(event: Event, destination: str = "null") -> None:
    """Write an event down."""
    event.timestamp = event.timestamp or int(time.time())
    _logger(destination).info(event.serialize())


def record_rdzv_event(event: RdzvEvent) -> None:
    """Write an event of a meeting down."""
    _logger("null").info(event.serialize())


def construct_and_record_rdzv_event(
    run_id: str, message: str, node_state: NodeState, name: str = "", hostname: str = "", pid: int | None = None, master_endpoint: str = "",
    local_id: int | None = None, rank: int | None = None,
) -> None:  # fmt: skip
    """Write an event of a meeting down, of this process unless it says otherwise."""
    here = hostname or socket.getfqdn(), os.getpid() if pid is None else pid
    record_rdzv_event(RdzvEvent(name, run_id, message, *here, node_state, master_endpoint, rank, local_id))

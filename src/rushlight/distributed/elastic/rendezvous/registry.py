"""Backends that are there: `c10d` and `static`; and those that need a server of another program, which are not."""

from __future__ import annotations

from rushlight.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousHandlerRegistry,
    RendezvousParameters,
    rendezvous_handler_registry,
)
from rushlight.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

__all__ = ["get_rendezvous_handler", "handler_registry", "rendezvous_handler_registry"]


def _without_etcd(params: RendezvousParameters) -> RendezvousHandler:
    raise NotImplementedError(
        f"rdzv_backend {params.backend!r} needs an etcd server, and is not there: use 'c10d', whose store is started by an agent"
    )


handler_registry: RendezvousHandlerRegistry = rendezvous_handler_registry
for _backend in ("c10d", "static"):
    handler_registry.register(_backend, create_handler)
for _backend in ("etcd", "etcd-v2"):
    handler_registry.register(_backend, _without_etcd)


def get_rendezvous_handler(params: RendezvousParameters) -> RendezvousHandler:
    """The handler of parameters; ValueError for an unknown backend."""
    return handler_registry.create_handler(params)

"""Memory that processes share, and the forms in which messages carry tensors."""

from __future__ import annotations

from rushlight._engine.sharing.ipc import NON_LEAF, join
from rushlight._engine.sharing.shared import (
    STRATEGIES,
    NamedBlock,
    SharedBlock,
    place_of,
    set_strategy,
    share_tensor,
    strategy,
    tensor_in,
)

__all__ = [
    "STRATEGIES",
    "strategy",
    "set_strategy",
    "SharedBlock",  # anonymous memory, sent as a descriptor
    "NamedBlock",  # memory with a name
    "place_of",  # block and offset of a storage
    "share_tensor",  # move a tensor into shared memory
    "tensor_in",  # a tensor over memory that an object keeps
    "NON_LEAF",  # the error of tensors with a history
    "join",  # register our classes with `multiprocessing`
]

"""`torch._inductor.custom_graph_pass`: passes of users over graphs, as objects that tell when they are other passes."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

__all__ = ["CustomGraphModulePass", "CustomGraphPass", "get_hash_for_files"]


class CustomGraphPass(ABC):
    """A pass over a `torch.fx.Graph`, which it changes in place."""

    @abstractmethod
    def __call__(self, graph: Any) -> None:
        """Change the graph."""

    @abstractmethod
    def uuid(self) -> Any:
        """Key that differs where the pass does something else; None where programs with it are not to be kept."""


class CustomGraphModulePass(CustomGraphPass):
    """As `CustomGraphPass`, over a `torch.fx.GraphModule`."""


def get_hash_for_files(paths: tuple[str, ...], extra: str = "") -> bytes:
    """A hash of what is in files, and of `extra`."""
    found = hashlib.sha256(extra.encode())
    for path in paths:
        found.update(Path(path).read_bytes())
    return found.digest()

"""`torch.fx.annotate`: a type noted on a traced value."""

from __future__ import annotations

from typing import TypeVar

from rushlight.fx.proxy import Proxy

__all__ = ["annotate"]

T = TypeVar("T")


def annotate(val: T, type: object) -> T:
    """Note `type` on the node of a proxy; other values come back as they are.

    RuntimeError where the node has a type already.
    """
    if isinstance(val, Proxy):
        if val.node.type:
            raise RuntimeError(
                f"Tried to annotate a value that already had a type on it! Existing type is {val.node.type} and new "
                f"type is {type}. This could happen if you tried to annotate a function parameter value (in which case "
                "you should use the type slot on the function signature) or you called annotate on the same value twice"
            )
        val.node.type = type
    return val

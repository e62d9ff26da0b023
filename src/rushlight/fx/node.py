"""`torch.fx.node`: the class of nodes, and the types that annotations of tracers name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from rushlight.fx import Node

__all__ = ["Argument", "Node", "Target"]

Target: TypeAlias = Callable[..., Any] | str
Argument: TypeAlias = Any

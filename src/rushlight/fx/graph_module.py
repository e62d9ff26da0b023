"""`torch.fx.graph_module`: what packages that take models apart mention."""

from __future__ import annotations

from rushlight._base.absent import absent_class, absent_function
from rushlight.fx import GraphModule

__all__ = ["GraphModule"]

_WHY = "there is no symbolic tracing yet"
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_CodeOnlyModule = absent_class("torch.fx.graph_module._CodeOnlyModule", _WHY)
_copy_attr = absent_function("torch.fx.graph_module._copy_attr", _WHY)

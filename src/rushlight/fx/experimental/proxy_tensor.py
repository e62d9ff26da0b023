"""`torch.fx.experimental.proxy_tensor`: no trace is being made, and `make_fx` raises NotImplementedError."""

from __future__ import annotations

from rushlight._interface.base import absent_function

__all__ = ["get_proxy_mode", "make_fx"]

make_fx = absent_function("torch.fx.experimental.proxy_tensor.make_fx", "there is no symbolic tracing yet")


def get_proxy_mode() -> None:
    """The mode that records calls: None."""
    return None

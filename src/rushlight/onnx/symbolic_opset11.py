"""`torch.onnx.symbolic_opset11` for packages that build their own descriptions on it: calling one raises
NotImplementedError.
"""

from __future__ import annotations

from rushlight._interface.base import absent_function

__all__ = ["select", "squeeze", "unsqueeze"]

_WHY = "models are not exported to ONNX yet"
select, squeeze, unsqueeze = (
    absent_function(f"torch.onnx.symbolic_opset11.{name}", _WHY) for name in ("select", "squeeze", "unsqueeze")
)

"""`torch.onnx.symbolic_opset10`: translations of operators as symbolic functions, for those who build on them."""

from rushlight.onnx.exporting.symbolics import symbolic_named as __getattr__

__all__ = ["__getattr__"]

"""Operators that meant something else in archives of earlier versions, written with the operators of today.

An archive says its version; a call in its code of an operator in `CHANGED` goes to the function of that operator's old
form where the version is lower.
"""

from __future__ import annotations

__all__ = ["CHANGED", "CODE"]

# Operator -> the version that changed it, and its old forms in `CODE`.
CHANGED: dict[str, tuple[int, tuple[str, ...]]] = {
    "div": (4, ("div_Tensor", "div_Scalar", "div_Tensor_mode", "div_Scalar_mode", "div_out", "div_out_mode")),
    "div_": (4, ("div__Tensor", "div__Scalar", "div__Tensor_mode", "div__Scalar_mode")),
    "full": (5, ("full", "full_out")),
    "linspace": (8, ("linspace", "linspace_out")),
    "logspace": (9, ("logspace", "logspace_out")),
    "gelu": (10, ("gelu", "gelu_out")),
}

_OPTIONS = "dtype: Optional[int]=None, layout: Optional[int]=None, device: Optional[Device]=None, pin_memory: Optional[bool]=None"
_PASSED = "dtype=dtype, layout=layout, device=device, pin_memory=pin_memory"

# Integers were divided as in C; a fill value alone made floats; a missing number of steps was 100; gelu had one form.
CODE = f"""
def div_Tensor(self: Tensor, other: Tensor) -> Tensor:
  if torch.is_floating_point(self) or torch.is_floating_point(other):
    return torch.true_divide(self, other)
  return torch.divide(self, other, rounding_mode="trunc")

def div_Scalar(self: Tensor, other: number) -> Tensor:
  if torch.is_floating_point(self) or isinstance(other, float):
    return torch.true_divide(self, other)
  return torch.divide(self, other, rounding_mode="trunc")

def div_Tensor_mode(self: Tensor, other: Tensor, rounding_mode: Optional[str]=None) -> Tensor:
  return torch.divide(self, other, rounding_mode=rounding_mode)

def div_Scalar_mode(self: Tensor, other: number, rounding_mode: Optional[str]=None) -> Tensor:
  return torch.divide(self, other, rounding_mode=rounding_mode)

def div_out(self: Tensor, other: Tensor, out: Tensor) -> Tensor:
  if torch.is_floating_point(self) or torch.is_floating_point(other) or torch.is_floating_point(out):
    return torch.true_divide(self, other, out=out)
  return torch.divide(self, other, rounding_mode="trunc", out=out)

def div_out_mode(self: Tensor, other: Tensor, rounding_mode: Optional[str], out: Tensor) -> Tensor:
  return torch.divide(self, other, rounding_mode=rounding_mode, out=out)

def div__Tensor(self: Tensor, other: Tensor) -> Tensor:
  if torch.is_floating_point(self) or torch.is_floating_point(other):
    return torch.true_divide_(self, other)
  return torch.divide_(self, other, rounding_mode="trunc")

def div__Scalar(self: Tensor, other: number) -> Tensor:
  if torch.is_floating_point(self) or isinstance(other, float):
    return torch.true_divide_(self, other)
  return torch.divide_(self, other, rounding_mode="trunc")

def div__Tensor_mode(self: Tensor, other: Tensor, rounding_mode: Optional[str]=None) -> Tensor:
  return torch.divide_(self, other, rounding_mode=rounding_mode)

def div__Scalar_mode(self: Tensor, other: number, rounding_mode: Optional[str]=None) -> Tensor:
  return torch.divide_(self, other, rounding_mode=rounding_mode)

def full(size: List[int], fill_value: number, {_OPTIONS}) -> Tensor:
  if dtype is None:
    return torch.full(size, float(fill_value), {_PASSED})
  return torch.full(size, fill_value, {_PASSED})

def full_out(size: List[int], fill_value: number, out: Tensor) -> Tensor:
  return torch.full(size, fill_value, out=out)

def linspace(start: number, end: number, steps: Optional[int]=None, {_OPTIONS}) -> Tensor:
  if steps is None:
    return torch.linspace(start, end, 100, {_PASSED})
  return torch.linspace(start, end, steps, {_PASSED})

def linspace_out(start: number, end: number, steps: Optional[int], out: Tensor) -> Tensor:
  if steps is None:
    return torch.linspace(start, end, 100, out=out)
  return torch.linspace(start, end, steps, out=out)

def logspace(start: number, end: number, steps: Optional[int]=None, base: float=10., {_OPTIONS}) -> Tensor:
  if steps is None:
    return torch.logspace(start, end, 100, base, {_PASSED})
  return torch.logspace(start, end, steps, base, {_PASSED})

def logspace_out(start: number, end: number, steps: Optional[int], base: float, out: Tensor) -> Tensor:
  if steps is None:
    return torch.logspace(start, end, 100, base, out=out)
  return torch.logspace(start, end, steps, base, out=out)

def gelu(self: Tensor) -> Tensor:
  return torch.gelu(self, approximate="none")

def gelu_out(self: Tensor, out: Tensor) -> Tensor:
  return torch.gelu(self, approximate="none", out=out)
"""

"""`out_dtype`: an operator whose sums have a wider dtype than its operands."""

from __future__ import annotations

from typing import Any

import rushlight as torch

__all__ = ["out_dtype"]

_BYTES = (torch.int8, torch.uint8)


def out_dtype(op: Any, output_dtype: Any, *args: Any) -> Any:
    """`op(*args)` computed in `output_dtype`; matrices of bytes are multiplied as such, with sums in int32.

    >>> a = torch.full((2, 3), 100, dtype=torch.int8)
    >>> out_dtype(torch.ops.aten.mm.default, torch.int32, a, a.t())
    tensor([[30000, 30000],
            [30000, 30000]], dtype=torch.int32)
    """
    if op is torch.ops.aten.mm.default and output_dtype is torch.int32:
        a, b = args
        if a.dtype in _BYTES and b.dtype is torch.int8:
            return torch._int_mm(a, b)
    wide = [a.to(output_dtype) if isinstance(a, torch.Tensor) else a for a in args]
    return op(*wide).to(output_dtype)

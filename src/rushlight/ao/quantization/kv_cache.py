"""Keys and values of past tokens in int8: a quarter of the memory of floats, and of what attention reads."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import nn

__all__ = ["QuantizedKVCache"]


class QuantizedKVCache(nn.Module):
    """Room for `length` tokens of attention: keys and values [batch, heads, length, size] in int8, with a scale for each
    token of each head, which fits its largest number.

    RuntimeError for tokens beyond `length`, and for shapes that are not the cache's.

    >>> import rushlight as torch
    >>> cache = QuantizedKVCache(1, 2, 16, 8)
    >>> keys, values = cache.update(0, torch.randn(1, 2, 3, 8), torch.randn(1, 2, 3, 8))
    >>> torch.nn.functional.scaled_dot_product_attention(torch.randn(1, 2, 3, 8), keys, values).shape
    torch.Size([1, 2, 3, 8])
    """

    keys: Any
    values: Any
    key_scales: Any
    value_scales: Any

    def __init__(self, batch: int, heads: int, length: int, size: int, device: Any = None) -> None:
        super().__init__()
        for name in ("keys", "values"):
            ints = torch.zeros(batch, heads, length, size, dtype=torch.int8, device=device)
            self.register_buffer(name, ints, persistent=False)
            scales = torch.ones(batch, heads, length, 1, device=device)
            self.register_buffer(f"{name[:-1]}_scales", scales, persistent=False)

    @torch.no_grad()
    def update(self, start: int, keys: Any, values: Any) -> tuple[Any, Any]:
        """Keep the keys and values of tokens from `start` on, [batch, heads, tokens, size]; those of all tokens up to
        the last of them, as numbers of their dtype.
        """
        batch, heads, length, size = self.keys.shape
        end = start + keys.shape[2]
        if keys.shape != values.shape or tuple(keys.shape) != (batch, heads, keys.shape[2], size):
            raise RuntimeError(
                f"keys and values must be [{batch}, {heads}, tokens, {size}], got {list(keys.shape)}, {list(values.shape)}"
            )
        if start < 0 or end > length:
            raise RuntimeError(f"the cache has room for {length} tokens, not for {start} to {end}")
        found = []
        for x, ints, scales in ((keys, self.keys, self.key_scales), (values, self.values, self.value_scales)):
            scale = (x.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-12).float()
            ints[:, :, start:end] = (x / scale).round().to(torch.int8)
            scales[:, :, start:end] = scale
            found.append((ints[:, :, :end].float() * scales[:, :, :end]).to(x.dtype))
        return found[0], found[1]

    def extra_repr(self) -> str:
        """The sizes."""
        batch, heads, length, size = self.keys.shape
        return f"batch={batch}, heads={heads}, length={length}, size={size}"

"""Control flow over tensors: `cond` and `map`."""

from rushlight._higher_order_ops import cond, map  # noqa: F401

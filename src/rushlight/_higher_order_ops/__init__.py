"""`torch._higher_order_ops`: functions of functions of tensors.

They run as plain Python: gradients go through what ran, and `compile` follows them.  In a compiled function `cond` and
`while_loop` are parts of the program.
"""

from __future__ import annotations

from rushlight._higher_order_ops.associative_scan import associative_scan
from rushlight._higher_order_ops.cond import cond
from rushlight._higher_order_ops.flex_attention import flex_attention
from rushlight._higher_order_ops.invoke_subgraph import invoke_subgraph
from rushlight._higher_order_ops.map import map
from rushlight._higher_order_ops.scan import scan
from rushlight._higher_order_ops.while_loop import while_loop
from rushlight._higher_order_ops.wrap import inductor_compiled_code

__all__ = [
    "associative_scan",
    "cond",
    "flex_attention",
    "inductor_compiled_code",
    "invoke_subgraph",
    "map",
    "scan",
    "while_loop",
]

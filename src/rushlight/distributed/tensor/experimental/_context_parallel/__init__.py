"""Context parallel: attention over sequences that are divided among processes."""

from __future__ import annotations

from rushlight.distributed.tensor.experimental._context_parallel._attention import (
    _context_parallel_shard,
    _cp_options,
    _disable_context_parallel_dispatcher,
    _enable_context_parallel_dispatcher,
    _RotateMethod,
    context_parallel,
    context_parallel_unshard,
    set_rotate_method,
)
from rushlight.distributed.tensor.experimental._context_parallel._cp_custom_ops import flex_cp_allgather
from rushlight.distributed.tensor.experimental._context_parallel._load_balancer import (
    _HeadTailLoadBalancer,
    _LoadBalancer,
    _PerDocumentHeadTailLoadBalancer,
    _PTRRLoadBalancer,
)
from rushlight.distributed.tensor.experimental._context_parallel._styles import _ContextParallel

__all__ = [
    "_ContextParallel",
    "_HeadTailLoadBalancer",
    "_LoadBalancer",
    "_PTRRLoadBalancer",
    "_PerDocumentHeadTailLoadBalancer",
    "_RotateMethod",
    "_context_parallel_shard",
    "_cp_options",
    "_disable_context_parallel_dispatcher",
    "_enable_context_parallel_dispatcher",
    "context_parallel",
    "context_parallel_unshard",
    "flex_cp_allgather",
    "set_rotate_method",
]

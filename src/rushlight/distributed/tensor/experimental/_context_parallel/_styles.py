"""A style of `parallelize_module` for modules that compute attention: their queries, keys and values are parts of a
sequence.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import Any

from rushlight import Tensor
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.tensor._api import DTensor
from rushlight.distributed.tensor.experimental._context_parallel._cp_custom_ops import flex_cp_allgather
from rushlight.distributed.tensor.parallel.style import ParallelStyle
from rushlight.distributed.tensor.placement_types import Shard
from rushlight.nn import Module

__all__ = ["_ContextParallel"]


class _ContextParallel(ParallelStyle):
    """A module whose first three arguments are this process's parts of queries, keys and values, along `seq_dim`.

    - `AttentionType.SDPA`: the module calls `scaled_dot_product_attention`.  It gets `DTensor`s, of which
      `_enable_context_parallel_dispatcher` lets attention be computed in a ring; it gives a part again
    - `AttentionType.FLEX`: it calls `flex_attention`.  It gets the whole keys and values, and its block mask is that of
      `_context_parallel_shard`
    """

    class AttentionType(Enum):
        """Which function of attention the module calls."""

        FLEX = "flex_attention"
        SDPA = "scaled_dot_product_attention"

    def __init__(self, seq_dim: int, attention_type: AttentionType) -> None:
        super().__init__()
        self.seq_dim, self.attention_type = seq_dim, attention_type

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        if self.attention_type is self.AttentionType.FLEX:
            module.register_forward_pre_hook(partial(self.flex_input_fn, mesh=device_mesh), with_kwargs=True)
        elif self.attention_type is self.AttentionType.SDPA:
            module.register_forward_pre_hook(partial(self.sdpa_input_fn, mesh=device_mesh), with_kwargs=True)
            module.register_forward_hook(partial(self.sdpa_output_fn, mesh=device_mesh))
        else:
            raise ValueError(f"Unknown attention type: {self.attention_type}")
        return module

    def flex_input_fn(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mesh: DeviceMesh) -> Any:
        """The arguments with whole keys and values; TypeError where one of the three is no tensor."""
        names = ("query", "key", "value")
        held = [*args, *(kwargs.pop(name, None) for name in names[len(args) :])]
        for name, x in zip(names, held, strict=False):
            if not isinstance(x, Tensor):
                raise TypeError(f"{name} is a tensor, got {type(x).__name__}")
        held[1:3] = flex_cp_allgather(held[1], held[2], self.seq_dim, mesh.get_group().group_name)
        kwargs.update(zip(names[len(args) :], held[len(args) : 3], strict=True))
        return tuple(held[: len(args)]), kwargs

    def sdpa_input_fn(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mesh: DeviceMesh) -> Any:
        """The arguments with each tensor as a part of a `DTensor`; AssertionError for one that lies otherwise."""

        def spread(x: Any) -> Any:
            if isinstance(x, DTensor):
                if tuple(x.placements) != (Shard(self.seq_dim),):
                    raise AssertionError(
                        f"expected a tensor that is divided along dim {self.seq_dim}, got {x.placements}"
                    )
                return x
            return DTensor.from_local(x, mesh, [Shard(self.seq_dim)], run_check=False) if isinstance(x, Tensor) else x

        return tuple([spread(x) for x in args]), {name: spread(x) for name, x in kwargs.items()}

    def sdpa_output_fn(self, module: Any, inputs: Any, outputs: Any, mesh: DeviceMesh) -> Any:
        """This process's parts of what the module gives."""
        if isinstance(outputs, Tensor):
            return outputs.to_local() if isinstance(outputs, DTensor) else outputs
        return tuple([x.to_local() if isinstance(x, DTensor) else x for x in outputs])

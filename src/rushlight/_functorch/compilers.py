"""`torch._functorch.compilers`: compilers for the graphs of `aot_function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._functorch.aot_autograd import aot_function, aot_module, make_boxed_func
from rushlight._functorch.partitioners import min_cut_rematerialization_partition
from rushlight._interface.base import absent_function
from rushlight.fx.graph_module import GraphModule
from rushlight.nn.modules.module import Module

__all__ = ["memory_efficient_fusion", "nop", "print_compile", "simple_ts_compile", "ts_compile"]

ts_compile = absent_function(
    "torch._functorch.compilers.ts_compile", "there is no TorchScript compiler here; `nop` runs the graph"
)
simple_ts_compile = absent_function(
    "torch._functorch.compilers.simple_ts_compile", "there is no TorchScript compiler here; `nop` runs the graph"
)


def nop(fx_g: GraphModule, _: Any) -> Callable[..., Any]:
    """Run the graph as it is."""
    return make_boxed_func(fx_g.forward)


def print_compile(fx_g: GraphModule, _: Any) -> Callable[..., Any]:
    """Print the graph, and run it."""
    print(fx_g.code)
    return make_boxed_func(fx_g.forward)


def memory_efficient_fusion(fn: Any, **kwargs: Any) -> Any:
    """A function or module whose backward computes cheap values again instead of keeping them."""
    options = {"fw_compiler": nop, "bw_compiler": nop, "partition_fn": min_cut_rematerialization_partition} | kwargs
    return aot_module(fn, **options) if isinstance(fn, Module) else aot_function(fn, **options)

"""`torch._inductor.fx_passes.freezing_patterns`: passes over graphs whose parameters are constants.

Patterns of users, and kernels of bytes for products of dequantized numbers.  The compiler here has passes of its own; these run
where a program calls `freezing_passes`, as `lower_pt2e_quantized_to_x86` of torchao does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._inductor.pattern_matcher import Match, PatternExpr, PatternMatcherPass, register_graph_pattern
from rushlight.ao.quantization.exported import with_integer_products
from rushlight.fx.graph_module import GraphModule

__all__ = ["freezing_passes", "register_freezing_graph_pattern"]

pass_patterns = [PatternMatcherPass() for _ in range(3)]


def register_freezing_graph_pattern(
    pattern: PatternExpr, extra_check: Callable[[Match], bool] = lambda match: True, pass_number: int = 0
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: `freezing_passes` calls the function for occurrences of the pattern, in the pass of this number."""
    while pass_number >= len(pass_patterns):
        pass_patterns.append(PatternMatcherPass())
    return register_graph_pattern(pattern, extra_check, pass_dict=pass_patterns[pass_number])


def freezing_passes(gm: GraphModule, aot_example_inputs: Any) -> None:
    """Run all passes over a graph module, in their order: those of users, then `exported.with_integer_products`."""
    changed = sum(each.apply(gm) for each in pass_patterns)
    if changed:
        gm.graph.eliminate_dead_code()
        gm.graph.lint()
        gm.recompile()
    with_integer_products(gm)

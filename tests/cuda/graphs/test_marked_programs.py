"""What a program's calls leave in memory is marked by all passes together, whichever of them came first."""

from __future__ import annotations

from typing import Any

from rushlight._backends.cuda.program.alone import call_of, sums_alone
from rushlight._backends.cuda.program.laid import convolutions_laid
from rushlight._graph.core import Graph, trace
from rushlight._prims import borders, prim
from rushlight._types.dtype import FLOAT32

_IMAGES, _WEIGHTS = ((2, 4, 128, 128), FLOAT32), ((4, 4, 3, 3), FLOAT32)
_LIE = [(4 << 14, 1 << 14, 128, 1), (36, 9, 3, 1)]


def _sums_of_a_convolution() -> Graph:
    """A call that doubles images, one that adds up a convolution of them, by columns, and one that doubles the sums."""

    def program(x: Any, w: Any) -> Any:
        (x,) = prim.border(x * 2.0, strides=(_LIE[0],))
        y = prim.conv(prim.operand(x, call=0), w, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1)
        (sums,) = prim.border(prim.sum(y, dims=(2, 3)), strides=((1, 2),))
        return prim.border(prim.operand(sums, call=1) * 2.0, strides=((1, 2),))[0]

    assert borders.__name__  # the marks are in the table once that file is loaded
    return trace(program, [_IMAGES, _WEIGHTS])


def _count(graph: Graph, name: str) -> int:
    return sum(node.prim.name == name for node in graph.nodes)


def test_a_mark_of_a_sum_hides_no_convolution() -> None:
    graph = sums_alone(_sums_of_a_convolution(), _LIE, [(1, 2)])
    assert _count(graph, "unfused") == 1
    last = [node for node in graph.nodes if node.prim.name == "border"][1]
    assert {node.prim.name for node in call_of(last.inputs)} == {"sum", "unfused", "conv"}
    laid = convolutions_laid(graph)
    assert _count(laid, "laid_out") == 1 and _count(laid, "unfused") == 1
    assert _count(convolutions_laid(_sums_of_a_convolution()), "laid_out") == 1

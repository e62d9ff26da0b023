"""Large results that are stored row by row bypass the caches: the same values, and only where no row is read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rushlight._backends.cpu.compile import build
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.program.assemble import compile_graph
from rushlight._backends.cpu.program.steps import KernelStep
from rushlight._graph.core import trace
from rushlight._prims import build as kind
from rushlight._prims import prim
from rushlight._types.dtype import FLOAT32

RNG = np.random.default_rng(3)


def centred(x: Any) -> Any:
    mean = prim.sum(x, dims=(1,)) / float(x.shape[1])
    return x - kind.broadcast_to(kind.reshape(mean, (x.shape[0], 1)), x.shape)


def softmax(x: Any) -> Any:
    top = kind.broadcast_to(kind.reshape(prim.amax(x, dims=(1,)), (x.shape[0], 1)), x.shape)
    raised = prim.exp(x - top)
    return raised / kind.broadcast_to(kind.reshape(prim.sum(raised, dims=(1,)), (x.shape[0], 1)), x.shape)


@pytest.mark.parametrize("shape", [(37, 64), (5, 128), (3, 100), (130, 320)])
def test_values(shape: tuple[int, int]) -> None:
    here = host()
    small = here._replace(l3_bytes=256)
    x = RNG.standard_normal(shape).astype(np.float32)
    for body, streams in ((centred, shape[1] % 64 == 0), (softmax, False)):
        graph = trace(body, [(shape, FLOAT32)])
        found = []
        for target in (here, small):
            program = compile_graph(graph, [(shape[1], 1)], target=target)
            storage = build(program)(x.ctypes.data)
            found.append(np.frombuffer(bytes(memoryview(storage)), np.float32))
        np.testing.assert_array_equal(*found)
        steps = [s for s in program.steps if isinstance(s, KernelStep)]
        assert any("stream" in s.key for s in steps) == streams

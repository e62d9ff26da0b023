"""The block kernels of every primitive's samples: as text for NVPTX, to PTX, and by ptxas where it is installed.

LLVM ends the process on what it cannot select, so PTX is made in a child.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.cuda.grids.grid_harness import dense, trace_arrays

from rushlight._backends.cuda.program.assemble import compile_graph
from rushlight._backends.cuda.program.steps import Launch
from rushlight._codegen.blocks import Kernel, kernel_text
from rushlight._codegen.threads import lower, nvptx_text
from rushlight._native.nvidia.ptxas import assemble, find_tool
from rushlight._prims import PRIMITIVES
from rushlight._prims.record import Primitive
from rushlight._types.dtype import BY_NAME

GENERATED = [p for p in PRIMITIVES.values() if p.lower[0] != "extern"]
MANY = 12  # kernels of a primitive that are compiled; samples differ by sizes that change little

_CHILD = """
import sys
from pathlib import Path
from rushlight._native.nvidia.nvptx import ptx_of
for name in sys.argv[2:]:
    print(name, flush=True)
    Path(name + ".ptx").write_text(ptx_of(Path(name).read_text(), sys.argv[1]))
"""


def kernels_of(primitive: Primitive) -> list[Kernel]:
    """The kernels of its samples, each once."""
    found: dict[str, Kernel] = {}
    for arrays, params in primitive.samples():
        arrays = [np.asarray(a) for a in arrays]
        graph = trace_arrays(
            lambda *xs, params=params: primitive(*xs, **params), arrays, [BY_NAME[a.dtype.name] for a in arrays]
        )
        program = compile_graph(graph, [dense(v.shape) for v in graph.inputs], None)
        for step in program.steps:
            if isinstance(step, Launch):
                found.setdefault(kernel_text(step.kernel), step.kernel)
    return list(found.values())


@pytest.mark.slow
@pytest.mark.parametrize("primitive", GENERATED, ids=lambda p: p.name)
def test_kernels_assemble(primitive: Primitive, tmp_path: Path) -> None:
    names = []
    for n, kernel in enumerate(kernels_of(primitive)):
        path = tmp_path / f"{n}.ll"
        path.write_text(nvptx_text(lower(kernel, "sm_90a")))
        names.append(str(path))
    names = names[:MANY]
    done = subprocess.run([sys.executable, "-c", _CHILD, "sm_90a", *names], capture_output=True, text=True)
    assert not done.returncode, f"{done.stdout.split()[-1:]}: {done.stderr[-400:]}"
    for name in names if find_tool("ptxas") else []:
        assert assemble(Path(name + ".ptx").read_text(), "sm_90a").cubin

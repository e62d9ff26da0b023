"""The null backend: every primitive becomes valid machine code for every machine we know of, here or not."""

from __future__ import annotations

import sys

import pytest
from tests.prim_cases import CASES

from rushlight._backends.null import MACHINES, Machine, compile_graph
from rushlight._graph.core import trace
from rushlight._prims import PRIMITIVES, build, prim
from rushlight._transforms.vjp import vjp
from rushlight._types.dtype import FLOAT32, FLOAT64

FIRST = [next(c for c in CASES if c.primitive is p) for p in PRIMITIVES.values()]


def softmax(x):
    e = prim.exp(x - build.keep_dims(prim.amax(x, dims=(1,)), x.shape, (1,)))
    return e / build.keep_dims(prim.sum(e, dims=(1,)), x.shape, (1,))


@pytest.mark.parametrize("machine", MACHINES)
def test_a_fused_kernel_on_every_machine(machine: str) -> None:
    graph = trace(softmax, [((64, 1000), FLOAT32)])
    gradient = vjp(graph, [0])
    for part in (graph, gradient.forward, gradient.backward):
        compiled = compile_graph(part, machine=machine)
        assert compiled.kernels and not compiled.calls
        for kernel in compiled.kernels:
            assert kernel.symbol in kernel.assembly()


def test_vectors_have_the_machines_width() -> None:
    graph = trace(lambda x: x * 2.0 + 1.0, [((1000,), FLOAT32)])
    width = {"x86-64-v2": "xmm", "x86-64-v3": "ymm", "x86-64-v4": "zmm", "aarch64": "v0.4s"}
    for name, register in width.items():
        assert register in compile_graph(graph, machine=name).kernels[0].assembly(), name
    assert "zmm" not in compile_graph(graph, machine="x86-64-v3").kernels[0].assembly()


@pytest.mark.parametrize("machine", ["aarch64", "x86-64-v2"])
@pytest.mark.parametrize("case", FIRST, ids=lambda c: c.primitive.name)
def test_every_primitive_compiles(case, machine: str) -> None:
    compiled = compile_graph(case.graph(), machine=machine)
    for kernel in compiled.kernels:
        kernel.module()
    if compiled.kernels:
        assert compiled.kernels[0].object_code()


def test_library_calls_are_named() -> None:
    compiled = compile_graph(trace(lambda a, b: build.dot(a, b) + 1.0, [((64, 64), FLOAT64)] * 2))
    assert compiled.calls == ["dot"]


def test_it_does_not_run_and_needs_no_running_backend() -> None:
    compiled = compile_graph(trace(lambda x: x + 1.0, [((3,), FLOAT32)]))
    assert compiled.results == [((3,), FLOAT32)] and "add" in compiled.explain()
    with pytest.raises(RuntimeError, match="does not run"):
        compiled(None)
    with pytest.raises(KeyError):
        compile_graph(trace(lambda x: x, [((3,), FLOAT32)]), machine="vax")


def test_nothing_of_the_cpu_backend_is_loaded(run_python) -> None:
    code = (
        "import sys; from rushlight._backends.null import compile_graph; from rushlight._graph.core import trace; "
        "from rushlight._types.dtype import FLOAT32; from rushlight._prims import prim; "
        "c = compile_graph(trace(lambda x: prim.exp(x), [((8,), FLOAT32)])); c.kernels[0].object_code(); "
        "print('rushlight._native.jit' in sys.modules)"
    )
    done = run_python("-c", code, check=True)
    assert done.stdout.split() in (["False"], ["True"])  # the package itself may have loaded it


def test_a_machine_of_ones_own() -> None:
    machine = Machine("x86_64-unknown-linux-gnu", "znver3", 32, ("avx2", "fma"))
    kernel = compile_graph(trace(lambda x: x * x, [((100,), FLOAT32)]), machine=machine).kernels[0]
    assert "vmulps" in kernel.assembly() and sys.byteorder == "little"

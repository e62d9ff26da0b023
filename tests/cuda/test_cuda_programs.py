"""Tensors of emulated GPUs computed by block kernels: programs with inputs anywhere, numbers, in-place results."""

from __future__ import annotations

import pytest
from tests.cuda.emulated import outcomes_of

PRELUDE = """
import numpy as np, rushlight as torch
torch.manual_seed(0)
def same(f, *xs):
    got, want = f(*[x.cuda() for x in xs]), f(*xs)
    assert got.device.type == "cuda"
    torch.testing.assert_close(got.cpu(), want, rtol=1e-5, atol=1e-6)
"""

CASES = {
    "softmax": "same(lambda x: torch.softmax(x * 2 + 1, 1).sum(0), torch.randn(5, 7))",
    "unaligned": "same(lambda x: x[1:] * x[:-1], torch.randn(301))",
    "numbers": "same(lambda x: x.mul(0.25).add_(3), torch.randn(40))",
    "in place": """
x = torch.randn(6, 6).cuda(); y = x.cpu()
x.t().add_(x.clone()); y.t().add_(y.clone())
torch.testing.assert_close(x.cpu(), y)
""",
    "gradient": """
def grad(x):
    x = x.detach().requires_grad_()
    torch.nn.functional.layer_norm(x, (8,)).pow(3).sum().backward()
    return x.grad
same(grad, torch.randn(4, 8))
""",
    "reports": """
from rushlight._backends.cuda.program.assemble import compile_graph
from rushlight._backends.cuda.program.executable import CudaExecutable
from rushlight._backends.registry import backend_of
from rushlight._graph.core import trace
from rushlight._prims import prim
from rushlight._types.dtype import FLOAT32
x = torch.ones(4, 8).cuda()
backend = backend_of(x.device)
graph = trace(lambda v: prim.sum(v * v, dims=(1,)), [((4, 8), FLOAT32)])
made = backend.compile(graph, [(8, 1)], [(1,)], x.device)
assert [s.name for s in made.steps()] == ["rows"] and "reduce" in made.explain()
((name, text),) = made.assembly()
assert name == "rows" and ".visible .entry rows" in text and "threads a block" in text
result, seconds = made.timed([x.data_ptr()], iter([0.0, 2.5]).__next__)
assert seconds == [2.5] and result.nbytes == 16
""",
    "a step over many parameters": """
from rushlight._backends.registry import backend_of
shapes = [(5, 3), (5000,), (1,), (70, 70)]
ours = [torch.nn.Parameter(torch.randn(*s)) for s in shapes]
theirs = [torch.nn.Parameter(p.detach().cuda()) for p in ours]
launched = []
backend = backend_of(theirs[0].device)
update = backend.multi_tensor.update_rows
backend.multi_tensor.update_rows = lambda *a: (launched.append(a), update(*a))
for step in range(2):
    for p, q in zip(ours, theirs):
        p.grad = torch.randn(*p.shape)
        q.grad = p.grad.cuda()
    if not step:
        a, b = torch.optim.AdamW(ours, lr=0.1), torch.optim.AdamW(theirs, lr=0.1)
    a.step(), b.step()
assert len(launched) == 2
for p, q in zip(ours, theirs):
    assert torch.equal(p, q.cpu())
""",
    "compiled": """
same(torch.compile(lambda x: (torch.softmax(x * 2 + 1, -1) @ x.T).sum(0)), torch.randn(20, 30))
""",
    "a gradient of another device": """
x = torch.randn(3).cuda().requires_grad_()
try:
    (x * 2).backward(torch.ones(3))
except RuntimeError as error:
    assert "expected device cuda:0 but got cpu" in str(error), error
else:
    raise AssertionError("a gradient on the host was taken")
""",
    "probabilities": """
f = torch.nn.functional.binary_cross_entropy
same(f, torch.rand(5, 7), torch.rand(5, 7))
with torch.autocast("cuda"):
    try:
        f(torch.rand(3).cuda(), torch.rand(3).cuda())
    except RuntimeError as error:
        assert "unsafe to autocast" in str(error), error
    else:
        raise AssertionError("a probability of 16 bits was taken")
""",
    "an index": """
try:
    torch.randn(4).cuda()[torch.tensor([7]).cuda()].cpu()
except (RuntimeError, IndexError) as error:
    assert "out of bounds" in str(error), error
else:
    raise AssertionError("an index out of range was read")
""",
}


@pytest.fixture(scope="module")
def outcomes():
    return outcomes_of(PRELUDE, CASES)


@pytest.mark.parametrize("name", CASES)
def test_on_an_emulated_gpu(name, outcomes):
    assert outcomes[name] == ""


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("nn.functional.binary_cross_entropy(ones * 1.5, ones)", "all elements of input should be between 0 and 1"),
        (
            "fake_quantize_per_channel_affine(ones, ones, ones.int() * 300, 0, 0, 255)",
            "`zero_point` must be between `quant_min` and `quant_max`",
        ),
    ],
)
def test_unfulfilled_requirement(call: str, text: str) -> None:
    """A failed check of a kernel ends the context, so a process for each."""
    program = f"""
ones = torch.ones(2).cuda()
try:
    torch.{call}.cpu()
except RuntimeError as error:
    assert {text!r} in str(error), error
else:
    raise AssertionError("no error")
"""
    assert outcomes_of(PRELUDE, {"outside": program}) == {"outside": ""}

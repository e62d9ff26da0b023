"""Kernels within `torch.compile`, and operators made of them."""

import pytest

import rushlight as torch
from rushlight import triton
from rushlight.triton import language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK_SIZE: tl.constexpr):
    at = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    tl.store(out + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


def add(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK_SIZE"]),)](x, y, out, n, BLOCK_SIZE=4)
    return out


def test_a_kernel_in_one_graph() -> None:
    compiled = torch.compile(lambda x, y: add(x * 2, y).relu(), fullgraph=True)
    for _ in range(3):
        x, y = torch.randn(4), torch.randn(4)
        torch.testing.assert_close(compiled(x, y), (2 * x + y).relu())


def test_triton_op() -> None:
    @torch.library.triton_op("triton_language::add", mutates_args={})
    def add_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        n = out.numel()
        torch.library.wrap_triton(add_kernel)[(triton.cdiv(n, 16),)](x, y, out, n, BLOCK_SIZE=16)
        return out

    add_op.register_autograd(lambda ctx, grad: (grad, grad))
    x, y = torch.randn(40, requires_grad=True), torch.randn(40, requires_grad=True)
    out = add_op(x, y)
    out.sum().backward()
    assert torch.equal(out, x + y) and torch.equal(x.grad, torch.ones(40))
    compiled = torch.compile(lambda x, y: add_op(x, y) * 2, fullgraph=True)
    torch.testing.assert_close(compiled(x.detach(), y.detach()), 2 * (x + y).detach())


# ***** operators with gradients, Functions, kernels that change their arguments *****


@triton.jit
def sine(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.sin(tl.load(x + at, mask=at < n)), mask=at < n)


@triton.jit
def sine_grad(x, grad, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.cos(tl.load(x + at, mask=at < n)) * tl.load(grad + at, mask=at < n), mask=at < n)


@triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"], restore_value=["x"])
@triton.jit
def increase(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


def launched(kernel, *xs):
    out = torch.empty_like(xs[0])
    torch.library.wrap_triton(kernel)[(triton.cdiv(out.numel(), 64),)](*xs, out, out.numel(), BLOCK=64)
    return out


@torch.library.triton_op("triton_language::sine", mutates_args={})
def sine_op(x: torch.Tensor) -> torch.Tensor:
    return launched(sine, x)


@torch.library.triton_op("triton_language::sine_grad", mutates_args={})
def sine_grad_op(x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    return launched(sine_grad, x, grad)


sine_op.register_autograd(
    lambda ctx, grad: sine_grad_op(*ctx.saved_tensors, grad.contiguous()),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return launched(sine, x)

    @staticmethod
    def backward(ctx, grad):
        return launched(sine_grad, *ctx.saved_tensors, grad.contiguous())


@pytest.mark.parametrize("function", [sine_op, Sine.apply], ids=["operator", "Function"])
@pytest.mark.parametrize("dynamic", [None, True, False])
def test_gradients_and_sizes(function, dynamic: bool | None) -> None:
    compiled = torch.compile(lambda x: (function(x * 2) + 1).sum(), fullgraph=True, dynamic=dynamic)
    for n in (10, 33, 129):
        x = torch.randn(n, requires_grad=True)
        compiled(x).backward()
        torch.testing.assert_close(x.grad, 2 * torch.cos(2 * x.detach()))


def test_kernels_that_change_an_argument() -> None:
    """A view of a value of the graph, by a kernel that is tuned within."""

    def program(x):
        y = x * 2
        part = y[2:]
        increase[lambda meta: (triton.cdiv(part.numel(), meta["BLOCK"]),)](part, part.numel())
        return y + x

    compiled = torch.compile(program, fullgraph=True)
    for n in (7, 40, 90):
        x = torch.randn(n)
        wanted = 3 * x
        wanted[2:] += 1
        torch.testing.assert_close(compiled(x), wanted)


def test_an_operator_says_what_its_results_are() -> None:
    """On tensors without data its Python runs, and launches do nothing."""
    found = sine_op(torch.empty(3, 4, device="meta"))
    assert found.is_meta and found.shape == (3, 4)
    increase[(1,)](found, 12)
    torch.library.opcheck(sine_op, (torch.randn(5, requires_grad=True),))

    class Module(torch.nn.Module):
        def forward(self, x):
            return sine_op(x) + 1

    exported = torch.export.export(Module(), (torch.randn(4),)).module()
    torch.testing.assert_close(exported(torch.ones(4)), torch.ones(4).sin() + 1)

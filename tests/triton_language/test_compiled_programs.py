"""Kernels within `torch.compile`, and operators made of them."""

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

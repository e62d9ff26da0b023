"""Kernels in the Triton language: layer normalisation with its gradient, as a `torch.autograd.Function`.

python -m rushlight examples/triton_layer_norm.py     with rushlight, on the CPU, compiled
python examples/triton_layer_norm.py                  with PyTorch and Triton, on a GPU: the same program
"""

import argparse

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def forward_kernel(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n
    x = tl.load(x_ptr + row * stride + cols, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n
    centred = tl.where(inside, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / n + eps)
    w, b = tl.load(w_ptr + cols, mask=inside), tl.load(b_ptr + cols, mask=inside)
    tl.store(y_ptr + row * stride + cols, centred * rstd * w + b, mask=inside)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


@triton.jit
def backward_kernel(x_ptr, dy_ptr, dx_ptr, w_ptr, dw_ptr, db_ptr, mean_ptr, rstd_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n
    x = tl.load(x_ptr + row * stride + cols, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride + cols, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=inside, other=0.0)
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    normal = tl.where(inside, (x - mean) * rstd, 0.0)
    scaled = w * dy
    along = tl.sum(normal * scaled, axis=0) / n
    average = tl.sum(scaled, axis=0) / n
    tl.store(dx_ptr + row * stride + cols, (scaled - normal * along - average) * rstd, mask=inside)
    # Rows of all programs meet in the gradients of the weights.
    tl.atomic_add(dw_ptr + cols, dy * normal, mask=inside)
    tl.atomic_add(db_ptr + cols, dy, mask=inside)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        rows, n = x.shape
        y = torch.empty_like(x)
        mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        block = triton.next_power_of_2(n)
        forward_kernel[(rows,)](x, y, weight, bias, mean, rstd, x.stride(0), n, eps, BLOCK=block)
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.block = block
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        dx, dw, db = torch.empty_like(x), torch.zeros_like(weight), torch.zeros_like(weight)
        rows, n = x.shape
        dy = dy.contiguous()
        backward_kernel[(rows,)](x, dy, dx, weight, dw, db, mean, rstd, x.stride(0), n, BLOCK=ctx.block)
        return dx, dw, db, None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--cols", type=int, default=500)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(args.rows, args.cols, device=DEVICE, requires_grad=True)
    weight = torch.rand(args.cols, device=DEVICE, requires_grad=True)
    bias = torch.rand(args.cols, device=DEVICE, requires_grad=True)
    upstream = torch.randn_like(x)

    y = LayerNorm.apply(x, weight, bias, 1e-5)
    ours = torch.autograd.grad(y, (x, weight, bias), upstream)
    wanted = torch.nn.functional.layer_norm(x, (args.cols,), weight, bias, 1e-5)
    theirs = torch.autograd.grad(wanted, (x, weight, bias), upstream)
    torch.testing.assert_close(y, wanted, atol=1e-4, rtol=1e-4)
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-3)
    print("values and gradients agree with torch.nn.functional.layer_norm")
    kernel = triton.testing.do_bench(lambda: LayerNorm.apply(x, weight, bias, 1e-5))
    formula = triton.testing.do_bench(lambda: torch.nn.functional.layer_norm(x, (args.cols,), weight, bias, 1e-5))
    print(f"forward: kernel {kernel:.4f} ms, torch {formula:.4f} ms")


if __name__ == "__main__":
    main()

"""A fused kernel in the Triton language: bias, GELU and dropout in one pass, with `autotune` and Philox.

python -m rushlight examples/triton_fused_gelu.py     with rushlight, on the CPU, compiled
python examples/triton_fused_gelu.py                  with PyTorch and Triton, on a GPU: the same program
"""

import argparse

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def gelu(x):
    return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.autotune([triton.Config({"BLOCK": block}, num_warps=4) for block in (256, 1024, 4096)], key=["n"])
@triton.jit
def fused_kernel(x_ptr, bias_ptr, out_ptr, n, features, p, seed, BLOCK: tl.constexpr, DROP: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside).to(tl.float32)
    bias = tl.load(bias_ptr + at % features, mask=inside).to(tl.float32)
    y = gelu(x + bias)
    if DROP:
        y = tl.where(tl.rand(seed, at) > p, y / (1 - p), 0.0)
    tl.store(out_ptr + at, y.to(out_ptr.dtype.element_ty), mask=inside)


def fused(x, bias, p=0.0, seed=0):
    out = torch.empty_like(x)
    n = x.numel()
    fused_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, bias, out, n, bias.numel(), p, seed, DROP=p > 0)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--features", type=int, default=768)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(args.rows, args.features, device=DEVICE)
    bias = torch.randn(args.features, device=DEVICE)
    torch.testing.assert_close(fused(x, bias), torch.nn.functional.gelu(x + bias), atol=1e-5, rtol=1e-5)

    dropped = fused(x, bias, p=0.25, seed=7)
    share = (dropped == 0).float().mean().item()
    print(f"best block {fused_kernel.best_config.kwargs['BLOCK']}, dropped {share:.3f} of the elements")
    assert abs(share - 0.25) < 0.02
    assert torch.equal(dropped, fused(x, bias, p=0.25, seed=7))
    kernel = triton.testing.do_bench(lambda: fused(x, bias))
    formula = triton.testing.do_bench(lambda: torch.nn.functional.gelu(x + bias))
    print(f"kernel {kernel:.4f} ms, torch {formula:.4f} ms")


if __name__ == "__main__":
    main()

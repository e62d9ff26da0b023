"""A kernel in the Triton language: the sum of two vectors.

python -m rushlight examples/triton_vector_add.py     with rushlight, on the CPU, compiled
python examples/triton_vector_add.py                  with PyTorch and Triton, on a GPU: the same program
"""

import argparse

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # Each program adds one block; the mask guards the end of the last one.
    at = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    y = tl.load(y_ptr + at, mask=inside)
    tl.store(out_ptr + at, x + y, mask=inside)


def add(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=1024)
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=98_432)
    args = parser.parse_args()
    torch.manual_seed(0)
    x, y = (torch.rand(args.size, device=DEVICE) for _ in range(2))
    difference = (add(x, y) - (x + y)).abs().max().item()
    print(f"largest difference {difference}")
    assert difference == 0
    kernel, formula = triton.testing.do_bench(lambda: add(x, y)), triton.testing.do_bench(lambda: x + y)
    print(f"kernel {kernel:.4f} ms, x + y {formula:.4f} ms")


if __name__ == "__main__":
    main()

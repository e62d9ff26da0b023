"""A kernel in the Triton language: softmax of the rows of a matrix, each read once.

python -m rushlight examples/triton_softmax.py     with rushlight, on the CPU, compiled
python examples/triton_softmax.py                  with PyTorch and Triton, on a GPU: the same program
"""

import argparse

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def softmax_kernel(out_ptr, x_ptr, x_stride, out_stride, n_rows, n_cols, BLOCK: tl.constexpr):
    # Programs take rows in turn: row, row + number of programs, ...
    first, step = tl.program_id(0), tl.num_programs(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    for row in tl.range(first, n_rows, step):
        x = tl.load(x_ptr + row * x_stride + cols, mask=inside, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_stride + cols, e / tl.sum(e, axis=0), mask=inside)


def softmax(x):
    rows, cols = x.shape
    out = torch.empty_like(x)
    programs = min(rows, 4 * torch.get_num_threads())
    softmax_kernel[(programs,)](out, x, x.stride(0), out.stride(0), rows, cols, BLOCK=triton.next_power_of_2(cols))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--cols", type=int, default=781)
    args = parser.parse_args()
    torch.manual_seed(0)
    x = torch.randn(args.rows, args.cols, device=DEVICE)
    torch.testing.assert_close(softmax(x), torch.softmax(x, dim=1))
    kernel, formula = triton.testing.do_bench(lambda: softmax(x)), triton.testing.do_bench(lambda: torch.softmax(x, 1))
    print(f"kernel {kernel:.4f} ms, torch.softmax {formula:.4f} ms")


if __name__ == "__main__":
    main()

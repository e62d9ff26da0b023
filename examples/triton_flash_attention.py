"""A kernel in the Triton language: causal attention without the matrix of scores in memory.

python -m rushlight examples/triton_flash_attention.py     with rushlight, on the CPU, compiled
python examples/triton_flash_attention.py                  with PyTorch and Triton, on a GPU: the same program
"""

import argparse

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, scale, stride_head, stride_row, length,
    HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    tile, head = tl.program_id(0), tl.program_id(1)
    rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    cols, dims = tl.arange(0, BLOCK_N), tl.arange(0, HEAD)
    start = head * stride_head
    q = tl.load(q_ptr + start + rows[:, None] * stride_row + dims[None, :], mask=rows[:, None] < length, other=0.0)

    # A running maximum m, the sum of the exponentials below it, and the weighted sum of values.
    m = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD], tl.float32)
    end = tl.minimum((tile + 1) * BLOCK_M, length) if CAUSAL else length
    for first in range(0, end, BLOCK_N):
        at = first + cols
        k = tl.load(k_ptr + start + at[None, :] * stride_row + dims[:, None], mask=at[None, :] < length, other=0.0)
        score = tl.dot(q, k) * (scale * 1.4426950408889634)
        seen = at[None, :] < length
        if CAUSAL:
            seen = seen & (rows[:, None] >= at[None, :])
        score = tl.where(seen, score, -float("inf"))
        larger = tl.maximum(m, tl.max(score, 1))
        weight = tl.exp2(score - larger[:, None])
        fade = tl.exp2(m - larger)
        v = tl.load(v_ptr + start + at[:, None] * stride_row + dims[None, :], mask=at[:, None] < length, other=0.0)
        acc = tl.dot(weight.to(v.dtype), v, acc * fade[:, None])
        total = total * fade + tl.sum(weight, 1)
        m = larger
    out = out_ptr + start + rows[:, None] * stride_row + dims[None, :]
    tl.store(out, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=rows[:, None] < length)


def attention(q, k, v, causal=True):
    batch, heads, length, dim = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(length, 64), batch * heads)
    attention_kernel[grid](
        q, k, v, out, dim**-0.5, q.stride(1), q.stride(2), length,
        HEAD=dim, BLOCK_M=64, BLOCK_N=32, CAUSAL=causal,
    )  # fmt: skip
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=200)
    parser.add_argument("--heads", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, args.heads, args.length, 64, device=DEVICE).bfloat16() for _ in range(3))
    for causal in (True, False):
        wanted = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
        torch.testing.assert_close(attention(q, k, v, causal).float(), wanted, atol=2e-2, rtol=2e-2)
    print("causal and full attention agree with scaled_dot_product_attention")
    kernel = triton.testing.do_bench(lambda: attention(q, k, v))
    formula = triton.testing.do_bench(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))
    print(f"kernel {kernel:.4f} ms, torch {formula:.4f} ms")


if __name__ == "__main__":
    main()

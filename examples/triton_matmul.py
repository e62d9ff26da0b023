"""A kernel in the Triton language: a matrix product in tiles, with a fused activation.

python -m rushlight examples/triton_matmul.py     with rushlight, on the CPU, compiled
python examples/triton_matmul.py                  with PyTorch and Triton, on a GPU: the same program
"""

import argparse

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    # Programs in groups of GROUP rows of tiles share what they read.
    pid = tl.program_id(axis=0)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    in_group = GROUP * tiles_n
    first = (pid // in_group) * GROUP
    rows = min(tiles_m - first, GROUP)
    tile_m, tile_n = first + (pid % in_group) % rows, (pid % in_group) // rows

    m = (tile_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    n = (tile_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + m[:, None] * stride_am + k[None, :] * stride_ak
    b_ptrs = b_ptr + k[:, None] * stride_bk + n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_K)):
        left = K - step * BLOCK_K
        a = tl.load(a_ptrs, mask=k[None, :] < left, other=0.0)
        b = tl.load(b_ptrs, mask=k[:, None] < left, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc)

    m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + m[:, None] * stride_cm + n[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def matmul(a, b, activation=""):
    (M, K), (_, N) = a.shape, b.shape
    c = torch.empty(M, N, device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
    matmul_kernel[grid](
        a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP=4, ACTIVATION=activation,
    )  # fmt: skip
    return c


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=250)
    args = parser.parse_args()
    torch.manual_seed(0)
    a, b = (torch.randn(args.size, args.size, device=DEVICE) for _ in range(2))
    torch.testing.assert_close(matmul(a, b), a @ b, atol=1e-3, rtol=1e-3)
    wanted = torch.nn.functional.leaky_relu(a @ b, 0.01)
    torch.testing.assert_close(matmul(a, b, "leaky_relu"), wanted, atol=1e-3, rtol=1e-3)
    half = matmul(a.bfloat16(), b.bfloat16())
    torch.testing.assert_close(half.float(), a.bfloat16().float() @ b.bfloat16().float(), atol=0.25, rtol=0.02)
    kernel, formula = triton.testing.do_bench(lambda: matmul(a, b)), triton.testing.do_bench(lambda: a @ b)
    print(f"kernel {kernel:.4f} ms, a @ b {formula:.4f} ms")


if __name__ == "__main__":
    main()

"""`torch.nn.attention.varlen` beside NumPy, sequence by sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out

COUNTS = [(3, 5), (1, 4), (0, 2), (4, 4), (5, 3)]


def plain(q: Any, k: Any, v: Any, window: tuple[int, int], scale: float) -> tuple[Any, Any]:
    """Attention of one sequence, (L, H, D) each, and the logarithms of the denominators (H, L)."""
    times = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, times, 1), np.repeat(v, times, 1)
    scores = np.einsum("lhd,shd->hls", q, k) * scale
    stands = np.arange(q.shape[0])[:, None] + k.shape[0] - q.shape[0]
    token = np.arange(k.shape[0])[None, :]
    taking = np.ones_like(stands - token, bool)
    if window[0] >= 0:
        taking &= token >= stands - window[0]
    if window[1] >= 0:
        taking &= token <= stands + window[1]
    weights = np.where(taking, np.exp(scores), 0)
    total = weights.sum(-1)
    out = np.einsum("hls,shd->lhd", weights / np.where(total, total, 1)[..., None], v)
    return out, np.where(total, np.log(np.where(total, total, 1)), np.inf)


def packed(heads: int, kv_heads: int, dtype: str = "float32") -> tuple[list[Any], list[Any], Any, Any]:
    rng = np.random.default_rng(0)
    qs = [rng.standard_normal((n, heads, 8)).astype(dtype) for n, _ in COUNTS]
    kvs = [rng.standard_normal((2, m, kv_heads, 8)).astype(dtype) for _, m in COUNTS]
    ends = [torch.tensor([0, *np.cumsum([c[i] for c in COUNTS])], dtype=torch.int32) for i in range(2)]
    return qs, kvs, ends[0], ends[1]


def tensors(qs: list[Any], kvs: list[Any]) -> list[Any]:
    arrays = [np.concatenate(qs), *(np.concatenate([kv[i] for kv in kvs]) for i in range(2))]
    return [torch.tensor(x) for x in arrays]


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (2, 0), (1, 1), (-1, 2)])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_windows_and_groups(window: tuple[int, int], kv_heads: int) -> None:
    qs, kvs, cu_q, cu_k = packed(4, kv_heads)
    options: Any = {"window_size": window, "scale": 0.4, "enable_gqa": kv_heads != 4}
    q, k, v = tensors(qs, kvs)
    out, lse = varlen_attn(q, k, v, cu_q, cu_k, 5, 5, return_aux=AuxRequest(lse=True), **options)
    wanted = [plain(one, kv[0], kv[1], window, 0.4) for one, kv in zip(qs, kvs, strict=True)]
    np.testing.assert_allclose(out.numpy(), np.concatenate([w[0] for w in wanted]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lse.numpy(), np.concatenate([w[1] for w in wanted], -1), rtol=1e-5, atol=1e-6)
    held = torch.empty_like(out)
    assert varlen_attn_out(held, q, k, v, cu_q, cu_k, 5, 5, **options) is held and torch.equal(held, out)


def test_pages_and_counts_of_keys() -> None:
    """Tokens in pages of three, in any order, the last page filled in part; and the same keys in slots."""
    qs, kvs, cu_q, _ = packed(2, 1)
    q = torch.tensor(np.concatenate(qs))
    used = torch.tensor([m for _, m in COUNTS], dtype=torch.int32)
    order = iter(np.random.default_rng(1).permutation(10))
    pool = np.full((2, 10, 3, 1, 8), np.nan, np.float32)
    pool[:, :, :] = 9.0
    table = np.full((len(COUNTS), 2), -1, np.int32)
    for i, kv in enumerate(kvs):
        for page in range(-(-kv.shape[1] // 3)):
            table[i, page] = next(order)
            part = kv[:, 3 * page : 3 * page + 3]
            pool[:, table[i, page], : part.shape[1]] = part
    wanted = np.concatenate([plain(one, kv[0], kv[1], (-1, 0), 8**-0.5)[0] for one, kv in zip(qs, kvs, strict=True)])
    options: Any = {"window_size": (-1, 0), "enable_gqa": True, "seqused_k": used}
    k, v = torch.tensor(pool[0]), torch.tensor(pool[1])
    found = varlen_attn(q, k, v, cu_q, None, 5, 5, block_table=torch.tensor(table), **options)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)
    slots = np.full((2, len(COUNTS) * 6, 1, 8), 7.0, np.float32)
    for i, kv in enumerate(kvs):
        slots[:, 6 * i : 6 * i + kv.shape[1]] = kv
    starts = torch.arange(0, 6 * len(COUNTS) + 1, 6, dtype=torch.int32)
    found = varlen_attn(q, torch.tensor(slots[0]), torch.tensor(slots[1]), cu_q, starts, 5, 6, **options)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_gradients() -> None:
    qs, kvs, cu_q, cu_k = packed(2, 1, "float64")
    inputs = [x.requires_grad_() for x in tensors(qs, kvs)]
    attend = lambda q, k, v: varlen_attn(q, k, v, cu_q, cu_k, 5, 5, window_size=(-1, 0), enable_gqa=True)
    assert torch.autograd.gradcheck(attend, inputs)


def test_what_is_refused() -> None:
    qs, kvs, cu_q, cu_k = packed(4, 2)
    q, k, v = tensors(qs, kvs)
    with pytest.raises(ValueError, match="Hq=4 and Hkv=2. Try setting enable_gqa"):
        varlen_attn(q, k, v, cu_q, cu_k, 5, 5)
    with pytest.raises(ValueError, match="window_size must have length 2, got 1"):
        varlen_attn(q, k, v, cu_q, cu_k, 5, 5, enable_gqa=True, window_size=(1,))
    with pytest.raises(ValueError, match="block_table needs seqused_k"):
        varlen_attn(q, k[None], v[None], cu_q, None, 5, 5, enable_gqa=True, block_table=cu_k[None])
    with pytest.raises(RuntimeError, match="seqused_k is an inference-only parameter"):
        varlen_attn(q.requires_grad_(), k, v, cu_q, cu_k, 5, 5, enable_gqa=True, seqused_k=cu_k[1:])

"""Attention with a score and mask of one's own, block masks, causal biases, the choice of a backend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.nn.attention import SDPBackend, sdpa_kernel
from rushlight.nn.attention.bias import CausalBias, CausalVariant, causal_lower_right, causal_upper_left
from rushlight.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    or_masks,
)


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def inputs(*heads: int, dtype: Any = torch.float64) -> list[Any]:
    rng = np.random.default_rng(0)
    shapes = [(2, heads[0], 5, 4), (2, heads[-1], 6, 4), (2, heads[-1], 6, 3)]
    return [torch.tensor(rng.standard_normal(s), dtype=dtype, requires_grad=True) for s in shapes]


def attended(q: Any, k: Any, v: Any, bias: Any, mask: Any) -> tuple[Any, Any, Any]:
    """The definition in NumPy: result, logarithm of the denominator, largest score."""
    scores = np.einsum("bhqe,bhke->bhqk", q, k) / math.sqrt(q.shape[-1]) + bias
    scores = np.where(mask, scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.nan_to_num(np.exp(scores - largest))
        lse = np.log(weights.sum(-1)) + largest[..., 0]
        weights = np.nan_to_num(weights / weights.sum(-1, keepdims=True))
    return np.einsum("bhqk,bhke->bhqe", weights, v), lse, largest[..., 0]


def test_score_and_mask_are_applied_to_every_pair() -> None:
    q, k, v = inputs(3)
    table = torch.tensor(np.random.default_rng(1).standard_normal((3, 6)), requires_grad=True)
    blocks = create_block_mask(lambda b, h, q, k: q > k + b, None, None, 5, 6, BLOCK_SIZE=2)
    out, aux = flex_attention(
        q, k, v, lambda s, b, h, q, k: s + table[h, k] * (q + 1), blocks, return_aux=AuxRequest(True, True)
    )
    rows, columns = np.arange(5)[:, None], np.arange(6)
    bias = table.detach().numpy()[:, None] * (rows + 1)
    expected = attended(
        *(t.detach().numpy() for t in (q, k, v)), bias[None], rows > columns + np.arange(2)[:, None, None, None]
    )
    for got, wanted in zip((out, aux.lse, aux.max_scores), expected, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), wanted, rtol=1e-12, atol=1e-12)
    assert not out[:, :, 0].any() and aux.lse.dtype is torch.float64
    assert flex_attention(q, k, v, return_lse=True)[1].shape == (2, 3, 5)


def test_gradients_reach_everything_that_takes_part() -> None:
    q, k, v = inputs(2)
    slope = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)
    blocks = create_block_mask(and_masks(causal, lambda b, h, q, k: q > 0), None, None, 5, 6, BLOCK_SIZE=2)

    def attend(q: Any, k: Any, v: Any, slope: Any) -> Any:
        return flex_attention(q, k, v, lambda s, b, h, i, j: torch.tanh(s + slope[h] * (i - j)), blocks)

    given = [
        q[:1, :, :3].detach().requires_grad_(),
        k[:1, :, :3].detach().requires_grad_(),
        v[:1, :, :3].detach().requires_grad_(),
        slope,
    ]
    blocks = blocks._adjust(3, 3)
    assert torch.autograd.gradcheck(attend, given)
    first = torch.autograd.grad(attend(*given).square().sum(), given[0], create_graph=True)[0]
    assert torch.autograd.grad(first.sum(), given[1])[0].isfinite().all()


def test_grouped_heads_layout_and_dtype() -> None:
    q, k, v = inputs(4, 2)
    out = flex_attention(q, k, v, enable_gqa=True)
    expected = flex_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    np.testing.assert_array_equal(out.detach().numpy(), expected.detach().numpy())
    moved = torch.ones(2, 5, 4, 4).transpose(1, 2)
    assert flex_attention(moved, moved, moved).stride() == moved.stride()
    half = [t.detach().bfloat16() for t in (q, k, v)]
    out, lse = flex_attention(*half, enable_gqa=True, return_lse=True)
    assert out.dtype is torch.bfloat16 and lse.dtype is torch.float32


REFUSED = [
    (((1, 1, 2), (1, 1, 2), (1, 1, 2)), {}, NotImplementedError, "4D"),
    (((1, 1, 2, 4), (1, 1, 2, 5), (1, 1, 2, 4)), {}, ValueError, "embedding"),
    (((2, 1, 2, 4), (1, 1, 2, 4), (1, 1, 2, 4)), {}, ValueError, "batch size"),
    (((1, 4, 2, 4), (1, 2, 2, 4), (1, 2, 2, 4)), {}, ValueError, "enable_gqa=True"),
    (((1, 3, 2, 4), (1, 2, 2, 4), (1, 2, 2, 4)), {"enable_gqa": True}, ValueError, "multiple"),
    (((1, 1, 2, 4),) * 3, {"return_lse": True, "return_aux": AuxRequest()}, ValueError, "Cannot specify both"),
    (((1, 1, 2, 4),) * 3, {"kernel_options": {"OUTPUT_LOGSUMEXP": True}}, AssertionError, "OUTPUT_LOGSUMEXP"),
    (((1, 1, 2, 4),) * 3, {"block_mask": (2, 3)}, ValueError, "larger length"),
    (((1, 1, 2, 4),) * 3, {"block_mask": (1, 2)}, ValueError, "smaller length"),
]


@pytest.mark.parametrize(("shapes", "options", "error", "words"), REFUSED)
def test_refuses_as_pytorch(shapes: Any, options: Any, error: Any, words: str) -> None:
    if "block_mask" in options:
        options = {"block_mask": create_block_mask(causal, 1, 1, *options["block_mask"])}
    with pytest.raises(error, match=words):
        flex_attention(*[torch.zeros(s) for s in shapes], **options)


def test_block_masks_hold_what_the_mask_says() -> None:
    mask = or_masks(and_masks(causal, lambda b, h, q, k: q - k <= 20), lambda b, h, q, k: (k < 16) & (h == 1))
    blocks = create_block_mask(mask, 2, 2, 50, 48, BLOCK_SIZE=16)
    whole = create_mask(mask, 2, 2, 50, 48).numpy()
    padded = np.zeros((2, 2, 64, 48), bool)
    padded[:, :, :50] = whole
    counts = padded.reshape(2, 2, 4, 16, 3, 16).sum((3, 5))
    np.testing.assert_array_equal(blocks.to_dense().numpy(), counts > 0)
    np.testing.assert_array_equal(blocks.full_kv_num_blocks.numpy(), (counts == 256).sum(-1))
    np.testing.assert_array_equal((blocks.q_num_blocks + blocks.full_q_num_blocks).numpy(), (counts > 0).sum(-2))
    assert blocks.shape == (2, 2, 50, 48) and blocks.numel() == 9600
    assert blocks.sparsity() == pytest.approx(100 * (1 - (counts > 0).sum() * 256 / 9600))
    one = blocks[1, 0]
    assert one.shape == (1, 1, 50, 48) and one.kv_num_blocks.tolist() == blocks.kv_num_blocks[1:2, :1].tolist()
    with pytest.raises(RuntimeError, match="sliced BlockMask"):
        one.mask_mod(0, 0, 0, 0)
    np.testing.assert_array_equal(blocks._adjust(32, 17).to_dense().numpy(), (counts > 0)[:, :, :2, :2])
    assert len(blocks.as_tuple()) == 17 and len(blocks.as_tuple(flatten=False)) == 15


def test_blocks_by_rows_give_those_by_columns() -> None:
    count = torch.tensor([[[1, 2]]], dtype=torch.int32)
    made = BlockMask.from_kv_blocks(count, torch.tensor([[[[0, 1], [1, 0]]]], dtype=torch.int32), BLOCK_SIZE=4)
    assert made.q_num_blocks.tolist() == [[[2, 1]]] and made.q_indices.tolist() == [[[[0, 1], [1, 0]]]]
    assert made.seq_lengths == (8, 8) and made.q_indices.dtype is torch.int32
    with pytest.raises(AssertionError, match="both provided"):
        BlockMask.from_kv_blocks(count, made.kv_indices, count)


def test_write_order_counts_the_blocks_before() -> None:
    # Results of PyTorch 2.13.
    made = create_block_mask(causal, 1, 1, 64, 64, BLOCK_SIZE=16, compute_dq_write_order=True)
    assert made.dq_write_order.tolist() == [[[[0, 1, 2, 3], [0, -1, 1, 2], [0, -1, -1, 1], [0, -1, -1, -1]]]]
    assert made.dq_write_order_full.tolist() == [[[[1, 2, 3, 0], [1, 2, -1, 0], [1, -1, -1, 0], [-1, -1, -1, 0]]]]
    assert made.dq_kv_order_spt is True
    other = create_block_mask(
        lambda b, h, q, k: q - k <= 20, 1, 1, 64, 48, BLOCK_SIZE=16, compute_dq_write_order=True, dq_kv_order=False
    )
    assert other.dq_write_order.tolist() == [[[[0, 0, 0, 0], [1, 0, 1, 1], [1, 2, 2, 2]]]]


def test_pictures_of_blocks() -> None:
    blocks = create_block_mask(causal, 1, 2, 512, 512)
    assert str(blocks) == (
        "BlockMask(shape=(1, 2, 512, 512), sparsity=37.50%, \n(0, 0)\n██      \n████    \n██████  \n████████\n\n"
        "(0, 1)\n██      \n████    \n██████  \n████████\n)"
    )
    assert blocks.to_string((2, 2), limit=1).startswith("(0, 0)\n░░  \n██░░\n\n...\n")
    assert "full_kv_indices=torch.Size([1, 2, 4, 4]),\n" in repr(blocks) and repr(blocks).endswith(
        "    mask_mod=causal\n)"
    )


def test_causal_biases_say_where_the_diagonal_is() -> None:
    q, k = torch.ones(1, 1, 2, 4), torch.arange(12.0).reshape(1, 1, 3, 4)
    attend = torch.nn.functional.scaled_dot_product_attention
    for bias in (causal_upper_left(2, 3), causal_lower_right(2, 3)):
        np.testing.assert_array_equal(
            attend(q, k, k, attn_mask=bias).numpy(), attend(q, k, k, bias._materialize()).numpy()
        )
    assert causal_lower_right(2, 3)._materialize().tolist() == [[True, True, False], [True, True, True]]
    with pytest.raises(ValueError, match="causal=True"):
        attend(q, k, k, causal_upper_left(2, 3), is_causal=True)
    with pytest.raises(AssertionError, match="CausalVariant"):
        CausalBias(1, 2, 3)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="NaN"):
        CausalBias(CausalVariant.LOWER_RIGHT, 3, 2)


def test_backends_can_be_chosen() -> None:
    x = torch.ones(1, 1, 2, 4)
    attend = torch.nn.functional.scaled_dot_product_attention
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION], set_priority=True):
        assert not torch.backends.cuda.math_sdp_enabled() and torch.backends.cuda.flash_sdp_enabled()
        assert attend(x, x, x).shape == x.shape
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), pytest.raises(RuntimeError, match="No viable backend"):
            attend(x, x, x)
        assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.math_sdp_enabled()
    with pytest.raises(AssertionError, match="got int"), sdpa_kernel(3):  # type: ignore[arg-type]
        pass

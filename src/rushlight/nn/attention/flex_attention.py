"""Attention with a score and a mask of one's own, written for one pair of query and key.

    >>> import rushlight as torch
    >>> from rushlight.nn.attention.flex_attention import flex_attention
    >>> q = torch.ones(1, 2, 3, 4)
    >>> flex_attention(q, q, q, score_mod=lambda score, b, h, q_idx, k_idx: score - (q_idx - k_idx).abs()).shape
    torch.Size([1, 2, 3, 4])

Source: Dong et al., "Flex Attention: a programming model for generating optimized attention kernels" (2024).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypedDict

import rushlight
from rushlight import Tensor
from rushlight.func import vmap
from rushlight.nn.attention.block_mask import BlockMask, noop_mask, ordered_of

# Queries and keys of a block of a mask, where nothing else is said.
_DEFAULT_SPARSE_BLOCK_SIZE = 128
# What users annotate their functions with: of a score, batch, head, query and key; of a mask the same without the score.
_score_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
_mask_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

__all__ = [
    "AuxOutput", "AuxRequest", "BlockMask", "FlexKernelOptions", "and_masks", "create_block_mask", "create_mask", "flex_attention", "noop_mask",
    "or_masks",
]  # fmt: skip


class AuxRequest(NamedTuple):
    """Further results of `flex_attention` that are asked for."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """Further results of `flex_attention`: those asked for, else None."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


class FlexKernelOptions(TypedDict, total=False):
    """Options for PyTorch's GPU kernels; they are accepted and change nothing on a CPU."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int
    BLOCK_M1: int
    BLOCK_N1: int
    BLOCK_M2: int
    BLOCK_N2: int
    PRESCALE_QK: bool
    ROWS_GUARANTEED_SAFE: bool
    BLOCKS_ARE_CONTIGUOUS: bool
    WRITE_DQ: bool
    FORCE_USE_FLEX_ATTENTION: bool
    USE_TMA: bool
    kpack: int
    matrix_instr_nonkdim: int
    waves_per_eu: int
    BACKEND: Literal["AUTO", "TRITON", "FLASH", "TRITON_DECODE"]


# ***** masks *****


def _joined(masks: tuple[Any, ...], start: Callable[[Any], Any], join: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    if not all(callable(m) for m in masks):
        raise RuntimeError(f"All inputs should be callable mask_mods: {masks}")

    def mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        found = start(b)
        for each in masks:
            found = join(found, each(b, h, q_idx, kv_idx))
        return found

    return mask


def or_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """A mask that is true where one of these is; RuntimeError for what is not callable."""
    return _joined(mask_mods, lambda b: b.new_zeros((), dtype=rushlight.bool), lambda x, y: x | y)


def and_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """A mask that is true where all of these are; RuntimeError for what is not callable.

    >>> from rushlight.nn.attention.flex_attention import and_masks, create_mask
    >>> near = and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: q - k < 2)
    >>> create_mask(near, 1, 1, 3, 3)[0, 0].int()
    tensor([[1, 0, 0],
            [1, 1, 0],
            [0, 1, 1]], dtype=torch.int32)
    """
    return _joined(mask_mods, lambda b: b.new_ones((), dtype=rushlight.bool), lambda x, y: x & y)


def _for_all_pairs(function: Callable[..., Any], with_score: bool) -> Callable[..., Any]:
    """A function of single indices as one of index vectors (b, h, q, k), and of scores (B, H, Q, K) before them."""
    for place in (3, 2, 1, 0):
        dims = tuple(0 if place == i else None for i in range(4))
        function = vmap(function, in_dims=(0, *dims) if with_score else dims)
    return function


def _takes_score(mod: Any) -> bool:
    """Whether a function is a `score_mod` (five arguments) or a `mask_mod` (four)."""
    count = sum(
        p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
        for p in inspect.signature(mod).parameters.values()
    )
    if count not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {count}")
    return count == 5


def create_mask(
    mod_fn: Callable[..., Any], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> Tensor:
    """The whole mask, bool (B, H, Q_LEN, KV_LEN), of a `mask_mod(b, h, q_idx, kv_idx)` or a `score_mod(score, b, h,
    q_idx, kv_idx)`.

    Where a score becomes -inf the mask is False.  None for B or H stands for 1.  AssertionError for a function with
    other arguments.
    """
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    indices = [rushlight.arange(n, device=device) for n in sizes]
    if _takes_score(mod_fn):
        scores = _for_all_pairs(mod_fn, True)(rushlight.zeros(sizes, device=device), *indices)
        return scores.isneginf().logical_not()
    return _for_all_pairs(mod_fn, False)(*indices)


def create_block_mask(
    mask_mod: Callable[..., Any],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """The blocks in which `mask_mod(b, h, q_idx, kv_idx)` is true somewhere; see `BlockMask`.

    None for B or H: the same mask for all.  With `separate_full_blocks` (the default) blocks in which it is true
    everywhere are kept apart.  `compute_dq_write_order` adds the order in which a deterministic backward adds up the
    parts of a query's gradient, from the last key block to the first, or with `dq_kv_order=False` from the first to the
    last.

        >>> from rushlight.nn.attention.flex_attention import create_block_mask
        >>> print(create_block_mask(lambda b, h, q, k: q >= k, None, None, 4, 4, BLOCK_SIZE=2))
        BlockMask(shape=(1, 1, 4, 4), sparsity=25.00%,
        (0, 0)
        ██
        ████
        )
    """
    if not isinstance(dq_kv_order, bool):
        raise ValueError("dq_kv_order must be a bool when using create_block_mask")
    if _takes_score(mask_mod):
        raise AssertionError(
            "create_block_mask needs a mask_mod (b, h, q_idx, kv_idx), but found a function of five arguments"
        )
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask: Any = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    if mask.dtype is not rushlight.bool:
        raise AssertionError(f"mask.dtype must be torch.bool, got {mask.dtype}")
    rows, columns = -(-Q_LEN // size[0]), -(-KV_LEN // size[1])
    padded = rushlight.nn.functional.pad(mask, (0, columns * size[1] - KV_LEN, 0, rows * size[0] - Q_LEN))
    counts = padded.reshape(*mask.shape[:2], rows, size[0], columns, size[1]).sum((3, 5))
    full = counts == size[0] * size[1]
    some = (counts > 0) & ~full if separate_full_blocks else counts > 0
    full_count, full_indices = ordered_of(full) if separate_full_blocks else (None, None)
    made = BlockMask.from_kv_blocks(*ordered_of(some), full_count, full_indices, size, mask_mod, (Q_LEN, KV_LEN))
    if compute_dq_write_order:
        ranks = _write_order((counts > 0).transpose(-2, -1), dq_kv_order)
        made.dq_kv_order_spt = dq_kv_order
        made.dq_write_order = ranks.gather(-1, made.q_indices.long())
        if separate_full_blocks:
            made.dq_write_order_full = ranks.gather(-1, made.full_q_indices.long())
    return made


def _write_order(taking: Any, backwards: bool) -> Any:
    """How many key blocks add to a query block's gradient before each one does; `taking` is (..., key blocks, query
    blocks).
    """
    taking = taking.to(rushlight.int32)
    before = taking.cumsum(-2) - taking
    return (taking.sum(-2, keepdim=True) - 1 - before if backwards else before).to(rushlight.int32)


# ***** attention *****


def _check(query: Any, key: Any, value: Any, block_mask: Any, enable_gqa: bool) -> None:
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if query.size(-1) != key.size(-1):
        raise ValueError(
            f"Expect query and key/value to have the same embedding dimension but got E={query.size(-1)} and E={key.size(-1)}."
        )
    q_batch, kv_batch, heads, kv_heads = query.size(0), key.size(0), query.size(1), key.size(1)
    if block_mask is None and q_batch != kv_batch:
        raise ValueError(
            "Expect query and key/value to have the same batch size, or non-none block_mask, but got block_mask=None, "
            f"Bq={q_batch}, and Bkv={kv_batch}."
        )
    if q_batch != kv_batch and kv_batch != 1:
        raise RuntimeError(f"Bq and Bkv must broadcast. Got Bq={q_batch} and Bkv={kv_batch}")
    if not enable_gqa and heads != kv_heads:
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={kv_heads}. Try setting enable_gqa=True for GQA."
        )
    if enable_gqa and heads % kv_heads:
        raise ValueError(
            f"Expect number of query heads to be a multiple of kv heads for GQA but got Hq={heads} and Hkv={kv_heads}."
        )
    if block_mask is not None:
        _check_lengths(block_mask, query.size(-2), key.size(-2))


def _check_lengths(block_mask: BlockMask, q_len: int, kv_len: int) -> None:
    held = block_mask.shape[-2:]
    if held == (q_len, kv_len):
        return
    what = f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={q_len} and kv_len={kv_len}."
    if held[0] < q_len or held[1] < kv_len:
        raise ValueError(
            f"{what} As the block mask was created for a smaller length than you're using it for, you likely need to create a new block mask."
        )
    raise ValueError(
        f"{what} As the block mask was created for a larger length than you're using it for, you can either 1. create a new block mask with the "
        "correct length, or 2. 'adjust' the existing block mask to the correct length by calling block_mask._adjust(q_len, kv_len). This essentially "
        "'crops' the block mask to the upper left corner, which does not work for all mask_mods!"
    )


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Any] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(query @ key^T * scale)) @ value, over the pairs that `block_mask` lets take part.

    - `query` (B, Hq, L, E), `key` (B, Hkv, S, E), `value` (B, Hkv, S, Ev); the result is (B, Hq, L, Ev) in the dtype
      and layout of `query`.
    - `score_mod(score, b, h, q_idx, kv_idx)` gets one score (float32, or float64 for such a query) and its place as
      0-dim tensors; it may read other tensors, which then get gradients too.
    - `scale` defaults to 1/sqrt(E); with `enable_gqa` each head of keys serves Hq / Hkv heads of queries.
    - `return_aux=AuxRequest(lse=True, max_scores=True)` returns `(result, AuxOutput)`: the logarithm of the softmax's
      denominator and the largest score for every query (B, Hq, L), -inf for queries that attend to nothing, whose
      result is zero.  `return_lse` returns `(result, lse)`.

    Unlike PyTorch, which differentiates this on GPUs alone, gradients of any order are there.  ValueError for sizes
    that do not go together.

        >>> import rushlight as torch
        >>> from rushlight.nn.attention.flex_attention import create_block_mask, flex_attention
        >>> causal = create_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, 4, 4)
        >>> x = torch.arange(4.0).reshape(1, 1, 4, 1)
        >>> flex_attention(torch.zeros_like(x), x, x, block_mask=causal).flatten()
        tensor([0.0000, 0.5000, 1.0000, 1.5000])
    """
    _check(query, key, value, block_mask, enable_gqa)
    if "OUTPUT_LOGSUMEXP" in dict(kernel_options or {}):
        raise AssertionError("OUTPUT_LOGSUMEXP must not be in kernel_options")
    if return_lse and return_aux is not None:
        raise ValueError(
            "Cannot specify both return_lse and return_aux. return_lse is deprecated, please use return_aux=AuxRequest(lse=True) instead."
        )
    out, lse, largest = _attend(query, key, value, score_mod, block_mask, scale)
    if return_lse:
        return out, lse()
    if return_aux is None:
        return out
    return out, AuxOutput(lse() if return_aux.lse else None, largest() if return_aux.max_scores else None)


def _attend(
    query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, scale: float | None
) -> tuple[Any, Any, Any]:
    """(the result, functions that give the logarithm of the denominator and the largest score)."""
    precise = rushlight.float64 if query.dtype is rushlight.float64 else rushlight.float32
    times = query.size(1) // key.size(1)
    if times != 1:
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    factor = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = (query.to(precise) @ key.to(precise).transpose(-2, -1)) * factor
    indices = [rushlight.arange(n, device=scores.device) for n in scores.shape]
    if score_mod is not None:
        scores = _for_all_pairs(score_mod, True)(scores, *indices).to(precise)
    if block_mask is not None:
        taking = _for_all_pairs(block_mask.mask_mod, False)(*indices)
        scores = scores.masked_fill(taking.logical_not(), -math.inf)
    # A query that attends to nothing would give NaN, and NaN gradients to all others that share its key.
    idle = scores.isneginf().all(-1, keepdim=True)
    safe = scores.masked_fill(idle, 0.0)
    weights = safe.softmax(-1).masked_fill(idle, 0.0)
    out = _laid_out_like(weights.to(query.dtype) @ value.to(query.dtype), query)
    idle = idle.squeeze(-1)
    return (
        out,
        lambda: safe.logsumexp(-1).masked_fill(idle, -math.inf),
        lambda: safe.amax(-1).masked_fill(idle, -math.inf),
    )


def _laid_out_like(out: Any, query: Any) -> Any:
    """The result with the order of dims in memory that the query has."""
    order = sorted(range(4), key=lambda d: -query.stride(d))
    if query.is_contiguous() or order == [0, 1, 2, 3]:
        return out
    back = [order.index(d) for d in range(4)]
    return out.permute(order).contiguous().permute(back)

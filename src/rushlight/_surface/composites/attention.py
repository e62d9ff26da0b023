"""Attention as users call it."""

from __future__ import annotations

from typing import Any

from rushlight._engine.core import convert
from rushlight._engine.core.tensor import Tensor
from rushlight._ops.nn.attention import check_attention
from rushlight._surface.registry import SPACES, composite
from rushlight._types.dtype import BOOL

__all__: list[str] = ["ALLOWED", "INSTEAD"]

# Which ways of computing attention programs have not switched off (`nn.attention.sdpa_kernel`, `backends.cuda.enable_math_sdp`, ...).
ALLOWED = dict.fromkeys(("flash", "mem_efficient", "math", "cudnn", "overrideable"), True)


class _Instead(list[Any]):
    """Functions that compute attention instead, the innermost last, or give NotImplemented: parts of a sequence that is
    divided among processes.

    The last item of `state` is one object as long as attention is computed in the same way: compiled programs depend on it.
    """

    def __init__(self, state: list[tuple[Any, ...]]) -> None:
        super().__init__()
        self.state = state
        self._known: dict[tuple[Any, ...], tuple[Any, ...]] = {(): ()}

    def note(self, *settings: Any) -> None:
        """The functions, or the settings that they depend on, were changed."""
        key = (*self, *settings) if self else ()
        self.state[-1] = self._known.setdefault(key, key)


_STATE: list[tuple[Any, ...]] = [()]  # named, so that kept programs find it
INSTEAD = _Instead(_STATE)


@composite("scaled_dot_product_attention", spaces=("nn.functional",))
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key^T * scale + mask) @ value.

    Shapes: query (..., L, E), key (..., S, E), value (..., S, Ev); the result is (..., L, Ev). `attn_mask` broadcasts to (..., L, S): bool (True
    takes part) or added to the scores. `scale` defaults to 1/sqrt(E). With `dropout_p` > 0 attention weights are dropped.
    """
    for instead in reversed(INSTEAD) if INSTEAD else ():
        found: Any = instead(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if found is not NotImplemented:
            return found
    if not (ALLOWED["math"] or ALLOWED["flash"]):  # the two that a CPU has
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both the math kernel and the fused kernels."
        )
    if dropout_p != 0.0:
        return _with_dropout(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return convert.call("sdpa_core", query, key, value, attn_mask, is_causal, scale, enable_gqa)


def _with_dropout(
    query: Any, key: Any, value: Any, mask: Any, p: float, is_causal: bool, scale: float | None, enable_gqa: bool
) -> Tensor:
    """The same from scores that are stored as a whole; a row in which no key takes part has weights of zero."""
    check_attention(query, key, value, mask, is_causal)
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    if enable_gqa:
        heads = query.shape[-3]
        if any(not t.shape[-3] or heads % t.shape[-3] for t in (key, value)):
            raise RuntimeError("Number of heads in key and value must divide the number of heads in query")
        key, value = (t.repeat_interleave(heads // t.shape[-3], -3) for t in (key, value))
    scores = (query * factor) @ key.transpose(-2, -1)
    if is_causal:
        mask = SPACES["torch"]["ones"](query.shape[-2], key.shape[-2], dtype=BOOL, device=query.device).tril()
    if mask is None:
        weights = scores.softmax(-1)
    else:
        low = float("-inf")
        scores = (
            scores.masked_fill(mask.logical_not(), low) if mask.dtype.kind == "b" else scores + mask.to(scores.dtype)
        )
        alone = (scores == low).all(-1, True)
        # Filled before as well: the gradient of a softmax over -inf alone is NaN.
        weights = scores.masked_fill(alone, 0.0).softmax(-1).masked_fill(alone, 0.0)
    return SPACES["nn.functional"]["dropout"](weights, p, True) @ value

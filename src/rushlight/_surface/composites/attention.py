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
_WAYS = [0]  # named, so that kept programs find it


class _Allowed(dict[str, bool]):
    """Ways by name; the last item of `state` is a number for what is allowed: compiled programs depend on it."""

    def __init__(self, ways: tuple[str, ...]) -> None:
        super().__init__(dict.fromkeys(ways, True))
        self.state = _WAYS

    def __setitem__(self, way: str, allowed: bool) -> None:
        super().__setitem__(way, allowed)
        self.state[-1] = sum(1 << place for place, on in enumerate(self.values()) if not on)

    def update(self, *given: Any, **named: bool) -> None:
        """Several at once."""
        for way, allowed in dict(*given, **named).items():
            self[way] = allowed

    def misfit(
        self, way: str, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, enable_gqa: bool
    ) -> str | None:
        """Why PyTorch's fused kernel on a GPU (`flash`, `mem_efficient` or `cudnn`) takes no such call; None where it does.

        Here one kernel serves all of them: this is for programs that allow some ways and not others.
        """
        if not self[way]:
            return "it is switched off"
        dtypes = ("float16", "bfloat16", "float32") if way == "mem_efficient" else ("float16", "bfloat16")
        if any(x.ndim != 4 for x in (query, key, value)):
            return "query, key and value must have four dims"
        if query.dtype.name not in dtypes or key.dtype is not query.dtype or value.dtype is not query.dtype:
            return f"query, key and value must be of one dtype of {', '.join(dtypes)}, and they are of {query.dtype}, {key.dtype} and {value.dtype}"
        if way == "flash" and mask is not None:
            return "it takes no attn_mask"
        if way == "mem_efficient" and enable_gqa:
            return "it takes no enable_gqa"
        sizes = {x.shape[-1] for x in (query, key, value)}
        if way != "mem_efficient" and max(sizes) > 256:
            return f"heads must have 256 elements or less, and they have {max(sizes)}"
        if way == "flash" and len(sizes) > 1:
            return f"heads must be of one size, and they are of {sorted(sizes)}"
        if way == "cudnn" and any(size % 8 for size in sizes):
            return f"heads must have a multiple of 8 elements, and they have {sorted(sizes)}"
        return None


ALLOWED = _Allowed(("flash", "mem_efficient", "math", "cudnn", "overrideable"))


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
    if not ALLOWED["math"]:
        _check_fused(query, key, value, attn_mask, dropout_p, enable_gqa)
    if dropout_p != 0.0:
        return _with_dropout(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return convert.call("sdpa_core", query, key, value, attn_mask, is_causal, scale, enable_gqa)


def _check_fused(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, enable_gqa: bool
) -> None:
    """RuntimeError where no way of attention that a program left on could take a call; "math" is off."""
    if query.device.type != "cuda":
        if not ALLOWED["flash"]:  # beside math the one that a CPU has
            raise RuntimeError(
                "No viable backend for scaled_dot_product_attention was found. This is likely due to turning off both the math kernel and the fused kernels."
            )
        return
    ways = ("flash", "mem_efficient", "cudnn")
    misfits = {way: ALLOWED.misfit(way, query, key, value, mask, dropout, enable_gqa) for way in ways}
    if all(misfits.values()):
        reasons = "; ".join(f"{way}: {why}" for way, why in misfits.items())
        raise RuntimeError(f"No available kernel. Aborting execution. math: it is switched off; {reasons}")


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

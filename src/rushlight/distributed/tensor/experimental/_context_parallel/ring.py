"""Attention over a sequence that is divided among processes: queries stay, keys and values go round.

A process computes attention of its queries to one part of the keys after the other, and joins the results by the
logarithms of their rows' sums (Liu et al., "Ring Attention", 2023).  Backward goes round once more, and the gradients of
keys and values travel with them until they are home.  No process ever holds all keys, and no one the scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.operators import function_of
from rushlight.autograd import Function
from rushlight.distributed import distributed_c10d as dist

__all__ = ["Ring", "attend"]


@dataclass(frozen=True)
class Ring:
    """How a sequence lies on the processes of a group.

    - `group`: the processes
    - `halved`: whether each has two pieces, one from the front and its mirror image from the end, so that all have as much
      to do under a causal mask; else one piece each
    - `gathers`: whether all keys and values come at once instead of going round: more memory, fewer messages
    """

    group: Any
    halved: bool
    gathers: bool

    @property
    def rank(self) -> int:
        """This process's place in the group."""
        return dist.get_rank(self.group)

    @property
    def size(self) -> int:
        """How many processes there are."""
        return dist.get_world_size(self.group)

    def shifted(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Any]]:
        """Send tensors to the next process; those of the one before, once what is given second was waited for."""
        made, works = [rushlight.empty_like(x) for x in tensors], []
        for x, into in zip(tensors, made, strict=True):
            sent, got = [0] * self.size, [0] * self.size
            sent[(self.rank + 1) % self.size] = got[(self.rank - 1) % self.size] = x.numel()
            works.append(dist.all_to_all_single(into.view(-1), x.view(-1), got, sent, self.group, async_op=True))
        return made, works

    def parts(self, key: Tensor, value: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(process, its keys, its values), one's own first; the next are on their way while these are used."""
        if self.gathers and self.size > 1:
            rows = [self._gathered(x) for x in (key, value)]
            for step in range(self.size):
                owner = (self.rank - step) % self.size
                yield owner, rows[0][owner], rows[1][owner]
            return
        held = [key, value]
        for step in range(self.size):
            coming, works = self.shifted(held) if step < self.size - 1 else ([], [])
            yield (self.rank - step) % self.size, held[0], held[1]
            for work in works:
                work.wait()
            held = coming

    def _gathered(self, x: Tensor) -> Any:
        made = x.new_empty((self.size, *x.shape))
        dist.all_gather_into_tensor(made.view(-1, *x.shape[1:]), x, group=self.group)
        return made

    def meets(self, owner: int, causal: bool) -> tuple[str, str, bool] | None:
        """Which of this process's queries ("all", "back") see which of another's keys ("all", "front"), and whether only
        those up to their own place; None for none.
        """
        if not causal:
            return "all", "all", False
        if owner == self.rank:
            return "all", "all", True
        if not self.halved:
            return ("all", "all", False) if owner < self.rank else None
        return ("all", "front", False) if owner < self.rank else ("back", "all", False)


def _piece(x: Tensor, which: str, dim: int = -2) -> Tensor:
    if which == "all":
        return x
    half = x.shape[dim] // 2
    found = x.narrow(dim, 0 if which == "front" else half, half)
    return found.contiguous()


def _joined(out: Tensor, norm: Tensor, part: Tensor, part_norm: Tensor) -> tuple[Tensor, Tensor]:
    """Attention to two parts of the keys as attention to both."""
    total = rushlight.logaddexp(norm, part_norm)
    mixed = out * (norm - total).exp().unsqueeze(-1) + part * (part_norm - total).exp().unsqueeze(-1)
    return mixed, total


class _RingAttention(Function):
    @staticmethod
    def forward(ctx: Any, ring: Ring, query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float) -> Tensor:
        core = function_of("sdpa_with_norm")
        query, key, value = (x.contiguous() for x in (query, key, value))
        out: Any = None
        norm: Any = None
        for owner, k, v in ring.parts(key, value):
            met = ring.meets(owner, causal)
            if met is None:
                continue
            part, part_norm = core(_piece(query, met[0]), _piece(k, met[1]), _piece(v, met[1]), met[2], scale)
            part = part.to(part_norm.dtype)
            if out is None:
                out, norm = part, part_norm
            elif met[0] == "all":
                out, norm = _joined(out, norm, part, part_norm)
            else:
                half = out.shape[-2] // 2
                mixed, total = _joined(out.narrow(-2, half, half), norm.narrow(-1, half, half), part, part_norm)
                out = rushlight.cat([out.narrow(-2, 0, half), mixed], -2)
                norm = rushlight.cat([norm.narrow(-1, 0, half), total], -1)
        result = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, result, norm)
        ctx.settings = ring, causal, scale
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        query, key, value, out, norm = ctx.saved_tensors
        ring, causal, scale = ctx.settings
        return None, *_backward(ring, grad.contiguous(), (query, key, value), (out, norm), (causal, scale)), None, None


def _backward(
    ring: Ring,
    grad: Tensor,
    operands: tuple[Tensor, Tensor, Tensor],
    results: tuple[Tensor, Tensor],
    settings: tuple[bool, float],
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values.  Those of keys and values go round with what they belong to."""
    core, (causal, scale) = function_of("sdpa_grad"), settings
    (query, key, value), (out, norm) = operands, results
    wide = norm.dtype
    delta = (grad.to(wide) * out.to(wide)).sum(-1)
    d_query = rushlight.zeros_like(query, dtype=wide)
    travelling: list[Tensor] = []
    works: list[Any] = []
    for owner, k, v in ring.parts(key, value):
        met = ring.meets(owner, causal)
        own = [rushlight.zeros_like(x, dtype=wide) for x in (k, v)]
        if met is not None:
            rows, columns, diagonal = met
            g, q, lse, d = (_piece(grad, rows), _piece(query, rows), _piece(norm, rows, -1), _piece(delta, rows, -1))
            dq, *found = core(g, q, _piece(k, columns), _piece(v, columns), lse, d, diagonal, scale)
            _rows(d_query, rows).add_(dq)
            for total, part in zip(own, found, strict=True):
                _rows(total, columns).add_(part)
        for work in works:
            work.wait()
        if travelling:
            own = [a.add_(b) for a, b in zip(own, travelling, strict=True)]
        travelling, works = ring.shifted(own) if ring.size > 1 else (own, [])
    for work in works:
        work.wait()
    d_key, d_value = travelling
    return d_query.to(query.dtype), d_key.to(key.dtype), d_value.to(value.dtype)


def _rows(x: Tensor, which: str) -> Tensor:
    """A view of the rows that `_piece` copies."""
    half = x.shape[-2] // 2
    return x if which == "all" else x.narrow(-2, 0 if which == "front" else half, half)


def attend(
    ring: Ring, query: Tensor, key: Tensor, value: Tensor, is_causal: bool, scale: float | None, enable_gqa: bool
) -> Tensor:
    """Attention of this process's queries (..., L, E) to the keys of all.

    ValueError where queries and keys of a causal call have different lengths, or an odd one in two pieces.
    """
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    if is_causal and query.shape[-2] != key.shape[-2]:
        raise ValueError(
            f"causal attention over a divided sequence takes as many queries as keys, got {query.shape[-2]} and {key.shape[-2]}"
        )
    if is_causal and ring.halved and query.shape[-2] % 2:
        raise ValueError(
            f"a process has two pieces of a balanced sequence, so an even number of places, got {query.shape[-2]}"
        )
    lead = rushlight.broadcast_shapes(*(x.shape[:-2] for x in (query, key, value)))
    query, key, value = (x.expand(*lead, *x.shape[-2:]) for x in (query, key, value))
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return _RingAttention.apply(ring, query, key, value, is_causal, factor)

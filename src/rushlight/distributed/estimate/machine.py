"""A machine as the planner sees it: how fast ranks compute, and how long messages take."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import rushlight
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.device_mesh import DeviceMesh
from rushlight.distributed.estimate.work import model_work
from rushlight.distributed.tensor import DTensor, Replicate, distribute_module

__all__ = ["COLLECTIVES", "Link", "Machine", "measure"]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")


@dataclass(frozen=True)
class Link:
    """Seconds that a message costs by itself (`alpha`), and for each byte (`beta`)."""

    alpha: float
    beta: float


def steps_and_share(kind: str, size: int) -> tuple[float, float]:
    """How many messages one after another a collective of `size` ranks takes, and how often its bytes go over a link.

    Bytes are those of the whole tensor: the result of all_gather, the input of reduce_scatter.
    """
    if kind == "send":
        return 1.0, 1.0
    if size == 1:
        return 0.0, 0.0
    rounds, most = math.ceil(math.log2(size)), (size - 1) / size
    if kind == "all_reduce":
        return 2.0 * rounds, 2 * most
    if kind == "all_to_all":
        return float(size - 1), most
    return float(rounds), 1.0 if kind == "broadcast" else most


@dataclass
class Machine:
    """Speeds of one rank while all ranks work, and of messages.

    `flops` are those of matrix products in a second, `bandwidth` bytes in a second of everything else, `overhead` seconds
    of an operator's call, `spread` those that a call on DTensors takes more (tensor parallel layers).

    `near` is the link between ranks of a node, of which there are `ranks_per_node`; `far` that between nodes.  `of` has
    links of single collectives, where they were measured.  `overlap` is the part of a collective that hides behind
    computing when nothing waits for it (1: a processor or card of its own moves the data).
    """

    flops: float
    bandwidth: float
    near: Link
    far: Link | None = None
    ranks_per_node: int = 1 << 30
    overhead: float = 0.0
    spread: float = 0.0
    overlap: float = 1.0
    memory: float | None = None  # bytes of one rank
    of: Mapping[str, Link] = field(default_factory=dict)
    measured: bool = False

    def seconds(self, kind: str, nbytes: float, size: int, stride: int = 1) -> float:
        """How long a collective of `size` ranks takes, whose numbers are `stride` apart."""
        crosses = self.far is not None and (size - 1) * stride >= self.ranks_per_node
        link = self.far if crosses and self.far is not None else self.of.get(kind, self.near)
        steps, share = steps_and_share(kind, size)
        return steps * link.alpha + share * nbytes * link.beta

    def compute(self, flops: float, nbytes: float, calls: int, spread: bool = False) -> float:
        """How long a rank computes: products at their speed, the rest by its bytes, and the calls (of DTensors)."""
        each = self.overhead + self.spread if spread else self.overhead
        return flops / self.flops + nbytes / self.bandwidth + calls * each


# ***** measuring *****

_ROUNDS = 16  # messages there and back
_WHILE, _FIRST, _MOST_CALLS = 0.05, 2, 1000  # seconds of one measurement, calls before it, and at most


def _mean(call: Callable[[], Any], group: Any) -> float:
    """Seconds of one call, on average over the ranks of a group and over a while: what others take of a shared processor
    counts as it does in training.  All ranks call as often.
    """
    call()
    began = time.perf_counter()
    for _ in range(_FIRST):
        call()
    count = round(_WHILE / _mean_of_ranks((time.perf_counter() - began) / _FIRST, group))
    count = min(max(count, 2), _MOST_CALLS)
    began = time.perf_counter()
    for _ in range(count):
        call()
    return _mean_of_ranks((time.perf_counter() - began) / count, group)


def _mean_of_ranks(seconds: float, group: Any) -> float:
    value = rushlight.tensor([seconds], dtype=rushlight.float64)
    dist.all_reduce(value, dist.ReduceOp.AVG, group=group)
    return float(value.item())


def measure(group: Any = None, size: int = 384, most: int = 1 << 22) -> Machine:
    """The machine that a running group works on.  All its ranks call it; takes about a second.

    Products of `size` x `size` matrices, sums of tensors, a small network forward and backward, and collectives of up to
    `most` bytes are timed on all ranks at once: so ranks that share a processor count what is left for each.  All ranks
    are taken to be near each other: set `far` and `ranks_per_node` of the result for a cluster.
    """
    dist.barrier(group=group)
    a, b = rushlight.rand(size, size), rushlight.rand(size, size)
    flops = 2 * size**3 / _mean(lambda: a @ b, group)
    x, y = rushlight.rand(1 << 20), rushlight.rand(1 << 20)
    bandwidth = 12 * (1 << 20) / _mean(lambda: x + y, group)
    overhead = _call_seconds(group)
    if dist.get_world_size(group) == 1:
        return Machine(flops, bandwidth, Link(0.0, 0.0), overhead=overhead, measured=True)
    links = {kind: _link(kind, most, group) for kind in COLLECTIVES if kind != "send"}
    links["send"] = _send_link(most, group)
    overlap = _overlap(a, b, group)
    near, spread = links["all_reduce"], _spread_seconds(group)
    return Machine(flops, bandwidth, near, overhead=overhead, spread=spread, overlap=overlap, of=links, measured=True)


def _call_seconds(group: Any) -> float:
    """Seconds of one call of an operator in training, from a network too small to compute."""
    model, x, calls = _small_network()
    return _mean(lambda: model(x).sum().backward(), group) / calls


def _small_network() -> tuple[Any, Any, int]:
    """A network too small to compute, its input, and the calls of operators forward and backward."""
    model = rushlight.nn.Sequential(*[m for _ in range(8) for m in (rushlight.nn.Linear(4, 4), rushlight.nn.Tanh())])
    x = rushlight.rand(2, 4)
    calls = sum(layer.forward.calls + layer.backward.calls for layer in model_work(model, x).layers)
    return model, x, max(calls, 1)


def _spread_seconds(group: Any) -> float:
    """Seconds that a call of an operator on DTensors takes more than one on plain tensors, in training: nodes of
    autograd on DTensors, and their gradients, cost more than the calls of forward.
    """
    model, x, calls = _small_network()
    ones = rushlight.ones_like(x)
    plain = _mean(lambda: model(x).backward(ones), group)
    mesh = DeviceMesh.from_group(dist.group.WORLD if group is None else group, "cpu")
    spread, (given, grads) = (
        distribute_module(model, mesh),
        [DTensor.from_local(y, mesh, [Replicate()]) for y in (x, ones)],
    )
    return max(_mean(lambda: spread(given).backward(grads), group) - plain, 0.0) / calls


def _run(kind: str, x: Any, big: Any, group: Any) -> None:
    if kind == "all_reduce":
        dist.all_reduce(big, group=group)
    elif kind == "broadcast":
        dist.broadcast(big, group=group, group_src=0)
    elif kind == "all_gather":
        dist.all_gather_into_tensor(big, x, group=group)
    elif kind == "reduce_scatter":
        dist.reduce_scatter_tensor(x, big, group=group)
    else:
        dist.all_to_all_single(big.clone(), big, group=group)


def _link(kind: str, most: int, group: Any) -> Link:
    """Alpha and beta of one collective: the line through the times of a small and of large messages."""
    size, points = dist.get_world_size(group), []
    for nbytes in (256, most // 8, most):
        part = rushlight.zeros(max(nbytes // 4 // size, 1))
        whole = rushlight.zeros(part.numel() * size)
        seconds = _mean(functools.partial(_run, kind, part, whole, group), group)
        points.append((4 * whole.numel(), seconds))
    return fitted(kind, size, points)


def fitted(kind: str, size: int, points: Sequence[tuple[int, float]]) -> Link:
    """The link for which a collective's times are nearest to these (bytes, seconds), in proportion."""
    steps, share = steps_and_share(kind, size)
    # Least squares of (steps * alpha + share * bytes * beta) / seconds - 1.
    rows = [(steps / s, share * n / s) for n, s in points]
    aa, ab, bb = sum(p * p for p, _ in rows), sum(p * q for p, q in rows), sum(q * q for _, q in rows)
    ya, yb = sum(p for p, _ in rows), sum(q for _, q in rows)
    determinant = aa * bb - ab * ab
    alpha, beta = (ya * bb - yb * ab) / determinant, (aa * yb - ab * ya) / determinant
    return Link(max(alpha, 0.0), max(beta, 0.0))


def _send_link(most: int, group: Any) -> Link:
    """Alpha and beta of messages between the first two ranks, known to all."""
    here, points = dist.get_rank(group), []
    for nbytes in (256, most // 8, most):
        x = rushlight.zeros(nbytes // 4)
        exchange = functools.partial(_there_and_back, x, here, group) if here < 2 else lambda: None
        dist.barrier(group=group)
        began = time.perf_counter()
        for _ in range(_ROUNDS):
            exchange()
        value = rushlight.tensor([(time.perf_counter() - began) / _ROUNDS / 2], dtype=rushlight.float64)
        dist.broadcast(value, group=group, group_src=0)
        points.append((nbytes, float(value.item())))
    return fitted("send", 2, points)


def _there_and_back(x: Any, here: int, group: Any) -> None:
    calls = [dist.send, dist.recv] if here == 0 else [dist.recv, dist.send]
    for call in calls:
        call(x, group=group, **{"group_dst" if call is dist.send else "group_src": 1 - here})


def _overlap(a: Any, b: Any, group: Any) -> float:
    """The part of a collective that hides behind products."""
    data = rushlight.zeros(1 << 20)

    def compute(count: int) -> None:
        for _ in range(count):
            a @ b

    alone = _mean(lambda: dist.all_reduce(data, group=group), group)
    count = max(1, round(2 * alone / _mean(lambda: compute(1), group)))

    def both() -> None:
        work = dist.all_reduce(data, group=group, async_op=True)
        compute(count)
        assert work is not None
        work.wait()

    computed, together = _mean(lambda: compute(count), group), _mean(both, group)
    return min(1.0, max(0.0, (computed + alone - together) / alone))

"""PowerSGD (Vogels et al., 2019): gradients as products of two thin matrices, found by one step of power iteration.

A gradient M (n x m) travels as P = M Q (n x r) and Q = M' P (m x r), where P is made orthonormal in between.  What the
product P Q' leaves out is added to the next gradient (error feedback).
"""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor, no_grad
from rushlight.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from rushlight.distributed.c10d.collectives import all_reduce_mean
from rushlight.futures import Future

__all__ = ["PowerSGDState", "batched_powerSGD_hook", "powerSGD_hook"]


class PowerSGDState:
    """Settings, and what is kept between calls.

    Buckets are averaged in full until iteration `start_powerSGD_iter`; then matrices for which rank r saves the factor
    `min_compression_rate` are compressed.
    """

    def __init__(
        self, process_group: Any, matrix_approximation_rank: int = 1, start_powerSGD_iter: int = 1000, min_compression_rate: float = 2,
        use_error_feedback: bool = True, warm_start: bool = True, orthogonalization_epsilon: float = 0, random_seed: int = 0,
        compression_stats_logging_frequency: int = 10000, batch_tensors_with_same_shape: bool = False,
    ) -> None:  # fmt: skip
        if (use_error_feedback or warm_start) and start_powerSGD_iter <= 1:
            raise ValueError("Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled.")
        self.process_group, self.matrix_approximation_rank = process_group, matrix_approximation_rank
        self.start_powerSGD_iter, self.min_compression_rate = start_powerSGD_iter, min_compression_rate
        self.use_error_feedback, self.warm_start = use_error_feedback, warm_start
        self.orthogonalization_epsilon, self.random_seed = orthogonalization_epsilon, random_seed
        self.batch_tensors_with_same_shape = batch_tensors_with_same_shape
        self.generator = rushlight.Generator().manual_seed(random_seed)
        self.iter = 0
        self.error_dict: dict[int, Tensor] = {}
        self.q_memory_dict: dict[tuple[int, int], Tensor] = {}

    def compresses(self, n: int, m: int) -> int:
        """The rank for a matrix of this size; 0 where compressing it saves too little."""
        rank = min(n, m, self.matrix_approximation_rank)
        return rank if (n + m) * rank * self.min_compression_rate < n * m else 0

    def maybe_increase_iter(self, bucket: Any) -> None:
        """Count calls of backward, by their last buckets."""
        if bucket.is_last():
            self.iter += 1

    def right_factor(self, key: tuple[int, int], m: int, rank: int, like: Tensor) -> Tensor:
        """Q of the last call, or a random one that all processes draw alike."""
        kept = self.q_memory_dict.get(key) if self.warm_start else None
        if kept is not None:
            return kept
        return rushlight.randn(m, rank, generator=self.generator, dtype=rushlight.float32).to(like.dtype)


def _orthonormal(p: Tensor, epsilon: float) -> Tensor:
    if epsilon:
        p = p / (p.norm(dim=0, keepdim=True) + epsilon)
    return rushlight.linalg.qr(p.float())[0].to(p.dtype)


def _averaged(group: Any, tensors: list[Tensor]) -> None:
    """Averages, by one call for all of a dtype."""
    if not tensors:
        return
    flat = rushlight.cat([x.reshape(-1) for x in tensors])
    all_reduce_mean(flat, group)
    start = 0
    for x in tensors:
        x.copy_(flat[start : start + x.numel()].view(x.shape))
        start += x.numel()


def _compress(state: PowerSGDState, bucket: Any, gradients: list[Tensor]) -> None:
    """Average gradients in place, matrices of them compressed."""
    number, matrices, plain = bucket.index(), [], []
    for place, gradient in enumerate(gradients):
        matrix = gradient.view(gradient.shape[0], -1) if gradient.ndim > 1 else gradient
        rank = state.compresses(*matrix.shape) if matrix.ndim == 2 else 0
        if rank:
            matrices.append(
                (matrix, state.right_factor((number, place), matrix.shape[1], rank, matrix), (number, place))
            )
        else:
            plain.append(gradient)
    _averaged(state.process_group, plain)
    ps = [matrix @ _orthonormal(q, state.orthogonalization_epsilon) for matrix, q, _ in matrices]
    _averaged(state.process_group, ps)
    ps = [_orthonormal(p, state.orthogonalization_epsilon) for p in ps]
    qs = [matrix.t() @ p for (matrix, _, _), p in zip(matrices, ps, strict=True)]
    _averaged(state.process_group, qs)
    for (matrix, _, key), p, q in zip(matrices, ps, qs, strict=True):
        matrix.copy_(p @ q.t())
        if state.warm_start:
            state.q_memory_dict[key] = q


def _with_feedback(state: PowerSGDState, bucket: Any, gradients: list[Tensor]) -> Future[Tensor]:
    buffer, number = bucket.buffer(), bucket.index()
    with no_grad():
        kept = state.error_dict.get(number)
        if state.use_error_feedback and kept is not None and kept.shape == buffer.shape:
            buffer.add_(kept)
        before = buffer.clone() if state.use_error_feedback else None
        _compress(state, bucket, gradients)
        if before is not None:
            state.error_dict[number] = before.sub_(buffer)
    state.maybe_increase_iter(bucket)
    future: Future[Tensor] = Future()
    future.set_result(buffer)
    return future


def powerSGD_hook(state: PowerSGDState, bucket: Any) -> Future[Tensor]:
    """The mean of gradients, matrices of them as products of thin ones."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    return _with_feedback(state, bucket, bucket.gradients())


def batched_powerSGD_hook(state: PowerSGDState, bucket: Any) -> Future[Tensor]:
    """The same for the whole bucket as one square matrix: faster and less exact."""
    if state.iter < state.start_powerSGD_iter:
        state.maybe_increase_iter(bucket)
        return allreduce_hook(state.process_group, bucket)
    buffer = bucket.buffer()
    side = int(buffer.numel() ** 0.5)
    return _with_feedback(state, bucket, [buffer[: side * side].view(side, side), buffer[side * side :]])

"""Averages of gradients, in full and in half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import Tensor, no_grad
from rushlight.distributed.c10d.collectives import all_reduce_mean
from rushlight.futures import Future

__all__ = [
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
]


def allreduce_hook(process_group: Any, bucket: Any) -> Future[Tensor]:
    """The hook that `DistributedDataParallel` has by default: the mean over the processes."""
    work: Any = all_reduce_mean(bucket.buffer(), process_group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def compressed(process_group: Any, bucket: Any, dtype: Any) -> Future[Tensor]:
    """The mean of gradients that travel in a half type; it is rounded once."""
    buffer = bucket.buffer()
    with no_grad():
        sent = buffer.to(dtype)
    work: Any = all_reduce_mean(sent, process_group, async_op=True)

    def widen(future: Future[Any]) -> Tensor:
        with no_grad():
            return buffer.copy_(future.value()[0])

    return work.get_future().then(widen)


def fp16_compress_hook(process_group: Any, bucket: Any) -> Future[Tensor]:
    """The mean of gradients rounded to float16: half the bytes of float32."""
    return compressed(process_group, bucket, rushlight.float16)


def bf16_compress_hook(process_group: Any, bucket: Any) -> Future[Tensor]:
    """The mean of gradients rounded to bfloat16."""
    return compressed(process_group, bucket, rushlight.bfloat16)


def _wrapper(hook: Callable[[Any, Any], Future[Tensor]], dtype: Any) -> Callable[[Any, Any], Future[Tensor]]:
    def compressed(state: Any, bucket: Any) -> Future[Tensor]:
        buffer = bucket.buffer()
        with no_grad():
            bucket.set_buffer(buffer.to(dtype))

        def widen(future: Future[Any]) -> Tensor:
            found = future.value()
            found = found[0] if isinstance(found, (list, tuple)) else found
            with no_grad():
                buffer.copy_(found)
            bucket.set_buffer(buffer)
            return buffer

        return hook(state, bucket).then(widen)

    return compressed


def fp16_compress_wrapper(hook: Callable[[Any, Any], Future[Tensor]]) -> Callable[[Any, Any], Future[Tensor]]:
    """Another hook, on gradients rounded to float16."""
    return _wrapper(hook, rushlight.float16)


def bf16_compress_wrapper(hook: Callable[[Any, Any], Future[Tensor]]) -> Callable[[Any, Any], Future[Tensor]]:
    """Another hook, on gradients rounded to bfloat16."""
    return _wrapper(hook, rushlight.bfloat16)

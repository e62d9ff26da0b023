"""Communication hooks of `DistributedDataParallel`: other ways to average the gradients in a bucket."""

from __future__ import annotations

import enum
from functools import partial
from typing import Any

from rushlight.distributed.algorithms.ddp_comm_hooks import (
    debugging_hooks,
    default_hooks,
    post_localSGD_hook,
    powerSGD_hook,
)

__all__ = ["DDPCommHookType", "register_ddp_comm_hook"]


class DDPCommHookType(enum.Enum):
    """The hooks by name: `DDPCommHookType.FP16_COMPRESS.value(state=..., model=...)` registers one."""

    ALLREDUCE = partial(lambda hook, model, state: model.register_comm_hook(state, hook), default_hooks.allreduce_hook)
    FP16_COMPRESS = partial(
        lambda hook, model, state: model.register_comm_hook(state, hook), default_hooks.fp16_compress_hook
    )
    BF16_COMPRESS = partial(
        lambda hook, model, state: model.register_comm_hook(state, hook), default_hooks.bf16_compress_hook
    )
    POWER_SGD = partial(lambda hook, model, state: model.register_comm_hook(state, hook), powerSGD_hook.powerSGD_hook)
    POST_LOCAL_SGD = partial(
        lambda hook, model, state: model.register_comm_hook(state, hook), post_localSGD_hook.post_localSGD_hook
    )
    NOOP = partial(lambda hook, model, state: model.register_comm_hook(state, hook), debugging_hooks.noop_hook)


def register_ddp_comm_hook(comm_hook_type: DDPCommHookType, model: Any, state: Any = None) -> None:
    """Register a hook by its name."""
    comm_hook_type.value(model=model, state=state)

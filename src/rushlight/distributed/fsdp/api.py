"""Arguments of `FullyShardedDataParallel`: strategies, dtypes, and the forms of state dicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from rushlight.nn.modules.batchnorm import _BatchNorm

__all__ = [
    "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig", "LocalOptimStateDictConfig",
    "LocalStateDictConfig", "MixedPrecision", "OptimStateDictConfig", "OptimStateKeyType", "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig", "ShardingStrategy", "StateDictConfig", "StateDictSettings", "StateDictType",
]  # fmt: skip


class ShardingStrategy(Enum):
    """Which states are divided among processes.

    `FULL_SHARD`: parameters, gradients, optimizer states.  `SHARD_GRAD_OP`: gathered parameters stay until backward.
    `NO_SHARD`: nothing; gradients are averaged.  `HYBRID_SHARD`: as `FULL_SHARD` within a machine, with replicas on
    several; `_HYBRID_SHARD_ZERO2`: as `SHARD_GRAD_OP` within a machine.
    """

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When the parameters that backward needs next are gathered: before the gradients of this module are computed
    (`BACKWARD_PRE`), or after (`BACKWARD_POST`: then nothing overlaps with this module's computation).
    """

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


@dataclass
class MixedPrecision:
    """Dtypes: of whole parameters and what they compute (`param_dtype`), of reductions (`reduce_dtype`, by default
    `param_dtype`), of buffers (`buffer_dtype`); None leaves a dtype as it is.

    `cast_forward_inputs` casts the inputs of every wrapped module, `cast_root_forward_inputs` those of the outermost one.
    Modules of `_module_classes_to_ignore` keep their dtypes where an `auto_wrap_policy` wraps.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    buffer_dtype: Any = None
    keep_low_precision_grads: bool = False
    cast_forward_inputs: bool = False
    cast_root_forward_inputs: bool = True
    _module_classes_to_ignore: Sequence[type] = (_BatchNorm,)


@dataclass
class CPUOffload:
    """Whether parts of parameters are kept in the host's memory, where those of a CPU are anyway."""

    offload_params: bool = False


class StateDictType(Enum):
    """Form of state dicts: whole tensors, this process's local tensors, or `DTensor`s."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


@dataclass
class StateDictConfig:
    """Options of a form of state dicts.  `offload_to_cpu`: as copies in the host's memory."""

    offload_to_cpu: bool = False


@dataclass
class FullStateDictConfig(StateDictConfig):
    """Whole tensors.  With `rank0_only` other processes get an empty dict."""

    rank0_only: bool = False


@dataclass
class LocalStateDictConfig(StateDictConfig):
    """This process's local tensors."""


@dataclass
class ShardedStateDictConfig(StateDictConfig):
    """`DTensor`s, whatever `_use_dtensor` says."""

    _use_dtensor: bool = False


@dataclass
class OptimStateDictConfig:
    """Options of the state dicts of optimizers."""

    offload_to_cpu: bool = True


@dataclass
class FullOptimStateDictConfig(OptimStateDictConfig):
    """Whole tensors.  With `rank0_only` other processes get an empty dict."""

    rank0_only: bool = False


@dataclass
class LocalOptimStateDictConfig(OptimStateDictConfig):
    """This process's local tensors."""

    offload_to_cpu: bool = False


@dataclass
class ShardedOptimStateDictConfig(OptimStateDictConfig):
    """`DTensor`s, whatever `_use_dtensor` says."""

    _use_dtensor: bool = False


@dataclass
class StateDictSettings:
    """Form and options of the state dicts of a module and its optimizer."""

    state_dict_type: StateDictType
    state_dict_config: StateDictConfig
    optim_state_dict_config: OptimStateDictConfig


class OptimStateKeyType(Enum):
    """How the state dict of an optimizer names parameters."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


CONFIGS: dict[StateDictType, tuple[type, type]] = {
    StateDictType.FULL_STATE_DICT: (FullStateDictConfig, FullOptimStateDictConfig),
    StateDictType.LOCAL_STATE_DICT: (LocalStateDictConfig, LocalOptimStateDictConfig),
    StateDictType.SHARDED_STATE_DICT: (ShardedStateDictConfig, ShardedOptimStateDictConfig),
}

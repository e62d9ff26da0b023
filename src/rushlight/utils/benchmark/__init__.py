"""How long things take, as `torch.utils.benchmark`.

>>> from rushlight.utils import benchmark
>>> timer = benchmark.Timer("x.sum()", setup="x = torch.ones(8)", label="sums")
>>> timer.timeit(2).task_spec.label
'sums'
"""

from __future__ import annotations

from rushlight.utils.benchmark.callgrind import CallgrindStats, CopyIfCallgrind, FunctionCount, FunctionCounts
from rushlight.utils.benchmark.compare import Colorize, Compare
from rushlight.utils.benchmark.fuzzer import FuzzedParameter, FuzzedSparseTensor, FuzzedTensor, Fuzzer, ParameterAlias
from rushlight.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    ordered_unique,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from rushlight.utils.benchmark.timer import Language, Timer, timer

__all__ = [
    "CallgrindStats", "Colorize", "Compare", "CopyIfCallgrind", "FunctionCount", "FunctionCounts", "FuzzedParameter", "FuzzedSparseTensor",
    "FuzzedTensor", "Fuzzer", "Language", "Measurement", "ParameterAlias", "TaskSpec", "Timer", "ordered_unique", "select_unit",
    "set_torch_threads", "timer", "trim_sigfig", "unit_to_english",
]  # fmt: skip

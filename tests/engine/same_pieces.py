"""Every operator's samples with 1, 2, 3 and 8 threads, cut into pieces as only large work usually is; `test_same_bits.py` runs it.

Samples are small, so the amounts of work that make a piece are set to almost nothing before anything is planned, which is why this is a
process of its own.  Prints how many samples ran in several pieces, then a line for each whose bits depend on the number of threads.
"""

from __future__ import annotations

import warnings
from types import ModuleType
from typing import Any

from tests.ops.test_eager import RUN, arguments, listed, names_of_tensors

import rushlight as torch
from rushlight._backends.cpu import externs, kernels
from rushlight._backends.cpu.conv import direct
from rushlight._backends.cpu.fft import fourier
from rushlight._backends.cpu.gemm import blas
from rushlight._backends.cpu.image import resample, unpool
from rushlight._backends.cpu.linalg import lapack, small_factors
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.cpu.runtime.threads_native import ALONE, JOB_SHIFT, TICKET
from rushlight._engine.core.convert import numpy_of
from rushlight._ops.table import OPERATORS
from rushlight._surface.registry import function_of

COUNTS = (1, 2, 3, 8)
GRAINS: dict[tuple[ModuleType, str], int] = {
    (direct, "_PIECE"): 1, (direct, "_SHARE"): 1,
    (externs, "_PIECE"): 1, (fourier, "_PIECE"): 1, (lapack, "_GRAIN"): 1, (resample, "_PIECE"): 1, (small_factors, "_GRAIN"): 1,
    (blas, "_SMALL_GRAIN"): 1, (blas, "_LEAST_GRAIN"): 1, (blas, "_BATCH_GRAIN"): 1, (unpool, "_PIECE"): 1,
}  # fmt: skip


def jobs() -> int:
    """How many jobs the pool has been given, but for those of one piece."""
    return (runtime().threads[TICKET] % (1 << 64)) >> JOB_SHIFT


def bits(tensors: list[Any]) -> list[bytes]:
    return [numpy_of(t, force=True).tobytes() for t in tensors if isinstance(t, torch.Tensor)]


def made(key: str, i: int) -> list[bytes]:
    """The results of a sample, and the gradients where it has any."""
    torch.manual_seed(0)
    op = OPERATORS[key]
    args, kwargs, leaves, bound = arguments(op, i, lower=False)
    refused = [name in op.constants for name in names_of_tensors(op, bound)]
    wrt = [
        x for x, no in zip(leaves, refused, strict=True) if not no and (x.dtype.is_floating_point or x.dtype.is_complex)
    ]
    outs = listed(function_of(key)(*args, **kwargs))
    found = bits(outs)
    for x in wrt:
        x.requires_grad_()
    try:
        outs = [o for o in listed(function_of(key)(*args, **kwargs)) if isinstance(o, torch.Tensor) and o.requires_grad]
        weights = [torch.randn(o.shape, dtype=o.dtype) for o in outs]
        return found + bits(torch.autograd.grad(outs, wrt, weights, allow_unused=True)) if outs else found
    except RuntimeError as error:
        if not str(error).startswith("derivative for aten::"):  # what has no derivative says so
            raise
        return found


def main() -> None:
    for (module, name), grain in GRAINS.items():
        assert getattr(module, name) > grain
        setattr(module, name, grain)
    policy = kernels.host().policy._replace(piece=1, least_piece=1, serial_work=512)
    kernels._TARGET[0] = kernels.host()._replace(policy=policy)
    cut, faults = 0, []
    for key, i in RUN:
        before, found = jobs(), []
        for count in COUNTS:
            torch.set_num_threads(count)
            runtime().threads[ALONE] = 0  # jobs are shared, whatever sharing cost the last time
            found.append(made(key, i))
        cut += jobs() > before
        faults += [f"{key}-{i} with {n} threads" for n, other in zip(COUNTS, found, strict=True) if other != found[0]]
    print(cut, *faults, sep="\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()

"""Who factorises matrices on a card: our kernels and the host's LAPACK, or cuSOLVER where it is installed.

A choice is made once for sizes, a type, a device and a library, by measuring both ways on random matrices, and kept on
disk.  A library whose factors do not give the matrices again is not taken.  Emulated devices never ask, and neither does a
program that asks for determinism.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.libraries.cusolver import WHEEL, cusolver
from rushlight._backends.cuda.libraries.provider import cuda_backend, is_usable, measured_once, provider_knob
from rushlight._backends.cuda.linalg.solver import solver_steps, takes
from rushlight._backends.cuda.program.steps import Step
from rushlight._backends.cuda.trials import Trial
from rushlight._backends.precision import DETERMINISTIC, LIBRARIES
from rushlight._base.lazy import numpy as np
from rushlight._types.device import Device
from rushlight._types.layout import numel

__all__ = ["WHO", "agrees", "chosen", "matrices_for"]


WHO = provider_knob("RUSHLIGHT_CUDA_LINALG", "factorises matrices", WHEEL.title, ours="`ours` (and the host's LAPACK)")

SMALL = 1 << 21  # multiplications, below which nothing is measured
_CLOSE = {"float32": 1e-4, "complex64": 1e-4, "float64": 1e-11, "complex128": 1e-11}


def chosen(call: ExternCall, ours: Sequence[Step]) -> list[Step]:
    """Our steps, or the library's."""
    if not asks_library(call):
        return list(ours)
    theirs = solver_steps(call, cusolver())
    wanted = WHO.get() == "library" or LIBRARIES.linalg == "cusolver"
    return theirs if wanted or is_faster(call, ours, theirs) else list(ours)


def asks_library(call: ExternCall) -> bool:
    """Whether the library may compute a call here; MissingExtraError where it must and is not installed."""
    who, x = WHO.get(), call.inputs[0]
    if who == "ours" or DETERMINISTIC[0] or not takes(call):
        return False
    wanted = who == "library" or LIBRARIES.linalg == "cusolver"
    if not wanted and numel(x.shape) * min(x.shape[-2:]) < SMALL:
        return False
    return is_usable(WHO, WHEEL)


def is_faster(call: ExternCall, ours: Sequence[Step], theirs: Sequence[Step]) -> bool:
    """Whether the library was measured to be faster, and right; from disk where that is known."""
    backend = cuda_backend()
    shapes = [f"{x.dtype.name}{x.shape}" for x in (*call.inputs, *call.outputs)]

    def measure(device: Device) -> bytes:
        arrays = matrices_for(call.name, [(x.shape, x.dtype.name) for x in call.inputs])
        trial = Trial(backend, device, list(zip(call.inputs, arrays, strict=True)), call.outputs)
        (mine, mine_s), (other, other_s) = (_shaped(call, *trial.timed(steps)) for steps in (ours, theirs))
        right = agrees(call.name, call.params, arrays, other, mine)
        return b"library" if right and other_s < mine_s else b"ours"

    words = [WHEEL.path() or "", call.name, repr(sorted(call.params.items())), *shapes]
    return measured_once(backend, "cuda linalg", words, measure) == b"library"


def _shaped(call: ExternCall, numbers: Sequence[Any], seconds: float) -> tuple[list[Any], float]:
    return [n.reshape(x.shape) for n, x in zip(numbers, call.outputs, strict=True)], seconds


# ***** matrices to try, and whether factors are theirs *****


def matrices_for(name: str, inputs: Sequence[tuple[tuple[int, ...], str]]) -> list[Any]:
    """Random operands of a factorisation."""
    random = np.random.default_rng(0)
    (shape, dtype), *more = inputs
    a = random.standard_normal(shape)
    if dtype.startswith("complex"):
        a = a + 1j * random.standard_normal(shape)
    if name in ("cholesky", "eigh"):
        n = shape[-1]
        a = (a + np.conj(np.swapaxes(a, -1, -2))) / 2
        a = a + 4 * np.sqrt(n) * np.eye(n) if name == "cholesky" else a
    arrays = [a.astype(dtype)]
    if name == "reflections":  # reflections need 2 / |v|^2, where v is a column below its diagonal with 1 on it
        k = more[0][0][-1]
        v = np.tril(a, -1)[..., :k]
        arrays.append((2 / (1 + (np.abs(v) ** 2).sum(-2))).astype(dtype))
    return arrays


def agrees(
    name: str, params: Mapping[str, Any], given: Sequence[Any], found: Sequence[Any], ours: Sequence[Any]
) -> bool:
    """Whether results are factors of the first matrix, and numbers that are determined those of ours."""
    bound = _CLOSE[given[0].dtype.name]
    wide = lambda x: x.reshape(-1, *x.shape[-2:])[0].astype("complex128" if x.dtype.kind == "c" else "float64")
    line = lambda x: x.reshape(-1, x.shape[-1])[0].astype("float64")
    a = wide(given[0])

    def near(x: Any, y: Any) -> bool:
        return bool(np.abs(x - y).max() <= bound * max(float(np.abs(y).max()), 1e-30) * np.sqrt(a.shape[-2]))

    if name == "cholesky":
        lower = wide(found[0])
        return near(lower @ lower.conj().T, a) and not np.triu(lower, 1).any()
    if name == "lu":
        return np.array_equal(found[1], ours[1]) and near(wide(found[0]), wide(ours[0]))
    if name == "qr":
        r = np.triu(wide(found[0])[: min(a.shape)])
        return near(r.conj().T @ r, a.conj().T @ a)
    if name == "reflections":
        return near(wide(found[0]), wide(ours[0]))
    values = 1 if name == "svd" and params["vectors"] else 0
    if not near(line(found[values]), line(ours[values])):
        return False
    if name == "eigh" and params["vectors"]:
        v = wide(found[1])
        return near((v * line(found[0])) @ v.conj().T, a)
    if name == "svd" and params["vectors"]:
        k = min(a.shape)
        return near((wide(found[0])[:, :k] * line(found[1])) @ wide(found[2])[:k], a)
    return True

"""Factorisations by cuSOLVER's functions, before a library whose routines are LAPACK's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.cuda.libraries.pretended_cusolver import Pretended, block_memory
from tests.cuda.running import Device, close, primitive

import rushlight as torch
from rushlight._backends.cuda import trials
from rushlight._backends.cuda.arguments import dense_operand
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.immediate import Immediate, Placed
from rushlight._backends.cuda.libraries import provider
from rushlight._backends.cuda.libraries.cusolver import LIBRARY, WHEEL, CuSolver, cusolver
from rushlight._backends.cuda.linalg import choice, solver
from rushlight._backends.cuda.linalg.choice import agrees, matrices_for
from rushlight._backends.cuda.linalg.host import host_step
from rushlight._backends.cuda.program.steps import Memory
from rushlight._backends.precision import LIBRARIES
from rushlight._backends.registry import backend_of
from rushlight._base.errors import MissingExtraError
from rushlight._prims import PRIMITIVES
from rushlight._types.device import Device as Place
from rushlight._types.dtype import BY_NAME

SHAPES = {
    "cholesky": [(2, 5, 5)], "lu": [(2, 5, 5), (3, 7, 4), (2, 4, 6)], "qr": [(6, 4), (2, 3, 5)], "eigh": [(2, 5, 5)],
    "svd": [(2, 6, 4), (2, 4, 6), (5, 5)],
}  # fmt: skip
PARAMS: dict[str, list[dict[str, Any]]] = {
    "qr": [{"form": "packed"}],
    "eigh": [{"vectors": True}, {"vectors": False}],
    "svd": [{"full": full, "vectors": vectors} for full, vectors in ((False, True), (True, True), (False, False))],
}
CASES = [(name, shape, params) for name in SHAPES for shape in SHAPES[name] for params in PARAMS.get(name, [{}])]

REAL = SimpleNamespace(driver=SimpleNamespace(emulated=False))  # a backend whose devices are not emulated


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pretended]:
    monkeypatch.setattr(solver, "current_device", lambda: 0)
    yield block_memory(lambda: Device.last.memory)


def by(library: Pretended) -> Any:
    return lambda call: solver.solver_steps(call, CuSolver(library))


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize(("name", "shape", "params"), CASES)
def test_factors_are_those_of_the_matrices(
    name: str, shape: tuple[int, ...], params: dict[str, Any], dtype: str, library: Pretended
) -> None:
    """Every matrix of a batch, tall and wide ones, in row-major memory."""
    given = matrices_for(name, [(shape, dtype)])
    found = primitive(name, given, params, build=by(library))
    right = PRIMITIVES[name].reference(*given, **params)
    assert len(library.ran) == int(np.prod(shape[:-2])) and set(library.streams) == {0}
    for i in np.ndindex(shape[:-2]):
        each = [[x[i][None] for x in arrays] for arrays in (given, found, right)]
        assert agrees(name, params, *each)
    if name in ("cholesky", "lu"):
        for mine, theirs in zip(found, right, strict=True):
            close(mine, theirs)
    elif name != "qr":
        assert not found[-1].any()
    if params.get("full"):
        for side in (found[0], found[2]):
            close(
                side @ np.conj(side.swapaxes(-1, -2)), np.broadcast_to(np.eye(side.shape[-1], dtype=dtype), side.shape)
            )


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_reflections_of_packed_matrices(dtype: str, library: Pretended) -> None:
    (a,) = matrices_for("qr", [((2, 6, 4), dtype)])
    packed, tau = primitive("qr", [a], {"form": "packed"}, build=by(library))
    (q,) = primitive("reflections", [packed, tau], {}, build=by(library))
    close(q @ np.triu(packed[..., :4, :]), a)
    close(
        primitive("reflections", [packed, tau], {}, build=by(library))[0],
        PRIMITIVES["reflections"].reference(packed, tau),
    )


def test_matrices_without_factors_say_so(library: Pretended) -> None:
    a = np.stack([np.eye(4), -np.eye(4)]).astype(np.float32)
    assert primitive("cholesky", [a], {}, build=by(library))[1].tolist() == [0, 1]


def call_of(name: str, shape: tuple[int, ...], dtype: str = "float64", **params: Any) -> ExternCall:
    """A call with memory of its own."""
    specs = PRIMITIVES[name].spec(dense_operand(Memory(0), BY_NAME[dtype], shape), **params)
    given = [(shape, BY_NAME[dtype]), *(specs if isinstance(specs, list) else [specs])]
    made = [dense_operand(Memory(int(np.prod(s)) * t.itemsize), t, s) for s, t in given]
    return ExternCall(name, made[:1], made[1:], params)


def test_who_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small matrices, types that the library lacks, programs that want determinism: not it."""
    monkeypatch.setattr(provider, "cuda_backend", lambda: REAL)
    monkeypatch.setattr(choice, "WHEEL", WHEEL._replace(knob=Path("/there/libcusolver.so.11")))
    large = call_of("eigh", (512, 512), vectors=True)
    assert choice.asks_library(large) and not choice.asks_library(call_of("eigh", (64, 64), vectors=True))
    assert not choice.asks_library(call_of("eig", (512, 512), vectors=True))
    with choice.WHO.scoped("ours"):
        assert not choice.asks_library(large)
    with choice.WHO.scoped("library"):
        assert choice.asks_library(call_of("eigh", (64, 64), vectors=True))
        monkeypatch.setattr(choice, "DETERMINISTIC", [True])
        assert not choice.asks_library(large)


class Path:
    """A knob."""

    def __init__(self, path: str) -> None:
        self.path = path

    def get(self) -> str:
        return self.path


def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host computes; who asks for the library alone is told what is missing."""
    monkeypatch.setattr(choice, "WHEEL", WHEEL._replace(knob=Path("none")))
    call = call_of("eigh", (512, 512), vectors=True)
    host = [host_step(call)]
    assert choice.chosen(call, host) == host
    with (
        choice.WHO.scoped("library"),
        pytest.raises(MissingExtraError, match="cuSOLVER is not installed.*extra 'cuda'"),
    ):
        choice.chosen(call, host)
    monkeypatch.setattr("rushlight._backends.cuda.libraries.cusolver._loaded", [])
    monkeypatch.setattr("rushlight._backends.cuda.libraries.cusolver.WHEEL", WHEEL._replace(knob=Path("/dev/null")))
    with pytest.raises(RuntimeError, match="/dev/null is no cuSOLVER"):
        cusolver()


def test_a_program_prefers_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no measurement; without the library setting it is an error, and nothing is changed."""
    settings: Any = torch.backends.cuda
    monkeypatch.setattr(settings, "is_built", lambda: True)
    monkeypatch.setattr(settings, "_missing_library", lambda name: f"{name} is missing")
    with pytest.raises(RuntimeError, match="Cusolver: cusolver is missing"):
        settings.preferred_linalg_library("cusolver")
    assert settings.preferred_linalg_library().name == "Default" and LIBRARIES.linalg == "default"
    monkeypatch.setattr(settings, "_missing_library", lambda name: None)
    monkeypatch.setattr(choice, "WHEEL", WHEEL._replace(knob=Path("/there/libcusolver.so.11")))
    monkeypatch.setattr(provider, "cuda_backend", lambda: REAL)
    try:
        settings.preferred_linalg_library("cusolver")
        assert LIBRARIES.linalg == "cusolver" and choice.asks_library(call_of("eigh", (8, 8), vectors=True))
    finally:
        settings.preferred_linalg_library("default")
    assert not choice.asks_library(call_of("eigh", (8, 8), vectors=True))


def test_wrong_factors_are_not_taken() -> None:
    for name, shape, params in CASES:
        given = matrices_for(name, [(shape, "float64")])
        right = list(PRIMITIVES[name].reference(*given, **params))
        first = [[x.reshape(-1, *x.shape[len(shape) - 2 :])[:1] for x in arrays] for arrays in (given, right)]
        assert agrees(name, params, *first, first[1])
        wrong = [x.copy() for x in first[1]]
        wrong[1 if name == "svd" and params["vectors"] else 0][...] *= 1.01
        assert not agrees(name, params, first[0], wrong, first[1])


@pytest.mark.cuda
@pytest.mark.parametrize("answer", ["right", "nothing"])
def test_a_trial_of_both_ways(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's way and a library's, on random matrices; a library that writes nothing is not taken."""
    backend: Any = backend_of(Place("cuda", 0))
    backend.initialize(Place("cuda", 0))
    now = Immediate(backend, Place("cuda", 0))

    def write(at: int, data: bytes) -> None:
        if answer == "right":
            now.write(Placed(at), data)

    pretended = Pretended(lambda at, nbytes: now.read(Placed(at), nbytes), write)
    kept: dict[Any, bytes] = {}
    cache = type("Cache", (), {"key": lambda self, *parts: parts, "get": kept.get, "put": kept.__setitem__})()
    cache.get, cache.put = kept.get, kept.__setitem__
    monkeypatch.setattr(provider, "default_cache", lambda: cache)
    times = iter([0.0, 2.0, 0.0, 2.0, 0.0, 1.0, 0.0, 1.0])  # the library takes half of the host's time
    monkeypatch.setattr(trials, "perf_counter", lambda: next(times))
    call = call_of("svd", (2, 9, 12), full=False, vectors=True)
    theirs = solver.solver_steps(call, CuSolver(pretended))
    for _ in range(2):  # from the cache the second time
        assert choice.is_faster(call, [host_step(call)], theirs) == (answer == "right")
    assert list(kept.values()) == [b"library" if answer == "right" else b"ours"]


@pytest.mark.parametrize("layout", ["12", "13"])
def test_libraries_of_other_wheels_are_open_before(layout: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's loader looks in no wheel for what a library asks it for; what is open it knows by name."""
    opened: list[str] = []

    def open_one(path: str) -> object:
        opened.append(os.path.basename(path))
        if "cusparse" in path:
            raise OSError("not for this processor")
        return object()

    for file, folder in (("libcublas.so", "cublas"), ("libcusparse.so", "cusparse"), ("libcusolver.so", "cusolver")):
        place = tmp_path / "nvidia" / (folder if layout == "12" else "cu13") / "lib"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{file}.{layout}").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("ctypes.CDLL", open_one)
    WHEEL.open()
    assert opened == [f"lib{name}.so.{layout}" for name in ("cublas", "cusparse", "cusolver")]
    with LIBRARY.scoped("/elsewhere/libcusolver.so"):
        WHEEL.open()
    assert opened[3:] == ["libcusolver.so"]

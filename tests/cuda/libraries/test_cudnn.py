"""Convolutions by cuDNN's functions, before a library that computes what its descriptors say."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.cuda.grids.grid_harness import Ran, check
from tests.cuda.libraries.pretended_cudnn import PretendedCuDnn
from tests.cuda.libraries.test_cusolver import Path

import rushlight as torch
from rushlight._backends.cuda import trials
from rushlight._backends.cuda.arguments import dense_operand
from rushlight._backends.cuda.conv import library as by_library
from rushlight._backends.cuda.conv.conv import convolution_steps
from rushlight._backends.cuda.conv.described import Described
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.immediate import Immediate, Placed
from rushlight._backends.cuda.libraries.cudnn import _SIGNATURES, EXACT_MATH, WHEEL, Algorithm, CuDnn
from rushlight._backends.cuda.program.steps import Memory
from rushlight._backends.precision import LIBRARIES
from rushlight._backends.registry import backend_of
from rushlight._base.errors import MissingExtraError
from rushlight._prims import build, prim
from rushlight._prims.linalg.contraction import _conv_grad_input, _conv_grad_weight, conv_shape
from rushlight._types.device import Device as Place
from rushlight._types.dtype import FLOAT32


def bytes_at(at: int, nbytes: int) -> Any:
    for buffer in Ran.last.memory.buffers:  # type: ignore[attr-defined]
        if buffer.address <= at and at + nbytes <= buffer.address + buffer.data.size:
            return buffer.data[at - buffer.address :][:nbytes]
    raise AssertionError(f"no memory at {at:#x}")


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[PretendedCuDnn]:
    pretended = PretendedCuDnn(bytes_at)
    monkeypatch.setattr(by_library, "asks_library", lambda call: True)
    monkeypatch.setattr(by_library, "cudnn", lambda: CuDnn(pretended))
    monkeypatch.setattr(by_library, "current_device", lambda: 0)
    monkeypatch.setattr(by_library, "_fastest", lambda call, found, alone: found[0])
    yield pretended


FORMS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 8, 7), (4, 3, 3, 2), {"stride": (1, 1), "padding": (1, 0), "dilation": (1, 1), "groups": 1}),
    "strides": ((2, 3, 9, 8), (5, 3, 3, 3), {"stride": (2, 3), "padding": (1, 1), "dilation": (1, 1), "groups": 1}),
    "dilation": ((1, 2, 9, 9), (3, 2, 3, 2), {"stride": (1, 2), "padding": (2, 1), "dilation": (2, 3), "groups": 1}),
    "groups": ((2, 4, 6, 6), (6, 2, 3, 3), {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 2}),
    "rows": ((2, 3, 20), (4, 3, 5), {"stride": (2,), "padding": (2,), "dilation": (1,), "groups": 1}),
    "volumes": ((1, 2, 4, 5, 4), (3, 2, 2, 2, 2), {"stride": (1, 2, 1), "padding": (0, 1, 0), "dilation": (1, 1, 1), "groups": 1}),
}  # fmt: skip


def arrays_for(form: str) -> tuple[Any, Any, Any, dict[str, Any]]:
    """The images, the weights, a cotangent, the parameters."""
    x, w, params = FORMS[form]
    random = np.random.default_rng(0)
    out = conv_shape(x, w, **params)
    images, weights, cotangent = (random.normal(size=s).astype(np.float32) for s in (x, w, out))
    return images, weights, cotangent, params


def last(library: PretendedCuDnn) -> str:
    """What the library was asked for last: by the first algorithm that it has within the workspace."""
    kind, number = library.ran[-1]
    assert number == 7 and len(library.ran) == 1
    return kind


@pytest.mark.parametrize("form", FORMS)
def test_forward(form: str, library: PretendedCuDnn) -> None:
    x, w, _, params = arrays_for(form)
    check(lambda x, w: prim.conv(x, w, **params), x, w, rtol=1e-4, atol=1e-4, calls=True)
    assert last(library) == "Forward"
    convolution = next(o for o in library.objects.values() if "math" in o)
    assert convolution["math"] == EXACT_MATH and convolution["groups"] == params["groups"] and convolution["sums"] == 0


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_by_images(form: str, library: PretendedCuDnn) -> None:
    x, w, ct, params = arrays_for(form)
    check(lambda ct, w: _conv_grad_input(ct, x, w, **params), ct, w, rtol=1e-4, atol=1e-4, calls=True)
    assert last(library) == "BackwardData"


@pytest.mark.parametrize("form", FORMS)
def test_the_gradient_by_weights(form: str, library: PretendedCuDnn) -> None:
    x, w, ct, params = arrays_for(form)
    check(lambda ct, x: _conv_grad_weight(ct, x, w, **params), ct, x, rtol=1e-4, atol=1e-4, calls=True)
    assert last(library) == "BackwardFilter" or form == "dilation"


def test_work_behind_a_convolution(library: PretendedCuDnn) -> None:
    """A bias, an activation, another operand: a kernel that reads the library's result."""
    x, w, other, params = arrays_for("strides")
    bias = np.random.default_rng(1).normal(size=5).astype(np.float32)

    def layer(x: Any, w: Any, bias: Any, other: Any) -> Any:
        spread = prim.broadcast(bias, shape=other.shape, dims=(1,))
        return prim.tanh(prim.conv(x, w, **params) + spread) + other

    ran = check(layer, x, w, bias, other, rtol=1e-4, atol=1e-4, calls=True)
    assert last(library) == "Forward" and len(ran.program.steps) == 3


def test_channels_last(library: PretendedCuDnn) -> None:
    x, w, ct, params = arrays_for("strides")
    lies = lambda shape: (int(np.prod(shape[1:])), 1, *(int(np.prod(shape[d + 1 :])) * shape[1] for d in range(2, 4)))
    strides = {0: lies(x.shape), 1: lies(w.shape)}
    check(
        lambda x, w: prim.conv(x, w, **params),
        x,
        w,
        rtol=1e-4,
        atol=1e-4,
        calls=True,
        strides=strides,
        out_strides=[lies(ct.shape)],
    )
    assert last(library) == "Forward"
    assert all(o["strides"][1] == 1 for o in library.objects.values() if "strides" in o)


def test_what_the_library_has_not(library: PretendedCuDnn) -> None:
    """Images with gaps in memory, and padding on one side alone, are ours."""
    x, w, _, params = arrays_for("plain")
    check(
        lambda x, w: prim.conv(build.pad(x, (0, 0, 2, 0), (0, 0, 0, 1), (0,) * 4), w, **params),
        x,
        w,
        rtol=1e-4,
        atol=1e-4,
    )
    check(lambda x, w: prim.conv(x, w, **params), x, w, rtol=1e-4, atol=1e-4, strides={0: (400, 100, 10, 1)})
    assert not library.ran


def test_native_code_makes_the_same_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a library of C: functions that write down what they are given stand for cuDNN's."""
    monkeypatch.setattr(by_library, "current_device", lambda: 0)
    seen: list[tuple[Any, ...]] = []
    names = ("cudnnSetStream", "cudnnConvolutionForward")
    functions = {
        n: ctypes.CFUNCTYPE(ctypes.c_int, *_SIGNATURES[n])(lambda *words: int(seen.append(words) or 0)) for n in names
    }
    made = CuDnn(None)
    made._handles[0], made._found = ctypes.c_void_p(9), dict(functions)
    arrays = [dense_operand(Memory(0), FLOAT32, (1, 1, 1, 1)) for _ in range(3)]
    meant = Described("forward", arrays[0], arrays[1], arrays[2], (0, 0), (1, 1), (1, 1), False, 1)
    run = by_library._Convolution(made, meant, [ctypes.c_void_p(n) for n in (1, 2, 3, 4)], Algorithm(7, 256))
    asked, stream = run.native, by_library._OnStream(made).native
    assert (
        asked is not None and stream is not None and (stream.words, stream.stream, stream.works) == ([9, 0], 1, False)
    )
    run(0x77, 0xA, 0xB, 0xC, 0xD)
    words = list(asked.words)
    for (place,), address in zip(asked.places, (0xA, 0xB, 0xC, 0xD), strict=True):
        words[place] = address
    assert seen == [(9, 0x77), tuple(words)] and asked.stream >= len(words)


def test_algorithms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that failed or want too much memory are left out, by `deterministic` also those whose bits change."""
    made = CuDnn(PretendedCuDnn(bytes_at))
    assert [a.number for a in made.algorithms("forward", 0, 0, 0, 0, 0)] == [7, 5]
    assert [a.number for a in made.algorithms("forward", 0, 0, 0, 0, 0, deterministic=True)] == [5]
    assert made.version() == 92800


def test_who_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, _, params = arrays_for("plain")
    monkeypatch.setattr(by_library, "WHEEL", WHEEL._replace(knob=Path("none")))
    go = lambda: check(lambda x, w: prim.conv(x, w, **params), x, w, rtol=1e-4, atol=1e-4)
    go()
    with by_library.WHO.scoped("library"):
        with pytest.raises(MissingExtraError, match="cuDNN is not installed.*extra 'cuda'"):
            go()
        monkeypatch.setattr(LIBRARIES, "cudnn", False)
        go()


def test_settings_of_a_program() -> None:
    settings: Any = torch.backends.cudnn
    with settings.flags(enabled=False, benchmark=True, deterministic=True):
        assert (LIBRARIES.cudnn, LIBRARIES.cudnn_benchmark, LIBRARIES.cudnn_deterministic) == (False, True, True)
    assert (LIBRARIES.cudnn, LIBRARIES.cudnn_benchmark, LIBRARIES.cudnn_deterministic) == (True, False, False)
    assert not settings.is_available() and settings.version() is None


@pytest.mark.cuda
@pytest.mark.parametrize("answer", ["right", "nothing"])
def test_a_trial_of_all_algorithms(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours, and each that the library has, on random images; one that writes nothing is not taken."""
    place = Place("cuda", 0)
    backend: Any = backend_of(place)
    backend.initialize(place)
    now, lent = Immediate(backend, place), {}

    def find(at: int, nbytes: int) -> Any:
        lent[at] = np.frombuffer(bytearray(now.read(Placed(at), nbytes)), np.uint8)
        return lent[at]

    pretended = PretendedCuDnn(find)
    run = pretended.run

    def ran(kind: str, compute: Any, handle: Any, *given: Any) -> None:
        run(kind, compute, handle, *given)
        if answer == "right":
            now.write(Placed(given[-1]), lent[given[-1]].tobytes())

    pretended.run = ran  # type: ignore[method-assign]
    monkeypatch.setattr(by_library, "cudnn", lambda: CuDnn(pretended))
    times = iter([0.0, 9.0, 0.0, 9.0, 0.0, 5.0, 0.0, 5.0, 0.0, 3.0, 0.0, 3.0])  # ours, then two algorithms
    monkeypatch.setattr(trials, "perf_counter", lambda: next(times))
    made = [dense_operand(Memory(0), FLOAT32, shape) for shape in ((2, 1, 3, 8, 8), (1, 4, 3, 3, 3), (2, 1, 4, 8, 8))]
    ones = (1, 1)
    params = {
        "stride": ones,
        "spread": ones,
        "dilation": ones,
        "lo": ones,
        "size": (8, 8),
        "flip": False,
        "dtype": FLOAT32,
    }
    call = ExternCall("conv_windows", made[:2], made[2:], params)
    found = CuDnn(pretended).algorithms("forward", 0, 0, 0, 0, 0)
    best = by_library._measured(backend, place, call, found, convolution_steps(call))
    assert best == (5 if answer == "right" else -1)

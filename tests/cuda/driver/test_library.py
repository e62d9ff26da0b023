"""NVIDIA's library by ctypes, before a pretended one: what is passed, what comes back, what becomes of errors."""

from __future__ import annotations

import ctypes
import json
from array import array
from typing import Any

import pytest

from rushlight._backends.cuda.driver import library as library_module
from rushlight._backends.cuda.driver.api import Driver, slots
from rushlight._backends.cuda.driver.choice import Absent, _real
from rushlight._backends.cuda.driver.emulated.driver import EmulatedDriver
from rushlight._backends.cuda.driver.emulated.tensor_maps import Modes, encoded, encoded_windows
from rushlight._backends.cuda.driver.errors import CODES, CudaError
from rushlight._backends.cuda.driver.library import LibraryDriver
from rushlight._backends.cuda.tile_maps import TileMaps
from rushlight._codegen.threads.tile_maps import Corners, TileMap, Windows, described


class Function:
    """A function of the pretended library: checks its arguments against the signature, and keeps them."""

    def __init__(self, body: Any) -> None:
        self.body, self.argtypes, self.restype = body, None, None
        self.got: list[Any] = []

    def __call__(self, *args: Any) -> int:
        assert self.argtypes is not None and len(args) == len(self.argtypes)
        for kind, value in zip(self.argtypes, args, strict=True):
            kind.from_param(value)
        self.got.append(args)
        return int(self.body(*args) or 0)


class Pretended:
    """A library whose functions fill in what they are told."""

    def __init__(self, **bodies: Any) -> None:
        names = {code: name.encode() for name, (code, _) in CODES.items()}
        texts = {code: text.encode() for code, text in CODES.values()}
        self.functions = {name: Function(body) for name, body in bodies.items()}
        self.cuGetErrorName = Function(lambda code, out: setattr(out._obj, "value", names.get(code)))
        self.cuGetErrorString = Function(lambda code, out: setattr(out._obj, "value", texts.get(code)))

    def __getattr__(self, name: str) -> Any:
        if name not in self.functions:
            raise AttributeError(name)
        return self.functions[name]


def fill(*values: Any) -> Any:
    """A function that writes values through its first pointers."""

    def body(*args: Any) -> int:
        for place, value in zip(args, values, strict=False):
            place._obj.value = value
        return 0

    return body


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(**bodies: Any) -> tuple[LibraryDriver, Pretended]:
        made = Pretended(**bodies)
        monkeypatch.setattr(library_module, "_open", lambda: made)
        return LibraryDriver(), made

    return make


def test_results_come_through_pointers(pretend: Any) -> None:
    driver, _ = pretend(
        cuDriverGetVersion=fill(13020), cuDeviceGet=fill(5), cuDeviceTotalMem_v2=fill(1 << 37), cuMemAlloc_v2=fill(0x7F0000000000), cuMemGetInfo_v2=fill(3, 9),
        cuStreamCreateWithPriority=fill(0x55AA), cuEventElapsedTime=fill(1.5), cuCtxGetStreamPriorityRange=fill(0, -5),
    )  # fmt: skip
    assert driver.cuDriverGetVersion() == 13020 and driver.cuDeviceTotalMem(0) == 1 << 37
    assert driver.cuMemAlloc(100) == 0x7F0000000000 and driver.cuMemGetInfo() == (3, 9)
    assert driver.cuStreamCreateWithPriority(1, -5) == 0x55AA and driver.cuEventElapsedTime(1, 2) == 1.5
    assert driver.cuCtxGetStreamPriorityRange() == (0, -5)


def test_a_launch_passes_pointers_to_its_words(pretend: Any) -> None:
    seen: list[list[int]] = []

    def launch(function: int, *args: Any) -> int:
        pointers = args[8]
        seen.append([ctypes.c_int64.from_address(p).value for p in pointers])
        assert args[:8] == (2, 3, 4, 32, 1, 1, 64, 0x77) and args[9] is None
        return 0

    driver, _ = pretend(cuLaunchKernel=launch)
    driver.cuLaunchKernel(0x1234, (2, 3, 4), (32, 1, 1), 64, 0x77, slots(7, -1))
    assert seen == [[7, -1]]


def test_tensor_maps_are_parameters_of_their_own(pretend: Any) -> None:
    """128 bytes behind the words; the encoder is asked with a launch's numbers, once for equal ones."""
    asked: list[tuple[int, ...]] = []

    def encode(at: int, kind: int, ndim: int, address: int, sizes: Any, strides: Any, box: Any, *more: Any) -> int:
        asked.append((kind, ndim, address, *sizes[:2], *strides[:1], *box[:2]))
        ctypes.memset(at, 0x5A, 128)
        return 0

    def launch(function: int, *args: Any) -> int:
        pointers = list(args[8])
        assert [ctypes.c_int64.from_address(p).value for p in pointers[:3]] == [0x1000, 64, 128]
        assert [ctypes.string_at(p, 128) for p in pointers[3:]] == [b"\x5a" * 128]
        return 0

    driver, _ = pretend(cuLaunchKernel=launch, cuTensorMapEncodeTiled=encode)
    maps = TileMaps(driver, [TileMap("bfloat16", 2, 0, ((1,), 32), ((2,),), (64, 16))])
    for _ in range(2):
        words = maps.appended(slots(0x1000, 64, 128))
        driver.cuLaunchKernel(1, (1, 1, 1), (32, 1, 1), 0, 0, words, 1)
    assert asked == [(9, 2, 0x1000, 64, 32, 256, 64, 16)]


def test_maps_of_windows_are_encoded_by_their_corners(pretend: Any) -> None:
    """Images [N, H, W, C] of 9 x 8, 5 x 4 windows of step 2 from (-1, -1) on."""
    asked: list[Any] = []

    def encode(
        at: int, kind: int, ndim: int, address: int, sizes: Any, strides: Any, lower: Any, upper: Any, *more: Any
    ) -> int:
        channels, pixels, steps = more[:3]
        asked.append(
            (kind, ndim, address, sizes[:4], strides[:3], lower[:2], upper[:2], channels, pixels, steps[:4], *more[3:])
        )
        return 0

    driver, _ = pretend(cuTensorMapEncodeIm2col=encode)
    windows = Windows((2, 2), (1, 1), ((3,), 5))
    tile = TileMap("float16", 2, 0, (64, 8, 9, (1,)), (64, 512, (2,)), (64, 128), windows)
    TileMaps(driver, [described(json.loads(json.dumps(tile)))]).appended(slots(0x1000, 3, 4608, 4))
    # the last window of a row begins at 2 * 3 - 1, and a row ends at 8; of a column at 2 * 4 - 1 and 9
    assert asked == [
        (6, 4, 0x1000, [64, 8, 9, 3], [128, 1024, 9216], [-1, -1], [-2, -1], 64, 128, [1, 2, 2, 1], 0, 3, 3, 0)
    ]


def test_emulated_maps_of_windows_are_refused_as_the_drivers_are() -> None:
    good: dict[str, Any] = {
        "kind": 6, "address": 0x1000, "sizes": (64, 8, 9, 3), "strides": (128, 1024, 9216),
        "corners": Corners([-1, -1], [-2, -1], [1, 2, 2, 1]), "box": (64, 128), "modes": Modes(0, 3, 3, 0),
    }  # fmt: skip
    assert good["corners"]._replace(steps=[2, 2]).counts((8, 9)) == [4, 5]
    assert len(encoded_windows(**good)) == 128
    for change in (
        {"address": 0x1008}, {"strides": (128, 1020, 9216)}, {"box": (64, 1025)}, {"box": (128, 8)}, {"kind": 99},
        {"corners": Corners([-129, -1], [-2, -1], [1, 2, 2, 1])}, {"corners": Corners([-1, -1], [-2, -1], [1, 9, 2, 1])},
        {"corners": Corners([-1, -1], [-20, -1], [1, 2, 2, 1])}, {"sizes": (64, 8), "strides": (128,)},
    ):  # fmt: skip
        with pytest.raises(CudaError, match="cuTensorMapEncodeIm2col"):
            encoded_windows(**good | change)


_C = {"p": ctypes.c_void_p, "i": ctypes.c_int, "u": ctypes.c_uint, "q": ctypes.c_int64}


def test_emulated_tensor_maps_are_refused_as_the_drivers_are() -> None:
    good: dict[str, Any] = {
        "kind": 6,
        "address": 0x1000,
        "sizes": (64, 8),
        "strides": (128,),
        "box": (64, 8),
        "steps": (1, 1),
        "modes": Modes(0, 3, 3, 0),
    }
    assert len(encoded(**good)) == 128
    queue = EmulatedDriver(memory=1 << 20)
    native = ctypes.CFUNCTYPE(ctypes.c_int, *map(_C.get, "piuqppppiiii"))(
        queue.function_address("cuTensorMapEncodeTiled")
    )
    room = ctypes.create_string_buffer(256)
    out = -(-ctypes.addressof(room) // 64) * 64

    def by_c(given: dict[str, Any], shift: int = 0) -> int:
        """The same by the C function that native launches call."""
        interleave, *modes = given["modes"]
        tables = [
            array(code, [*given[name], 0])
            for name, code in zip(("sizes", "strides", "box", "steps"), "qqII", strict=True)
        ]
        addresses = [table.buffer_info()[0] for table in tables]
        return native(out + shift, given["kind"], len(given["sizes"]), given["address"], *addresses, interleave, *modes)

    assert by_c(good) == 0 and by_c(good, 8) == 1
    for change in (
        {"address": 0x1008}, {"strides": (120,)}, {"strides": (0,)}, {"strides": (1 << 40,)}, {"strides": (-128,)}, {"box": (128, 8)},
        {"box": (64, 300)}, {"box": (64, 0)}, {"box": (4, 8)}, {"sizes": (0, 8)}, {"sizes": (64, 0)}, {"sizes": ((1 << 32) + 1, 8)},
        {"steps": (2, 1)}, {"kind": 99}, {"kind": 13}, {"sizes": (), "strides": (), "box": (), "steps": ()},
        {"sizes": (8,) * 6, "strides": (128,) * 5, "box": (8,) * 6, "steps": (1,) * 6},
        {"modes": Modes(1, 3, 3, 0)}, {"modes": Modes(0, 0, 3, 0)}, {"modes": Modes(0, 3, 4, 0)}, {"modes": Modes(0, 3, 3, 2)},
        {"kind": 1, "modes": Modes(0, 3, 3, 1)},
    ):  # fmt: skip
        with pytest.raises(CudaError, match="cuTensorMapEncodeTiled"):
            encoded(**good | change)
        assert by_c(good | change) == 1, change
    assert encoded(**good | {"modes": Modes(0, 3, 3, 1)}) and by_c(good | {"modes": Modes(0, 3, 3, 1)}) == 0


def test_an_error_is_one_in_the_drivers_words(pretend: Any) -> None:
    driver, _ = pretend(cuMemAlloc_v2=lambda *_: 2, cuStreamQuery=lambda handle: {1: 0, 2: 600, 3: 700}[handle])
    with pytest.raises(
        CudaError, match=r"CUDA error: out of memory \(CUDA_ERROR_OUT_OF_MEMORY 2 from cuMemAlloc\)"
    ) as met:
        driver.cuMemAlloc(1)
    assert met.value.error_code == 2
    assert driver.cuStreamQuery(1) and not driver.cuStreamQuery(2)
    with pytest.raises(CudaError, match="an illegal memory access was encountered"):
        driver.cuStreamQuery(3)


def test_a_module_that_the_driver_refuses_says_what_its_assembler_said(pretend: Any) -> None:
    def load(made: Any, image: Any, count: int, options: Any, values: Any) -> int:
        assert list(options) == [5, 6] and values[1] == 8192
        ctypes.memmove(values[0], b"ptxas fatal: line 3\0", 20)
        return 218

    driver, _ = pretend(cuModuleLoadDataEx=load)
    with pytest.raises(CudaError, match="CUDA_ERROR_INVALID_PTX.*ptxas fatal: line 3"):
        driver.cuModuleLoadData(b"nonsense")


def test_a_function_that_an_old_driver_lacks_is_named(pretend: Any) -> None:
    driver, _ = pretend()
    with pytest.raises(NotImplementedError, match="too old: it has no cuLaunchKernelEx"):
        driver.cuLaunchKernelEx(1, (1, 1, 1), (32, 1, 1), 0, 0, slots(), ())


def test_both_drivers_have_all_calls() -> None:
    """What the emulated one lacks is named: there is nothing to emulate yet, and it says so."""
    calls = {name for name in vars(Driver) if name.startswith("cu")}
    lacking = {
        cls: {c for c in calls if getattr(cls, c) is getattr(Driver, c)} for cls in (LibraryDriver, EmulatedDriver)
    }
    assert lacking == {LibraryDriver: set(), EmulatedDriver: {"cuModuleGetGlobal"}}
    emulated = EmulatedDriver(memory=1 << 20)
    with pytest.raises(NotImplementedError, match="EmulatedDriver has no cuModuleGetGlobal"):
        emulated.cuModuleGetGlobal(1, "x")


def test_why_there_is_no_driver(pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    answers: dict[str, Any] = {
        "cuDriverGetVersion": fill(11080),
        "cuInit": lambda flags: 0,
        "cuDeviceGetCount": fill(2),
    }
    pretend(**answers)
    with pytest.raises(Absent, match=r"too old: it supports CUDA 11\.8, and 12\.0 is the least"):
        _real()
    answers["cuDriverGetVersion"] = fill(13000)
    pretend(**answers)
    assert _real().cuDeviceGetCount() == 2
    pretend(**{**answers, "cuInit": lambda flags: 100})
    with pytest.raises(Absent, match="sees no GPU"):
        _real()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    with pytest.raises(Absent, match="CUDA_VISIBLE_DEVICES='7' hides all GPUs"):
        _real()
    pretend(**{**answers, "cuInit": lambda flags: 803})
    with pytest.raises(Absent, match="cannot start.*unsupported display driver"):
        _real()
    monkeypatch.setattr(library_module, "_open", lambda: ctypes.CDLL("libcuda-that-is-not-there.so"))
    with pytest.raises(Absent, match="not installed: libcuda-that-is-not-there"):
        _real()

"""Operators on a GPU without Python: a second call of the same operator enters none, and the native half of the
allocator keeps the rules of the one in Python.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.cuda.emulated import outcomes_of

import rushlight as torch
from rushlight._backends.cuda.native.words_native import AT
from rushlight._backends.cuda.program.assemble import compile_graph
from rushlight._backends.cuda.program.executable import CudaExecutable
from rushlight._backends.cuda.program.steps import Call, Launch, LibraryFunction, Memory
from rushlight._backends.registry import backend_of
from rushlight._graph.core import trace
from rushlight._native import atomic_load, atomic_store, i64, jit, native, pause, static
from rushlight._native.compiled import compile_native
from rushlight._types.dtype import FLOAT32

pytestmark = pytest.mark.cuda


def entered(call: Callable[[], Any]) -> list[str]:
    """The functions in Python that a call enters, after it was made three times."""
    for _ in range(3):
        made = call()
        del made
    found: list[str] = []

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            found.append(frame.f_code.co_name)

    queue = backend_of(torch.device("cuda")).driver.queue  # type: ignore[attr-defined]
    eager, queue.eager = queue.eager, False  # else the emulated driver looks at each launch where there are streams
    sys.setprofile(watch)
    try:
        made = call()
    finally:
        sys.setprofile(None)
        queue.eager = eager
    del made
    return [name for name in found if name != "<lambda>"]  # those are the test's own


def unit(device: int = 0) -> Any:
    return backend_of(torch.device("cuda", device)).native_device_of(torch.device("cuda", device)).unit


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda x, y, w: x + y,
    "a float": lambda x, y, w: x * 2.5,
    "an int": lambda x, y, w: x + 3,
    "with gradient": lambda x, y, w: x + w,
    "product": lambda x, y, w: torch.matmul(x, w),
    "linear": lambda x, y, w: torch.nn.functional.linear(x, y),
    "softmax": lambda x, y, w: torch.softmax(x, -1),
    "layer norm": lambda x, y, w: torch.layer_norm(x, (16,)),
    "in place": lambda x, y, w: y.add_(1.0),
    "a view": lambda x, y, w: x.t(),
    "several results": lambda x, y, w: torch.max(x, 1),
    "zeros": lambda x, y, w: torch.zeros(700, device="cuda"),
    "uninitialised": lambda x, y, w: torch.empty(700, device="cuda"),
    "two kernels": lambda x, y, w: torch.cumsum(x.exp(), 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_was_made_before_enters_no_python(name: str) -> None:
    x, y = torch.randn(16, 16, device="cuda"), torch.randn(16, 16, device="cuda")
    w = torch.randn(16, 16, device="cuda", requires_grad=True)
    assert entered(lambda: CALLS[name](x, y, w)) == []


def test_backward_enters_no_more_python_than_on_the_cpu() -> None:
    def step(device: str) -> Callable[[], Any]:
        x = torch.ones(8, 8, device=device)
        w = torch.ones(8, 8, device=device, requires_grad=True)
        return lambda: torch.autograd.grad((x * w).exp().sum(), w)

    assert set(entered(step("cuda"))) <= set(entered(step("cpu")))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int64])
@pytest.mark.parametrize("number", [3, -7, 2.5, -1e30])
def test_numbers_become_parameters(dtype: Any, number: Any) -> None:
    x = torch.arange(6, dtype=dtype)
    on_device = x.cuda()
    for _ in range(2):  # the second is native for sure
        made = [on_device * number, on_device + number, on_device > number]
    for got, expected in zip(made, [x * number, x + number, x > number], strict=True):
        assert got.dtype == expected.dtype and got.cpu().tolist() == expected.tolist()


def test_addresses_that_are_not_aligned_take_the_other_kernel() -> None:
    x = torch.arange(4097, dtype=torch.float32, device="cuda")
    plain = x[:4096] * 2
    for start in (1, 0, 1, 0):
        part = x[start : start + 4096]
        assert (part * 2).cpu().tolist() == [2.0 * k for k in range(start, start + 4096)]
    assert entered(lambda: part * 2) == []
    assert plain.cpu().numpy().tobytes() == np.arange(0, 8192, 2, dtype=np.float32).tobytes()


def test_books_agree_whoever_lends() -> None:
    x = torch.ones(1000, device="cuda")
    for _ in range(3):
        y = x * 2.0
        del y
    gc.collect()
    before = torch.cuda.memory_stats()
    kept = [x * 2.0 for _ in range(5)]
    after = torch.cuda.memory_stats()
    for name, amount in (
        ("allocation", 5),
        ("allocated_bytes", 5 * 4096),
        ("active_bytes", 5 * 4096),
        ("requested_bytes", 5 * 4000),
    ):
        for pool in ("all", "small_pool"):
            key = f"{name}.{pool}"
            assert after[f"{key}.current"] - before[f"{key}.current"] == amount, key
            assert after[f"{key}.allocated"] - before[f"{key}.allocated"] == amount, key
    shown = [b for s in torch.cuda.memory_snapshot() for b in s["blocks"] if b["state"] == "active_allocated"]
    assert {k.data_ptr() for k in kept} <= {b["address"] for b in shown}
    assert all(b["requested_size"] == 4000 for b in shown if b["address"] in {k.data_ptr() for k in kept})
    del kept
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] == before["allocated_bytes.all.current"]


def test_zeros_are_zeros_in_the_order_of_the_stream() -> None:
    for _ in range(5):
        x = torch.full((700,), 7.0, device="cuda")
        del x
        made = torch.zeros(700, device="cuda")
        later = made + 1
        assert not made.cpu().any() and later.cpu().eq(1).all()
        del made, later


def test_freed_memory_is_of_its_own_stream() -> None:
    side = torch.cuda.Stream()
    x = torch.ones(3000, device="cuda")
    torch.cuda.synchronize()
    for _ in range(3):
        y = x + 1
        mine = y.data_ptr()
        del y
        with torch.cuda.stream(side):
            z = x + 1
        assert z.data_ptr() != mine
        side.synchronize()
        del z
    with torch.cuda.stream(side):
        assert entered(lambda: x + 1) == []
    side.synchronize()  # before `x` is freed
    assert entered(lambda: x + 1) == []


def test_a_tensor_that_a_further_stream_uses_is_kept_from_native_code() -> None:
    side = torch.cuda.Stream()
    x = torch.ones(5000, device="cuda")
    for _ in range(3):
        y = x + 1
        del y
    torch.cuda.synchronize()
    y = x + 1
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        total = y.sum()
    y.record_stream(side)
    address = y.data_ptr()
    del y
    assert (x + 1).data_ptr() != address  # `side` may read it still
    side.synchronize()
    assert total.item() == 10000.0


def test_each_thread_has_its_own_stream() -> None:
    x = torch.ones(2000, device="cuda")
    torch.cuda.synchronize()
    found: list[Any] = []

    def work(seed: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(5):
                made = x * float(seed)
            stream.synchronize()
            found.append((seed, made.sum().item()))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(seed, 2000.0 * seed) for seed in range(1, 5)]


@pytest.mark.skipif("torch.cuda.device_count() < 2", reason="takes two devices")
def test_each_device_launches_for_itself() -> None:
    xs = [torch.full((7,), float(k + 1), device=f"cuda:{k}") for k in range(2)]
    for _ in range(4):
        made = [x * 2 for x in xs]
    assert [y.cpu().tolist() for y in made] == [[2.0] * 7, [4.0] * 7]
    assert {unit(k).index for k in range(2)} == {0, 1}


def test_a_capture_is_left_to_python_and_replays() -> None:
    x = torch.ones(9, device="cuda")
    for _ in range(3):
        y = x * 2 + 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2 + 1
    x.fill_(4.0)
    graph.replay()
    assert y.cpu().tolist() == [9.0] * 9
    assert entered(lambda: x * 2 + 1) == []


PRELUDE = """
import rushlight as torch
x = torch.ones(4, device="cuda")
place = torch.tensor([7], device="cuda")
torch.gather(x, 0, torch.tensor([1], device="cuda"))
torch.cuda.synchronize()
"""
FAILURES = {
    "later": """
y = torch.gather(x, 0, place)  # THE LINE
try:
    torch.cuda.synchronize()
except torch.AcceleratorError as error:
    assert "was started at" in str(error) and "line 1" in str(error) or "<string>:2" in str(error), str(error)
else:
    raise AssertionError("nothing was raised")
try:
    x + 1
except torch.AcceleratorError:
    pass
else:
    raise AssertionError("a device that failed takes further work")
"""
}


def test_a_kernel_that_fails_is_told_by_a_later_call() -> None:
    assert outcomes_of(PRELUDE, FAILURES) == dict.fromkeys(FAILURES, "")


_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)  # fmt: skip


def launched(status: int, call: Callable[[], Any], parameters: int = 0) -> list[tuple[Any, ...]]:
    """What `cuLaunchKernel` is given in a call, the first parameters by their words; it returns a status."""
    found: list[tuple[Any, ...]] = []

    def launch(*given: Any) -> int:
        *numbers, pointers, extra = given
        found.append((*numbers, [ctypes.c_int64.from_address(pointers[k]).value for k in range(parameters)], extra))
        return status

    function, words = _LAUNCH(launch), unit().words
    held, words[AT.launch_kernel] = words[AT.launch_kernel], ctypes.cast(function, ctypes.c_void_p).value or 0
    try:
        call()
    finally:
        words[AT.launch_kernel] = held
    return found


def test_the_c_function_is_given_what_the_driver_wants() -> None:
    x, y = torch.ones(5000, device="cuda"), torch.ones(5000, device="cuda")
    for _ in range(2):
        _ = x + y
    del _
    results: list[Any] = []
    ((function, *grid, threads, rows, layers, shared, stream, parameters, extra),) = launched(
        0, lambda: results.append(x + y), 4
    )
    assert function and grid[1:] == [1, 1] and grid[0] * threads >= 5000 // 16 and (rows, layers) == (1, 1)
    assert stream is None and extra is None and shared < 1 << 20
    assert {x.data_ptr(), y.data_ptr(), results[0].data_ptr()} == set(parameters) - {5000} and 5000 in parameters
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        _ = x + y
        ((*_, stream, _, _),) = launched(0, lambda: x + y)
    side.synchronize()
    assert stream == side.cuda_stream


def test_a_status_of_the_driver_is_an_error() -> None:
    x = torch.ones(50, device="cuda")
    for _ in range(2):
        y = x + 1
    before = torch.cuda.memory_stats()["allocation.all.current"]
    with pytest.raises(torch.AcceleratorError, match="CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES 701 from cuLaunchKernel"):
        launched(701, lambda: x + 1)
    assert torch.cuda.memory_stats()["allocation.all.current"] == before
    y = x + 1
    assert y.cpu().tolist() == [2.0] * 50


ENDING = """
import rushlight as torch

x, graph, side = torch.ones(5, device="cuda"), torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.cuda.graph(graph):
    captured = x * 3
with torch.cuda.stream(side):
    used = x + 2
used.record_stream(torch.cuda.current_stream())
torch.held = captured, used, [x + 1 for _ in range(3)][-1]
"""


def test_tensors_may_outlive_the_interpreters_modules() -> None:
    environment = {**os.environ, "RUSHLIGHT_CUDA": "emulated"}
    done = subprocess.run([sys.executable, "-c", ENDING], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


MAPS = {
    "a product": """
x, y = (torch.randint(-3, 4, (256, 128), device="cuda").bfloat16() for _ in range(2))
expected = (x.cpu().float() @ y.cpu().float().t()).bfloat16()
from rushlight._backends.cuda.tile_maps import TileMaps
TileMaps.appended = None  # what Python would ask for
kept = []
for _ in range(3):
    kept.append((x.clone(), x.clone() @ y.t()))
    assert kept[-1][1].cpu().equal(expected)
from rushlight.cuda.access import gpus
assert any(k.maps for k in gpus().kernels(x.device).known.values()), "no kernel takes a tensor map"
""",
    "a convolution": """
from rushlight._backends.cuda.tile_maps import TileMaps
TileMaps.appended = None
x, w = (torch.randint(-2, 3, s).bfloat16().to(memory_format=torch.channels_last) for s in ((2, 64, 9, 9), (64, 64, 3, 3)))
expected = torch.nn.functional.conv2d(x.float(), w.float(), stride=2, padding=1).bfloat16()
x, w, kept = x.cuda(), w.cuda(), []
for _ in range(3):
    kept.append((x.clone(), torch.nn.functional.conv2d(x.clone(), w, stride=2, padding=1)))
    assert kept[-1][1].cpu().equal(expected)
from rushlight.cuda.access import gpus
assert any(m.windows for k in gpus().kernels(x.device).known.values() if k.maps for m in k.maps.maps), "no kernel takes windows"
""",
    "a graph": """
from rushlight._backends.cuda.tile_maps import TileMaps
TileMaps.appended = None
y = torch.randint(-3, 4, (256, 128), device="cuda").bfloat16()
function = lambda x: (x @ y.t()).float().cumsum(0)
compiled, kept = torch.compile(function, mode="reduce-overhead"), []
for _ in range(3):
    x = torch.randint(-3, 4, (256, 128), device="cuda").bfloat16()
    kept.append((compiled(x), function(x)))
for found, expected in kept:
    assert found.cpu().equal(expected.cpu())
from rushlight.cuda.access import gpus
assert any(k.maps for k in gpus().kernels(x.device).known.values()), "no kernel takes a tensor map"
""",
}


def test_kernels_that_take_tensor_maps_are_launched_without_python() -> None:
    found = outcomes_of("import rushlight as torch", MAPS, RUSHLIGHT_CUDA_PRODUCTS="wgmma")
    assert found == dict.fromkeys(MAPS, "")


FLAGS = static("rl_test_launch_flags", 16)


@native("ptr()")
def launch_flags():
    """Two words: whether a launch waits, and whether it may go on."""
    return FLAGS


@native("i32(ptr, u32, u32, u32, u32, u32, u32, u32, ptr, ptr, ptr)")
def waiting_launch(function, x, y, z, threads, rows, layers, shared, stream, parameters, extra):
    """A `cuLaunchKernel` that finds its queue full, as C code finds it: whether the GIL is held is not its business."""
    atomic_store(i64, FLAGS, 0, i64(1))
    for _k in range(i64(1) << 28):
        if atomic_load(i64, FLAGS, 1) != 0:
            return 0
        pause()
    return 1


def test_other_threads_run_while_a_launch_waits_for_room() -> None:
    """With many launches behind it, the driver may wait until one of them ends."""
    loaded = jit.load(compile_native((launch_flags, waiting_launch)), ["launch_flags", "waiting_launch"])
    flags = (ctypes.c_int64 * 2).from_address(ctypes.CFUNCTYPE(ctypes.c_uint64)(loaded["launch_flags"])())
    words, x = unit().words, torch.ones(50, device="cuda")
    for _ in range(3):
        made = x * 2

    def elsewhere() -> None:
        while not flags[0]:
            time.sleep(0.001)
        flags[1] = 1

    helper = threading.Thread(target=elsewhere)
    helper.start()
    before, words[AT.launch_kernel] = words[AT.launch_kernel], loaded["waiting_launch"]
    words[AT.waiting] = 1000
    try:
        made = x * 2
    finally:
        words[AT.launch_kernel] = before
        torch.cuda.synchronize()
    helper.join()
    assert words[AT.waiting] == 0
    del made


def test_calls_of_a_library_are_made_by_native_code() -> None:
    """Between two kernels, with the addresses of the call and its stream; a status that is not 0 is an error."""
    given: list[tuple[int, ...]] = []
    status = [0]
    signature = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 16)

    @signature
    def multiply(*arguments: int) -> int:
        given.append(arguments)
        return status[0]

    class Product:
        native = LibraryFunction(
            "multiply", ctypes.cast(multiply, ctypes.c_void_p).value or 0, list(range(16)), ((5,), (3, 9)), 15
        )

        def __call__(self, stream: int, a: int, b: int) -> None:
            raise AssertionError("Python made the call")

    device = torch.device("cuda", 0)
    backend: Any = backend_of(device)
    program = compile_graph(trace(lambda x: x * 2.0, [((100,), FLOAT32)]), [(1,)])
    launches, result, scratch = list(program.steps), program.results[0], Memory(512, "scratch")
    copied = Launch(
        launches[0].kernel, launches[0].grid, [scratch if m is result else m for m in launches[0].arguments]
    )
    program.steps = [copied, Call("product", Product(), [scratch, program.inputs[0]]), *launches]
    executable = CudaExecutable(program, backend, device, as_graph=True)
    assert executable.native is not None and executable.native.graph is None
    x, stream = torch.arange(100.0, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        made = executable(x.data_ptr())
    torch.cuda.synchronize()
    (words,) = given
    assert words[3] == words[9] == x.data_ptr() and words[15] == stream.cuda_stream and words[5] != x.data_ptr()
    assert [words[k] for k in range(15) if k not in (3, 5, 9)] == [k for k in range(15) if k not in (3, 5, 9)]
    shown = torch.empty(100, device="cuda")
    backend.copy(shown.data_ptr(), made.ptr, 400, device)
    assert shown.cpu().tolist() == [2.0 * k for k in range(100)]
    status[0] = 13
    with pytest.raises(RuntimeError, match="status 13"):
        executable(x.data_ptr())


def test_calls_of_a_library_at_other_addresses_are_made_by_python() -> None:
    """It knows how the library computes on addresses that are not aligned as the call counts on."""
    native, python = list[int](), list[int]()

    @ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int64] * 16)
    def multiply(*arguments: int) -> int:
        native.append(arguments[3])
        return 0

    class Product:
        address = ctypes.cast(multiply, ctypes.c_void_p).value or 0
        native = LibraryFunction("multiply", address, list(range(16)), ((3,),), 15, alignment=16)

        def __call__(self, stream: int, x: int) -> None:
            python.append(x)

    device = torch.device("cuda", 0)
    program = compile_graph(trace(lambda x: x * 2.0, [((100,), FLOAT32)]), [(1,)])
    program.steps = [*program.steps, Call("product", Product(), [program.inputs[0]])]
    executable = CudaExecutable(program, backend_of(device), device)
    x = torch.arange(200.0, device="cuda")
    for offset in (0, 4, 16):
        executable(x.data_ptr() + offset)
    torch.cuda.synchronize()
    assert native == [x.data_ptr(), x.data_ptr() + 16] and python == [x.data_ptr() + 4]


def test_many_launches_without_a_wait_compute_the_same() -> None:
    x = torch.arange(10.0, device="cuda")
    total = torch.zeros(10, device="cuda")
    for k in range(700):
        total.add_(x * float(k))
    assert total.cpu().tolist() == [float(n * sum(range(700))) for n in range(10)]

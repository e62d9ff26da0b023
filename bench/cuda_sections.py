"""The rows of `cuda.py` by section, and the process that runs those of one section.

    python bench/cuda_sections.py SECTION [--dry] < names of rows that are known

A row's name is printed before it begins, its values behind it, each as a line of JSON: whoever reads knows at which row a process died
or hung.  A process whose device no longer answers ends with status 3; the next one goes on behind the row that broke it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np  # noqa: E402
from bench.cuda_kernels import FLAGSHIPS, UNITS, Case, wide  # noqa: E402
from bench.cuda_models import MODELS  # noqa: E402
from bench.cuda_rows import ROWS, Row  # noqa: E402

Call = Callable[[], Any]
Values = dict[str, Any]
# A heading of the report, a row's name, and what measures it.
Item = tuple[str, str, Callable[[], Values]]


# ***** ours: kernels launched as they are *****


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of an array without gaps, the last dim fastest."""
    strides = [1]
    for size in shape[:0:-1]:
        strides.append(strides[-1] * max(size, 1))
    return tuple(strides[::-1]) if shape else ()


class Device:
    """Launches block kernels on arrays that it holds on the device."""

    def __init__(self) -> None:
        import rushlight
        from rushlight._backends.registry import backend_of

        self.module = rushlight
        self.device = rushlight.device("cuda:0")
        rushlight.zeros(1, device=self.device)
        self.backend = backend_of(self.device)
        self.kernels = self.backend.kernels(self.device)

    def place(self, case: Case) -> tuple[list[Any], Any]:
        """Tensors of the arguments (numbers stay), and the words of a launch."""
        from rushlight._backends.cuda.kernels import empty_words, word_of

        held = [self._tensor(a) if isinstance(a, np.ndarray) else a for a in case.arguments]
        words = empty_words(len(held))
        for i, (given, param) in enumerate(zip(held, case.kernel.params, strict=True)):
            words[i] = given.data_ptr() if hasattr(given, "data_ptr") else word_of(given, param.type.element)
        return held, words

    def _tensor(self, array: Any) -> Any:
        kind = {np.dtype(np.uint16): np.int16}.get(array.dtype, array.dtype)
        return self.module.from_numpy(array.view(kind).copy()).to(self.device)

    def launcher(self, case: Case, words: Any) -> Call:
        made = self.kernels.get(case.kernel)
        grid = (*case.grid, 1, 1)[:3]
        return lambda: made.launch(self.backend.enter(self.device), grid, words)

    def computed(self, graph: Any, arrays: list[Any]) -> list[Any]:
        """The outputs of a graph of primitives, from arrays of the host."""
        held = [self._tensor(np.asarray(a)) for a in arrays]
        layouts = [dense(value.shape) for value in graph.inputs]
        program = self.backend.compile(graph, layouts, [dense(value.shape) for value in graph.outputs], self.device)
        made = program(*[h.data_ptr() for h in held])
        found = []
        for value, block in zip(graph.outputs, made if isinstance(made, tuple) else (made,), strict=True):
            array = np.empty(value.shape, value.dtype.name)
            self.backend.copy_out(array.ctypes.data, block.ptr, array.nbytes)
            found.append(array)
        return found

    def results(self, case: Case, held: list[Any]) -> list[Any]:
        got = [
            h.cpu().numpy().view(a.dtype) if isinstance(a, np.ndarray) else a
            for h, a in zip(held, case.arguments, strict=True)
        ]
        return got


def difference(case: Case, got: list[Any]) -> tuple[bool, float]:
    """Whether results are as near as they must be, and the largest difference."""
    worst, good = 0.0, True
    for a, b in zip(case.expected(), got, strict=True):
        if isinstance(a, np.ndarray):
            a, b = ((wide(x) if x.dtype == np.uint16 else x).astype(np.float64) for x in (a, b))
            good = good and bool(np.allclose(b, a, rtol=case.rtol, atol=case.atol, equal_nan=True))
            with np.errstate(invalid="ignore"):
                worst = max(worst, float(np.nanmax(np.abs(a - b), initial=0.0)))
    return good, worst


# Kernels that wait for barriers in memory: were one wrong, its process would hang, so they come last.
APART = "wgmma"


# ***** times *****


def milliseconds(module: Any, call: Call, turns: int = 20) -> float:
    """The median of event times."""
    for _ in range(3):
        call()
    pairs = []
    for _ in range(turns):
        begin, end = (module.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        pairs.append((begin, end))
    module.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in pairs)


def enqueued(module: Any, call: Call, turns: int = 4000, batch: int = 200) -> float:
    """Microseconds that the host needs for a call, while the queue never fills."""
    for _ in range(100):
        call()
    module.cuda.synchronize()
    found = []
    for _ in range(turns // batch):
        start = time.perf_counter()
        for _ in range(batch):
            call()
        found.append((time.perf_counter() - start) / batch * 1e6)
        module.cuda.synchronize()
    return statistics.median(found)


# ***** sections *****


class Setting:
    """What rows need to know: `dry`, and the modules to measure, or the one of a `side`."""

    def __init__(self, dry: bool, alone: bool = False, side: str = "") -> None:
        import rushlight

        self.dry = dry
        self.modules: dict[str, Any] = {} if side == "torch" else {"rushlight": rushlight}
        if not dry and not alone and side != "rushlight":
            try:
                import torch

                if torch.cuda.is_available():
                    self.modules["torch"] = torch
            except Exception as error:  # a broken PyTorch is no reason to measure nothing
                print(f"no PyTorch beside: {type(error).__name__}: {error}", file=sys.stderr)


def _host_calls(t: Any) -> dict[str, Call]:
    x, y = (t.randn(16, 16, device="cuda") for _ in range(2))
    w = t.randn(16, 16, device="cuda", requires_grad=True)
    scale, shift = (t.ones(16, device="cuda", requires_grad=True) for _ in range(2))
    return {
        "add": lambda: x + y,
        "linear": lambda: t.nn.functional.linear(x, y),
        "layer norm": lambda: t.nn.functional.layer_norm(x, (16,)),
        "add with gradient": lambda: x + w,
        "linear with gradient": lambda: t.nn.functional.linear(x, w),
        "layer norm with gradient": lambda: t.nn.functional.layer_norm(x, (16,), scale, shift),
    }


def processor_time(call: Call, turns: int = 300, rounds: int = 7) -> float:
    """Microseconds of processor time of a call, the least of some rounds: other processes do not count."""
    for _ in range(turns):
        call()
    found = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(turns):
            call()
        found.append((time.process_time() - start) / turns * 1e6)
    return min(found)


_TRAIN = """
import sys, time
start = time.perf_counter()
if {module!r} == "rushlight":
    sys.path.insert(0, {source!r})
import {module} as torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(8, 64, device="cuda")).square().mean().backward()
optimizer.step()
torch.cuda.synchronize()
print(time.perf_counter() - start)
"""


def correctness(setting: Setting, apart: bool = False) -> Iterator[Item]:
    """Unit kernels of every instruction that no run without a GPU executes, then the flagships, beside NumPy."""
    device = Device()
    for section, names in (("units", UNITS), ("flagships", FLAGSHIPS)):
        for name in names:
            if name.startswith(APART) is not apart:
                continue

            def row(section: str = section, name: str = name) -> Values:
                case = UNITS[name][0]() if section == "units" else FLAGSHIPS[name](True)
                held, words = device.place(case)
                device.launcher(case, words)()
                device.module.cuda.synchronize()
                good, worst = difference(case, device.results(case, held))
                return {"right": good, "largest difference": worst}

            yield section, name, row


def primitives(setting: Setting) -> Iterator[Item]:
    """Every primitive's samples on the device, beside its reference in NumPy."""
    from tests.prim_cases import CASES

    from rushlight._backends.reference import run

    device, by_name = Device(), dict[str, list[Any]]()
    for case in CASES:
        by_name.setdefault(case.primitive.name, []).append(case)
    for name, cases in by_name.items():

        def row(cases: list[Any] = cases[:1] if setting.dry else cases) -> Values:
            worst, good, missing = 0.0, True, 0
            for case in cases:
                graph = case.graph()
                if any(v.dtype.kind not in "biufc" for v in (*graph.inputs, *graph.outputs)):
                    continue
                try:
                    found = device.computed(graph, case.arrays)
                except NotImplementedError:
                    missing += 1
                    continue
                for ours, theirs in zip(found, run(graph, case.arrays), strict=True):
                    near, far = agreement(ours, np.asarray(theirs))
                    good, worst = good and near, max(worst, far)
            return {"right": good, "samples": len(cases) - missing, "largest relative difference": worst}

        yield "primitives", name, row


def agreement(ours: Any, theirs: Any) -> tuple[bool, float]:
    """Whether arrays agree as their dtype allows, and their largest difference relative to the largest element."""
    if theirs.dtype.kind not in "fc":
        return bool(np.array_equal(ours, theirs)), float(np.any(ours != theirs))
    single = theirs.dtype.itemsize // (2 if theirs.dtype.kind == "c" else 1) < 8
    good = bool(np.allclose(ours, theirs, *((2e-5, 1e-5) if single else (1e-10, 1e-10)), equal_nan=True))
    finite = np.isfinite(theirs) & np.isfinite(ours)
    scale = max(float(np.abs(theirs[finite]).max(initial=0.0)), 1e-30)
    return good, float(np.abs(ours[finite] - theirs[finite]).max(initial=0.0)) / scale


def raw_kernels(setting: Setting, apart: bool = False) -> Iterator[Item]:
    """Our flagship kernels by themselves: bytes or products a second."""
    device = Device()
    for name, build in FLAGSHIPS.items():
        if name.startswith(APART) is not apart:
            continue

        def row(build: Callable[[bool], Case] = build) -> Values:
            case = build(setting.dry)
            _, words = device.place(case)
            call = device.launcher(case, words)
            if setting.dry:
                call()
                device.module.cuda.synchronize()
                return {"ran": True}
            taken = milliseconds(device.module, call)
            rate = {"GB/s": case.bytes / taken / 1e6} if case.bytes else {"TFLOP/s": case.flops / taken / 1e9}
            return {"ms": taken, **rate}

        yield "kernels", name, row


def warpgroups(setting: Setting) -> Iterator[Item]:
    """Correctness and times of kernels that wait for barriers in memory."""
    yield from correctness(setting, True)
    yield from raw_kernels(setting, True)


def _timed_row(build: Row, module: Any, dry: bool) -> Values:
    try:
        return _timed(build, module, dry)
    finally:
        module.cuda.empty_cache()


def _first_call(build: Row, module: Any, dry: bool) -> Values:
    start = time.perf_counter()
    call, *_ = build(module, dry)
    call()
    module.cuda.synchronize()
    taken = time.perf_counter() - start
    del call
    module.cuda.empty_cache()
    return {"first s, not alone": taken}


def _best_of_backends(build: Row, module: Any) -> Values:
    """Attention by the fastest of PyTorch's backends, and which that is."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found: dict[str, Values] = {}
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
        with contextlib.suppress(RuntimeError), sdpa_kernel(backend):
            found[backend.name] = _timed_row(build, module, False)
    name = min(found, key=lambda name: found[name]["ms"])
    return {**found[name], "by": name, **{f"{other} ms": values["ms"] for other, values in found.items()}}


def _timed(build: Row, module: Any, dry: bool) -> Values:
    call, moved, flops = build(module, dry)
    if dry:
        call()
        module.cuda.synchronize()
        return {"ran": True}
    taken = milliseconds(module, call)
    rate = {"GB/s": moved / taken / 1e6} if moved else {"TFLOP/s": flops / taken / 1e9}
    return {"ms": taken, **rate}


def beside(setting: Setting) -> Iterator[Item]:
    """The rows in each module, one module after the other for each row."""
    for name, build in ROWS.items():
        for label, module in setting.modules.items():

            def row(
                build: Row = build, module: Any = module, best: bool = label == "torch" and "attention" in name
            ) -> Values:
                return _best_of_backends(build, module) if best else _timed_row(build, module, setting.dry)

            yield f"rows {label}", name, row


def way_of_products() -> str:
    """Who is asked for in this process's environment; rows of one way are run once."""
    way = os.environ.get("RUSHLIGHT_CUDA_GEMM", "auto")
    if way != "ours":
        return way
    return " ".join(os.environ.get(f"RUSHLIGHT_CUDA_{x}", "") for x in ("PRODUCTS", "SCHEDULE")).strip()


def products(setting: Setting) -> Iterator[Item]:
    """Products, and attention, by the one who is asked for: `RUSHLIGHT_CUDA_GEMM`, `RUSHLIGHT_CUDA_PRODUCTS`, `RUSHLIGHT_CUDA_SCHEDULE`."""
    way = way_of_products()
    if way == "library":
        from rushlight._backends.cuda.libraries.cublaslt import WHEEL

        if WHEEL.path() is None:
            return
    # attention knows two ways, whatever the schedule of products
    begins = ("matmul", "scaled", "attention") if way in ("mma", "wgmma") else ("matmul", "scaled")
    for name, build in ROWS.items():
        if name.startswith(begins):
            module = setting.modules["rushlight"]
            yield f"products {way}", name, lambda build=build, module=module: _timed_row(build, module, setting.dry)


def models(setting: Setting) -> Iterator[Item]:
    """Training steps and decoded words of whole models, as they are and compiled."""
    for name, build in MODELS.items():
        for how in ("eager", "compiled"):
            for label, module in setting.modules.items():

                def row(build: Any = build, module: Any = module, how: str = how) -> Values:
                    module.cuda.reset_peak_memory_stats()
                    module.manual_seed(0)
                    start = time.perf_counter()
                    call, items = build(module, how == "compiled", setting.dry)
                    call()
                    module.cuda.synchronize()
                    first = time.perf_counter() - start
                    if setting.dry:
                        return {"ran": True}
                    taken = milliseconds(module, call)
                    peak = module.cuda.max_memory_allocated() / 1e6
                    del call
                    module.cuda.empty_cache()
                    return {"ms": taken, "a second": 1e3 * items / taken, "first s": first, "peak MB": peak}

                yield f"models {label}", f"{name}, {how}", row


def warm(setting: Setting) -> Iterator[Item]:
    """First steps of whole models, and our operators: kernels and compiled programs are kept on disk for the sections behind."""
    for name, build in ROWS.items() if "rushlight" in setting.modules else ():
        module = setting.modules["rushlight"]
        yield (
            "warm rushlight",
            f"row {name}",
            lambda build=build, module=module: _first_call(build, module, setting.dry),
        )
    for label, module in setting.modules.items():
        for name, build in MODELS.items():
            for how in ("compiled", "eager") if label == "rushlight" else ("compiled",):

                def row(build: Any = build, module: Any = module, how: str = how) -> Values:
                    start = time.perf_counter()
                    call, _ = build(module, how == "compiled", setting.dry)
                    for _ in range(2):
                        call()
                    module.cuda.synchronize()
                    return {"first s, not alone": time.perf_counter() - start}

                yield f"warm {label}", f"{name}, {how}", row


TRITON_ROWS = ("vector add", "softmax", "layer norm", "matmul bfloat16", "attention")


class TritonRows:
    """The rows of `cuda_triton.py` by one side, in one process with empty caches: the first compilation of a process takes
    longer than others.  Where it ends early, the next row starts another."""

    def __init__(self, ours: bool, dry: bool) -> None:
        self.ours, self.dry, self.process, self.caches = ours, dry, None, tempfile.TemporaryDirectory()

    def start(self, names: list[str]) -> Any:
        file, caches = str(ROOT / "bench" / "cuda_triton.py"), self.caches.name
        command = [sys.executable, *(["-m", "rushlight"] if self.ours else []), file, "--only", ",".join(names)]
        environment = {**os.environ, "RUSHLIGHT_CACHE_DIR": caches, "TRITON_CACHE_DIR": caches}
        environment["PYTHONPATH"] = str(ROOT / "src") if self.ours else ""
        environment["RUSHLIGHT_TRITON"] = "own"  # not the one that is installed beside
        command += ["--small"] if self.dry else []
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def row(self, name: str) -> Values:
        if self.process is None:
            self.process = self.start([*TRITON_ROWS[TRITON_ROWS.index(name) :]])
        line = self.process.stdout.readline()
        if not line:
            status, self.process = self.process.wait(), None
            raise RuntimeError(f"the process ended with status {status}")
        values: Values = json.loads(line)
        assert values.pop("name") == name
        return values


def triton_kernels(setting: Setting) -> Iterator[Item]:
    """Kernels of the Triton language, compiled with empty caches, by us and by Triton."""
    for label in setting.modules:
        process = TritonRows(label == "rushlight", setting.dry)
        for name in TRITON_ROWS:
            yield f"triton {label}", name, lambda process=process, name=name: process.row(name)


def host_costs(setting: Setting) -> Iterator[Item]:
    """What a call costs the host, with and without a gradient; ours also beside a driver that does nothing."""
    for label, t in setting.modules.items():
        for name, call in _host_calls(t).items():
            turns = (40, 20) if setting.dry else (4000, 200)
            yield f"host {label}", name, lambda call=call, t=t, turns=turns: {"us": enqueued(t, call, *turns)}
    module = setting.modules["rushlight"]
    for name, call in _host_calls(module).items():

        def row(call: Call = call) -> Values:
            from rushlight.cuda.access import gpus

            call()
            module.cuda.synchronize()
            with gpus().plans[0].without_driver():
                return {"us": processor_time(call)}

        yield "host rushlight without the driver", name, row


def first_steps(setting: Setting) -> Iterator[Item]:
    """Seconds from the start of a process to its first training step, caches warm."""
    for label in setting.modules:

        def row(label: str = label) -> Values:
            program = _TRAIN.format(module=label, source=str(ROOT / "src"))
            found = []
            for _ in range(1 if setting.dry else 2):
                done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(done.stderr.strip()[-300:])
                found.append(float(done.stdout))
            return {"s": min(found)}

        yield f"start {label}", "first training step", row


def compile_times(setting: Setting) -> Iterator[Item]:
    """Milliseconds from a block kernel to PTX, and what the driver needs to load it."""
    from rushlight._codegen.threads import lower, nvptx_text
    from rushlight._native.nvidia.nvptx import ptx_of

    driver = Device().backend.driver
    for name in FLAGSHIPS:

        def row(name: str = name) -> Values:
            kernel = FLAGSHIPS[name](True).kernel
            start = time.perf_counter()
            text = nvptx_text(lower(kernel, "sm_90a"))
            middle = time.perf_counter()
            ptx = ptx_of(text, "sm_90a")
            end = time.perf_counter()
            found = {"to LLVM ms": 1e3 * (middle - start), "to PTX ms": 1e3 * (end - middle)}
            if not driver.emulated:
                driver.cuModuleLoadData(ptx.encode() + b"\0")
                found["driver ms"] = 1e3 * (time.perf_counter() - end)
            return found

        yield "compile", name, row


SECTIONS: dict[str, Callable[[Setting], Iterator[Item]]] = {
    "correctness": correctness,
    "primitives": primitives,
    "kernels": raw_kernels,
    "host": host_costs,
    "rows": beside,
    "products": products,
    "models": models,
    "triton": triton_kernels,
    "start": first_steps,
    "compile": compile_times,
    "warpgroups": warpgroups,
    "warm": warm,
}
# Sections that need no PyTorch beside: its import takes seconds.
ALONE = {"correctness", "primitives", "kernels", "products", "compile", "warpgroups"}
BROKEN = 3  # the status of a process whose device no longer answers


# ***** the process of a section *****


def answers(module: Any) -> bool:
    """Whether the device still computes: after an illegal access nothing of its process does."""
    try:
        module.cuda.synchronize()
        return bool((module.ones(3, device="cuda") + 1).sum().item() == 6.0)
    except Exception:
        return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--side", default="", choices=("", "rushlight", "torch"), help="the module to measure")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    given = parser.parse_args()
    known = {tuple(pair) for pair in json.load(sys.stdin)}
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what rows print is no line of ours

    def say(*words: Any) -> None:
        out.write(json.dumps(words) + "\n")
        out.flush()

    setting = Setting(given.dry, given.section in ALONE, given.side)
    if given.section == "correctness":
        say("machine", machine())
    for heading, name, function in SECTIONS[given.section](setting):
        if (heading, name) in known or given.only not in name:
            continue
        say("begin", heading, name)
        start = time.perf_counter()
        try:
            values = function()
        except Exception as error:
            values = {"failed": f"{type(error).__name__}: {str(error)[:1200]}"}
        say("row", heading, name, {**values, "took s": round(time.perf_counter() - start, 2)})
        if "failed" in values and not answers(next(iter(setting.modules.values()))):
            return BROKEN
    return 0


def machine() -> Values:
    """What the run is on."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import rushlight

    found: Values = {
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "cpus": os.cpu_count(),
        "rushlight": str(rushlight.__version__),
        "card": rushlight.cuda.get_device_name(0),
    }
    for package in ("torch", "triton", "llvmlite", "numpy", "nvidia-cublas", "nvidia-cublas-cu12"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


if __name__ == "__main__":
    sys.exit(main())

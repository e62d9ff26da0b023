"""What a GPU gives, in one run of under ten minutes: first whether our kernels are right on it, then how fast they are beside PyTorch
and Triton, where these are installed.

    python bench/cuda.py --out FOLDER            # on a machine with a GPU
    RUSHLIGHT_CUDA=emulated python bench/cuda.py --out FOLDER --dry   # small sizes, no times: does the script itself work?

Sections run one after the other, each with its share of time; what fails is written down, and the next one runs.  `cuda.json` in the
folder is written anew after each number.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import numpy as np  # noqa: E402
from bench.cuda_kernels import FLAGSHIPS, UNITS, Case, wide  # noqa: E402
from bench.cuda_models import MODELS  # noqa: E402

Call = Callable[[], Any]


class Report:
    """Numbers by section and name, on disk at any time."""

    def __init__(self, folder: Path, dry: bool) -> None:
        self.file, self.dry, self.start = folder / "cuda.json", dry, time.time()
        self.data: dict[str, Any] = {"machine": {}, "sections": {}}
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, section: str, name: str, **values: Any) -> None:
        self.data["sections"].setdefault(section, {})[name] = values
        shown = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
        print(f"{time.time() - self.start:6.1f} s  {section}/{name}: {shown}", flush=True)
        self.file.write_text(json.dumps(self.data, indent=1) + "\n")

    def attempt(self, section: str, name: str, function: Callable[[], dict[str, Any]]) -> None:
        """Values of a row, or the error that it ended with."""
        try:
            self.put(section, name, **function())
        except Exception as error:
            self.put(section, name, failed=f"{type(error).__name__}: {str(error)[:400]}")


# ***** ours: kernels launched as they are *****


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


# Kernels that wait for barriers in memory: were one wrong, the card would hang, so they run in a process of their own.
APART = "wgmma"


def correctness(report: Report, device: Device, apart: bool = False) -> None:
    """Unit kernels of every instruction that no run without a GPU executes, then the flagships, beside NumPy."""
    for section, names in (("units", UNITS), ("flagships", FLAGSHIPS)):
        for name in names:
            if name.startswith(APART) is not apart:
                continue

            def row(section: str = section, name: str = name) -> dict[str, Any]:
                case = UNITS[name][0]() if section == "units" else FLAGSHIPS[name](True)
                held, words = device.place(case)
                device.launcher(case, words)()
                device.module.cuda.synchronize()
                good, worst = difference(case, device.results(case, held))
                return {"right": good, "largest difference": worst}

            report.attempt(section, name, row)


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


def raw_kernels(report: Report, device: Device, apart: bool = False) -> None:
    """Our flagship kernels by themselves: bytes or products a second."""
    for name, build in FLAGSHIPS.items():
        if name.startswith(APART) is not apart:
            continue

        def row(build: Callable[[bool], Case] = build) -> dict[str, Any]:
            case = build(report.dry)
            _, words = device.place(case)
            call = device.launcher(case, words)
            if report.dry:
                call()
                device.module.cuda.synchronize()
                return {"ran": True}
            taken = milliseconds(device.module, call)
            rate = {"GB/s": case.bytes / taken / 1e6} if case.bytes else {"TFLOP/s": case.flops / taken / 1e9}
            return {"ms": taken, **rate}

        report.attempt("kernels", name, row)


# Rows that run in both: (module, dry) -> call, bytes, products
Row = Callable[[Any, bool], tuple[Call, float, float]]
ROWS: dict[str, Row] = {}


def row(build: Row) -> Row:
    ROWS[build.__name__] = build
    return build


def _random(t: Any, *shape: int, dtype: str = "bfloat16", grad: bool = False) -> Any:
    return t.randn(*shape, device="cuda", dtype=getattr(t, dtype), requires_grad=grad)


@row
def copy(t: Any, dry: bool) -> tuple[Call, float, float]:
    x = _random(t, 1 << (10 if dry else 28))
    y = t.empty_like(x)
    return lambda: y.copy_(x), 2 * x.numel() * 2, 0


@row
def gelu(t: Any, dry: bool) -> tuple[Call, float, float]:
    x = _random(t, 1 << (10 if dry else 27))
    return lambda: t.nn.functional.gelu(x), 2 * x.numel() * 2, 0


@row
def softmax(t: Any, dry: bool) -> tuple[Call, float, float]:
    x = _random(t, 8 if dry else 1 << 15, 64 if dry else 8192)
    return lambda: t.softmax(x, -1), 2 * x.numel() * 2, 0


@row
def layer_norm(t: Any, dry: bool) -> tuple[Call, float, float]:
    n = 64 if dry else 4096
    x, w, b = _random(t, 8 if dry else 1 << 15, n), _random(t, n), _random(t, n)
    return lambda: t.nn.functional.layer_norm(x, (n,), w, b), 2 * x.numel() * 2, 0


@row
def cross_entropy(t: Any, dry: bool) -> tuple[Call, float, float]:
    x = _random(t, 8 if dry else 4096, 100 if dry else 50304, dtype="float32")
    target = t.zeros(x.shape[0], dtype=t.int64, device="cuda")
    return lambda: t.nn.functional.cross_entropy(x, target), x.numel() * 4, 0


@row
def adamw(t: Any, dry: bool) -> tuple[Call, float, float]:
    sizes = [(16, 16), (16,)] if dry else [(4096, 1024), (1024,), (1024, 4096), (4096,)] * 4
    params = [t.nn.Parameter(_random(t, *s, dtype="float32")) for s in sizes]
    for p in params:
        p.grad = t.randn_like(p)
    optimizer = t.optim.AdamW(params, fused=True)
    return optimizer.step, 28 * sum(p.numel() for p in params), 0


@row
def embedding_backward(t: Any, dry: bool) -> tuple[Call, float, float]:
    table = _random(t, 100 if dry else 50304, 16 if dry else 768, dtype="float32", grad=True)
    places = t.randint(0, table.shape[0], (64 if dry else 1 << 16,), device="cuda")
    upstream = _random(t, places.shape[0], table.shape[1], dtype="float32")

    def step() -> None:
        table.grad = None
        t.nn.functional.embedding(places, table).backward(upstream)

    return step, 3 * upstream.numel() * 4, 0


def _product(size: int, dtype: str) -> Row:
    def build(t: Any, dry: bool) -> tuple[Call, float, float]:
        n = 32 if dry else size
        a, b = _random(t, n, n, dtype=dtype), _random(t, n, n, dtype=dtype)
        return lambda: a @ b, 0, 2 * n**3

    build.__name__ = f"matmul_{dtype}_{size}"
    return build


for _size in (1024, 4096, 8192):
    row(_product(_size, "bfloat16"))
row(_product(4096, "float32"))


@row
def grouped_matmul(t: Any, dry: bool) -> tuple[Call, float, float]:
    """Sixteen thousand tokens among eight experts, the last with fifteen times the rows of the first."""
    tokens, experts, width, hidden = (64, 2, 16, 32) if dry else (16384, 8, 2048, 4096)
    a, b = _random(t, tokens, width), _random(t, experts, width, hidden)
    ends = [tokens * (n + 1) ** 2 // experts**2 for n in range(experts)]
    offsets = t.tensor(ends, dtype=t.int32, device="cuda")
    return lambda: t._grouped_mm(a, b, offs=offsets), 0, 2 * tokens * width * hidden


@row
def convolution_layer(t: Any, dry: bool) -> tuple[Call, float, float]:
    """A convolution of channels-last images, batch norm in inference, a residual and an activation, compiled."""
    batch, width, size = (2, 16, 8) if dry else (64, 128, 56)
    f, last = t.nn.functional, t.channels_last
    x, r = (_random(t, batch, width, size, size).contiguous(memory_format=last) for _ in range(2))
    w = _random(t, width, width, 3, 3).contiguous(memory_format=last)
    mean, bias, scale = _random(t, width), _random(t, width), t.ones(width, device="cuda", dtype=t.bfloat16)

    @t.compile  # type: ignore[misc]
    def layer() -> Any:
        return f.relu(f.batch_norm(f.conv2d(x, w, padding=1), mean, scale, scale, bias, False) + r)

    def call() -> Any:
        with t.no_grad():
            return layer()

    return call, 0, 2 * batch * size**2 * width**2 * 9


def _attention(length: int, backward: bool) -> Row:
    def build(t: Any, dry: bool) -> tuple[Call, float, float]:
        n, heads = (64, 2) if dry else (length, 16)
        q, k, v = (_random(t, max(1, 16384 // n // (64 if dry else 1)), heads, n, 128, grad=backward) for _ in range(3))
        attend = lambda: t.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        flops = 4 * q.shape[0] * heads * n * n * 128 / 2
        if not backward:
            return attend, 0, flops
        out = attend()
        upstream = t.randn_like(out)
        return lambda: t.autograd.grad(out, (q, k, v), upstream, retain_graph=True), 0, 2.5 * flops

    build.__name__ = f"attention_{'backward' if backward else 'forward'}_{length}"
    return build


def _decode(sequences: int, keys: int) -> Row:
    """A query of each sequence to keys in pages of 16 tokens, 32 heads for 8 of keys."""

    def build(t: Any, dry: bool) -> tuple[Call, float, float]:
        from importlib import import_module

        attend = import_module(f"{t.__name__}.nn.attention.varlen").varlen_attn
        count, most = (2, 64) if dry else (sequences, keys)
        pages = count * most // 16
        q = _random(t, count, 32, 128)
        k, v = (_random(t, pages, 16, 8, 128) for _ in range(2))
        starts = t.arange(count + 1, dtype=t.int32, device="cuda")
        used = t.full((count,), most, dtype=t.int32, device="cuda")
        table = t.randperm(pages, device="cuda").to(t.int32).reshape(count, most // 16)
        options = {"window_size": (-1, 0), "enable_gqa": True, "seqused_k": used, "block_table": table}

        def call() -> Any:
            with t.no_grad():
                return attend(q, k, v, starts, None, 1, most, **options)

        return call, 2 * count * most * 8 * 128 * 2, 0

    build.__name__ = f"paged_decode_{sequences}_{keys}"
    return build


row(_decode(64, 4096))
row(_decode(1, 1 << 15))

for _length in (4096, 16384):
    row(_attention(_length, False))
    row(_attention(_length, True))


def beside(report: Report, modules: dict[str, Any]) -> None:
    """The rows in each module."""
    for name, build in ROWS.items():
        for label, module in modules.items():

            def one(build: Row = build, module: Any = module) -> dict[str, Any]:
                call, moved, flops = build(module, report.dry)
                if report.dry:
                    call()
                    module.cuda.synchronize()
                    return {"ran": True}
                taken = milliseconds(module, call)
                rate = {"GB/s": moved / taken / 1e6} if moved else {"TFLOP/s": flops / taken / 1e9}
                return {"ms": taken, **rate}

            report.attempt(f"rows {label}", name, one)
            module.cuda.empty_cache()
    _ratios(report, "rows rushlight", "rows torch", "ms")


def _ratios(report: Report, ours: str, theirs: str, key: str) -> None:
    """Their time over ours, where both have one."""
    sections = report.data["sections"]
    for name, values in sections.get(ours, {}).items():
        other = sections.get(theirs, {}).get(name, {})
        if key in values and key in other:
            report.put(f"torch's time over ours, {key}", name, ratio=other[key] / values[key])


def models(report: Report, modules: dict[str, Any]) -> None:
    """Training steps and decoded words of whole models, as they are and compiled."""
    for name, build in MODELS.items():
        for label, module in modules.items():
            for how in ("eager", "compiled"):

                def one(build: Any = build, module: Any = module, how: str = how) -> dict[str, Any]:
                    module.cuda.reset_peak_memory_stats()
                    module.manual_seed(0)
                    start = time.perf_counter()
                    call, items = build(module, how == "compiled", report.dry)
                    call()
                    module.cuda.synchronize()
                    first = time.perf_counter() - start
                    if report.dry:
                        return {"ran": True}
                    taken = milliseconds(module, call)
                    peak = module.cuda.max_memory_allocated() / 1e6
                    return {"ms": taken, "a second": 1e3 * items / taken, "first s": first, "peak MB": peak}

                report.attempt(f"models {label}", f"{name}, {how}", one)
                module.cuda.empty_cache()
    _ratios(report, "models rushlight", "models torch", "ms")


def triton_kernels(report: Report, modules: dict[str, Any]) -> None:
    """Kernels of the Triton language, compiled with empty caches, by us and by Triton."""
    file = str(ROOT / "bench" / "cuda_triton.py")
    for label in modules:
        ours = label == "rushlight"
        command = [sys.executable, *(["-m", "rushlight"] if ours else []), file, *(["--small"] if report.dry else [])]
        with tempfile.TemporaryDirectory() as caches:
            environment = {**os.environ, "RUSHLIGHT_CACHE_DIR": caches, "TRITON_CACHE_DIR": caches}
            if ours:
                environment["PYTHONPATH"] = str(ROOT / "src")
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
        for line in done.stdout.splitlines():
            values = json.loads(line)
            report.put(f"triton {label}", values.pop("name"), **values)
        if done.returncode:
            report.put(f"triton {label}", "process", failed=done.stderr.strip()[-400:])
    for key in ("cold", "ms"):
        _ratios(report, "triton rushlight", "triton torch", key)


def _host_calls(t: Any) -> dict[str, Call]:
    x, y = (t.randn(16, 16, device="cuda") for _ in range(2))
    w = t.randn(16, 16, device="cuda", requires_grad=True)
    return {
        "add": lambda: x + y,
        "linear": lambda: t.nn.functional.linear(x, y),
        "layer norm": lambda: t.nn.functional.layer_norm(x, (16,)),
        "add with gradient": lambda: x + w,
        "linear with gradient": lambda: t.nn.functional.linear(x, w),
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


def own_costs(report: Report, module: Any) -> None:
    """What our calls cost the host beside the driver: launches do nothing.  Measured without a GPU, too."""
    from rushlight.cuda.access import gpus

    calls = _host_calls(module)
    for call in calls.values():
        call()
    module.cuda.synchronize()
    with gpus().plans[0].without_driver():
        for name, call in calls.items():
            report.attempt("host rushlight without the driver", name, lambda call=call: {"us": processor_time(call)})


def host_costs(report: Report, modules: dict[str, Any]) -> None:
    """What a call costs the host, with and without a gradient."""
    own_costs(report, modules["rushlight"])
    for label, t in modules.items():
        try:
            made = _host_calls(t)
        except Exception as error:
            report.put(f"host {label}", "calls", failed=f"{type(error).__name__}: {str(error)[:300]}")
            continue
        for name, call in made.items():
            turns = (40, 20) if report.dry else (4000, 200)
            report.attempt(f"host {label}", name, lambda call=call, t=t, turns=turns: {"us": enqueued(t, call, *turns)})
    if not report.dry:
        _ratios(report, "host rushlight", "host torch", "us")


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


def first_steps(report: Report, modules: dict[str, Any]) -> None:
    """Seconds from the start of a process to its first training step, caches warm."""
    for label in modules:

        def one(label: str = label) -> dict[str, Any]:
            program = _TRAIN.format(module=label, source=str(ROOT / "src"))
            found = []
            for _ in range(1 if report.dry else 3):
                done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
                if done.returncode:
                    raise RuntimeError(done.stderr.strip()[-300:])
                found.append(float(done.stdout))
            return {"s": min(found)}

        report.attempt(f"start {label}", "first training step", one)
    _ratios(report, "start rushlight", "start torch", "s")


def compile_times(report: Report, device: Device) -> None:
    """Milliseconds from a block kernel to PTX, and what the driver needs to load it."""
    from rushlight._codegen.threads import lower, nvptx_text
    from rushlight._native.nvptx import ptx_of

    for name in FLAGSHIPS:

        def one(name: str = name) -> dict[str, Any]:
            kernel = FLAGSHIPS[name](True).kernel
            start = time.perf_counter()
            text = nvptx_text(lower(kernel, "sm_90a"))
            middle = time.perf_counter()
            ptx = ptx_of(text, "sm_90a")
            end = time.perf_counter()
            found = {"to LLVM ms": 1e3 * (middle - start), "to PTX ms": 1e3 * (end - middle)}
            driver = device.backend.driver
            if not driver.emulated:
                driver.cuModuleLoadData(ptx.encode() + b"\0")
                found["driver ms"] = 1e3 * (time.perf_counter() - end)
            return found

        report.attempt("compile", name, one)


def _machine(modules: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
        "cpus": os.cpu_count(),
    }
    for label, module in modules.items():
        found[label] = str(module.__version__)
    ours = modules["rushlight"]
    found["card"] = ours.cuda.get_device_name(0)
    try:
        import triton

        found["triton"] = triton.__version__
    except ImportError:
        found["triton"] = None
    return found


def warpgroups(report: Report) -> None:
    """The kernels that run apart, correctness and times, if they end within two minutes."""
    folder = report.file.parent / "warpgroups"
    command = [sys.executable, __file__, "--out", str(folder), "--apart", *(["--dry"] if report.dry else [])]
    try:
        subprocess.run(command, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        report.put("sections", "warpgroups", failed="does not end: a barrier in memory is waited for in vain")
    for section, rows in json.loads((folder / "cuda.json").read_text())["sections"].items():
        for name, values in rows.items():
            report.put(section, name, **values)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--dry", action="store_true", help="small sizes and no times")
    parser.add_argument("--apart", action="store_true", help="the kernels of warpgroups alone")
    parser.add_argument("--only", default="", help="sections whose name contains this")
    given = parser.parse_args()
    report = Report(given.out, given.dry)
    import rushlight

    modules: dict[str, Any] = {"rushlight": rushlight}
    if not given.dry:
        try:
            import torch

            if torch.cuda.is_available():
                modules["torch"] = torch
        except ImportError:
            pass
    device = Device()
    report.data["machine"] = _machine(modules)
    sections: dict[str, Call] = {
        "correctness": lambda: correctness(report, device),
        "kernels": lambda: raw_kernels(report, device),
        "compile": lambda: compile_times(report, device),
        "host": lambda: host_costs(report, modules),
        "rows": lambda: beside(report, modules),
        "triton": lambda: triton_kernels(report, modules),
        "models": lambda: models(report, modules),
        "start": lambda: first_steps(report, modules),
        "warpgroups": lambda: warpgroups(report),
    }
    if given.apart:
        sections = {
            "correctness": lambda: correctness(report, device, True), "kernels": lambda: raw_kernels(report, device, True),
        }  # fmt: skip
    for name, section in sections.items():
        if given.only in name:
            try:
                section()
            except Exception as error:
                report.put("sections", name, failed=f"{type(error).__name__}: {str(error)[:400]}")
    wrong = [
        f"{section}/{name}" for section, rows in report.data["sections"].items() for name, values in rows.items()
        if "failed" in values or values.get("right") is False
    ]  # fmt: skip
    print(f"{len(wrong)} rows failed: {', '.join(wrong)}" if wrong else "all rows ran", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Run PyTorch's operator samples eagerly and as recorded programs, and compare bits, strides and gradients.

    PYTHONPATH=src:tests/func python tools/sweeps/recorded_operators.py [--compile] [--only NAME] [--samples 1] [--dtypes float32]

Every sample is a program of one call.  What cannot be recorded is counted by its reason.  Operators run in a child process, which is started again
behind one that crashed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections import Counter
from typing import Any


def bits(x: Any) -> bytes:
    import rushlight as torch

    x = x.detach().resolve_conj().resolve_neg()
    if x.is_complex():
        x = torch.view_as_real(x)
    x = x.contiguous().reshape(-1)
    return bytes(memoryview(x.view(torch.uint8).numpy())) if x.numel() else b""


def difference(a: Any, b: Any) -> str:
    """What differs between two results."""
    import rushlight as torch

    if isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor):
        return f"{type(a).__name__} and {type(b).__name__}"
    if not isinstance(a, torch.Tensor):
        return "" if a == b or repr(a) == repr(b) else f"{a!r} and {b!r}"
    for name in ("shape", "dtype", "requires_grad", "is_leaf"):
        if getattr(a, name) != getattr(b, name):
            return f"{name} {getattr(a, name)} and {getattr(b, name)}"
    if a.stride() != b.stride():
        return f"strides {a.stride()} and {b.stride()}"
    if a.is_conj() != b.is_conj() or a.is_neg() != b.is_neg():
        return "conjugation"
    if bits(a) != bits(b):
        return "bits"
    return ""


def attempt(sample: Any, grads: bool) -> tuple[str, str]:
    """(kind, words) of one sample."""
    import op_samples

    import rushlight as torch
    from rushlight._capture.recording import DataDependentError, HostNumber, Recording, RecordingError

    def mine(t: Any) -> Any:
        if str(t.dtype) != "torch.bfloat16":
            return op_samples.to_mine(t)
        return op_samples.to_mine(t.float()).to(torch.bfloat16)  # NumPy lacks it

    def fresh() -> list[Any]:
        made = [mine(t) for t in sample.tensors]
        return [t.requires_grad_() if grads and (t.is_floating_point() or t.is_complex()) else t for t in made]

    torch.manual_seed(3)
    eager_in = fresh()
    try:
        eager = sample.call(torch, eager_in)
    except Exception as error:
        return "eager", f"{type(error).__name__}: {error}"[:150]
    torch.manual_seed(3)
    mine_in = fresh()
    recording = Recording()
    try:
        with recording:
            given = [recording.stand_in(x) for x in mine_in]
            found = sample.call(torch, given)
            places = [i for i, x in enumerate(found) if recording.is_recorded(x) or isinstance(x, HostNumber)]
            program = recording.finish([found[i] for i in places])
    except DataDependentError as error:
        return "data", f"{error}"[:100]
    except RecordingError as error:
        return "refused", f"{error}"[:100]
    made = program(recording.inputs)
    for i, x in zip(places, made, strict=True):
        found[i] = x
    return compared(eager, found, eager_in, mine_in, grads)


class Slot:
    """The place of a tensor among arguments."""

    def __init__(self, number: int) -> None:
        self.number = number


def in_slots(value: Any, numbers: Any) -> Any:
    """Arguments of a sample with slots for its tensors: compiled functions know nothing of PyTorch's objects."""
    import op_samples
    import torch as oracle

    if isinstance(value, oracle.Tensor):
        return Slot(next(numbers))
    if isinstance(value, (list, tuple)):
        items = [in_slots(v, numbers) for v in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: in_slots(v, numbers) for key, v in value.items()}
    return op_samples.constant(value)


def filled(value: Any, tensors: Any) -> Any:
    """Arguments with tensors in their slots."""
    if isinstance(value, Slot):
        return tensors[value.number]
    if isinstance(value, list):
        return [filled(v, tensors) for v in value]
    if isinstance(value, tuple):
        return tuple([filled(v, tensors) for v in value])
    if isinstance(value, dict):
        return {key: filled(v, tensors) for key, v in value.items()}
    return value


def attempt_compiled(sample: Any, grads: bool) -> tuple[str, str]:
    """(kind, words) of one sample as a compiled function that is called twice."""
    import op_samples

    import rushlight as torch
    from rushlight._capture.trace import COUNTERS, CompileSettings, compile_function

    def fresh() -> list[Any]:
        made = [op_samples.to_mine(t) for t in sample.tensors]
        return [t.requires_grad_() if grads and (t.is_floating_point() or t.is_complex()) else t for t in made]

    args, kwargs = in_slots((sample.args, sample.kwargs), iter(range(len(sample.tensors))))
    function, flat = sample.mine_op, op_samples.flat

    def go(*tensors: Any) -> Any:
        return flat(function(*filled(args, tensors), **filled(kwargs, tensors)))

    COUNTERS["graph_break"].clear()
    compiled = compile_function(go, CompileSettings(suppress_errors=False))
    torch.manual_seed(3)
    try:
        go(*fresh())
    except Exception as error:
        return "eager", f"{type(error).__name__}: {error}"[:150]
    for number in range(2):
        torch.manual_seed(3)
        eager_in = fresh()
        eager = go(*eager_in)
        torch.manual_seed(3)
        mine_in = fresh()
        found = compiled(*mine_in)
        kind, words = compared(list(eager), list(found), eager_in, mine_in, grads)
        if kind not in ("same",):
            return kind, f"call {number}: {words}"
    if COUNTERS["graph_break"]:
        return "data", next(iter(COUNTERS["graph_break"]))
    return "same", ""


def attempt_graph(sample: Any, grads: bool) -> tuple[str, str]:
    """(kind, words) of one sample as a graph with symbolic sizes: "same" where sizes are symbols, "burnt" where none is
    left.
    """
    import op_samples

    import rushlight as torch
    from rushlight._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
    from rushlight.fx.experimental.proxy_tensor import make_fx
    from rushlight.fx.experimental.symbolic_shapes import has_free_symbols

    args, kwargs = in_slots((sample.args, sample.kwargs), iter(range(len(sample.tensors))))
    function, flat = sample.mine_op, op_samples.flat

    def go(*tensors: Any) -> Any:
        return flat(function(*filled(args, tensors), **filled(kwargs, tensors)))

    given = [op_samples.to_mine(t) for t in sample.tensors]
    try:
        torch.manual_seed(3)
        eager = go(*[t.clone() for t in given])
    except Exception as error:
        return "eager", f"{type(error).__name__}: {error}"[:150]
    try:
        graph = make_fx(go, tracing_mode="symbolic")(*given)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        return "data", f"{error}"
    except RuntimeError as error:
        if "value out of a tracing tensor" in str(error):
            return "data", f"{error}"[60:120]
        raise
    torch.manual_seed(3)
    found = flat(graph(*[t.clone() for t in given]))
    words = [w for a, b in zip(eager, found, strict=True) if (w := difference(a, b)) and not w.startswith("strides")]
    if words:
        return "differs", words[0]
    sizes = [n.meta["val"] for n in graph.graph.nodes if n.op == "placeholder"]
    left = [t for t in sizes if any(is_left(n) for n in t.shape)]
    could = any(n > 1 for t in given for n in t.shape)
    return ("same" if left or not could or not has_free_symbols(sizes) else "burnt"), ""


def is_left(size: Any) -> bool:
    """Whether a size is a symbol still."""
    return hasattr(size, "terms") and size.shape_env.decided(size) is None


def compared(
    eager: list[Any], found: list[Any], eager_in: list[Any], mine_in: list[Any], grads: bool
) -> tuple[str, str]:
    """(kind, words): whether results, inputs afterwards and gradients are the same."""
    import rushlight as torch

    if len(eager) != len(found):
        return "differs", "how many"
    words = [w for a, b in zip(eager, found, strict=True) if (w := difference(a, b))]
    if words:
        return "differs", "result " + words[0]
    words = [w for a, b in zip(eager_in, mine_in, strict=True) if (w := difference(a, b))]
    if words:
        return "differs", "input " + words[0]
    wanting = [
        i for i, x in enumerate(eager) if isinstance(x, torch.Tensor) and x.requires_grad and x.grad_fn is not None
    ]
    if wanting and grads:
        torch.manual_seed(5)
        cotangents = [torch.randn(eager[i].shape, dtype=eager[i].dtype) for i in wanting]
        try:
            torch.autograd.backward([eager[i] for i in wanting], cotangents)
        except Exception as error:
            return "eager backward", f"{type(error).__name__}: {error}"[:150]
        torch.autograd.backward([found[i] for i in wanting], cotangents)
        for a, b in zip(eager_in, mine_in, strict=True):
            if (a.grad is None) != (b.grad is None):
                return "differs", "whether there is a gradient"
            if a.grad is not None and (word := difference(a.grad, b.grad)):
                return "differs", "gradient " + word
    return "same", ""


def child(first: int, options: Any) -> None:
    import op_samples
    import torch as oracle

    warnings.simplefilter("ignore")
    for number, info in enumerate(op_samples.infos()):
        name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
        if number < first or (options.only and options.only not in name):
            continue
        print(f"AT {number} {name}", flush=True)
        mine = op_samples.found_here(info)
        for dtype_name in options.dtypes.split(","):
            dtype = getattr(oracle, dtype_name)
            if dtype not in info.supported_dtypes("cpu"):
                continue
            grads = dtype in info.supported_backward_dtypes("cpu") and info.supports_autograd
            try:
                samples = list(info.sample_inputs("cpu", dtype))[: options.samples]
            except Exception:
                continue
            for k, drawn in enumerate(samples):
                try:
                    kind, words = (
                        attempt_compiled if options.compile else attempt_graph if options.graphs else attempt
                    )(op_samples.Sample(info, drawn, mine), grads)
                except Exception as error:
                    kind, words = "error", f"{type(error).__name__}: {error}"[:200].replace("\n", " ")
                print(f"GOT {kind}|{name}[{dtype_name} {k}] {words}", flush=True)
    print("END", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument(
        "--compile", action="store_true", help="samples as compiled functions, bytecode and guards included"
    )
    parser.add_argument("--graphs", action="store_true", help="samples as graphs of aten operators with symbolic sizes")
    parser.add_argument("--child", type=int, default=-1)
    parser.add_argument("--show", default="differs,error,crash")
    options = parser.parse_args()
    if options.child >= 0:
        child(options.child, options)
        return
    counts, began, first, ended = Counter[str](), time.perf_counter(), 0, False
    reasons: dict[str, list[str]] = {}
    while not ended:
        run = subprocess.Popen(
            [sys.executable, *sys.argv, "--child", str(first)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        at = ""
        assert run.stdout is not None
        for line in run.stdout:
            if line.startswith("AT "):
                at = line.split(" ", 2)[2].strip()
                first = int(line.split()[1]) + 1
            elif line.startswith("GOT "):
                kind, words = line[4:].strip().split("|", 1)
                counts[kind] += 1
                if kind in options.show.split(","):
                    print(f"{kind}: {words}", flush=True)
                elif kind in ("refused", "data"):
                    name, reason = words.split("] ", 1)
                    reasons.setdefault(reason, []).append(name.split("[")[0])
            ended = ended or line.startswith("END")
        run.wait()
        if not ended:
            if not at:
                sys.exit("the child ended before the first operator; see it with --child 0")
            counts["crash"] += 1
            print(f"crash: {at} ({run.returncode})", flush=True)
    print(dict(counts), f"{time.perf_counter() - began:.0f} s")
    for reason, names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"  {len(names)} {reason}: {' '.join(dict.fromkeys(names))}")


if __name__ == "__main__":
    main()

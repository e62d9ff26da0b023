"""`python -m rushlight onnx run|info|bench MODEL`: run an ONNX model on arrays, look into it, time it beside onnxruntime."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import rushlight as rl
from rushlight._base.lazy import numpy

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """The command; returns the exit status."""
    given = _parser().parse_args(argv)
    try:
        module = rl.onnx.load(given.model).eval()
        command: Callable[[Any, Any], int] = {"run": _run, "info": _info, "bench": _bench}[given.command]
        return command(module, given)
    except (NotImplementedError, OSError, RuntimeError, TypeError, ValueError) as error:
        print(f"{given.model}: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rushlight onnx", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the model on arrays and print, or write, its outputs")
    bench = commands.add_parser(
        "bench", help="time the model, eager and compiled, beside onnxruntime where it is installed"
    )
    info = commands.add_parser("info", help="inputs, outputs, operators, parameters")
    info.add_argument("--graph", action="store_true", help="every node, one a line")
    bench.add_argument("--seconds", type=float, default=2.0, help="for each form")
    bench.add_argument("--threads", type=int, default=1)
    run.add_argument("--output", help="an .npz file for the outputs")
    run.add_argument("--compile", action="store_true", help="compile the model whole")
    for one in (run, bench, info):
        one.add_argument("model", help="a file of ONNX")
    for one in (run, bench):
        one.add_argument(
            "--input", action="append", default=[], metavar="NAME=FILE.npy", help="an input; others are random"
        )
        one.add_argument(
            "--size",
            action="append",
            default=[],
            metavar="NAME=N",
            help="a size that the model leaves open; others are 1",
        )
    return parser


# ***** inputs *****


def _inputs(module: Any, given: Any) -> dict[str, Any]:
    """Arrays for all inputs: those of files, and random ones."""
    files = dict(_pair(text) for text in given.input)
    sizes = {name: int(size) for name, size in map(_pair, given.size)}
    unknown = sorted(set(files) - set(module.input_names))
    if unknown:
        raise ValueError(f"the model has no input {', '.join(unknown)}; it has {', '.join(module.input_names)}")
    random = numpy.random.default_rng(0)
    made = {}
    for name in module.input_names:
        made[name] = (
            numpy.load(files[name], allow_pickle=False) if name in files else _random(module, name, sizes, random)
        )
    return made


def _pair(text: str) -> tuple[str, str]:
    name, found, value = text.rpartition("=")
    if not found:
        raise ValueError(f"expected NAME=VALUE, not {text!r}")
    return name, value


def _random(module: Any, name: str, sizes: dict[str, int], random: Any) -> Any:
    declared = module.declared(name)
    if declared is None or declared[0] is None or declared[1] is None:
        raise ValueError(f"the model does not say what input {name!r} is: give it with --input {name}=FILE.npy")
    dtype, dims = declared
    shape = [dim if isinstance(dim, int) else sizes.get(dim, 1) for dim in dims]
    kind = str(dtype).removeprefix("torch.")
    if dtype.is_floating_point:
        return rl.tensor(random.standard_normal(shape)).to(dtype)
    return random.integers(0, 2, shape).astype(kind)


# ***** commands *****


def _run(module: Any, given: Any) -> int:
    call = rl.compile(module) if given.compile else module
    with rl.no_grad():
        results = call(**_inputs(module, given))
    named = dict(zip(module.output_names, results if isinstance(results, tuple) else (results,), strict=True))
    for name, value in named.items():
        if isinstance(value, rl.Tensor):
            print(f"{name}: {str(value.dtype).removeprefix('torch.')}{list(value.shape)}\n{value}")
        else:
            print(f"{name}: {value}")
    if given.output:
        arrays = {name: value.numpy() if isinstance(value, rl.Tensor) else value for name, value in named.items()}
        numpy.savez(given.output, allow_pickle=False, **arrays)
    return 0


def _info(module: Any, given: Any) -> int:
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in module.opsets.items())
    print(f"producer   {module.producer or 'unknown'}\noperators  {opsets}")
    for name in module.input_names:
        print(f"input      {module.described(name)}")
    print(f"output     {', '.join(module.output_names)}")
    count = sum(value.numel() for value in module.parameters())
    size = sum(value.numel() * value.element_size() for value in module.state_dict().values())
    print(f"parameters {count:,} in {len(list(module.parameters()))} tensors, {size / 1e6:,.1f} MB with buffers")
    operators = Counter(f"{step.domain}::{step.op}" if step.domain else step.op for step in module.graph.steps)
    print(f"nodes      {sum(operators.values())}: " + ", ".join(f"{name} {n}" for name, n in operators.most_common()))
    if given.graph:
        print("\n".join(module.graph_lines()))
    return 0


def _bench(module: Any, given: Any) -> int:
    rl.set_num_threads(given.threads)
    inputs = _inputs(module, given)
    ours = {name: rl.as_tensor(value) for name, value in inputs.items()}
    free = {"allow_reordering": True, "packed_weights": True}
    calls = {
        "eager": module,
        "compiled": rl.compile(module),
        "compiled, sums in any order, weights packed": rl.compile(module, options=free),
    }
    forms: dict[str, Callable[[], Any]] = {name: partial(call, **ours) for name, call in calls.items()}
    other = _onnxruntime(given, inputs)
    if other is not None:
        forms["onnxruntime"] = other
    times: dict[str, list[float]] = {name: [] for name in forms}
    with rl.no_grad():
        for call in forms.values():
            call()
        end = time.perf_counter() + given.seconds * len(forms)
        while len(times["eager"]) < 3 or time.perf_counter() < end:
            # In turn, so that load on the machine strikes all of them.
            for name, call in forms.items():
                start = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - start)
    for name, found in times.items():
        print(f"{name:46}{statistics.median(found) * 1e3:10.3f} ms  (median of {len(found)})")
    return 0


def _onnxruntime(given: Any, inputs: dict[str, Any]) -> Callable[[], Any] | None:
    """A call of onnxruntime's session; None where it is not installed."""
    try:
        import onnxruntime
    except ModuleNotFoundError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = given.threads, 1
    session = onnxruntime.InferenceSession(given.model, options, providers=["CPUExecutionProvider"])
    arrays = {name: value.numpy() if isinstance(value, rl.Tensor) else value for name, value in inputs.items()}
    return lambda: session.run(None, arrays)

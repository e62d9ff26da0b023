"""Operators below autograd, beside PyTorch's.

    python tools/sweeps/dispatch_traces.py --write       what PyTorch runs for the programs of tests/dispatch/programs.py, to tests/dispatch/traces.json.gz,
                                                  and its graphs of ahead_of_time_programs.py, to ahead_of_time_graphs.json.gz

PyTorch 2.13 must be installed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "tests" / "dispatch" / "traces.json.gz"
AHEAD = TRACES.with_name("ahead_of_time_graphs.json.gz")
sys.path.insert(0, str(ROOT / "tests" / "dispatch"))


def shown(value: Any, tensor: type) -> str:
    """A value of a call: tensors by a letter, everything else by its text."""
    if isinstance(value, tensor):
        return "T"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(shown(v, tensor) for v in value) + "]"
    if isinstance(value, float):
        return f"{value:.6g}"
    return repr(value) if isinstance(value, str) else str(value).replace("rushlight.", "torch.")


def recorder(torch: Any, base: type) -> Any:
    """A mode that writes down every call."""

    class Recorder(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = [shown(a, torch.Tensor) for a in args]
            given += [f"{k}={shown(v, torch.Tensor)}" for k, v in (kwargs or {}).items()]
            self.calls.append(f"{str(func).removeprefix('aten.')}({', '.join(given)})")
            return func(*args, **(kwargs or {}))

    return Recorder()


def traces(torch: Any, base: type, programs: dict[str, Any], inputs: Any) -> dict[str, tuple[list[str], list[str]]]:
    """Of every program the calls of its forward and of its backward from ones."""
    found = {}
    for name, (program, shapes) in programs.items():
        given = inputs(torch, shapes)
        mode = recorder(torch, base)
        with mode:
            out = program(torch, *given)
        forward, mode.calls = mode.calls, []
        seed = torch.ones(out.shape, dtype=out.dtype)
        with mode:
            out.backward(seed)
        found[name] = forward, mode.calls
    return found


def main() -> None:
    """Write the stored traces and graphs."""
    import ahead_of_time_programs as ahead_of_time
    import torch
    from torch._functorch.aot_autograd import aot_function
    from torch._functorch.partitioners import default_partition
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._python_dispatch import TorchDispatchMode

    from programs import PROGRAMS, function_of, inputs, lines, sized_lines

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    graphs, symbolic = {}, {}
    for name, (program, shapes) in PROGRAMS.items():
        given = [t.detach() for t in inputs(torch, shapes)]
        function = function_of(torch, program, len(shapes))
        graphs[name] = lines(make_fx(function)(*given).graph)
        symbolic[name] = sized_lines(make_fx(function, tracing_mode="symbolic")(*given).graph)
    found = traces(torch, TorchDispatchMode, PROGRAMS, inputs)
    text = json.dumps({"torch": torch.__version__, "traces": found, "graphs": graphs, "symbolic": symbolic}, indent=0)
    TRACES.write_bytes(gzip.compress(text.encode(), mtime=0))
    ahead = {n: ahead_of_time.graphs(torch, n, aot_function, default_partition) for n in ahead_of_time.PROGRAMS}
    AHEAD.write_bytes(gzip.compress(json.dumps(ahead, separators=(",", ":")).encode(), mtime=0))
    print(f"{TRACES}: {len(PROGRAMS)} programs, {TRACES.stat().st_size} bytes")


if __name__ == "__main__":
    main()

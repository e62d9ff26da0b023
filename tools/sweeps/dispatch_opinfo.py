"""Operators below autograd of PyTorch's operator samples, here and in PyTorch, side by side.

    python tools/sweeps/dispatch_opinfo.py path/to/conformance [--only REGEX] [--samples 10]

The folder holds `opinfo.py`, which rebuilds the samples; PyTorch must be installed.  Prints each operator whose sequence of operators
differs, forward or backward, and the shares that agree.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np


def recorder(torch: Any, base: Any) -> Any:
    """A mode that writes down the names of operators."""

    class Names(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.append(str(func).removeprefix("aten."))
            return func(*args, **(kwargs or {}))

    return Names()


def sequences(
    lib: Any, base: Any, function: Any, tree: Any, rebinder: Any, process: Any
) -> tuple[list[str], list[str] | None]:
    """What a call runs, and its backward from fixed gradients; an error in the place of names where it fails."""
    torch = lib.m
    (given, args, kwargs), _ = lib.build(tree, rebinder)
    torch.manual_seed(5)
    mode = recorder(torch, base)
    with mode:
        out = function(given, *args, **kwargs)
        forward, mode.names = mode.names, []
        out = process(out)
    mode.names = []
    outs = [t for t in lib.tensors(out) if t.requires_grad and "strided" in str(t.layout)]
    if not outs:
        return forward, None
    seeds = seeds_of(torch, outs)
    try:
        with mode:
            torch.autograd.backward(outs, seeds)
    except Exception as error:
        return forward, [f"{type(error).__name__}: {error}"[:200]]
    return forward, mode.names


def seeds_of(torch: Any, outs: list[Any]) -> list[Any]:
    """Fixed gradients of results."""
    seeds = []
    for k, t in enumerate(outs):
        numbers = np.asarray(np.random.RandomState(k).randint(-16, 17, size=tuple(t.shape)) / 8.0)
        seeds.append(torch.from_numpy(numbers).reshape(tuple(t.shape)).to(t.dtype))
    return seeds


def gradients(lib: Any, mode: Any, function: Any, tree: Any, rebinder: Any, process: Any) -> list[Any]:
    """The gradients of a call's inputs, forward and backward under a mode."""
    torch = lib.m
    (given, args, kwargs), _ = lib.build(tree, rebinder)
    leaves = [t for t in lib.tensors((given, args, kwargs)) if t.requires_grad]
    torch.manual_seed(5)
    with mode:
        out = function(given, *args, **kwargs)
        outs = [t for t in lib.tensors(process(out)) if t.requires_grad and "strided" in str(t.layout)]
        if outs:
            torch.autograd.backward(outs, seeds_of(torch, outs))
    return [t.grad for t in leaves]


def unlike(first: list[Any], second: list[Any]) -> bool:
    """Whether gradients differ by more than rounding."""
    for a, b in zip(first, second, strict=True):
        if (a is None) is not (b is None):
            if (b if a is None else a).count_nonzero():
                return True
            continue
        if a is None:
            continue
        x, y = (np.asarray(t.detach().to_dense().resolve_conj().numpy(), dtype=complex) for t in (a, b))
        if x.shape != y.shape or not np.allclose(x, y, rtol=2e-3, atol=2e-3, equal_nan=True):
            return True
    return False


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("conformance", type=Path)
    parser.add_argument("--only", default=".")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--values", action="store_true", help="also compare gradients under a mode with those without")
    options = parser.parse_args()
    sys.path.insert(0, str(options.conformance))
    import opinfo
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.utils._python_dispatch import TorchDispatchMode as Theirs

    import rushlight
    from rushlight.utils._python_dispatch import TorchDispatchMode as Ours

    warnings.simplefilter("ignore")
    there, here = opinfo.Lib(torch, True), opinfo.Lib(rushlight, False)
    bind_there, bind_here = opinfo.Rebinder(torch, torch, oracle=True), opinfo.Rebinder(torch, rushlight)
    agreed = {"forward": [0, 0], "backward": [0, 0]}
    different: dict[str, list[str]] = {"forward": [], "backward": []}
    for op in op_db:
        name = op.name + (f"/{op.variant_test_name}" if op.variant_test_name else "")
        if not re.search(options.only, name) or opinfo.PRIVATE.search(op.name):
            continue
        dtypes = {str(d).split(".")[-1] for d in op.supported_dtypes("cpu")}
        order = ["float32", "int64", "bool", "complex64", "float64", "float16", *sorted(dtypes)]
        dtype = next((d for d in order if d in dtypes), None)
        if dtype is None:
            print(f"{name}: not compared (it has no dtypes on the CPU)")
            continue
        wants = op.supports_autograd and dtype in {str(d).split(".")[-1] for d in op.supported_backward_dtypes("cpu")}
        torch.manual_seed(0), random.seed(0), np.random.seed(0)
        same: dict[str, bool] = {}
        try:
            samples = [
                s
                for s in op.sample_inputs("cpu", getattr(torch, dtype), requires_grad=wants)
                if opinfo.small_enough(torch, s)
            ]
            functions = bind_there(op.op), bind_here(op.op)
        except Exception as error:
            print(f"{name}: not compared ({type(error).__name__})")
            continue
        for number in opinfo.spread(len(samples), options.samples):
            sample = samples[number]
            try:
                tree = opinfo.Encoder(torch)((sample.input, sample.args, sample.kwargs))
                wanted = sequences(there, Theirs, functions[0], tree, bind_there, sample.output_process_fn_grad)
            except Exception:  # no sample of this comparison: PyTorch itself refuses it, or it cannot be rebuilt
                continue
            try:
                got: Any = sequences(here, Ours, functions[1], tree, bind_here, sample.output_process_fn_grad)
            except Exception as error:
                got = [f"{type(error).__name__}: {error}"[:200]], None
            if options.values and wanted[1] is not None:
                how = functions[1], tree, bind_here, sample.output_process_fn_grad
                try:
                    plain = gradients(here, contextlib.nullcontext(), *how)
                    if unlike(plain, gradients(here, recorder(rushlight, Ours), *how)):
                        print(f"{name} #{number}: gradients under a mode differ")
                except Exception as error:
                    print(f"{name} #{number}: gradients not compared ({type(error).__name__}: {error})"[:200])
            for part, a, b in zip(agreed, wanted, got, strict=True):
                if a is not None:
                    if a != b and same.get(part, True):
                        print(f"{name} {part} #{number}\n  PyTorch   {' '.join(a)}\n  rushlight {' '.join(b or [])}")
                    same[part] = same.get(part, True) and a == b
        for part, equal in same.items():
            agreed[part][0] += equal
            agreed[part][1] += 1
            if not equal:
                different[part].append(name)
    for part, (equal, count) in agreed.items():
        print(f"{part}: {equal} of {count} operators ({100 * equal / max(1, count):.1f} %)")
        print(f"  not: {' '.join(different[part])}")


if __name__ == "__main__":
    main()

"""What the nodes of the graph show of a call (`_saved_self`, `_saved_dim`, ...) beside PyTorch's.

    python tools/sweeps/saved_values.py [--only 'relu|linalg'] [--samples 6] [--json FILE]
    python tools/sweeps/saved_values.py --names

PyTorch's own samples are run in both libraries, and each node of the results, where it has the same name, is asked for all that PyTorch's
shows.  Printed is each attribute that is missing here or that has another value, once for a node and an attribute; "not held" are those that
refuse because our gradient needs something else.  With `--names` the list of what PyTorch's nodes show is written anew.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from second_derivatives import DTYPE, UNDEFINED, moved, resolve, shown, tensors_in
from torch.testing._internal.common_methods_invocations import op_db

import rushlight

OUT = Path(__file__).resolve().parents[2] / "src" / "rushlight" / "_engine" / "autograd" / "saved_names.txt"
# Nodes of other libraries, and of PyTorch's own tests
ABSENT = re.compile("_?(Foreach|Cudnn|Miopen|Mkldnn|Mps|TestAutograd)")


def plain(value: Any) -> Any:
    """A value that can be compared: arrays for tensors, names for dtypes, devices and layouts."""
    if isinstance(value, torch.Tensor | rushlight.Tensor):
        if value.layout is not (torch if isinstance(value, torch.Tensor) else rushlight).strided:
            value = value.to_dense()
        value = value.detach().resolve_conj().resolve_neg()
        return np.asarray(
            value.double().numpy() if value.dtype in (torch.bfloat16, rushlight.bfloat16) else value.numpy()
        )
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format):
        return str(value)
    if isinstance(value, list | tuple):
        return tuple(plain(v) for v in value)
    if value is None or isinstance(value, bool | int | float | complex | str):
        return value
    return str(value).replace("rushlight", "torch")


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return (
            a.shape == b.shape and a.dtype == b.dtype and bool(np.allclose(a, b, rtol=1e-5, atol=1e-7, equal_nan=True))
        )
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b)
    return type(a) is type(b) and not isinstance(a, np.ndarray) and bool(a == b)


def names_of(node: Any) -> list[str]:
    return [n for n in dir(node) if n.startswith("_saved_")]


def compared(theirs: Any, ours: Any) -> Iterator[tuple[str, str, str]]:
    """(attribute, kind of outcome, what differs) of one node."""
    for name in names_of(theirs):
        try:
            wanted = plain(getattr(theirs, name))
        except RuntimeError:
            continue
        try:
            found = plain(getattr(ours, name))
        except AttributeError as error:
            yield name, "missing" if "has no attribute" in str(error) else "not held", f"{wanted!r:.60}"
            continue
        except Exception as error:
            yield name, "raises", f"{type(error).__name__}: {error}"
            continue
        if same(wanted, found):
            yield name, "same", ""
        else:
            yield name, "None here" if found is None else "other", f"{found!r:.60} instead of {wanted!r:.60}"


def pairs(theirs: Any, ours: Any) -> Iterator[tuple[Any, Any]]:
    """The nodes of two graphs that stand at the same place and have the same name."""
    stack, seen = [(theirs, ours)], set()
    while stack:
        a, b = stack.pop()
        if a is None or b is None or id(a) in seen:
            continue
        seen.add(id(a))
        if a.name() != b.name():
            yield a, None
            continue
        yield a, b
        if len(a.next_functions) == len(b.next_functions):
            stack += [(x[0], y[0]) for x, y in zip(a.next_functions, b.next_functions, strict=True)]


def compare(info: Any, sample: Any) -> Iterator[tuple[str, str, str, str]]:
    """(node, attribute, kind of outcome, what differs) of one call."""
    args, kwargs = [sample.input, *sample.args], dict(sample.kwargs)
    function = resolve(info.name)
    if not callable(function):
        return
    try:
        theirs = tensors_in(info.op(*args, **kwargs))
        ours = tensors_in(function(*moved(args), **moved(kwargs)))
    except Exception:
        return
    for a, b in zip(theirs, ours, strict=False):
        for x, y in pairs(a.grad_fn, b.grad_fn):
            if y is None:
                yield x.name(), "", "another node", ""
                continue
            for attribute, kind, wrong in compared(x, y):
                yield x.name(), attribute, kind, wrong


def write_names() -> None:
    """Write `saved_names.txt`: a line a node, with a star after the names of tensors."""
    lines = [
        f"# What the nodes of PyTorch {torch.__version__.partition('+')[0]} show, written by tools/sweeps/saved_values.py --names; a star marks tensors."
    ]
    for node, kind in sorted(vars(torch._C._functions).items()):
        if isinstance(kind, type) and not ABSENT.match(node):
            raw = {n.removeprefix("_raw_saved_") for n in dir(kind) if n.startswith("_raw_saved_")}
            names = [n.removeprefix("_saved_") for n in dir(kind) if n.startswith("_saved_")]
            lines.append(" ".join([node, *[n + "*" * (n in raw) for n in names]]))
    OUT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=".")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--json", help="where to write the outcomes")
    parser.add_argument("--names", action="store_true", help="write the list of names instead")
    options = parser.parse_args()
    if options.names:
        write_names()
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    told: dict[str, int] = {}
    for info in op_db:
        if not re.search(options.only, info.name) or UNDEFINED.search(info.name) or not info.supports_autograd:
            continue
        dtype = DTYPE if DTYPE in info.supported_backward_dtypes("cpu") else torch.complex128
        if dtype not in info.supported_backward_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        samples = list(info.sample_inputs("cpu", dtype, requires_grad=True))
        for sample in samples[:: max(1, len(samples) // options.samples)]:
            for node, attribute, kind, wrong in compare(info, sample):
                counts[kind] += 1
                if kind == "same" or kind == "another node":
                    continue
                key = f"{kind}: {node}.{attribute}"
                if key not in told:
                    given = ", ".join(
                        [
                            shown(sample.input),
                            *map(shown, sample.args),
                            *[f"{k}={shown(v)}" for k, v in sample.kwargs.items()],
                        ]
                    )
                    print(f"{key} {info.name}({given:.100}) {wrong}", flush=True)
                told[key] = told.get(key, 0) + 1
    print(dict(counts))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"counts": dict(counts), "told": told}, file, indent=1)


if __name__ == "__main__":
    main()

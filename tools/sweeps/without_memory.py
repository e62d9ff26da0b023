"""Calls the functions of the package below their dispatch, on tensors that have no memory, and prints each call that ends the process.

    python tools/sweeps/without_memory.py [--only PATTERN] [--results]

A fake tensor, or any wrapper whose class says what operators do, has a shape on a device and no elements.  Whoever runs a function's body on one
(`torch.block_diag.__wrapped__`) passes the class by, and must get an error or a tensor, not a fault.  Each call runs in a child process.
`--results` prints the calls that give a tensor with memory, too: their numbers may not come from the argument.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import rushlight  # noqa: E402
from rushlight import Tensor  # noqa: E402
from rushlight._engine.core import convert  # noqa: E402
from rushlight._ops.samples import Draw, samples_of  # noqa: E402
from rushlight._ops.table import OPERATORS  # noqa: E402
from rushlight._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from rushlight.overrides import get_overridable_functions  # noqa: E402
from rushlight.utils._pytree import tree_map  # noqa: E402

LIMIT = 20  # seconds for one call


class Silent(Tensor):
    """A wrapper whose class refuses every operator."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(str(func))


def without_memory(kind: str, draw: Draw) -> Tensor:
    """A tensor of a sample's shape and dtype that has no memory."""
    if kind == "wrapper":
        shell: Any = Tensor
        return shell._make_wrapper_subclass(Silent, draw.shape, dtype=draw.dtype)
    with FakeTensorMode():
        return rushlight.empty(draw.shape, dtype=draw.dtype)


def guesses() -> list[tuple[Any, ...]]:
    """Arguments for functions that have no samples."""
    x, square, cube, image = Draw(3, 4), Draw(4, 4), Draw(2, 3, 4), Draw(2, 3, 8, 8)
    whole, truth = Draw(3, 4, dtype=rushlight.int64), Draw(3, 4, dtype=rushlight.bool)
    one = [(x,), (square,), (cube,), (image,), (whole,), (truth,), ([x, x],)]
    more = [(x, x), (square, square), (cube, cube), (x, 2), (x, 0, 1), (x, truth), (x, 0, whole), (x, 0, whole, x), (x, x, x), (image, 2)]  # fmt: skip
    return one + more


def operands(value: Any, kind: str) -> Any:
    """Arguments with tensors in the places of draws."""
    return tree_map(lambda v: without_memory(kind, v) if isinstance(v, Draw) else v, value)


def calls(pattern: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Name and call of every case."""
    seen: set[int] = set()
    for page, functions in get_overridable_functions().items():
        for function in functions:
            name = f"{page.__name__}.{function.__name__}"
            if id(function) in seen or not re.search(pattern, name):
                continue
            seen.add(id(function))
            row = getattr(function, "operator", None)
            given = [(c.args, c.kwargs) for c in samples_of(row)] if row is not None else [(g, {}) for g in guesses()]
            yield from bodies(name, function, given)
    for key, row in OPERATORS.items():
        if re.search(pattern, key):
            for call in samples_of(row):
                yield from kinds(
                    f"{key}{call}", lambda *a, key=key, **k: convert.call(key, *a, **k), call.args, call.kwargs
                )
                if row.inplace:
                    yield from kinds(
                        f"{key}_{call}", lambda *a, key=key, **k: convert.call_inplace(key, *a), call.args, {}
                    )


def bodies(name: str, function: Any, given: list[Any]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """The bodies below a function, and the function itself while classes are not asked."""
    each, depth = function, 0
    while each is not None:
        for args, kwargs in given:
            below = each if depth else _unasked(each)
            yield from kinds(f"{name}{'.__wrapped__' * depth}{(args, kwargs)}", below, args, kwargs)
        each, depth = getattr(each, "__wrapped__", None), depth + 1


def _unasked(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs as if no class had `__torch_dispatch__`."""
    return lambda *args, **kwargs: Tensor.__dict__["__torch_dispatch__"].__func__(function, (), args, kwargs)


def kinds(name: str, function: Any, args: Any, kwargs: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A call for each kind of tensor without memory."""
    for kind in ("fake", "wrapper"):
        yield f"{name} on a {kind}", lambda kind=kind: function(*operands(args, kind), **operands(kwargs, kind))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="functions whose names match")
    parser.add_argument("--results", action="store_true", help="print calls that give tensors with memory")
    options = parser.parse_args()
    died, ends = sweep(list(calls(options.only)), options.results)
    for name in died:
        print(f"ends the process: {name}")
    print(f"{sum(ends.values())} calls ({dict(ends)}), {len(died)} end the process")
    sys.exit(bool(died))


def sweep(cases: list[tuple[str, Callable[[], Any]]], results: bool = False) -> tuple[list[str], Counter[str]]:
    """The names of the calls that end a child process, and how the others end."""
    died: list[str] = []
    ends: Counter[str] = Counter()
    first = 0
    while first < len(cases):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _child(cases[first:], writer)
        os.close(writer)
        with os.fdopen(reader) as lines:
            told = lines.read().splitlines()
        status = os.waitpid(pid, 0)[1]
        ends.update(line.split(":", 1)[0] for line in told)
        if results:
            print(*[line for line in told if line.startswith("tensor")], sep="\n")
        first += len(told)
        if status and first < len(cases):
            died.append(cases[first][0])
            first += 1
    return died, ends


def _child(cases: list[tuple[str, Callable[[], Any]]], writer: int) -> None:
    """Run calls and write a line for each."""
    import signal

    warnings.simplefilter("ignore")
    for name, call in cases:
        signal.alarm(LIMIT)
        try:
            end = "tensor" if holds_memory(call()) else "nothing"
        except Exception as error:
            end = type(error).__name__
        os.write(writer, f"{end}: {name!r}\n".encode())
    os._exit(0)


def holds_memory(value: Any) -> bool:
    """Whether a tensor with elements in memory is among results."""
    if isinstance(value, (tuple, list)):
        return any(holds_memory(v) for v in value)
    return (
        isinstance(value, Tensor) and value._storage is not None and value.numel() > 0 and value.device.type != "meta"
    )


if __name__ == "__main__":
    main()

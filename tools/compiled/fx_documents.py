"""What PyTorch's capture makes of the programs in `tests/compiler/document_programs.py` and `unknown_size_programs.py`: every node's op, target, name
and arguments.

python tools/compiled/fx_documents.py                # ask PyTorch and write tests/data/fx_documents.json.gz
python tools/compiled/fx_documents.py --ours         # compare rushlight with it, and print what differs
"""

from __future__ import annotations

import argparse
import functools
import gzip
import importlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "tests" / "data" / "fx_documents.json.gz"
sys.path.insert(0, str(ROOT / "tests" / "compiler"))

from document_programs import PROGRAMS  # noqa: E402
from unknown_size_programs import ROW, UNKNOWN  # noqa: E402

SPACES = ("nn.functional", "", "linalg", "special", "fft", "functional", "_C._nn", "_C", "Tensor", "nn.init")
PLAIN = ("operator", "_operator", "math", "builtins")


def target_text(torch: Any, target: Any) -> str:
    """A target by its public path, the same in both packages."""
    if isinstance(target, str):
        return target
    for module in PLAIN[:1]:
        for name, value in vars(importlib.import_module(module)).items():
            if value is target and not name.startswith("__"):
                return f"{module}.{name}"
    name = getattr(target, "__name__", str(target))
    for space in SPACES:
        where = torch
        for part in filter(None, space.split(".")):
            where = getattr(where, part, None)
        if getattr(where, name, None) is target:
            return ".".join(filter(None, ["torch", space, name]))
    for space in SPACES:
        where = torch
        for part in filter(None, space.split(".")):
            where = getattr(where, part, None)
        for other in dir(where):
            if not other.startswith("__") and getattr(where, other, None) is target:
                return ".".join(filter(None, ["torch", space, other]))
    return f"{getattr(target, '__module__', '?')}.{name}".replace("rushlight", "torch")


def argument_text(node: Any) -> str:
    return f"{node.args!r} {dict(node.kwargs)!r}"


def with_parts(gm: Any) -> list[Any]:
    """A graph's module, and those of the parts that it chooses from (`cond`)."""
    parts = [child for _, child in gm.named_children() if hasattr(child, "graph")]
    return [gm, *[each for part in parts for each in with_parts(part)]]


def documents(torch: Any, name: str) -> list[list[list[str]]]:
    """The graphs of a program: of each node op, target, name, arguments."""
    graphs: list[Any] = []

    def backend(gm: Any, example_inputs: Any) -> Any:
        for each in with_parts(gm):
            graphs.append([[n.op, target_text(torch, n.target), n.name, argument_text(n)] for n in each.graph.nodes])
        return gm.forward

    torch._dynamo.reset()
    if name in UNKNOWN:
        with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
            torch.compile(functools.partial(UNKNOWN[name], torch), backend=backend)(torch.tensor(ROW))
    else:
        compiled, arguments = PROGRAMS[name](torch)
        torch.compile(compiled, backend=backend)(*arguments)
    return graphs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    torch = importlib.import_module("rushlight" if given.ours else "torch")
    importlib.import_module(f"{torch.__name__}._dynamo")
    found = {}
    for name in (*PROGRAMS, *UNKNOWN):
        if given.only in name:
            try:
                found[name] = documents(torch, name)
            except Exception as error:
                print(name, type(error).__name__, str(error)[:200])
    if given.ours:
        report(found)
        return
    STORED.parent.mkdir(exist_ok=True)
    STORED.write_bytes(gzip.compress(json.dumps(found).encode(), mtime=0))
    print(len(found), "programs,", STORED.stat().st_size, "bytes")


def report(found: dict[str, Any]) -> None:
    stored = json.loads(gzip.decompress(STORED.read_bytes()))
    same = [name for name in found if found[name] == stored[name]]
    for name in found:
        if name not in same:
            print(f"***** {name}")
            for kind, graphs in (("torch", stored[name]), ("ours", found[name])):
                for graph in graphs:
                    print(f"  {kind}:", *graph, sep="\n      ")
    print(len(same), "of", len(stored), "the same")


if __name__ == "__main__":
    main()

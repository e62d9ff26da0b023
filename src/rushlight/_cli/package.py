"""`python -m rushlight package MODEL.pt2 -o MODEL.rlp`: compile an exported program ahead of time.

python -m rushlight package model.pt2 -o model.rlp            one file for `torch._inductor.aoti_load_package`
python -m rushlight package model.pt2 --size batch=1:8        fewer sizes than the program takes
python -m rushlight package model.pt2 --library libmodel.so   a shared library for C, and model.h beside it
python -m rushlight package --info model.rlp                  what a package takes, gives and runs on
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

import rushlight as torch
from rushlight._inductor.packaging import built
from rushlight._interface.packaging import load

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the command; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rushlight package",
        description="Compile an exported program ahead of time, for this kind of processor and older ones.",
    )
    parser.add_argument("model", help="a program that torch.export.save wrote; with --info a package")
    parser.add_argument("-o", "--output", help="the package to write (default: the model's name with .rlp)")
    parser.add_argument(
        "--library", metavar="FILE", help="write a shared library for C instead, and its header beside it"
    )
    parser.add_argument("--name", help="what the functions of the library begin with (default: from the file's name)")
    parser.add_argument(
        "--levels", help="kinds of processors, as x86-64-v3,x86-64-v4 (default: all that this machine can run)"
    )
    parser.add_argument(
        "--size", action="append", default=[], metavar="NAME=LEAST:MOST",
        help="the sizes that calls will have, within those of the program; once for each size",
    )  # fmt: skip
    parser.add_argument("--info", action="store_true", help="say what a package holds; checks its weights, too")
    options = parser.parse_args(arguments)
    try:
        return _info(options.model) if options.info else _package(options)
    except (RuntimeError, NotImplementedError, ValueError, OSError) as error:
        print(f"rushlight package: {error}", file=sys.stderr)
        return 1


def _info(path: str) -> int:
    package = load(path, verify_weights=True)
    print(f"{path}: {package.name}, runs code for {package.processor}")
    for kind, tensors in (("input", package.inputs), ("output", package.outputs)):
        for name, dtype, shape in tensors:
            print(f"  {kind} {name}: {dtype}{list(shape)}")
    return 0


def _limit(text: str) -> tuple[str, tuple[int, int]]:
    """The name and the ends of a range in a text like `batch=1:8`."""
    name, _, ends = text.partition("=")
    least, _, most = ends.partition(":")
    if not least.isdecimal() or not (most or least).isdecimal():
        raise ValueError(f"--size {text}: NAME=LEAST:MOST is expected, as batch=1:8")
    return name, (int(least), int(most or least))


def _package(options: Any) -> int:
    began = time.perf_counter()
    program = torch.export.load(options.model)
    stem = os.path.splitext(os.path.basename(options.library or options.output or options.model))[0]
    name = options.name or stem.removeprefix("lib" if options.library else "").replace("-", "_").replace(".", "_")
    levels = options.levels.split(",") if options.levels else None
    made = built(program, None, None, None, name, levels, dict(map(_limit, options.size)))
    if options.library:
        written = list(made.write_library(options.library))
    else:
        written = [made.write(options.output or f"{os.path.splitext(options.model)[0]}.rlp")]
    sizes = ", ".join(f"{path} ({os.path.getsize(path):,} bytes)" for path in written)
    print(f"{sizes}: code for {', '.join(v.level for v in made.variants)}, in {time.perf_counter() - began:.1f} s")
    return 0

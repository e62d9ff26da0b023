"""`python -m rushlight`: run PyTorch programs unchanged, look at the installation, run the demo."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

__all__ = ["main"]

COMMANDS = ("compile-report", "demo", "docs", "info", "kernel", "onnx", "package", "quantize", "stubs")

USAGE = """\
usage: python -m rushlight SCRIPT [ARGUMENTS]      run a PyTorch program unchanged: its `import torch` finds rushlight
       python -m rushlight -m MODULE [ARGUMENTS]   the same for a module
       python -m rushlight -c CODE [ARGUMENTS]     the same for a program given as text
       python -m rushlight demo [--out FOLDER]     train two small models and look at the results
       python -m rushlight compile-report SCRIPT [ARGUMENTS]  run a program; list graphs, breaks and times of what it compiles
       python -m rushlight kernel install           a Jupyter kernel whose notebooks' `import torch` finds rushlight
       python -m rushlight onnx run|info|bench MODEL  run an ONNX model, look into it, time it
       python -m rushlight info                    versions, CPU, threads, cache, settings
       python -m rushlight package MODEL.pt2 -o MODEL.rlp  compile an exported program ahead of time
       python -m rushlight quantize FILE.py:NAME   a model in integers: size, time and error of each form, and of each layer
       python -m rushlight stubs [--check]         write the type stubs, or check that they are up to date
       python -m rushlight docs [--out FOLDER]     write a page for every operator
       python -m rushlight --version | --help
"""


def main(argv: list[str] | None = None) -> int:
    """The command line; returns the exit status.  A program's own `sys.exit` passes through."""
    words = sys.argv[1:] if argv is None else argv
    first = words[0] if words else "--help"
    if first in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if first in ("-V", "--version"):
        import rushlight

        print(f"rushlight {rushlight.__version__}")
        return 0
    if first in COMMANDS:
        command: Callable[[list[str]], int] = import_module(f"rushlight._cli.{first.replace('-', '_')}").main
        return command(words[1:])
    return _program(words)


def _program(words: list[str]) -> int:
    """Run a script, a module or a text as a PyTorch program."""
    from rushlight._cli import runner

    first, rest = words[0], words[1:]
    if first in ("-m", "-c"):
        if not rest:
            print(f"Argument expected for the {first} option\n{USAGE}", end="", file=sys.stderr)
            return 2
        return runner.run_module(rest[0], rest[1:]) if first == "-m" else runner.run_text(rest[0], rest[1:])
    if first.startswith("-") and first != "-":
        print(f"Unknown option: {first}\n{USAGE}", end="", file=sys.stderr)
        return 2
    return runner.run_script(first, rest)


if __name__ == "__main__":
    sys.exit(main())

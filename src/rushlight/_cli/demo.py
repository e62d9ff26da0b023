"""`python -m rushlight demo`: both training examples, their steps compiled, and a summary."""

from __future__ import annotations

import argparse
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rushlight._base.alias import install
from rushlight._base.errors import install_command
from rushlight._base.lazy import LazyModule
from rushlight._cli import demo_distributed, runner

if TYPE_CHECKING:
    from rushlight._cli import demo_export
else:  # it loads all forms
    demo_export = LazyModule("rushlight._cli.demo_export")

__all__ = ["EXAMPLES", "examples_folder", "main"]

# script, what it needs beside rushlight, what it leaves
EXAMPLES = (
    ("gpt_chars", ("tqdm", "matplotlib"), "loss.png, losses.txt, sample.txt, checkpoint.pt"),
    ("digits_cnn", ("tqdm", "matplotlib", "sklearn"), "loss.png, losses.txt, checkpoint.pt"),
)
_INTERRUPTED = 130


def examples_folder() -> Path:
    """Where the examples are: beside the sources in a checkout, inside the package in an installation."""
    here = Path(__file__).resolve()
    for folder in (here.parents[3] / "examples", here.parent / "examples"):
        if (folder / "gpt_chars.py").is_file():
            return folder
    raise FileNotFoundError(f"the examples are neither in {here.parents[3]} nor in {here.parent}")


def main(arguments: list[str]) -> int:
    """Run the demo; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m rushlight demo", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("rushlight-demo"), help="folder for the results (%(default)s)")
    parser.add_argument("--steps", type=int, help="training steps of each example, instead of their own choice")
    parser.add_argument("--seed", type=int, help="another seed")
    parser.add_argument("--eager", action="store_true", help="train without compiling")
    parser.add_argument(
        "--distributed", action="store_true", help="instead: a GPT on two processes, of which one is killed (minutes)"
    )
    parser.add_argument(
        "--export", action="store_true", help="instead: the digits network in every form in which a program leaves"
    )
    parser.add_argument(
        "--size", choices=("tiny", "small"), default="small", help="with --distributed: the GPT, 0.1 or 85 M parameters"
    )
    try:
        options = parser.parse_args(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    if options.distributed:
        return _distributed(options)
    if options.export:
        return _exported(options)
    absent = sorted({module for _, needs, _ in EXAMPLES for module in needs if find_spec(module) is None})
    if absent:
        print(f"the demo needs {', '.join(absent)}: {install_command('examples')}", file=sys.stderr)
        return 1
    try:
        return _run(options)
    except KeyboardInterrupt:
        print(f"\ninterrupted; what was finished is in {options.out}", file=sys.stderr)
        return _INTERRUPTED
    except OSError as error:
        print(f"the demo could not write its results: {error}", file=sys.stderr)
        return 1


def _distributed(options: argparse.Namespace) -> int:
    script = examples_folder() / "gpt_distributed.py"
    try:
        return demo_distributed.main(script, options.out, options.size, 8 if options.steps is None else options.steps)
    except KeyboardInterrupt:
        return _INTERRUPTED


def _exported(options: argparse.Namespace) -> int:
    folder = examples_folder()
    install()
    sys.path.insert(0, str(folder))
    try:
        return demo_export.main(
            folder, options.out, _words(options), lambda out, words: _train("digits_cnn", out, words)
        )
    except KeyboardInterrupt:
        return _INTERRUPTED


def _words(options: argparse.Namespace) -> list[str]:
    """Command-line arguments of an example."""
    words = [
        f"--{key}={value}" for key, value in (("steps", options.steps), ("seed", options.seed)) if value is not None
    ]
    return words if options.eager else [*words, "--compile"]


def _train(name: str, out: Path, words: list[str]) -> None:
    """Run an example as a program of its own."""
    before = sys.argv[:], sys.modules["__main__"]
    print(f"\n--- {name}.py ---", flush=True)
    sys.argv[:] = [str(examples_folder() / f"{name}.py"), "--out", str(out), *words]
    try:
        runner.load_main(sys.argv[0])
    finally:
        sys.argv[:], sys.modules["__main__"] = before


def _run(options: argparse.Namespace) -> int:
    install()
    sys.path.insert(0, str(examples_folder()))
    began = time.perf_counter()
    lines = []
    for name, _, leaves in EXAMPLES:
        out = options.out / name
        started = time.perf_counter()
        _train(name, out, _words(options))
        losses = [float(line) for line in (out / "losses.txt").read_text().split()]
        took = time.perf_counter() - started
        lines.append(f"{name:12s} {took:6.1f} s   loss {losses[0]:.4f} -> {losses[-1]:.4f}   {out}: {leaves}")
    print(f"\n--- done in {time.perf_counter() - began:.1f} s ---")
    print("\n".join(lines))
    return 0

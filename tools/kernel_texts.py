"""Captures the LLVM text of every kernel that a set of programs compiles, and compares two captures.

    python tools/kernel_texts.py capture before.json.gz            # on the commit before a change that must alter no kernel
    python tools/kernel_texts.py capture after.json.gz             # on the commit after it
    python tools/kernel_texts.py compare before.json.gz after.json.gz

The programs: the operator table with its samples (forward, backward, in-place, strided), the examples, and the rows of `bench/`, among them
the models.  `--only operators|examples|rows` takes one set; `--jobs` runs so many processes.  Each process begins with an empty kernel cache.

Texts are compared after local names, labels and the names of our own functions are numbered in the order in which they occur.  `compare`
prints, for each program, how many texts are the same and the difference of those that are not, and exits with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import difflib
import gzip
import hashlib
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TESTS = "tests/ops/test_eager.py"
_LOCAL = re.compile(r"%[-\w.$]+")
_LABEL = re.compile(r"^([-\w.$]+):")
_GLOBAL = re.compile(r"@(?!llvm\.)[-\w.$]+")
_DEFINITION = re.compile(r"^(?:define|declare)\b", re.MULTILINE)
Texts = dict[str, dict[str, str]]


# ***** the canonical form *****


def canonical(text: str) -> str:
    """`text` with the names that a program chooses replaced by numbers, function by function; declarations sorted."""
    heads = [match.start() for match in _DEFINITION.finditer(text)]
    parts = [text[a:b] for a, b in zip([0, *heads], [*heads, len(text)], strict=True)]
    symbols: dict[str, str] = {}
    functions = [_numbered(part, symbols) for part in parts if part.startswith("define")]
    rest = sorted(_numbered(part, symbols).strip() for part in parts if not part.startswith("define"))
    return "\n".join([*functions, *(part for part in rest if part)])


def _numbered(function: str, symbols: dict[str, str]) -> str:
    """One function with its local names numbered from 0; `symbols` numbers those that functions share."""
    locals_: dict[str, str] = {}

    def local(match: re.Match[str]) -> str:
        return "%" + locals_.setdefault(match[0][1:], str(len(locals_)))

    def symbol(match: re.Match[str]) -> str:
        return symbols.setdefault(match[0], f"@g{len(symbols)}")

    lines = []
    for line in function.splitlines():
        label = _LABEL.match(line)
        if label:
            line = locals_.setdefault(label[1], str(len(locals_))) + line[label.end() - 1 :]
        lines.append(_GLOBAL.sub(symbol, _LOCAL.sub(local, line)))
    return "\n".join(lines)


# ***** capturing *****


def programs(only: str | None) -> dict[str, list[str]]:
    """Name and command line (after `python`) of each program."""
    found: dict[str, list[str]] = {}
    if only in (None, "operators"):
        found["operators"] = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", TESTS]
    if only in (None, "examples"):
        found.update({f"examples/{path.stem}": [str(path)] for path in sorted((ROOT / "examples").glob("*.py"))})
    if only in (None, "rows"):
        found["rows"] = ["--rows"]
    return found


def capture_one(command: list[str]) -> dict[str, str]:
    """The texts that one program compiles, by digest.  RuntimeError where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "RUSHLIGHT_CACHE_DIR": f"{folder}/cache", "RUSHLIGHT_TEXTS": f"{folder}/texts", "RUSHLIGHT_GEMM": "fixed"}
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [env.get("PYTHONPATH")])])
        os.mkdir(f"{folder}/texts")
        done = subprocess.run(
            [sys.executable, __file__, "run", *command], env=env, cwd=ROOT, capture_output=True, text=True, check=False
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
        return {path.name: path.read_text() for path in Path(folder, "texts").iterdir()}


def run(command: list[str]) -> None:
    """Run a program in this process; each text that LLVM is given goes to the folder `RUSHLIGHT_TEXTS`."""
    import llvmlite.binding as llvm

    parse, folder = llvm.parse_assembly, Path(os.environ["RUSHLIGHT_TEXTS"])

    def parse_assembly(text: str, *args: Any) -> Any:
        plain = canonical(text)
        (folder / hashlib.sha256(plain.encode()).hexdigest()).write_text(plain)
        return parse(text, *args)

    llvm.parse_assembly = parse_assembly
    if command == ["--rows"]:
        sys.path.insert(0, str(ROOT / "bench"))
        run_rows()
        return
    module, sys.argv = (command[1], command[1:]) if command[0] == "-m" else ("rushlight", ["rushlight", *command])  # `import torch` finds us
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def run_rows() -> None:
    """Call each row of the benchmarks once."""
    import rushlight
    from rows import ROWS  # type: ignore[import-not-found]

    for row in ROWS.values():
        row.make(rushlight)()


def capture(only: str | None, jobs: int) -> Texts:
    wanted = programs(only)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return dict(zip(wanted, pool.map(capture_one, wanted.values()), strict=True))


# ***** comparing *****


def differences(before: Texts, after: Texts, most: int) -> Iterator[str]:
    """A line for each program that differs, and up to `most` differences of texts."""
    for name in sorted({*before, *after}):
        old, new = before.get(name, {}), after.get(name, {})
        gone, come = sorted(set(old) - set(new)), sorted(set(new) - set(old))
        if not gone and not come:
            continue
        yield f"{name}: {len(set(old) & set(new))} texts the same, {len(gone)} only before, {len(come)} only after"
        for digest in gone[:most]:
            match = max(come, key=lambda d: difflib.SequenceMatcher(None, old[digest], new[d]).quick_ratio(), default=None)
            yield "\n".join(difflib.unified_diff(old[digest].splitlines(), new.get(match or "", "").splitlines(), "before", "after", lineterm="", n=1))


def read(path: str) -> Texts:
    with gzip.open(path, "rt") as file:
        found: Texts = json.load(file)
    return found


def main() -> int:
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    capturing = actions.add_parser("capture", help="write the texts of all programs")
    capturing.add_argument("file")
    capturing.add_argument("--only", choices=("operators", "examples", "rows"))
    capturing.add_argument("--jobs", type=int, default=1)
    comparing = actions.add_parser("compare", help="compare two captures")
    comparing.add_argument("before")
    comparing.add_argument("after")
    comparing.add_argument("--show", type=int, default=3, metavar="N", help="differences printed for each program")
    options = parser.parse_args()
    if options.action == "capture":
        texts = capture(options.only, options.jobs)
        with gzip.open(options.file + ".part", "wt") as file:
            json.dump(texts, file)
        os.replace(options.file + ".part", options.file)
        print(", ".join(f"{name}: {len(found)}" for name, found in texts.items()))
        return 0
    before, after = read(options.before), read(options.after)
    lines = list(differences(before, after, options.show))
    print("\n".join(lines) or f"the same: {sum(map(len, before.values()))} texts of {len(before)} programs")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())

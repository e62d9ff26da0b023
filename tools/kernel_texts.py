"""Capture the LLVM text of every function that a set of programs compiles, and compare two captures.

    python tools/kernel_texts.py capture before.json.gz            # on the commit before a change that must alter no kernel
    python tools/kernel_texts.py capture after.json.gz             # on the commit after it
    python tools/kernel_texts.py compare before.json.gz after.json.gz

The programs: the operator table with its samples (forward, backward, in-place, strided), the examples with shortened
training, and the rows of `bench/`, among them the models.  `--only operators|examples|rows` takes one set; `--jobs` runs
so many at once.  Each begins with an empty kernel cache; its child processes are recorded too.

A text is one function, so neither the order of functions nor how they are divided into modules matters.  Local names,
labels and the names of our own functions are numbered in the order in which they occur; names that this process knows (the C
library, CPython) stay, and constants and metadata stand in the place of their names.  What a function calls is
compared apart.  Functions of two sorts are told apart: `kernels` are generated, `native` ones are written in the native
language (the host's runtime).  `compare --kernels` judges the first sort alone.

`compare` prints, for each program, how many texts are the same and the difference of those that are not, and exits with
1 where anything differs.
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
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SETS = ("operators", "examples", "rows")
PYTEST = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not oracle and not slow"]
# A text is the program's alone: neither the number of cores nor a measurement of this machine takes part.
# Workers that compile are not recorded, and objects or plans that are found make no texts: nothing is found or given away.
SETTINGS = {
    "RUSHLIGHT_GEMM": "fixed", "RUSHLIGHT_NUM_THREADS": "2", "OMP_NUM_THREADS": "2",
    "RUSHLIGHT_COMPILE_WORKERS": "0", "RUSHLIGHT_SHIPPED": "0", "RUSHLIGHT_KEEP_PLANS": "0",
}  # fmt: skip
CALLS, CALLS_OF_NEW_SHAPES = 3, 24  # of each row; the latter until plans for any size are made
FOLDER = "RUSHLIGHT_TEXTS"

_LOCAL = re.compile(r'%(?:"[^"]+"|[-\w.$]+)')
_LABEL = re.compile(r'^("[^"]+"|[-\w.$]+):')
_GLOBAL = re.compile(r'@(?!llvm\.)(?:"([^"]+)"|([-\w.$]+))')
_METADATA = re.compile(r"!\d+")
_HEAD = re.compile(r"^(?=define\b)", re.MULTILINE)


@dataclass
class Function:
    """One function of LLVM text: `calls` are the texts (digests, or "extern") that its numbered symbols stand for."""

    name: str
    native: bool
    text: str
    calls: list[str]

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:24]


Programs = dict[str, list[Function]]


# ***** the canonical form *****


def functions(module: str, known: Callable[[str], Any] = lambda name: None) -> list[Function]:
    """The functions of a module in canonical form; `known(name)`: whether the process has a symbol of that name."""
    module = re.sub(r"[ \t]*;.*$", "", module, flags=re.MULTILINE)
    constants = dict(re.findall(r'^@"?([-\w.$]+)"? = (.*)$', module, re.MULTILINE))
    metadata = dict(re.findall(r"^(!\d+) = (.*)$", module, re.MULTILINE))
    found, symbols = [], []
    for part in _HEAD.split(module):
        if not part.startswith("define"):
            continue
        names: dict[str, str] = {}
        body = part[: part.index("\n}") + 2]
        text = _canonical(body, constants, metadata, names, known)
        first = re.search(r"\{\n(?:\S+:\n)?(.*)", text)
        head = _GLOBAL.search(part)
        assert first is not None and head is not None, part[:200]
        # Variables of the native language are stack slots; a generated kernel has none.
        found.append(Function(head[1] or head[2], "= alloca" in first[1], text, []))
        symbols.append(list(names)[1:])
    digests = {f.name: f.digest for f in found}
    for function, names_ in zip(found, symbols, strict=True):
        function.calls = [digests.get(name, "extern") for name in names_]
    return found


def _canonical(
    body: str, constants: dict[str, str], metadata: dict[str, str], names: dict[str, str], known: Callable[[str], Any]
) -> str:
    """One function with its names replaced; `names` gets the symbols that are numbered, in order, itself first."""
    locals_: dict[str, str] = {}

    def local(match: re.Match[str]) -> str:
        return "%" + locals_.setdefault(match[0][1:], str(len(locals_)))

    def symbol(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name in constants and not constants[name].startswith("external"):
            return f"@({constants[name]})"
        if names and name not in names and known(name):
            return match[0]
        return names.setdefault(name, f"@g{len(names)}")

    lines = []
    for line in body.splitlines():
        label = _LABEL.match(line)
        if label:
            line = locals_.setdefault(label[1], str(len(locals_))) + line[label.end() - 1 :]
        line = _METADATA.sub(lambda match: metadata.get(match[0], match[0]), line)
        lines.append(_GLOBAL.sub(symbol, _LOCAL.sub(local, line)))
    return "\n".join(lines)


# ***** capturing *****


def programs(only: str | None) -> dict[str, list[str]]:
    """Name and command line (after `python`) of each program."""
    found = {
        "operators": [*PYTEST, "tests/ops/test_eager.py"],
        "examples": [*PYTEST, "tests/test_examples.py", "tests/curves"],
        "rows": ["-c", "from tools import kernel_texts; kernel_texts.run_rows()"],
    }
    return {name: command for name, command in found.items() if only in (None, name)}


def capture_one(command: list[str]) -> list[Function]:
    """What one program and its children compile, each text once.  RuntimeError where it fails."""
    import llvmlite.binding as llvm

    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder, "texts")
        texts.mkdir()
        # Python imports this module at its start, in children too.
        Path(folder, "sitecustomize.py").write_text("from tools import kernel_texts\nkernel_texts.record()\n")
        env = {**os.environ, **SETTINGS, "RUSHLIGHT_CACHE_DIR": f"{folder}/cache", FOLDER: str(texts)}
        env["PYTHONPATH"] = os.pathsep.join([folder, str(ROOT / "src"), str(ROOT)])
        done = subprocess.run(
            [sys.executable, *command], env=env, cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            what = (done.stdout + done.stderr)[-2000:]
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{what}")
        modules = sorted(path.read_text() for path in texts.iterdir())
    found: dict[tuple[str, ...], Function] = {}
    for module in modules:
        for function in functions(module, llvm.address_of_symbol):
            found.setdefault((function.text, *function.calls), function)
    return sorted(found.values(), key=lambda f: (f.digest, f.calls))


def record() -> None:
    """Keep each text that LLVM is given from now on, in the folder that the environment names."""
    import llvmlite.binding as llvm

    parse, folder = llvm.parse_assembly, Path(os.environ[FOLDER])

    def parse_assembly(text: str, *args: Any) -> Any:
        path = folder / hashlib.sha256(text.encode()).hexdigest()
        if not path.exists():
            part = folder.parent / f"{path.name}.{os.getpid()}"  # another process may be writing the same
            part.write_text(text)
            part.replace(path)
        return parse(text, *args)

    llvm.parse_assembly = parse_assembly


def run_rows() -> None:
    """Call each row of the benchmarks a few times."""
    sys.path.insert(0, str(ROOT / "bench"))
    import rushlight
    from rows import ROWS  # type: ignore[import-not-found]

    for name, row in ROWS.items():
        rushlight.manual_seed(0)
        call = row.make(rushlight)
        for _ in range(CALLS_OF_NEW_SHAPES if name.startswith("new_shapes/") else CALLS):
            call()


def capture(only: str | None, jobs: int) -> Programs:
    wanted = programs(only)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        return dict(zip(wanted, pool.map(timed, wanted, wanted.values()), strict=True))


def timed(name: str, command: list[str]) -> list[Function]:
    start = time.perf_counter()
    found = capture_one(command)
    native = sum(f.native for f in found)
    seconds = time.perf_counter() - start
    print(f"{name}: {len(found) - native} kernels, {native} native functions, {seconds:.0f} s", flush=True)
    return found


# ***** comparing *****


def differences(before: Programs, after: Programs, most: int) -> Iterator[str]:
    """A line for each program that differs, and up to `most` differences of texts."""
    for name in sorted({*before, *after}):
        if name not in before or name not in after:
            yield f"{name}: only {'after' if name in after else 'before'}"
            continue
        old, new = ({f.digest: f for f in side[name]} for side in (before, after))
        for sort in (False, True):
            gone = [f for digest, f in old.items() if digest not in new and f.native is sort]
            come = [f for digest, f in new.items() if digest not in old and f.native is sort]
            if gone or come:
                same = sum(digest in new and f.native is sort for digest, f in old.items())
                label = "native functions" if sort else "kernels"
                yield f"{name}: {same} {label} the same, {len(gone)} only before, {len(come)} only after"
            likest = [_closest(function, come) for function in gone[:most]]
            yield from map(_difference, gone, likest)
            rest = [f for f in come if not any(f is other for other in likest)]
            yield from (f"  only after: {function.name}" for function in rest[: max(0, most - len(gone))])
        for function in _other_calls(before[name], after[name]):
            yield f"{name}: {function.name} is the same and calls other functions"


def _closest(function: Function, others: Iterable[Function]) -> Function | None:
    """The function that is most like this one, of the same name where there is one."""

    def likeness(other: Function) -> tuple[bool, float]:
        matcher = difflib.SequenceMatcher(None, function.text, other.text)
        return other.name == function.name, matcher.real_quick_ratio() and matcher.quick_ratio()

    return max(others, key=likeness, default=None)


def _difference(old: Function, new: Function | None) -> str:
    lines = new.text.splitlines() if new else []
    names = f"before: {old.name}", f"after: {new.name if new else 'nothing like it'}"
    return "\n".join(difflib.unified_diff(old.text.splitlines(), lines, *names, lineterm="", n=1))


def _other_calls(before: list[Function], after: list[Function]) -> list[Function]:
    """Functions whose texts are on both sides, as are those they call, and that call others than before."""
    common = {f.digest for f in before} & {f.digest for f in after}

    def calls(function: Function) -> tuple[str, ...]:  # a callee that changed, or is in another module now, is any
        return function.digest, *(c if c in common else "?" for c in function.calls)

    def fits(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
        return len(one) == len(other) and all(a == b or "?" in (a, b) for a, b in zip(one, other, strict=True))

    there: dict[str, list[tuple[str, ...]]] = {}
    for function in before:
        there.setdefault(function.digest, []).append(calls(function))
    return [f for f in after if f.digest in common and not any(fits(calls(f), c) for c in there[f.digest])]


# ***** files *****


def write(path: str, found: Programs) -> None:
    with gzip.open(path + ".part", "wt") as file:
        json.dump({name: [asdict(f) for f in listed] for name, listed in found.items()}, file)
    os.replace(path + ".part", path)


def read(path: str, kernels: bool) -> Programs:
    with gzip.open(path, "rt") as file:
        programs_ = json.load(file)
    made = {name: [Function(**f) for f in listed] for name, listed in programs_.items()}
    return {name: [f for f in listed if not (kernels and f.native)] for name, listed in made.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    capturing = actions.add_parser("capture", help="write the texts of all programs")
    capturing.add_argument("file")
    capturing.add_argument("--only", choices=SETS)
    capturing.add_argument("--jobs", type=int, default=1)
    comparing = actions.add_parser("compare", help="compare two captures")
    comparing.add_argument("before")
    comparing.add_argument("after")
    comparing.add_argument("--show", type=int, default=3, metavar="N", help="differences printed for each program")
    comparing.add_argument("--kernels", action="store_true", help="leave functions of the native language out")
    options = parser.parse_args()
    if options.action == "capture":
        write(options.file, capture(options.only, options.jobs))
        return 0
    before, after = (read(path, options.kernels) for path in (options.before, options.after))
    lines = list(differences(before, after, options.show))
    print("\n".join(lines) or f"the same: {sum(map(len, before.values()))} functions of {len(before)} programs")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())

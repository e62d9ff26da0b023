"""Changes what is kept of compiled programs, thousands of times, and looks at what a process makes of it.

    python tools/compiled/kept_mutations.py --count 2000
    python tools/compiled/kept_mutations.py --count 500 --only adam --seed 3

Files are mutated as they lie on the disk, where a digest speaks for each record: what is damaged must be left aside, and
the function traced again, with the bits of eager.  Records of segments are mutated behind the digest too, as if somebody
had computed it anew: one that says something else may do something else, but no process may end by a signal or hang.
Constants of kernels are believed as machine code is, which the digest alone speaks for.  Each try runs in a child.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

WAIT = 60  # seconds for a try
VALUES = (0, 1, -1, 2, 7, 1 << 20, 1 << 40, -(1 << 40), (1 << 63) - 1, 1 << 64, "", "x", None, True, [], {}, [[]], 0.5)


def mlp(t: Any) -> Any:
    """A training step of SGD with momentum."""
    model = t.nn.Sequential(t.nn.Linear(6, 8), t.nn.ReLU(), t.nn.Linear(8, 4))
    return _step(t, model, t.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)), t.randn(5, 6)


def adam(t: Any) -> Any:
    """A training step that counts."""
    model = t.nn.Sequential(t.nn.LayerNorm(6), t.nn.Linear(6, 4))
    return _step(t, model, t.optim.Adam(model.parameters(), lr=0.01)), t.randn(5, 6)


def views(t: Any) -> Any:
    """Results that are views of inputs, and changes of these."""

    def run(x: Any) -> Any:
        y = x[1:3].t()
        y.mul_(0.5)
        return y, x.sum(0), t.softmax(x @ x.t(), -1)

    return run, t.randn(5, 6)


def _step(t: Any, model: Any, optimizer: Any) -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


PROGRAMS = {"mlp": mlp, "adam": adam, "views": views}


def results(name: str) -> list[str]:
    """The bits of two calls of a program, compiled, and of what it changed."""
    import rushlight as t

    t.manual_seed(0)
    function, x = PROGRAMS[name](t)
    compiled, found = t.compile(function), []
    for _ in range(2):
        made = compiled(x)
        found += [str(y.tolist()) for y in (made if isinstance(made, tuple) else (made,))] + [str(x.tolist())]
    return found


def places(data: Any) -> Iterator[tuple[Any, Any]]:
    """Everything in nested data that can be replaced."""
    for key in range(len(data)) if type(data) is list else list(data):
        yield data, key
        if type(data[key]) in (list, dict):
            yield from places(data[key])


def changed_record(body: bytes, rng: random.Random) -> bytes:
    """A record with something else in it."""
    data = json.loads(body)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        held, key = rng.choice(list(places(data)))
        old = held[key]
        if type(old) is int and rng.random() < 0.6:
            held[key] = old + rng.choice((-1, 1, -8, 8, 64, 1 << 12, 1 << 33))
        elif type(old) is list and old and rng.random() < 0.5:
            rng.choice((old.pop, old.reverse, lambda old=old: old.append(old[0])))()
        else:
            held[key] = rng.choice(VALUES)
    return json.dumps(data, separators=(",", ":")).encode()


def mutated_records(rng: random.Random) -> None:
    """Let the process find segments that say something else, with digests that fit."""
    from rushlight._engine.dispatch.kept import plan_store

    store = plan_store.store()
    get = store.get

    def found(key: bytes) -> bytes | None:
        body: bytes | None = get(key)
        return body if body is None or not body.startswith(b'{"modules"') else changed_record(body, rng)

    store.get = found


def mutated_files(folder: str, rng: random.Random) -> None:
    """Change bytes of the files."""
    for path in glob.glob(f"{folder}/**/records-*.log", recursive=True):
        with open(path, "r+b") as file:
            data = bytearray(file.read())
            for _ in range(rng.choice((1, 4, 64))):
                data[rng.randrange(len(data))] = rng.randrange(256)
            if rng.random() < 0.2:
                del data[rng.randrange(len(data)) :]
            file.seek(0)
            file.truncate()
            file.write(data)


def tried(name: str, folder: str, seed: int, expected: list[str]) -> str:
    """What became of one try, in a child."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(WAIT)
        try:
            rng, files = random.Random(seed), seed % 4 == 0
            if files:
                mutated_files(folder, rng)
            else:
                mutated_records(rng)
            found = results(name)
            from rushlight._capture.trace.segments.kept_segments import COUNTS

            told = (
                f"the same, {COUNTS['found']} segments found"
                if found == expected
                else "wrong from a damaged file"
                if files
                else "something else"
            )
        except BaseException as error:
            told = f"raised {type(error).__name__}: {error}"[:200]
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        told = file.read().decode()
    status = os.waitpid(child, 0)[1]
    return told or f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else told


def main() -> int:
    """Try, and print what became of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="tries of each program")
    parser.add_argument("--only", default="", choices=["", *PROGRAMS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.keep:
        print(json.dumps(results(given.keep)))
        return 0
    bad = 0
    for name in [given.only] if given.only else PROGRAMS:
        bad += swept(name, given.count, given.seed)
    return bad


def swept(name: str, count: int, seed: int) -> int:
    """How many tries of a program went wrong."""
    import shutil
    import subprocess

    with tempfile.TemporaryDirectory() as folder:
        kept = os.path.join(folder, "kept")
        os.environ |= {"RUSHLIGHT_CACHE_DIR": kept, "RUSHLIGHT_COMPILE_WORKERS": "0", "RUSHLIGHT_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--keep", name]
        expected = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(2)]
        assert expected[0] == expected[1], "a second process computes something else"
        from rushlight._native.cache import CACHE_DIR

        CACHE_DIR.set(kept)
        told: Counter[str] = Counter()
        for number in range(seed * 100_000, seed * 100_000 + count):
            place = kept
            if number % 4 == 0:
                place = os.path.join(folder, "damaged")
                shutil.rmtree(place, ignore_errors=True)
                shutil.copytree(kept, place)
            CACHE_DIR.set(place)
            became = tried(name, place, number, expected[0])
            if became.startswith(("signal", "wrong", "raised")):
                print(f"  {name} {number}: {became}", flush=True)
            told[became.split(":")[0]] += 1
    print(f"{name}: {dict(told)}", flush=True)
    return sum(n for what, n in told.items() if what.startswith(("signal", "wrong")))


if __name__ == "__main__":
    sys.exit(main())

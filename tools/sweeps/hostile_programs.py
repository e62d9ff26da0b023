"""Mutates exported programs (`tests/export/archives/*.pt2`, written by PyTorch) and loads and runs what comes out: a refusal or an error of the program is
right; a signal, a hang or an error of another kind while it is read is printed.

    python tools/sweeps/hostile_programs.py --count 20000

Every batch runs in a process of its own, so that a signal is seen.
"""

import argparse
import copy
import io
import json
import random
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

ARCHIVES = Path(__file__).parents[2] / "tests" / "export" / "archives"
VALUES: list[Any] = [
    None,
    -1,
    0,
    1 << 70,
    "x",
    [],
    {},
    True,
    0.5,
    {"as_int": 3},
    {"as_none": True},
    "s77",
    "torch.ops.aten.add.Tensor",
    "../x",
]


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Bytes that differ: a third anywhere, the rest in one record, by bytes or by values of its table."""
    if draw.random() < 0.3:
        return _scattered(data, draw)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        records = [(i.filename, archive.read(i)) for i in archive.infolist()]
    chosen = draw.randrange(len(records))
    name, held = records[chosen]
    records[chosen] = (name, _edited(held, draw) if name.endswith(".json") else _scattered(held, draw))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, held in records:
            archive.writestr(name, held)
    return out.getvalue()


def _scattered(data: bytes, draw: random.Random) -> bytes:
    raw = bytearray(data)
    for _ in range(draw.choice((1, 2, 8, 30)) if raw else 0):
        at = draw.randrange(len(raw))
        raw[at : at + draw.choice((1, 1, 1, 4))] = bytes(
            draw.randrange(256) for _ in range(draw.choice((1, 1, 1, 0, 9)))
        )
        raw = raw or bytearray(b"\0")
    return bytes(raw)


def _edited(data: bytes, draw: random.Random) -> bytes:
    table = json.loads(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        held, key = table, None
        while isinstance(held, (dict, list)) and held:
            outer, key = held, draw.choice(list(held) if isinstance(held, dict) else range(len(held)))
            held = outer[key]
            if draw.random() < 0.15:
                break
        if key is not None:
            outer[key] = copy.deepcopy(draw.choice(VALUES))
    return json.dumps(table).encode()


def batch(seed: int, count: int) -> int:
    """Load and run mutated programs; how many were wrong."""
    import rushlight as torch

    warnings.simplefilter("ignore")
    files = [p.read_bytes() for p in sorted(ARCHIVES.glob("*.pt2"))]
    draw = random.Random(seed)
    wrong = 0
    for at in range(count):
        data = mutated(draw.choice(files), draw)
        try:
            program = torch.export.load(io.BytesIO(data))
        except RuntimeError as error:  # SchemaError is one
            wrong += isinstance(error, RecursionError)
            continue
        except Exception as error:
            wrong += 1
            print(f"seed {seed}, file {at}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        args, kwargs = program.example_inputs or ((), {})
        try:
            program.module()(*args, **kwargs)
        except Exception:  # a graph that was changed may compute nothing
            continue
    return wrong


def main() -> None:
    """Run batches, each in a process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int)
    options = parser.parse_args()
    if options.batch is not None:
        sys.exit(min(batch(options.seed, options.batch), 100))
    size, wrong = 250, 0
    for at in range(0, options.count, size):
        command = [
            sys.executable,
            __file__,
            "--seed",
            str(options.seed + at),
            "--batch",
            str(min(size, options.count - at)),
        ]
        try:
            code = subprocess.run(command, timeout=900).returncode
        except subprocess.TimeoutExpired:
            code = "hang"
        if code:
            wrong += 1
            print(f"batch of seed {options.seed + at}: {code}", flush=True)
    print(f"{options.count} files, {wrong} batches with something wrong")


if __name__ == "__main__":
    main()

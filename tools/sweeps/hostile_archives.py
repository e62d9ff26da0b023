"""Mutates the TorchScript archives of `tests/jit/archives` and loads and runs what comes out: an error of a known type is
right, a signal or any other error is printed.

    python tools/sweeps/hostile_archives.py --count 20000

Every batch runs in a process of its own, so that a signal is seen.
"""

import argparse
import io
import random
import subprocess
import sys
import warnings
import zipfile
import zlib
from pathlib import Path

ARCHIVES = Path(__file__).parents[2] / "tests" / "jit" / "archives"
WORDS = [b"torch", b"self", b"Tensor", b"int", b"(", b")", b"[", b"]", b":", b"=", b"None", b"-", b"if", b"for", b"return", b"def", b"class", b"0", b"9" * 30,
         b"\n", b"    ", b"getattr", b"__torch__", b".", b",", b"annotate", b"unchecked_cast", b"CONSTANTS.c0", b"ops.prim.RaiseException", b"lambda", b"\"x\""]  # fmt: skip


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Bytes that differ in a few places; half of the time inside of a record, so that checksums hold."""
    if draw.random() < 0.4:
        return _scattered(data, draw)
    records = []
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            records.append((info.filename, archive.read(info)))
    wanted = (".py", "data.pkl", "constants.pkl", "version")
    chosen = draw.choice([i for i, (n, _) in enumerate(records) if n.endswith(wanted)])
    name, held = records[chosen]
    records[chosen] = (name, _worded(held, draw) if name.endswith(".py") else _scattered(held, draw))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, held in records:
            archive.writestr(name, held)
    return out.getvalue()


def _scattered(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 2, 5, 30))):
        if not changed:
            break
        at = draw.randrange(len(changed))
        kind = draw.random()
        if kind < 0.6:
            changed[at] = draw.randrange(256)
        elif kind < 0.8:
            del changed[at : at + draw.choice((1, 4, 100))]
        else:
            changed[at:at] = bytes(draw.randrange(256) for _ in range(draw.choice((1, 4, 40))))
    return bytes(changed)


def _worded(data: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.choice((1, 1, 2, 4))):
        at, end = sorted((draw.randrange(len(data) + 1), draw.randrange(len(data) + 1)))
        end = min(end, at + draw.choice((0, 1, 8)))
        data = data[:at] + draw.choice(WORDS) * draw.choice((1, 1, 1, 3, 300)) + data[end:]
    return data


def batch(seed: int, count: int) -> int:
    """Load and run mutated archives; how many were wrong."""
    import rushlight as torch

    warnings.simplefilter("ignore")
    files = [p.read_bytes() for p in sorted(ARCHIVES.glob("*.pt"))]
    draw = random.Random(seed)
    wrong = 0
    for at in range(count):
        data = mutated(draw.choice(files), draw)
        try:
            module = torch.jit.load(io.BytesIO(data))
            for name in list(module._method_names())[:3]:
                module._method(name)
            module(torch.ones(2, 4))
        except (RuntimeError, NotImplementedError, ValueError, zlib.error) as error:
            if isinstance(error, RecursionError):
                raise
        except Exception as error:
            if type(error).__name__ not in ("UnpicklingError", "Error"):
                wrong += 1
                print(f"seed {seed}, file {at}: {type(error).__name__}: {str(error)[:200]}", flush=True)
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
    bad = 0
    for seed in range(options.seed, options.seed + -(-options.count // 500)):
        done = subprocess.run([sys.executable, __file__, "--batch", "500", "--seed", str(seed)], check=False)
        if done.returncode:
            bad += 1
            print(f"seed {seed}: exit {done.returncode}{' (a signal)' if done.returncode < 0 else ''}", flush=True)
    print(f"{options.count} files, {bad} batches with something wrong")


if __name__ == "__main__":
    main()

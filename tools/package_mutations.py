"""Changes packages and looks at what becomes of them: each must be refused by an error of ours, or be as it was.

    python tools/package_mutations.py --count 20000 --seed 0

Every file is loaded by this process, which tries whatever the loader lets through.  Bytes change in the header, the index and the library; in
some files the digests are made right again after the index was changed, as somebody who means harm would do.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import struct
import sys
import tempfile
import time
from hashlib import blake2b

import numpy as np

import rushlight as torch
from rushlight._base.errors import PackageError
from rushlight._packages.building import build
from rushlight_loader import load

HEAD = struct.Struct("<8sII32s")


def repaired(data: bytes, rng: random.Random) -> bytes:
    """The package with something of its index changed, and a right digest."""
    magic, version, length, _ = HEAD.unpack_from(data)
    table = json.loads(data[HEAD.size : HEAD.size + length])
    for _ in range(rng.randint(1, 3)):
        change(table, rng)
    text = json.dumps(table).encode()
    if HEAD.size + len(text) > 4096:
        return data
    head = HEAD.pack(magic, version, len(text), blake2b(text, digest_size=32).digest())
    return head + text + bytes(4096 - HEAD.size - len(text)) + data[4096:]


def change(x: object, rng: random.Random) -> None:
    """Change something in a nested list or dict."""
    while True:
        keys = list(x) if isinstance(x, dict) else list(range(len(x)))  # type: ignore[arg-type, call-overload]
        if not keys:
            return
        key = rng.choice(keys)
        inner = x[key]  # type: ignore[index]
        if isinstance(inner, (dict, list)) and rng.random() < 0.8:
            x = inner
            continue
        kind = rng.randrange(5)
        if kind == 0:
            del x[key]  # type: ignore[attr-defined]
        elif kind == 1 and isinstance(x, list):
            x.insert(key, inner)  # type: ignore[arg-type]
        elif isinstance(inner, int) and kind < 4:
            x[key] = rng.choice([inner + 1, inner - 1, -inner, inner * 4096, 1 << 62, 0])  # type: ignore[index]
        else:
            x[key] = rng.choice([None, "", "x", -1, 3.5, [], {}, [[]], "float32", "\0", 1 << 80, True])  # type: ignore[index]
        return


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The package with a few bytes changed, cut off, or with something moved."""
    if rng.random() < 0.4:
        return repaired(data, rng)
    changed = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(1200) if rng.random() < 0.6 else rng.randrange(len(data))
        changed[at] = rng.randrange(256)
    if rng.random() < 0.15:
        del changed[rng.randrange(len(changed)) :]
    return bytes(changed)


def main() -> int:
    """Run so many mutations; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 3)).eval()
    ids = torch.arange(6).reshape(2, 3)
    counts = {"refused": 0, "loaded": 0}
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.rlp")
        build(model, (ids,), name="model", levels=["x86-64-v3"]).write(path)
        with open(path, "rb") as file:
            data = file.read()
        for _ in range(options.count):
            with open(path, "wb") as file:
                file.write(mutated(data, rng))
            try:
                package = load(path)
                package.arguments((ids.numpy(),), {})
                package(np.zeros((2, 3), np.int64))
                counts["loaded"] += 1
            except (PackageError, TypeError, ValueError):
                counts["refused"] += 1
    print(
        f"{options.count} files in {time.time() - began:.0f} s: {counts['refused']} refused, {counts['loaded']} loaded and ran"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

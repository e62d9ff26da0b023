"""Writes the file of a package (`.rlp`), which `rushlight_loader.index` describes and reads."""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from typing import Any

from rushlight_loader.index import DTYPES, FORMAT, HEAD, MAGIC, PAGE, Index, check_weights, read_index

__all__ = ["DTYPES", "FORMAT", "Index", "check_weights", "read_index", "write_package"]


def write_package(path: str, table: dict[str, Any], library: bytes, weights: bytes) -> None:
    """Write a package: to another name first, which takes the place of `path` once it is whole."""
    parts = {"library": library, "weights": weights}
    digests = {name: blake2b(part, digest_size=32).hexdigest() for name, part in parts.items()}
    room = len(json.dumps({**table, **{n: [1 << 50, 1 << 50, d] for n, d in digests.items()}})) + HEAD.size
    rows: dict[str, list[Any]] = {}
    place = -(-room // PAGE) * PAGE
    for name, part in parts.items():
        rows[name] = [place, len(part), digests[name]]
        place += -(-len(part) // PAGE) * PAGE
    text = json.dumps({**table, **rows}).encode()
    temporary = f"{path}.{os.getpid()}.part"
    try:
        with open(temporary, "wb") as file:
            file.write(HEAD.pack(MAGIC, FORMAT, len(text), blake2b(text, digest_size=32).digest()) + text)
            for name, part in parts.items():
                file.seek(rows[name][0])
                file.write(part)
            file.truncate(place)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)

"""Run the random cases with real PyTorch and store what it answers (`tests/random/expected.json`).

    python tools/tables/make_random_expected.py

Needs `torch==2.13.0` (the extra `oracle`).  Of each tensor: dtype, shape, the first bytes, and the SHA-256 of all of them.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import sys
from typing import Any

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "random"
FIRST = 16  # bytes shown of each tensor, so that a difference can be seen and not only noticed


def record(torch: Any, tensor: Any) -> list[Any]:
    """`[dtype, shape, first bytes in hex, digest]`."""
    tensor = tensor.contiguous()
    raw = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
    data = raw.numpy().tobytes()
    return [
        str(tensor.dtype).removeprefix("torch."),
        list(tensor.shape),
        data[:FIRST].hex(),
        hashlib.sha256(data).hexdigest()[:32],
    ]


def main() -> None:
    import torch

    sys.path.insert(0, str(TESTS))
    import cases

    assert torch.__version__.startswith("2.13"), f"PyTorch 2.13 is the reference, not {torch.__version__}"
    stored = {name: [record(torch, t) for t in cases.tensors(run(torch))] for name, run in cases.CASES.items()}
    lines = [f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in stored.items()]
    (TESTS / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(stored)} cases from PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()

"""The program of `docs/distributed/ddp.md` as processes of a job."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def program() -> str:
    """The page's code, printing all losses."""
    page = (ROOT / "docs" / "distributed" / "ddp.md").read_text()
    found = re.search(r"```python\n(.*?)```", page, re.S)
    assert found
    return found[1].replace('print(len(train()), "losses")', "print(train())")


def losses(size: int) -> list[str]:
    """What each process prints."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        **os.environ,
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "PYTHONPATH": str(ROOT / "src"),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program()], env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True
        )
        for rank in range(size)
    ]
    return [process.communicate(timeout=60)[0].strip() for process in processes]

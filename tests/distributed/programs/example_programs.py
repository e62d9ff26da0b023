"""Programs of the pages in `docs/distributed` as processes of a job."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


ALONE = '"gloo", store=dist.HashStore(), rank=0, world_size=1'


def program(page: str, number: int = 0) -> str:
    """The code of a page's first program (or a later one), printing all losses."""
    text = (ROOT / "docs" / "distributed" / page).read_text()
    found = re.findall(r"```python\n(.*?)```", text, re.S)[number]
    return re.sub(r"print\(len\((train\(\)|found\[0\])\), .*\)", r"print(\1)", found).replace(ALONE, "")


def losses(size: int, page: str = "ddp.md", number: int = 0) -> list[str]:
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
            [sys.executable, "-c", program(page, number)],
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    return [process.communicate(timeout=60)[0].strip() for process in processes]


def machines(count: int, workers: int) -> list[str]:
    """What the processes print that agents of pretended machines start."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        script = Path(folder, "train.py")
        script.write_text(program("ddp.md"))
        place = ["--master-addr", "127.0.0.1", "--master-port", str(port)]
        agents = [
            subprocess.Popen(
                [sys.executable, "-m", "rushlight.distributed.run", "--nnodes", str(count), "--node-rank", str(k),
                 "--nproc-per-node", str(workers), *place, str(script)],
                env={**os.environ, "RUSHLIGHT_NODE": f"machine {k}", "PYTHONPATH": str(ROOT / "src")}, stdout=subprocess.PIPE, text=True,
            )
            for k in range(count)
        ]  # fmt: skip
        said = "".join(agent.communicate(timeout=60)[0] for agent in agents)
        return re.findall(r"\[.*?\]", said)  # lines of several workers may run together

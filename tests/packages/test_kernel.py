"""Notebooks: the kernel that `python -m rushlight kernel install` makes known to Jupyter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.packages.environment import needs


@needs("ipykernel", "jupyter_client")
def test_a_notebook_finds_rushlight(tmp_path: Path, monkeypatch) -> None:
    argv = [sys.executable, "-m", "rushlight", "kernel", "install", "--prefix", str(tmp_path)]
    assert "installed" in subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="rushlight", startup_timeout=120)
    try:
        printed: list[str] = []
        code = "import torch, rushlight, importlib.metadata as m\nprint(torch is rushlight, m.version('torch'), torch.ones(2).sum().item())"
        answer = client.execute_interactive(
            code, timeout=120, output_hook=lambda message: printed.append(str(message["content"].get("text", "")))
        )
        assert answer["content"]["status"] == "ok" and "True 2.13.0+rushlight 2.0" in "".join(printed)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)

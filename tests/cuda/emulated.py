"""Programs on emulated GPUs, each for itself, in one process of their own: the driver is chosen once in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

__all__ = ["outcomes_of"]

_RUNNER = """
import json, sys, traceback
found = {}
for name, text in json.loads(sys.argv[1]).items():
    try:
        exec(text, dict(globals()))
        found[name] = ""
    except Exception:
        found[name] = traceback.format_exc()
print(json.dumps(found))
"""


def outcomes_of(prelude: str, cases: Mapping[str, str], **options: str) -> dict[str, str]:
    """For each program the error it ended with, or nothing; `prelude` runs before all."""
    command = [sys.executable, "-c", prelude + _RUNNER, json.dumps(dict(cases))]
    environment = {**os.environ, "RUSHLIGHT_CUDA": "emulated", **options}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found

"""Rows that are whole processes: importing, the first result, the first training step, a new kernel, installed sizes."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = {
    "startup/import": (10.0, "import {module}"),
    "startup/first_program": (3.0, "import {module} as torch\nx = torch.ones(3)\nprint(x + 1)"),
    "startup/first_training_step": (
        3.0,
        """
import {module} as torch
import {module}.nn as nn
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loss = nn.functional.cross_entropy(model(torch.randn(8, 20)), torch.zeros(8, dtype=torch.int64))
loss.backward()
optimizer.step()
print(loss.item())
""",
    ),
}

# Operators that this process has not used before, with an empty cache: the first call makes the kernel.
NEW_KERNELS = """
import json, time
import rushlight as torch
x = torch.rand(1000) + 0.5
times = []
for name in ("exp", "log", "sin", "cos", "tanh", "sqrt", "sigmoid", "erf", "log1p", "expm1", "rsqrt", "floor", "neg", "reciprocal"):
    f = getattr(torch, name)
    began = time.perf_counter()
    f(x)
    first = time.perf_counter() - began
    began = time.perf_counter()
    f(x)
    times.append(first - (time.perf_counter() - began))
print(json.dumps(times[1:]))
"""


def wall_time(module: str, name: str, rounds: int) -> float:
    """Seconds from starting Python to its end, the lowest of some rounds; kernels may come from the disk cache."""
    code = PROGRAMS[name][1].format(module=module)
    times = []
    for attempt in range(rounds + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        if attempt:  # the first one fills caches
            times.append(time.perf_counter() - began)
    return min(times)


def python_alone(rounds: int) -> float:
    """Seconds for starting and ending Python itself."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        times.append(time.perf_counter() - began)
    return min(times)


def new_kernel_median() -> float:
    """Median seconds from the call of an operator never used before to its result."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "RUSHLIGHT_CACHE_DIR": folder}
        done = subprocess.run([sys.executable, "-c", NEW_KERNELS], check=True, capture_output=True, text=True, env=env)
    return statistics.median(json.loads(done.stdout))


def installed_megabytes(*packages: str) -> float:
    """What packages take on the disk, with the libraries that wheels put beside them."""
    total = 0
    for package in packages:
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            continue
        home = Path(spec.submodule_search_locations[0])
        for folder in (home, home.parent / f"{package}.libs"):
            total += sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc")
    return total / 1e6

"""`torch.cuda` and what stands on it, on emulated GPUs: programs in processes of their own, with two devices.

Each function `page_...` of `programs/*.py` is a test; `programs/run.py` runs those of a file together.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
FILES = sorted(p for p in PROGRAMS.glob("*.py") if p.name != "run.py")
SLOW = ("processes.py",)  # start further processes
PAGES = [
    pytest.param(path.name, node.name, marks=[pytest.mark.slow] if path.name in SLOW else [])
    for path in FILES
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.FunctionDef) and node.name.startswith("page_")
]


def emulated(*args: str, **options: str) -> subprocess.CompletedProcess[str]:
    """Python with two emulated GPUs of 256 MB."""
    environment = {
        **os.environ, "RUSHLIGHT_CUDA": "emulated", "RUSHLIGHT_EMULATED_CUDA_DEVICES": "2", "RUSHLIGHT_EMULATED_CUDA_MEMORY_MB": "256", **options,
    }  # fmt: skip
    return subprocess.run([sys.executable, *args], env=environment, capture_output=True, text=True, timeout=300)


@cache
def outcomes(file: str) -> dict[str, str]:
    done = emulated(str(PROGRAMS / "run.py"), str(PROGRAMS / file))
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize(("file", "name"), PAGES)
def test_page(file: str, name: str) -> None:
    assert not outcomes(file)[name], outcomes(file)[name]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' hides all emulated devices"),
        ({"RUSHLIGHT_CUDA": "none"}, "RUSHLIGHT_CUDA=none"),
    ],
)
def test_why_there_is_no_gpu(options: dict[str, str], reason: str) -> None:
    program = (
        "import rushlight as torch\n"
        "assert not torch.cuda.is_available() and torch.cuda.device_count() == 0 and not torch.accelerator.is_available()\n"
        "print(torch.cuda.unavailable_reason())\n"
        "try: torch.ones(2, device='cuda')\n"
        "except RuntimeError as error: print(error)\n"
    )
    done = emulated("-c", program, **options)
    first, second = done.stdout.splitlines()
    assert first == reason and second.endswith(f"but there is no CUDA GPU to use: {reason}"), done.stderr


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1", [1]), ("1,0", [1, 0]), ("GPU-00017275", [1]), ("GPU-000", []), ("GPU-00017275,GPU-0000", [1, 0]), ("0,0", []), ("1gpu2,0", [1, 0]), ("-1", []), ("MIG-0", [])],
)  # fmt: skip
def test_forms_of_visible_devices(text: str, numbers: list[int]) -> None:
    from uuid import UUID

    from rushlight._backends.cuda.driver.choice import visible_devices
    from rushlight._backends.cuda.driver.emulated.machine import identity

    assert visible_devices(text, [f"GPU-{UUID(bytes=identity(i))}" for i in range(2)]) == numbers


def test_a_visible_device_keeps_its_identity() -> None:
    program = "import rushlight as torch\nfor i in range(torch.cuda.device_count()): print(torch.cuda.get_device_properties(i).uuid)"
    both = emulated("-c", program).stdout.split()
    assert len(set(both)) == 2
    assert emulated("-c", program, CUDA_VISIBLE_DEVICES=f"GPU-{both[1]},GPU-{both[0][:8]}").stdout.split() == both[::-1]


def test_importing_and_computing_on_the_cpu_loads_nothing_of_cuda() -> None:
    program = (
        "import sys, rushlight as torch\n"
        "torch.ones(3).sum().item()\n"
        "print([m for m in sys.modules if '_backends.cuda' in m or m == 'rushlight.cuda'])\n"
    )
    assert emulated("-c", program).stdout == "[]\n"


def test_a_launch_that_waits_fails_in_its_own_line() -> None:
    program = (
        "import rushlight as torch\n"
        "from rushlight.cuda.access import gpus\n"
        "backend = gpus()\n"
        "from tests.cuda.driver.machines import FAILING, kernel_object\n"
        "from rushlight._backends.cuda.driver.api import slots\n"
        "torch.cuda.init()\n"
        "f = backend.driver.cuModuleGetFunction(backend.driver.cuModuleLoadData(kernel_object(FAILING)), 'failing')\n"
        "def here():\n"
        "    backend.launch(f, (1, 1, 1), (32, 1, 1), 0, 0, slots(700), 'failing')\n"
        "try:\n"
        "    here(); print('late')\n"
        "    torch.cuda.synchronize()\n"
        "except torch.AcceleratorError as error:\n"
        "    print(type(error).__mro__[1].__name__, error.error_code); print(error)\n"
    )
    root = str(Path(__file__).parents[3])
    for blocking in ("0", "1"):
        done = emulated("-c", f"import sys; sys.path.insert(0, {root!r})\n{program}", CUDA_LAUNCH_BLOCKING=blocking)
        lines = done.stdout.splitlines()
        assert (lines[0] == "late") == (blocking == "0"), done.stderr
        assert "AcceleratorError 700" in lines and "an illegal memory access was encountered" in done.stdout
        assert "The kernel 'failing' was started at <string>:" in lines[-1] and "in here" in lines[-1]

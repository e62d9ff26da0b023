"""The driver that an installed Triton gets: what its kernels are passed, and what is refused without a card."""

import importlib.util
import os
import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest

import rushlight as torch
from rushlight._backends.cuda.foreign import word
from rushlight.triton._launch.installed import InstalledDriver, Launcher

# What stands for the package where it is not installed: the two names that a driver is given by.
PACKAGE = {
    "__init__.py": "from . import backends, runtime\n",
    "runtime.py": "class _Config:\n    def set_active(self, made):\n        self.active = made\ndriver = _Config()\n",
    "backends/__init__.py": "from . import compiler\n",
    "backends/compiler.py": "from collections import namedtuple\nGPUTarget = namedtuple('GPUTarget', 'backend arch warp_size')\n",
}
PROGRAM = """
import torch, triton
active = triton.runtime.driver.active
print(type(active).__name__, active.is_active())
for ask in (active.get_current_target, lambda: active.utils.load_binary("k", b"", 0, 0)):
    try:
        print(*ask())
    except Exception as error:
        print(type(error).__name__, error)
"""


def made_for(**signature: object) -> Launcher:
    return Launcher(SimpleNamespace(signature=signature), SimpleNamespace(num_ctas=1))


def test_words_of_arguments() -> None:
    assert word("*fp32", 4096) == 4096 and word("i32", -3) == -3 and word("i1", True) == 1
    assert word("fp32", 1.5) & 0xFFFFFFFF == struct.unpack("<I", struct.pack("<f", 1.5))[0]
    assert word("fp64", -2.25) % 2**64 == struct.unpack("<Q", struct.pack("<d", -2.25))[0]
    assert word("fp16", 1.5) == 0x3E00 and word("bf16", -1.5) == 0xBFC0


def test_arguments_of_a_kernel() -> None:
    launcher = made_for(x="*fp32", pair=("i32", "constexpr"), scale="fp32", none="*fp32", BLOCK="constexpr")
    assert list(launcher.arguments([64, (3, 5), 0.5, None, 128])) == [
        ("*fp32", 64), ("i32", 3), ("fp32", 0.5), ("*fp32", 0),
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"Pointer argument \(at 0\) cannot be accessed from Triton .*cpu"):
        list(launcher.arguments([torch.ones(2), (3, 5), 0.5, None, 128]))


def test_kernels_that_ask_for_more() -> None:
    with pytest.raises(NotImplementedError, match="with num_ctas=2"):
        Launcher(SimpleNamespace(signature={}), SimpleNamespace(num_ctas=2))
    with pytest.raises(NotImplementedError, match="with global_scratch_size=64"):
        Launcher(SimpleNamespace(signature={}), SimpleNamespace(num_ctas=1, global_scratch_size=64))
    with pytest.raises(NotImplementedError, match="arguments of type tensordesc<fp16"):
        made_for(a="tensordesc<fp16[64, 64]>")
    assert InstalledDriver.map_python_to_cpp_type("*fp16") == "*fp16"


@pytest.mark.parametrize("device", ["none", "emulated"])
def test_an_installed_package_gets_the_driver(tmp_path, device: str) -> None:
    folder = tmp_path / "site"
    if importlib.util.find_spec("triton") is None:
        for name, text in PACKAGE.items():
            path = folder / "triton" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (tmp_path / "program.py").write_text(PROGRAM)
    paths = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "RUSHLIGHT_CUDA": device, "RUSHLIGHT_TRITON": "real", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-m", "rushlight", str(tmp_path / "program.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    first, target, loaded = done.stdout.splitlines()
    if device == "none":
        assert first == "InstalledDriver False"
        assert target.startswith("RuntimeError the installed Triton compiles for GPUs, and there is none to use")
        assert "RUSHLIGHT_TRITON=own" in target and loaded.startswith("RuntimeError")
    else:
        assert first == "InstalledDriver True" and target == "cuda 90 32"
        assert loaded.startswith("NotImplementedError emulated GPUs run no machine code of real ones")

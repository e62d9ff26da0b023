"""The wheel: small, complete, and its demo finds the examples without the checkout."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
if importlib.util.find_spec("hatchling") is None:
    pytest.skip("hatchling is not installed: pip install -e '.[dev]'", allow_module_level=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return next(folder.glob("*.whl"))


def test_small(wheel: Path) -> None:
    packs = [i.compress_size for i in zipfile.ZipFile(wheel).infolist() if i.filename.endswith(".pack")]
    assert wheel.stat().st_size - sum(packs) < 5_800_000
    assert all(size < 1_000_000 for size in packs)
    assert wheel.name.endswith("-py3-none-any.whl"), "what is compiled in it is for several machines, and not needed"


def test_complete(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src" / "rushlight").rglob("*.py")}
    sources |= {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src" / "rushlight_loader").glob("*.py")}
    assert sources <= names
    stubs = {str(p.relative_to(ROOT / "src")) for p in (ROOT / "src" / "rushlight-stubs").rglob("*") if p.is_file()}
    assert "rushlight-stubs/__init__.pyi" in stubs and stubs <= names
    assert {"rushlight/LAYERS", "rushlight/py.typed", "rushlight/_cli/examples/gpt_chars.py"} <= names
    strangers = [n for n in names if not n.startswith("rushlight") or n.endswith((".pyc", ".so", ".pt"))]
    assert not strangers


@pytest.mark.slow
def test_demo_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    code = "import rushlight; from rushlight._cli.demo import examples_folder; print(rushlight.__file__, examples_folder())"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.count(str(tmp_path / "site")) == 2
    argv = [sys.executable, "-m", "rushlight", "demo", "--steps", "2", "--out", "out"]
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]

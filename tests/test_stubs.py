"""Type stubs: up to date, complete, and right in the eyes of mypy and pyright, which check the programs in `tests/typing`.

A line of those programs that ends with `# E` must be refused by both checkers, and no other line may be.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

from rushlight import Tensor
from rushlight._cli.stubs import COMMAND
from rushlight._surface.reference import stubs
from rushlight._surface.reference.annotations import imports_of

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = sorted((ROOT / "tests" / "typing").glob("*.py"))
RUNNING = [p for p in PROGRAMS if p.stem != "wrong"]


def defined(tree: ast.Module | ast.ClassDef) -> set[str]:
    """Names that a stub, or a class in it, shows to others."""
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Assign):
            found.update(t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            found.update(a.asname for a in node.names if a.asname == a.name)
    return {name for name in found if not name.startswith("_") or name.endswith("__")}


@cache
def stub_of(module: str) -> ast.Module | None:
    path = stubs.FOLDER.joinpath(*module.split(".")[1:])
    for file in (path / "__init__.pyi", path.with_suffix(".pyi")):
        if file.is_file():
            return ast.parse(file.read_text(encoding="utf-8"))
    return None


# ***** what they say *****


def test_up_to_date() -> None:
    """In a process of its own: what tests before this one add to the package (operators, devices) has no stub."""
    done = subprocess.run([sys.executable, *COMMAND.split()[1:], "--check"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", stubs.public_modules())
def test_every_public_name_can_be_seen(name: str) -> None:
    """In the stub where there is one, in the source elsewhere; and a stub promises nothing that is not there."""
    if name.startswith("rushlight.utils.tensorboard"):
        pytest.importorskip("tensorboard")
    module = importlib.import_module(name)
    tree = stub_of(name)
    wanted = {n for n, value in stubs.public_names(module).items() if not isinstance(value, ModuleType)}
    if tree is None:
        assert wanted <= set(imports_of(name)), (
            f"no stub for {name}, and its source does not show {sorted(wanted - set(imports_of(name)))}"
        )
        return
    shown = defined(tree) - {"__getattr__"}
    assert not wanted - shown, f"the stub of {name} misses {sorted(wanted - shown)}"
    absent = {n for n in shown if not hasattr(module, n)}
    assert not absent, f"the stub of {name} has names that {name} has not: {sorted(absent)}"


def test_every_member_of_tensor_has_a_stub() -> None:
    tree = stub_of("rushlight._engine.core.tensor")
    assert tree is not None
    shown = defined(next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor"))
    public = {n for n in dir(Tensor) if not n.startswith("_") and hasattr(Tensor, n)}
    assert not public - shown, sorted(public - shown)
    assert not {n for n in shown if not hasattr(Tensor, n)}


def test_forms_follow_the_table() -> None:
    text = (stubs.FOLDER / "__init__.pyi").read_text(encoding="utf-8")
    assert (
        "def add(input: _Tensor | _Scalar, other: _Tensor | _Scalar, *, alpha: _Scalar = 1, out: _Tensor | None = None) -> _Tensor"
        in text
    )
    assert re.search(r"@_overload\ndef max\(input: _Tensor, dim: _int, .*-> _rushlight_return_types.max", text)
    tensor = (stubs.FOLDER / "_engine" / "core" / "tensor.pyi").read_text(encoding="utf-8")
    assert "def add_(self, other: Tensor | _Scalar, *, alpha: _Scalar = 1) -> _Self: ..." in tensor
    assert "    def view(self, *size: _int) -> Tensor: ..." in tensor


def test_the_command_writes_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rushlight.__main__ import main

    folder = tmp_path / "rushlight-stubs"
    assert main(["stubs", "--check", "--out", str(folder)]) == 1
    assert COMMAND in capsys.readouterr().out
    assert main(["stubs", "--out", str(folder)]) == 0
    (folder / "left_over.pyi").write_text("")
    assert main(["stubs", "--check", "--out", str(folder)]) == 1
    assert main(["stubs", "--out", str(folder)]) == 0 and not (folder / "left_over.pyi").exists()
    assert main(["stubs", "--check", "--out", str(folder)]) == 0
    assert (folder / "py.typed").read_text() == "partial\n"


# ***** what the checkers say *****


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the package and its stubs in its path, as after `pip install`, and nothing else."""
    folder = tmp_path_factory.mktemp("installation")
    venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "rushlight.pth").write_text(f"{ROOT / 'src'}\n")
    return folder / "bin" / "python"


def expected() -> set[tuple[str, int]]:
    """(file, line) of every line that is marked as wrong."""
    lines = [
        (p.name, i, line) for p in PROGRAMS for i, line in enumerate(p.read_text(encoding="utf-8").splitlines(), 1)
    ]
    return {(name, i) for name, i, line in lines if line.endswith("# E")}


def compare(found: dict[tuple[str, int], str]) -> None:
    wanted = expected()
    surprising = [f"{name}:{line}: {found[name, line]}" for name, line in sorted(found.keys() - wanted)]
    assert not surprising, "refused, and should be accepted:\n" + "\n".join(surprising)
    missed = sorted(wanted - found.keys())
    assert not missed, f"accepted, and should be refused: {missed}"
    assert len(wanted) > 30


def test_mypy(installation: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--python-executable",
        str(installation),
        "--cache-dir",
        str(tmp_path),
        "--warn-unused-ignores",
    ]
    done = subprocess.run([*command, *map(str, PROGRAMS)], capture_output=True, text=True, cwd=ROOT)
    found = re.findall(r"^(?:.*/)?(\w+\.py):(\d+): error: (.*)$", done.stdout, re.MULTILINE)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    compare({(name, int(line)): text for name, line, text in found})


@pytest.mark.slow
def test_mypy_accepts_the_stubs_themselves(installation: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file=",
        "--python-executable",
        str(installation),
        "--cache-dir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, "--ignore-missing-imports", str(stubs.FOLDER)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


def pyright_command() -> list[str]:
    """basedpyright, whose wheel brings its own JavaScript; or pyright, which fetches its parts when it first runs."""
    if importlib.util.find_spec("basedpyright") is not None:
        return [sys.executable, "-m", "basedpyright"]
    beside = Path(sys.executable).with_name("pyright")
    found = str(beside) if beside.exists() else shutil.which("pyright")
    if found is None:
        pytest.skip("neither basedpyright nor pyright is installed: pip install -e '.[dev]'")
    return [found]


def test_pyright(installation: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    shutil.copytree(ROOT / "tests" / "typing", programs)
    (programs / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "standard", "include": ["."]}))
    command = [*pyright_command(), "--outputjson", "--pythonpath", str(installation), "-p", str(programs)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=programs)
    if not done.stdout.lstrip().startswith("{"):
        pytest.skip(
            f"pyright does not start here (the wrapper on PyPI fetches its parts): {(done.stdout + done.stderr)[-300:]}"
        )
    found = {}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            found[Path(each["file"]).name, each["range"]["start"]["line"] + 1] = each["message"]
    compare(found)


@pytest.mark.slow
@pytest.mark.parametrize("path", RUNNING, ids=lambda p: p.stem)
def test_the_accepted_programs_run(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr[-2000:]

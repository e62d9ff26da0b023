"""The loader by itself: what it imports, and calls with memory that is not NumPy's."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from array import array
from pathlib import Path

import numpy as np
import pytest

import rushlight as torch
import rushlight_loader
from rushlight._base.errors import PackageError
from rushlight._packages.building import build
from rushlight_loader import load
from rushlight_loader.index import _parsed

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="packages are for Linux on x86-64"
)
FOLDER = Path(rushlight_loader.__file__).parent


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    def function(x, k, flags, z):
        return {"sum": (x + k[:, None]).sum(), "rows": x * 2, "any": flags.logical_not(), "z": z * 2, "none": x[:0]}

    arguments = torch.ones(2, 3), torch.zeros(2, dtype=torch.int64), torch.zeros(3, dtype=torch.bool)
    made = build(function, (*arguments, torch.zeros(2, dtype=torch.complex64)), name="mixed", levels=["x86-64-v3"])
    return made.write(tmp_path_factory.mktemp("loader") / "mixed.rlp")


def test_it_imports_the_standard_library_and_numpy_alone():
    found = set()
    for file in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").split(".")[0])
    assert found - sys.stdlib_module_names <= {"rushlight_loader", "numpy", "ml_dtypes"}


def test_a_call_without_numpy_loads_few_modules(path):
    """Not even `json`, `re` and `typing`, each of which takes longer than loading the program."""
    program = f"""
import sys
before = set(sys.modules)
from rushlight_loader import load
found = load({path!r}).buffers(bytes(24), bytes(16), bytes(3), bytes(16))
print(found["rows"].shape, *sorted(name.split(".")[0] for name in set(sys.modules) - before))
"""
    env = {**os.environ, "PYTHONPATH": str(FOLDER.parent)}
    out = subprocess.run(
        [sys.executable, "-S", "-c", program], check=True, capture_output=True, text=True, env=env, timeout=60
    ).stdout
    assert out.startswith("(2, 3)")
    names = set(out.split(")")[1].split())
    assert not names & {"rushlight", "numpy", "llvmlite", "json", "re", "typing", "hashlib", "threading", "tempfile"}
    assert len(names) < 24


def test_the_folder_and_a_package_are_enough(path, tmp_path):
    (tmp_path / "rushlight_loader").mkdir()
    for file in FOLDER.glob("*.py"):
        (tmp_path / "rushlight_loader" / file.name).write_bytes(file.read_bytes())
    program = f"""
import numpy as np
from rushlight_loader import load
x = np.arange(6, dtype=np.float32).reshape(2, 3)
out = load({path!r})(x, np.array([1, 2]), np.zeros(3, bool), np.zeros(2, np.complex64))
print(float(out["sum"]), out["any"].tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, timeout=60
    )  # fmt: skip
    assert done.stdout.strip() == "24.0 [True, True, True]", done.stderr


def test_memory_of_several_kinds(path):
    program = load(path)
    x, z = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1 + 2j, 3], np.complex64)
    want = program(x, np.array([1, 2]), np.array([True, False, True]), z)
    for given in (
        (x, np.array([1, 2]), np.array([True, False, True]), z),
        (array("f", range(6)), array("q", [1, 2]), b"\1\0\1", z.tobytes()),
        (bytearray(x.tobytes()), memoryview(array("l", [1, 2])), bytearray(b"\1\0\1"), memoryview(z.tobytes())),
    ):
        got = program.buffers(*given)
        assert got["sum"].shape == () and got["sum"].format == "f" and got["sum"].tolist() == float(want["sum"]) == 24.0
        assert got["rows"].tolist() == (2 * x).tolist() and got["any"].tolist() == [False, True, False]
        assert np.frombuffer(got["z"], np.complex64).tolist() == [2 + 4j, 6]  # Python has no format of these
        assert got["none"].nbytes == 0
    with pytest.raises(TypeError, match="'x' must be memory of float32 or of bytes, not of the format 'd'"):
        program.buffers(array("d", range(6)), bytes(16), bytes(3), bytes(16))
    with pytest.raises(ValueError, match="'x' must have 24 bytes, not 20"):
        program.buffers(bytes(20), bytes(16), bytes(3), bytes(16))
    with pytest.raises(ValueError, match="'x' must be row-major memory"):
        program.buffers(np.ones((3, 2), np.float32).T, bytes(16), bytes(3), bytes(16))
    with pytest.raises(ValueError, match=r"'x' must have the shape \[2, 3\], not \[3, 2\]"):
        program.buffers(np.ones((3, 2), np.float32), bytes(16), bytes(3), bytes(16))
    with pytest.raises(ValueError, match="'x' must begin at a multiple of its items' 4 bytes"):
        program.buffers(memoryview(bytes(25))[1:], bytes(16), bytes(3), bytes(16))
    with pytest.raises(TypeError, match="bytes-like"):
        program.buffers(1.0, bytes(16), bytes(3), bytes(16))


def test_the_index_is_read_as_json_reads_it():
    assert _parsed('{"a": [1, -2.5, true, null, "\\u00e9"], "b": {}}') == {"a": [1, -2.5, True, None, "é"], "b": {}}
    for text in ("", "{", '{"a": 1} x', "[1,]", "nul"):
        with pytest.raises((ValueError, StopIteration)):
            _parsed(text)


def test_names_of_the_package():
    assert rushlight_loader.PackageError is PackageError and issubclass(PackageError, RuntimeError)
    with pytest.raises(AttributeError, match="no attribute 'store'"):
        rushlight_loader.store

"""What a start costs: which modules an import loads, and that kernels found on disk need neither NumPy nor LLVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight._base import interpreter
from rushlight._native import cache, sources
from rushlight._ops.table import OPERATORS, operator
from rushlight._surface.registry import SPACES, LazyMethod, Space

SINCE_314 = {"annotationlib", "ast"}  # `typing.NamedTuple` needs them from Python 3.14 on

# Each of these costs an import something; what is not here must earn its place, or be loaded when it is used.
ALLOWED = {
    "array", "collections", "contextlib", "contextvars", "copyreg", "enum", "functools", "genericpath", "heapq", "importlib", "itertools",
    "keyword", "math", "ntpath", "operator", "os", "posixpath", "re", "reprlib", "stat", "struct", "threading", "types", "typing", "warnings",
    "weakref",
}  # fmt: skip
MODULES_OF_OURS = 226
NOT_ON_IMPORT = (
    "_schedule",
    "_codegen",
    "_host.runtime",
    "_native.compiler",
    "nn",
    "optim",
    "utils",
    "serialization",
    "testing",
)
PROGRAM = """
import sys
import rushlight as torch
nn = torch.nn
x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
text = str(torch.ones(2) + x) + str(x.sum().item()) + str(x.tolist())
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.AdamW(model.parameters())
loss = nn.functional.cross_entropy(model(torch.randn(5, 4)), torch.zeros(5, dtype=torch.int64))
loss.backward()
optimizer.step()
print(float(loss) > 0, *[m for m in ("numpy", "llvmlite", "rushlight._codegen.llvm_function") if m in sys.modules])
"""


def loaded_by(code: str) -> set[str]:
    whole = f"import sys; before = set(sys.modules); {code}; print(*set(sys.modules) - before)"
    return set(subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, check=True).stdout.split())


def test_modules_of_an_import() -> None:
    loaded = loaded_by("import rushlight")
    tops = {name.split(".")[0] for name in loaded}
    others = {
        name for name in tops - {"rushlight"} if not name.startswith("_") or name == "_hashlib"
    }  # parts of those below
    allowed = ALLOWED | (SINCE_314 if sys.version_info >= (3, 14) else set())
    assert others <= allowed, f"`import rushlight` loads {sorted(others - allowed)}"
    ours = {name for name in loaded if name.startswith("rushlight")}
    assert len(ours) <= MODULES_OF_OURS
    early = [name for name in ours for part in NOT_ON_IMPORT if (name + ".").startswith(f"rushlight.{part}.")]
    assert not early, early


@pytest.mark.slow
def test_a_warm_start_compiles_nothing(tmp_path: Path) -> None:
    env = {**os.environ, "RUSHLIGHT_CACHE_DIR": str(tmp_path / "kernels")}

    def run() -> tuple[str, dict[Path, int]]:
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip(), {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.o")}

    _, first = run()
    printed, second = run()
    assert printed == "True", f"loaded on a warm start: {printed}"
    assert first == second and first


# ***** what is made when it is first asked for *****


def test_every_signature_is_sound() -> None:
    for name, op in OPERATORS.items():
        assert op.schema.name == op.public, name
        assert isinstance(op.like, str) or callable(op.like)
        assert op.node and isinstance(op.inplace_spaces, tuple)


def test_bad_rows_are_refused_at_once() -> None:
    def body(x: Any) -> Any:
        return x

    with pytest.raises(TypeError, match=r"unknown options \['colour'\]"):
        operator("test_startup_row(Tensor input) -> Tensor", colour=1)(body)
    with pytest.raises(ValueError, match="unknown promotion"):
        operator("test_startup_row(Tensor input) -> Tensor", promote="up")(body)
    with pytest.raises(ValueError, match="declared twice"):
        operator("relu(Tensor input) -> Tensor")(body)
    assert "test_startup_row" not in OPERATORS


def test_spaces_make_functions_once() -> None:
    space, made = Space(), []

    def make(name: str) -> str:
        made.append(name)
        return name.upper()

    space.promise("a", make, "one")
    space.promise("a", make, "two")
    space["b"] = "B"
    space.promise("b", make, "three")
    assert "a" in space and sorted(space) == ["a", "b"] and len(space) == 2 and not made
    assert space["a"] == space.get("a") == "ONE" and made == ["one"]
    assert space["b"] == "B" and space.get("c") is None
    with pytest.raises(KeyError):
        space["c"]
    del space["a"]
    assert "a" not in space


def test_all_functions_and_methods_can_be_made() -> None:
    for space in SPACES.values():
        for name in space:
            assert space[name] is space[name]
    for name, value in list(vars(torch.Tensor).items()):
        if isinstance(value, LazyMethod):
            found = getattr(torch.Tensor, name)
            assert callable(found) and vars(torch.Tensor)[name] is found
    assert torch.relu is torch.relu and "relu" in dir(torch) and "relu" in dir(torch.Tensor)
    with pytest.raises(AttributeError, match="no_such_function"):
        torch.no_such_function


def test_first_use_in_a_subclass() -> None:
    code = (
        "import rushlight as torch\n"
        "class T(torch.Tensor): pass\n"
        "a = torch.ones(2).as_subclass(T)\n"
        "assert type(a + 1) is T and type(1 - a) is T and type(2 / a) is T and (a @ a).item() == 2\n"
        "assert type(a.exp()) is T and T.exp is torch.Tensor.exp\n"
        "a += 1\n"
        "assert a.tolist() == [2.0, 2.0] and (a == 2).all() and -a[0] == -2 and hash(a) == id(a)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ***** digests of our sources *****


def test_digest_of_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "room").mkdir()
    file = tmp_path / "room" / "a.py"
    file.write_text("one")
    kept = cache.ObjectCache(str(tmp_path / "cache"), "test")
    monkeypatch.setattr(sources, "_ROOM", str(tmp_path))
    monkeypatch.setattr(sources, "default_cache", lambda: kept)

    def digest() -> bytes:
        monkeypatch.setattr(sources, "_KNOWN", {})  # as in a new process
        return sources.sources_digest(("room/a.py", "room/absent.py"))

    assert sources.files_below("room") == ("room/a.py",)
    first = digest()
    with monkeypatch.context() as inner:
        inner.setattr(sources, "_digest_contents", lambda names: pytest.fail("read again"))
        assert digest() == first
    before = file.stat()
    file.write_text("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # same size, same time
    assert digest() != first
    file.write_text("one")
    assert digest() == first  # a new file with the old contents finds the old objects


# ***** interpreters *****


@pytest.mark.parametrize(
    ("name", "system", "object_bytes", "largest", "byteorder", "message"),
    [
        ("pypy", "linux", 16, 2**63 - 1, "little", "CPython, and this is pypy"),
        ("cpython", "win32", 16, 2**63 - 1, "little", "Linux and macOS, and this is win32"),
        ("cpython", "linux", 32, 2**63 - 1, "little", "with the GIL, and this is a free-threaded build"),
        ("cpython", "linux", 8, 2**31 - 1, "little", "this is a 32-bit little-endian one"),
        ("cpython", "linux", 16, 2**63 - 1, "big", "this is a 64-bit big-endian one"),
    ],
)
def test_interpreters_that_are_refused(
    name: str, system: str, object_bytes: int, largest: int, byteorder: str, message: str
) -> None:
    assert message in (interpreter.what_is_wrong(name, system, object_bytes, largest, byteorder) or "")
    assert all(
        interpreter.what_is_wrong("cpython", one, 16, 2**63 - 1, "little") is None for one in ("linux", "darwin")
    )


def test_another_interpreter_is_refused_at_import() -> None:
    code = "import sys; sys.implementation.name = 'graalpy'; import rushlight"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: rushlight cannot run on Python {sys.version.split()[0]}: it is made for CPython, and this is graalpy"
    )


_INNER = """
import rushlight
try:
    rushlight.ones(2)
except (NotImplementedError, ImportError) as error:  # ImportError: of Python's ctypes, in 3.12
    print(type(error).__name__, error, flush=True)
"""
_OUTER = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import rushlight
assert (rushlight.ones(2) + 1).tolist() == [2, 2]
inner = interpreters.create()
print(getattr(interpreters, "exec", interpreters.run_string)(inner, {code!r}) or "")
interpreters.destroy(inner)
assert (rushlight.ones(2) + 1).tolist() == [2, 2]
"""


def test_a_subinterpreter_is_refused() -> None:
    done = subprocess.run([sys.executable, "-c", _OUTER.format(code=_INNER)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = done.stdout.strip()
    if "_ctypes" not in found:
        assert (
            found
            == "NotImplementedError rushlight computes in the main interpreter of a process; this is a subinterpreter"
        )

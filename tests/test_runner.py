"""`python -m rushlight`: programs run under the name torch as they would under plain Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

RUSHLIGHT = ("-m", "rushlight")


def write(folder: Path, text: str, name: str = "program.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


# ***** the process that a program sees *****

SEES = """
import json, sys
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "path0": sys.path[0], "name": __name__, "file": globals().get("__file__"), "spec": __spec__ is None,
    "package": __package__, "cached": globals().get("__cached__", "absent"), "main": main.__dict__ is globals(), "doc": __doc__,
}))
"""


def test_script_sees_what_python_shows(run_python, tmp_path: Path) -> None:
    path = write(tmp_path, '"""doc"""\n' + SEES)
    for given in (str(path), path.name):
        plain = run_python(given, "-a", "b c", cwd=tmp_path, check=True)
        ours = run_python(*RUSHLIGHT, given, "-a", "b c", cwd=tmp_path, check=True)
        assert ours.stdout == plain.stdout


def test_script_behind_a_link(run_python, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    write(tmp_path / "real", "x = 1", "neighbour.py")
    write(tmp_path / "real", "import neighbour; print(neighbour.x)" + SEES)
    (tmp_path / "link.py").symlink_to("real/program.py")
    plain = run_python("link.py", cwd=tmp_path, check=True)
    assert run_python(*RUSHLIGHT, "link.py", cwd=tmp_path, check=True).stdout == plain.stdout


def test_text_sees_what_python_shows(run_python, tmp_path: Path) -> None:
    plain = run_python("-c", SEES, "x", cwd=tmp_path, check=True)
    ours = run_python(*RUSHLIGHT, "-c", SEES, "x", cwd=tmp_path, check=True)
    assert ours.stdout.replace('"package": ""', '"package": null') == plain.stdout


def test_module_sees_what_python_shows(run_python, tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    write(tmp_path / "pack", "", "__init__.py")
    write(tmp_path / "pack", "import sys; print(sys.argv, __name__, __package__, __spec__.name)", "__main__.py")
    write(tmp_path / "pack", "import sys; print(sys.argv, __name__, __package__, __spec__.name)", "tool.py")
    for name in ("pack", "pack.tool"):
        plain = run_python("-m", name, "x", cwd=tmp_path, check=True)
        ours = run_python(*RUSHLIGHT, "-m", name, "x", cwd=tmp_path, check=True)
        assert ours.stdout.split("]")[0] == plain.stdout.split("]")[0]
        assert ours.stdout.split("]")[1].split()[:2] == plain.stdout.split("]")[1].split()[:2]


def test_folder_and_standard_input(run_python, tmp_path: Path) -> None:
    write(tmp_path, "import other; print(other.x, __name__)", "__main__.py")
    write(tmp_path, "x = 5", "other.py")
    assert run_python(*RUSHLIGHT, str(tmp_path), check=True).stdout == "5 __main__\n"
    assert run_python(*RUSHLIGHT, "-", "a", input="import sys; print(sys.argv)", check=True).stdout == "['-', 'a']\n"


def test_leaves_no_bytecode_of_the_script(run_python, tmp_path: Path) -> None:
    path = write(tmp_path, "print(1)")
    run_python(*RUSHLIGHT, str(path), check=True)
    assert [p.name for p in tmp_path.iterdir()] == ["program.py"]


# ***** torch is rushlight *****


def test_torch_is_rushlight(run_python, tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
import torch, sys
import torch.nn as nn
import torch.nn.functional as F
from torch import nn as nn2
from torch.nn import functional as F2, Module
from torch.utils.data import DataLoader, Dataset
import torch.utils.data
import rushlight, rushlight.nn.functional
assert torch is rushlight and torch.nn is nn is nn2 is rushlight.nn
assert F is F2 is rushlight.nn.functional is sys.modules["torch.nn.functional"]
assert torch.utils.data.DataLoader is DataLoader
assert rushlight.nn.__spec__.name == "rushlight.nn" and torch.__name__ == "torch" and torch.nn.functional.__name__ == "torch.nn.functional"
try:
    import torch.nothing
except ImportError:
    pass
print(torch.tensor([1.0, 2.0]) + 1)
""",
    )
    assert run_python(*RUSHLIGHT, str(path), check=True).stdout == "tensor([2., 3.])\n"


def test_import_rushlight_makes_no_torch(run_python) -> None:
    code = "import sys, rushlight; print(any(type(f).__module__.startswith('rushlight') for f in sys.meta_path), 'torch' in sys.modules)"
    assert run_python("-c", code, check=True).stdout == "False False\n"


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        ("import torch\ntorch.not_there", "AttributeError", "rushlight has no 'not_there' yet"),
        ("import torch\ntorch.nn.NotThere", "AttributeError", "rushlight has no 'nn.NotThere' yet"),
        (
            "import torch\ntorch.nn.functional.not_there(1)",
            "AttributeError",
            "rushlight has no 'nn.functional.not_there' yet",
        ),
        ("import torch.not_there", "ModuleNotFoundError", "rushlight has no 'not_there' yet"),
        ("import torch.nn.not_there", "ModuleNotFoundError", "rushlight has no 'nn.not_there' yet"),
        ("import torch.nn.not_there.deep as d", "ModuleNotFoundError", "rushlight has no 'nn.not_there' yet"),
        ("from torch.not_there import x", "ModuleNotFoundError", "rushlight has no 'not_there' yet"),
        ("from torch import not_there", "ImportError", "rushlight has no 'not_there' yet"),
        ("from torch.nn import NotThere", "ImportError", "rushlight has no 'nn.NotThere' yet"),
        ("import torch._ops", "ModuleNotFoundError", "rushlight has no '_ops' yet"),
        ("import not_there_at_all", "ModuleNotFoundError", "No module named 'not_there_at_all'"),
    ],
)
def test_missing_names(run_python, tmp_path: Path, code: str, kind: str, says: str) -> None:
    done = run_python(*RUSHLIGHT, str(write(tmp_path, code + "\n")))
    assert done.returncode == 1
    assert kind in done.stderr and says in done.stderr


def test_missing_names_are_ordinary_errors(run_python, tmp_path: Path) -> None:
    code = """
import importlib.util
import torch
assert not hasattr(torch, "not_there") and getattr(torch.nn, "not_there", 3) == 3
assert importlib.util.find_spec("torch") is not None
try:
    from torch import not_there
except ImportError as error:
    assert "not_there" in str(error)
"""
    run_python(*RUSHLIGHT, str(write(tmp_path, code)), check=True)


# ***** how a program ends *****


def test_traceback_begins_in_the_script(run_python, tmp_path: Path) -> None:
    path = write(tmp_path, "def f(x):\n    return 1 / x\n\n\nf(0)\n")
    plain = run_python(str(path))
    ours = run_python(*RUSHLIGHT, str(path))
    assert ours.returncode == plain.returncode == 1
    assert ours.stderr == plain.stderr


def test_syntax_error_shows_the_script(run_python, tmp_path: Path) -> None:
    path = write(tmp_path, "x = (1\ny = 2\n")
    plain = run_python(str(path))
    ours = run_python(*RUSHLIGHT, str(path))
    assert ours.returncode == 1
    assert ours.stderr.replace("Traceback (most recent call last):\n", "") == plain.stderr


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(7)", 7), ("import sys; sys.exit()", 0), ("raise SystemExit('no')", 1)]
)
def test_exit_status(run_python, tmp_path: Path, code: str, status: int) -> None:
    done = run_python(*RUSHLIGHT, str(write(tmp_path, code)))
    assert done.returncode == status and "Traceback" not in done.stderr


def test_no_such_script(run_python, tmp_path: Path) -> None:
    done = run_python(*RUSHLIGHT, "nowhere.py", cwd=tmp_path)
    assert done.returncode == 2 and "can't open file" in done.stderr and "nowhere.py" in done.stderr


def interrupt_when(argv: list[str], line: str, **kwargs) -> tuple[int, str]:
    """Start a child, send Ctrl-C once it has printed `line`, and return its status and standard error."""
    held = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored, and hand that on
    try:
        child = subprocess.Popen(
            [sys.executable, *argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **kwargs
        )
    finally:
        signal.signal(signal.SIGINT, held)
    assert child.stdout is not None
    for text in child.stdout:
        if line in text:
            break
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    return child.returncode, errors


def test_interrupted_script(tmp_path: Path) -> None:
    path = write(tmp_path, "import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    status, errors = interrupt_when(["-m", "rushlight", str(path)], "ready")
    assert status == 130 and "KeyboardInterrupt" in errors and str(path) in errors and "runner.py" not in errors


def test_interrupted_demo_has_no_traceback(tmp_path: Path) -> None:
    argv = ["-m", "rushlight", "demo", "--out", str(tmp_path / "out")]
    status, errors = interrupt_when(argv, "parameters")
    assert status == 130 and "Traceback" not in errors and "interrupted" in errors


# ***** the other commands *****


def test_help_and_version(run_python) -> None:
    import rushlight

    assert run_python(*RUSHLIGHT, "--version", check=True).stdout == f"rushlight {rushlight.__version__}\n"
    assert "SCRIPT" in run_python(*RUSHLIGHT, "--help", check=True).stdout
    assert run_python(*RUSHLIGHT, check=True).stdout == run_python(*RUSHLIGHT, "-h", check=True).stdout
    for wrong in (["--nonsense"], ["-m"], ["-c"]):
        done = run_python(*RUSHLIGHT, *wrong)
        assert done.returncode == 2 and "usage" in done.stderr


def test_info_tells_everything(run_python) -> None:
    import llvmlite
    import numpy

    text = run_python(*RUSHLIGHT, "info", check=True).stdout
    for word in (
        "rushlight",
        "Python",
        numpy.__version__,
        llvmlite.__version__,
        "LLVM",
        "cores",
        "threads",
        "cache",
        "RUSHLIGHT_LOG",
    ):
        assert word in text, word
    assert f"{len(os.sched_getaffinity(0))} " in text

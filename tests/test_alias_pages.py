"""Module paths of PyTorch whose names are in other pages here: each imports, and hands on the objects of those pages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from rushlight._base.alias import _report_missing
from rushlight._base.alias_table import _table, sources_of
from rushlight._base.naming import _pages

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "rushlight"
PATHS, MOVED = _table()
# Names that a path hands on, by path; of a path that is a whole page, the names that PyTorch shows there.
SHOWN_ELSEWHERE = {"torch", "nccl", "TYPE_CHECKING"}  # modules and imports
NAMES = {
    path: list(sources) if isinstance(sources, dict) else sorted(_pages().get(path, frozenset()) - SHOWN_ELSEWHERE)
    for path, sources in PATHS.items()
}
# Inner parts that PyTorch's pages show without underscores.
NOT_HERE = {
    "masked.maskedtensor.core get_default_nowrap_functions",
    "masked.maskedtensor core", "masked.maskedtensor unary", "masked.maskedtensor passthrough",
    "masked.maskedtensor binary", "masked.maskedtensor creation",
    *(f"profiler.profiler {name}" for name in ("MemoryProfileTimeline", "MemoryProfile", "PROFILER_STEP_NAME", "is_fbcode", "prof",
        "profiler_allow_cudagraph_cupti_lazy_reinit_cuda12")),
    *(f"signal.windows.windows {name}" for name in ("factory_common_args", "parse_kwargs", "window_common_args", "merge_dicts")),
    *(f"utils.backend_registration {name}" for name in ("has_torch_function_unary", "handle_torch_function")),
    "xpu.random Tensor",
}  # fmt: skip

PROGRAM = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
import torch

lacking = []
for path, names in json.load(sys.stdin).items():
    try:
        page = importlib.import_module(f"torch.{path}")
    except Exception as error:
        lacking.append(f"{path}: {error!r}")
        continue
    lacking += [f"{path} {name}" for name in names if not hasattr(page, name)]
print(json.dumps(lacking))
"""


def lacking(*runner: str, names: dict[str, list[str]]) -> set[str]:
    done = subprocess.run(
        [sys.executable, *runner, "-c", PROGRAM], input=json.dumps(names), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_every_path_imports_with_its_names() -> None:
    assert lacking("-m", "rushlight", names=NAMES) == NOT_HERE


@pytest.mark.oracle
def test_pytorch_has_every_path_and_name() -> None:
    theirs = {path: names for path, names in NAMES.items() if isinstance(PATHS[path], dict)}
    assert lacking(names=theirs) == set()


def test_no_path_has_a_file_of_its_own() -> None:
    """Rooms aside, which programs do not name."""
    here = [path for path in PATHS if (PACKAGE / path.replace(".", "/")).exists() and path != "_ops"]
    assert not here + [path for path in PATHS if (PACKAGE / f"{path.replace('.', '/')}.py").exists()]
    assert all(sources_of(present) is None for present in PATHS.values() if isinstance(present, str))


IMPORTS = """
import sys
from torch._ops import OpOverload
import torch.nn.qat.modules.conv
from torch.jit._script import ScriptModule, script
from torch._functorch.apis import *
import torch

assert isinstance(torch.ops.aten.add.Tensor, OpOverload) and torch._ops.OpOverload is OpOverload
assert torch._ops.ops is torch.ops and torch.jit._trace.trace is torch.jit.trace  # loaded by its first use
assert torch.nn.qat.modules.conv.Conv2d is torch.ao.nn.qat.Conv2d and script is torch.jit.script
assert vmap is torch.func.vmap and ScriptModule is torch.jit.ScriptModule
assert "isin" not in dir(torch.jit._trace) and "trace" in dir(torch.jit._trace)
for wrong in ("torch.jit._trace.sofmax", "torch._ops.sofmax", "torch.masked.sofmax"):
    try:
        eval(wrong)
    except AttributeError as error:
        print(error)
import rushlight._ops.table
try:  # a file of the folder masked, which is not below the path that stands for it
    import torch.masked.maskedtensor.operators
except ModuleNotFoundError as error:
    print(error)
"""


def test_paths_give_the_objects_of_the_pages() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rushlight", "-c", IMPORTS], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "rushlight has no 'jit._trace.sofmax' (asked for as 'torch.jit._trace.sofmax')",
        "rushlight has no '_ops.sofmax' (asked for as 'torch._ops.sofmax')",
        "module 'torch.masked' has no attribute 'sofmax'. Did you mean: 'softmax'?",
        "No module named 'torch.masked.maskedtensor.operators', neither in rushlight nor in PyTorch. Did you mean: 'operators'?",
    ]


def test_names_with_dots_are_no_pages() -> None:
    page = ModuleType("rushlight.nn.functional")
    page.__path__ = []  # as of a package
    _report_missing(page)
    assert not hasattr(page, "lstm_layer.data")  # an operator's overload, as graphs name it

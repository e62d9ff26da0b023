"""What all tests share: where kernels are cached, the oracle's marker, and the package's place for child processes."""

from __future__ import annotations

import functools
import gc
import importlib.util
import multiprocessing
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.forked import Forked

ROOT = Path(__file__).resolve().parent.parent

# Kernels that tests compile belong to the checkout, not to the user's own cache.
os.environ.setdefault("RUSHLIGHT_CACHE_DIR", str(ROOT / ".pytest_cache" / "kernels"))
# What a test derives must not depend on which tests ran before it, in whatever process; `engine/test_kept_plans.py` has its own say.
os.environ.setdefault("RUSHLIGHT_KEEP_PLANS", "0")
# Whoever reads a test's failure wants to see where in the package it was.
os.environ.setdefault("RUSHLIGHT_TRACEBACK", "full")
# Tables of native plans are checked as they are made and read.
os.environ.setdefault("RUSHLIGHT_CHECK_TABLES", "1")
# Child processes find the package whether or not it is installed.
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ.setdefault("MPLBACKEND", "Agg")

HAVE_TORCH = importlib.util.find_spec("torch") is not None


def pytest_configure(config: pytest.Config) -> None:
    # Tables and graphs are many objects, and a sixth of the time went into looking for garbage.
    gc.set_threshold(50_000, 20, 20)
    if os.environ.get("RUSHLIGHT_TEST_ORACLE") == "1" and not HAVE_TORCH:
        raise pytest.UsageError("RUSHLIGHT_TEST_ORACLE=1, but torch is not installed: pip install -e '.[oracle]'")


def _left_out(config: pytest.Config) -> dict[str, str]:
    """Marks of tests that this run does without -> why."""
    found = {}
    if "slow" not in (config.option.markexpr or "") and not _named_alone(config):
        found["slow"] = "takes long: run by `make test-slow`, or by its own name"
    if "ptx" not in (config.option.markexpr or "") and not _named_alone(config):
        found["ptx"] = "interprets the PTX of every kernel: run by `make test-ptx`, or by its own name"
    if not os.environ.get("RUSHLIGHT_CUDA"):
        found["cuda"] = "runs in a process with RUSHLIGHT_CUDA=emulated, or =driver on a GPU"
    if not HAVE_TORCH:
        found["oracle"] = "torch is not installed: pip install -e '.[oracle]'"
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests out by their marks.  In a run of all sorts they are deselected, which costs a tenth of skipping them."""
    _draw_no_constants()
    for item in items:
        for mark in FILTERED:
            if item.get_closest_marker(mark) is not None and not _sets(item.path, mark):
                raise pytest.UsageError(
                    f"{item.nodeid} has the mark {mark}, but neither its file nor its imports set it"
                )
    reasons = _left_out(config)
    left = {
        item: why for mark, why in reasons.items() for item in items if item.get_closest_marker(mark) is not None
    }  # not by keywords: the folder `cuda` is one
    kept = [item for item in items if item not in left]
    if kept and not config.option.markexpr:
        config.hook.pytest_deselected(items=list(left))
        items[:] = kept
        return
    for item, why in left.items():
        item.add_marker(pytest.mark.skip(reason=why))


def _draw_no_constants() -> None:
    """Keep Hypothesis from reading the constants of every module that is loaded, to draw them as inputs.

    It parses two thousand files of ours for that, and what a test draws would depend on which modules others loaded.
    """
    providers = sys.modules.get("hypothesis.internal.conjecture.providers")
    if providers is not None and hasattr(providers, "is_local_module_file"):
        providers.is_local_module_file = lambda file: False


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say which marks were left out: what is deselected has no lines of its own."""
    if not config.option.markexpr:
        for mark, why in _left_out(config).items():
            terminalreporter.write_line(f"left out: tests marked {mark}: {why}")


# `-m slow` and `-m oracle` import the files alone that have such tests: 57 and 91 of 513.
FILTERED = ("slow", "oracle")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files without tests of the mark that `-m` requires."""
    wanted = (config.option.markexpr or "").partition(" and not ")[0]
    if wanted in FILTERED and collection_path.suffix == ".py" and not _sets(collection_path, wanted):
        return True
    return None


def _sets(path: Path, mark: str) -> bool:
    """Whether a test file, or a module of tests that it imports, sets a mark."""
    known, left = set(), [path]
    while left:
        each = left.pop()
        if each in known or not each.is_file():
            continue
        known.add(each)
        marks, imports = _facts(each)
        if mark in marks:
            return True
        left += imports
    return False


@functools.cache
def _facts(path: Path) -> tuple[frozenset[str], list[Path]]:
    """The marks that a file sets, and the modules of tests that it imports."""
    text = path.read_text(encoding="utf-8")
    modules = re.findall(r"^(?:from|import) (tests\.[\w.]+)", text, re.MULTILINE)
    modules += [
        f"tests.{name}"
        for line in re.findall(r"^from tests import (.+)$", text, re.MULTILINE)
        for name in re.findall(r"\w+", line)
    ]
    return frozenset(re.findall(r"\bmark\.(\w+)", text)), [ROOT / f"{name.replace('.', '/')}.py" for name in modules]


def pytest_collection_finish(session: pytest.Session) -> None:
    """What collection made lives as long as the session: no search for garbage shall walk its 1.6 million objects again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def short_searches_for_garbage() -> Iterator[None]:
    """Freeze what a file leaves behind (plans, templates, kernels): tests that collect garbage walk their own objects."""
    yield
    gc.collect()
    gc.freeze()


def _named_alone(config: pytest.Config) -> bool:
    """Whether single tests were asked for by name."""
    return bool(config.args) and all("::" in argument for argument in config.args)


@pytest.fixture(autouse=True, scope="session")
def forked_processes() -> Iterator[None]:
    """Fork by default, as Python did until 3.13: what tests give to workers is often local, and cannot be pickled. Other ways are asked for by name."""
    before = multiprocessing.get_start_method(allow_none=True)
    if "fork" in multiprocessing.get_all_start_methods():
        multiprocessing.set_start_method("fork", force=True)
    yield
    multiprocessing.set_start_method(before, force=True)


@pytest.fixture
def run_python():
    """Runs `python ARGS...` in a child process with the package on its path; returns the finished process."""

    def run(*args: str, timeout: float = 600, check: bool = False, **kwargs) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *args], capture_output=True, text=True, timeout=timeout, check=check, **kwargs
        )

    return run


@pytest.fixture(scope="session")
def forked() -> Iterator[Forked]:
    """Runs scripts in forks of one process that has imported the package."""
    programs = Forked()
    yield programs
    programs.close()

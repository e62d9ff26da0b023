"""What all tests share: where kernels are cached, the oracle's marker, and the package's place for child processes."""

from __future__ import annotations

import gc
import importlib.util
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "slow" not in (config.option.markexpr or "") and not _named_alone(config):
        for item in items:
            if "slow" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="takes long: run by `make test-slow`, or by its own name"))
    if not os.environ.get("RUSHLIGHT_CUDA"):
        for item in items:
            if item.get_closest_marker("cuda") is not None:  # the folder is called so, too
                item.add_marker(
                    pytest.mark.skip(reason="runs in a process with RUSHLIGHT_CUDA=emulated, or =driver on a GPU")
                )
    if HAVE_TORCH:
        return
    skip = pytest.mark.skip(reason="torch is not installed: pip install -e '.[oracle]'")
    for item in items:
        if "oracle" in item.keywords:
            item.add_marker(skip)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What collection made lives as long as the session: no search for garbage shall walk its 1.6 million objects again."""
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

"""First uses: forks beside threads that import, and signals in the middle of an import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STRESS = Path(__file__).resolve().parent.parent / "tools" / "sweeps" / "first_use_stress.py"

# A page whose import takes long: it can be met half done.
_SLOW = """
import importlib.util, os, signal, sys, threading, time, types
import rushlight as torch

half, go_on = threading.Event(), threading.Event()
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name != "rushlight.quasirandom":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        whole = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (half.set(), during(), whole(module))
        return spec
sys.meta_path.insert(0, Slow())
during = lambda: time.sleep(0.3)

def forked(work):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def slow(run_python, body: str) -> list[str]:
    done = run_python("-W", "ignore::DeprecationWarning", "-c", _SLOW + body, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@needs_fork
def test_a_fork_waits_for_the_import_of_another_thread(run_python) -> None:
    found = slow(run_python, """
thread = threading.Thread(target=lambda: torch.quasirandom)
thread.start()
half.wait()
print(forked(lambda: torch.quasirandom.SobolEngine(2).draw(1)))
thread.join()
""")  # fmt: skip
    assert found == ["0"]


@needs_fork
def test_a_fork_waits_for_an_import_that_needs_a_lock_of_ours(run_python) -> None:
    """Whoever waited for the import with the lock in its hand would wait for ever, and so in the other order."""
    found = slow(run_python, """
from rushlight._base.forking import free_after_fork
lock = free_after_fork(threading.RLock())
def during():
    time.sleep(0.2)
    with lock:
        time.sleep(0.1)
def holds_and_imports():
    with lock:
        half.wait()
        time.sleep(0.1)
        import colorsys
threads = [threading.Thread(target=target) for target in (lambda: torch.quasirandom, holds_and_imports)]
for thread in threads:
    thread.start()
half.wait()
def work():
    with lock:
        torch.quasirandom
print(forked(work))
""")  # fmt: skip
    assert found == ["0"]


@pytest.mark.slow
@needs_fork
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_threads_that_fork_at_once_leave_no_lock_taken() -> None:
    """One that gave back the locks of the other, which had just taken them, let the next fork wait for ever."""
    import os
    import threading

    from rushlight._base.forking import free_after_fork

    locks = [free_after_fork(threading.Lock()) for _ in range(20)]

    def forks() -> None:
        for _ in range(25):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)

    threads = [threading.Thread(target=forks, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads) and not any(lock.locked() for lock in locks)


@needs_fork
def test_a_fork_in_an_import_that_others_wait_for(run_python, tmp_path) -> None:
    """A module that forks while it is imported, and an import in another thread that waits for that module."""
    (tmp_path / "rushlight_program.py").write_text("import __main__\n__main__.inner()\n")
    found = slow(run_python, f"""
sys.path.insert(0, {str(tmp_path)!r})
def during():
    go_on.wait()
    import rushlight_program
def inner():
    thread.start()
    half.wait()
    go_on.set()
    time.sleep(0.2)
    print(forked(lambda: torch.ones(2).sum().item()))
thread = threading.Thread(target=lambda: torch.quasirandom)
import rushlight_program
thread.join()
""")  # fmt: skip
    assert found == ["0"]


@needs_fork
def test_a_fork_does_not_wait_for_the_programs_own_imports(run_python, tmp_path) -> None:
    (tmp_path / "serves_for_ever.py").write_text("import __main__\n__main__.half.set()\n__main__.go_on.wait()\n")
    found = slow(run_python, f"""
sys.path.insert(0, {str(tmp_path)!r})
thread = threading.Thread(target=lambda: importlib.import_module("serves_for_ever"))
thread.start()
half.wait()
print(forked(lambda: torch.ones(2).sum().item()))
go_on.set()
""")  # fmt: skip
    assert found == ["0"]


# A signal in the middle of a page's import, when the page asks for a part of it.
_SIGNALS = """
import os, signal, sys, time
import rushlight as torch

class Signals:
    number, parts = signal.SIGUSR1, ("rushlight.hub.repositories", "numpy.linalg")
    def find_spec(self, name, path=None, target=None):
        if name in self.parts:
            os.kill(os.getpid(), self.number)
        return None
sys.meta_path.insert(0, Signals())
"""
ASKED = ["torch.hub", "torch.ones(2).numpy()"]


@pytest.mark.parametrize("asked", ASKED)
def test_a_handler_runs_after_the_import_that_it_interrupts(run_python, asked: str) -> None:
    done = run_python("-c", _SIGNALS + f"""
met = []
def handler(number, frame):
    met.append((callable(torch.hub.load), float(torch.ones(2).numpy().sum())))
signal.signal(signal.SIGUSR1, handler)
{asked}
time.sleep(0.2)
print(len(met), set(met), signal.getsignal(signal.SIGUSR1) is handler)
""")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in (
        "1 {(True, 2.0)} True",
        "2 {(True, 2.0)} True",
    )  # the handler's own import is interrupted too


@pytest.mark.parametrize("asked", ASKED)
def test_an_interrupt_leaves_a_whole_module(run_python, asked: str) -> None:
    """What was loaded stays loaded, so the program can go on."""
    done = run_python("-c", _SIGNALS + f"""
signal.signal(signal.SIGINT, signal.default_int_handler)
Signals.number = signal.SIGINT
try:
    {asked}
    time.sleep(1)
except KeyboardInterrupt:
    print("interrupted")
Signals.parts = ()
print(torch.ones(2).numpy().sum(), callable(torch.hub.load))
""")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["interrupted", "2.0", "True"]


def test_a_module_that_a_handler_loaded_is_not_loaded_again(run_python) -> None:
    """The signal comes when the import has not begun to run the module's code."""
    done = run_python("-c", _SIGNALS + """
Signals.parts = ("rushlight.hub",)
kept = []
def handler(number, frame):
    Signals.parts = ()
    kept.append(torch.hub)
signal.signal(signal.SIGUSR1, handler)
__import__("rushlight.hub")
time.sleep(0.2)
print(kept[0] is torch.hub is sys.modules["rushlight.hub"])
""")  # fmt: skip
    assert done.stdout.strip() == "True", done.stderr


@needs_fork
@pytest.mark.parametrize("kind", ["fork", "signals"])
def test_a_round_of_the_stress(kind: str) -> None:
    done = subprocess.run(
        [sys.executable, str(STRESS), kind, "--seed", "1"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


# ***** the first compilation *****

_COMPILES = "import rushlight as torch; print(torch.ones(3).exp().sum().item() > 8)"
_SAYS = "rushlight compiles its kernels for this machine"


@pytest.mark.slow
def test_the_first_compilation_with_an_empty_cache_says_so(run_python, tmp_path) -> None:
    """Once, and to whoever reads it: standard error is no terminal here, so not by default."""

    def run(code: str = _COMPILES, **more: str) -> str:
        return run_python("-c", code, env={**os.environ, **more}, check=True).stderr

    there = str(tmp_path / "first")
    assert (
        run(RUSHLIGHT_CACHE_DIR=there, RUSHLIGHT_NOTICES="1").count(_SAYS) == 1
        and not os.listdir(tmp_path / "first") == []
    )
    assert run(RUSHLIGHT_CACHE_DIR=there, RUSHLIGHT_NOTICES="1") == ""
    assert run(RUSHLIGHT_CACHE_DIR=str(tmp_path / "second")) == ""
    forked = "import os, multiprocessing as mp; p = mp.get_context('fork').Process(target=lambda: __import__('rushlight').ones(3).exp()); p.start(); p.join()"
    assert run(forked, RUSHLIGHT_CACHE_DIR=str(tmp_path / "third"), RUSHLIGHT_NOTICES="1") == ""


@needs_fork
def test_a_terminal_is_told_of_the_first_compilation(tmp_path) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "RUSHLIGHT_NOTICES"}
    subprocess.run(
        [sys.executable, "-c", _COMPILES],
        env={**environment, "RUSHLIGHT_CACHE_DIR": str(tmp_path / "cache")},
        stderr=theirs,
        check=True,
    )
    os.close(theirs)
    assert _SAYS in os.read(ours, 1000).decode()
    os.close(ours)

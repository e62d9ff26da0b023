"""Fork, or take signals, at random moments of a process' first operations.

    python tools/sweeps/first_use_stress.py fork --rounds 300
    python tools/sweeps/first_use_stress.py signals --rounds 300 --cold

Each round is a fresh process.  `fork`: one thread imports, compiles and runs first operations while another forks; every child runs
operations of its own and must end within the limit.  `signals`: a timer interrupts the first operations every few hundred microseconds, and
its handler runs operations.  `--cold` starts some rounds with an empty kernel cache.  Each failure is printed with its seed, which repeats
the round's choices (not the scheduler's).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

LIMIT = 60.0  # seconds after which a child hangs


def _matrix(torch: Any) -> None:
    a = torch.arange(12.0).reshape(3, 4)
    assert (a @ a.T).sum().item() == 1134.0, "matmul"


def _softmax(torch: Any) -> None:
    assert torch.softmax(torch.zeros(4, 8), -1).tolist() == [[0.125] * 8] * 4, "softmax"


def _linear(torch: Any) -> None:
    layer = torch.nn.Linear(4, 3)
    layer(torch.ones(2, 4)).sum().backward()
    assert layer.bias.grad.tolist() == [2.0, 2.0, 2.0], "Linear"


def _optimizer(torch: Any) -> None:
    weight = torch.ones(3, requires_grad=True)
    step = torch.optim.SGD([weight], lr=0.5)
    (weight * weight).sum().backward()
    step.step()
    assert weight.tolist() == [0.0, 0.0, 0.0], "SGD"


def _draws(torch: Any) -> None:
    drawn = torch.rand(100, generator=torch.Generator().manual_seed(1))
    assert 0.0 <= drawn.min().item() and drawn.max().item() < 1.0, "rand"


def _text(torch: Any) -> None:
    assert str(torch.tensor([1.0, 2.0])) == "tensor([1., 2.])", "repr"


def _array(torch: Any) -> None:
    assert torch.ones(3).numpy().sum() == 3.0, "numpy"


def _solve(torch: Any) -> None:
    assert torch.linalg.det(torch.eye(3) * 2).item() == 8.0, "det"


def _transform(torch: Any) -> None:
    assert torch.fft.fft(torch.ones(4)).real.tolist() == [4.0, 0.0, 0.0, 0.0], "fft"


def _mapped(torch: Any) -> None:
    assert torch.func.vmap(torch.sin)(torch.zeros(3)).tolist() == [0.0] * 3, "vmap"


def _order(torch: Any) -> None:
    assert torch.sort(torch.tensor([3.0, 1.0, 2.0])).indices.tolist() == [1, 2, 0], "sort"


def _convolved(torch: Any) -> None:
    assert torch.nn.functional.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3)).tolist() == [
        [[[9.0, 9.0], [9.0, 9.0]]]
    ], "conv2d"


STEPS: tuple[Callable[[Any], None], ...] = (
    _matrix, _softmax, _linear, _optimizer, _draws, _text, _array, _solve, _transform, _mapped, _order, _convolved,
)  # fmt: skip


def _reap(child: int, limit: float) -> str:
    """How a child ended, or an empty text where it ended well; one that hangs is killed."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            return "" if code == 0 else f"a child ended with {code}"
        time.sleep(0.002)
    os.kill(child, signal.SIGABRT)  # faulthandler shows where it hung
    os.waitpid(child, 0)
    return "a child hung"


def fork_round(seed: int, pause: float) -> list[str]:
    """One process: a thread runs first operations, this one forks in the meantime."""
    import faulthandler

    import rushlight as torch

    chosen = random.Random(seed)
    steps, failures = chosen.sample(STEPS, len(STEPS)), []
    finished = threading.Event()

    def work() -> None:
        try:
            for step in steps:
                step(torch)
        except BaseException:
            failures.append(traceback.format_exc())
        finally:
            finished.set()

    thread = threading.Thread(target=work)
    thread.start()
    while True:
        time.sleep(chosen.uniform(0.0, pause))
        last = finished.is_set()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                faulthandler.enable()
                for step in chosen.sample(STEPS, 2):
                    step(torch)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        failure = _reap(child, LIMIT)
        if failure:
            failures.append(failure)
        if last or failures:
            break
    thread.join(LIMIT)
    if thread.is_alive():
        failures.append("the thread of the parent hung")
    return failures


def signal_round(seed: int, pause: float) -> list[str]:
    """One process: the main thread runs first operations while a timer's handlers run others."""
    chosen = random.Random(seed)
    failures: list[str] = []
    inside = [False]

    import rushlight as torch

    def handler(*_: Any) -> None:
        if inside[0]:
            return
        inside[0] = True
        try:
            with torch.enable_grad():  # an optimizer's step, say, is without
                chosen.choice(STEPS)(torch)
        except BaseException:
            failures.append("in the handler: " + traceback.format_exc())
        finally:
            inside[0] = False

    signal.signal(signal.SIGALRM, handler)
    try:
        outside = [step for step in STEPS if step is not _mapped]  # within vmap a handler may not draw, as in PyTorch
        for step in chosen.sample(outside, len(outside)):
            signal.setitimer(signal.ITIMER_REAL, chosen.uniform(1e-5, pause), chosen.uniform(pause / 20, pause))
            step(torch)
    except BaseException:
        failures.append(traceback.format_exc())
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    for step in STEPS:  # what was learnt while handlers ran is right
        step(torch)
    return failures


ROUNDS = {"fork": fork_round, "signals": signal_round}


def run_round(kind: str, seed: int, cold: bool, pause: float) -> str:
    """Run a round in a process of its own; the text of what failed, or an empty one."""
    environment = dict(os.environ)
    folder = tempfile.mkdtemp() if cold else ""
    if cold:
        environment["RUSHLIGHT_CACHE_DIR"] = folder
    command = [sys.executable, "-X", "faulthandler", __file__, kind, "--seed", str(seed), "--pause", str(pause)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=5 * LIMIT)
        return "" if done.returncode == 0 else f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    except subprocess.TimeoutExpired as late:
        return f"the round hung\n{late.stdout!r}\n{late.stderr!r}"
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


def main() -> int:
    """Run the rounds that the command line asks for; the number of those that failed decides the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(ROUNDS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first round")
    parser.add_argument("--cold", action="store_true", help="every tenth round starts with an empty kernel cache")
    parser.add_argument(
        "--pause", type=float, default=0.02, help="longest time between two forks or signals, in seconds"
    )
    parser.add_argument("--seed", type=int, help="run one round in this process")
    options = parser.parse_args()
    if options.seed is not None:
        failures = ROUNDS[options.kind](options.seed, options.pause)
        print("\n".join(failures))
        return bool(failures)
    failed = 0
    for seed in range(options.first, options.first + options.rounds):
        text = run_round(options.kind, seed, options.cold and seed % 10 == 0, options.pause)
        if text:
            failed += 1
            print(f"***** {options.kind}, seed {seed}\n{text}", flush=True)
    print(f"{options.rounds} rounds of {options.kind}, {failed} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())

"""Faults in a job of two ranks, and what becomes of it: named within the time, resumed, and with the losses of a job without.

    python tools/distributed_faults.py [TIMES]

Each fault hits rank 1 (or the store process) in the first attempt; `torchrun` begins anew from the last checkpoint. Printed
for each fault: how often the weights at the end were those of an undisturbed job, and the longest time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

WITHIN = 120.0  # seconds for a job; a longer one counts as a hang
FAULTS = ("kill-before", "kill-in", "kill-after", "kill-backward", "kill-checkpoint", "stop", "raise", "store")
TRAIN = """
import os, signal, sys, threading, time
import torch
import torch.distributed as dist

fault, path = sys.argv[1:]
dist.init_process_group("gloo")
rank = dist.get_rank()
struck = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"


def strike(name, number=signal.SIGKILL):
    if struck and epoch == 3 and fault == name and rank == 1:
        os.kill(os.getpid(), number)


def kill_store():
    agent = os.getppid()
    for child in open(f"/proc/{agent}/task/{agent}/children").read().split():
        if "launch.serving" in open(f"/proc/{child}/cmdline").read():
            os.kill(int(child), signal.SIGKILL)


torch.manual_seed(0)
model, start = torch.nn.Linear(64, 64), 0
if os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    start = saved["epoch"] + 1
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = torch.randn(6, 8, 64, generator=torch.Generator().manual_seed(1))
for epoch in range(start, 6):
    loss = model(data[epoch][rank::2]).square().mean()
    model.weight.register_hook(lambda grad: strike("kill-backward"))
    loss.backward()
    strike("kill-before")
    strike("stop", signal.SIGSTOP)
    if struck and epoch == 3 and rank == 1 and fault == "raise":
        raise ValueError("bad data")
    if struck and epoch == 3 and rank == 1 and fault == "store":
        kill_store()
    if struck and epoch == 3 and rank == 1 and fault == "kill-in":
        work = dist.all_reduce(torch.ones(1 << 22), async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if struck and epoch == 3 and rank == 0 and fault == "kill-in":
        dist.all_reduce(torch.ones(1 << 22))
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
    strike("kill-after")
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        torch.save({"model": model.state_dict(), "epoch": epoch}, path + ".new")
        if struck and epoch == 3 and fault == "kill-checkpoint":
            os.kill(os.getpid(), signal.SIGKILL)
        os.replace(path + ".new", path)
dist.barrier()
if rank == 0:
    print("weights", model.state_dict()["weight"].double().sum().item().hex(), flush=True)
dist.destroy_process_group()
"""


def job(script: str, fault: str) -> tuple[str, float]:
    """What a job says of its weights at the end, and the seconds that it took."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        options = ["--standalone", "--nproc-per-node=2", "--max-restarts=1"]
        words = [
            sys.executable,
            "-m",
            "rushlight.distributed.run",
            *options,
            script,
            fault,
            os.path.join(folder, "last.pt"),
        ]
        done = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            said = done.communicate(timeout=WITHIN)[0]
        except subprocess.TimeoutExpired:
            done.kill()
            said = "hang"
    return said.strip(), time.monotonic() - began


def main(times: int = 3) -> int:
    """Every fault so many times; the exit status is 1 if a job ended otherwise than one without."""
    before = set(os.listdir("/dev/shm"))
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        script = os.path.join(folder, "train.py")
        with open(script, "w") as file:
            file.write(TRAIN)
        right, _ = job(script, "none")
        assert right.startswith("weights"), right
        for fault in FAULTS:
            results = [job(script, fault) for _ in range(times)]
            good = sum(said == right for said, _ in results)
            wrong += times - good
            print(f"{fault:16} {good} of {times}, {max(seconds for _, seconds in results):.1f} s", flush=True)
    left = set(os.listdir("/dev/shm")) - before
    print("left in /dev/shm:", sorted(left) or "nothing")
    return 1 if wrong or left else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))

"""Jobs of two ranks that a fault hits again and again, and what becomes of them.

A job trains by `DistributedDataParallel`, one epoch a checkpoint. In each attempt it resumes, finishes an epoch, and is hit in
the next one; `torchrun`'s agent begins anew. Ranks write down when a fault struck and what they heard of it, so that the
journal says who was named, and after how long. Workers are forked by the agent, which has everything loaded: a start is cheap.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
WITHIN = 30.0  # seconds for an attempt; a job that takes longer counts as a hang
AGENT = "import sys; from tests.distributed.programs.fault_jobs import agent; agent(*sys.argv[1:])"


@dataclass(frozen=True)
class Fault:
    """What survivors must hear, within how many seconds of the fault, and how many there are."""

    says: str
    within: float
    survivors: int = 1


DEATH, SILENCE = 1.0, 3.0
FAULTS = {
    "kill-before": Fault("rank {other} died", DEATH),
    "kill-in": Fault("rank {other} died", DEATH),
    "kill-after": Fault("rank {other} died", DEATH),
    "kill-backward": Fault("rank {other} died", DEATH),
    "kill-checkpoint": Fault("rank {other} died", DEATH),
    "raise": Fault("rank {other} failed: ValueError: bad data", DEATH),
    "stop": Fault("rank {other} has given no sign of life for ", SILENCE),
    "store-kill": Fault("lost the store process", DEATH, 2),
    "store-stop": Fault("lost the store process", SILENCE, 2),
    "cut": Fault("rank {other} has given no sign of life for ", SILENCE),  # on the side of the store
}


# ***** what a rank does *****


class Rank:
    """One rank's place, journal, and the fault that is to hit it."""

    def __init__(self, fault: str, folder: str, times: int) -> None:
        self.folder, self.times = folder, times
        # Rounds begin again in a new store, and a machine that is lost counts as no restart.
        self.attempt = max(map(int, os.environ["RUSHLIGHT_ROUND"].split("_")))
        self.fault = fault.split(",")[self.attempt % len(fault.split(","))]
        self.number = int(os.environ["RANK"])
        self.epoch = self.hit_in = -1

    def write(self, **what: Any) -> None:
        """A line in the journal."""
        record = {"attempt": self.attempt, "rank": self.number, "at": time.monotonic(), **what}
        with open(os.path.join(self.folder, f"journal{self.number}"), "a") as file:
            file.write(json.dumps(record) + "\n")

    def struck(self, *faults: str, rank: int = 1) -> bool:
        """Whether this is where a fault strikes; it is written down."""
        here = self.fault in faults and self.epoch == self.hit_in and self.number == rank
        if here:
            self.write(struck=self.fault)
        return here

    def strike(self, fault: str, rank: int = 1, number: int = signal.SIGKILL) -> None:
        """Send this process a signal, if it is its turn."""
        if self.struck(fault, rank=rank):
            os.kill(os.getpid(), number)


def length(times: int) -> int:
    """The epochs of a job: an attempt makes one or two."""
    return 2 * times + 1


def data_of(epoch: int) -> Any:
    """The batch of an epoch: 8 rows, of which a rank takes every other one."""
    import rushlight as torch

    return torch.randn(8, 64, generator=torch.Generator().manual_seed(epoch))


def new_model() -> Any:
    """A model and its optimizer, the same on all ranks."""
    import rushlight as torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64))
    return model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


def train(fault: str, folder: str, times: int) -> None:
    """What the workers of a job run, with a fault in each of the first `times` attempts."""
    import rushlight.distributed as dist

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a survivor is to hear the news, and not to be ended before
    here = Rank(fault, folder, times)
    here.write(pid=os.getpid(), port=int(os.environ["MASTER_PORT"]))
    dist.init_process_group("gloo")
    try:
        epochs(here)
        dist.barrier()
        here.write(done=True)
    except Exception as error:
        here.write(heard=str(error))
        raise
    dist.destroy_process_group()


def epochs(here: Rank) -> None:
    """Resume, and train on."""
    import rushlight as torch
    import rushlight.distributed as dist

    path = os.path.join(here.folder, "last.pt")
    model, optimizer = new_model()
    first, losses = 0, []
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first, losses = saved["epoch"] + 1, saved["losses"]
    here.hit_in = first + 1 if here.attempt < here.times else -1
    whole = torch.nn.parallel.DistributedDataParallel(model)
    for epoch in range(first, length(here.times)):
        here.epoch = epoch
        before(here)
        loss = whole(data_of(epoch)[here.number :: 2]).square().mean()
        if here.hit_in == epoch and here.fault == "kill-backward":
            model[2].weight.register_hook(lambda grad: here.strike("kill-backward"))
        optimizer.zero_grad()
        loss.backward()
        mean = loss.detach()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        here.strike("kill-after")
        optimizer.step()
        losses.append(mean.item())
        if here.number == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch, "losses": losses}
            torch.save(state, path + ".new")
            here.strike("kill-checkpoint", rank=0)
            os.replace(path + ".new", path)


def before(here: Rank) -> None:
    """The faults that strike between two steps."""
    import rushlight as torch
    import rushlight.distributed as dist

    here.strike("kill-before")
    here.strike("stop", number=signal.SIGSTOP)
    if here.struck("raise"):
        raise ValueError("bad data")
    if here.struck("store-kill", "store-stop"):
        end_store(signal.SIGKILL if here.fault == "store-kill" else signal.SIGSTOP)
    if here.fault == "kill-in" and here.epoch == here.hit_in:
        x = torch.ones(1 << 22)
        work = dist.all_reduce(x, async_op=True)
        here.strike("kill-in")
        work.wait()
    if here.struck("cut"):
        Path(here.folder, f"cut{here.attempt}").touch()
    if here.fault in ("cut", "store-kill", "store-stop") and here.epoch == here.hit_in:
        dist.recv(torch.ones(1), 1 - here.number)  # what is on the way never comes


def end_store(number: int) -> None:
    """Send a signal to the store process, which the agent has started."""
    agent = os.getppid()
    for child in Path(f"/proc/{agent}/task/{agent}/children").read_text().split():
        if "launch.serving" in Path(f"/proc/{child}/cmdline").read_text():
            os.kill(int(child), number)


def losses_of_one(count: int) -> list[float]:
    """The losses of one process: its parts are those that ranks take, so the sums are theirs to the bit."""
    model, optimizer = new_model()
    losses = []
    for epoch in range(count):
        optimizer.zero_grad()
        total = 0.0
        for part in range(2):
            loss = model(data_of(epoch)[part::2]).square().mean()
            (loss / 2).backward()
            total = total + loss.detach()
        optimizer.step()
        losses.append((total / 2).item())
    return losses


# ***** agents, and the network between two *****


def agent(endpoint: str, node: str, workers: str, nodes: str, fault: str, folder: str, times: str) -> None:
    """The agent of a machine; `endpoint` empty: a job on this machine alone."""
    from rushlight._distributed.engines.progress_native import bound
    from rushlight.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in ("start", "test", "wait", "run", "poll"):
        bound(name)
    losses_of_one(1)  # loads what the workers need, before the fork
    if node:
        os.environ["RUSHLIGHT_NODE"] = node
    settings = {"is_host": node in ("", "a"), "last_call_timeout": 1, "join_timeout": 60}
    config = LaunchConfig(
        int(nodes), int(nodes), int(workers), rdzv_backend="c10d", rdzv_endpoint=endpoint or "localhost:0", run_id="faults",
        rdzv_configs=settings, max_restarts=int(times), start_method="fork", monitor_interval=0.02,
    )  # fmt: skip
    elastic_launch(config, train)(fault, folder, int(times))


class Proxy:
    """A TCP relay that can be cut: then nothing passes, and nobody is told, as when a cable is pulled."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.whole = threading.Event()
        self.whole.set()
        self.all: list[socket.socket] = []  # those of a cut network stay open: their ends wait
        self.ends = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Let nothing through."""
        self.whole.clear()

    def mend(self) -> None:
        """Let new connections through; those that were cut stay dead."""
        self.whole.set()

    def close(self) -> None:
        """End all."""
        self.ends = True
        self.listener.shutdown(socket.SHUT_RDWR)  # closing alone would not end the thread that accepts
        self.listener.close()
        for one in self.all:
            one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        while not self.ends:
            self.whole.wait()
            try:
                far = socket.create_connection(("127.0.0.1", self.target), 1)
            except OSError:  # the server has yet to start
                time.sleep(0.02)
                continue
            far.settimeout(None)
            self.all += [near, far]
            threading.Thread(target=self._relay, args=(far, near), daemon=True).start()
            return self._relay(near, far)
        near.close()

    def _relay(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                if not self.whole.is_set():
                    return
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# ***** running a job, and judging it *****


@dataclass
class Outcome:
    """What became of a job that was to be hit so many times."""

    struck: int  # how often the fault hit
    named: int  # how often the right rank was named
    late: list[float]  # seconds after which it was, where that was too late
    slowest: float  # seconds until it was named
    equal: bool  # whether the losses are those of one process, to the bit
    hung: bool
    left: list[str]  # processes, ports and shared memory that were left
    seconds: float
    said: str  # what the agents printed

    @property
    def good(self) -> bool:
        """Whether everything but the times is as it should be."""
        return self.equal and self.named == self.struck and not self.hung and not self.left


def run_job(fault: str, times: int) -> Outcome:
    """Run a job that a fault, or several in turn ("stop,kill-in"), hits so many times."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        shm = set(os.listdir("/dev/shm"))
        said, hung = _run_agents(fault, folder, times)
        records = sorted(
            (json.loads(line) for path in Path(folder).glob("journal*") for line in path.read_text().splitlines()),
            key=lambda record: record["at"],
        )
        struck, named, delays, late = _named(records)
        said += "".join(f"{record}\n" for record in records if "struck" in record or "heard" in record)
        last = Path(folder, "last.pt")
        equal = False
        if last.exists():
            import rushlight as torch

            equal = torch.load(last)["losses"] == losses_of_one(length(times))
        left = _left(records, shm)
    return Outcome(struck, named, late, max(delays, default=0.0), equal, hung, left, time.monotonic() - began, said)


def _named(records: list[dict[str, Any]]) -> tuple[int, int, list[float], list[float]]:
    """How often a fault struck, how often the right rank was named, the times until then, and those that were too long."""
    delays, struck = [], [r for r in records if "struck" in r]
    late = []
    for hit in struck:
        fault = FAULTS[hit["struck"]]
        news = [r for r in records if "heard" in r and r["attempt"] == hit["attempt"]]
        right = [r["at"] for r in news if fault.says.format(other=1 - r["rank"]) in r["heard"]]
        if len(right) == fault.survivors:
            delays.append(max(right) - hit["at"])
            if delays[-1] > fault.within:
                late.append(delays[-1])
    return len(struck), len(delays), delays, late


def _run_agents(fault: str, folder: str, times: int) -> tuple[str, bool]:
    """Run the agents to their end: what they said, and whether they had to be killed."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "RUSHLIGHT_NUM_THREADS": "1"}

    def started(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", AGENT, *words, fault, folder, str(times)]
        with open(os.path.join(folder, f"agent{len(agents)}"), "w") as log:
            return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, text=True, env=env, cwd=ROOT)

    agents: list[subprocess.Popen[str]] = []
    until = time.monotonic() + WITHIN * (times + 1)
    if fault != "cut":
        agents.append(started("", "", "2", "1"))
        hung = _wait(agents, until)
    else:
        port = free_port()
        with closing(Proxy(port)) as proxy:
            agents.append(started(f"127.0.0.1:{port}", "a", "1", "2"))
            agents.append(started(f"127.0.0.1:{proxy.port}", "b", "1", "2"))
            threading.Thread(target=_cut_and_mend, args=(proxy, folder, times, until), daemon=True).start()
            hung = _wait(agents, until)
    return "".join(path.read_text() for path in sorted(Path(folder).glob("agent*"))), hung


def _cut_and_mend(proxy: Proxy, folder: str, times: int, until: float) -> None:
    """Cut the network whenever a rank asks for it, and mend it 7 s later, when both machines know."""
    for attempt in range(times):
        while not os.path.exists(os.path.join(folder, f"cut{attempt}")):
            if time.monotonic() > until or proxy.ends:
                return
            time.sleep(0.005)
        proxy.cut()
        time.sleep(7.0)
        proxy.mend()


def _wait(agents: list[subprocess.Popen[str]], until: float) -> bool:
    """Wait for the agents; those that take too long are killed, which the answer says."""
    hung = False
    for process in agents:
        try:
            process.wait(max(until - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            hung = True
            process.kill()
            process.wait()
    return hung


def _left(records: list[dict[str, Any]], shm: set[str]) -> list[str]:
    """What a job left behind: processes, listening ports, shared memory that nobody has mapped."""
    left = []
    limit = time.monotonic() + 3.0
    for pid in {r["pid"] for r in records if "pid" in r}:
        while os.path.exists(f"/proc/{pid}") and time.monotonic() < limit:
            time.sleep(0.01)
        if os.path.exists(f"/proc/{pid}"):
            left.append(f"process {pid}")
    for port in {r["port"] for r in records if "port" in r}:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                left.append(f"port {port}")
    for name in set(os.listdir("/dev/shm")) - shm:
        if name.startswith("mpich_shm_") and not _is_mapped(name):
            left.append(name)
    return left


def _is_mapped(name: str) -> bool:
    for path in Path("/proc").glob("[0-9]*/maps"):
        try:
            if name in path.read_text():
                return True
        except OSError:
            continue
    return False

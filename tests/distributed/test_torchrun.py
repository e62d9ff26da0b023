"""The launcher: places of workers, logs, restarts, failures that are reported, machines that meet, and signals."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from rushlight.distributed import run
from rushlight.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from rushlight.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from rushlight.distributed.launcher.api import LaunchConfig, elastic_launch

AGENT = [sys.executable, "-m", "rushlight.distributed.run"]


def script(tmp_path, text: str) -> str:
    path = tmp_path / "train.py"
    path.write_text(text)
    return str(path)


def wait_until(condition, seconds: float = 30.0):
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "too late"
        time.sleep(0.02)
    return found


ELASTIC = """
import os, sys
attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
if (attempt, rank) == ("0", "1"):
    raise ValueError("lost it")
if attempt == "0":
    import time
    time.sleep(30)
import torch
assert torch.version.rushlight and torch.distributed.is_available()
names = ("WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "ROLE_NAME", "MASTER_ADDR", "OMP_NUM_THREADS")
print("place", rank, *[os.environ[name] for name in names], sys.argv[1:])
print("trouble", rank, file=sys.stderr)
"""


def test_a_job_begins_anew_after_a_failure(tmp_path, capfd, monkeypatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = set(os.listdir("/dev/shm"))
    logs = tmp_path / "logs"
    options = ["--standalone", "--nproc-per-node=2", "--max-restarts=1", f"--log-dir={logs}", "-t", "1", "-r", "1:2"]
    run.main([*options, script(tmp_path, ELASTIC), "--epochs", "3"])
    out, err = capfd.readouterr()
    for rank in ("0", "1"):
        line = f"place {rank} 2 {rank} 2 0 default localhost 1 ['--epochs', '3']"
        assert f"[default{rank}]:{line}\n" in out
        assert [path.read_text() for path in logs.glob(f"*/attempt_1/{rank}/stdout.log")] == [line + "\n"]
    # Redirected for local rank 1 alone.
    assert "trouble 0" in err and "trouble 1" not in err
    assert [path.read_text() for path in logs.glob("*/attempt_1/1/stderr.log")] == ["trouble 1\n"]
    assert set(os.listdir("/dev/shm")) <= before


def test_the_first_failure_is_reported_last(tmp_path, capfd) -> None:
    text = "import os, time\nif os.environ['RANK'] == '1': raise ValueError('lost it')\ntime.sleep(600)\n"
    with pytest.raises(SystemExit) as ended:
        run.main(["--standalone", "--nproc-per-node=2", script(tmp_path, text)])
    err = capfd.readouterr().err
    assert ended.value.code == 1
    report = err[err.index("train.py FAILED") :]
    others, root = report.split("Root Cause (first observed failure):")
    assert "rank      : 0 (local_rank: 0)" in others and "(SIGTERM)" in others
    assert "rank      : 1 (local_rank: 1)" in root and "exitcode  : 1" in root
    # The traceback begins in the program, and is the last thing.
    lines = root.strip().splitlines()
    assert lines[-2].strip() == "ValueError: lost it" and "Traceback" in root and "runner.py" not in root


def power(base: int) -> int:
    return base ** int(os.environ["RANK"])


@record
def fails(rank: int) -> None:
    if os.environ["RANK"] == str(rank):
        raise KeyError("gone")


def test_functions_return_what_they_return(tmp_path) -> None:
    config = LaunchConfig(1, 1, 3, rdzv_backend="c10d", start_method="fork", max_restarts=0)
    assert elastic_launch(config, power)(5) == {0: 1, 1: 5, 2: 25}
    with pytest.raises(ChildFailedError, match="KeyError: 'gone'") as failed:
        elastic_launch(config, fails)(2)
    rank, failure = failed.value.get_first_failure()
    assert (rank, failure.local_rank, failure.exitcode) == (2, 2, 1)
    assert "KeyError" in failure.message["message"]


def test_machines_meet_and_begin_anew_together(tmp_path) -> None:
    """Two agents, numbered as they come; a worker of one fails once, and both begin a second round."""
    text = (
        "import os, sys\nif (os.environ['TORCHELASTIC_RESTART_COUNT'], os.environ['RANK']) == ('0', '2'): sys.exit(7)\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n    import time\n    time.sleep(30)\n"
        "words = [os.environ[n] for n in ('RANK', 'WORLD_SIZE', 'GROUP_RANK', 'GROUP_WORLD_SIZE')]\n"
        "os.write(1, (' '.join(words) + '\\n').encode())\n"  # lines of several processes stay whole
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    meet = [
        "--nnodes=2",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=localhost:{port}",
        "--rdzv-id=job",
        "--max-restarts=1",
    ]
    worker = ["--no-python", sys.executable, script(tmp_path, text)]
    agents = [
        subprocess.Popen([*AGENT, *meet, f"--nproc-per-node={count}", *worker], stdout=subprocess.PIPE, text=True)
        for count in (2, 2)
    ]
    lines = [line for agent in agents for line in agent.communicate(timeout=60)[0].splitlines()]
    assert [agent.returncode for agent in agents] == [0, 0]
    assert sorted(lines) == ["0 4 0 2", "1 4 0 2", "2 4 1 2", "3 4 1 2"]


WAITS = """
import os, signal, sys, time
def end(number, frame):
    open(sys.argv[1] + os.environ["RANK"] + ".ended", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
with open(sys.argv[1] + os.environ["RANK"] + ".new", "w") as file:
    file.write(str(os.getpid()))
os.rename(file.name, file.name[:-4])
time.sleep(60)
"""


def exists(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_their_agent(number, tmp_path) -> None:
    """A signal is handed on, and nobody outlives a killed agent; the agent's store ends too."""
    words = [
        "--standalone",
        "--nproc-per-node=2",
        "--no-python",
        sys.executable,
        script(tmp_path, WAITS),
        f"{tmp_path}/pid",
    ]
    agent = subprocess.Popen([*AGENT, *words], stderr=subprocess.PIPE, text=True)
    files = [tmp_path / "pid0", tmp_path / "pid1"]
    wait_until(lambda: all(file.exists() for file in files))
    pids = [int(file.read_text()) for file in files]
    agent.send_signal(number)
    err = agent.communicate(timeout=30)[1]
    wait_until(lambda: not any(exists(pid) for pid in pids), 10)
    handed_on = number == signal.SIGTERM
    assert agent.returncode == (128 + number if handed_on else -number)
    assert [(tmp_path / f"pid{rank}.ended").exists() for rank in range(2)] == [handed_on] * 2
    assert ("got signal" in err) == handed_on


def test_options(monkeypatch) -> None:
    monkeypatch.setenv("PET_NPROC_PER_NODE", "3")
    args = run.parse_args(
        ["--nnodes=2:4", "--node_rank=1", "--master_addr=::1", "--rdzv_conf=timeout=5,a=b", "-m", "pkg.train", "-x"]
    )
    config, command, words = run.config_from_args(args)
    assert (config.min_nodes, config.max_nodes, config.nproc_per_node, config.rdzv_endpoint) == (2, 4, 3, "[::1]:29500")
    assert config.rdzv_configs == {"timeout": "5", "a": "b", "rank": 1}
    assert [command, *words] == [sys.executable, "-u", "-m", "rushlight", "-m", "pkg.train", "-x"]
    assert Std.from_str("0:1,1:3") == {0: Std.OUT, 1: Std.ALL} and "tee" in repr(DefaultLogsSpecs())
    for wrong in (["--nnodes=x", "a.py"], ["--nnodes=3:2", "a.py"]):
        with pytest.raises(RuntimeError, match="nnodes"):
            run.config_from_args(run.parse_args(wrong))
    with pytest.raises(ValueError, match="nproc_per_node"):
        run.config_from_args(run.parse_args(["--nproc-per-node=many", "a.py"]))
    assert SignalException("text", signal.SIGINT).sigval == signal.SIGINT


ALONE = """
from mpi4py import MPI
assert MPI.COMM_WORLD.size == 1
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.arange(1000.0) + dist.get_rank()
dist.all_reduce(x)
assert x.tolist() == [2.0 * k + 1 for k in range(1000)]
dist.destroy_process_group()
print("summed", flush=True)
"""


@pytest.mark.distributed
def test_ranks_whose_mpi_runs_already_begin_it_anew(mpi: None, tmp_path, capfd) -> None:
    assert run.main(["--standalone", "--nproc-per-node=2", script(tmp_path, ALONE)]) in (None, 0)
    out, err = capfd.readouterr()
    assert out.count("summed") == 2 and "MPI was started before init_process_group" in err

"""What agents are made of: processes and their output, meetings, agents as objects, timers."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from rushlight.distributed import DistStoreError, HashStore
from rushlight.distributed.elastic import timer
from rushlight.distributed.elastic.agent.server import (
    LocalElasticAgent,
    RunResult,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from rushlight.distributed.elastic.agent.server.health_check_server import create_healthcheck_server
from rushlight.distributed.elastic.multiprocessing import (
    DefaultLogsSpecs,
    LogsDest,
    SignalException,
    Std,
    start_processes,
)
from rushlight.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousHandlerRegistry,
    RendezvousParameters,
    RendezvousStoreInfo,
    rendezvous_handler_registry,
)
from rushlight.distributed.elastic.utils import distributed as elastic_ports
from rushlight.distributed.elastic.utils import get_env_variable_or_raise, macros
from rushlight.distributed.elastic.utils import store as elastic_store

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


def shout(text: str) -> str:
    os.write(1, f"{text} {os.environ['WHO']}\n".encode())
    if text == "fail":
        raise ValueError("on purpose")
    return text.upper()


# ***** processes *****


def test_functions_return_and_write_to_files(tmp_path: Path) -> None:
    logs = DefaultLogsSpecs(str(tmp_path), redirects={0: Std.OUT})
    context = start_processes(
        "f", shout, {0: ("a",), 1: ("b",)}, {0: {"WHO": "x"}, 1: {"WHO": "y"}}, logs, start_method="fork"
    )
    assert set(context.pids()) == {0, 1}
    result = context.wait()
    assert result is not None and result.return_values == {0: "A", 1: "B"} and not result.is_failed()
    assert Path(result.stdouts[0]).read_text() == "a x\n" and result.stdouts[1] == "" and result.stderrs[0] == ""
    assert context.wait() is result


def test_a_failure_ends_the_others(tmp_path: Path) -> None:
    logs = DefaultLogsSpecs(str(tmp_path), redirects=Std.ALL, local_ranks_filter={0})
    context = start_processes("f", shout, {0: ("fail",)}, {0: {"WHO": "x"}}, logs, start_method="fork")
    result = context.wait()
    assert result is not None and result.is_failed() and not result.return_values
    assert result.failures[0].exitcode == 1 and "ValueError: on purpose" in str(result.failures[0].message)
    code = "import sys, time; sys.exit(3) if sys.argv[1] == '1' else time.sleep(600)"
    context = start_processes(
        "c", sys.executable, {0: ("-c", code, "0"), 1: ("-c", code, "1")}, {0: {}, 1: {}}, DefaultLogsSpecs()
    )
    result = context.wait()
    assert result is not None and {k: f.exitcode for k, f in result.failures.items()} == {1: 3}
    context = start_processes(
        "c", sys.executable, {0: ("-c", "import time; time.sleep(60)")}, {0: {}}, DefaultLogsSpecs()
    )
    assert context.wait(0) is None and context.wait(0.05, 0.01) is None
    with pytest.raises(SignalException):
        signal.raise_signal(signal.SIGTERM)
    context.close()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_settings_of_processes_are_checked(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="local rank mapping mismatch"):
        start_processes("f", shout, {0: ("a",)}, {1: {}}, DefaultLogsSpecs())
    with pytest.raises(NotImplementedError, match="duplicate_stdout_filters"):
        start_processes("f", shout, {0: ("a",)}, {0: {}}, DefaultLogsSpecs(), duplicate_stdout_filters=["x"])
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        DefaultLogsSpecs(str(tmp_path / "file"))
    files = DefaultLogsSpecs(str(tmp_path), tee={1: Std.ALL}, local_ranks_filter={0}).reify({0: {}, 1: {}})
    assert files.stdouts[0] == "" and files.stdouts[1].endswith("attempt_0/1/stdout.log") and not files.tee_stdouts
    assert LogsDest() == LogsDest() and DefaultLogsSpecs("a") == DefaultLogsSpecs("a") != DefaultLogsSpecs("b")


# ***** meetings *****


def parameters(
    port: int, backend: str = "c10d", nodes: tuple[int, int] = (2, 2), **settings: Any
) -> RendezvousParameters:
    return RendezvousParameters(
        backend, f"localhost:{port}", "job", *nodes, join_timeout=20, last_call_timeout=0.1, **settings
    )


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def together(*functions: Any) -> list[Any]:
    """What functions return that run at the same time."""
    found: dict[int, Any] = {}

    def run(k: int) -> None:
        try:
            found[k] = functions[k]()
        except BaseException as error:
            found[k] = error

    threads = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [found[k] for k in range(len(functions))]


def test_machines_meet_again() -> None:
    port = free_port()
    first = rendezvous_handler_registry.create_handler(parameters(port, is_host=True))
    second = rendezvous_handler_registry.create_handler(parameters(port, is_host=False))
    infos = together(first.next_rendezvous, second.next_rendezvous)
    assert sorted(info.rank for info in infos) == [0, 1] and {info.world_size for info in infos} == {2}
    infos[0].store.set("key", "value")
    assert infos[1].store.get("key") == b"value" and first.use_agent_store and first.get_backend() == "c10d"
    assert [h.num_nodes_waiting() for h in (first, second)] == [0, 0]
    again: list[Any] = []
    thread = threading.Thread(target=lambda: again.append(first.next_rendezvous()), daemon=True)
    thread.start()
    until = time.monotonic() + 10
    while not second.num_nodes_waiting() and time.monotonic() < until:
        time.sleep(0.01)
    assert second.num_nodes_waiting() == 1  # another round has begun
    info = second.next_rendezvous()
    thread.join(20)
    assert {info.rank, again[0].rank} == {0, 1} and not info.store.check(["key"])
    first.set_closed()
    assert second.is_closed()
    with pytest.raises(RendezvousClosedError):
        second.next_rendezvous()
    assert second.shutdown()


def test_registry_and_parameters() -> None:
    registry = RendezvousHandlerRegistry()
    with pytest.raises(ValueError, match="is not registered"):
        registry.create_handler(parameters(0, "mine"))
    with pytest.raises(NotImplementedError, match="etcd server"):
        rendezvous_handler_registry.create_handler(parameters(0, "etcd"))
    with pytest.raises(ValueError, match="already registered"):
        rendezvous_handler_registry.register("c10d", lambda p: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(ValueError, match="greater than zero"):
        parameters(0, nodes=(0, 1))
    given = parameters(0, yes="Y", no=0, bad="perhaps", n="3")
    assert (
        given.get_as_bool("yes")
        and given.get_as_bool("no") is False
        and given.get_as_int("n") == 3
        and given.get("none", 5) == 5
    )
    with pytest.raises(ValueError, match="valid boolean"):
        given.get_as_bool("bad")
    with pytest.raises(ValueError, match="valid integer"):
        given.get_as_int("bad")
    store = HashStore()
    built = RendezvousStoreInfo.build(0, store, "here", 77)
    assert built == RendezvousStoreInfo.build(1, store, None) == RendezvousStoreInfo("here", 77)


# ***** agents *****


def place(folder: str, failing: int) -> tuple[str, ...]:
    """A worker's place; worker `failing` fails at the first attempt."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "TORCHELASTIC_RESTART_COUNT")
    found = tuple(os.environ[name] for name in names)
    if found[0] == str(failing) and found[-1] == "0":
        raise ValueError("the first attempt fails")
    return found


def agent_of(
    port: int, tmp_path: Path, host: bool, nodes: int = 1, failing: int = -1, restarts: int = 1
) -> LocalElasticAgent:
    handler = rendezvous_handler_registry.create_handler(parameters(port, nodes=(nodes, nodes), is_host=host))
    spec = WorkerSpec(
        "trainer",
        2,
        handler,
        entrypoint=place,
        args=(str(tmp_path), failing),
        max_restarts=restarts,
        monitor_interval=0.02,
    )
    return LocalElasticAgent(
        spec, DefaultLogsSpecs(str(tmp_path), redirects=Std.ALL), start_method="fork", exit_barrier_timeout=10
    )


def test_an_agent_begins_anew(tmp_path: Path) -> None:
    agent = agent_of(0, tmp_path, True, failing=1)
    result = agent.run()
    assert result.state is WorkerState.SUCCEEDED and not result.is_failed()
    assert result.return_values == {k: (str(k), "2", str(k), "0", str(k), "1") for k in range(2)}
    group = agent.get_worker_group()
    assert isinstance(group, WorkerGroup) and group.group_world_size == 1 and group.workers[1].global_rank == 1
    failed = agent_of(0, tmp_path, True, failing=1, restarts=0).run()
    assert failed.is_failed() and "the first attempt fails" in str(failed.failures[1].message)
    assert "FAILED" in str(agent.get_event_failed()) and WorkerState.is_running(WorkerState.HEALTHY)


def test_two_machines(tmp_path: Path) -> None:
    port = free_port()
    agents = [agent_of(port, tmp_path, True, 2, failing=3), agent_of(port, tmp_path, False, 2, failing=3)]
    results = together(*[agent.run for agent in agents])
    values: dict[int, Any] = {}
    for result in results:
        assert isinstance(result, RunResult), result
        values |= result.return_values
    assert {k: v[:2] for k, v in values.items()} == {k: (str(k), "4") for k in range(4)}
    assert {v[3] for v in values.values()} == {"0", "1"}


def test_specs_are_checked() -> None:
    handler = rendezvous_handler_registry.create_handler(parameters(0, nodes=(1, 1)))
    with pytest.raises(AssertionError, match="entrypoint"):
        WorkerSpec("r", 1, handler)
    with pytest.raises(AssertionError, match="positive"):
        WorkerSpec("r", 0, handler, entrypoint=shout)
    with pytest.warns(DeprecationWarning):
        assert WorkerSpec("r", 1, handler, fn=shout).get_entrypoint_name() == "shout"
    assert WorkerSpec("r", 1, handler, entrypoint="/bin/echo").get_entrypoint_name() == "echo"


def test_health_check() -> None:
    server = create_healthcheck_server(lambda: 0, 0, 60)
    server.start()
    try:
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/")
    finally:
        server.stop()


# ***** timers *****


def hang(client: Any, seconds: float) -> None:
    timer.configure(client)
    with timer.expires(after=60):
        pass
    with timer.expires(after=seconds, scope="hanging"):
        time.sleep(30)


def test_hanging_processes_are_ended(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    events: list[str] = []
    pipe = str(tmp_path / "pipe")
    servers = [
        timer.LocalTimerServer(queue, max_interval=0.05),
        timer.FileTimerServer(pipe, "job", 0.05, log_event=lambda n, r: events.append(n)),
    ]
    clients = [timer.LocalTimerClient(queue), timer.FileTimerClient(pipe, signal.SIGTERM)]
    for server in servers:
        server.start()
    processes = [context.Process(target=hang, args=(client, 0.1)) for client in clients]
    for process in processes:
        process.start()
    for process in processes:
        process.join(10)
    assert [process.exitcode for process in processes] == [-signal.SIGKILL, -signal.SIGTERM]
    descriptor = os.open(pipe, os.O_WRONLY)
    os.write(descriptor, b'{"pid": -1, "scope_id": "x", "expiration_time": 1, "signal": 9}\nnonsense\n')  # dropped
    os.close(descriptor)
    time.sleep(0.1)
    for server in servers:
        server.stop()
    assert events == ["watchdog started", "kill worker process", "watchdog stopped"] and not os.path.exists(pipe)
    with pytest.raises(BrokenPipeError):
        clients[1].acquire("x", 1.0)
    assert timer.FileTimerServer.is_process_running(os.getpid())
    request = timer.FileTimerRequest(5, "x", 2.0, 9)
    assert request == timer.FileTimerRequest(5, "x", 2.0, 9) and '"pid": 5' in request.to_json()
    assert timer.TimerRequest(1, "a", 2.0) == timer.TimerRequest(1, "a", 2.0)


# ***** small parts *****


def test_members_hand_each_other_values_over_a_store() -> None:
    store = HashStore()
    found = together(*(lambda k=k: elastic_store.synchronize(store, b"%d" % k, k, 3, "key/") for k in range(3)))
    assert found == [[b"0", b"1", b"2"]] * 3
    together(*(lambda: elastic_store.barrier(store, 2, "all", 10) for _ in range(2)))
    with pytest.raises(DistStoreError, match=r"missing_ranks=\[1, 2\], timeout=0.05"):
        elastic_store.barrier(store, 3, "few", 0.05, rank=0)
    with elastic_store.store_timeout(store, 7.0):
        assert store.timeout.total_seconds() == 7.0
    assert store.timeout.total_seconds() != 7.0


def test_ports_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    store = elastic_ports.create_c10d_store(True, "localhost")
    store.set("key", "value")
    assert elastic_ports.create_c10d_store(False, "localhost", store.port).get("key") == b"value"
    with pytest.raises(ValueError, match="server_port must be specified"):
        elastic_ports.create_c10d_store(True, "localhost", world_size=2)
    monkeypatch.setenv("HERE", "yes")
    assert get_env_variable_or_raise("HERE") == "yes"
    with pytest.raises(ValueError, match="ABSENT expected, but not set"):
        get_env_variable_or_raise("ABSENT")
    assert macros.substitute(["a", "n${local_rank}", 3], "2") == ["a", "n2", 3]

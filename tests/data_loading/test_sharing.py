"""Tensors between processes: the memory is one, and it goes when nobody holds it."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight import multiprocessing as mp
from rushlight.multiprocessing.spawn import ProcessException

context = mp.get_context("fork")


def answering(inbox: Any, outbox: Any) -> None:
    """A process that runs what it is told on what it gets."""
    while (task := inbox.get()) is not None:
        name, value = task
        outbox.put(TASKS[name](value))


TASKS: dict[str, Any] = {
    "add": lambda x: x.add_(1) is x and x.is_shared(),
    "same": lambda pair: pair[0].untyped_storage().data_ptr() == pair[1].untyped_storage().data_ptr(),
    "parameter": lambda p: (type(p).__name__, p.requires_grad, p.data.fill_(7) is not None),
    "give": lambda n: torch.arange(n),
    "back": lambda x: x,
    "fill": lambda storage: storage.fill_(1) and storage.nbytes(),
}


@pytest.fixture(params=sorted(mp.get_all_sharing_strategies()))
def ask(request: Any) -> Any:
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy(request.param)
    there, back = context.Queue(), context.Queue()
    process = context.Process(target=answering, args=(there, back))
    process.start()

    def ask(*task: Any) -> Any:
        there.put(task)
        return back.get(timeout=120)

    yield ask
    there.put(None)
    process.join(120)
    mp.set_sharing_strategy(before)
    assert process.exitcode == 0
    del process
    gc.collect()
    assert not [name for name in os.listdir("/dev/shm") if name.startswith("rushlight_")]


def test_both_sides_see_the_same_memory(ask: Any) -> None:
    x = torch.zeros(3, 2)
    view = x[1:].T
    assert ask("add", x) is True and ask("add", view) is True
    assert (
        x.tolist() == [[1, 1], [2, 2], [2, 2]]
        and x.is_shared()
        and view.is_shared()
        and view.tolist() == [[2, 2], [2, 2]]
    )
    assert ask("same", (x[0], view)) is True
    weight = torch.nn.Parameter(torch.ones(2))
    assert ask("parameter", weight) == ("Parameter", True, True) and weight.tolist() == [7, 7]
    given = ask("give", 5)
    assert given.tolist() == [0, 1, 2, 3, 4] and given.is_shared()
    again = ask("back", x)
    again[0, 0] = 50
    assert x[0, 0] == 50
    storage = x.untyped_storage()
    assert ask("fill", storage) == x.nbytes and storage.tolist() == [1] * x.nbytes
    assert ask("back", torch.empty(0)).shape == (0,) and ask("back", torch.tensor([1j]).conj()).tolist() == [-1j]
    buffer = torch.rand(4, requires_grad=True)
    copy = ask("back", buffer)
    assert copy.requires_grad and copy.is_leaf and torch.equal(copy, buffer)


def test_what_has_a_history_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor which requires_grad"):
        ForkingPickler.dumps(torch.ones(2, requires_grad=True) * 2)


def test_sharing_moves_every_view_and_is_quick_for_one() -> None:
    x = torch.arange(6.0)
    rows, data = x.view(2, 3), x.detach()
    rows.share_memory_()
    assert x.is_shared() and rows.is_shared() and data.is_shared()
    x[0] = 9
    assert rows[0, 0] == 9 == data[0]
    model = torch.nn.Linear(3, 2)
    model.share_memory()
    assert all(p.is_shared() for p in model.parameters())
    weight = torch.nn.Parameter(torch.ones(2))
    weight.data.share_memory_()
    assert weight.is_shared()
    assert torch.ones(0).share_memory_().is_shared() and not torch.ones(1).is_shared()


def test_an_ordinary_pickle_is_a_copy() -> None:
    x = torch.ones(2).share_memory_()
    y = pickle.loads(pickle.dumps(x))
    y.zero_()
    assert x.tolist() == [1, 1] and not y.is_shared()


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="needs /proc")
def test_shared_memory_goes_with_its_last_tensor() -> None:
    gc.collect()

    def held() -> tuple[int, int]:
        return Path("/proc/self/maps").read_text().count("memfd:rushlight"), len(os.listdir("/proc/self/fd"))

    before = held()
    tensors = [torch.ones(1000).share_memory_() for _ in range(5)]
    assert held() == (before[0] + 5, before[1] + 5)
    del tensors
    gc.collect()
    assert held() == before


def test_weak_references_to_storages() -> None:
    x = torch.ones(3)
    held = mp.reductions.StorageWeakRef(x.untyped_storage())
    assert (
        not held.expired() and held == mp.reductions.StorageWeakRef(x[1:].untyped_storage()) and len({held, held}) == 1
    )
    assert held != mp.reductions.StorageWeakRef(torch.ones(3).untyped_storage())
    del x
    gc.collect()
    assert held.expired()


def double(x: Any) -> Any:
    return x * 2


def test_pipes_pools_and_the_rest() -> None:
    ours, theirs = context.Pipe()
    child = context.Process(
        target=lambda: (theirs.send(torch.ones(2)), theirs.recv())
    )  # the sender lives until it is received
    child.start()
    assert ours.recv().tolist() == [1, 1]
    ours.send("got it")
    child.join()
    with context.Pool(2) as pool:
        assert [y.tolist() for y in pool.map(double, [torch.arange(2), torch.ones(1)])] == [[0, 2], [2]]
    assert mp.Process is multiprocessing.Process and set(multiprocessing.__all__) - {"reducer"} <= set(dir(mp))  # type: ignore[attr-defined]
    assert (
        mp.get_all_sharing_strategies() == {"file_descriptor", "file_system"}
        and mp.get_sharing_strategy() == "file_descriptor"
    )
    with pytest.raises(AssertionError, match="invalid sharing strategy 'x'"):
        mp.set_sharing_strategy("x")


# ***** spawn *****


def failing(index: int, how: str) -> None:
    if index == 1:
        if how == "raise":
            raise ValueError("boom")
        os._exit(4) if how == "exit" else os.kill(os.getpid(), 9)
    import time

    time.sleep(600)


def adding(index: int, shared: Any) -> None:
    shared[index] += index


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("raise", "ProcessRaisedException", "\n\n-- Process 1 terminated with the following error:\nTraceback"),
        ("exit", "ProcessExitedException", "process 1 terminated with exit code 4"),
        ("kill", "ProcessExitedException", "process 1 terminated with signal SIGKILL"),
    ],
)
def test_a_process_that_fails_ends_the_others(how: str, kind: str, text: str) -> None:
    with pytest.raises(ProcessException) as caught:
        mp.start_processes(failing, (how,), nprocs=2, start_method="fork")
    error = caught.value
    assert type(error).__name__ == kind and str(error).startswith(text) and error.error_index == 1
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert not multiprocessing.active_children()
    if how == "kill":
        assert (error.exit_code, error.signal_name) == (-9, "SIGKILL")  # type: ignore[attr-defined]


def test_start_processes() -> None:
    shared = torch.zeros(3).share_memory_()
    assert mp.start_processes(adding, (shared,), nprocs=3, start_method="fork") is None
    assert shared.tolist() == [0, 1, 2]
    started = mp.start_processes(adding, (shared,), nprocs=2, join=False, start_method="fork")
    assert started is not None and len(started.pids()) == 2
    while not started.join():
        pass
    assert shared.tolist() == [0, 2, 2] and started.join()


@pytest.mark.filterwarnings(
    "ignore:.*fork.*:DeprecationWarning"
)  # from 3.12 on Python counts the threads of NumPy's BLAS
def test_spawned_processes_share_memory() -> None:
    shared = torch.zeros(2)
    mp.spawn(adding, (shared.share_memory_(),), nprocs=2)
    assert shared.tolist() == [0, 1]
    with pytest.warns(FutureWarning, match="only supports start_method=spawn"):
        mp.spawn(adding, (shared,), nprocs=1, start_method="fork")

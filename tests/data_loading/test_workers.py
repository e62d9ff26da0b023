"""Loaders with workers, and data pipes: what they yield is what PyTorch yields."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from tests.data_loading.pipes import pipes, workers

import rushlight as torch
from rushlight.utils import data
from rushlight.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info
from rushlight.utils.data._utils.arena import Arena, Chunk
from rushlight.utils.data.datapipes.iter import IterableWrapper
from rushlight.utils.data.datapipes.map import SequenceWrapper
from rushlight.utils.data.stateful import StatefulDataLoader

EXPECTED = json.loads(pathlib.Path(__file__).with_name("pipes.json").read_text())
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_workers_yield_what_those_of_pytorch_yield() -> None:
    for name, value in workers("rushlight").items():
        assert as_json(value) == EXPECTED[name], name


def test_pipes_yield_what_those_of_pytorch_yield() -> None:
    for name, value in pipes("rushlight").items():
        assert as_json(value) == EXPECTED[name], name


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
def test_what_is_stored_is_what_the_installed_pytorch_yields() -> None:
    pytest.importorskip("torch")
    assert as_json(pipes("torch") | workers("torch")) == EXPECTED


def beginning(loader: Any) -> Any:
    """The loader, after its first batch."""
    next(iter(loader))
    return loader


@pytest.mark.parametrize(
    "make",
    [
        lambda: beginning(DataLoader(Many(), num_workers=2, persistent_workers=True)),
        lambda: iter(DataLoader(Many(), num_workers=2, persistent_workers=True)),
        lambda: beginning(StatefulDataLoader(Many(), num_workers=2)),
        lambda: list(DataLoader(IterableWrapper(range(10)), num_workers=2, persistent_workers=True)),
    ],
    ids=["loader", "iterator", "stateful", "stream"],
)
def test_workers_end_with_their_loader(make: Any) -> None:
    """Not when the collector of circles finds it."""
    before = set(multiprocessing.active_children())
    gc.collect()
    gc.disable()
    try:
        loader = make()
        del loader
        assert set(multiprocessing.active_children()) <= before
    finally:
        gc.enable()


# ***** what comes from workers *****


class Many(Dataset[Any]):
    def __init__(self, shape: tuple[int, ...] = (4,)) -> None:
        self.shape = shape

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Any:
        return torch.full(self.shape, float(i))


def first(collate_fn: Any, **options: Any) -> Any:
    return next(iter(DataLoader([1], num_workers=1, collate_fn=collate_fn, timeout=120, **options)))


def test_batches_lie_in_shared_memory() -> None:
    for shape in ((4,), (300, 300)):  # of a chunk that is shared, and of one of its own
        held = list(DataLoader(Many(shape), num_workers=2))
        assert all(b.is_shared() and b.untyped_storage().nbytes() == b.nbytes for b in held)
        assert [float(b.mean()) for b in held] == [0, 1, 2, 3, 4, 5]
        copies = [b.clone() for b in held]
        for _ in DataLoader(Many(shape), num_workers=2):
            pass
        assert all(torch.equal(a, b) for a, b in zip(held, copies, strict=True))  # what is held is not written again
    rows = TensorDataset(torch.arange(20.0).view(10, 2), torch.arange(10))
    x, y = next(iter(DataLoader(rows, batch_size=4, num_workers=1)))
    assert x.is_shared() and y.is_shared() and y.tolist() == [0, 1, 2, 3]


def test_memory_is_used_again() -> None:
    loader = DataLoader(Many((400, 400)), num_workers=1, sampler=[0, 1, 2, 3, 4, 5] * 5)
    places = {b.data_ptr() for b in loader}
    assert len(places) <= 6


def test_memory_in_use_is_not_given_out_again() -> None:
    chance, arena = random.Random(3), Arena()
    used: dict[
        int, tuple[int, int, Any]
    ] = {}  # number: start, end, and the chunk (held by the main process) or storage (by the worker)
    for number in range(2000):
        nbytes = chance.choice((1, 8, 100, 3000, 60_000, 200_000, 300_000, 1_000_000, 1_200_000))
        if chance.random() < 0.3:
            holder: Any = arena.storage(nbytes)
            start = holder.ptr
        else:
            holder, at = arena.take(nbytes)
            start = holder.block.address + at
        assert not [k for k, (first, last, _) in used.items() if start < last and first < start + nbytes]
        used[number] = start, start + nbytes, holder
        while len(used) > 12:
            _, _, holder = used.pop(chance.choice(list(used)))
            if isinstance(holder, Chunk):
                arena.returned(Counter({holder.number: 1}))
            del holder
    assert len(arena.chunks) < 40


def test_everything_that_is_picklable_comes() -> None:
    shared = torch.zeros(3).share_memory_()
    private = torch.arange(100.0)
    made = first(lambda _: {
        "array": np.arange(60_000.0), "bytes": bytes(100_000), "text": "x" * 100_000, "leaf": torch.ones(2, requires_grad=True),
        "parameter": torch.nn.Parameter(torch.ones(1)), "none": torch.empty(0), "strided": torch.ones(2, 3).T, "row": private[3:5],
        "conj": torch.tensor([1j]).conj(), "storage": torch.ones(1).untyped_storage(), "two": (shared, shared[1:]), "meta": torch.ones(2, device="meta"),
    })  # fmt: skip
    assert made["array"].sum() == 60_000 * 59_999 / 2 and made["array"].flags.writeable
    assert (len(made["bytes"]), len(made["text"])) == (100_000, 100_000)
    assert (
        made["leaf"].requires_grad and made["parameter"].requires_grad and type(made["parameter"]) is torch.nn.Parameter
    )
    assert made["none"].shape == (0,) and made["strided"].stride() == (1, 3) and made["conj"].tolist() == [-1j]
    assert made["row"].tolist() == [3, 4] and made["storage"].nbytes() == 4 and made["meta"].shape == (2,)
    made["two"][0][1] = 5
    assert made["two"][1][0] == 5 and shared[1] == 5  # the memory that was shared before is the same for all


def test_what_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf"):
        first(lambda _: torch.ones(1, requires_grad=True) * 2)
    with pytest.raises((pickle.PicklingError, AttributeError), match="DataLoader worker process 0"):
        first(lambda _: lambda: 0)

    class Local(Exception):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a, b)

    def fail(_: Any) -> Any:
        raise Local(1, 2)

    with pytest.raises(RuntimeError, match="raised as Local, which cannot be pickled"):
        first(fail)


class Failing(Dataset[int]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> int:
        if i == 3:
            raise KeyError("three")
        return i


def test_a_pass_goes_on_after_an_error() -> None:
    batches, found = iter(DataLoader(Failing(), num_workers=2)), []
    while True:
        try:
            found.append(next(batches).item())
        except StopIteration:
            break
        except KeyError as error:
            assert "Caught KeyError in DataLoader worker process 1.\nOriginal Traceback" in str(
                error
            ) and "three" in str(error)
            found.append("error")
    assert found == [0, 1, 2, "error", 4, 5]


class Endless(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(int, 1)


def test_workers_that_cannot_start() -> None:
    def fail(worker: int) -> None:
        raise RuntimeError(f"no {worker}")

    for dataset, errors in ((Many(), 6), (Endless(), 2)):
        batches, found = iter(DataLoader(dataset, num_workers=2, worker_init_fn=fail)), 0
        while True:
            try:
                next(batches)
            except StopIteration:
                break
            except RuntimeError as error:
                assert f"no {found % 2}" in str(error)
                found += 1
        assert found == errors


def test_a_worker_knows_itself() -> None:
    class Asking(Dataset[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> Any:
            info = get_worker_info()
            assert info is not None and info.dataset is self
            with pytest.raises(AttributeError):
                info.id = 3  # type: ignore[misc]
            with pytest.raises(AssertionError, match="daemonic processes are not allowed to have children"):
                list(DataLoader([1], num_workers=1))
            return (
                info.id,
                info.num_workers,
                info.seed,
                torch.get_num_threads(),
                float((torch.ones(300, 300) @ torch.ones(300, 300)).sum()),
            )

    first_, second = DataLoader(Asking(), num_workers=2, batch_size=None)
    assert first_[:2] == [0, 2] and second[:2] == [1, 2] and second[2] == first_[2] + 1
    assert first_[3] == 1 and first_[4] == 300.0**3
    assert get_worker_info() is None


def test_batches_as_they_become_ready() -> None:
    class Slow(Many):
        def __init__(self) -> None:
            super().__init__()
            self.go = multiprocessing.get_context("fork").Event()

        def __getitem__(self, i: int) -> Any:
            assert i != 0 or self.go.wait(120)
            return i

    slow = Slow()
    batches = iter(DataLoader(slow, num_workers=2, in_order=False))
    found = [int(next(batches))]
    slow.go.set()
    found += [int(b) for b in batches]
    assert sorted(found) == [0, 1, 2, 3, 4, 5] and found[0] != 0
    slow = Slow()
    batches = iter(DataLoader(slow, num_workers=1, timeout=0.05))
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.05 seconds"):
        next(batches)
    slow.go.set()
    del batches
    assert [
        int(b) for b in DataLoader(Slow(), num_workers=1, batch_sampler=[[k] for k in range(1, 6)], prefetch_factor=5)
    ] == [1, 2, 3, 4, 5]


def test_warnings_of_loaders() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        iter(DataLoader(Many(), num_workers=0, pin_memory=True, pin_memory_device="cuda"))
        loader = DataLoader(Many(), num_workers=len(os.sched_getaffinity(0)) + 1)
    texts = [str(w.message) for w in caught]
    assert texts[0].startswith("pin_memory_device is deprecated") and texts[1].startswith(
        "'pin_memory' argument is set as true but no"
    )
    assert texts[2].startswith(f"This DataLoader will create {loader.num_workers} worker processes in total.")
    with pytest.raises(AssertionError, match="prefetch_factor must be greater than 0"):
        iter(DataLoader(Many(), num_workers=1, prefetch_factor=0))


def test_loaders_that_are_dropped_leave_nothing() -> None:
    processes = []
    for _ in range(3):
        batches: Any = iter(DataLoader(Many(), num_workers=2, persistent_workers=True))
        next(batches)
        processes += [link.process.pid for link in batches._pool.links]
    del batches
    gc.collect()
    for pid in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


PROGRAM = """
    import os, signal, sys, time
    import rushlight as torch
    from rushlight.utils.data import DataLoader, Dataset

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored

    class Slow(Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, i):
            time.sleep(0.02)
            return torch.tensor(i), os.getpid()

    if __name__ == "__main__":
        method = sys.argv[1]
        loader = DataLoader(Slow(), batch_size=None, num_workers=2, multiprocessing_context=method)
        batches = iter(loader)
        print(*sorted({next(batches)[1] for _ in range(2)}), flush=True)
        if len(sys.argv) > 2:
            time.sleep(600)
        print([int(next(batches)[0]) for _ in range(3)], flush=True)
"""


def gone(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs /proc")
def test_no_worker_outlives_the_program(end: int, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    program = subprocess.Popen(
        [sys.executable, str(script), "fork", "wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    pids = [int(word) for word in program.stdout.readline().split()]
    assert len(pids) == 2
    (os.killpg if end == signal.SIGINT else os.kill)(program.pid, end)
    program.communicate(timeout=60)
    last = time.monotonic() + 60
    while not all(gone(pid) for pid in pids) and time.monotonic() < last:
        time.sleep(0.02)
    assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_to_start_workers(method: str, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run([sys.executable, str(script), method], capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[1:] == ["[2, 3, 4]"] and done.returncode == 0, done.stderr


def test_an_error_of_pickling_tells_what_needs_it() -> None:
    for method in ("spawn", "forkserver"):
        loader = DataLoader([1, 2], num_workers=1, multiprocessing_context=method, collate_fn=lambda batch: batch)
        with pytest.raises((pickle.PicklingError, AttributeError)) as caught:
            iter(loader)
        note = caught.value.__notes__[-1]
        assert (
            note.startswith(f"The loader's workers are started by '{method}'")
            and 'multiprocessing_context="fork"' in note
        )


# ***** pipes *****


def test_a_pipe_has_one_reader() -> None:
    mapped = IterableWrapper(range(3)).map(int)
    a, b = iter(mapped), iter(mapped)
    assert next(a) == 0 and next(b) == 0
    with pytest.raises(
        RuntimeError,
        match=r"This iterator has been invalidated .* MapperIterDataPipe\(datapipe=IterableWrapperIterDataPipe",
    ):
        next(a)
    left, right = mapped.fork(2, buffer_size=1)
    with pytest.raises(BufferError, match="ForkerIterDataPipe buffer overflow,buffer size 1 is insufficient"):
        list(left)
    assert repr(right) == "_ChildDataPipe"


def test_errors_of_pipes() -> None:
    w, m = IterableWrapper(range(4)), SequenceWrapper([1, 2])
    for kind, text, bad in (
        (AssertionError, "Batch size is required to be larger than 0", lambda: w.batch(0)),
        (ValueError, "Expected `num_instances` larger than 0", lambda: w.fork(0)),
        (
            ValueError,
            "classification fn should be between 0 and 1. 5 is returned",
            lambda: list(w.demux(2, lambda x: 5)[0]),
        ),
        (TypeError, "Expected all inputs to be `IterDataPipe`", lambda: w.concat(3)),
        (TypeError, "All inputs are required to be `IterDataPipe`", lambda: w.zip(3)),
        (TypeError, "has no len", lambda: len(w.filter(bool))),
        (
            IndexError,
            "unbatch_level 1 exceeds the depth of the DataPipe\nThis exception is thrown by __iter__ of UnBatcher",
            lambda: list(w.unbatch()),
        ),
        (
            ValueError,
            "Boolean output is required for `filter_fn` of FilterIterDataPipe",
            lambda: list(w.filter(lambda x: x)),
        ),
        (TypeError, "A callable function is expected", lambda: w.map(3)),
        (ValueError, "takes 2 positional parameters, but 1 are required", lambda: w.map(lambda x, y: x)),
        (
            ValueError,
            "instance_id(2) should be smaller than num_of_instances(2)",
            lambda: w.sharding_filter().apply_sharding(2, 2),
        ),
        (IndexError, "Index 9 is out of range", lambda: m.concat(m)[9]),
        (IndexError, "out of range for one of the input MapDataPipes SequenceWrapperMapDataPipe", lambda: m.zip(m)[2]),
        (AttributeError, "'IterableWrapperIterDataPipe' object has no attribute 'foo'", lambda: w.foo),
        (Exception, "name batch as it is already taken", lambda: data.functional_datapipe("batch")(type(w))),
    ):
        with pytest.raises(kind) as caught:
            bad()
        assert text in str(caught.value)


def test_steps_of_ones_own() -> None:
    @data.functional_datapipe("tripled_in_this_test")
    class Tripled(data.IterDataPipe[int]):
        def __init__(self, source: Any) -> None:
            self.source = source

        @data.runtime_validation
        def __iter__(self) -> Any:
            for x in self.source:
                yield x * 3

    assert list(IterableWrapper([1, 2]).tripled_in_this_test()) == [3, 6]
    words = IterableWrapper(["a"]).tripled_in_this_test()
    with pytest.raises(RuntimeError, match="Expected an instance as subtype of <class 'int'>"):
        list(words)
    with data.runtime_validation_disabled():
        assert list(words) == ["aaa"]

    @data.non_deterministic
    class Loose(data.IterDataPipe[int]):
        pass

    assert type(Loose()).__name__ == "Loose"
    with data.guaranteed_datapipes_determinism(), pytest.raises(TypeError, match="Loose is non-deterministic"):
        Loose()
    copied = pickle.loads(pickle.dumps(IterableWrapper([1, 2]).batch(2)))
    assert list(copied) == [[1, 2]]


def test_files(tmp_path: pathlib.Path) -> None:
    for name in ("b.txt", "a.txt", "c.bin"):
        (tmp_path / name).write_text(name * 2)
    listed = data.datapipes.iter.FileLister(str(tmp_path), masks="*.txt")
    assert [os.path.basename(path) for path in listed] == ["a.txt", "b.txt"]
    read = listed.open_files(mode="b").read_from_stream(8)
    assert [piece for _, piece in read] == [b"a.txta.t", b"xt", b"b.txtb.t", b"xt"]


def test_python_random_state_of_the_program_is_left_alone() -> None:
    random.seed(1)
    expected = random.getstate()
    list(DataLoader(Many(), num_workers=2))
    assert random.getstate() == expected

"""Pages of `torch.distributed` that launchers import: options from the environment, devices by name, redirected output."""

from __future__ import annotations

import argparse
import io
import os
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight.distributed import c10d_logger
from rushlight.distributed.argparse_util import check_env, env
from rushlight.distributed.collective_utils import all_gather, broadcast
from rushlight.distributed.elastic.multiprocessing.redirects import redirect
from rushlight.distributed.elastic.multiprocessing.tail_log import TailLog
from rushlight.distributed.elastic.rendezvous.endpoints import parse_rendezvous_endpoint
from rushlight.distributed.elastic.utils.data import CyclingIterator, ElasticDistributedSampler
from rushlight.distributed.remote_device import _remote_device
from rushlight.nn.parallel._functions import Broadcast, Gather, Scatter, _get_stream
from rushlight.utils.file_baton import FileBaton


@pytest.mark.parametrize(
    ("text", "shown", "rank", "worker"),
    [
        ("trainer0/cpu", "trainer0/cpu", None, "trainer0"), ("trainer0", "trainer0/cpu", None, "trainer0"),
        ("rank:1/cuda:0", "rank:1/cuda:0", 1, None), ("rank:0", "rank:0/cpu", 0, None), ("cuda:1", "cuda:1", None, None),
        (torch.device("cpu"), "cpu", None, None),
    ],
)  # fmt: skip
def test_devices_of_other_processes(text: Any, shown: str, rank: int | None, worker: str | None) -> None:
    device = _remote_device(text)
    assert (repr(device), device.rank(), device.worker_name()) == (shown, rank, worker)
    assert device == _remote_device(shown) and hash(device) == hash(_remote_device(shown))


@pytest.mark.parametrize("text", ["a/b/c", "/cpu", "a:b/cpu", "a:b:c", "rank:x", ""])
def test_texts_that_name_no_device(text: str) -> None:
    with pytest.raises(ValueError, match="Could not parse remote_device"):
        _remote_device(text)
    with pytest.raises(TypeError, match="Invalid type"):
        _remote_device(3)  # type: ignore[arg-type]


def test_options_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("FOO", "x"), ("BAR", "1"), ("BAZ", "0")):
        monkeypatch.setenv(f"PET_{name}", value)
    parser = argparse.ArgumentParser()
    parser.add_argument("-f", "--foo", action=env, required=True)
    parser.add_argument("--bar", action=check_env)
    parser.add_argument("--baz", action=check_env, default=True)
    parser.add_argument("--other", action=env, default="d")
    assert vars(parser.parse_args([])) == {"foo": "x", "bar": True, "baz": False, "other": "d"}
    assert vars(parser.parse_args(["--foo", "a", "--baz"])) == {"foo": "a", "bar": True, "baz": True, "other": "d"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, ("localhost", 7)), (" ", ("localhost", 7)), ("h", ("h", 7)), ("h:1", ("h", 1)), ("h:65535", ("h", 65535)),
        ("[::1]", ("::1", 7)), ("[::1]:3", ("::1", 3)), ("::1:5", ("::1", 5)), ("h:", "port"), ("h:99999", "port"),
        ("h:x", "port"), ("a b:3", "hostname"), (":5", "hostname"), ("[h", "hostname"),
    ],
)  # fmt: skip
def test_where_machines_meet(text: str | None, found: Any) -> None:
    if isinstance(found, tuple):
        assert parse_rendezvous_endpoint(text, 7) == found
        return
    with pytest.raises(ValueError, match=f"^The {found}"):
        parse_rendezvous_endpoint(text, 7)


def test_objects_without_a_group() -> None:
    assert broadcast(lambda: 3) == 3 and all_gather(lambda: 5) == [5] and broadcast(3, rank=1) is None
    with pytest.raises(RuntimeError, match="Rank 0 failed: stage s: exception division by zero") as met:
        broadcast(lambda: 1 / 0, stage_name="s")
    assert isinstance(met.value.__cause__, ZeroDivisionError)
    with pytest.raises(RuntimeError, match="all_gather failed with exception"):
        all_gather(lambda: 1 / 0)
    with pytest.raises(RuntimeError, match="^Rank 0 failed$"):
        broadcast(None, success=False)
    with pytest.raises(AssertionError):
        broadcast(3, success=False)


def test_redirected_output_of_the_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with capfd.disabled(), redirect("stdout", str(tmp_path / "out")):
        print("from Python")
        os.system("echo from a shell")
    assert sorted((tmp_path / "out").read_text().splitlines()) == ["from Python", "from a shell"]
    with pytest.raises(ValueError, match="unknown standard stream <stdin>"), redirect("stdin", str(tmp_path / "in")):
        pass


def test_lines_of_growing_files(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("a\nb\n")
    shown = io.StringIO()
    tail = TailLog("worker", {0: str(tmp_path / "0"), 1: str(tmp_path / "never")}, shown, {1: "one:"}, 0.01).start()
    with open(tmp_path / "0", "a") as file:
        file.write("c\n")
    tail.stop()
    assert shown.getvalue() == "[worker0]:a\n[worker0]:b\n[worker0]:c\n" and tail.stopped()
    assert TailLog("none", {}, shown).start() is not None


def test_data_of_elastic_training() -> None:
    assert list(CyclingIterator(2, lambda epoch: iter([epoch, 1]))) == [0, 1, 1, 1]
    sampler = ElasticDistributedSampler(list(range(10)), 3, 1, start_index=3)
    sampler.set_epoch(2)
    assert list(sampler) == [7, 9, 5] and len(sampler) == 3  # PyTorch 2.13's
    with pytest.raises(ValueError, match="should be less than"):
        ElasticDistributedSampler([1], 1, 0, start_index=1)


def test_copies_between_devices_refuse_the_cpu() -> None:
    for function, arguments in ((Gather, ("cpu", 0)), (Broadcast, ([0],))):
        with pytest.raises(AssertionError, match="not implemented for CPU tensors"):
            function.apply(*arguments, torch.ones(2))
    assert _get_stream(torch.device("cpu")) is None and issubclass(Scatter, torch.autograd.Function)


def test_what_is_raised_is_logged() -> None:
    def fails() -> None:
        raise ValueError("why")

    records: list[Any] = []
    logger = c10d_logger._c10d_logger
    logger.addFilter(lambda record: records.append(record.msg) is None)
    try:
        with pytest.raises(ValueError, match="why"):
            c10d_logger._exception_logger(fails)()
    finally:
        logger.filters.clear()
    assert records == [{"func_name": "fails", "error": "why"}]


def test_a_lock_that_is_a_file(tmp_path: Path) -> None:
    one, other = FileBaton(tmp_path / "lock"), FileBaton(tmp_path / "lock")
    assert one.try_acquire() and not other.try_acquire()
    one.release()
    other.wait()
    assert not (tmp_path / "lock").exists() and other.try_acquire()

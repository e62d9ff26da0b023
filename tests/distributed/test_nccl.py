"""The NCCL engine against a library of its C interface that works on the host's memory: nothing here has seen a GPU."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.distributed.fake_cuda import build
from tests.distributed.programs import nccl_programs as programs
from tests.distributed.ranks import RankError, Ranks

import rushlight as torch
import rushlight.distributed as dist
from rushlight._distributed.engines import nccl_library


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("nccl"))


@pytest.fixture(scope="module")
def three(mpi: None, fake: Path) -> Iterator[Ranks]:
    ranks = Ranks(3, RUSHLIGHT_NCCL_LIBRARY=str(fake))
    yield ranks
    ranks.close()


def fresh(fake: Path) -> Ranks:
    return Ranks(2, RUSHLIGHT_NCCL_LIBRARY=str(fake))


@pytest.mark.parametrize("program", ["reductions", "refusals", "moves", "messages", "groups"])
def test_three_ranks(three: Ranks, program: str) -> None:
    three.run(getattr(programs, program))


def test_streams_are_ordered_and_the_caller_does_not_wait(three: Ranks) -> None:
    assert three.run(programs.streams) == [[3.0]] * 3


@pytest.mark.distributed
def test_trains_as_one_process(three: Ranks) -> None:
    found = three.run(programs.trained)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    torch.manual_seed(1)
    x, y = torch.randn(8, 4), torch.randn(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = torch.stack([(model(x[k::3]) - y[k::3]).square().mean() for k in range(3)]).mean()
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
    assert found[0] == found[1] == found[2] == pytest.approx(expected, rel=1e-5)


@pytest.mark.distributed
def test_without_a_store(fake: Path) -> None:
    ranks = fresh(fake)
    found = ranks.run(programs.without_store)
    ranks.close()
    assert all("under mpiexec there is none" in text for text in found)


@pytest.mark.distributed
def test_random_numbers_are_those_of_the_first_process(three: Ranks) -> None:
    found = three.run(programs.random_tensors)
    assert found[0] == found[1] == found[2]


@pytest.mark.distributed
def test_divided_models_train_as_one_process(three: Ranks) -> None:
    found = three.run(programs.divided)
    torch.manual_seed(1)
    data, target = torch.randn(8, 6), torch.randn(8, 1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    expected = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = (model(data) - target).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        expected.append(loss.item())
    for row in found:
        assert row == [pytest.approx(expected, rel=1e-4)] * 2


# ***** failures *****


@pytest.mark.distributed
def test_different_calls_are_an_error_that_comes_later(fake: Path) -> None:
    ranks = fresh(fake)
    with pytest.raises(RankError) as caught:
        ranks.run(programs.different)
    ranks.close()
    for rank, text in caught.value.errors.items():
        assert re.search(
            rf"DistBackendError: rank {rank}: all_reduce\(sum\) #2 .* failed: invalid usage \(NCCL error 5", text
        )


@pytest.mark.distributed
def test_an_error_of_the_library_is_told_in_its_words(fake: Path) -> None:
    ranks = fresh(fake)
    found = ranks.run(programs.link_down)
    ranks.close()
    assert "remote error (NCCL error 6, NCCL 2.27.3: a link is down)" in found[1] and "all_reduce(sum) #" in found[1]
    assert "remote error (NCCL error 6" in found[0]


@pytest.mark.distributed
def test_a_late_rank_is_named_without_a_further_call(fake: Path) -> None:
    ranks = fresh(fake)
    found = ranks.run(programs.late)
    ranks.close()
    assert re.search(r"rank 0: timed out after .* in all_reduce\(sum\) #2 .*rank 1 has not joined", found[0]), found[0]


@pytest.mark.distributed
def test_a_rank_that_never_comes(fake: Path) -> None:
    ranks = fresh(fake)
    found = ranks.run(programs.absent_at_start)
    ranks.close()
    assert re.search(r"rank 0: timed out after .* in all_reduce\(sum\) #1", found[0]), found[0]


@pytest.mark.distributed
def test_a_dead_rank_is_named_within_a_second(fake: Path) -> None:
    ranks = fresh(fake)
    found = ranks.run(programs.dies, fails=True)
    ranks.close()
    text, rank, seconds = found[0]
    assert found[1] is None and rank == 1 and text.startswith("rank 1 died") and seconds < 1.0, found


# ***** the library *****


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match="only supported with GPUs, no GPUs found"):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    with pytest.raises(RuntimeError, match="no GPUs found"):
        dist.init_process_group("cpu:gloo,cuda:nccl", store=dist.HashStore(), rank=0, world_size=1)
    with pytest.raises(RuntimeError, match="not between devices of type 'cpu'"):
        dist.init_process_group("cpu:nccl", store=dist.HashStore(), rank=0, world_size=1)
    monkeypatch.setattr(nccl_library, "_LOADED", [])
    monkeypatch.setattr(nccl_library, "find_library", lambda: None)
    with pytest.raises(ImportError, match=r"extra 'cuda'"):
        nccl_library.nccl_library()
    monkeypatch.setattr(nccl_library, "find_library", lambda: ctypes.CDLL(None)._name or "libm.so.6")
    with pytest.raises(dist.DistBackendError, match="has no ncclGetVersion: rushlight needs NCCL 2.18"):
        nccl_library.nccl_library()
    assert not dist.is_initialized()


def test_settings_have_the_layout_of_the_header() -> None:
    config = nccl_library.Config
    offsets = {name: getattr(config, name).offset for name, _ in config._fields_}
    assert offsets == {
        "size": 0, "magic": 8, "version": 12, "blocking": 16, "cgaClusterSize": 20, "minCTAs": 24, "maxCTAs": 28, "netName": 32, "splitShare": 40,
    }  # fmt: skip
    assert ctypes.sizeof(config) == 48 and ctypes.sizeof(nccl_library.UniqueId) == 128
    made = nccl_library.non_blocking(22703)
    assert (made.size, made.magic, made.version, made.blocking) == (48, 0xCAFEBEEF, 21800, 0)


def test_the_library_of_the_wheel() -> None:
    """Where NVIDIA's wheel is installed: it loads without a GPU, and makes identities."""
    path = nccl_library.find_library()
    if path is None:
        pytest.skip("nvidia-nccl-cu12 is not installed")
    library = nccl_library.NCCLLibrary(path)
    assert library.version >= 21800

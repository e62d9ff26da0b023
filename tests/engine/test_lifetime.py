"""Memory lives as long as anything looks at it, and no longer."""

from __future__ import annotations

import gc
import os
import pathlib
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu.runtime.storage import memory_stats
from rushlight._engine.core.state import plan_counts

# ***** who keeps whom *****


def test_a_view_keeps_the_memory() -> None:
    x = torch.arange(100000.0)
    v = x[50000:]
    del x
    junk = [torch.full((100000,), -1.0) for _ in range(4)]
    assert v[0].item() == 50000
    assert len(junk) == 4


def test_numpy_keeps_the_memory() -> None:
    a = torch.arange(100000.0).numpy()
    junk = [torch.full((100000,), -1.0) for _ in range(4)]
    assert a[777] == 777
    assert len(junk) == 4


def test_an_array_is_kept_by_its_tensor() -> None:
    a = np.arange(100000.0)
    x = torch.from_numpy(a)[10:]
    alive = weakref.ref(a)
    del a
    assert alive() is not None
    assert x[0].item() == 10
    del x
    gc.collect()
    assert alive() is None


def test_dlpack_keeps_the_memory() -> None:
    a = np.from_dlpack(torch.arange(100000.0))
    junk = [torch.full((100000,), -1.0) for _ in range(4)]
    assert a[777] == 777
    assert len(junk) == 4


def test_storages_keep_the_memory() -> None:
    s = torch.arange(1000, dtype=torch.uint8).untyped_storage()
    junk = [torch.full((1000,), 7, dtype=torch.uint8) for _ in range(4)]
    assert s[200] == 200
    assert len(junk) == 4


def test_data_keeps_the_memory() -> None:
    d = torch.arange(100000.0).data
    junk = [torch.full((100000,), -1.0) for _ in range(4)]
    assert d[777].item() == 777
    assert len(junk) == 4


def test_resizing_does_not_pull_memory_from_under_views() -> None:
    x = torch.arange(100000.0)
    v = x[1:]
    x.resize_(1000000)
    junk = [torch.full((100000,), -1.0) for _ in range(4)]
    assert v[0].item() == 1
    assert x[99999].item() == 99999
    assert len(junk) == 4


def test_frombuffer_keeps_the_buffer() -> None:
    raw = bytearray(b"\x01\x02\x03\x04")
    x = torch.frombuffer(raw, dtype=torch.uint8)
    with pytest.raises(BufferError):
        raw.extend(b"more")  # it is in use
    del x
    gc.collect()
    raw.extend(b"more")


def test_read_only_buffers_warn() -> None:
    with pytest.warns(UserWarning, match="not writable"):
        assert torch.frombuffer(b"\x01\x02", dtype=torch.uint8).tolist() == [1, 2]


def test_the_graph_is_freed_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        x = torch.ones(10, requires_grad=True)
        y = (x.exp() * x).tanh()
        z = y.view(2, 5).t()[0].sigmoid().sum()
        nodes = [weakref.ref(y.grad_fn), weakref.ref(z.grad_fn)]
        alive = weakref.ref(y)
        z.backward()
        del y, z
        assert alive() is None
        assert [n() for n in nodes] == [None, None]
    finally:
        gc.enable()


def test_unused_graphs_are_freed_without_the_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        x = torch.ones(10, requires_grad=True)
        for make in (
            lambda: x.exp(),
            lambda: x.softmax(0),
            lambda: x.max(0)[0],
            lambda: (x * 1).mul_(2),
            lambda: x.sigmoid_() if False else x.sort()[0],
        ):
            y = make()
            alive = weakref.ref(y.grad_fn)
            del y
            assert alive() is None
    finally:
        gc.enable()


# ***** mapped files *****


def test_a_shared_file_sees_writes(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "numbers.bin"
    x = torch.from_file(str(path), shared=True, size=4, dtype=torch.int32)
    assert x.shape == (4,) and x.dtype is torch.int32 and x.tolist() == [0, 0, 0, 0]
    x[1] = 7
    again = torch.from_file(path, shared=True, size=4, dtype=torch.int32)
    assert again.tolist() == [0, 7, 0, 0]
    again.add_(1)
    assert x.tolist() == [1, 8, 1, 1]
    assert np.fromfile(path, dtype=np.int32).tolist() == [1, 8, 1, 1]


def test_a_private_file_keeps_its_content(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "numbers.bin"
    np.arange(5, dtype=np.float32).tofile(path)
    x = torch.from_file(str(path), size=5)
    x.mul_(10)
    assert x.tolist() == [0, 10, 20, 30, 40]
    assert np.fromfile(path, dtype=np.float32).tolist() == [0, 1, 2, 3, 4]
    part = torch.from_file(str(path), size=2)
    assert part.tolist() == [0, 1]


def test_mapped_memory_outlives_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "numbers.bin"
    np.arange(5, dtype=np.float32).tofile(path)
    view = torch.from_file(str(path), size=5)[2:]
    os.unlink(path)
    gc.collect()
    assert view.tolist() == [2, 3, 4]


def test_mapped_storages(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "bytes.bin"
    path.write_bytes(bytes(range(8)))
    s = torch.UntypedStorage.from_file(str(path), False, 4)
    assert s.tolist() == [0, 1, 2, 3]
    s = torch.UntypedStorage.from_file(str(path), True, 12)
    assert path.stat().st_size == 12
    s[0] = 9
    assert path.read_bytes()[0] == 9
    x = torch.empty(0, dtype=torch.int32).set_(s, 1, (2,), (1,))
    assert x.tolist() == [0x07060504, 0]


def test_files_that_cannot_be_mapped(tmp_path: pathlib.Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)nothing.bin"):
        torch.from_file(str(tmp_path / "nothing.bin"), size=3)
    small = tmp_path / "small.bin"
    small.write_bytes(b"123")
    with pytest.raises(RuntimeError, match="3"):
        torch.from_file(str(small), size=3)
    with pytest.raises(RuntimeError):
        torch.from_file(str(tmp_path), shared=True, size=3)
    assert torch.from_file(str(small), size=0).shape == (0,)


# ***** nothing grows *****


def live() -> int:
    gc.collect()
    return int(memory_stats()["allocated"])


def train(steps: int, size: int = 16) -> Any:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(size, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x, y = torch.randn(4, size), torch.tensor([0, 1, 2, 1])
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
    return loss.item()


@pytest.mark.slow
def test_training_steps_hold_no_memory() -> None:
    train(3)
    before = live()
    train(50)
    assert live() <= before + 4096


def test_steps_make_no_plans() -> None:
    train(3)
    before = plan_counts()
    train(30)
    assert plan_counts() == before


@pytest.mark.slow
def test_errors_in_backward_hold_no_memory() -> None:
    def once() -> None:
        x = torch.ones(1000, requires_grad=True)
        y = x * 2
        z = (y * y).sum()
        y.add_(1)
        with pytest.raises(RuntimeError):
            z.backward()

    once()
    before = live()
    for _ in range(20):
        once()
    assert live() <= before + 4096


def test_views_of_one_base_do_not_pile_up() -> None:
    x = torch.zeros(1000)
    for i in range(1000):
        x[i]
    assert len(x._autograd_meta.views) < 50


def test_new_sizes_make_no_kernels() -> None:
    from rushlight._backends.cpu.kernels import _KERNELS

    def step(n: int) -> None:
        x = torch.ones(n, 7, requires_grad=True)
        (x.exp() * 3 + x).sum().backward()

    for n in range(20, 24):
        step(n)
    before = len(_KERNELS)
    for n in range(24, 44):
        step(n)
    assert len(_KERNELS) <= before + 2


@pytest.mark.slow
def test_double_backward_holds_no_memory() -> None:
    def once() -> None:
        x = torch.ones(1000, requires_grad=True)
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        assert h[0].item() == 6

    once()
    before = live()
    for _ in range(20):
        once()
    assert live() <= before + 8192


def test_pickles_keep_what_shares_together() -> None:
    x = torch.arange(6.0)
    a, b = pickle.loads(pickle.dumps((x, x[2:])))
    b[0] = 50
    assert a.tolist() == [0, 1, 50, 3, 4, 5]


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from rushlight._engine.core import state

    monkeypatch.setattr(state, "MAX_PLANS", 300)
    most = 0
    for n in range(1, 120):
        x = torch.ones(n, requires_grad=True)
        ((x * 2 + 1) * x).sum().backward()
        assert x.grad[0].item() == 5
        most = max(most, plan_counts())
    assert most <= 300


@pytest.mark.slow
def test_tables_of_forgotten_plans_are_forgotten() -> None:
    from rushlight._engine.core import state

    def many(start: int) -> None:
        for n in range(start, start + 40):
            (torch.ones(n, requires_grad=True) * 2).sum().backward()

    many(100)
    state.clear_plans()
    gc.collect()
    before = len(state._TABLES)
    many(200)
    state.clear_plans()
    gc.collect()
    assert len(state._TABLES) <= before + 4


@pytest.mark.slow
def test_specs_of_forgotten_shapes_are_forgotten() -> None:
    from rushlight._engine.core import state
    from rushlight._types.spec import _RECENT, _TABLE

    def settle() -> None:
        state.clear_plans()
        _RECENT.clear()  # the latest specs are kept for reuse
        gc.collect()

    settle()
    before = len(_TABLE)
    for n in range(300, 360):
        (torch.ones(n) + 1).exp()
    settle()
    assert len(_TABLE) <= before + 10

"""Memory: statistics, pictures, pools, pinned memory, and what happens when there is none."""

import gc
import json
import pickle
import tempfile

import numpy as np
import pytest

import rushlight as torch

MB = 1 << 20


def page_statistics() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    x = torch.empty(3 * MB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() == before + 3 * MB and torch.cuda.memory_reserved() >= 20 * MB
    del x
    assert torch.cuda.memory_allocated() == before and torch.cuda.max_memory_allocated() == before + 3 * MB
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == before and stats["num_ooms"] >= 0
    assert stats["allocated_bytes.large_pool.peak"] >= 3 * MB and "segment.small_pool.freed" in stats
    assert torch.cuda.memory_stats_as_nested_dict()["active"]["all"]["current"] == stats["active.all.current"]
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocated_bytes.all.allocated"] == 0
    assert torch.cuda.mem_get_info()[1] == 256 * MB and torch.cuda.get_allocator_backend() == "native"
    lines = torch.cuda.memory_summary().splitlines()
    assert len({len(line) for line in lines if line}) == 1 and "Allocated memory" in torch.cuda.memory_summary(
        abbreviated=True
    )


def page_a_picture_of_what_is_held() -> None:
    torch.cuda.memory._record_memory_history()
    x = torch.ones(100, device="cuda:1")
    segment = next(s for s in torch.cuda.memory_snapshot() if s["device"] == 1)
    assert set(segment) >= {
        "address",
        "total_size",
        "allocated_size",
        "active_size",
        "stream",
        "segment_type",
        "segment_pool_id",
        "blocks",
    }
    block = next(b for b in segment["blocks"] if b["state"] == "active_allocated")
    assert (
        block["size"] == 512
        and block["requested_size"] == 400
        and block["frames"][0]["name"] == "page_a_picture_of_what_is_held"
    )
    assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"] and x.device.index == 1
    torch.cuda.memory._record_memory_history(None)
    with tempfile.TemporaryDirectory() as folder:
        torch.cuda.memory._dump_snapshot(f"{folder}/a.pickle")
        torch.cuda.memory._dump_snapshot(f"{folder}/a.json")
        with open(f"{folder}/a.pickle", "rb") as one, open(f"{folder}/a.json") as other:
            assert len(pickle.load(one)["segments"]) == len(json.load(other)["segments"]) > 0


def page_shortage() -> None:
    torch.cuda.empty_cache()
    kept = torch.empty(100 * MB, dtype=torch.uint8, device="cuda")
    with pytest.raises(
        torch.OutOfMemoryError,
        match=r"Tried to allocate 200.00 MiB(.|\n)*100.00 MiB made at .*memory.py:\d+ in page_shortage: kept = ",
    ) as met:
        torch.empty(200 * MB, dtype=torch.uint8, device="cuda")
    assert isinstance(met.value, torch.cuda.OutOfMemoryError) and isinstance(met.value, RuntimeError)
    assert torch.cuda.memory_stats()["num_ooms"] == 1 and kept.numel() == 100 * MB
    del kept
    torch.empty(200 * MB, dtype=torch.uint8, device="cuda")
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.25)
    assert torch.cuda.get_per_process_memory_fraction() == 0.25
    with pytest.raises(torch.OutOfMemoryError, match="memory fraction"):
        torch.empty(80 * MB, dtype=torch.uint8, device="cuda")
    torch.cuda.set_per_process_memory_fraction(1.0)
    with pytest.raises(ValueError, match="Allowed range: 0~1"):
        torch.cuda.set_per_process_memory_fraction(1.5)


def page_pools() -> None:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(1000, device="cuda")
    y = torch.ones(1000, device="cuda")
    assert pool.use_count() == 1 and len(pool.snapshot()) == 1
    held = [b["address"] for s in pool.snapshot() for b in s["blocks"]]
    assert x.data_ptr() in held and y.data_ptr() not in held
    address = torch.cuda.caching_allocator_alloc(4096)
    torch.cuda.caching_allocator_delete(address)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        torch.cuda.caching_allocator_delete(address)


def page_pinned_memory() -> None:
    x = torch.arange(1000.0)
    assert not x.is_pinned()
    pinned = x.pin_memory()
    assert pinned.is_pinned() and pinned.pin_memory() is pinned and pinned.equal(x) and pinned[3:].is_pinned()
    there = pinned.to("cuda", non_blocking=True)
    pinned.zero_()  # too early: the copy was only begun
    assert there.sum().item() == 0.0
    back = there.add_(1).to("cpu", non_blocking=True)
    assert back.is_pinned()
    torch.cuda.synchronize()
    assert back.sum().item() == 1000.0
    back.fill_(0)
    back.copy_(there, non_blocking=True)
    torch.cuda.synchronize()
    assert back.sum().item() == 1000.0
    assert x.to("cuda", non_blocking=True).sum().item() == x.sum().item()
    assert torch.cuda.host_memory_stats()["allocated_bytes.all.current"] > 0
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        there.pin_memory()
    assert pinned.untyped_storage().is_pinned() and x.untyped_storage().pin_memory().is_pinned()


def page_factories_pin() -> None:
    for _ in range(3):  # whatever is kept of a call
        for made in (
            torch.empty(3, 2, pin_memory=True), torch.zeros(4, pin_memory=True), torch.tensor([1, 2], pin_memory=True), torch.ones_like(torch.ones(2), pin_memory=True),
            torch.full_like(torch.ones(2), 3.0, pin_memory=True), torch.ones(2).new_zeros(2, pin_memory=True), torch.ones(1).new_full((2,), 1.0, pin_memory=True),
        ):  # fmt: skip
            assert made.is_pinned() and not made.requires_grad
        assert not torch.zeros(4).is_pinned() and torch.zeros(4, pin_memory=True, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch.zeros(4, device="cuda", pin_memory=True)


def page_a_loader_pins_its_batches() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(10.0), torch.arange(10))
    for xs, ys in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert xs.is_pinned() and ys.is_pinned() and xs.to("cuda", non_blocking=True).is_cuda
    one = [{"a": torch.ones(2), "b": ("text", [torch.zeros(1)])}]
    batch = next(iter(torch.utils.data.DataLoader(one, batch_size=None, pin_memory=True)))
    assert batch["a"].is_pinned() and batch["b"][1][0].is_pinned() and batch["b"][0] == "text"


def page_storages() -> None:
    x = torch.arange(4, dtype=torch.int32, device="cuda")
    storage = x.untyped_storage()
    assert storage.is_cuda and storage.device == x.device and storage.cpu().tolist()[:5] == [0, 0, 0, 0, 1]
    storage.resize_(32)
    assert storage.nbytes() == 32 and x.tolist() == [0, 1, 2, 3]
    assert torch.ones(2).untyped_storage().cuda().is_cuda
    older = torch.cuda.IntStorage([1, 2])
    assert isinstance(older, torch.cuda.IntStorage) and older.is_cuda and older.cpu().tolist() == [1, 2]
    assert not isinstance(torch.IntStorage([1]), torch.cuda.IntStorage) and len(torch.cuda.FloatStorage(3)) == 3
    clone = x.clone()
    x[2] = 9
    assert clone.tolist() == [0, 1, 2, 3] and x.tolist() == [0, 1, 9, 3]


def page_exchange_by_the_cuda_array_interface() -> None:
    x = torch.arange(6, dtype=torch.float32, device="cuda").reshape(2, 3)
    shown = x.__cuda_array_interface__
    assert shown == {"typestr": "<f4", "shape": (2, 3), "strides": None, "data": (x.data_ptr(), False), "version": 2}
    assert x.t().__cuda_array_interface__["strides"] == (4, 12)
    assert [torch.ones(1, dtype=d, device="cuda").__cuda_array_interface__["typestr"] for d in (torch.bool, torch.uint8, torch.int64, torch.complex64)] == [
        "|b1", "|u1", "<i8", "<c8",
    ]  # fmt: skip
    with pytest.raises(RuntimeError, match="requires grad"):
        x.clone().requires_grad_().__cuda_array_interface__
    with pytest.raises(AttributeError, match="non-CUDA tensor type"):
        torch.ones(1).__cuda_array_interface__

    class Theirs:
        """An array of another library."""

        def __init__(self, tensor):
            self.tensor = tensor
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__

    y = torch.as_tensor(Theirs(x.t()), device="cuda")
    assert y.data_ptr() == x.data_ptr() and y.shape == (3, 2) and y.stride() == (1, 3) and y.tolist() == x.t().tolist()
    y[0, 0] = 50.0
    assert x[0, 0].item() == 50.0


def page_exchange_by_dlpack() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64):
        x = torch.ones(2, 3, dtype=dtype, device="cuda:1").t()
        assert x.__dlpack_device__() == (2, 1)
        y = torch.from_dlpack(x)
        z = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))

        class Theirs:
            """Another library's array, by the protocol alone."""

            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, **options):
                return self.tensor.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.tensor.__dlpack_device__()

        for other in (y, z, torch.from_dlpack(Theirs(x))):
            assert other.data_ptr() == x.data_ptr() and other.dtype == dtype and other.device == x.device, dtype
            assert other.shape == (3, 2) and other.stride() == (1, 3)
    address, held = x.data_ptr(), torch.cuda.memory_allocated(1)
    del x, y, other
    gc.collect()
    assert torch.cuda.memory_allocated(1) == held and z.data_ptr() == address  # the capsule's memory lives on
    del z
    gc.collect()
    assert torch.cuda.memory_allocated(1) < held
    with pytest.raises(BufferError, match="requires? grad"):
        torch.ones(1, device="cuda", requires_grad=True).__dlpack__()


def page_files() -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = {"w": torch.arange(3.0, device="cuda:1")}
        torch.save(state, f"{folder}/a.pt")
        assert torch.load(f"{folder}/a.pt")["w"].device == torch.device("cuda:1")
        assert torch.load(f"{folder}/a.pt", map_location="cuda:0")["w"].device == torch.device("cuda:0")
        assert torch.load(f"{folder}/a.pt", map_location="cpu")["w"].tolist() == [0.0, 1.0, 2.0]
    assert np.asarray(state["w"].cpu()).tolist() == [0.0, 1.0, 2.0]


def page_memory_that_calls_without_python_used_goes_back() -> None:
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    kept = [torch.ones(100 + i, device="cuda") for i in range(40)]
    for _ in range(3):
        made = [x + 1 for x in kept]
    del kept, made
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before
    with pytest.raises(torch.OutOfMemoryError, match=r"is held by \d tensors"):
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")

"""Records of memory in the form of PyTorch's viewer, and allocators of a program's own."""

import ctypes
import gc
import pickle
import tempfile

import pytest

import rushlight as torch
from rushlight.cuda import memory
from rushlight.cuda.access import gpus

MB = 1 << 20
ENTRY = {"action", "size", "stream", "pool_id", "time_us", "frames", "compile_context", "user_metadata"}


def events(device=0):
    return memory._snapshot()["device_traces"][device]


def page_events_are_recorded_in_their_order() -> None:
    torch.cuda.empty_cache()
    early = torch.empty(3 * MB, dtype=torch.uint8, device="cuda")
    memory._record_memory_history(max_entries=100)
    try:
        memory._set_memory_metadata("step 1")
        x = torch.empty(5 * MB, dtype=torch.uint8, device="cuda")
        y = torch.ones(10, device="cuda")
        traceback = memory._allocation_traceback(y.data_ptr())
        assert (
            traceback[0]["name"] == "page_events_are_recorded_in_their_order"
            and "memory_history.py" in traceback[0]["filename"]
        )
        address, stream = x.data_ptr(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x.record_stream(stream)
        del x, early
        torch.cuda.synchronize()
        torch.cuda.memory_stats(), torch.cuda.empty_cache()
        found = events()
        assert all(set(e) >= ENTRY and e["user_metadata"] == "step 1" for e in found)
        of_x = [e["action"] for e in found if e.get("addr") == address]
        assert [a for a in of_x if "segment" not in a] == ["alloc", "free_requested", "free_completed"]
        assert [e["action"] for e in found].count("free_requested") == 2  # that of memory lent before, too
        assert {"segment_alloc", "segment_free"} <= {e["action"] for e in found}
        times = [e["time_us"] for e in found]
        assert times == sorted(times) and next(e for e in found if e["action"] == "alloc")["frames"][0]["line"] > 0
        block = next(b for s in memory._snapshot()["segments"] for b in s["blocks"] if b["address"] == y.data_ptr())
        assert block["frames"][0] == traceback[0] and len(block["frames"]) > 1
        assert "snapshot" in [e["action"] for e in events()]
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
        shortage = next(e for e in reversed(events()) if e["action"] == "oom")
        assert shortage["size"] == 1 << 40 and shortage["device_free"] > 0 and "addr" not in shortage
    finally:
        memory._set_memory_metadata("")
        memory._record_memory_history(None)
    assert not events() and memory._allocation_traceback(y.data_ptr()) is None


def page_less_can_be_recorded() -> None:
    try:
        memory._record_memory_history("state")
        x = torch.ones(7, device="cuda")
        assert not events() and memory._allocation_traceback(x.data_ptr())
        memory._record_memory_history("all", context=None, max_entries=2)
        kept = [torch.ones(7, device="cuda") for _ in range(4)]
        assert [(e["action"], e["frames"]) for e in events()] == [("alloc", [])] * 2 and len(kept) == 4
        memory._record_memory_history("all", context="alloc", clear_history=True, skip_actions=["free_requested"])
        del kept
        assert {e["action"] for e in events()} == {"free_completed"}
        for wrong in ({"enabled": "some"}, {"context": "some"}, {"stacks": "c"}, {"skip_actions": ["malloc"]}):
            with pytest.raises(RuntimeError, match="expected|no action"):
                memory._record_memory_history(**wrong)
    finally:
        memory._record_memory_history(None)


def page_a_dump_has_the_parts_of_a_snapshot() -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory._dump_snapshot(f"{folder}/a.pickle")
        with open(f"{folder}/a.pickle", "rb") as file:
            found = pickle.load(file)
    assert set(found) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    assert found["allocator_settings"]["max_split_size"] == -1 and len(found["device_traces"]) == 2
    for segment in found["segments"]:
        assert sum(b["size"] for b in segment["blocks"]) == segment["total_size"]


class Counted:
    """An allocator of C functions that are Python's, on the driver."""

    def __init__(self, budget=1 << 40) -> None:
        self.log, self.budget = [], budget

        def allocate(size, device, stream):
            self.log.append(("allocate", size, device, stream or 0))
            if size > self.budget:
                return 0
            self.budget -= size
            return gpus().driver.cuMemAlloc(size)

        def release(address, size, device, stream):
            self.log.append(("release", size, device, stream or 0))
            gpus().driver.cuMemFree(address)

        self.held = (
            ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)(allocate),
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)(release),
        )
        self.made = memory._cuda_customAllocator(*(ctypes.cast(f, ctypes.c_void_p).value for f in self.held))


def page_a_pool_with_an_allocator() -> None:
    counted = Counted(budget=30 * MB)
    pool = torch.cuda.MemPool(counted.made)
    assert pool.allocator is counted.made
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(3 * MB // 4, device="cuda")
        y = x + 1
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(60 * MB, dtype=torch.uint8, device="cuda")
    assert counted.log[0] == ("allocate", 20 * MB, 0, 0) and y[5].item() == 2.0
    assert [e for e in counted.log if e[0] == "release"] == []
    del x, y, pool
    gc.collect()
    torch.cuda.empty_cache()
    assert counted.log[-1] == ("release", 20 * MB, 0, 0)


def page_pools_that_do_not_split_and_that_help() -> None:
    torch.cuda.empty_cache()
    whole = torch.cuda.MemPool(no_split=True)
    with torch.cuda.use_mem_pool(whole):
        x, y = (torch.ones(100, device="cuda") for _ in range(2))
    assert [len(s["blocks"]) for s in whole.snapshot()] == [1, 1] and x.data_ptr() != y.data_ptr()
    helper = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(helper):
        held = torch.empty(200 * MB, dtype=torch.uint8, device="cuda")
    inside = held.data_ptr()
    del held
    found = torch.empty(150 * MB, dtype=torch.uint8, device="cuda")  # of 256 in all
    assert found.data_ptr() == inside
    del found
    again = torch.empty(140 * MB, dtype=torch.uint8, device="cuda")
    assert again.data_ptr() == inside and sum(len(s["blocks"]) for s in helper.snapshot()) == 2


def page_what_is_no_allocator() -> None:
    with pytest.raises(OSError, match="none.so"):
        torch.cuda.memory.CUDAPluggableAllocator("none.so", "a", "b")
    with pytest.raises(AttributeError):
        torch.cuda.memory.CUDAPluggableAllocator("libc.so.6", "no_such_name", "free")
    made = torch.cuda.memory.CUDAPluggableAllocator("libc.so.6", "malloc", "free")
    torch.ones(1, device="cuda")
    with pytest.raises(RuntimeError, match="Can't swap an already initialized allocator"):
        torch.cuda.memory.change_current_allocator(made)

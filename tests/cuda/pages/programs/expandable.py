"""Segments that grow: `expandable_segments:True`."""

import gc

import pytest

import rushlight as torch
from rushlight.cuda import memory
from rushlight.cuda.access import gpus

MB = 1 << 20


def block(mbytes, device="cuda"):
    return torch.empty(mbytes * MB, dtype=torch.uint8, device=device)


def segments(device=0):
    return [s for s in torch.cuda.memory_snapshot() if s["device"] == device]


def begin(text="expandable_segments:True"):
    gc.collect()
    torch.cuda.empty_cache()
    memory._set_allocator_settings(text)
    return torch.cuda.mem_get_info()[0]


def end(free):
    gc.collect()
    torch.cuda.empty_cache()
    memory._set_allocator_settings("")
    assert not segments() and torch.cuda.memory_reserved() == 0
    assert torch.cuda.mem_get_info()[0] == free, torch.cuda.mem_get_info()[0] - free
    assert not gpus().driver.region.reserved.sizes  # nor are addresses kept


def page_a_segment_grows_behind_its_end() -> None:
    free = begin()
    x = block(30)
    assert torch.cuda.memory_reserved() == 40 * MB and [s["total_size"] for s in segments()] == [40 * MB]
    y = block(25)
    (only,) = segments()
    assert only["is_expandable"] and only["total_size"] == 60 * MB and only["segment_type"] == "large"
    assert y.data_ptr() == x.data_ptr() + 30 * MB and torch.cuda.mem_get_info()[0] == free - 60 * MB
    small = torch.arange(5, device="cuda")
    assert (x.fill_(3) + 1).sum().item() == 4 * 30 * MB and small.tolist() == [0, 1, 2, 3, 4]
    assert {s["total_size"] for s in segments()} >= {2 * MB}
    assert y.copy_(x[: 25 * MB])[-1].item() == 3
    del x, y, small
    end(free)


def page_pieces_do_not_prevent_a_large_tensor() -> None:
    """Every second tensor is freed: what they leave is mapped elsewhere."""
    free = begin()
    kept = [block(20) for _ in range(10)]
    kept = kept[::2]
    with pytest.raises(torch.OutOfMemoryError):
        block(200)
    large = block(120)  # more than is left, and than any piece
    assert large.fill_(7)[-1].item() == 7 and torch.cuda.memory_reserved() <= 256 * MB
    assert len(segments()) == 5 and all(s["is_expandable"] for s in segments())
    again = block(20)  # fits in between by nothing but memory that is mapped anew
    assert again.fill_(1)[0].item() == 1
    del kept, large, again
    end(free)


def page_without_it_they_do() -> None:
    free = begin("")
    kept = [block(20) for _ in range(10)][::2]
    torch.cuda.empty_cache()
    with pytest.raises(torch.OutOfMemoryError):
        block(160)
    del kept
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] == free


def page_holes_are_filled_and_joined() -> None:
    free = begin()
    a, b, c = block(40), block(40), block(40)
    base = a.data_ptr()
    del b
    torch.cuda.empty_cache()
    assert [s["total_size"] for s in segments()] == [40 * MB, 40 * MB] and torch.cuda.memory_reserved() == 80 * MB
    d = block(20)
    assert d.data_ptr() == base + 40 * MB and torch.cuda.memory_reserved() == 100 * MB
    e = block(60)  # does not fit in what is left of the hole
    assert e.data_ptr() == base + 120 * MB
    del a, c, d, e
    end(free)


def page_events_streams_and_limits() -> None:
    free = begin()
    memory._record_memory_history(context=None)
    try:
        x = block(30)
        with torch.cuda.stream(torch.cuda.Stream()):
            y = block(30)
        assert len(segments()) == 2 and y.data_ptr() != x.data_ptr() + 30 * MB  # a segment of its own
        torch.cuda.synchronize()
        del x, y
        torch.cuda.empty_cache()
        found = [e["action"] for e in memory._snapshot()["device_traces"][0]]
        assert found.count("segment_map") == found.count("segment_unmap") == 2 and "segment_alloc" not in found
    finally:
        memory._record_memory_history(None)
    torch.cuda.set_per_process_memory_fraction(0.25)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="memory fraction"):
            block(80)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    end(free)


def page_graphs_and_pools_have_segments_of_their_own() -> None:
    free = begin()
    x, graph = torch.ones(3 * MB, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2
    x.fill_(5)
    graph.replay()
    assert y[-1].item() == 10.0
    assert tuple(graph.pool()) in {tuple(s["segment_pool_id"]) for s in segments()}
    graph.reset()
    torch.cuda.graph.default_capture_stream = None
    with pytest.raises(RuntimeError, match="expandable segments has no handle for other processes"):
        gpus().export_memory(x.data_ptr(), x.device)
    del x, y, graph
    end(free)


def page_wrong_values() -> None:
    with pytest.raises(ValueError, match="expects True or False, not yes"):
        memory._set_allocator_settings("expandable_segments:yes")
    driver = gpus().driver
    for call in (
        lambda: driver.cuMemAddressReserve(100),
        lambda: driver.cuMemCreate(100, 0),
        lambda: driver.cuMemUnmap(4096, 2 * MB),
    ):
        with pytest.raises(torch.AcceleratorError, match="INVALID_VALUE"):
            call()
    address, handle = driver.cuMemAddressReserve(4 * MB), driver.cuMemCreate(2 * MB, 0)
    with pytest.raises(torch.AcceleratorError, match="not reserved"):
        driver.cuMemMap(address + 4 * MB, 2 * MB, handle)
    driver.cuMemMap(address, 2 * MB, handle)
    with pytest.raises(torch.AcceleratorError, match="not mapped"):  # nobody may use it yet
        driver.cuMemsetD8Async(address, 0, 16, 0)
    driver.cuMemSetAccess(address, 2 * MB, [0])
    driver.cuMemsetD8Async(address, 0, 16, 0)
    with pytest.raises(torch.AcceleratorError, match="some of it is mapped"):
        driver.cuMemAddressFree(address, 4 * MB)
    driver.cuMemRelease(handle)
    driver.cuMemUnmap(address, 2 * MB)
    driver.cuMemAddressFree(address, 4 * MB)

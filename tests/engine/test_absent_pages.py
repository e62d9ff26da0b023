"""Pages of PyTorch's that may be imported and whose work is not done here: every name is there, and using one says what is missing."""

from __future__ import annotations

import pytest

import rushlight as torch
import rushlight.quantization
from rushlight.ao import quantization as ao


def test_quantization() -> None:
    assert len(torch.quantization.__all__) > 150 and torch.quantization.prepare is ao.prepare
    with pytest.raises(NotImplementedError, match=r"rushlight has no torch\.ao\.quantization\.convert_jit\(\) yet"):
        ao.convert_jit(None)
    assert issubclass(ao.FakeQuantize, ao.FakeQuantizeBase) and not isinstance(torch.nn.ReLU(), ao.ObserverBase)


def test_pages_of_gpus() -> None:

    cuda = torch.cuda
    assert (
        cuda.memory.memory_allocated() == 0
        and cuda.memory_stats() == {}
        and not cuda.graphs.is_current_stream_capturing()
    )
    assert (
        cuda.graphs.CUDAGraph is cuda.CUDAGraph
        and cuda.streams.Event is cuda.Event
        and cuda.random.manual_seed is cuda.manual_seed
    )
    with cuda.memory.caching_allocator_disabled():
        cuda.seed_all()
    for use in (
        cuda.memory.memory_snapshot, cuda.graphs.graph_pool_handle, cuda.CUDAGraph, cuda.comm.broadcast, cuda.nccl.all_reduce, cuda.profiler.start,
        cuda.initial_seed, cuda.mem_get_info,
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"torch\.cuda\.[\w.]+ needs a CUDA GPU"):
            use()


@pytest.mark.oracle
def test_the_pages_have_pytorchs_names() -> None:
    import importlib

    import torch as theirs

    for page in (
        "cuda.memory",
        "cuda.graphs",
        "cuda.streams",
        "cuda.random",
        "cuda.nccl",
        "cuda.comm",
        "cuda.sparse",
        "cuda.profiler",
        "fx.operator_schemas",
    ):
        there, here = (importlib.import_module(f"{root}.{page}") for root in ("torch", "rushlight"))
        own = [
            n
            for n, v in vars(there).items()
            if not n.startswith("_") and getattr(v, "__module__", None) == there.__name__
        ]
        assert [n for n in getattr(there, "__all__", own) if not hasattr(here, n)] == []
    for page in (theirs.quantization, theirs.ao.quantization):
        here = importlib.import_module(page.__name__.replace("torch", "rushlight"))
        own = [
            n
            for n, v in vars(page).items()
            if not n.startswith("_") and getattr(v, "__module__", "").startswith("torch.ao")
        ]
        assert own and [n for n in own if not hasattr(here, n) and n != "ObserverOrFakeQuantize"] == []

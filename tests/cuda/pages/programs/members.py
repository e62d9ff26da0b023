"""Members of `torch.cuda` that programs seldom call."""

import ctypes
import io
import time

import pytest

import rushlight as torch


def page_a_stream_sleeps() -> None:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    clock = torch.cuda.get_device_properties().clock_rate  # cycles in a millisecond
    start.record()
    torch.cuda._sleep(20 * clock)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 19.0


def page_a_graph_sleeps_each_time() -> None:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.cuda._sleep(10 * torch.cuda.get_device_properties().clock_rate)
    for _ in range(2):
        before = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        assert time.perf_counter() - before >= 0.009


def page_errors_of_the_runtime_have_words() -> None:
    torch.cuda.check_error(0)
    with pytest.raises(torch.cuda.CudaError, match=r"^out of memory \(2\)$"):
        torch.cuda.check_error(2)
    runtime = torch.cuda.cudart()
    assert runtime.cudaGetErrorString(runtime.cudaError(1)) == "invalid argument" and runtime.cudaError.success == 0


def page_streams_of_the_runtime() -> None:
    runtime, handle = torch.cuda.cudart(), ctypes.c_ulonglong(0)
    assert runtime.cudaStreamCreate(ctypes.addressof(handle)) == 0 and handle.value
    stream = torch.cuda.ExternalStream(handle.value)
    with torch.cuda.stream(stream):
        x = torch.ones(3, device="cuda") * 2
    stream.synchronize()
    assert x.tolist() == [2.0, 2.0, 2.0] and torch.cuda.get_stream_from_external(handle.value, "cuda:0") == stream
    del x
    torch.cuda.synchronize()
    assert runtime.cudaStreamDestroy(handle.value) == 0


def page_memory_of_a_negative_size() -> None:
    with pytest.raises(ValueError, match="Invalid memory size: -4"):
        torch.cuda.caching_allocator_alloc(-4)


def page_numbers_of_devices() -> None:
    from rushlight.cuda._utils import _get_device_index

    assert _get_device_index(1) == _get_device_index("cuda:1") == _get_device_index(torch.cuda.device(1)) == 1
    assert _get_device_index("cuda", optional=True) == 0 and _get_device_index("cpu", allow_cpu=True) == -1
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        _get_device_index("cpu", optional=True)
    with pytest.raises(RuntimeError, match="Invalid device string: 'cuda0'"):
        _get_device_index("cuda0")


def page_what_is_not_here_says_so() -> None:
    sigmoid = torch.cuda.jiterator._create_jit_fn("template <typename T> T gate(T x, T y) { return x * y; }", y=1.0)
    assert sigmoid.__name__ == "gate"
    with pytest.raises(NotImplementedError, match=r"gate\(\) is C\+\+"):
        sigmoid(torch.ones(2, device="cuda"))
    with pytest.raises(ValueError, match="Couldn't parse code"):
        torch.cuda.jiterator._create_jit_fn("int gate(int x) { return x; }")
    with pytest.raises(RuntimeError, match="does not call libcufile"):
        torch.cuda.gds.GdsFile("data", 0)
    with pytest.raises(NotImplementedError, match="tune_gemm_in_file"):
        torch.cuda.tunable.tune_gemm_in_file("x.csv")
    torch.cuda.tunable.set_filename("found.csv", True)
    assert torch.cuda.tunable.get_filename() == "found0.csv" and not torch.cuda.tunable.is_enabled()


def page_sums_of_less_precision() -> None:
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_bf16_reduced_precision_reduction, matmul.allow_bf16_reduced_precision_reduction_split_k
    assert before == (True, True)
    for given, expected in (((False, False), (False, False)), (False, (False, True)), ([True], (True, True))):
        matmul.allow_bf16_reduced_precision_reduction = given
        found = matmul.allow_bf16_reduced_precision_reduction, matmul.allow_bf16_reduced_precision_reduction_split_k
        assert found == expected
    for wrong in (1, (), (True, 1), (True, True, True)):
        with pytest.raises(TypeError, match="allow_fp16_reduced_precision_reduction expects"):
            matmul.allow_fp16_reduced_precision_reduction = wrong
    with pytest.raises(AttributeError):
        matmul.allow_bf16_reduced_precision_reduction_split_k = True


def page_registered_memory_is_pinned() -> None:
    x, runtime = torch.ones(20), torch.cuda.cudart()
    assert not x.is_pinned() and runtime.cudaHostRegister(x.data_ptr(), 80, 0) == 0 and x.is_pinned()
    assert x.cuda(non_blocking=True).sum().item() == 20.0
    assert runtime.cudaHostUnregister(x.data_ptr()) == 0 and not x.is_pinned()


def page_properties_are_equal() -> None:
    known = torch.cuda.get_device_properties
    assert known(0) == known() and hash(known(0)) == hash(known("cuda:0")) and known(0) != known(1)


def page_an_empty_graph_warns() -> None:
    graph = torch.cuda.CUDAGraph()
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"), torch.cuda.stream(torch.cuda.Stream()):
        graph.capture_begin()
        graph.capture_end()


def page_settings_that_contradict_each_other() -> None:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    for allowed in (True, False):
        with cudnn.flags(enabled=None, allow_tf32=allowed, fp32_precision="none"):
            assert cudnn.conv.fp32_precision == cudnn.rnn.fp32_precision == ("tf32" if allowed else "none")
    try:
        cudnn.conv.fp32_precision = "none"
        with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
            cudnn.allow_tf32
        matmul.fp32_precision = "tf32"
        with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
            matmul.allow_tf32
        with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
            torch.get_float32_matmul_precision()
    finally:
        cudnn.allow_tf32 = True
        torch.set_float32_matmul_precision("highest")
    assert cudnn.allow_tf32 and not matmul.allow_tf32 and torch.get_float32_matmul_precision() == "highest"


def page_files_of_a_device_that_is_not_there() -> None:
    file = io.BytesIO()
    torch.save(torch.ones(2, device="cuda:1"), file)
    file.seek(0)
    with pytest.raises(RuntimeError, match=r"on CUDA device 5 but torch.cuda.device_count\(\) is 2"):
        torch.load(file, map_location="cuda:5")
    file.seek(0)
    assert torch.load(file, map_location={"cuda:1": "cuda:0"}).device == torch.device("cuda:0")


def page_the_current_device_is_exchanged() -> None:
    assert torch.cuda._exchange_device(1) == 0 and torch.cuda.current_device() == 1
    assert torch.cuda._maybe_exchange_device(-1) == -1 and torch.cuda._exchange_device(0) == 1
    with torch.cuda._DeviceGuard(1):
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0

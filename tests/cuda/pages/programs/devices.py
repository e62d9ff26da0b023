"""Devices, streams and events."""

import contextlib
import threading

import pytest

import rushlight as torch
from rushlight._backends.cuda.kernels import CompiledKernel


def page_devices() -> None:
    assert torch.cuda.is_available() and torch.cuda.device_count() == 2 and torch.cuda.unavailable_reason() is None
    known = torch.cuda.get_device_properties(1)
    assert known.name == torch.cuda.get_device_name("cuda:1") == "NVIDIA H200 (emulated)"
    assert (known.major, known.minor) == torch.cuda.get_device_capability() == (9, 0)
    assert known.total_memory == 256 << 20 and known.multi_processor_count == 132 and known.warp_size == 32
    assert repr(known).startswith(
        "_CudaDeviceProperties(name='NVIDIA H200 (emulated)', major=9, minor=0, total_memory=256MB"
    )
    assert torch.cuda.can_device_access_peer(0, 1) and torch.cuda.is_bf16_supported() and torch.cuda.is_tf32_supported()
    assert "sm_90" in torch.cuda.get_arch_list() and "code=sm_80" in torch.cuda.get_gencode_flags()
    with pytest.raises(AssertionError, match="Invalid device id 5"):
        torch.cuda.get_device_name(5)
    with pytest.raises(ValueError, match="Expected a cuda device, but got: cpu"):
        torch.cuda.synchronize("cpu")
    with pytest.raises(RuntimeError, match="invalid device cuda:2: there are 2 devices"):
        torch.ones(2, device="cuda:2")


def page_the_current_device_is_a_threads_own() -> None:
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(1):
        assert (
            torch.ones(1, device="cuda").device == torch.device("cuda:1")
            and torch.accelerator.current_device_index() == 1
        )
        seen = []
        thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_device()))
        thread.start()
        thread.join()
        assert seen == [0]
    assert torch.cuda.current_device() == 0
    with torch.cuda.device_of(torch.ones(1, device="cuda:1")):
        assert torch.cuda.current_device() == 1
    with torch.cuda.device_of(torch.ones(1)):
        assert torch.cuda.current_device() == 0
    torch.cuda.set_device("cuda:1")
    assert torch.cuda.current_device() == 1
    torch.cuda.set_device(0)
    with pytest.raises(RuntimeError, match="invalid device ordinal 9"):
        torch.cuda.set_device(9)


def page_the_accelerator_is_the_gpu() -> None:
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 2
    assert torch.accelerator.current_accelerator() == torch.device("cuda") and torch.device(1) == torch.device("cuda:1")
    kept = torch.ones(1000, device="cuda")
    assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() >= 4000
    assert torch.accelerator.get_memory_info()[1] == 256 << 20 and kept.device.index == 0
    torch.accelerator.synchronize()
    stream = torch.Stream("cuda")
    with stream:
        assert torch.accelerator.current_stream() == stream == torch.cuda.current_stream()
    assert torch.get_device_module("cuda") is torch.cuda


def page_tensors_move() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    y = x.cuda(1)
    assert y.is_cuda and y.device.index == 1 and y.get_device() == 1 and not x.is_cuda and y.cpu().equal(x)
    assert y.t().cuda(0).cpu().equal(x.t()) and y.t().cuda(0).stride() == (1, 3)
    assert torch.ones(2, device=0).device == torch.device("cuda:0") and x.to(1).device.index == 1
    model = torch.nn.Linear(3, 2).cuda()
    assert all(p.is_cuda for p in model.parameters()) and model(y.to(0)).shape == (2, 2)
    with torch.device("cuda:1"):
        assert torch.zeros(2).device.index == 1
    with pytest.raises(
        RuntimeError,
        match="Expected all tensors to be on the same device, but found at least two devices, cpu and cuda:1",
    ):
        y + x
    with pytest.raises(RuntimeError, match="cuda:0 and cuda:1"):
        y + y.cuda(0)
    assert (y + torch.tensor(1.0)).device == y.device  # a number's tensor may be on the CPU
    with pytest.raises(TypeError, match=r"Tensor.cpu\(\)"):
        y.numpy()
    assert torch.empty(0, device="cuda").data_ptr() == 0


def page_streams_run_beside_each_other() -> None:
    x = torch.ones(64, device="cuda")
    side = torch.cuda.Stream()
    assert torch.cuda.current_stream() == torch.cuda.default_stream() and torch.cuda.default_stream().cuda_stream == 0
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side and side.cuda_stream
        y = x * 3
    torch.cuda.current_stream().wait_stream(side)
    y.record_stream(torch.cuda.current_stream())
    assert y.sum().item() == 192.0
    side.synchronize()
    assert side.query() and side != torch.cuda.current_stream() and "cuda_stream=0x" in repr(side)
    with torch.cuda.stream(None):
        assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert torch.cuda.Stream.priority_range() == (0, -5) and torch.cuda.Stream(priority=-1).priority == -1
    with torch.cuda.stream(torch.cuda.Stream("cuda:1")):
        assert torch.cuda.current_device() == 1
    assert torch.cuda.current_device() == 0
    same = torch.cuda.ExternalStream(side.cuda_stream)
    assert same == side and same.__cuda_stream__() == (0, side.cuda_stream)
    pool = {torch.cuda.Stream().cuda_stream for _ in range(100)}
    assert len(pool) == 32


def page_a_stream_that_does_not_wait_is_found() -> None:
    """Memory freed on one stream is lent again while another may use it: an error that says what to do."""
    torch.cuda.synchronize()
    x, side = torch.ones(4096, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        kept = x + 1
    del x
    with pytest.raises(RuntimeError, match="record_stream"):
        torch.full((4096,), 7.0, device="cuda")
    torch.cuda.synchronize()
    assert kept.sum().item() == 8192.0


def page_a_copy_has_arrived_for_all_streams() -> None:
    for _ in range(8):
        x = torch.arange(64.0).cuda()
        with torch.cuda.stream(torch.cuda.Stream()):  # waits for nothing
            assert (x + 0).sum().item() == 2016.0


def page_events() -> None:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    assert "uninitialized" in repr(begin)
    begin.record()
    y = torch.ones(8, device="cuda") * 2
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) >= 0 and end.query() and end.cuda_event and y.sum().item() == 16.0
    plain = torch.cuda.Event()
    plain.record(torch.cuda.Stream())
    plain.wait()
    with pytest.raises(ValueError, match="enable_timing=True"):
        plain.elapsed_time(end)
    with pytest.raises(RuntimeError, match="does not match recording stream's device"):
        plain.record(torch.cuda.Stream("cuda:1"))
    assert isinstance(plain, torch.Event) and isinstance(torch.cuda.Stream(), torch.Stream)


def page_waiting_can_be_reported() -> None:
    x = torch.ones(2, device="cuda")
    with pytest.warns(UserWarning, match="prototype"):
        torch.cuda.set_sync_debug_mode("error")
    try:
        assert torch.cuda.get_sync_debug_mode() == 2
        with pytest.raises(RuntimeError, match="called a synchronizing CUDA operation"):
            x.cpu()
    finally:
        with pytest.warns(UserWarning):
            torch.cuda.set_sync_debug_mode(0)
    with pytest.raises(RuntimeError, match="expected one of"):
        torch.cuda.set_sync_debug_mode("loud")


def page_random_states() -> None:
    torch.cuda.manual_seed_all(5)
    assert torch.cuda.initial_seed() == 5
    state = torch.cuda.get_rng_state()
    first = torch.rand(5, device="cuda").cpu()
    torch.cuda.set_rng_state(state)
    assert torch.rand(5, device="cuda").cpu().equal(first)
    assert len(torch.cuda.get_rng_state_all()) == len(torch.cuda.default_generators) == 2
    with torch.random.fork_rng(devices=[0]):
        torch.rand(3, device="cuda")
    torch.manual_seed(9)
    assert torch.cuda.initial_seed() == 9
    torch.cuda.seed_all()
    with pytest.raises(RuntimeError, match="3 states for 2 GPUs"):
        torch.cuda.set_rng_state_all([state] * 3)


def page_copies_between_devices() -> None:
    comm, x = torch.cuda.comm, torch.arange(12.0, device="cuda").reshape(6, 2)
    pieces = comm.scatter(x, [0, 1])
    assert [p.device.index for p in pieces] == [0, 1] and comm.gather(pieces, destination=1).cpu().equal(x.cpu())
    assert comm.gather(pieces, destination="cpu").equal(x.cpu())
    assert [p.shape[0] for p in comm.scatter(x, [1, 0], chunk_sizes=[2, 4])] == [2, 4]
    assert [t.device.index for t in comm.broadcast(x, [0, 1])] == [0, 1]
    assert comm.reduce_add([x, x.to("cuda:1")], 0).cpu().equal(2 * x.cpu())
    ((a, b), (c, d)) = comm.broadcast_coalesced([x, x[0]], [0, 1])
    assert d.device.index == 1 and comm.reduce_add_coalesced([[a, b], [c, d]], 1)[1].cpu().equal(2 * x[0].cpu())
    both = [torch.full((4,), 1.0, device="cuda:0"), torch.full((4,), 2.0, device="cuda:1")]
    torch.cuda.nccl.all_reduce(both)
    assert both[1].tolist() == both[0].tolist() == [3.0] * 4
    out = [torch.empty(8, device=t.device) for t in both]
    torch.cuda.nccl.all_gather(both, out)
    assert out[1].tolist() == [3.0] * 8
    with pytest.raises(RuntimeError, match="Exactly one of 'devices' and 'out'"):
        comm.broadcast(x)


def page_marks_for_profilers() -> None:
    assert torch.cuda.nvtx.range_push("a") == 0 and torch.cuda.nvtx.range_push("b") == 1
    assert torch.cuda.nvtx.range_pop() == 1 and torch.cuda.nvtx.range_pop() == 0
    with torch.cuda.nvtx.range("step {}", 3):
        torch.cuda.nvtx.mark("here")
    torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("c"))
    with torch.cuda.profiler.profile():
        pass


def page_what_is_not_there_says_so() -> None:
    for call in (torch.cuda.utilization, torch.cuda.temperature, torch.cuda.list_gpu_processes):
        with pytest.raises(RuntimeError, match="management library"):
            call()
    for call in (torch.cuda.current_blas_handle, torch.cuda.GreenContext.create):
        with pytest.raises(NotImplementedError, match="rushlight has no"):
            call()
    torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
    with pytest.raises(torch.cuda.CudaError, match="713"):
        torch.cuda.check_error(torch.cuda.cudart().cudaHostUnregister(12345))


def page_threads_start_the_same_program() -> None:
    """Between filling in the arguments of a program and its launch no other thread fills in its own."""
    barrier, plain = threading.Barrier(2), CompiledKernel.launch
    given = [torch.full((100,), float(n), device="cuda") for n in (1, 2)]
    (given[0] * 2 + 1).sum()  # compiled
    torch.cuda.synchronize()

    def launch(self, stream, grid, words) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            barrier.wait(0.5)  # until both threads are here, if they can be
        plain(self, stream, grid, words)

    found: dict[int, float] = {}
    CompiledKernel.launch = launch  # type: ignore[method-assign]
    try:
        threads = [threading.Thread(target=lambda n=n: found.setdefault(n, given[n] * 2 + 1)) for n in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        CompiledKernel.launch = plain  # type: ignore[method-assign]
    assert [found[n].tolist()[0] for n in (0, 1)] == [3.0, 5.0]


def page_older_classes() -> None:
    there = torch.cuda.HalfTensor(2, 3)
    assert there.device.type == "cuda" and there.type() == torch.typename(there) == "torch.cuda.HalfTensor"
    assert isinstance(there, torch.cuda.HalfTensor) and not isinstance(there, torch.HalfTensor)
    x = torch.tensor([1.5, -2.0])
    for kind in (torch.cuda.LongTensor, "torch.cuda.LongTensor"):
        assert x.type(kind).device.type == "cuda" and x.type(kind).tolist() == [1, -2]
    back = torch.cuda.FloatTensor([3, 4]).type(torch.DoubleTensor)
    assert back.device.type == "cpu" and back.dtype is torch.float64 and back.tolist() == [3.0, 4.0]
    sparse = torch.cuda.sparse.FloatTensor(2, 2)
    assert sparse.device.type == "cuda" and isinstance(sparse, torch.cuda.sparse.FloatTensor)


def page_a_gpu_that_is_there_has_a_version_of_cuda():
    major, minor = map(int, torch.version.cuda.split("."))
    assert (major, minor) >= (12, 0) and torch.version.hip is None
    assert torch.backends.cuda.is_built() and torch.cuda.is_available()


def page_a_default_without_a_number_is_the_current_device():
    torch.set_default_device("cuda")
    try:
        assert torch.get_default_device() == torch.ones(1).device == torch.device("cuda:0")
        for _ in range(2):  # whatever is kept of a call
            with torch.cuda.device(1):
                assert torch.ones(1).device.index == torch.nn.Linear(1, 1).weight.device.index == 1
                with torch.device("cpu"):
                    assert torch.ones(1).device.type == "cpu"
            assert torch.ones(1).device.index == 0
        torch.set_default_device("cuda:1")
        with torch.cuda.device(0):
            assert torch.ones(1).device.index == 1
    finally:
        torch.set_default_device(None)
    with torch.device("cuda"), torch.cuda.device(1):
        assert torch.zeros(2).device.index == 1
    assert torch.ones(1).device.type == "cpu"


def page_ways_of_attention():
    from rushlight.nn.attention import SDPBackend, sdpa_kernel

    torch.manual_seed(0)
    half = torch.randn(1, 2, 8, 16, device="cuda", dtype=torch.float16)
    attend = torch.nn.functional.scaled_dot_product_attention
    full, mask, wanted = half.float(), torch.ones(8, 8, dtype=torch.bool, device="cuda"), attend(half, half, half)
    flash, efficient, cudnn = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION
    for way in (SDPBackend.MATH, flash, efficient, cudnn):
        with sdpa_kernel(way):
            assert torch.equal(attend(half, half, half), wanted), way
    for way, x, m in (
        (efficient, full, None),
        (efficient, half, mask),
        (cudnn, half, mask),
        ([flash, efficient], full, None),
    ):
        with sdpa_kernel(way):
            assert attend(x, x, x, m).shape == x.shape
    for way, x, m, why in ((flash, full, None, "one dtype"), (flash, half, mask, "no attn_mask"), (efficient, full.double(), None, "one dtype"), (cudnn, half[..., :9], None, "multiple of 8")):  # fmt: skip
        with sdpa_kernel(way), pytest.raises(RuntimeError, match=f"No available kernel.*{why}"):
            attend(x, x, x, m)
    settings = torch.backends.cuda
    asked = settings.SDPAParams(full, full, full, None, 0.0, False, False)
    assert settings.is_flash_attention_available() and settings.can_use_efficient_attention(asked)
    with pytest.warns(
        UserWarning, match="flash attention takes no such call: query, key and value must be of one dtype"
    ):
        assert not settings.can_use_flash_attention(asked, debug=True)


def page_settings_of_libraries():
    settings = torch.backends.cuda
    for name in ("cusolver", "magma", "default"):
        assert str(settings.preferred_linalg_library(name)).lower().endswith(name)
    assert settings.preferred_blas_library("cublaslt").name == "Cublaslt" and settings.preferred_blas_library("cublas")
    cache = settings.cufft_plan_cache
    assert cache.size == 0 and cache[1].max_size == cache.max_size == 4096
    cache[1].max_size = 5
    assert cache[1].max_size == cache["cuda:1"].max_size == 5 and cache.max_size == 4096
    cache.clear()
    with pytest.raises(RuntimeError, match="0 <= device index < 2, but got device with index 7"):
        cache[7]
    with pytest.raises(RuntimeError, match="read-only"):
        cache.size = 3
    assert settings.cublas_workspace_size(1 << 20) == settings.blas_workspace_size() == 1 << 20
    assert settings.blas_workspace_size(backend="cublaslt") == 32 << 20
    with pytest.raises(ValueError, match="-1 bytes"):
        settings.cublaslt_workspace_size(-1)


def page_native_names() -> None:
    native, s = torch._C, torch.cuda.Stream(device=1)
    assert native._cuda_getDeviceCount() == 2 and native._cuda_getDevice() == 0 and not native._cuda_isInBadFork()
    native._cuda_setStream(stream_id=s.stream_id, device_index=s.device_index, device_type=s.device_type)
    assert native._cuda_getDevice() == 1 and torch.cuda.current_stream() == s
    assert native._cuda_getCurrentStream(1) == (s.stream_id, 1, s.device_type)
    assert native._cuda_getCurrentRawStream(1) == s.cuda_stream and native._cuda_getDefaultStream(0)[1:] == (0, 1)
    native._cuda_setStream(*native._cuda_getDefaultStream(1))
    native._cuda_setDevice(0)
    assert native._cuda_memoryStats(0)["allocation"]["all"]["current"] >= 0
    with pytest.raises(RuntimeError, match="device_type 0"):
        native._cuda_setStream(0, 0, 0)
    with pytest.raises(AttributeError, match="_cuda_noSuchThing"):
        native._cuda_noSuchThing


def page_a_scaler_serves_several_devices() -> None:
    scaler = torch.amp.GradScaler("cuda", init_scale=4.0, growth_interval=2)
    weights = [torch.full((3,), 2.0, device=f"cuda:{k}", requires_grad=True) for k in (1, 0)]
    optimizers = [torch.optim.SGD([w], lr=1.0) for w in weights]
    for step in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        losses = scaler.scale([(w * (k + 1)).sum() for k, w in enumerate(weights)])
        assert [loss.device.index for loss in losses] == [1, 0] and scaler._scale.device.index == 1
        sum(loss.to("cuda:0") for loss in losses).backward()
        if step == 1:
            weights[1].grad[0] = float("inf")
        for optimizer in optimizers:
            scaler.step(optimizer)
        found = [scaler._found_inf_per_device(optimizer) for optimizer in optimizers]
        assert [[(d.index, f.item()) for d, f in each.items()] for each in found] == [
            [(1, 0.0)],
            [(0, float(step == 1))],
        ]
        scaler.update()
    assert weights[0].tolist() == [-1.0] * 3 and weights[1].tolist() == [-2.0] * 3
    assert scaler.get_scale() == 2.0 and scaler._get_growth_tracker() == 1  # halved after the infinity


def page_devices_that_there_are_not():
    for call in (
        lambda: torch.cuda.synchronize(9), lambda: torch.cuda.memory_allocated(9), lambda: torch.cuda.Stream(device=9), lambda: torch.cuda.current_stream(9),
    ):  # fmt: skip
        with pytest.raises(torch.AcceleratorError, match="CUDA error: invalid device ordinal 9") as met:
            call()
        assert met.value.error_code == 101
    with pytest.raises(AssertionError, match="Invalid peer device id 7"):
        torch.cuda.can_device_access_peer(0, 7)
    assert torch.cuda.Stream(device=-1).device.index == 0 and torch.cuda.synchronize(-1) is None


def page_older_names_warn():
    with pytest.warns(FutureWarning, match="renamed to `torch.cuda.memory_reserved`"):
        assert torch.cuda.memory_cached() == torch.cuda.memory_reserved()
    with pytest.warns(FutureWarning, match="renamed to `torch.cuda.max_memory_reserved`"):
        torch.cuda.max_memory_cached()
    for name in ("reset_max_memory_allocated", "reset_max_memory_cached"):
        with pytest.warns(FutureWarning, match=f"{name} now calls torch.cuda.reset_peak_memory_stats"):
            getattr(torch.cuda, name)()


def page_names_that_other_packages_use():
    called = []
    torch.cuda._lazy_call(lambda: called.append(1))
    assert called == [1] and torch.cuda._is_compiled()
    torch.cuda.manual_seed(3)
    assert torch.cuda._get_rng_state_offset() == 0
    torch.cuda._set_rng_state_offset(8)
    x = torch.rand(4, device="cuda")
    torch.cuda._set_rng_state_offset(8)
    assert torch.equal(torch.rand(4, device="cuda"), x)
    uuid = torch.cuda.get_device_properties(1).uuid
    assert len(uuid.bytes) == 16 and len(str(uuid)) == 36 and uuid != torch.cuda.get_device_properties(0).uuid


def page_events_know_their_device() -> None:
    first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    assert first.device is None
    first.record()
    with torch.cuda.device(1):
        second.record()
    assert first.device == torch.device("cuda:0") and second.device == torch.device("cuda:1")
    first.synchronize()
    second.synchronize()
    with pytest.raises(RuntimeError, match="events of two devices"):
        first.elapsed_time(second)
    assert torch.cuda.memory_allocated(torch.cuda.device(1)) == torch.cuda.memory_allocated(1)


def page_copies_between_devices_say_what_is_wrong() -> None:
    from rushlight.cuda import comm

    x = torch.arange(12.0).reshape(6, 2)
    on_gpus = comm.scatter(x.cuda(0), (0, 1), (2, 4))
    assert [p.device.index for p in on_gpus] == [0, 1] and [p.shape[0] for p in on_gpus] == [2, 4]
    whole = x.cuda(0)
    assert comm.scatter(whole, (0, 1))[0].data_ptr() == whole.data_ptr()
    assert torch.equal(comm.gather(on_gpus).cpu(), x) and comm.gather(on_gpus, destination="cpu").device.type == "cpu"
    images = torch.randn(4, 3, 2, 2).to(memory_format=torch.channels_last)
    pieces = comm.scatter(images, (0, 1))
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in (*pieces, comm.gather(pieces)))
    out = [torch.empty(2, 2, device=0), torch.empty(4, 2, device=1)]
    assert torch.equal(comm.scatter(x, out=out)[1].cpu(), x[2:]) and torch.equal(
        comm.reduce_add([out[0], out[0].cuda(1)]), out[0] * 2
    )
    for words, call in {
        "of same length": lambda: comm.scatter(x, (0,), (2, 4)),
        "'devices' must not be specified": lambda: comm.scatter(x, (0, 1), out=out),
        "at least one device": lambda: comm.scatter(x, ()),
        "at least one output tensor": lambda: comm.scatter(x, out=[]),
        "output tensor at index 0 has device 'cpu'": lambda: comm.scatter(x, out=[out[0].cpu(), out[1]]),
        "at index 0 has incorrect shape": lambda: comm.scatter(x, out=[out[0].unsqueeze(0), out[1]]),
        "along scatter dim 0 does not match": lambda: comm.scatter(x, out=[out[0][1:], out[1]]),
        "'destination' must not be specified": lambda: comm.gather(out, destination="cpu", out=x),
        "at least one tensor to gather": lambda: comm.gather(()),
        "input tensor at index 1 has device 'cpu'": lambda: comm.gather((out[0], x)),
        "same number of dimensions": lambda: comm.gather((out[0], out[1].unsqueeze(0))),
        "at index 1 has invalid shape": lambda: comm.gather((out[0], out[1][:, 1:])),
        "same shape as the source": lambda: comm.broadcast(x, out=out),
        "same GPU with one": lambda: comm.reduce_add([out[0]], 1),
    }.items():
        with pytest.raises(RuntimeError, match=words):
            call()

"""Results are on the device of what they are made from, helpers of composites included."""

import numpy as np

import rushlight as torch
import rushlight.nn.functional as F

# Of each call the result on the CPU is the truth: that of the device has its elements, its dtype, and its own place.
CALLS = {
    "bincount": lambda d: torch.tensor([1, 2, 2, 0], device=d).bincount(),
    "bincount of weights": lambda d: torch.tensor([1, 2, 2], device=d).bincount(torch.arange(3.0, device=d)),
    "quantile": lambda d: torch.quantile(torch.arange(5.0, device=d), 0.3),
    "cov": lambda d: torch.cov(torch.tensor([[1.0, 2, 4], [0, 5, 1]], device=d)),
    "isin of a number": lambda d: torch.isin(torch.arange(4, device=d), 2),
    "isin, a number": lambda d: torch.isin(2, torch.arange(4, device=d)),
    "unique rows": lambda d: torch.unique(torch.tensor([[1, 2], [1, 2], [0, 1]], device=d), dim=0, return_counts=True)[1],
    "combinations": lambda d: torch.combinations(torch.arange(4, device=d)),
    "no combinations": lambda d: torch.combinations(torch.arange(4, device=d), 0),
    "unravel_index": lambda d: torch.unravel_index(torch.tensor([5, 3], device=d), (2, 3))[1],
    "repeat_interleave": lambda d: torch.repeat_interleave(torch.tensor([1, 2], device=d)),
    "repeat_interleave of rows": lambda d: torch.repeat_interleave(torch.eye(2, device=d), torch.tensor([0, 2], device=d), 0),
    "bucketize": lambda d: torch.bucketize(0.5, torch.tensor([0.0, 1.0], device=d)),
    "searchsorted": lambda d: torch.searchsorted(torch.tensor([0.0, 1.0], device=d), 0.5),
    "nonzero_static": lambda d: torch.nonzero_static(torch.tensor([1, 0, 1], device=d), size=5),
    "matrix_power 0": lambda d: torch.linalg.matrix_power(torch.ones(2, 2, device=d), 0),
    "vander": lambda d: torch.vander(torch.arange(3.0, device=d), 0),
    "causal attention": lambda d: F.scaled_dot_product_attention(
        *[torch.arange(6.0, device=d).reshape(1, 3, 2)] * 3, is_causal=True, dropout_p=1e-9
    ),
    "fftfreq": lambda d: torch.fft.fftfreq(8, device=d),
    "rfftfreq": lambda d: torch.fft.rfftfreq(8, device=d),
    "segment_reduce": lambda d: torch.segment_reduce(torch.arange(4.0, device=d), "sum", lengths=torch.tensor([1, 3], device=d)),
    "jacobian of an unused input": lambda d: torch.autograd.functional.jacobian(
        lambda a, b: a * 2, (torch.ones(3, device=d), torch.ones(2, device=d))
    )[1],
    "a resized buffer": lambda d: torch.empty(0).to(d).resize_(3).zero_(),
    "nested": lambda d: torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], device=d).to_padded_tensor(0.0),
    "jagged": lambda d: torch.nested.nested_tensor([[1.0, 2], [3.0]], layout=torch.jagged, device=d).offsets(),
    "moved jagged": lambda d: torch.nested.nested_tensor([torch.ones(2), torch.ones(1)], layout=torch.jagged).to(d).offsets(),
    "a jagged part": lambda d: torch.nested.narrow(
        torch.ones(3, 5, device=d), 1, 0, torch.tensor([1, 2, 3], device=d), layout=torch.jagged
    ).unbind()[1],
}  # fmt: skip


def page_results_are_where_their_inputs_are() -> None:
    for name, call in CALLS.items():
        expected, found = call("cpu"), call("cuda")
        assert found.device == torch.device("cuda:0"), name
        assert found.dtype is expected.dtype and torch.allclose(found.cpu(), expected), name


def page_observers_of_a_device() -> None:
    x = torch.arange(12.0).reshape(3, 4)
    for kind in (torch.ao.quantization.HistogramObserver, torch.ao.quantization.PerChannelMinMaxObserver):
        scales = []
        for device in ("cpu", "cuda"):
            observer = kind().to(device)
            observer(x.to(device))
            scales.append(observer.calculate_qparams()[0].cpu())
        assert torch.allclose(*scales)


def page_an_interrupted_stream_leaves_the_pool_whole() -> None:
    streams = torch.cuda.Stream()._handle.devices, torch.empty(0, device="cuda")
    driver, make = streams[0].driver, streams[0].driver.cuStreamCreateWithPriority

    def fails(*args: object) -> int:
        raise KeyboardInterrupt

    driver.cuStreamCreateWithPriority = fails
    try:
        torch.cuda.Stream()
    except KeyboardInterrupt:
        pass
    finally:
        driver.cuStreamCreateWithPriority = make
    assert torch.cuda.Stream().cuda_stream and torch.cuda.Stream().cuda_stream


def page_arrays_go_where_they_are_asked_to() -> None:
    fixed = np.arange(3.0)
    fixed.setflags(write=False)
    for array in (np.arange(3.0), np.arange(6.0)[::2], fixed):
        for dtype in (None, torch.float32):
            for make in (torch.as_tensor, torch.asarray, torch.tensor):
                made = make(array, dtype=dtype, device="cuda:1")
                assert made.device == torch.device("cuda:1") and made.tolist() == array.tolist()
                assert made.dtype is (dtype or torch.float64)
    with torch.device("cuda"):
        for make in (torch.as_tensor, torch.asarray):
            assert make(np.arange(3.0)).is_cuda and make(torch.ones(1, device="cpu")).is_cuda
        assert not torch.from_numpy(np.arange(3.0)).is_cuda and not torch.FloatTensor([1.0]).is_cuda
    assert torch.as_tensor(np.arange(3.0)).device.type == "cpu"


def page_device_zero_is_a_device() -> None:
    """0 names the first GPU, also where the device is otherwise that of another tensor."""
    x = torch.randn(2, 3)
    for made in (
        torch.empty_like(x, device=0), torch.zeros_like(x, device=0), torch.ones_like(x, device=0), torch.full_like(x, 1.0, device=0),
        torch.rand_like(x, device=0), torch.randn_like(x, device=0), torch.randint_like(x, 5, device=0), x.new_empty(2, device=0),
        x.new_zeros(2, device=0), x.new_ones(2, device=0), x.new_full((2,), 1.0, device=0), x.new_tensor([1.0], device=0),
        x.new_empty_strided((2,), (1,), device=0), torch.empty(2, device=0), torch.arange(3, device=0), torch.tensor([1.0], device=0), x.to(0),
        torch.ops.aten.zeros_like(x, device=0), torch.nn.Linear(2, 2, device="meta").to_empty(device=0).weight,
        torch.nn.utils.skip_init(torch.nn.Linear, 2, 2, device=0).weight,
    ):  # fmt: skip
        assert made.device == torch.device("cuda:0"), made

"""The device beside a driver of which nothing can be seen but its calls: what runs here needs nothing of the emulation."""

import rushlight as torch
from rushlight._backends.cuda.driver import choice
from rushlight._backends.cuda.driver.emulated.driver import EmulatedDriver


class Calls:
    """The calls of the driver API, and the three attributes that `api.Driver` has."""

    emulated, marks, launch = True, None, None  # kernels are still those of the host's processor

    def __init__(self, driver: EmulatedDriver) -> None:
        self._driver = driver

    def __getattr__(self, name: str):
        if not name.startswith("cu"):
            raise AttributeError(f"a driver has no {name}")
        return getattr(self._driver, name)


_driver = EmulatedDriver(2, 256 << 20, 1)
_driver.cuInit()
choice._found = lambda: Calls(_driver)


def page_tensors() -> None:
    x = torch.arange(6.0, device="cuda").reshape(2, 3)
    assert x.sum().item() == 15.0 and (x @ x.t()).tolist() == [[5.0, 14.0], [14.0, 50.0]]
    assert "device='cuda:0'" in repr(x) and x.to("cuda:1").cpu().equal(x.cpu()) and bool((x > 4).any())
    x[0] = 7.0
    assert x.clone().t().contiguous().tolist() == [[7.0, 3.0], [7.0, 4.0], [7.0, 5.0]]


def page_results_whose_shape_depends_on_the_data() -> None:
    x = torch.tensor([3, 0, 3, 1], device="cuda")
    assert (
        x.nonzero().flatten().tolist() == [0, 2, 3] and x[x > 1].tolist() == [3, 3] and x.unique().tolist() == [0, 1, 3]
    )
    assert x.sort().values.tolist() == [0, 1, 3, 3] and x.bool().tolist() == [True, False, True, True]


def page_random_numbers_and_gradients() -> None:
    torch.cuda.manual_seed(3)
    first = torch.rand(4, device="cuda")
    torch.cuda.manual_seed(3)
    assert torch.rand(4, device="cuda").equal(first)
    layer = torch.nn.Linear(3, 2).cuda()
    torch.nn.functional.softmax(layer(torch.ones(4, 3, device="cuda")), -1)[:, 0].sum().backward()
    optimizer = torch.optim.AdamW(layer.parameters())
    optimizer.step()
    assert layer.weight.grad.shape == (2, 3)


def page_streams_memory_and_graphs() -> None:
    side, x = torch.cuda.Stream(), torch.ones(8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x + 1
    torch.cuda.current_stream().wait_stream(side)
    assert y.sum().item() == 16.0 and torch.ones(8).pin_memory().to("cuda", non_blocking=True).sum().item() == 8.0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = y * 2
    graph.replay()
    assert z.tolist() == [4.0] * 8 and torch.from_dlpack(z).tolist() == [4.0] * 8
    assert torch.as_tensor(z).data_ptr() == z.data_ptr() and torch.cuda.memory_allocated() > 0

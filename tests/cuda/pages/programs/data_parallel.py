"""`nn.DataParallel` and its parts, on two devices."""

import threading
from collections import namedtuple

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.nn.parallel import data_parallel, gather, parallel_apply, replicate, scatter


class Net(nn.Module):
    """Has a norm with running statistics, nested results, and an argument by name."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)
        self.seen: list[tuple[int, int]] = []

    def forward(self, x, *, scale=1.0, more=None):
        self.seen.append((x.device.index, threading.get_ident()))
        return {"y": self.norm(self.linear(x)) * scale, "more": (more["t"] + 1, None)}


def page_a_batch_is_split_and_joined() -> None:
    torch.manual_seed(0)
    net, x = Net().cuda(), torch.randn(5, 3)
    model = nn.DataParallel(net)
    assert model.device_ids == [0, 1] and model.output_device == 0
    t = torch.arange(5, device="cuda")
    found = model(x, scale=2.0, more={"t": t})
    assert found["y"].shape == (5, 4) and found["y"].device.index == 0 and found["more"][1] is None
    assert found["more"][0].tolist() == [1, 2, 3, 4, 5]
    assert sorted(device for device, _ in net.seen) == [0, 1] and len({thread for _, thread in net.seen}) == 2
    assert net.norm.num_batches_tracked.item() == 1 and net.norm.running_mean.abs().sum().item() > 0
    single = nn.Linear(3, 4).cuda()
    single.load_state_dict(net.linear.state_dict())
    pieces = [nn.functional.batch_norm(single(p), None, None, training=True) for p in (x[:3].cuda(), x[3:].cuda())]
    assert torch.allclose(found["y"], torch.cat(pieces) * 2, atol=1e-5)


def page_gradients_come_back() -> None:
    torch.manual_seed(1)
    plain = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).cuda()
    copy = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).cuda()
    copy.load_state_dict(plain.state_dict())
    model = nn.DataParallel(copy)
    x = torch.randn(7, 3, device="cuda", requires_grad=True)
    y = x.detach().clone().requires_grad_()
    plain(x).square().sum().backward()
    model(y).square().sum().backward()
    assert torch.allclose(x.grad, y.grad, atol=1e-5)
    for one, other in zip(plain.parameters(), copy.parameters(), strict=True):
        assert other.grad.device.index == 0 and torch.allclose(one.grad, other.grad, atol=1e-5)
    with torch.no_grad():
        assert not model(y).requires_grad
    assert torch.allclose(data_parallel(copy, y, [1, 0][::-1], output_device=1).cpu(), plain(y).cpu(), atol=1e-5)
    assert data_parallel(copy, y, output_device="cpu").device.type == "cpu"


def page_modes_reach_the_replicas() -> None:
    seen = []

    class Looks(nn.Module):
        def forward(self, x):
            seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cuda"), torch.cuda.current_device()))
            return x @ x.t()

    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        found = parallel_apply([Looks(), Looks()], [torch.ones(2, 2, device=f"cuda:{d}") for d in (0, 1)])
    assert sorted(seen) == [(False, True, 0), (False, True, 1)]
    assert [y.dtype for y in found] == [torch.bfloat16] * 2 and [y.device.index for y in found] == [0, 1]


def page_errors_of_replicas_are_raised_with_their_number() -> None:
    class Fails(nn.Module):
        def forward(self, x):
            if x.device.index == 1:
                raise ValueError("no more")
            return x

    with pytest.raises(ValueError, match=r"Caught ValueError in replica 1 on device 1.(.|\n)*no more"):
        nn.DataParallel(Fails())(torch.ones(4, 2, device="cuda"))
    with pytest.raises(
        RuntimeError, match=r"on device cuda:0 \(device_ids\[0\]\) but found one of them on device: cpu"
    ):
        nn.DataParallel(nn.Linear(2, 2))(torch.ones(4, 2, device="cuda"))
    with pytest.raises(RuntimeError, match="device cannot be resolved"):
        parallel_apply([nn.Identity()], [3])
    with pytest.raises(AssertionError, match="number of devices 1"):
        parallel_apply([nn.Identity()] * 2, [1, 2], None, [0])


def page_parts() -> None:
    Pair = namedtuple("Pair", "a b")
    x = torch.arange(6.0).reshape(3, 2)
    pieces = scatter({"p": Pair(x, "text"), "l": [x, 1]}, [0, 1])
    assert [p["p"].a.shape[0] for p in pieces] == [2, 1] and pieces[1]["p"].a.device.index == 1
    assert pieces[0]["p"].b == "text" and pieces[0]["l"][1] == 1
    joined = gather([{"k": Pair(p["p"].a, p["l"][0])} for p in pieces], 1)
    assert joined["k"].a.device.index == 1 and joined["k"].b.cpu().equal(x)
    assert len(scatter(torch.ones(1, 2), [0, 1])) == 1  # fewer pieces than devices
    with pytest.raises(ValueError, match="same number of keys"):
        gather([{"a": 1}, {}], 0)
    shared = nn.Linear(2, 2)
    net = nn.ModuleList([shared, shared]).cuda()
    one, other = replicate(net, [0, 1])
    assert other[0] is other[1] and other[0].weight.device.index == 1 and not list(other.parameters())
    assert not replicate(net, [1], detach=True)[0][0].weight.requires_grad and one[0] is not net[0]
    (other[0].weight.sum() * 2).backward()
    assert shared.weight.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    net.to("cuda:1")
    assert nn.DataParallel(shared, device_ids=[1])(torch.ones(2, 2)).device.index == 1

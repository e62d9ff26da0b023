"""What every device answers for, whatever computes on it: a class of tests, of which each device has its own.

A native read of an element of the device's memory ends the process, so a device's tests run in one process of their own.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.registry import backend_of

OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "NAdam", "RAdam", "Adamax", "Rprop", "ASGD")


class DeviceTests:
    """`DEVICE` is the type of the device, of which there are two, and `NUMBER` that type's number in PyTorch.

    `DRAWS_AS_CPU` says whether its random numbers are those of the CPU for the same seed.
    """

    DEVICE: ClassVar[str]
    NUMBER: ClassVar[int] = 20  # the place that PyTorch keeps for devices from outside
    DRAWS_AS_CPU: ClassVar[bool] = True

    def pair(self, *shape: int, requires_grad: bool = False) -> tuple[Any, Any]:
        """The same random numbers on the host and on the device."""
        host = torch.randn(*shape)
        device = host.to(self.DEVICE)
        return host.requires_grad_(requires_grad), device.requires_grad_(requires_grad)

    def alike(self, device: Any, host: Any) -> None:
        assert device.device.type == self.DEVICE
        torch.testing.assert_close(device.detach().cpu(), host.detach(), rtol=2e-5, atol=1e-6)

    def test_a_result_is_on_the_device_and_shows_it(self) -> None:
        x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], device=self.DEVICE)
        assert str(x) == "tensor([[1., 2.],\n        [3., 4.]], device='" + self.DEVICE + ":0')"
        assert x.device == torch.device(self.DEVICE, 0) and not x.is_cpu and x.get_device() == 0
        assert x.tolist() == [[1.0, 2.0], [3.0, 4.0]] and x.sum().item() == 10.0 and bool(x[0, 0] == 1)
        assert x.to(f"{self.DEVICE}:1").device.index == 1 and x.to(f"{self.DEVICE}:1").cpu().tolist() == x.tolist()
        with pytest.raises(RuntimeError, match=f"there are 2 devices of type '{self.DEVICE}'"):
            torch.zeros(1, device=f"{self.DEVICE}:2")

    def test_the_hosts_memory_is_another(self) -> None:
        x = torch.ones(2, device=self.DEVICE)
        with pytest.raises(
            TypeError, match=rf"can't convert {self.DEVICE}:0 device type tensor to numpy. Use Tensor.cpu\(\)"
        ):
            x.numpy()
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            x + torch.ones(2)
        assert x.to_sparse().device == x.device and x.to_sparse().to_dense().tolist() == [1.0, 1.0]
        if backend_of(x.device).dlpack_type == 12:  # the standard has no number for the type
            with pytest.raises(BufferError, match="share `tensor.cpu"):
                torch.from_dlpack(x)
        else:
            assert torch.from_dlpack(x).data_ptr() == x.data_ptr()
        assert (x + torch.tensor(1.0)).tolist() == [2.0, 2.0]  # 0-dim tensors of the host may stand beside

    def test_gradients_flow_through_operators_and_copies(self) -> None:
        (a, x), (b, y) = self.pair(3, 4, requires_grad=True), self.pair(4, 2, requires_grad=True)
        for first, second in ((a, b), (x, y)):
            ((first @ second).tanh() * first.sum(1, keepdim=True)).sum().backward()
        self.alike(x.grad, a.grad)
        self.alike(y.grad, b.grad)
        host = torch.ones(3, requires_grad=True)
        (host.to(self.DEVICE) * 2).sum().backward()
        assert host.grad.tolist() == [2.0, 2.0, 2.0] and host.grad.is_cpu
        (once,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        (twice,) = torch.autograd.grad(once.sum(), x)
        self.alike(twice, 6 * a.detach())

    def test_views_and_changes_in_place(self) -> None:
        a, x = self.pair(4, 6)
        for t in (a, x):
            t.t()[1:3].mul_(2)
            t[::2, 1] = 5.0
            t.view(2, 12)[1].add_(t.reshape(2, 12)[0])
            t[t > 1] = 0
            t[1].copy_(torch.arange(6.0, device=t.device))
        self.alike(x, a)
        base = torch.zeros(3, device=self.DEVICE, requires_grad=True) + 1
        base[1:].mul_(3)
        assert base.tolist() == [1.0, 3.0, 3.0]
        overlapping = x[:, 1:]
        overlapping.copy_(x[:, :-1].clone())
        x.copy_(a)
        self.alike(x, a)

    def test_indices_of_the_host_are_taken_along(self) -> None:
        a, x = self.pair(4, 5)
        rows, mask = torch.tensor([2, 0, 2]), torch.tensor([True, False, True, False])
        for t in (a, x):
            t[rows, 1] = 7.0
            t[mask] *= 2
            t[[3, 1]] = t[[1, 3]]
            t.index_put_((rows, torch.tensor([0, 1, 2])), t.new_tensor([1.0, 2.0, 3.0]))
        self.alike(x, a)
        for index in (rows, mask, (slice(None), rows), (rows, rows), a > 0, [0, 2], np.array([1, 2])):
            self.alike(x[index], a[index])
        with pytest.raises(RuntimeError, match=r"indices should be either on cpu or on the same device .* \(cpu\)"):
            a[rows.to(self.DEVICE)]

    def test_packed_sequences(self) -> None:
        a, x = self.pair(3, 4, 2)
        lengths = torch.tensor([2, 4, 3])
        lstm = torch.nn.LSTM(2, 3, batch_first=True)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        host = torch.nn.utils.rnn.pack_padded_sequence(a, lengths, batch_first=True, enforce_sorted=False)
        wanted, sizes = torch.nn.utils.rnn.pad_packed_sequence(lstm(host)[0], batch_first=True)
        found, same = torch.nn.utils.rnn.pad_packed_sequence(lstm.to(self.DEVICE)(packed)[0], batch_first=True)
        self.alike(found, wanted)
        assert same.is_cpu and same.tolist() == sizes.tolist() == [2, 4, 3]

    def test_results_whose_shape_depends_on_the_data(self) -> None:
        x = torch.tensor([3, 0, 3, 1, 0, 2], device=self.DEVICE)
        assert x.nonzero().tolist() == [[0], [2], [3], [5]] and x[x > 1].tolist() == [3, 3, 2]
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
        assert (
            values.tolist() == [0, 1, 2, 3]
            and inverse.tolist() == [3, 0, 3, 1, 0, 2]
            and counts.tolist() == [2, 1, 1, 2]
        )
        assert torch.masked_select(x, x == 3).device.type == self.DEVICE
        big = torch.arange(20000, device=self.DEVICE) % 3 == 0
        assert int(big.nonzero().numel()) == 6667

    def test_random_numbers_are_of_the_devices_own_stream(self) -> None:
        torch.manual_seed(3)
        first, host = torch.randn(20, device=self.DEVICE), torch.randn(20)
        torch.manual_seed(3)
        assert first.cpu().equal(torch.randn(20, device=self.DEVICE).cpu()) and host.equal(torch.randn(20))
        generator = torch.Generator(self.DEVICE).manual_seed(5)
        drawn = torch.rand(3, device=self.DEVICE, generator=generator)
        generator.manual_seed(5)
        host = torch.rand(3, generator=torch.Generator().manual_seed(5))
        again = torch.rand(3, device=self.DEVICE, generator=generator)
        assert drawn.equal(again) and drawn.cpu().equal(host) is self.DRAWS_AS_CPU
        with pytest.raises(RuntimeError, match=f"Expected a '{self.DEVICE}' device type for generator but found 'cpu'"):
            torch.rand(3, device=self.DEVICE, generator=torch.Generator())
        assert sorted(torch.randperm(5, device=self.DEVICE).tolist()) == list(range(5))
        assert torch.nn.functional.dropout(torch.ones(64, device=self.DEVICE)).device.type == self.DEVICE

    @pytest.mark.parametrize("name", OPTIMIZERS)
    def test_optimizers_step_as_on_the_host(self, name: str) -> None:
        torch.manual_seed(0)
        host = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
        device = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).to(self.DEVICE)
        device.load_state_dict(host.state_dict())
        data = torch.randn(7, 5)
        for model in (host, device):
            step = getattr(torch.optim, name)(model.parameters(), lr=0.05)
            for _ in range(3):
                step.zero_grad()
                model(data.to(next(model.parameters()).device)).square().mean().backward()
                step.step()
        for mine, theirs in zip(device.parameters(), host.parameters(), strict=True):
            self.alike(mine, theirs)

    def test_state_dicts_files_and_copies(self, tmp_path: Any) -> None:
        import copy
        import pickle

        model = torch.nn.Linear(3, 2).to(self.DEVICE)
        torch.save(model.state_dict(), tmp_path / "model.pt")
        again, host = torch.load(tmp_path / "model.pt"), torch.load(tmp_path / "model.pt", map_location="cpu")
        assert again["weight"].device.type == self.DEVICE and host["weight"].is_cpu
        for found in (again["weight"], copy.deepcopy(model).weight, pickle.loads(pickle.dumps(model)).weight):
            assert found.device.type == self.DEVICE and found.tolist() == model.weight.tolist()
        storage = model.weight.untyped_storage()
        assert storage.device == model.weight.device and storage.cpu().tolist() == storage.tolist()
        storage[0:4] = 0
        assert model.weight[0, 0].item() == 0.0
        assert copy.copy(model.weight).data_ptr() == model.weight.data_ptr()

    def test_transforms(self) -> None:
        a, x = self.pair(3, 4)
        self.alike(torch.func.vmap(lambda t: t.softmax(0))(x), torch.func.vmap(lambda t: t.softmax(0))(a))
        self.alike(torch.func.grad(lambda t: (t**3).sum())(x), 3 * a**2)
        for found, wanted in zip(
            torch.func.jvp(torch.sin, (x,), (x,)), torch.func.jvp(torch.sin, (a,), (a,)), strict=True
        ):
            self.alike(found, wanted)

    def test_casting_is_of_a_type_of_device(self) -> None:
        here, there = torch.ones(2, 2), torch.ones(2, 2, device=self.DEVICE)
        with torch.autocast(self.DEVICE, dtype=torch.bfloat16):
            assert (there @ there).dtype is torch.bfloat16 and (here @ here).dtype is torch.float32
        with torch.autocast("cpu"):
            assert (there @ there).dtype is torch.float32 and (here @ here).dtype is torch.bfloat16

    @pytest.mark.slow
    def test_memory_is_counted_and_given_back(self) -> None:
        import gc

        gc.collect()
        before = torch.accelerator.memory_allocated()
        held = torch.empty(1000, device=self.DEVICE)
        assert torch.accelerator.memory_allocated() == before + 4000
        del held
        gc.collect()
        assert torch.accelerator.memory_allocated() == before
        assert (
            torch.accelerator.current_accelerator() == torch.device(self.DEVICE)
            and torch.accelerator.device_count() == 2
        )
        with torch.accelerator.device_index(1):
            assert torch.zeros(1, device=self.DEVICE).device.index == 1

    def test_streams_are_the_backends(self) -> None:
        stream, event = torch.Stream(self.DEVICE), torch.Event(self.DEVICE, enable_timing=True)
        assert (
            stream.device == torch.device(self.DEVICE, 0)
            and stream.device_type == self.NUMBER
            and stream.device_index == 0
        )
        with stream:
            event.record()
            torch.ones(2, device=self.DEVICE).sum()
            after = stream.record_event(torch.Event(self.DEVICE, enable_timing=True))
        torch.accelerator.synchronize()
        assert stream.query() and event.query() and event.elapsed_time(after) >= 0
        # a device whose calls return when their work is done has one order of work alone
        several = backend_of(stream.device).asynchronous
        assert (torch.accelerator.current_stream() != stream) == several and torch.Stream("cpu") != stream
        assert torch.Stream().device == torch.Event().device == stream.device  # the accelerator's, where there is one

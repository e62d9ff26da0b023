"""Modules that are computed again in backward: same names, same losses, same gradients as without."""

from __future__ import annotations

import pytest

import rushlight as torch
from rushlight.distributed.algorithms._checkpoint import checkpoint_wrapper as wrappers
from rushlight.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.calls = torch.nn.Linear(4, 4), 0

    def forward(self, x, scale=1.0):
        self.calls += 1
        return torch.tanh(self.fc(x)) * scale


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(), Block())


@pytest.mark.parametrize("impl", list(wrappers.CheckpointImpl))
def test_wrapped_parts_are_computed_again(impl) -> None:
    plain, net = model(), model()
    wrappers.apply_activation_checkpointing(
        net, lambda part: wrappers.checkpoint_wrapper(part, impl), check_fn=lambda part: isinstance(part, Block)
    )
    x = torch.randn(3, 4, requires_grad=True)
    (net(x).sum() + net[0](x, scale=2.0).sum()).backward()
    (plain(x).sum() + plain[0](x, scale=2.0).sum()).backward()
    assert [module.calls for module in net] == [4, 2] and net[0].fc.weight is net[
        0
    ]._checkpoint_wrapped_module.fc.weight
    for ours, theirs in zip(net.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    assert list(net.state_dict()) == list(plain.state_dict())
    assert [name for name, _ in net[0].named_parameters()] == ["fc.weight", "fc.bias"]
    net.load_state_dict({name: value + 1 for name, value in plain.state_dict().items()})
    assert torch.equal(net[1].fc.bias, plain[1].fc.bias + 1)


def test_a_policy_chooses_and_tensors_are_offloaded() -> None:
    plain, net = model(), model()
    wrappers.apply_activation_checkpointing(
        net, wrappers.offload_wrapper, auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear})
    )
    assert isinstance(net[0].fc, wrappers.OffloadWrapper) and not isinstance(net[0], wrappers.OffloadWrapper)
    x = torch.randn(3, 4)
    net(x).sum().backward()
    plain(x).sum().backward()
    assert torch.equal(net[1].fc.weight.grad, plain[1].fc.weight.grad)
    with pytest.raises(ValueError, match="implement forward"):
        wrappers.ActivationWrapper(torch.nn.ReLU())(x)

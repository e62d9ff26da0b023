"""Modules that move: their parameters are the objects that they were, with other memory."""

import rushlight as torch
from rushlight import nn


def page_an_optimizer_made_before_trains_the_moved_module() -> None:
    model = nn.LSTM(3, 2)
    known = list(model.parameters())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for device in ("cuda", "cuda:1", "cpu"):
        model.to(device)
        assert all(a is b and a.is_leaf for a, b in zip(known, model.parameters(), strict=True))
        before = known[0].detach().clone()
        model(torch.ones(2, 1, 3, device=device))[0].sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        assert before.device == known[0].device == torch.ones(0, device=device).device
        assert not torch.equal(before, known[0])


def page_modules_that_share_a_parameter_still_do() -> None:
    first, last = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
    last.weight = first.weight
    model = nn.Sequential(first, last).cuda()
    assert first.weight is last.weight and len(list(model.parameters())) == 1
    model(torch.tensor([1], device="cuda")).sum().backward()
    assert first.weight.grad.is_cuda and bool(first.weight.grad.count_nonzero(1).all())


def page_hooks_and_gradients_go_along() -> None:
    layer, seen = nn.Linear(3, 2), []
    layer.weight.register_hook(lambda grad: seen.append(grad.device.type))
    layer(torch.ones(1, 3)).sum().backward()
    kept = layer.weight.grad
    layer.cuda()
    assert layer.weight.grad is kept and kept.is_cuda
    layer(torch.ones(1, 3, device="cuda")).sum().backward()
    assert kept.tolist() == [[2.0] * 3] * 2 and seen == ["cpu", "cuda"]


def page_a_view_keeps_the_memory_that_its_base_gave_up() -> None:
    base = torch.ones(2)
    view = base.view(1, 2)
    base.data = torch.zeros(3, device="cuda")
    assert base.is_cuda and base.shape == (3,) and view.tolist() == [[1.0, 1.0]]


def page_what_has_no_memory_trades_none() -> None:
    meta, real = torch.ones(2, device="meta"), torch.ones(2, device="cuda")
    assert not torch._has_compatible_shallow_copy_type(meta, real)
    assert torch._has_compatible_shallow_copy_type(real, torch.ones(2))
    for one, other in ((meta, real), (real, meta)):
        try:
            one.data = other
        except RuntimeError as error:
            assert "have incompatible tensor type" in str(error)
        else:
            raise AssertionError("data went to or from meta")


def page_modules_without_shapes_yet() -> None:
    model = nn.Sequential(nn.LazyConv2d(3, 2), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)).cuda()
    assert model(torch.ones(2, 4, 5, 5, device="cuda")).is_cuda
    assert all(x.is_cuda for x in (*model.parameters(), *model.buffers()))
    assert [type(p) for p in model.parameters()] == [nn.Parameter] * 6


def page_a_compiled_module_follows() -> None:
    layer = nn.Linear(3, 2)
    compiled = torch.compile(layer)
    for device in ("cpu", "cuda", "cpu"):
        layer.to(device)
        x = torch.ones(1, 3, device=device)
        assert torch.equal(compiled(x), layer(x)) and compiled(x).device.type == device

"""Hooks of modules: before and after forward, backward, global ones, and their handles."""

from __future__ import annotations

import pickle
import weakref
from collections import OrderedDict
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.nn.modules import module as module_page
from rushlight.utils.hooks import RemovableHandle


class Double(nn.Module):
    def forward(self, x: Any, *, plus: float = 0.0) -> Any:
        return x * 2 + plus


def values(tensor: Any) -> list[Any]:
    return tensor.detach().tolist()


def test_forward_hook_sees_and_replaces_the_output() -> None:
    net, seen = Double(), []
    handle = net.register_forward_hook(lambda m, args, out: seen.append((m, len(args), values(out))))
    assert values(net(torch.ones(1))) == [2.0]
    assert seen == [(net, 1, [2.0])]
    handle.remove()
    handle.remove()
    net.register_forward_hook(lambda m, args, out: out + 100)
    assert values(net(torch.ones(1))) == [102.0] and len(seen) == 1


def test_pre_hook_replaces_the_input() -> None:
    net = Double()
    net.register_forward_pre_hook(lambda m, args: args[0] + 1)
    assert values(net(torch.ones(1))) == [4.0]
    net.register_forward_pre_hook(lambda m, args: (args[0] * 10,))
    assert values(net(torch.ones(1))) == [40.0]


def test_keyword_arguments() -> None:
    net = Double()
    pre = net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"plus": kwargs["plus"] + 1}), with_kwargs=True)
    net.register_forward_hook(lambda m, args, kwargs, out: out * kwargs["plus"], with_kwargs=True)
    assert values(net(torch.ones(1), plus=1.0)) == [8.0]
    pre.remove()
    assert not net._forward_pre_hooks_with_kwargs
    net.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match=r"must return None or a tuple of \(new_args, new_kwargs\)"):
        net(torch.ones(1), plus=1.0)


def test_order_and_prepend() -> None:
    net, order = Double(), []
    net.register_forward_hook(lambda *a: order.append("b"))
    net.register_forward_hook(lambda *a: order.append("a"), prepend=True)
    net.register_forward_pre_hook(lambda *a: order.append("2"))
    net.register_forward_pre_hook(lambda *a: order.append("1"), prepend=True)
    net(torch.ones(1))
    assert order == ["1", "2", "a", "b"]


def test_tables_of_global_hooks_tell_how_they_are_called() -> None:
    tables = nn.modules.module
    handle = tables.register_module_forward_hook(lambda m, args, kwargs, out: None, with_kwargs=True, always_call=True)
    assert (
        list(tables._global_forward_hooks_always_called)
        == list(tables._global_forward_hooks_with_kwargs)
        == [handle.id]
    )
    handle.remove()
    assert not tables._global_forward_hooks_always_called and not tables._global_forward_hooks_with_kwargs


def test_always_called_hooks_run_after_an_error() -> None:
    class Failing(nn.Module):
        def forward(self, x: Any) -> Any:
            raise ValueError("boom")

    net, seen = Failing(), []
    net.register_forward_hook(lambda *a: seen.append("never"))
    net.register_forward_hook(lambda m, args, out: seen.append(out), always_call=True)
    with pytest.raises(ValueError, match="boom"):
        net(1)
    assert seen == [None]

    def fails(*a: Any) -> None:
        raise KeyError("second")

    net.register_forward_hook(fails, always_call=True)
    with pytest.warns(UserWarning, match="silenced"), pytest.raises(ValueError, match="boom"):
        net(1)


def test_global_hooks_run_first() -> None:
    order: list[str] = []
    net = Double()
    net.register_forward_pre_hook(lambda *a: order.append("own"))
    net.register_forward_hook(lambda *a: order.append("own after"))
    handles = [
        module_page.register_module_forward_pre_hook(lambda *a: order.append("global")),
        module_page.register_module_forward_hook(lambda *a: order.append("global after")),
    ]
    net(torch.ones(1))
    for handle in handles:
        handle.remove()
    net(torch.ones(1))
    assert order == ["global", "own", "global after", "own after", "own", "own after"]


def test_full_backward_hook_changes_the_gradient() -> None:
    net, seen = nn.Linear(2, 1), []

    def hook(m: Any, grad_input: Any, grad_output: Any) -> Any:
        seen.append((len(grad_input), values(grad_output[0])))
        return (grad_input[0] * 100,)

    net.register_full_backward_hook(hook)
    x = torch.ones(1, 2, requires_grad=True)
    net(x).sum().backward()
    assert seen == [(1, [[1.0]])]
    assert x.grad is not None
    assert values(x.grad)[0] == pytest.approx(values(net.weight * 100)[0])


def test_full_backward_pre_hook_changes_the_output_gradient() -> None:
    net = Double()
    net.register_full_backward_pre_hook(lambda m, grad_output: (grad_output[0] * 10,))
    x = torch.ones(1, requires_grad=True)
    net(x).sum().backward()
    assert values(x.grad) == [20.0]


def test_backward_hook_without_input_gradient() -> None:
    net, seen = nn.Linear(2, 1), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append((gi, values(go[0]))))
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        net(torch.ones(1, 2)).sum().backward()
    assert seen == [((None,), [[1.0]])]


def test_backward_hook_with_several_inputs_and_outputs() -> None:
    class Two(nn.Module):
        def forward(self, x: Any, n: int, y: Any) -> Any:
            return x * n, y * 2

    net, seen = Two(), []
    net.register_full_backward_hook(lambda m, gi, go: seen.append(([g is None for g in gi], len(go))))
    x, y = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    a, b = net(x, 3, y)
    (a + b).sum().backward()
    assert seen == [([False, True, False], 2)]
    assert values(x.grad) == [3.0] and values(y.grad) == [2.0]


def test_wrong_numbers_of_gradients_are_refused() -> None:
    net = Double()
    net.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    with pytest.raises(RuntimeError, match="invalid number of grad_input, got 2, but expected 1"):
        net(torch.ones(1, requires_grad=True)).sum().backward()


def test_the_two_kinds_of_backward_hooks_do_not_mix() -> None:
    net = Double()
    net.register_full_backward_hook(lambda *a: None)
    with pytest.raises(RuntimeError, match="both regular backward hooks and full backward hooks"):
        net.register_backward_hook(lambda *a: None)


def test_old_backward_hook() -> None:
    net, seen = Double(), []
    net.register_backward_hook(lambda m, gi, go: seen.append((m is net, values(go[0]))))
    x = torch.ones(1, requires_grad=True)
    with pytest.warns(FutureWarning, match="non-full backward hook"):
        y = net(x)
    y.sum().backward()
    assert seen == [(True, [1.0])]


def test_hooks_are_held_by_the_module_alone() -> None:
    net = Double()
    handle = net.register_forward_hook(lambda *a: None)
    table = weakref.ref(net._forward_hooks)
    del net
    assert table() is None
    handle.remove()


def test_handles_work_as_contexts_and_survive_pickling() -> None:
    table: OrderedDict[int, Any] = OrderedDict()
    extra: OrderedDict[int, Any] = OrderedDict()
    with RemovableHandle(table, extra_dict=extra) as handle:
        table[handle.id] = extra[handle.id] = 1
    assert not table and not extra
    table[handle.id] = 2
    kept, again = pickle.loads(pickle.dumps((table, handle)))
    again.remove()
    assert kept == {} and again.id == handle.id


def test_hook_table_changes_take_effect_without_registration() -> None:
    net, seen = Double(), []
    net._forward_hooks[10**6] = lambda *a: seen.append(1)
    net(torch.ones(1))
    assert seen == [1]

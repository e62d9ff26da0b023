"""Containers of modules and parameters."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn


def names(net: Any) -> list[str]:
    return list(net._modules)


def test_sequential() -> None:
    a, b, c = nn.Identity(), nn.ReLU(), nn.Tanh()
    net = nn.Sequential(a, b)
    assert len(net) == 2 and list(net) == [a, b] and net[0] is a and net[-1] is b
    net.append(c).insert(0, nn.Sigmoid())
    assert [type(m).__name__ for m in net] == ["Sigmoid", "Identity", "ReLU", "Tanh"]
    assert type(net[1:3]) is nn.Sequential and names(net[1:3]) == ["1", "2"]
    del net[0]
    assert names(net) == ["0", "1", "2"] and net[0] is a
    net[1] = nn.GELU()
    assert isinstance(net[1], nn.GELU)
    assert net.pop(-1) is c and len(net) == 2
    assert len(net + net) == 4 and len(net * 3) == 6 and len(2 * net) == 4
    net += nn.Sequential(b)
    assert net[2] is b
    net *= 2
    assert len(net) == 6 and net[3] is a
    net.extend([c])
    assert net[6] is c
    del net[1:3]
    assert names(net) == ["0", "1", "2", "3", "4"]


def test_sequential_errors() -> None:
    net = nn.Sequential(nn.ReLU())
    with pytest.raises(IndexError, match="index 1 is out of range"):
        net[1]
    with pytest.raises(ValueError, match="add operator supports only objects of Sequential class"):
        net + [nn.ReLU()]
    with pytest.raises(TypeError, match="unsupported operand"):
        net * 1.5
    with pytest.raises(ValueError, match="Non-positive multiplication factor"):
        net * 0
    with pytest.raises(IndexError, match="Index out of range: 3"):
        net.insert(3, nn.ReLU())
    with pytest.raises(TypeError, match="is not a Module subclass"):
        nn.Sequential(3)


def test_sequential_by_names() -> None:
    net = nn.Sequential(OrderedDict(fc=nn.Linear(2, 2), act=nn.ReLU()))
    assert names(net) == ["fc", "act"] and net.fc is net[0]
    assert names(net[:1]) == ["fc"]
    assert repr(net) == "Sequential(\n  (fc): Linear(in_features=2, out_features=2, bias=True)\n  (act): ReLU()\n)"


def test_module_list() -> None:
    net = nn.ModuleList(nn.Linear(1, 1) for _ in range(3))
    first = net[0]
    assert len(net) == 3 and len(list(net.parameters())) == 6
    net.insert(1, nn.ReLU())
    net += [nn.Tanh()]
    assert names(net) == ["0", "1", "2", "3", "4"] and net[0] is first and isinstance(net[1], nn.ReLU)
    assert isinstance(net[1:3], nn.ModuleList) and len(net + [nn.ReLU()]) == 6
    del net[-1]
    assert len(net) == 4 and net.pop(1).__class__ is nn.ReLU
    net.extend(net)
    assert len(net) == 6
    with pytest.raises(TypeError, match="should be called with an iterable"):
        net.extend(3)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="forward"):
        net(1)
    assert repr(nn.ModuleList()) == "ModuleList()"
    assert (
        repr(nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh()])) == "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n)"
    )


def test_module_dict() -> None:
    net = nn.ModuleDict({"b": nn.ReLU(), "a": nn.Tanh()})
    assert list(net) == ["b", "a"] and "a" in net and len(net) == 2
    net["c"] = nn.Linear(1, 1)
    net.update([("d", nn.GELU())])
    assert list(net.keys()) == ["b", "a", "c", "d"] and len(list(net.parameters())) == 2
    assert isinstance(net.pop("c"), nn.Linear) and list(dict(net.items())) == ["b", "a", "d"]
    del net["b"]
    assert [type(m).__name__ for m in net.values()] == ["Tanh", "GELU"]
    net.clear()
    assert len(net) == 0
    with pytest.raises(TypeError, match="iterable of key/value pairs"):
        net.update(3)
    with pytest.raises(ValueError, match="element #0 has length 1; 2 is required"):
        net.update([(1,)])
    with pytest.raises(KeyError, match="already exists"):
        net["keys"] = nn.ReLU()


def test_parameter_list() -> None:
    net = nn.ParameterList([torch.ones(2), 5, nn.Parameter(torch.zeros(1))])
    assert isinstance(net[0], nn.Parameter) and net[1] == 5 and len(net) == 3
    assert [n for n, _ in net.named_parameters()] == ["0", "2"]
    net.append(torch.ones(3))
    net[0] = torch.zeros(4)
    assert isinstance(net[0], nn.Parameter) and net[0].numel() == 4
    assert len(net[1:]) == 3 and len(list(net)) == 4
    net += [1]
    assert len(net) == 5
    with pytest.raises(TypeError, match="should be called with an iterable"):
        net.extend(torch.ones(2))  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        net[9]
    with pytest.raises(RuntimeError, match="should not be called"):
        net(1)


def test_parameter_dict() -> None:
    net = nn.ParameterDict({"z": torch.ones(1), "a": torch.ones(2)})
    assert list(net) == ["a", "z"] and isinstance(net["a"], nn.Parameter)
    net["text"] = "kept as it is"
    assert net.get("text") == "kept as it is" and net.get("none") is None and len(list(net.parameters())) == 2
    assert net.setdefault("a") is net["a"] and list(reversed(net)) == ["text", "z", "a"]
    assert net.popitem()[0] == "text" and net.pop("z").numel() == 1 and list(net.keys()) == ["a"]
    both = net | nn.ParameterDict({"q": torch.ones(1)})
    assert list(both) == ["a", "q"] and both["a"] is net["a"]
    net.clear()
    assert len(net) == 0 and list(net.parameters()) == []
    assert list(net.fromkeys(["k"], 1).items()) == [("k", 1)]
    with pytest.raises(TypeError, match="cannot be used as a key"):
        net[3] = torch.ones(1)  # type: ignore[index]


def test_containers_nest_in_state_dicts() -> None:
    net = nn.ModuleDict({"x": nn.ModuleList([nn.ParameterDict({"w": torch.ones(1)})])})
    assert list(net.state_dict()) == ["x.0.w"]

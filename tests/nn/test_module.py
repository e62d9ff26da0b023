"""`nn.Module`: registration, traversal, state dicts, conversion, printing."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import OrderedDict
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)
        self.nothing = None

    def forward(self, x: Any) -> Any:
        return self.norm(self.fc(x)) * self.scale


def values(tensor: Any) -> list[Any]:
    return tensor.detach().tolist()


# ***** registration *****


def test_parameters_buffers_and_modules_register_by_assignment() -> None:
    net = Net()
    assert [n for n, _ in net.named_parameters()] == ["scale", "fc.weight", "fc.bias", "norm.weight", "norm.bias"]
    buffers = ["seen", "scratch", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"]
    assert [n for n, _ in net.named_buffers()] == buffers
    assert [n for n, _ in net.named_modules()] == ["", "fc", "norm"]
    assert list(net.children()) == [net.fc, net.norm]
    assert "fc" not in net.__dict__ and net.fc is net._modules["fc"]


def test_plain_lists_do_not_register() -> None:
    net = nn.Module()
    net.layers = [nn.Linear(1, 1)]
    assert list(net.parameters()) == []


def test_assignment_before_init_is_refused() -> None:
    class Early(nn.Module):
        def __init__(self, what: Any) -> None:
            self.x = what

    with pytest.raises(AttributeError, match=r"cannot assign parameters before Module.__init__"):
        Early(nn.Parameter(torch.ones(1)))
    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__"):
        Early(nn.Linear(1, 1))
    with pytest.raises(AttributeError, match=r"Module.__init__\(\) called"):
        Early(3)()


def test_a_name_belongs_to_one_table() -> None:
    net = nn.Module()
    net.x = torch.ones(1)
    assert "x" in net.__dict__
    net.x = nn.Parameter(torch.ones(1))
    assert "x" not in net.__dict__ and "x" in net._parameters
    with pytest.raises(TypeError, match="as parameter 'x'"):
        net.x = nn.Linear(1, 1)
    net.register_buffer("y", torch.ones(1))
    net.y = nn.Linear(1, 1)
    assert "y" in net._modules and "y" not in net._buffers
    net.y = nn.Parameter(torch.ones(1))
    assert "y" in net._parameters and "y" not in net._modules
    del net.x
    net.x = nn.Linear(1, 1)
    net.x = None
    assert net.x is None and net._modules == {"x": None}
    with pytest.raises(TypeError, match="as child module 'x'"):
        net.x = 3
    del net.x
    assert not hasattr(net, "x")


def test_wrong_assignments_are_refused() -> None:
    net = Net()
    with pytest.raises(TypeError, match=r"cannot assign 'torch.FloatTensor' as parameter 'scale'"):
        net.scale = torch.ones(2)
    with pytest.raises(TypeError, match="cannot assign 'int' as buffer 'seen'"):
        net.seen = 3
    with pytest.raises(ValueError, match="Cannot assign non-leaf Tensor to parameter 'y'"):
        y = net.scale * 2
        y.__class__ = nn.Parameter
        net.register_parameter("y", y)
    with pytest.raises(KeyError, match="attribute 'fc' already exists"):
        net.register_buffer("fc", torch.ones(1))
    with pytest.raises(KeyError, match=r"parameter name can.*contain"):
        net.register_parameter("a.b", None)
    with pytest.raises(KeyError, match="empty string"):
        net.add_module("", None)
    with pytest.raises(TypeError, match="is not a Module subclass"):
        net.add_module("z", 3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"buffer name should be a string. Got int"):
        net.register_buffer(3, None)  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'missing'"):
        net.missing


def test_buffer_class() -> None:
    net = nn.Module()
    net.a = nn.Buffer(torch.ones(2))
    net.b = nn.Buffer(torch.ones(2), persistent=False)
    assert list(net.state_dict()) == ["a"]
    assert [n for n, _ in net.named_buffers()] == ["a", "b"]
    net.b = torch.zeros(2)  # stays a buffer, and stays out of the state dict
    assert list(net.state_dict()) == ["a"] and values(net.get_buffer("b")) == [0.0, 0.0]
    assert isinstance(net.a, nn.Buffer) and not isinstance(torch.ones(1), nn.Buffer)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert isinstance(twin.a, nn.Buffer) and list(twin.state_dict()) == ["a"] and values(twin.a) == [1.0, 1.0]


def test_register_buffer_with_an_older_signature() -> None:
    class Old(nn.Module):
        def register_buffer(self, name: str, tensor: Any) -> None:  # type: ignore[override]
            super().register_buffer(name, tensor)

    net = Old()
    net.a = nn.Buffer(torch.ones(1))
    net.a = torch.zeros(1)
    assert values(net.get_buffer("a")) == [0.0]
    with pytest.raises(RuntimeError, match="without the persistent argument is not allowed"):
        net.b = nn.Buffer(torch.ones(1), persistent=False)


def test_shared_members_are_listed_once() -> None:
    layer = nn.Linear(2, 2)
    net = nn.Sequential(layer, layer)
    assert len(list(net.named_modules())) == 2
    assert len(list(net.named_modules(remove_duplicate=False))) == 3
    assert len(list(net.parameters())) == 2
    assert len(list(net.named_parameters(remove_duplicate=False))) == 4
    assert len(list(net.children())) == 1
    assert repr(net).count("Linear") == 2
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_getting_by_dotted_name() -> None:
    net = nn.Sequential(OrderedDict(a=nn.Sequential(nn.Linear(1, 1)), b=nn.BatchNorm1d(1)))
    assert net.get_submodule("") is net
    assert net.get_submodule("a.0") is net.a[0]
    assert net.get_parameter("a.0.bias") is net.a[0].bias
    assert net.get_buffer("b.running_mean") is net.b.running_mean
    with pytest.raises(AttributeError, match="Sequential has no attribute `z`"):
        net.get_submodule("a.z")
    with pytest.raises(AttributeError, match=r"`weight` is not an nn.Module"):
        net.get_submodule("a.0.weight")
    with pytest.raises(AttributeError, match=r"`running_mean` is not an nn.Parameter"):
        net.get_parameter("b.running_mean")
    with pytest.raises(AttributeError, match="`weight` is not a buffer"):
        net.get_buffer("b.weight")
    net.set_submodule("a.0", nn.Identity())
    assert isinstance(net.a[0], nn.Identity)
    with pytest.raises(AttributeError, match="has no attribute"):
        net.set_submodule("a.9", nn.Identity(), strict=True)
    with pytest.raises(ValueError, match="without a target"):
        net.set_submodule("", nn.Identity())


def test_init_arguments_that_nobody_takes() -> None:
    class Passing(nn.Module):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

    with pytest.raises(TypeError, match="unexpected keyword argument 'a'"):
        Passing(a=1)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given"):
        Passing(1)

    class Mixin:
        def __init__(self, a: int = 0) -> None:
            self.a = a

    class Both(nn.Module, Mixin):
        call_super_init = True

    assert Both(a=3).a == 3


def test_forward_is_required() -> None:
    with pytest.raises(NotImplementedError, match=r'Module \[Module\] is missing the required "forward" function'):
        nn.Module()(1)


def test_dir_lists_members() -> None:
    names = dir(nn.Sequential(OrderedDict(fc=nn.Linear(1, 1))))
    assert "fc" in names and "forward" in names
    assert "0" not in dir(nn.Sequential(nn.Identity()))


# ***** parameters *****


def test_parameter() -> None:
    p = nn.Parameter(torch.ones(2))
    assert p.requires_grad and p.is_leaf and isinstance(p, torch.Tensor)
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    assert type(p * 2) is torch.Tensor
    assert nn.Parameter().numel() == 0
    with torch.no_grad():
        assert nn.Parameter(torch.ones(1)).requires_grad
    assert not nn.Parameter(torch.arange(3), requires_grad=False).requires_grad
    with pytest.raises(RuntimeError, match="floating point"):
        nn.Parameter(torch.arange(3))
    data = torch.zeros(2)
    nn.Parameter(data).data.fill_(5)
    assert values(data) == [5.0, 5.0]


def test_parameter_copies_keep_their_class() -> None:
    p = nn.Parameter(torch.ones(2))
    for other in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert isinstance(other, nn.Parameter) and other.requires_grad and values(other) == [1.0, 1.0]
        assert other is not p
    net = Net()
    twin = copy.deepcopy(net)
    twin.scale.data.fill_(7)
    assert values(net.scale) == [1.0, 1.0]
    assert isinstance(twin.fc.weight, nn.Parameter) and twin.norm.running_mean is not net.norm.running_mean


def test_tied_weights_stay_tied_in_a_copy() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    net[1].weight = net[0].weight
    twin = copy.deepcopy(net)
    assert twin[0].weight is twin[1].weight is not net[0].weight


def test_pickled_modules_work() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    again = pickle.loads(pickle.dumps(net))
    x = torch.ones(1, 2)
    assert values(again(x)) == values(net(x))


# ***** modes *****


def test_train_and_eval() -> None:
    net = Net()
    assert net.eval() is net and not net.training and not net.norm.training
    net.train()
    assert net.norm.training
    with pytest.raises(ValueError, match="training mode is expected to be boolean"):
        net.train("yes")  # type: ignore[arg-type]


def test_requires_grad_and_zero_grad() -> None:
    net = Net()
    net.fc.requires_grad_(False)
    net(torch.randn(4, 3)).sum().backward()
    assert net.fc.weight.grad is None and net.scale.grad is not None
    net.zero_grad(set_to_none=False)
    assert values(net.scale.grad) == [0.0, 0.0]
    net.zero_grad()
    assert net.scale.grad is None


def test_apply_goes_children_first() -> None:
    order: list[str] = []
    net = Net()
    assert net.apply(lambda m: order.append(type(m).__name__)) is net
    assert order == ["Linear", "BatchNorm1d", "Net"]


# ***** conversion *****


def test_to_dtype_keeps_identity_and_integers() -> None:
    net = Net()
    weight = net.fc.weight
    net(torch.randn(4, 3)).sum().backward()
    assert net.to(torch.float64) is net
    assert net.fc.weight is weight and weight.dtype is torch.float64 and weight.grad.dtype is torch.float64
    assert net.norm.num_batches_tracked.dtype is torch.int64
    assert net.float().fc.weight.dtype is torch.float32
    assert net.half().fc.weight.dtype is torch.float16
    assert net.bfloat16().fc.weight.dtype is torch.bfloat16
    assert net.double().fc.weight.dtype is torch.float64
    assert net.type(torch.float32).norm.num_batches_tracked.dtype is torch.float32
    assert net.to(torch.ones(1, dtype=torch.float64)).fc.weight.dtype is torch.float64
    assert net.cpu() is net


def test_to_refuses_integers_and_unknown_arguments() -> None:
    net = Net()
    with pytest.raises(
        TypeError, match=r"only accepts floating point or complex dtypes, but got desired dtype=torch.int64"
    ):
        net.to(torch.int64)
    with pytest.raises(TypeError):
        net.to("cpu", torch.float32, False, False, 1)
    with pytest.raises(TypeError):
        net.to(color="red")


def test_meta_and_back() -> None:
    net = nn.Linear(2, 3)
    net.to("meta")
    assert net.weight.is_meta and isinstance(net.weight, nn.Parameter)
    with pytest.raises(NotImplementedError, match="to_empty"):
        net.to("cpu")
    net.to_empty(device="cpu")
    assert net.weight.device.type == "cpu" and net.weight.shape == (3, 2)
    assert nn.Linear(2, 3, device="meta").weight.is_meta


# ***** state dicts *****


def test_state_dict() -> None:
    net = Net()
    state = net.state_dict()
    assert list(state) == [
        "scale", "seen", "fc.weight", "fc.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var",
        "norm.num_batches_tracked",
    ]  # fmt: skip
    assert isinstance(state, OrderedDict)
    assert state._metadata == {"": {"version": 1}, "fc": {"version": 1}, "norm": {"version": 2}}
    assert not state["scale"].requires_grad and type(state["scale"]) is torch.Tensor
    state["scale"].fill_(3)
    assert values(net.scale) == [3.0, 3.0]
    assert net.state_dict(keep_vars=True)["scale"] is net.scale
    assert next(iter(net.state_dict(prefix="x."))) == "x.scale"
    with pytest.warns(FutureWarning, match="Positional args"):
        assert "p.scale" in net.state_dict(None, "p.")


def test_load_state_dict() -> None:
    net, other = Net(), Net()
    result = net.load_state_dict(other.state_dict())
    assert repr(result) == "<All keys matched successfully>"
    assert values(net.fc.weight) == values(other.fc.weight) and net.fc.weight is not other.fc.weight


def test_load_reports_every_problem_at_once() -> None:
    net = Net()
    state = net.state_dict()
    del state["fc.bias"]
    state["extra"] = torch.ones(1)
    state["fc.weight"] = torch.ones(3, 3)
    state["scale"] = [1.0, 1.0]
    with pytest.raises(RuntimeError) as error:
        net.load_state_dict(state)
    assert str(error.value) == (
        "Error(s) in loading state_dict for Net:\n"
        '\tMissing key(s) in state_dict: "fc.bias". \n'
        '\tUnexpected key(s) in state_dict: "extra". \n'
        '\tWhile copying the parameter named "scale", expected torch.Tensor or Tensor-like object from checkpoint but '
        "received <class 'list'>\n"
        "\tsize mismatch for fc.weight: copying a param with shape torch.Size([3, 3]) from checkpoint, the shape in "
        "current model is torch.Size([2, 3])."
    )
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like"):
        net.load_state_dict([1])  # type: ignore[arg-type]


def test_load_not_strict() -> None:
    net = Net()
    missing, unexpected = net.load_state_dict({"scale": torch.full((2,), 4.0), "who": 1}, strict=False)
    assert "fc.weight" in missing and unexpected == ["who"] and values(net.scale) == [4.0, 4.0]
    with pytest.raises(RuntimeError, match="size mismatch for scale"):
        net.load_state_dict({"scale": torch.ones(5)}, strict=False)


def test_load_assign() -> None:
    net = nn.Linear(2, 3, device="meta")
    state = nn.Linear(2, 3).double().state_dict()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net.load_state_dict(state)
    assert any("is a no-op" in str(w.message) for w in caught) and net.weight.is_meta
    net.load_state_dict(state, assign=True)
    assert isinstance(net.weight, nn.Parameter) and net.weight.dtype is torch.float64 and net.weight.requires_grad
    assert net.weight.data_ptr() == state["weight"].data_ptr()


def test_old_scalars_and_old_batch_norms_load() -> None:
    net = Net()
    state = net.state_dict()
    state["seen"] = torch.full((1,), 5.0)
    del state["norm.num_batches_tracked"]
    state._metadata["norm"]["version"] = 1
    net.load_state_dict(state)
    assert values(net.seen) == 5.0


def test_extra_state() -> None:
    class WithExtra(nn.Module):
        note = "first"

        def get_extra_state(self) -> Any:
            return {"note": self.note}

        def set_extra_state(self, state: Any) -> None:
            self.note = state["note"]

    net = nn.Sequential(WithExtra())
    state = net.state_dict()
    assert state["0._extra_state"] == {"note": "first"}
    net[0].note = "second"
    net.load_state_dict(state)
    assert net[0].note == "first"
    with pytest.raises(RuntimeError, match="Missing key"):
        net.load_state_dict({})


def test_state_dict_hooks() -> None:
    net = Net()
    calls: list[Any] = []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: calls.append(("pre", prefix)))
    net.register_state_dict_post_hook(lambda m, state, prefix, meta: state.pop("seen"))
    handle = net.register_load_state_dict_pre_hook(
        lambda m, state, prefix, *rest: state.setdefault("seen", torch.ones(()))
    )
    net.register_load_state_dict_post_hook(lambda m, keys: calls.append(("post", list(keys.missing_keys))))
    with pytest.raises(RuntimeError, match="post-hook must return None"):
        net.state_dict()
    net._state_dict_hooks.clear()

    def drop(m: Any, state: Any, prefix: str, meta: Any) -> None:
        state.pop("seen")

    net.register_state_dict_post_hook(drop)
    state = net.state_dict()
    assert "seen" not in state
    net.load_state_dict(state)
    assert values(net.seen) == 1.0 and "seen" not in state
    handle.remove()
    with pytest.raises(RuntimeError, match=r'Missing key.*"seen"'):
        net.load_state_dict(state)
    assert ("pre", "") in calls and ("post", []) in calls


# ***** printing *****


def test_printed_form() -> None:
    assert repr(nn.Module()) == "Module()"
    assert repr(nn.Linear(2, 2)) == "Linear(in_features=2, out_features=2, bias=True)"

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.l1 = nn.Linear(1, 2)
            self.inner = nn.Sequential(nn.ReLU())

        def extra_repr(self) -> str:
            return "a=1\nb=2"

    assert repr(Two()) == (
        "Two(\n  a=1\n  b=2\n  (l1): Linear(in_features=1, out_features=2, bias=True)\n"
        "  (inner): Sequential(\n    (0): ReLU()\n  )\n)"
    )


# ***** registration hooks *****


def test_global_registration_hooks() -> None:
    from rushlight.nn.modules import module as m

    seen: list[str] = []
    handles = [
        m.register_module_parameter_registration_hook(lambda mod, name, p: seen.append(f"p {name}")),
        m.register_module_module_registration_hook(lambda mod, name, child: nn.Identity() if name == "swap" else None),
        m.register_module_buffer_registration_hook(lambda mod, name, b: seen.append(f"b {name}")),
    ]
    net = nn.Module()
    net.w = nn.Parameter(torch.ones(1))
    net.swap = nn.ReLU()
    net.register_buffer("c", None)
    for handle in handles:
        handle.remove()
    net.v = nn.Parameter(torch.ones(1))
    assert seen == ["p w", "b c"] and isinstance(net.swap, nn.Identity)

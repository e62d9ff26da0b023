"""`torch.jit.trace`: graphs of what calls did."""

import io
import warnings
from typing import Any, Optional

import pytest

import rushlight as torch
from rushlight import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.lstm = nn.LSTM(4, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any) -> Any:
        h = self.body(x).mean((2, 3))
        out, (last, _) = self.lstm(h.unsqueeze(0))
        return self.head(self.body[2](out)), last.view(x.size(0), -1)


def test_modules_become_methods_and_generalise() -> None:
    net = Net().eval()
    traced = torch.jit.trace(net, torch.randn(2, 1, 8, 8))
    x = torch.randn(3, 1, 9, 9)
    for wanted, found in zip(net(x), traced(x), strict=True):
        assert torch.equal(wanted, found)
    assert isinstance(traced, torch.jit.ScriptModule) and "aten::_convolution" in str(traced.inlined_graph)
    assert "CallMethod" in str(traced.graph) and "Float(2, 1, 8, 8, strides=[64, 64, 8, 1]" in str(traced.graph)
    out = io.BytesIO()
    traced.save(out)
    out.seek(0)
    for wanted, found in zip(net(x), torch.jit.load(out)(x), strict=True):
        assert torch.equal(wanted, found)
    assert [n for n, _ in traced.named_parameters()] == [n for n, _ in net.named_parameters()]


def test_functions_inputs_and_outputs() -> None:
    def f(x: Any, pair: Any, table: Any) -> Any:
        return x + pair[0], (pair[1] * table["k"], x.shape[0] + x)

    given = (torch.ones(2), (torch.ones(2), torch.full((2,), 3.0)), {"k": torch.ones(2)})
    traced = torch.jit.trace(f, given)
    other = (torch.ones(3), (torch.ones(3), torch.full((3,), 4.0)), {"k": torch.full((3,), 2.0)})
    wanted, found = f(*other), traced(*other)
    assert torch.equal(wanted[0], found[0]) and torch.equal(wanted[1][0], found[1][0])
    with pytest.raises(RuntimeError, match="strict=False"):
        torch.jit.trace(lambda x: [x, x], torch.ones(1))
    listed = torch.jit.trace(lambda x: {"a": x + 1}, torch.ones(1), strict=False)
    assert listed(torch.zeros(1))["a"] == 1


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.shape[0] * x, lambda x: x / x.shape[1], lambda x: x.reshape(x.shape[0] * x.shape[1], -1), lambda x: x.view(*x.shape, 1),
        lambda x: x.new_zeros(x.shape[-1] // 2 + 1, x.size(0)), lambda x: x[: x.shape[0] - 1], lambda x: x[:, -x.shape[1] % 3 :],
        lambda x: torch.arange(x.shape[0], device=x.device) + x.sum(), lambda x: x.expand(2, *x.size()), lambda x: x.flatten(0, 1) + x.size()[0],
    ],
)  # fmt: skip
def test_sizes_are_those_of_each_call(f: Any) -> None:
    traced = torch.jit.trace(f, torch.rand(2, 4))
    for shape in ((2, 4), (3, 4), (5, 7), (4, 2)):
        x = torch.rand(shape)
        assert torch.equal(traced(x), f(x)), shape


@pytest.mark.parametrize(
    "f", [lambda x: x * (x.shape[0] / 2), lambda x: x * x.shape[0] ** 2, lambda x: x * float(x.shape[0])]
)
def test_sizes_that_become_constants_are_warned_of(f: Any) -> None:
    with pytest.warns(torch.jit.TracerWarning, match="might not generalize"):
        torch.jit.trace(f, torch.rand(2, 4))


def test_python_values_are_warned_of() -> None:
    with pytest.warns(torch.jit.TracerWarning, match="Converting a tensor to a Python boolean"):
        traced = torch.jit.trace(lambda x: x * 2 if x.sum() > 0 else x, torch.ones(2), check_trace=False)
    assert torch.equal(traced(-torch.ones(2)), torch.full((2,), -2.0))
    count = [0]

    def drifting(x: Any) -> Any:
        count[0] += 1
        return x + count[0]

    with pytest.warns(torch.jit.TracerWarning, match="does not match the corresponding output of the Python function"):
        torch.jit.trace(drifting, torch.ones(2))


def test_scripts_inside_of_traces_keep_their_branches() -> None:
    @torch.jit.script_if_tracing
    def clipped(x: torch.Tensor) -> torch.Tensor:
        if bool(x.sum() > 1):
            x = x.clamp(max=1)
        return x

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        traced = torch.jit.trace(lambda x: clipped(x) * 2, torch.zeros(2))
    assert torch.equal(traced(torch.full((2,), 5.0)), torch.full((2,), 2.0))
    assert torch.equal(traced(torch.zeros(2)), torch.zeros(2)) and not torch.jit.is_tracing()


def test_several_methods() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.lin(x)

        def twice(self, x: Any) -> Any:
            return self.lin(self.lin(x))

    module = Two()
    x = torch.ones(1, 2)
    traced = torch.jit.trace_module(module, {"forward": x, "twice": x})
    y = torch.randn(3, 2)
    assert torch.equal(traced(y), module(y)) and torch.equal(traced.twice(y), module.twice(y))


def test_a_graph_is_walked_as_programs_for_pytorch_do() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.rest = nn.Conv2d(3, 4, 3), nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))

        def forward(self, x: Any) -> Any:
            state = torch._C._get_tracing_state()
            state.push_scope("first")
            x = self.first(x)
            state.pop_scope()
            return self.rest(x)

    assert torch._C._get_tracing_state() is None
    graph, out = torch.jit._get_trace_graph(Two(), (torch.randn(1, 3, 8, 8),))
    assert out.shape == (1, 5)
    inputs = list(graph.inputs())
    assert [v.type().sizes() for v in inputs] == [[1, 3, 8, 8], [4, 3, 3, 3], [4], [5, 144], [5]]
    assert all(isinstance(v.type(), torch._C.TensorType) and v.isCompleteTensor() for v in inputs)
    nodes = [n for n in graph.nodes() if n.kind().startswith("aten::")]
    assert [n.kind() for n in nodes] == ["aten::_convolution", "aten::relu", "aten::flatten", "aten::linear"]
    assert [n.scopeName() for n in nodes] == ["first", "", "", ""]
    assert [v.debugName() for v in nodes[0].inputs()][:3] == [v.debugName() for v in inputs[:3]]
    assert nodes[1].output().node() is nodes[1] and nodes[1].output().type().scalarType() == "Float"
    assert list(nodes[2].inputs())[1].toIValue() == 1
    assert isinstance(graph, torch._C.Graph) and isinstance(nodes[0], torch._C.Node)


def test_traced_convolutions_take_in_the_normalisation_behind_them() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ConvTranspose2d(4, 2, 3, 2), nn.BatchNorm2d(2)).eval()
    with torch.no_grad():
        for norm in (net[1], net[3]):
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)
    x = torch.randn(1, 3, 8, 8)
    frozen = torch.jit.freeze(torch.jit.trace(net, x))
    assert str(frozen.graph).count("aten::batch_norm") == 1  # behind the transposed one
    torch.testing.assert_close(frozen(x), net(x), rtol=1e-4, atol=1e-5)
    assert str(frozen.graph).count("aten::_convolution") == 2


class Signed(nn.Module):
    def forward(self, x: Tensor, y: Tensor, scale: Optional[float] = None) -> Tensor:  # noqa: UP045
        if bool(x.sum() > 0):
            return x * 2 + y
        return x - 10 if scale is None else x * scale


class Calls(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x) + self.inner(x, y=x + 1, scale=3.0)


def test_a_trace_calls_compiled_modules_which_keep_their_branches() -> None:
    inner = torch.jit.script(Signed())
    module = Calls(inner)
    traced = torch.jit.trace(module, torch.ones(2))
    held = io.BytesIO()
    torch.jit.save(traced, held)
    held.seek(0)
    for run in (traced, torch.jit.load(held)):
        for x in (torch.ones(3), -torch.ones(3)):
            assert run(x).equal(module(x))
    assert inner(torch.ones(1), torch.zeros(1)).item() == 2.0  # what it was before
    assert [n.kind() for n in traced.graph.findAllNodes("prim::CallMethod")] == ["prim::CallMethod"] * 2
    with pytest.raises(RuntimeError, match="must be registered as submodules of the thing being traced"):
        torch.jit.trace(lambda x: inner(x, x), torch.ones(2))

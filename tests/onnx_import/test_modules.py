"""`rushlight.onnx.load`: modules that train, compile, print and refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper, numpy_helper, parser  # noqa: E402

import rushlight as torch  # noqa: E402
from rushlight.onnx.importing.errors import InvalidModelError, OperatorError  # noqa: E402

PERCEPTRON = """
<ir_version: 10, opset_import: ["" : 22]>
net (float[n, 4] x) => (float[n, 3] y)
<float[8, 4] fc1.weight, float[8] fc1.bias, float[3, 8] fc2.weight, float[3] fc2.bias>
{
    a = Gemm<transB = 1>(x, fc1.weight, fc1.bias)
    b = Relu(a)
    y = Gemm<transB = 1>(b, fc2.weight, fc2.bias)
}
"""


def perceptron() -> tuple[Any, Any]:
    """A model of ONNX, and the same of PyTorch's modules."""
    torch.manual_seed(0)
    layers = torch.nn.ModuleDict({"fc1": torch.nn.Linear(4, 8), "fc2": torch.nn.Linear(8, 3)})
    model = onnx.ModelProto()
    model.CopyFrom(parser.parse_model(PERCEPTRON.replace("fc1.", "fc1_").replace("fc2.", "fc2_")))
    del model.graph.initializer[:]
    for name, value in layers.state_dict().items():
        model.graph.initializer.append(numpy_helper.from_array(value.numpy(), name))
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = name.replace("fc1_", "fc1.").replace("fc2_", "fc2.")
    return model, lambda x: layers["fc2"](torch.relu(layers["fc1"](x)))


def test_parameters_have_the_names_of_the_file() -> None:
    model, same = perceptron()
    module = torch.onnx.load(model)
    assert list(module.state_dict()) == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    x = torch.randn(5, 4)
    assert torch.equal(module(x), same(x))
    other = torch.onnx.load(model.SerializeToString())
    other.load_state_dict({name: torch.zeros_like(value) for name, value in module.state_dict().items()})
    assert not other(x).any()
    assert "Gemm(x, fc1.weight, fc1.bias, transB=1)" in repr(module)


def test_modules_train() -> None:
    model, same = perceptron()
    module = torch.onnx.load(model)
    x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    expected = torch.autograd.grad(torch.nn.functional.cross_entropy(same(x), y), same.__closure__[0].cell_contents["fc1"].weight)[0]  # fmt: skip
    losses = []
    for step in range(20):
        loss = torch.nn.functional.cross_entropy(module(x), y)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            assert torch.equal(module.fc1.weight.grad, expected)
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 0.75


def test_compiled_modules_give_the_same() -> None:
    model, _ = perceptron()
    module = torch.onnx.load(model)
    compiled = torch.compile(module, fullgraph=True)
    x = torch.randn(3, 4)
    assert torch.equal(compiled(x), module(x))


def test_sizes_are_followed_whole() -> None:
    """Shapes that follow from the input's shape leave no break in what is compiled."""
    text = """
    <ir_version: 10, opset_import: ["" : 22]>
    net (float[n, c, h, w] x) => (float[n, m] y)
    <int64[1] zero = {0}, int64[1] rest = {-1}, int64[1] one = {1}>
    {
        s = Shape(x)
        n = Gather<axis = 0>(s, zero)
        shape = Concat<axis = 0>(n, rest)
        z = Reshape(x, shape)
        m = Slice(s, one, rest)
        p = ReduceProd<keepdims = 1>(m)
        q = Add(p, one)
        f = CastLike(q, z)
        y = Add(z, f)
    }
    """
    module = torch.onnx.load(parser.parse_model(text))
    x = torch.randn(2, 3, 4, 5)
    expected = x.reshape(2, -1) + 13
    assert torch.equal(module(x), expected)
    assert torch.equal(torch.compile(module, fullgraph=True)(x), expected)


def test_control_flow_sees_the_values_around_it() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 22]>
    net (float[2] x, int64 n, bool flag) => (float[2] y, float[m, 2] all)
    {
        scale = Constant<value = float {2}>()
        go = Constant<value = bool {1}>()
        y, all = Loop(n, go, x) <body = step (int64 i, bool c, float[2] v) => (bool c2, float[2] w, float[2] w2) {
            c2 = Identity(c)
            w = If(flag) <then_branch = t () => (float[2] a) { a = Mul(v, scale) },
                          else_branch = e () => (float[2] b) { b = Add(v, x) }>
            w2 = Identity(w)
        }>
    }
    """
    module = torch.onnx.load(parser.parse_model(text))
    x = torch.tensor([1.0, -2.0])
    y, steps = module(x, torch.tensor(3), torch.tensor(True))
    assert y.tolist() == [8.0, -16.0] and steps.tolist() == [[2.0, -4.0], [4.0, -8.0], [8.0, -16.0]]
    y, _ = module(x=x, n=torch.tensor(2), flag=torch.tensor(False))
    assert y.tolist() == [3.0, -6.0]


def test_functions_of_the_model_are_expanded() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 22, "local" : 1]>
    net (float[2] x) => (float[2] y) { y = local.scaled<by = 3.0>(x) }
    <domain: "local", opset_import: ["" : 22]>
    scaled <by> (v) => (w) { s = Constant<value_float: float = @by>() w = Mul(v, s) }
    """
    module = torch.onnx.load(parser.parse_model(text))
    assert module(torch.tensor([1.0, 2.0])).tolist() == [3.0, 6.0]


def test_constants_are_computed_while_loading() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 22]>
    net (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {3, 4}>
    { u = Mul(w, v) y = Add(x, u) }
    """
    model = parser.parse_model(text)
    trained, fixed = torch.onnx.load(model), torch.onnx.load(model, trainable=False)
    assert len(trained.graph.steps) == 2 and len(fixed.graph.steps) == 1
    x = torch.zeros(2)
    assert trained(x).tolist() == fixed(x).tolist() == [3.0, 8.0]
    assert not list(fixed.parameters())


def test_batch_norms_fold_into_convolutions() -> None:
    rng = np.random.default_rng(0)

    def random(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(rng.uniform(0.5, 1.5, shape).astype(np.float32), name)

    weights = [random("w", 6, 2, 3, 3), random("w2", 6, 6, 1, 1), random("b2", 6)]
    for norm in ("n", "n2"):
        weights += [random(f"{norm}_{part}", 6) for part in ("scale", "bias", "mean", "var")]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], group=2),
        helper.make_node("BatchNormalization", ["a", "n_scale", "n_bias", "n_mean", "n_var"], ["b"], epsilon=0.01),
        helper.make_node("Conv", ["b", "w2", "b2"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "n2_scale", "n2_bias", "n2_mean", "n2_var"], ["y"]),
        helper.make_node("Relu", ["c"], ["z"]),  # a second reader: this one stays
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", 1, [1, 4, 5, 5])], [value("y", 1, None), value("z", 1, None)], weights
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    plain, folded = torch.onnx.load(model), torch.onnx.load(model, trainable=False)
    assert [step.op for step in folded.graph.steps] == ["Conv", "Conv", "BatchNormalization", "Relu"]
    x = torch.randn(1, 4, 5, 5)
    for one, other in zip(plain(x), folded(x)):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-4)


def _mobile(taps: int) -> Any:
    """A pointwise, a depthwise and a pointwise convolution, then one of as many taps along each dim."""
    rng = np.random.default_rng(0)
    shapes = {"w": (12, 8, 1, 1), "d": (12, 1, 3, 3), "p": (8, 12, 1, 1), "q": (6, 8, taps, taps)}
    weights = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), k) for k, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"]),
        helper.make_node("Conv", ["a", "d"], ["b"], group=12, pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["b", "p"], ["c"]),
        helper.make_node("Conv", ["c", "q"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x", 1, [2, 8, 5, 6])], [value("y", 1, None)], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])


@pytest.mark.parametrize(("taps", "last"), [(1, True), (3, False)])
def test_pointwise_models_run_channels_last(taps: int, last: bool) -> None:
    model = _mobile(taps)
    plain, fixed = torch.onnx.load(model), torch.onnx.load(model, trainable=False)
    assert fixed._channels_last is last and plain._channels_last is False
    x = torch.randn(2, 8, 5, 6)
    wanted = plain(x)
    for run in (fixed, torch.compile(fixed, fullgraph=True)):
        found = run(x)
        assert found.is_contiguous()
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_weights_have_memory_that_nothing_else_writes_to() -> None:
    """Products let weights stay packed only there."""
    for trainable in (False, True):
        module = torch.onnx.load(_mobile(3), trainable=trainable)
        held = [*module.parameters(), *module.buffers()]
        assert len(held) == 4 and all(x._storage.owner is None and x._lasting for x in held)


def test_inputs_are_checked() -> None:
    module = torch.onnx.load(perceptron()[0])
    with pytest.raises(ValueError, match=r"input 'x' has the shape \(n, 4\) in the model, and \(2, 5\) was given"):
        module(torch.zeros(2, 5))
    with pytest.raises(TypeError, match="input 'x' is torch.float32 in the model, and torch.float64 was given"):
        module(torch.zeros(2, 4, dtype=torch.float64))
    with pytest.raises(TypeError, match="takes 1 inputs"):
        module(torch.zeros(2, 4), torch.zeros(2, 4))
    with pytest.raises(TypeError, match="input 'x' of the model is missing"):
        module()


# ***** files *****


def external(tmp_path: Path, **entries: str) -> Path:
    """A model whose weight lies in a file beside it; `entries` replace what it says about that."""
    model, _ = perceptron()
    weight = model.graph.initializer[0]
    (tmp_path / "weights.bin").write_bytes(b"\0" * 16 + weight.raw_data)
    said = {"location": "weights.bin", "offset": "16", "length": str(len(weight.raw_data))} | entries
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    for key, value in said.items():
        weight.external_data.add(key=key, value=value)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_data_beside_the_model(tmp_path: Path) -> None:
    _, same = perceptron()
    x = torch.randn(2, 4)
    assert torch.equal(torch.onnx.load(external(tmp_path))(x), same(x))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "../secret"}, "outside of the model's folder"),
        ({"location": "/etc/passwd"}, "outside of the model's folder"),
        ({"location": "inner/../../secret"}, "outside of the model's folder"),
        ({"location": ""}, "outside of the model's folder"),
        ({"location": "absent"}, "cannot be read"),
        ({"location": "link"}, "cannot be read"),
        ({"location": "pipe"}, "no ordinary file"),
        ({"location": "out/secret"}, "outside of the model's folder"),
        ({"offset": "-4"}, "ends outside of its file"),
        ({"offset": "17"}, "ends outside of its file"),
        ({"offset": "x"}, "no number"),
        ({"length": "4"}, "needs 128 bytes"),
    ],
)
def test_data_outside_of_the_folder_is_not_read(tmp_path: Path, entries: dict[str, str], message: str) -> None:
    import os

    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 4096)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "out").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    with pytest.raises(InvalidModelError, match=message):
        torch.onnx.load(external(folder, **entries))


def _graph(nodes: list[Any], initializers: Any = ()) -> Any:
    value = helper.make_tensor_value_info("x", 1, [2])
    result = helper.make_tensor_value_info("y", 1, [2])
    graph = helper.make_graph(nodes, "g", [value], [result], initializer=list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])


def test_models_that_contradict_themselves_are_refused() -> None:
    node = helper.make_node
    with pytest.raises(InvalidModelError, match="'z', which nothing before it makes"):
        torch.onnx.load(_graph([node("Add", ["x", "z"], ["y"]), node("Neg", ["y"], ["z"])]))
    with pytest.raises(InvalidModelError, match="'y' is made twice"):
        torch.onnx.load(_graph([node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])]))
    with pytest.raises(InvalidModelError, match="takes 1 inputs, not 2"):
        torch.onnx.load(_graph([node("Neg", ["x", "x"], ["y"])]))
    for kind, dims, message in (
        (1, [2, -3], "negative dim"),
        (1, [2**30, 2**30], "says that it has"),
        (77, [2], "unknown element type 77"),
        (1, [3], "has 2 elements|cannot be read"),
    ):
        weight = helper.make_tensor("w", 1, [2], [1.0, 2.0])
        weight.data_type, weight.dims[:] = kind, dims
        with pytest.raises(InvalidModelError, match=message):
            torch.onnx.load(_graph([node("Add", ["x", "w"], ["y"])], [weight]))
    with pytest.raises(InvalidModelError, match="is no ONNX model"):
        torch.onnx.load(b"\xff" * 50)


def test_functions_that_call_themselves_are_refused() -> None:
    text = """
    <ir_version: 10, opset_import: ["" : 22, "local" : 1]>
    net (float[2] x) => (float[2] y) { y = local.f(x) }
    <domain: "local", opset_import: ["" : 22, "local" : 1]>
    f (v) => (w) { w = local.f(v) }
    """
    with pytest.raises(InvalidModelError, match="calls itself"):
        torch.onnx.load(parser.parse_model(text))


def test_nodes_that_refuse_their_inputs_are_named() -> None:
    module = torch.onnx.load(_graph([helper.make_node("Gather", ["x", "i"], ["y"], name="pick")], [helper.make_tensor("i", 7, [1], [5])]))  # fmt: skip
    with pytest.raises(OperatorError, match=r"node pick \(Gather\)"):
        module(np.zeros(2, np.float32))


# ***** the command *****


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from rushlight.__main__ import main

    model, same = perceptron()
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert main(["onnx", "info", str(path), "--graph"]) == 0
    told = capsys.readouterr().out
    assert "input      x: float32[n, 4]" in told and "y = Gemm(b, fc2.weight, fc2.bias, transB=1)" in told
    x = np.ones((2, 4), np.float32)
    np.save(tmp_path / "x.npy", x)
    assert main(["onnx", "run", str(path), "--input", f"x={tmp_path / 'x.npy'}", "--output", str(tmp_path / "y.npz")]) == 0  # fmt: skip
    assert np.array_equal(np.load(tmp_path / "y.npz")["y"], same(torch.from_numpy(x)).detach().numpy())
    assert main(["onnx", "run", str(path), "--size", "n=3"]) == 0
    assert "y: float32[3, 3]" in capsys.readouterr().out
    assert main(["onnx", "info", str(tmp_path / "absent.onnx")]) == 1

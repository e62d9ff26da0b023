"""`torch.onnx.export`: models against eager, run by onnxruntime and checked by onnx's checker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
F = nn.functional


def checked(model: nn.Module, args: tuple[Any, ...], tolerance: float = 1e-5, **options: Any) -> Any:
    """The exported program, after its results are compared with the module's."""
    model.eval()
    program = torch.onnx.export(model, args, **options)
    onnx.checker.check_model(program.model_proto, full_check=True)
    agree(program, model, args, tolerance)
    return program


def agree(program: Any, model: nn.Module, args: tuple[Any, ...], tolerance: float = 1e-5) -> None:
    with torch.no_grad():
        wanted = [v for v in torch.utils._pytree.tree_flatten(model(*args))[0] if v is not None]
    found = program(*args)
    assert len(found) == len(wanted)
    for have, want in zip(found, wanted, strict=True):
        assert have.shape == want.shape and have.dtype == want.dtype
        if want.numel():
            worst = float((have.double() - want.double()).abs().max())
            assert worst <= tolerance * max(float(want.double().abs().max()), 1e-30), worst


def kinds(program: Any) -> list[str]:
    return [node.op_type for node in program.model_proto.graph.node]


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 8, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(16, 16)
        self.out = nn.Linear(16, 50)

    def forward(self, tokens: Any) -> Any:
        return self.out(self.gru(self.lstm(self.embed(tokens))[0])[0])


class Block(nn.Module):
    """One layer of a GPT."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.places = nn.Embedding(32, 16)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        x = x + self.places(torch.arange(t))
        q, k, v = (p.view(b, t, 4, c // 4).transpose(1, 2) for p in self.qkv(self.norm(x)).split(c, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + F.gelu(self.out(y.transpose(1, 2).reshape(b, t, c)), approximate="tanh")


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=4), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10), nn.Softmax(-1),
    )  # fmt: skip


@pytest.mark.parametrize("opset", [17, 20, 23])
def test_models_at_opsets(opset: int) -> None:
    torch.manual_seed(0)
    for model, args in (
        (convolutional(), (torch.randn(2, 3, 8, 8),)),
        (Block(), (torch.randn(2, 5, 16),)),
        (Language(), (torch.randint(0, 50, (2, 5)),)),
    ):
        program = checked(model, args, opset_version=opset)
        assert program.model_proto.opset_import[0].version == opset


def test_sizes_that_vary_have_the_names_of_the_user() -> None:
    model = Block()
    program = checked(model, (torch.randn(2, 5, 16),), dynamic_shapes=({0: "batch", 1: "time"},))
    given = program.model_proto.graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in given] == ["batch", "time", 16]
    agree(program, model, (torch.randn(3, 9, 16),))
    dims = program.model_proto.graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_param or d.dim_value for d in dims] == ["batch", "time", 16]


def test_recurrent_layers_of_any_length() -> None:
    model = Language()
    program = checked(model, (torch.randint(0, 50, (3, 5)),), dynamic_shapes=({0: "batch", 1: "time"},))
    assert kinds(program).count("LSTM") == 2 and kinds(program).count("GRU") == 1 and "Slice" not in kinds(program)[-4:]
    agree(program, model, (torch.randint(0, 50, (2, 9)),))


def test_control_flow_becomes_graphs_in_the_graph() -> None:
    from rushlight._higher_order_ops import map, scan, while_loop

    class Branch(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))

    class Turns(nn.Module):
        def forward(self, x: Any) -> Any:
            return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5), (torch.tensor(0), x))

    class Rows(nn.Module):
        def forward(self, x: Any) -> Any:
            return scan(lambda c, x: (c + x, c * x), torch.zeros(3), x), map(lambda x: x.sin() + 1, x)

    program = checked(Branch(), (torch.ones(4),))
    assert "If" in kinds(program)
    agree(program, Branch(), (-torch.ones(4),))
    assert "Loop" in kinds(checked(Turns(), (torch.randn(3),)))
    assert kinds(checked(Rows(), (torch.randn(5, 3),))).count("Scan") == 2


def test_the_classic_form_writes_one_file_with_names_and_axes(tmp_path: Path) -> None:
    model, x = convolutional(), torch.randn(2, 3, 8, 8)
    path = tmp_path / "model.onnx"
    made = torch.onnx.export(
        model, x, str(path), dynamo=False, input_names=["image"], output_names=["scores"], dynamic_axes={"image": {0: "n"}, "scores": {0: "n"}}
    )  # fmt: skip
    assert made is None and [p.name for p in tmp_path.iterdir()] == ["model.onnx"] and model.training
    proto = onnx.load(path)
    assert (proto.graph.input[0].name, proto.graph.output[0].name) == ("image", "scores")
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"
    assert proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "n"
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path))
    wide = torch.randn(5, 3, 8, 8)
    with torch.no_grad():
        want = model.eval()(wide)
    assert torch.allclose(torch.from_numpy(session.run(None, {"image": wide.numpy()})[0]), want, atol=1e-6)


def test_weights_beside_the_model(tmp_path: Path) -> None:
    model = nn.Linear(300, 40)
    torch.onnx.export(model, (torch.randn(2, 300),), tmp_path / "a.onnx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.onnx", "a.onnx.data"]
    assert (tmp_path / "a.onnx").stat().st_size < 8192
    proto = onnx.load(tmp_path / "a.onnx")
    weight = next(i for i in proto.graph.initializer if i.name == "weight")
    assert onnx.numpy_helper.to_array(weight).tobytes() == model.weight.detach().numpy().tobytes()
    onnx.checker.check_model(tmp_path / "a.onnx", full_check=True)


def test_inputs_that_are_results_and_constants_and_none() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x: Any, scale: float = 2.0, other: Any = None) -> Any:
            return {"x": x, "again": x, "w": self.weight, "n": None, "y": x * scale}

    program = checked(Odd(), (torch.randn(2),))
    assert len(program.model_proto.graph.output) == 4
    names = [o.name for o in program.model_proto.graph.output]
    assert len(set(names)) == 4


def test_operators_without_an_onnx_form_name_the_line_and_the_way_out() -> None:
    class Bad(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.lgamma(x) + 1

    with pytest.raises(
        torch.onnx.errors.UnsupportedOperatorError, match=r"aten::lgamma.*test_export\.py.*custom_translation_table"
    ):
        torch.onnx.export(Bad(), (torch.ones(2),))
    with pytest.raises(torch.onnx.errors.UnsupportedOperatorError, match=r"needs opset 18.*opset_version=18"):
        torch.onnx.export(Bits(), (torch.ones(2, dtype=torch.int64),), opset_version=17)
    with pytest.raises(ValueError, match="17 to 23"):
        torch.onnx.export(Bits(), (torch.ones(2, dtype=torch.int64),), opset_version=30)


class Bits(nn.Module):
    def forward(self, x: Any) -> Any:
        return x & 3


def test_translations_of_users() -> None:
    class Gamma(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.lgamma(x) + torch.nn.functional.silu(x)

    def lgamma(g: Any, x: Any) -> Any:
        return g.op("my.domain::LogGamma", x, precision_f=0.5, modes_s=["a", "b"])

    program = torch.onnx.export(
        Gamma(), (torch.ones(2),), custom_translation_table={torch.ops.aten.lgamma.default: lgamma}
    )
    node = next(n for n in program.model_proto.graph.node if n.domain)
    assert (node.domain, node.op_type, sorted(a.name for a in node.attribute)) == (
        "my.domain",
        "LogGamma",
        ["modes", "precision"],
    )
    assert {o.domain: o.version for o in program.model_proto.opset_import}["my.domain"] == 1

    @torch.onnx.symbolic_helper.parse_args("v", "f")
    def hardshrink(g: Any, x: Any, limit: float) -> Any:
        return g.op("Shrink", x, lambd_f=limit, bias_f=0.0)

    torch.onnx.register_custom_op_symbolic("aten::hardshrink", hardshrink, 17)
    try:
        assert kinds(checked(nn.Hardshrink(0.25), (torch.randn(8),))) == ["Shrink"]
    finally:
        torch.onnx.unregister_custom_op_symbolic("aten::hardshrink", 17)
    assert "Shrink" not in kinds(checked(nn.Hardshrink(0.25), (torch.randn(8),)))
    with pytest.raises(ValueError, match="domain::name"):
        torch.onnx.register_custom_op_symbolic("hardshrink", hardshrink, 17)


def test_functions_of_onnxscript() -> None:
    onnxscript = pytest.importorskip("onnxscript")
    op = onnxscript.opset18

    def silu(self: Any) -> Any:
        return op.Mul(self, op.Sigmoid(self))

    program = checked(nn.SiLU(), (torch.randn(4),), custom_translation_table={torch.ops.aten.silu.default: silu})
    assert kinds(program) == ["Sigmoid", "Mul"]


def test_operators_of_onnx_in_models() -> None:
    class Fancy(nn.Module):
        def forward(self, x: Any) -> Any:
            assert torch.onnx.is_in_onnx_export()
            one, two = torch.onnx.ops.symbolic_multi_out(
                "my::Two",
                (x,),
                {"k": 3, "words": ["a"]},
                dtypes=(x.dtype, torch.int64),
                shapes=(x.shape, [2]),
                version=4,
            )
            return one + 1, two

    program = torch.onnx.export(Fancy(), (torch.ones(3),))
    assert (
        kinds(program) == ["Two", "Add"] and {o.domain: o.version for o in program.model_proto.opset_import}["my"] == 4
    )
    assert not torch.onnx.is_in_onnx_export()


def test_programs_are_run_changed_and_saved(tmp_path: Path) -> None:
    model, x = nn.Linear(3, 2), torch.randn(4, 3)
    program = checked(model, (x,), verify=True, report=True, profile=True, artifacts_dir=tmp_path)
    assert len(list(tmp_path.glob("*.md"))) == 1
    assert torch.allclose(program.call_reference(x)[0], model(x), atol=1e-6)
    program.apply_weights({"weight": torch.zeros(2, 3), "bias": torch.ones(2)})
    assert torch.equal(program(x)[0], torch.ones(4, 2))
    with pytest.raises(ValueError, match="weight"):
        program.apply_weights({"weight": torch.zeros(3, 3)})
    program.save(tmp_path / "m.onnx", include_initializers=False)
    assert [i.name for i in onnx.load(tmp_path / "m.onnx").graph.input] == ["input", "weight", "bias"]
    program.save(tmp_path / "m.onnx", keep_initializers_as_inputs=True)
    assert len(onnx.load(tmp_path / "m.onnx").graph.initializer) == 2
    program.release()
    assert program.compute_values(["linear"], (x,))[0].shape == (4, 2)
    with pytest.raises(ValueError, match="2 were given"):
        program(x, x)


def test_where_nodes_come_from_is_in_their_metadata() -> None:
    program = checked(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), (torch.randn(1, 2),))
    found = {p.key: p.value for p in program.model_proto.graph.node[-1].metadata_props}
    assert found["pkg.torch.onnx.name_scopes"] == '["", "1", "relu"]' and "aten.relu.default" in found["namespace"]
    assert "torch.ops.aten.relu.default" in found["pkg.torch.onnx.fx_node"] or "relu" in found["pkg.torch.onnx.fx_node"]


def test_exportable_modules_and_observed_calls() -> None:
    class Own(torch.onnx.ExportableModule):
        def forward(self, x: Any) -> Any:
            return x.sum(0)

        def example_arguments(self) -> Any:
            return (torch.ones(4, 3),), None

        def input_names(self) -> Any:
            return ["rows"]

        def dynamic_shapes(self) -> Any:
            return ({0: "n"},)

    program = Own().to_onnx()
    assert program.model_proto.graph.input[0].name == "rows" and torch.equal(
        program(torch.ones(7, 3))[0], torch.full((3,), 7.0)
    )
    model, observer = nn.Linear(3, 2), torch.onnx.InputObserver()
    with observer(model):
        for count in (3, 4):
            model(torch.randn(count, 3))
    program = torch.onnx.export(model, observer.infer_arguments(), dynamic_shapes=observer.infer_dynamic_shapes())
    rows = observer.check_discrepancies(program)
    assert [r["SUCCESS"] for r in rows] == [True, True]


def test_changes_in_place_become_new_values() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.Sequential(nn.ReLU6(inplace=True), nn.LeakyReLU(0.1, True), nn.Hardtanh(-1, 2, inplace=True))
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            y = x * 4
            z = self.act(y)
            y[:, 1:] += 1
            self.count.add_(y[0])
            y[0] = 0
            return y + z, self.count * 1

    model = Own()
    model.eval()
    x = torch.randn(2, 3)
    found = torch.onnx.export(model, (x,))(x)  # first: the model changes its buffer
    with torch.no_grad():
        wanted = model(x)
    for have, want in zip(found, wanted, strict=True):
        assert torch.allclose(have, want, atol=1e-6)


class _Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, least: float, most: float) -> torch.Tensor:
        return x.clamp(least, most)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad, None, None

    @staticmethod
    def symbolic(g: Any, x: Any, least: float, most: float) -> Any:
        return g.op("my.domain::Clipped", x, least_f=least, most_f=most)


class _SumAndProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + y, x * y

    @staticmethod
    def symbolic(g: Any, x: Any, y: Any) -> Any:
        return g.op("Add", x, y), g.op("Mul", x, y)


def test_functions_write_themselves_in_the_classic_form(tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            both = _SumAndProduct.apply(x, x + 1)
            return both[1] - both[0]

    x, path = torch.randn(4, 3), str(tmp_path / "model.onnx")
    torch.onnx.export(Model(), (x,), path, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}})
    assert [n.op_type for n in onnx.load(path).graph.node] == ["Add", "Add", "Mul", "Sub"]
    y = torch.randn(7, 3)
    found = onnxruntime.InferenceSession(path).run(None, {"x": y.numpy()})[0]
    assert abs(found - Model()(y).numpy()).max() < 1e-6

    class Clipping(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return _Clipped.apply(x, -0.5, 0.5) * 2

    torch.onnx.export(Clipping(), (x,), path, dynamo=False)
    nodes = onnx.load(path).graph.node
    assert [(n.domain, n.op_type) for n in nodes] == [("my.domain", "Clipped"), ("", "Mul")]
    assert {a.name: a.f for a in nodes[0].attribute} == {"least": -0.5, "most": 0.5}
    torch.onnx.export(Clipping(), (x,), path, dynamo=True)  # which exports what `forward` computes
    assert [n.op_type for n in onnx.load(path).graph.node] == ["Clip", "Mul"]

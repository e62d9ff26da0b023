"""Quantized models in scripts and archives: layers are operators over packed weights, or objects of Python, which scripts call."""

from __future__ import annotations

import io

import pytest

import rushlight as torch
from rushlight.ao import quantization

X = torch.linspace(-2, 2, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


def layers() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 5)
    )


def by_layers() -> torch.nn.Module:
    model = quantization.QuantWrapper(layers()).eval()
    model.qconfig = quantization.get_default_qconfig("onednn")
    watched = quantization.prepare(model)
    watched(X)
    return quantization.convert(watched)


class Residual(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x) + x)


def by_graph() -> torch.nn.Module:
    from rushlight.ao.quantization.quantize_fx import convert_fx, prepare_fx

    watched = prepare_fx(Residual().eval(), quantization.get_default_qconfig_mapping("onednn"), (X,))
    watched(X)
    return convert_fx(watched)


def dynamic() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)).eval()
    return quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


class Sums(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.up = torch.nn.Conv2d(3, 3, 3, padding=1), torch.nn.ConvTranspose2d(3, 2, 2, stride=2)
        self.rows, self.sums = torch.nn.Conv1d(2, 2, 3, padding=1), torch.ao.nn.quantized.FloatFunctional()

    def forward(self, x):
        x = self.quant(x)
        y = self.up(self.sums.add_relu(self.conv(x), x))
        return self.dequant(self.rows(y.flatten(2)))


def with_sums() -> torch.nn.Module:
    model = Sums().eval()
    model.qconfig = quantization.get_default_qconfig("qnnpack")
    watched = quantization.prepare(model)
    watched(X)
    return quantization.convert(watched)


def archived(scripted: torch.nn.Module) -> io.BytesIO:
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("make", [by_layers, by_graph, dynamic, with_sums])
def test_a_quantized_model_in_a_script_gives_its_numbers(make):
    torch.manual_seed(0)
    model = make()
    expected = model(X)
    scripted = torch.jit.script(model)
    frozen = torch.jit.freeze(scripted.eval())
    for each in (scripted, frozen, *(torch.jit.load(archived(s)) for s in (scripted, frozen))):
        assert torch.equal(each(X), expected)


@pytest.mark.parametrize("make", [by_layers, by_graph, dynamic, with_sums])
def test_a_trace_of_a_quantized_model_has_its_operators(make):
    torch.manual_seed(0)
    model = make()
    expected = model(X)
    traced = torch.jit.trace(model, X)
    kinds = {n.kind().partition("::")[0] for n in traced.inlined_graph.nodes() if "Constant" not in n.kind()}
    assert "quantized" in kinds and kinds <= {"quantized", "aten", "prim"}
    frozen = torch.jit.freeze(traced.eval())
    for each in (traced, frozen, *(torch.jit.load(archived(s)) for s in (traced, frozen))):
        assert torch.equal(each(X), expected)


class Functions(torch.nn.Module):
    def forward(self, x):
        q = torch.quantize_per_tensor(x, 0.05, 128, torch.quint8)
        q = torch.nn.functional.max_pool2d(torch.relu(q), 2).clamp(0.1, 1.0)
        q = torch.nn.functional.interpolate(torch.cat([q, q], 1), scale_factor=2.0)
        each = torch.quantize_per_channel(x, torch.ones(3) * 0.1, torch.tensor([0, 1, 2]), 1, torch.qint8)
        return q.flatten(1).dequantize(), each.dequantize()


def test_a_trace_of_functions_of_quantized_tensors_follows_other_numbers():
    traced = torch.jit.load(archived(torch.jit.trace(Functions(), X)))
    for x in (X, X.flip(0) * 0.5):
        assert all(torch.equal(a, b) for a, b in zip(traced(x), Functions()(x), strict=True))


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (torch.nn.ELU(0.5), (2, 3)), (torch.nn.LeakyReLU(0.2), (2, 3)), (torch.nn.LayerNorm(6), (2, 6)),
        (torch.nn.GroupNorm(2, 4), (2, 4, 3)), (torch.nn.InstanceNorm2d(3, affine=True), (2, 3, 4, 4)),
    ],
)  # fmt: skip
def test_layers_of_one_operator_are_saved(layer, shape):
    model = quantization.QuantWrapper(torch.nn.Sequential(layer)).eval()
    model.qconfig = quantization.get_default_qconfig("qnnpack")
    x = torch.linspace(-2, 2, torch.Size(shape).numel()).reshape(shape)
    watched = quantization.prepare(model)
    watched(x)
    model = quantization.convert(watched)
    for form in (torch.jit.script(model), torch.jit.trace(model, x)):
        assert torch.equal(torch.jit.load(archived(form))(x), model(x))


@pytest.mark.parametrize("cell", [torch.nn.LSTMCell(3, 4), torch.nn.GRUCell(3, 4), torch.nn.RNNCell(3, 4)])
def test_a_trace_of_a_cell_is_saved(cell):
    model = quantization.quantize_dynamic(torch.nn.Sequential(cell), {type(cell)}, dtype=torch.qint8).eval()
    x = torch.linspace(-2, 2, 6).reshape(2, 3)
    found, wanted = torch.jit.load(archived(torch.jit.trace(model, x)))(x), model(x)
    assert torch.equal(torch.stack(list(found)), torch.stack(list(wanted)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.qint8])
def test_dynamic_layers_are_saved(dtype):
    model = quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(3, 4)), dtype=dtype).eval()
    x = torch.linspace(-2, 2, 6).reshape(2, 3)
    for form in (torch.jit.script(model), torch.jit.trace(model, x)):
        assert torch.equal(torch.jit.load(archived(form))(x), model(x))


def test_rows_of_a_quantized_weight_are_saved():
    layer = torch.ao.nn.quantized.Embedding.from_float(embedding())
    places = torch.tensor([1, 3])
    for form in (torch.jit.script(layer), torch.jit.trace(layer, places)):
        assert torch.equal(torch.jit.load(archived(form))(places), layer(places))


def embedding() -> torch.nn.Module:
    made = torch.nn.Embedding(10, 8)
    made.qconfig = quantization.float_qparams_weight_only_qconfig
    return made


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["script", "trace"])
def test_archives_of_quantized_layers_go_both_ways(how):
    oracle = pytest.importorskip("torch")
    x = oracle.linspace(-2, 2, 18).reshape(3, 6)
    theirs = oracle.ao.quantization.QuantWrapper(oracle.nn.Sequential(oracle.nn.Linear(6, 5), oracle.nn.ELU())).eval()
    theirs.qconfig = oracle.ao.quantization.get_default_qconfig("fbgemm")
    watched = oracle.ao.quantization.prepare(theirs)
    watched(x)
    theirs = oracle.ao.quantization.convert(watched)
    made = oracle.jit.script(theirs) if how == "script" else oracle.jit.trace(theirs, x)
    for form in (made, oracle.jit.freeze(made)):  # a frozen one has its packed weights among its constants
        file = io.BytesIO()
        oracle.jit.save(form, file)
        file.seek(0)
        ours = torch.jit.load(file)
        assert torch.equal(ours(torch.from_numpy(x.numpy())), torch.from_numpy(theirs(x).numpy()))
        back = oracle.jit.load(archived(ours))
        assert oracle.equal(back(x), theirs(x))


@pytest.mark.oracle
@pytest.mark.parametrize("make", [by_layers, by_graph])
def test_pytorch_reads_archives_of_quantized_models(make):
    oracle = pytest.importorskip("torch")
    torch.manual_seed(0)
    model, engine = make(), oracle.backends.quantized.engine
    # Without VNNI the sums of PyTorch's default engine saturate, unless a bit of the activations is left out.
    oracle.backends.quantized.engine = "qnnpack"
    try:
        for scripted in (torch.jit.script(model), torch.jit.freeze(torch.jit.script(model).eval())):
            found = oracle.jit.load(archived(scripted))(oracle.from_numpy(X.numpy()))
            assert float(abs(found.numpy() - model(X).numpy()).max()) < 1e-6
    finally:
        oracle.backends.quantized.engine = engine


def test_a_layer_that_stays_python_is_named_when_saved():
    scripted = torch.jit.script(torch.ao.nn.quantized.EmbeddingBag(10, 8))
    for form in (scripted, torch.jit.freeze(scripted.eval())):
        with pytest.raises(NotImplementedError, match="no quantized layers into TorchScript archives"):
            torch.jit.save(form, io.BytesIO())


def test_damaged_packed_weights_are_refused():
    from rushlight.jit.serialization.packed import packed_object

    weight = torch.quantize_per_tensor(torch.ones(4, 2, 1, 1), 0.5, 0, torch.qint8)
    numbers = torch.tensor([2, 1, 1, 0, 0, 1, 1, 0, 0, 1, 0], dtype=torch.int16)
    name = "__torch__.torch.classes.quantized.Conv2dPackedParamsBase"
    assert packed_object(name, ("2", [numbers, weight], [None])).unpack()[1] is None
    for state in (
        None, (), ("9", [numbers, weight], [None]), ("2", [numbers[:5], weight], [None]), ("2", [numbers, weight[0]], [None]),
        ("2", [numbers * 0, weight], [None]), ("2", [numbers, torch.ones(4, 2, 1, 1)], [None]), ("2", [numbers, weight], [torch.ones(3)]),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="damaged|qint8"):
            packed_object(name, state)


def test_a_layer_alone():
    layer = torch.ao.nn.quantized.Embedding(10, 8)
    places = torch.tensor([1, 3])
    assert torch.equal(torch.jit.script(layer)(places), layer(places))
    weight, bias = torch.ao.nn.quantized.Conv2d(2, 3, 1)._weight_bias()
    assert weight.shape == (3, 2, 1, 1) and bias.shape == (3,)


def test_operators_of_quantized_tensors():
    def one(x: torch.Tensor):
        q = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
        return q.int_repr(), q.q_scale(), q.q_zero_point(), q.dequantize(), q.is_quantized

    def each(x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor):
        q = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)
        return q.int_repr(), q.q_per_channel_scales(), q.q_per_channel_zero_points(), q.q_per_channel_axis()

    x = torch.tensor([[0.1, -0.2], [0.5, 0.6]])
    assert str(torch.jit.script(one)(x)) == str(one(x))
    given = (x, torch.tensor([0.1, 0.2]), torch.tensor([0, 1]))
    assert str(torch.jit.script(each)(*given)) == str(each(*given))


class Ignoring(torch.nn.Module):
    @torch.jit.ignore
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + int("2")


def test_a_module_whose_forward_is_ignored_is_called():
    assert torch.jit.script(torch.nn.Sequential(Ignoring()))(torch.ones(1)).item() == 3.0

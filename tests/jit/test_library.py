"""Functions and layers of `nn` in scripts: what Python gives, in every form that their arguments have."""

import importlib.util
import io
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight import Tensor, nn

# Expressions over `x` (2, 4, 6, 6), `s` (2, 4, 6), `v` (2, 4, 4, 6, 6), `m` (3, 5), `t` (3,) of classes, `p` (3, 5) in (0, 1).
CALLS = """
F.relu(x); F.relu(x, inplace=True); F.relu(input=x, inplace=False); F.relu6(x); F.relu6(x, True); F.leaky_relu(x, 0.1); F.leaky_relu(x, inplace=True)
F.hardtanh(x, -0.5, 0.5); F.hardtanh(x, min_val=-0.5, inplace=True); F.elu(x, 0.7); F.elu(x, inplace=True); F.celu(x, 0.5); F.celu(x, 0.5, True)
F.selu(x); F.selu(x, inplace=True); F.silu(x); F.silu(x, inplace=True); F.mish(x); F.mish(x, inplace=True); F.hardsigmoid(x); F.hardsigmoid(x, True)
F.hardswish(x); F.hardswish(x, True); F.rrelu(x); F.rrelu(x, 0.1, 0.2, inplace=True); F.threshold(x, 0.1, 2.0); F.threshold(x, 0.1, 2.0, True)
F.softmax(x, 1); F.softmax(x, dim=-1, dtype=torch.float64); F.softmax(m, None); F.log_softmax(x, 1); F.log_softmax(x, dim=2, dtype=torch.float64)
F.softmin(x, 1); F.tanhshrink(x); F.softsign(x); F.logsigmoid(x); F.glu(x, 1); F.glu(x); F.normalize(x); F.normalize(x, p=1.0, dim=2); F.gelu(x)
F.gelu(x, approximate="tanh"); F.softplus(x, 2.0); F.softshrink(x, 0.3); F.hardshrink(x); F.prelu(x, w); F.sigmoid(x); F.tanh(x)
F.dropout(x, 0.3); F.dropout(x, 0.3, False); F.dropout(x, 0.3, training=True, inplace=True); F.alpha_dropout(x, 0.3, True); F.feature_alpha_dropout(x, 0.3, True)
F.dropout2d(x, 0.3); F.dropout1d(s, 0.3); F.dropout1d(s[0], 0.3); F.dropout3d(v, 0.3); F.dropout2d(x, 0.3, True, True)
F.batch_norm(x, None, None, w, w, True); F.batch_norm(x, w, w * w + 1, weight=w, eps=1e-3); F.instance_norm(x); F.instance_norm(x, weight=w, bias=w, eps=1e-4)
F.layer_norm(x, [6]); F.layer_norm(x, [6, 6], eps=1e-3); F.group_norm(x, 2); F.group_norm(x, 2, w, w); F.local_response_norm(x, 3); F.local_response_norm(s, 2, 0.1)
F.rms_norm(x, [6])
F.max_pool1d(s, 2); F.max_pool1d(s, 3, stride=2, padding=1); F.max_pool2d(x, 2); F.max_pool2d(x, [3, 2], 2, 1); F.max_pool3d(v, 2); F.max_pool2d(x, 2, ceil_mode=True)
F.max_pool1d(s, 2, return_indices=True); F.max_pool2d(x, 2, return_indices=True); F.max_pool2d(x, 2, 2, 0, 1, False, True); F.max_pool3d(v, 2, return_indices=True)
F.adaptive_max_pool1d(s, 3); F.adaptive_max_pool2d(x, 3); F.adaptive_max_pool2d(x, [3, 2]); F.adaptive_max_pool3d(v, 2); F.adaptive_max_pool2d(x, 2, return_indices=True)
F.adaptive_max_pool1d(s, 2, True); F.adaptive_max_pool3d(v, 2, True)
F.avg_pool1d(s, 2); F.avg_pool2d(x, 2); F.avg_pool2d(x, [3, 2], stride=1, padding=1, count_include_pad=False); F.avg_pool2d(x, 2, divisor_override=3); F.avg_pool3d(v, 2, 1)
F.lp_pool1d(s, 2.0, 2); F.lp_pool2d(x * x, 3.0, [2, 3], 1); F.lp_pool3d(v, 2.0, 2); F.adaptive_avg_pool1d(s, 3); F.adaptive_avg_pool2d(x, 3)
F.adaptive_avg_pool2d(x, [3, None]); F.adaptive_avg_pool3d(v, 2); F.adaptive_avg_pool3d(v, [None, 2, 3])
F.embedding(t, m); F.embedding(t, m, padding_idx=-1); F.embedding(t, m, 2, scale_grad_by_freq=True); F.pad(x, [1, 2]); F.pad(s, [1, 1], "reflect"); F.pad(x, [1, 0, 2, 1], value=2.5)
F.pad(x, [1, 1, 2, 2], mode="replicate"); F.pad(x, [1, 1, 2, 2], mode="circular")
F.interpolate(x, scale_factor=2.0); F.interpolate(x, size=[3, 4]); F.interpolate(x, size=3); F.interpolate(x, [9, 9], mode="bilinear"); F.interpolate(s, scale_factor=1.5, mode="linear")
F.interpolate(x, scale_factor=[1.5, 2.0], mode="bilinear", align_corners=True); F.interpolate(x, scale_factor=1.3, mode="bicubic", recompute_scale_factor=True); F.interpolate(v, 3, mode="trilinear")
F.interpolate(x, 3, mode="bilinear", antialias=True); F.interpolate(x, 7, mode="nearest-exact"); F.interpolate(x, 3, mode="area")
F.grid_sample(x, g); F.grid_sample(x, g, "nearest", "border", True); F.grid_sample(x, g, mode="bicubic", padding_mode="reflection"); F.affine_grid(a, [2, 1, 3, 4]); F.affine_grid(a, [2, 1, 3, 4], True)
F.unfold(x, 2); F.unfold(x, [2, 3], padding=1, stride=2); F.fold(F.unfold(x, 2), [6, 6], 2); F.gumbel_softmax(m, 0.7); F.gumbel_softmax(m, hard=True, dim=0)
F.mse_loss(m, p); F.mse_loss(m, p, reduction="sum"); F.mse_loss(m, p, size_average=False); F.mse_loss(m, p, reduce=False); F.l1_loss(m, p); F.l1_loss(m, p, reduction="none")
F.smooth_l1_loss(m, p); F.smooth_l1_loss(m, p, beta=0.0); F.smooth_l1_loss(m, p, reduction="sum", beta=0.5); F.huber_loss(m, p, delta=0.5); F.huber_loss(m, p, "sum", 0.5)
F.cross_entropy(m, t); F.cross_entropy(m, t, w5, reduction="sum", label_smoothing=0.1); F.cross_entropy(m, p); F.cross_entropy(m, t, ignore_index=1, reduce=False)
F.nll_loss(m, t); F.nll_loss(m, t, w5, ignore_index=2, reduction="none"); F.kl_div(m, p, reduction="batchmean"); F.kl_div(m, p, reduction="sum", log_target=True); F.kl_div(m, p)
F.kl_div(m, p, reduction="none"); F.binary_cross_entropy(p, p); F.binary_cross_entropy(p, p, p, reduction="sum"); F.binary_cross_entropy_with_logits(m, p)
F.binary_cross_entropy_with_logits(m, p, pos_weight=w5, reduction="none"); F.gaussian_nll_loss(m, p, p); F.gaussian_nll_loss(m, p, p[:, 0], full=True, reduction="sum")
F.poisson_nll_loss(m, p); F.poisson_nll_loss(m, p, False, reduction="sum"); F.soft_margin_loss(m, p); F.hinge_embedding_loss(m, p, 0.5); F.margin_ranking_loss(m, p, p, 0.1)
F.cosine_embedding_loss(m, p, t * 0 + 1); F.multi_margin_loss(m, t); F.multilabel_soft_margin_loss(m, p); F.triplet_margin_loss(m, p, p * 2); F.cosine_similarity(m, p)
F.pairwise_distance(m, p); F.one_hot(t, 6); F.multilabel_margin_loss(m, t5)
F.embedding_bag(t2, m); F.embedding_bag(t, m, o, mode="sum"); F.embedding_bag(t, m, o, mode="max", padding_idx=1); F.embedding_bag(t, m, o, mode="sum", per_sample_weights=w3, include_last_offset=True)
F.linear(m, p); F.bilinear(m, p, b3); F.conv1d(s, k1); F.conv2d(x, k2, w, 2, 1); F.conv3d(v, k3, stride=2); F.conv2d(x, k2, padding="same"); F.conv_transpose2d(x, k2, stride=2)
F.pixel_shuffle(x, 2); F.channel_shuffle(x, 2); F.pixel_unshuffle(x, 2); F.cosine_similarity(m, p, 0, 1e-3); F.pdist(m)
F.scaled_dot_product_attention(x, x, x); F.scaled_dot_product_attention(x, x, x, is_causal=True)
F.multi_head_attention_forward(s, s, s, 6, 2, n36, n3, None, None, False, 0.0, n66, n1); F.multi_head_attention_forward(s, s, s, 6, 2, n36, None, n116, n116, True, 0.0, n66, None, need_weights=False)
torch.unique(t2); torch.unique(t2, return_inverse=True); torch.unique(t2, True, False, True); torch.unique(t2, return_inverse=True, return_counts=True, dim=0)
torch.unique_consecutive(t2); torch.unique_consecutive(t2, return_counts=True); torch.unique_consecutive(t2, True, True); torch.unique_consecutive(t2, return_inverse=True, dim=1)
torch.softmax(m, 1); torch.tensordot(m, p.t(), 1); torch.tensordot(m, p, ([1], [1])); torch.tensordot(m, p, [[0, 1], [0, 1]]); torch.tensordot(m, p)
torch.tensordot(m, p, torch.tensor([[0], [0]])); torch.tensordot(m, p.t(), dims=torch.tensor(1)); torch.cdist(m, p); torch.cdist(m, p, 1.0, "donot_use_mm_for_euclid_dist")
torch.cdist(m, p, compute_mode="use_mm_for_euclid_dist"); torch.norm(m); torch.norm(m, 1.5, 1); torch.norm(m, p="fro", dim=1); torch.norm(m, p="nuc"); torch.norm(x, "nuc", [2, 3], True)
torch.norm(m, p=1, dim=[0, 1], keepdim=True); torch.norm(m, p="fro", dim=[0, 1], dtype=torch.float64); torch.norm(m, 3); torch.lu(n66); torch.lu(n66, get_infos=True)
torch.stft(n1, 4, return_complex=True); torch.stft(n66, 4, 1, 3, w3, normalized=True, return_complex=True); torch.stft(n66, 4, center=False, return_complex=True)
torch.stft(n66, 4, pad_mode="constant", onesided=False, return_complex=True); torch.istft(torch.stft(n1, 4, return_complex=True), 4); torch.atleast_1d(m); torch.atleast_3d([m, p])
torch.broadcast_shapes([2, 1], [1, 3]); torch.tensor_split(x, 3, 1); torch.chunk(x, 2, 1); torch.hsplit(m, [1, 2]); torch.unbind(m); torch.split(m, [1, 4], 1); torch.block_diag(m, p)
"""
NAMES = "x s v m t t2 t5 p w w3 w5 g a o k1 k2 k3 b3 n36 n3 n66 n1 n116".split()


def tensors() -> dict[str, Tensor]:
    """What the expressions are of."""
    torch.manual_seed(0)
    return {
        "x": torch.randn(2, 4, 6, 6), "s": torch.randn(2, 4, 6), "v": torch.randn(2, 4, 4, 6, 6), "m": torch.randn(3, 5), "p": torch.rand(3, 5) * 0.9 + 0.05,
        "t": torch.tensor([2, 0, 1]), "t2": torch.tensor([[2, 0], [1, 1]]), "t5": torch.tensor([[1, 0, -1, 2, 3]] * 3), "w": torch.randn(4), "w3": torch.randn(3),
        "w5": torch.rand(5), "g": torch.rand(2, 3, 3, 2) * 2 - 1, "a": torch.randn(2, 2, 3), "o": torch.tensor([0, 2, 3]), "k1": torch.randn(3, 4, 3),
        "k2": torch.randn(4, 4, 3, 3), "k3": torch.randn(2, 4, 2, 2, 2), "b3": torch.randn(2, 5, 5), "n36": torch.randn(18, 6), "n3": torch.randn(18),
        "n66": torch.randn(6, 6), "n1": torch.randn(6), "n116": torch.randn(1, 1, 6),
    }  # fmt: skip


EXPRESSIONS = [e.strip() for line in CALLS.strip().splitlines() for e in line.split(";") if e.strip()]


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A function for each expression, in a file: scripts need source."""
    path: Path = tmp_path_factory.mktemp("scripts") / "expressions.py"
    head = "import rushlight as torch\nimport rushlight.nn.functional as F\n"
    body = "".join(f"\ndef f{i}({', '.join(NAMES)}):\n    return {e}\n" for i, e in enumerate(EXPRESSIONS))
    path.write_text(head + body)
    spec = importlib.util.spec_from_file_location("expressions", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def close(a: Any, b: Any) -> None:
    if isinstance(a, Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            close(x, y)
    else:
        assert a == b


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("at", range(len(EXPRESSIONS)), ids=EXPRESSIONS)
def test_functions_give_what_python_gives(functions: Any, at: int) -> None:
    function = getattr(functions, f"f{at}")
    scripted = torch.jit.script(function)
    given = tensors()
    torch.manual_seed(3)
    wanted = function(**given)
    changed, given = given, tensors()
    torch.manual_seed(3)
    close(scripted(**given), wanted)
    for name in NAMES:
        close(given[name], changed[name])


X, S, M = torch.rand(2, 4, 6, 6), torch.rand(2, 4, 6), torch.rand(3, 5)
LAYERS: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("conv1d", lambda: nn.Conv1d(4, 3, 3, padding=1), (S,)),
    ("conv2d", lambda: nn.Conv2d(4, 4, 3, 2, 1, groups=2, padding_mode="reflect"), (X,)),
    ("conv3d", lambda: nn.Conv3d(4, 2, 1, bias=False), (X[:, :, None],)),
    ("same", lambda: nn.Conv2d(4, 4, 3, padding="same"), (X,)),
    ("conv_transpose1d", lambda: nn.ConvTranspose1d(4, 2, 3, 2), (S,)),
    ("conv_transpose2d", lambda: nn.ConvTranspose2d(4, 2, 3, 2, output_padding=1), (X,)),
    ("conv_transpose3d", lambda: nn.ConvTranspose3d(4, 2, 1), (X[:, :, None],)),
    ("batch_norm1d", lambda: nn.BatchNorm1d(4), (S,)),
    ("batch_norm2d", lambda: nn.BatchNorm2d(4, momentum=None), (X,)),
    ("batch_norm2d eval", lambda: nn.BatchNorm2d(4).eval(), (X,)),
    ("batch_norm3d", lambda: nn.BatchNorm3d(4, track_running_stats=False), (X[:, :, None],)),
    ("batch_norm no affine", lambda: nn.BatchNorm2d(4, affine=False), (X,)),
    ("instance_norm2d", lambda: nn.InstanceNorm2d(4, affine=True), (X,)),
    ("linear", lambda: nn.Linear(5, 3), (M,)),
    ("linear no bias", lambda: nn.Linear(5, 3, bias=False), (M,)),
    ("layer_norm", lambda: nn.LayerNorm([4, 6]), (S,)),
    ("group_norm", lambda: nn.GroupNorm(2, 4), (X,)),
    ("gelu", lambda: nn.GELU("tanh"), (X,)),
    ("sequential", lambda: nn.Sequential(nn.Identity(), nn.ReLU(inplace=True), nn.Flatten(1, 2), nn.Softmax(-1), nn.Dropout(0.0)), (X,)),
    ("pools", lambda: nn.Sequential(nn.MaxPool2d(2, 1), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d((1, None))), (X,)),
    ("unpool", lambda: nn.MaxPool2d(2, return_indices=True), (X,)),
    ("upsample", lambda: nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False), (X,)),
    ("lstm", lambda: nn.LSTM(6, 3, 2), (S,)),
    ("lstm state", lambda: nn.LSTM(6, 3, bidirectional=True, batch_first=True), (S, (torch.ones(2, 2, 3), torch.ones(2, 2, 3)))),
    ("lstm proj", lambda: nn.LSTM(6, 3, proj_size=2, bias=False), (S[0],)),
    ("gru", lambda: nn.GRU(6, 3, 2, bidirectional=True, batch_first=True), (S,)),
    ("gru state", lambda: nn.GRU(6, 3), (S[0], torch.ones(1, 3))),
    ("rnn", lambda: nn.RNN(6, 3), (S,)),
    ("rnn relu", lambda: nn.RNN(6, 3, nonlinearity="relu"), (S, torch.ones(1, 4, 3))),
    ("lstm_cell", lambda: nn.LSTMCell(5, 3), (M,)),
    ("lstm_cell state", lambda: nn.LSTMCell(5, 3), (M[0], (torch.ones(3), torch.ones(3)))),
    ("gru_cell", lambda: nn.GRUCell(5, 3), (M, torch.ones(3, 3))),
    ("rnn_cell", lambda: nn.RNNCell(5, 3), (M[0],)),
    ("rnn_cell relu", lambda: nn.RNNCell(5, 3, nonlinearity="relu"), (M,)),
    ("attention", lambda: nn.MultiheadAttention(6, 2), (S, S, S)),
    ("attention batch", lambda: nn.MultiheadAttention(6, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True), (S, S + 1, S)),
    ("attention sizes", lambda: nn.MultiheadAttention(6, 3, kdim=5, vdim=4, bias=False), (S, torch.rand(3, 4, 5), torch.rand(3, 4, 4))),
    ("attention one", lambda: nn.MultiheadAttention(6, 2), (S[0], S[0], S[0], None, False)),
    ("encoder layer", lambda: nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0), (S,)),
    ("encoder layer first", lambda: nn.TransformerEncoderLayer(6, 2, 8, 0.0, "gelu", norm_first=True, batch_first=True), (S,)),
    ("encoder", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0.0), 2, nn.LayerNorm(6)), (S, torch.zeros(2, 2))),
    ("encoder causal", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, 0.0), 2), (S, nn.Transformer.generate_square_subsequent_mask(2))),
    ("decoder", lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, 0.0, batch_first=True), 2), (S, S + 1, nn.Transformer.generate_square_subsequent_mask(4))),
    ("decoder layer", lambda: nn.TransformerDecoderLayer(6, 2, 8, 0.0, norm_first=True), (S, S + 1)),
    ("transformer", lambda: nn.Transformer(6, 2, 1, 1, 8, 0.0), (S, S[:1])),
    ("losses", lambda: nn.CrossEntropyLoss(label_smoothing=0.1), (M, torch.tensor([1, 2, 3]))),
    ("embedding", lambda: nn.Embedding(5, 3, padding_idx=0), (torch.tensor([[0, 4], [1, 2]]),)),
    ("embedding bag", lambda: nn.EmbeddingBag(5, 3, mode="sum"), (torch.tensor([[0, 4], [1, 2]]),)),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("build", "given"), [row[1:] for row in LAYERS], ids=[row[0] for row in LAYERS])
def test_layers_give_what_python_gives(build: Any, given: Any) -> None:
    torch.manual_seed(1)
    layer = build()
    scripted = torch.jit.script(layer)
    state = {k: v.clone() for k, v in layer.state_dict().items()}
    wanted = layer(*given)
    after = {k: v.clone() for k, v in layer.state_dict().items()}
    layer.load_state_dict(state)
    close(scripted(*given), wanted)
    close(list(scripted.state_dict().values()), list(after.values()))
    out = io.BytesIO()
    layer.load_state_dict(state)
    scripted.save(out)
    out.seek(0)
    close(torch.jit.load(out)(*given), wanted)


def test_padding_and_masks_of_attention() -> None:
    layer = nn.MultiheadAttention(6, 2)
    scripted = torch.jit.script(layer)
    padding = torch.tensor([[False, False], [True, False], [False, False], [False, True]])
    mask = torch.tensor([[False, True], [False, False]])
    for named in ({"key_padding_mask": padding}, {"attn_mask": mask}, {"key_padding_mask": padding, "attn_mask": mask, "need_weights": False},
                  {"attn_mask": torch.randn(8, 2, 2), "average_attn_weights": False}):  # fmt: skip
        close(scripted(S, S, S, **named), layer(S, S, S, **named))

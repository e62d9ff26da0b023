"""Functions of `nn.functional` that are written here, and the tools of `nn.utils`."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import rushlight as torch
import rushlight.nn.functional as F
from rushlight import nn
from rushlight.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)
from rushlight.nn.utils.rnn import pad_sequence, unpad_sequence

# ***** padding *****


@pytest.mark.parametrize(
    ("mode", "numpy_mode"),
    [("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")],
)
def test_pad_against_numpy(mode: str, numpy_mode: str) -> None:
    x = torch.arange(24.0).reshape(1, 2, 3, 4)
    found = F.pad(x, (2, 1, 0, 2), mode)
    wanted = np.pad(x.numpy(), ((0, 0), (0, 0), (0, 2), (2, 1)), numpy_mode)
    np.testing.assert_array_equal(found.numpy(), wanted)


def test_pad_values_and_cuts() -> None:
    x = torch.arange(5.0)
    assert F.pad(x, (1, -2), value=9).tolist() == [9, 0, 1, 2]
    assert F.pad(x, (-4, -1)).tolist() == []
    assert F.pad(x, ()).tolist() == x.tolist()
    assert F.pad(torch.tensor([True]), (1, 0)).tolist() == [False, True]
    y = torch.ones(2, requires_grad=True)
    (F.pad(y, (1, 1), "constant", 3.0) * torch.arange(4.0)).sum().backward()
    assert y.grad is not None and y.grad.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("shape", "pad", "mode"),
    [((3,), (-2, -2), "constant"), ((1, 3), (3, 0), "reflect"), ((1, 3), (4, 0), "circular"), ((3,), (1,), "constant")],
)
def test_pad_errors(shape: Any, pad: Any, mode: str) -> None:
    with pytest.raises(RuntimeError):
        F.pad(torch.ones(*shape), pad, mode)


def test_pad_modes_that_do_not_exist() -> None:
    with pytest.raises(NotImplementedError):
        F.pad(torch.ones(1, 3), (1, 1), "mirror")
    with pytest.raises(RuntimeError, match="doesn't take in value argument"):
        F.pad(torch.ones(1, 3), (1, 1), "reflect", 2.0)


# ***** resizing *****


def test_interpolate() -> None:
    x = torch.arange(4.0).reshape(1, 1, 2, 2)
    assert F.interpolate(x, scale_factor=2)[0, 0].tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]
    assert F.interpolate(x, size=(2, 3), mode="bilinear")[0, 0].tolist() == [[0, 0.5, 1], [2, 2.5, 3]]
    row = torch.arange(3.0).reshape(1, 1, 3)
    assert F.interpolate(row, size=5, mode="linear", align_corners=True)[0, 0].tolist() == [0, 0.5, 1, 1.5, 2]
    assert F.interpolate(row, size=2, mode="nearest-exact")[0, 0].tolist() == [0, 2]
    assert F.interpolate(x, size=1, mode="area").item() == 1.5
    for bad in (
        lambda: F.interpolate(x),
        lambda: F.interpolate(x, size=2, scale_factor=2),
        lambda: F.interpolate(x, size=(1, 2, 3)),
        lambda: F.interpolate(x, scale_factor=2, align_corners=True),
    ):
        with pytest.raises(ValueError):
            bad()
    with pytest.raises(NotImplementedError, match="Got 3D input, but bilinear mode needs 4D input"):
        F.interpolate(x[0], size=2, mode="bilinear")


def test_pixel_shuffle_undoes_itself() -> None:
    x = torch.arange(72.0).reshape(2, 4, 3, 3)
    y = F.pixel_shuffle(x, 2)
    assert y.shape == (2, 1, 6, 6) and F.pixel_unshuffle(y, 2).tolist() == x.tolist()
    with pytest.raises(RuntimeError, match="divisible by the square"):
        F.pixel_shuffle(x, 3)
    with pytest.raises(RuntimeError, match="to be divisible by"):
        F.pixel_unshuffle(x, 2)


def test_one_hot() -> None:
    assert F.one_hot(torch.tensor([0, 2]), 3).tolist() == [[1, 0, 0], [0, 0, 1]]
    assert F.one_hot(torch.tensor([[1]])).tolist() == [[[0, 1]]]
    assert F.one_hot(torch.tensor(1), 2).tolist() == [0, 1]
    assert F.one_hot(torch.empty(0, dtype=torch.int64), 3).shape == (0, 3)
    for bad in ([-1], [3]):
        with pytest.raises(RuntimeError, match="Class values must be"):
            F.one_hot(torch.tensor(bad), 3)
    with pytest.raises(RuntimeError, match="only applicable to index tensor"):
        F.one_hot(torch.ones(1))
    with pytest.raises(RuntimeError, match="Can not infer"):
        F.one_hot(torch.empty(0, dtype=torch.int64))


# ***** softmax and batch normalisation *****


def test_softmax_without_a_dimension() -> None:
    x = torch.ones(2, 4)
    for _ in range(3):  # each time, and at the user's line
        with pytest.warns(UserWarning, match="Implicit dimension choice for softmax") as warned:
            assert F.softmax(x).tolist() == [[0.25] * 4] * 2
        assert [w.filename for w in warned] == [__file__]
    assert F.softmax(x.half(), -1, dtype=torch.float64).dtype is torch.float64
    assert F.softmin(torch.tensor([0.0, 1.0]), 0).tolist() == pytest.approx([0.7310586, 0.2689414])


def test_batch_norm() -> None:
    x = torch.randn(5, 3, 4)
    mean, var = torch.zeros(3), torch.ones(3)
    out = F.batch_norm(x, mean, var, training=True, momentum=0.25)
    values = x.numpy().transpose(1, 0, 2).reshape(3, -1).astype(np.float64)
    np.testing.assert_allclose(mean.numpy(), 0.25 * values.mean(1), atol=1e-6)
    np.testing.assert_allclose(var.numpy(), 0.75 + 0.25 * values.var(1, ddof=1), atol=1e-6)
    assert abs(out.mean().item()) < 1e-6
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        F.batch_norm(torch.ones(1, 3), None, None, training=True)
    with pytest.raises(RuntimeError, match="must be defined in evaluation mode"):
        F.batch_norm(x, None, None)
    with pytest.raises(ValueError, match=r"expected 4D input \(got 3D input\)"):
        nn.BatchNorm2d(3)(x)


@pytest.mark.parametrize("shape", [(5,), (1, 5), (4, 5), (2, 5, 3)], ids=str)
@pytest.mark.parametrize("wanted", [(True, False), (False, True), (True, True)], ids=["input", "target", "both"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_of_probabilities_is_differentiated_twice(
    shape: tuple[int, ...], wanted: tuple[bool, bool], smoothing: float
) -> None:
    """Where one thing alone is kept for backward it may be the derivative itself, which does not say how to differentiate it."""
    x = torch.randn(shape, dtype=torch.float64, requires_grad=wanted[0])
    target = torch.rand(shape, dtype=torch.float64, requires_grad=wanted[1])
    weight = torch.rand(5, dtype=torch.float64)
    assert torch.autograd.gradgradcheck(
        lambda x, t: F.cross_entropy(x, t, weight, label_smoothing=smoothing), (x, target)
    )


@pytest.mark.parametrize("affine", [True, False])
def test_gradients_of_batch_norm_can_be_differentiated(affine: bool) -> None:
    """The mean of the batch is a result that backward keeps: what differentiating backward sends to it must arrive at the input."""
    m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, affine=affine), nn.Tanh()).double()
    x = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    weights = [p for p in m.parameters() if p.dim() == 2 or affine]
    assert torch.autograd.gradgradcheck(lambda x, *_: m(x), (x, *weights))

    def penalty() -> Any:
        (slope,) = torch.autograd.grad(m(x).square().sum(), x, create_graph=True)
        return slope.square().sum()

    along = torch.randn_like(weights[0])
    (exact,) = torch.autograd.grad(penalty(), weights[0])
    ends = []
    with torch.no_grad():
        start = weights[0].clone()
    for step in (1e-6, -1e-6):
        with torch.no_grad():
            weights[0].copy_(start + step * along)
        ends.append(penalty().item())
    assert (ends[0] - ends[1]) / 2e-6 == pytest.approx((exact * along).sum().item(), rel=1e-6)


# ***** what is refused *****

# In PyTorch 2.13's words: numbers of rows and classes do not count from the end, variances are not negative, dtypes are those that were meant.
REFUSED: list[tuple[Any, type[Exception], str]] = [
    (lambda: F.embedding(torch.tensor([0, -1]), torch.ones(3, 2)), IndexError, "index out of range in self"),
    (lambda: F.embedding(torch.tensor([3]), torch.ones(3, 2), sparse=True), IndexError, "index out of range in self"),
    (lambda: F.embedding_bag(torch.tensor([[0, -1]]), torch.ones(3, 2)), RuntimeError, r"Index 1 of input takes value -1 which is not in the valid range \[0, 3\)"),
    (lambda: F.embedding_bag(torch.tensor([0, 7]), torch.ones(3, 2), torch.tensor([0]), max_norm=1.0), Exception, "range|bounds"),
    (lambda: F.embedding_bag(torch.tensor([0.0]), torch.ones(3, 2), torch.tensor([0])), RuntimeError, "scalar types: Long, Int; but got torch.FloatTensor"),
    (lambda: F.embedding_bag(torch.tensor([0]), torch.ones(3, 2), torch.tensor([0.0])), RuntimeError, "scalar types: Long, Int; but got torch.FloatTensor"),
    (lambda: F.embedding_bag(torch.tensor([0]), torch.ones(3, 2), torch.tensor([0]), mode="sum", per_sample_weights=torch.ones(1).double()), RuntimeError,
     "same type as tensor for argument #1 'per_sample_weights'; but type torch.FloatTensor does not equal torch.DoubleTensor"),
    (lambda: F.embedding_bag(torch.tensor([0]), torch.ones(3, 2), torch.tensor([0]), padding_idx=3), RuntimeError, "padding_idx must be within the number of embeddings, -3 through 2, but got 3"),
    (lambda: F.cross_entropy(torch.ones(2, 3), torch.tensor([0, -3])), IndexError, "Target -3 is out of bounds"),
    (lambda: F.nll_loss(torch.ones(2, 3), torch.tensor([4, 1])), IndexError, "Target 4 is out of bounds"),
    (lambda: F.cross_entropy(torch.ones(20, 3), torch.tensor([2] * 16 + [-100, -1, 7, -2])), IndexError, "Target -1 is out of bounds"),
    (lambda: F.nll_loss(torch.ones(4, 3), torch.tensor([1, -5, 3, -1]), torch.ones(3), ignore_index=-5), IndexError, "Target 3 is out of bounds"),
    (lambda: F.cross_entropy(torch.ones(3), torch.tensor(-2)), IndexError, "Target -2 is out of bounds"),
    (lambda: F.multi_margin_loss(torch.ones(2, 3), torch.tensor([0, -1])), RuntimeError, "Target -1 is out of bounds"),
    (lambda: F.multilabel_margin_loss(torch.ones(2, 3), torch.tensor([[0, -1, -2], [1, 2, 0]])), RuntimeError, "Target -2 is out of bounds"),
    (lambda: F.multilabel_margin_loss(torch.ones(2, 3), torch.tensor([[0, -1, 3], [1, 2, 0]])), RuntimeError, "Target 3 is out of bounds"),
    (lambda: F.cross_entropy(torch.ones(2, 3, 2, 2), torch.full((2, 2, 2), -7), reduction="none"), IndexError, "Target -7 is out of bounds"),
    (lambda: F.cross_entropy(torch.ones(2, 3, requires_grad=True), torch.tensor([0, -3]), label_smoothing=0.1), IndexError, "Target -3 is out"),
    (lambda: F.cross_entropy(torch.ones(2, 3), torch.ones(2).int()), RuntimeError, "expected target dtype to be Long or Byte, but got Int"),
    (lambda: F.nll_loss(torch.ones(2, 3), torch.ones(2)), RuntimeError, "expected target dtype to be Long or Byte, but got Float"),
    (lambda: F.nll_loss(torch.ones(2, 3, 4), torch.ones(2, 4).byte()), RuntimeError, "expected scalar type Long but found Byte"),
    (lambda: F.nll_loss(torch.ones(2, 3), torch.ones(3).long()), ValueError, r"batch_size \(2\) to match target batch_size \(3\)"),
    (lambda: F.nll_loss(torch.ones(2, 3), torch.ones(2, 1).long()), RuntimeError, "multi-target not supported"),
    (lambda: F.kl_div(torch.ones(2), torch.ones(2).long(), reduction="sum"), RuntimeError, "int64"),
    (lambda: F.gaussian_nll_loss(torch.ones(2), torch.ones(2), torch.tensor([1.0, -1.0])), ValueError, "negative entry"),
    (lambda: F.gaussian_nll_loss(torch.ones(2), torch.ones(2), -1.0), ValueError, "negative entry"),
    (lambda: F.gaussian_nll_loss(torch.ones(2, 3), torch.ones(2, 3), torch.ones(1)), ValueError, "incorrect size"),
    (lambda: F.gaussian_nll_loss(torch.ones(2, 3), torch.ones(2, 3), torch.ones(1, 1)), ValueError, "incorrect size"),
    (lambda: torch.batch_norm_update_stats(torch.ones(0, 1), torch.ones(1), torch.ones(1), 0.0), RuntimeError, "at least one element, but got input_sizes = .0, 1."),
    (lambda: F.linear(torch.ones(2, 3).double(), torch.ones(2, 3), torch.ones(2)), RuntimeError, "mat1 and mat2 must have the same dtype, but got Double and Float"),
    (lambda: F.linear(torch.ones(2, 3).long(), torch.ones(2, 3)), RuntimeError, "expected m1 and m2 to have the same dtype, but got: long int != float"),
    (lambda: F.conv1d(torch.ones(1, 1, 3).half(), torch.ones(1, 1, 2), torch.ones(1)), RuntimeError, r"Input type \(c10::Half\) and bias type \(float\)"),
    (lambda: F.conv1d(torch.ones(1, 1, 3).double(), torch.ones(1, 1, 2)), RuntimeError, "expected scalar type Double but found Float"),
    (lambda: nn.LayerNorm(3)(torch.ones(2, 3).double()), RuntimeError, "mixed dtype"),
    (lambda: F.cross_entropy(torch.ones(2, 3), torch.tensor([0, 3])), IndexError, r"Target 3 is out of bounds\. cross_entropy\(\) found 3 classes .* 0 to 2"),
    (lambda: F.binary_cross_entropy_with_logits(torch.ones(2), torch.tensor([0, 1])), RuntimeError, r"target may not be .* int64; .* target\.float\(\)"),
    (lambda: nn.Sequential(nn.Linear(2, 2), torch.relu), TypeError, r"relu is not a Module subclass: it is a function, which a module's forward\(\)"),
    (lambda: nn.Sequential(nn.Linear(2, 2), F.mse_loss), TypeError, "mse_loss is not a Module subclass: it is a function"),
    (lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU), TypeError, r"ReLU is not a Module subclass: it is the class; ReLU\(\.\.\.\) makes a module"),
    (lambda: torch.ones(2, requires_grad=True)[0].fill_(1), RuntimeError, r"a view of a leaf Variable .* in-place operation\. Change it under torch\.no_grad"),
    (lambda: torch.zeros("3"), TypeError, r"zeros\(\): argument 'size' must be tuple of ints, but found element of type str"),
    (lambda: torch.ones(2.5), TypeError, r"ones\(\): argument 'size' must be tuple of ints, but found element of type float"),
    (lambda: torch.ones(2, dtype="float32"), TypeError, r"dtype must be torch\.dtype, not str: write torch\.float32"),
    (lambda: torch.randint(5), TypeError, r"randint\(\) missing 1 required argument: 'size'"),
    (lambda: torch.tensor([1, None]), RuntimeError, "Could not infer dtype of NoneType"),
    (lambda: torch.tensor({}), RuntimeError, "Could not infer dtype of dict"),
    (lambda: torch.tensor([{}]), RuntimeError, "Could not infer dtype of dict"),
    (lambda: torch.tensor([1, {}]), RuntimeError, "Could not infer dtype of dict"),
    (lambda: torch.as_tensor([[set()]]), RuntimeError, "Could not infer dtype of set"),
    (lambda: torch.FloatTensor([{}]), TypeError, "must be real number, not dict"),
    (lambda: torch.tensor([b"a"]), TypeError, "invalid data type 'bytes'"),
    (lambda: torch.tensor([["a"]]), ValueError, "too many dimensions 'str'"),
    (lambda: torch.tensor([1, "a"]), TypeError, r"new\(\): invalid data type 'str'"),
    (lambda: nn.Linear(2, 2).load_state_dict({"module.weight": torch.ones(2, 2), "module.bias": torch.ones(2)}), RuntimeError, "begin with 'module.': without it they"),
    (lambda: nn.Sequential(nn.Linear(2, 1)).load_state_dict({"weight": torch.ones(1, 2), "bias": torch.ones(1)}), RuntimeError, "lack '0.': with it they would fit"),
    (lambda: nn.Sequential(nn.Linear(2, 1)).load_state_dict({"weight": torch.ones(1, 2)}), RuntimeError, r'Missing key\(s\) .*"0\.weight", "0\.bias"'),
    (lambda: nn.BatchNorm1d(3)(torch.ones(2, 3).double()), RuntimeError, "mixed dtype"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED)
def test_what_layers_and_losses_refuse(call: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_the_mean_of_kl_div_is_warned_about() -> None:
    with pytest.warns(UserWarning, match="'batchmean' divides only by the batch size"):
        F.kl_div(torch.zeros(5, 2), torch.ones(5, 2))
    assert math.isnan(F.kl_div(torch.zeros(0, 2), torch.zeros(0, 2), reduction="batchmean").item())


def test_weighted_huber_loss_averages_over_elements() -> None:
    x, y, w = torch.tensor([0.0, 3.0]), torch.zeros(2), torch.tensor([1.0, 4.0])
    assert F.huber_loss(x, y, weight=w).item() == 4.0 * 2.5 / 2


def test_dropout3d_of_three_dims_drops_along_the_first() -> None:
    """Anything but five dims is one sample, whose channels come first."""
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="Received a 3-D input"):
        out = F.dropout3d(torch.ones(6, 5, 4))
    kept = (out != 0).reshape(6, -1)
    assert kept.all(1).logical_or((~kept).all(1)).all()
    assert kept.any() and not kept.all()


def test_empty_batches() -> None:
    x = torch.zeros(5, 0, 4, requires_grad=True)
    out, weights = nn.MultiheadAttention(4, 2)(x, x, x)
    assert out.shape == (5, 0, 4) and weights.shape == (0, 5, 5)
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    for module in (layer, layer.eval()):
        assert module(torch.zeros(0, 3, 4)).shape == (0, 3, 4)
    for mode in ("mean", "sum", "max"):
        assert F.embedding_bag(torch.zeros(0, 3).long(), torch.ones(3, 2), mode=mode).shape == (0, 2)
    assert F.max_unpool1d(torch.zeros(0, 1, 2), torch.zeros(0, 1, 2).long(), 2).shape == (0, 1, 4)


# ***** clipping *****


def with_grads(*grads: Any) -> list[Any]:
    params = [nn.Parameter(torch.zeros(len(g))) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = torch.tensor(g)
    return params


def test_clip_grad_norm() -> None:
    params = [*with_grads([3.0, 0.0], [4.0]), nn.Parameter(torch.ones(1))]
    assert clip_grad_norm_(params, 10.0).item() == 5.0
    assert params[0].grad.tolist() == [3.0, 0.0]
    assert clip_grad_norm_(iter(params), 1.0).item() == 5.0
    assert params[0].grad.tolist() == pytest.approx([0.6, 0.0], rel=1e-5)
    assert clip_grad_norm_(with_grads([3.0], [-7.0]), 7.0, float("inf")).item() == 7.0
    assert clip_grad_norm_(with_grads([3.0], [-7.0]), 7.0, 1).item() == 10.0
    assert clip_grad_norm_([], 1.0).item() == 0.0
    assert get_total_norm([torch.tensor([3.0]), torch.tensor([4.0])]).item() == 5.0
    bad = with_grads([float("nan")])
    with pytest.raises(RuntimeError, match="non-finite"):
        clip_grad_norm_(bad, 1.0, error_if_nonfinite=True)
    with pytest.warns(UserWarning, match="empty generator"):
        clip_grad_norm_((p for p in ()), 1.0)


def test_clip_grad_value() -> None:
    params = with_grads([-3.0, 0.5], [4.0])
    clip_grad_value_(params, 1)
    assert [p.grad.tolist() for p in params] == [[-1.0, 0.5], [1.0]]
    clip_grad_value_(params[0], 0.25)
    assert params[0].grad.tolist() == [-0.25, 0.25]


def test_parameters_as_a_vector() -> None:
    net = nn.Linear(2, 3)
    vector = parameters_to_vector(net.parameters())
    assert vector.shape == (9,) and vector.requires_grad
    vector_to_parameters(torch.arange(9.0), net.parameters())
    assert net.weight.tolist() == [[0, 1], [2, 3], [4, 5]] and net.bias.tolist() == [6, 7, 8]
    with pytest.raises(TypeError, match=r"expected torch.Tensor"):
        vector_to_parameters([1], net.parameters())


# ***** sequences *****


def test_pad_sequence() -> None:
    parts = [torch.arange(3), torch.arange(1), torch.arange(2)]
    assert pad_sequence(parts, batch_first=True, padding_value=-1).tolist() == [[0, 1, 2], [0, -1, -1], [0, 1, -1]]
    assert pad_sequence(parts, padding_side="left").tolist() == [[0, 0, 0], [1, 0, 0], [2, 0, 1]]
    back = unpad_sequence(pad_sequence(parts), torch.tensor([3, 1, 2]))
    assert [b.tolist() for b in back] == [[0, 1, 2], [0], [0, 1]]
    assert pad_sequence([torch.ones(2, 3), torch.ones(4, 3)]).shape == (4, 2, 3)
    with pytest.raises(RuntimeError, match="empty list"):
        pad_sequence([])
    with pytest.raises(RuntimeError, match="must match the size"):
        pad_sequence([torch.ones(2, 3), torch.ones(2, 4)])
    with pytest.raises(RuntimeError, match="padding_side"):
        pad_sequence(parts, padding_side="top")


# ***** looking up rows, sampling *****


def test_embedding_shortens_long_rows() -> None:
    table = torch.tensor([[3.0, 4.0], [0.3, 0.4], [6.0, 8.0]])
    found = F.embedding(torch.tensor([0, 1, 0]), table, max_norm=1.0)
    np.testing.assert_allclose(found.numpy(), [[0.6, 0.8], [0.3, 0.4], [0.6, 0.8]], rtol=1e-6)
    np.testing.assert_allclose(table.numpy(), [[0.6, 0.8], [0.3, 0.4], [6.0, 8.0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("mode", "rows"),
    [("sum", [[2.0, 4.0], [0.0, 0.0], [18.0, 21.0]]), ("mean", [[1.0, 2.0], [0.0, 0.0], [6.0, 7.0]]),
     ("max", [[2.0, 3.0], [0.0, 0.0], [8.0, 9.0]])],
)  # fmt: skip
def test_embedding_bag(mode: str, rows: list[list[float]]) -> None:
    table = torch.arange(10.0).reshape(5, 2).requires_grad_()
    indices, offsets = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([0, 2, 2])
    found = F.embedding_bag(indices, table, offsets, mode=mode)
    assert found.tolist() == rows
    found.sum().backward()
    counts = {"sum": [1, 1, 1, 1, 1], "mean": [1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3], "max": [0, 1, 0, 0, 1]}[mode]
    np.testing.assert_allclose(table.grad.numpy(), np.repeat(np.reshape(counts, (5, 1)), 2, 1), rtol=1e-6)
    ends = F.embedding_bag(indices, table, torch.tensor([0, 2, 2, 5]), mode=mode, include_last_offset=True)
    assert ends.tolist() == rows


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(("mode", "weighted"), [("sum", False), ("sum", True), ("mean", False)])
def test_embedding_bag_with_sparse_gradients(mode: str, weighted: bool, last: bool) -> None:
    r = np.random.default_rng(0)
    rows, places, starts = (
        r.standard_normal((10, 3), np.float32),
        np.array([4, 1, 1, 9, 4, 0, 7]),
        np.array([0, 2, 2, 5]),
    )
    scales, given = r.standard_normal(7, np.float32), r.standard_normal((4, 3), np.float32)
    table = torch.from_numpy(rows.copy()).requires_grad_()
    weights = torch.from_numpy(scales.copy()).requires_grad_() if weighted else None
    offsets = torch.from_numpy(np.append(starts, 7) if last else starts)
    found = F.embedding_bag(
        torch.from_numpy(places),
        table,
        offsets,
        mode=mode,
        sparse=True,
        per_sample_weights=weights,
        include_last_offset=last,
    )
    found.backward(torch.from_numpy(given))
    expected, slopes, each = np.zeros((4, 3)), np.zeros((10, 3)), np.zeros(7)
    for bag, (start, end) in enumerate(zip(starts, [*starts[1:], 7], strict=True)):
        for j in range(start, end):
            scale = scales[j] if weighted else 1 / (end - start) if mode == "mean" else 1.0
            expected[bag] += scale * rows[places[j]]
            slopes[places[j]] += scale * given[bag]
            each[j] = rows[places[j]] @ given[bag]
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    assert table.grad.is_sparse and table.grad._nnz() == 7
    np.testing.assert_allclose(table.grad.to_dense().numpy(), slopes, rtol=1e-5, atol=1e-6)
    if weighted:
        np.testing.assert_allclose(weights.grad.numpy(), each, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(1, 3), (4, 1), (4,), (4, 3)])
def test_variances_of_a_gaussian_loss(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, y, var = torch.randn(4, 3), torch.randn(4, 3), torch.rand(shape) + 0.5
    each = var.unsqueeze(-1) if shape == (4,) else var
    wanted = ((each.log() + (x - y) ** 2 / each) / 2).mean()
    assert torch.allclose(F.gaussian_nll_loss(x, y, var), wanted)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_empty_bags_have_a_history(mode: str) -> None:
    weight = torch.ones(3, 2, requires_grad=True)
    F.embedding_bag(torch.zeros(0, dtype=torch.int64), weight, torch.tensor([0, 0]), mode=mode).sum().backward()
    assert torch.equal(weight.grad, torch.zeros(3, 2))


def test_embedding_bag_weights_and_padding() -> None:
    table = torch.arange(10.0).reshape(5, 2)
    bags = torch.tensor([[0, 1], [2, 3]])
    weighted = F.embedding_bag(bags, table, mode="sum", per_sample_weights=torch.tensor([[1.0, 2.0], [0.5, 0.0]]))
    assert weighted.tolist() == [[4.0, 7.0], [2.0, 2.5]]
    assert F.embedding_bag(bags, table, padding_idx=-4).tolist() == [[0.0, 1.0], [5.0, 6.0]]
    layer = nn.EmbeddingBag(5, 2, mode="sum", padding_idx=-1)
    assert repr(layer) == "EmbeddingBag(5, 2, mode='sum', padding_idx=4)"
    assert layer.weight[4].tolist() == [0.0, 0.0]
    with pytest.raises(NotImplementedError, match="only supported for mode='sum'"):
        F.embedding_bag(bags, table, per_sample_weights=torch.ones(2, 2))
    with pytest.raises(ValueError, match="offsets has to be None"):
        F.embedding_bag(bags, table, torch.tensor([0]))


def test_grid_of_the_identity_samples_the_picture() -> None:
    picture = torch.randn(2, 3, 4, 5)
    still = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).expand(2, 2, 3)
    for corners in (False, True):
        grid = F.affine_grid(still, [2, 3, 4, 5], align_corners=corners)
        for mode in ("bilinear", "nearest", "bicubic"):
            found = F.grid_sample(picture, grid, mode, "border", align_corners=corners)
            np.testing.assert_allclose(found.numpy(), picture.numpy(), atol=1e-5)


def test_grid_sample_of_one_pixel_does_not_move_with_the_grid():
    """Reflected at the centres of one element every place is that element: the gradient of the grid is there, and zero."""
    grid = torch.tensor([[[[-0.7, 0.4], [3.0, -2.0]]]], requires_grad=True)
    found = F.grid_sample(torch.full((1, 2, 1, 1), 5.0), grid, padding_mode="reflection", align_corners=True)
    assert found.eq(5).all() and torch.autograd.grad(found.sum(), grid)[0].eq(0).all()


@pytest.mark.parametrize("shape", [(1, 2, 4, 4), (1, 2, 3, 4, 4)])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_the_nearest_value_moves_by_nothing_with_the_grid(shape: tuple[int, ...], padding: str) -> None:
    image, dims = torch.randn(shape, requires_grad=True), len(shape) - 2
    grid = torch.rand(1, *(3,) * dims, dims).mul_(3).sub_(1.5)
    grid.view(-1)[:3] = torch.tensor([np.nan, np.inf, -np.inf])
    grid.requires_grad_()
    seen = F.grid_sample(image, grid, mode="nearest", padding_mode=padding, align_corners=False)
    assert torch.equal(
        seen, F.grid_sample(image, grid.detach(), mode="nearest", padding_mode=padding, align_corners=False)
    )
    seen.sum().backward()
    assert grid.grad.shape == grid.shape and not grid.grad.any() and image.grad.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_distances_of_narrow_numbers_through_a_product(dtype: torch.dtype) -> None:
    a, b = torch.randn(30, 5).to(dtype), torch.randn(26, 5).to(dtype)
    a.requires_grad_()
    found = torch.cdist(a, b)
    exact = torch.cdist(a.detach().double(), b.double())
    assert found.dtype is dtype
    np.testing.assert_allclose(found.detach().double().numpy(), exact.numpy(), rtol=0.02, atol=0.1)
    found.sum().backward()
    assert a.grad.dtype is dtype and a.grad.isfinite().all()
    with pytest.raises(NotImplementedError, match='"cdist" not implemented for'):
        torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


@pytest.mark.parametrize(
    ("padding", "row"),
    [("zeros", [0.0, 0.5, 2.0, 0.0]), ("border", [1.0, 1.0, 2.0, 3.0]), ("reflection", [1.5, 1.0, 2.0, 2.5])],
)
def test_grid_sample_outside_the_picture(padding: str, row: list[float]) -> None:
    picture = torch.tensor([1.0, 2.0, 3.0]).reshape(1, 1, 1, 3)
    grid = torch.tensor([[-5 / 3, 0.0], [-1.0, 0.0], [0.0, 0.0], [5 / 3, 0.0]]).reshape(1, 1, 4, 2)
    found = F.grid_sample(picture, grid, padding_mode=padding, align_corners=False)
    np.testing.assert_allclose(found.flatten().numpy(), row, atol=1e-5)


# ***** losses over alignments *****


def _all_paths(probs: Any, target: list[int]) -> float:
    """The probability of `target` by listing every path and collapsing it."""
    total = 0.0
    for path in itertools.product(range(probs.shape[1]), repeat=probs.shape[0]):
        if [label for label, _ in itertools.groupby(path) if label] == target:
            total += math.prod(probs[t, label] for t, label in enumerate(path))
    return total


def test_ctc_loss_counts_every_alignment() -> None:
    scores = torch.randn(5, 3, 3, dtype=torch.float64, requires_grad=True)
    targets = [[1, 2], [2, 2], [1]]
    logs = scores.log_softmax(2)
    found = F.ctc_loss(logs, torch.tensor([1, 2, 2, 2, 1]), (5, 4, 5), (2, 2, 1), reduction="none")
    spans = [5, 4, 5]
    probs = logs.detach().exp().numpy()
    wanted = [-math.log(_all_paths(probs[: spans[i], i], target)) for i, target in enumerate(targets)]
    np.testing.assert_allclose(found.tolist(), wanted, rtol=1e-9)
    padded = nn.CTCLoss()(logs, torch.tensor([[1, 2], [2, 2], [1, 0]]), torch.tensor(spans), torch.tensor([2, 2, 1]))
    assert padded.item() == pytest.approx((wanted[0] / 2 + wanted[1] / 2 + wanted[2]) / 3)
    assert torch.autograd.gradcheck(
        lambda x: F.ctc_loss(x.log_softmax(2), torch.tensor([1, 2, 2, 2, 1]), (5, 4, 5), (2, 2, 1)), (scores,)
    )


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_gradient_of_ctc_loss_where_a_target_does_not_fit(weight: float) -> None:
    """PyTorch 2.13: NaN over the steps of that sequence, whatever the loss weighs; zeros with `zero_infinity` and after the sequence's end."""
    logs = torch.randn(4, 2, 3).log_softmax(2).requires_grad_()
    targets, weights = torch.tensor([[1, 1], [1, 2]]), torch.tensor([weight, 1.0])
    for zero in (False, True):
        losses = F.ctc_loss(logs, targets, (2, 4), (2, 2), reduction="none", zero_infinity=zero)
        assert losses[0].item() == (0.0 if zero else math.inf)
        (grad,) = torch.autograd.grad(losses, logs, weights)
        assert grad[:2, 0].isnan().all() if not zero else (grad[:2, 0] == 0).all()
        assert (grad[2:, 0] == 0).all()
        assert grad[:, 1].isfinite().all() and (grad[:, 1] != 0).any()


def test_ctc_loss_of_targets_that_hold_the_blank() -> None:
    """A label that is the blank is a label: the blank between it and the one before may be skipped. Values of PyTorch 2.13."""
    log_probs = ((torch.arange(24.0).reshape(2, 4, 3) - 12) / 100).transpose(0, 1).log_softmax(-1)
    targets, lengths = torch.tensor([[1, 2, 1, 0], [1, 2, 0, 2]]), torch.tensor([4, 4])
    for blank in range(3):
        losses = F.ctc_loss(log_probs, targets, lengths, lengths, blank=blank, reduction="none")
        assert torch.allclose(losses, torch.tensor([4.3946, 4.3846]), atol=1e-4)


def test_ctc_loss_of_a_target_that_does_not_fit() -> None:
    logs = torch.zeros(2, 1, 4).log_softmax(2).requires_grad_()
    assert F.ctc_loss(logs, torch.tensor([[1, 1]]), (2,), (2,)).item() == math.inf
    loss = F.ctc_loss(logs, torch.tensor([[1, 1]]), (2,), (2,), zero_infinity=True)
    loss.backward()
    assert loss.item() == 0 and not logs.grad.any()
    with pytest.raises(RuntimeError, match="blank must be in label range"):
        F.ctc_loss(logs, torch.tensor([[1, 1]]), (2,), (2,), blank=4)
    with pytest.raises(RuntimeError, match="Expected input_lengths to have value at most 2"):
        F.ctc_loss(logs, torch.tensor([[1, 1]]), (3,), (2,))


@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1}, {"weight": torch.ones(3)}])
def test_what_is_ignored_has_no_gradient(options: dict[str, Any]) -> None:
    # Not even where nothing counts, so that the mean is nan: such a batch must not spoil the parameters.
    x = torch.randn(2, 3).requires_grad_()
    loss = F.cross_entropy(x, torch.tensor([-100, -100]), **options)
    loss.backward()
    assert loss.isnan() and x.grad.tolist() == [[0.0] * 3] * 2
    x.grad = None
    F.nll_loss(x, torch.tensor([-100, -100])).backward()
    assert x.grad.tolist() == [[0.0] * 3] * 2


# ***** what layers pad *****


@pytest.mark.parametrize(("mode", "numpy_mode"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")])
def test_the_odd_element_of_same_padding_comes_on_the_right(mode: str, numpy_mode: str) -> None:
    layer = nn.Conv1d(1, 1, 4, padding="same", padding_mode=mode, bias=False)
    x = np.arange(1.0, 8.0, dtype=np.float32) ** 2
    padded = np.pad(x, (1, 2), numpy_mode)
    wanted = np.correlate(padded, layer.weight.detach().numpy()[0, 0], "valid")
    np.testing.assert_allclose(layer(torch.tensor(x)[None, None])[0, 0].detach().numpy(), wanted, rtol=1e-4, atol=1e-4)


# ***** normalisation with running statistics *****


def test_running_statistics_of_instances_are_means_over_the_samples() -> None:
    x = np.random.default_rng(3).standard_normal((3, 2, 5)).astype(np.float32) * 2 + 1
    mean, var = torch.tensor([0.5, -0.5]), torch.tensor([2.0, 3.0])
    found = F.instance_norm(torch.tensor(x), mean, var, momentum=0.3)
    wanted = (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mean.numpy(), 0.7 * np.array([0.5, -0.5]) + 0.3 * x.mean(2).mean(0), rtol=1e-5)
    np.testing.assert_allclose(var.numpy(), 0.7 * np.array([2.0, 3.0]) + 0.3 * x.var(2, ddof=1).mean(0), rtol=1e-5)


def test_an_instance_of_one_element_has_no_statistics() -> None:
    with pytest.raises(ValueError, match="more than 1 spatial element"):
        F.instance_norm(torch.ones(3, 2, 1, 1))


def test_gradients_are_clipped_to_hardly_less_than_the_norm() -> None:
    p = torch.zeros(2).requires_grad_()
    p.grad = torch.tensor([3e-4, 4e-4])
    clip_grad_norm_([p], 1e-4)
    np.testing.assert_allclose(p.grad.numpy(), np.array([3e-4, 4e-4]) * (1e-4 / (5e-4 + 1e-6)), rtol=1e-5)


def test_a_sparse_gradient_of_vectors_without_elements() -> None:
    layer = torch.nn.Embedding(10, 0, sparse=True)
    layer(torch.tensor([[2, 4], [3, 2]])).sum().backward()
    assert layer.weight.grad.is_sparse and layer.weight.grad.shape == (10, 0)


def test_nothing_cannot_be_packed() -> None:
    with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
        torch.nn.utils.rnn.pack_padded_sequence(torch.ones(0, 0, 0), torch.tensor([]))

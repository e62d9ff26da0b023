"""Older methods of Tensor, settings, symbolic functions on plain numbers, and the package's positional forms of nn functions."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import rushlight as torch
from rushlight.nn import functional as F


def test_python_functions_over_elements() -> None:
    x = torch.arange(6.0).view(2, 3)
    assert x.clone().apply_(lambda v: v * 2).equal(x * 2) and x.int().apply_(lambda v: v * 1.5).tolist() == [
        [0, 1, 3],
        [4, 6, 7],
    ]
    assert x.clone().map_(x[0], lambda a, b: a + b).equal(x + x[0]) and x.clone().map2_(
        x, x[0], lambda a, b, c: a + b * c
    ).equal(x + x * x[0])
    with pytest.raises(TypeError, match=r"map_: expected torch.FloatTensor for 'other' \(got torch.IntTensor\)"):
        x.map_(x.int(), lambda a, b: a)
    with pytest.raises(RuntimeError, match=r"Can't call apply_\(\) on Variable that requires grad"):
        torch.ones(2, requires_grad=True).apply_(lambda v: v)
    with pytest.raises(TypeError, match="must be real number, not str"):
        x.apply_(lambda v: "a")


def test_new_and_its_kin() -> None:
    x = torch.arange(6.0).view(2, 3)
    assert (
        x.new(2, 3).shape == (2, 3)
        and x.int().new([1.5]).dtype is torch.int32
        and x.new(x).data_ptr() == x.data_ptr()
        and x.new(x.storage()).numel() == 6
    )
    assert [r.tolist() for r in reversed(x)] == [[3.0, 4.0, 5.0], [0.0, 1.0, 2.0]] and torch.tensor(2.7).__long__() == 2
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert x.resize(3, 2).shape == (3, 2)
    assert "non-inplace resize is deprecated" in str(seen[0].message)
    with pytest.raises(RuntimeError, match="requested resize to 7"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x.resize(7)
    for name in ("eig", "symeig", "solve", "lstsq", "reinforce"):
        with pytest.raises(RuntimeError, match="removed from PyTorch"):
            getattr(x, name)()
    with pytest.raises(AttributeError, match="non-CUDA tensor type: torch.FloatTensor"):
        x.__cuda_array_interface__
    assert x[:1].slice_inverse(x).equal(x) and x.is_distributed() is False and x.const_data_ptr() == x.data_ptr()


def test_grad_dtype() -> None:
    w = torch.ones(2, requires_grad=True)
    assert w.grad_dtype is torch.float32
    w.grad_dtype = torch.float64
    (w * 2).sum().backward()
    assert w.grad.dtype is torch.float64 and w.grad.tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="only be set on leaf tensors"):
        (w * 2).grad_dtype = torch.half
    w.grad_dtype = None
    w.grad = torch.ones(2, dtype=torch.half)
    with pytest.raises(RuntimeError, match="must be a torch.dtype or None"):
        w.grad_dtype = 3


def test_switches_remember() -> None:
    assert (
        torch.get_autocast_dtype("cpu") is torch.bfloat16
        and torch.get_autocast_gpu_dtype() is torch.float16
        and not torch.is_autocast_enabled("cpu")
    )
    with pytest.raises(RuntimeError, match="unknown device type"):
        torch.set_autocast_enabled("meta", True)
    torch.set_deterministic_debug_mode("warn")
    assert torch.get_deterministic_debug_mode() == 1 and torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_deterministic_debug_mode(0)
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(RuntimeError, match="expected one of `default`, `warn`, `error`, but got x"):
        torch.set_deterministic_debug_mode("x")
    torch.set_default_tensor_type(torch.DoubleTensor)
    assert torch.get_default_dtype() is torch.float64
    torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.get_default_dtype() is torch.float32 and torch.set_flush_denormal(False)
    assert (
        torch.typename(torch.ones(2)) == "torch.FloatTensor"
        and torch.typename(3) == "int"
        and torch.typename(torch.float) == "torch.dtype"
    )
    assert torch.get_device_module("cpu") is torch.cpu


def test_symbolic_functions_take_plain_numbers() -> None:
    assert (
        torch.sym_max(1, 2.5),
        torch.sym_max(3, 2.5),
        torch.sym_min(1, 2.5),
        torch.sym_sum([1, 2]),
        torch.sym_int(2.7),
    ) == (2.5, 3.0, 1.0, 3, 2)
    assert (
        isinstance(torch.sym_min(1, 2.5), float)
        and torch.sym_ite(True, 1, 2) == 1
        and torch.sym_not(True) is False
        and torch.sym_fresh_size(3) == 3
    )
    assert not isinstance(3, torch.SymInt) and torch.sym_constrain_range_for_size(3) is None
    with pytest.raises(RuntimeError, match=r"Invalid value range for 3 between \[0, 2\]"):
        torch.sym_constrain_range(3, min=0, max=2)
    with pytest.raises(NotImplementedError, match="symbolic numbers come from"):
        torch.SymInt(3)


def test_streams_and_keys() -> None:
    assert (
        repr(torch.Stream()) == "torch.Stream device_type=cpu, device_index=-1, stream_id=0" and torch.Stream().query()
    )
    first, second = torch.Event(enable_timing=True), torch.Event(enable_timing=True)
    first.record(), second.record()
    assert first.elapsed_time(second) >= 0.0
    keys = torch.DispatchKeySet(torch.DispatchKey.CPU).add(torch.DispatchKey.AutogradCPU)
    assert keys.has(torch.DispatchKey.CPU) and keys.highestPriorityTypeId() is torch.DispatchKey.AutogradCPU
    assert (
        torch.DispatchKeySet.from_raw_repr(keys.raw_repr()) == keys
        and repr(torch.DispatchKeySet(torch.DispatchKey.CPU)) == "DispatchKeySet(CPU)"
    )
    assert (
        issubclass(torch.OutOfMemoryError, RuntimeError)
        and not torch.xpu.is_available()
        and torch.mps.device_count() == 0
    )


@pytest.mark.filterwarnings("ignore:reduction. 'mean'")
def test_losses_take_numbered_reductions() -> None:
    x, y = torch.randn(4, 3).log_softmax(1), torch.randn(4, 3).softmax(1)
    for number, word in enumerate(("none", "mean", "sum")):
        assert torch.kl_div(x, y, number).equal(F.kl_div(x, y, reduction=word))
        assert torch.hinge_embedding_loss(x, y.sign(), 1.0, number).equal(
            F.hinge_embedding_loss(x, y.sign(), reduction=word)
        )
        assert torch.poisson_nll_loss(x, y, True, False, 1e-8, number).equal(F.poisson_nll_loss(x, y, reduction=word))
    with pytest.raises(RuntimeError, match="3 is not a reduction"):
        torch.kl_div(x, y, 3)
    # Without a number PyTorch's functions in Python reduce nothing; the operators' schemas say the mean.
    sign = torch.tensor([1.0, -1.0, 1.0, -1.0])
    for name, args in (
        ("kl_div", (x, y)),
        ("hinge_embedding_loss", (x, y.sign())),
        ("margin_ranking_loss", (x[:, 0], x[:, 1], sign)),
        ("cosine_embedding_loss", (x, y, sign)),
        ("binary_cross_entropy_with_logits", (x, y)),
        ("triplet_margin_loss", (x, y, x.flip(0))),
        ("ctc_loss", (x[:, None], torch.tensor([[1]]), torch.tensor([4]), torch.tensor([1]))),
    ):
        assert getattr(torch, name)(*args).dim() > 0 and getattr(torch.ops.aten, name)(*args).dim() == 0, name


def test_embedding_bag_says_what_it_took() -> None:
    w, i, o = torch.arange(12.0).view(4, 3), torch.tensor([0, 2, 1, 3]), torch.tensor([0, 2, 2])
    out, places, sizes, largest = torch.embedding_bag(w, i, o, False, 2)
    assert (
        out.tolist() == [[6.0, 7.0, 8.0], [0.0] * 3, [9.0, 10.0, 11.0]]
        and places.tolist() == [0, 0, 2, 2]
        and sizes.tolist() == [2, 0, 2]
    )
    assert largest.tolist() == [[2] * 3, [0] * 3, [3] * 3] and torch.embedding_bag(w, i, o)[1].tolist() == []
    assert (
        torch.embedding(w, i, 0).equal(w[i])
        and torch.embedding_renorm_(w.clone(), i, 1.0, 2.0).norm(dim=1).max() <= 1.0001
    )


@pytest.mark.parametrize("mode", ["LSTM", "GRU"])
def test_recurrent_functions_are_the_layers(mode: str) -> None:
    torch.manual_seed(0)
    layer = getattr(torch.nn, mode)(3, 4, 2, bidirectional=True)
    x, h = torch.randn(5, 2, 3), torch.zeros(4, 2, 4)
    state = (h, h) if mode == "LSTM" else h
    out, *last = getattr(torch, mode.lower())(x, state, list(layer.parameters()), True, 2, 0.0, False, True, False)
    want, end = layer(x, state)
    assert out.equal(want) and last[0].equal(end[0] if mode == "LSTM" else end)
    cell = getattr(torch.nn, mode + "Cell")(3, 4)
    found = getattr(torch, f"{mode.lower()}_cell")(x[0], (h[0], h[0]) if mode == "LSTM" else h[0], *cell.parameters())
    same = cell(x[0])[0] if mode == "LSTM" else cell(x[0])
    np.testing.assert_allclose((found[0] if mode == "LSTM" else found).detach(), same.detach(), rtol=1e-6, atol=1e-7)


def test_norms_windows_and_statistics() -> None:
    x = torch.randn(2, 3, 4)
    np.testing.assert_allclose(torch.nuclear_norm(x[0]).item(), np.linalg.svd(x[0].numpy())[1].sum(), rtol=1e-5)
    np.testing.assert_allclose(
        torch.frobenius_norm(x, (0, 2)).numpy(), np.sqrt((x.numpy() ** 2).sum((0, 2))), rtol=1e-5
    )
    np.testing.assert_allclose(
        torch.norm_except_dim(x, 2, 1).numpy().ravel(), np.sqrt((x.numpy() ** 2).sum((0, 2))), rtol=1e-5
    )
    np.testing.assert_allclose(torch.kaiser_window(5, False).numpy(), np.kaiser(5, 12.0), rtol=1e-5)
    mean, var = torch.batch_norm_update_stats(x, running := torch.zeros(3), None, 0.1)
    np.testing.assert_allclose(var.numpy(), x.numpy().var((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(running.numpy(), 0.1 * mean.numpy(), rtol=1e-6)
    w = torch.randn(2, 3, 2)
    assert torch.convolution(x, w, None, [1], [0], [1], False, [0], 1).equal(F.conv1d(x, w))


def test_default_device() -> None:
    torch.ones(2), torch.randperm(3), torch.randint(0, 3, (2,))  # plans for the CPU
    with torch.device("meta"):
        made = [
            torch.ones(2),
            torch.tensor([1]),
            torch.arange(3),
            torch.rand(2),
            torch.randint(0, 3, (2,)),
            torch.randperm(3),
            torch.eye(2),
        ]
        assert {str(x.device) for x in made} == {"meta"} and torch.nn.Linear(3, 4).weight.device.type == "meta"
        assert torch.from_numpy(np.ones(2)).device.type == "cpu" and torch.get_default_device().type == "meta"
        with torch.device("cpu"):
            assert torch.ones(2).tolist() == [1.0, 1.0]
    assert torch.ones(2).tolist() == [1.0, 1.0] and torch.randperm(3).device.type == "cpu"
    torch.set_default_device("meta")
    try:
        assert torch.zeros(2).device.type == "meta"
    finally:
        torch.set_default_device(None)
    assert torch.zeros(2).tolist() == [0.0, 0.0]


def test_parts_of_gpu_training_are_absent() -> None:
    with pytest.raises(NotImplementedError, match="Could not run 'aten::batch_norm_stats'"):
        torch.batch_norm_stats(torch.ones(2, 3), 1e-5)


def test_windows_of_one_element() -> None:
    """One element is the middle of a window, periodic or not; those with a centre have their value there."""
    names = ("bartlett", "blackman", "cosine", "hamming", "hann", "kaiser", "nuttall")
    for name in names:
        for sym in (True, False):
            assert getattr(torch.signal.windows, name)(1, sym=sym).tolist() == [1.0], (name, sym)
    assert torch.signal.windows.cosine(2, sym=False).tolist() == [0.5, 1.0]


def test_types_by_their_older_names() -> None:
    x = torch.arange(4, dtype=torch.float64).view(2, 2)
    for kind, dtype in (
        (torch.Tensor, torch.float32),
        ("torch.Tensor", torch.float32),
        ("torch.HalfTensor", torch.float16),
        (torch.LongTensor, torch.int64),
        (torch.int8, torch.int8),
    ):
        assert x.type(kind).dtype is dtype, kind
    with pytest.raises(ValueError, match="invalid type: 'Parameter'"):
        x.type(torch.nn.Parameter)
    with pytest.raises(ValueError, match="invalid type: 'torch.WholeTensor'"):
        x.type("torch.WholeTensor")
    names = [x.type(), x.to_sparse().type(), x.to("meta").type(), torch.typename(x.to_sparse().int())]
    assert names == [
        "torch.DoubleTensor",
        "torch.sparse.DoubleTensor",
        "torch.meta.DoubleTensor",
        "torch.sparse.IntTensor",
    ]
    held = [isinstance(t, torch.DoubleTensor) for t in (x, x.to_sparse(), x.to("meta"), x.float())]
    assert held == [True, False, False, False] and not isinstance(x, torch.cuda.DoubleTensor)
    assert str(torch.cuda.DoubleTensor) == "<class 'torch.cuda.DoubleTensor'>"

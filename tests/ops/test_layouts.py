"""Images that lie channels last: which results do too, and their gradients, as in PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import rushlight

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "batch_norm": lambda t, x: t.nn.functional.batch_norm(x, t.zeros(8), t.ones(8), None, None, False),
    "batch_norm in training": lambda t, x: t.nn.functional.batch_norm(x, t.zeros(8), t.ones(8), None, None, True),
    "group_norm": lambda t, x: t.nn.functional.group_norm(x, 2),
    "instance_norm": lambda t, x: t.nn.functional.instance_norm(x),
    "layer_norm": lambda t, x: t.nn.functional.layer_norm(x, x.shape[1:]),
    "local_response_norm": lambda t, x: t.nn.functional.local_response_norm(x, 2),
    "max_pool2d": lambda t, x: t.nn.functional.max_pool2d(x, 2),
    "max_pool2d's indices": lambda t, x: t.nn.functional.max_pool2d(x, 2, return_indices=True)[1],
    "avg_pool2d": lambda t, x: t.nn.functional.avg_pool2d(x, 2),
    "lp_pool2d": lambda t, x: t.nn.functional.lp_pool2d(x, 2, 2),
    "adaptive_avg_pool2d": lambda t, x: t.nn.functional.adaptive_avg_pool2d(x, 4),
    "adaptive_max_pool2d": lambda t, x: t.nn.functional.adaptive_max_pool2d(x, 4),
    "max_unpool2d": lambda t, x: t.nn.functional.max_unpool2d(
        *t.nn.functional.max_pool2d(x, 2, return_indices=True), 2
    ),
    "interpolate by area": lambda t, x: t.nn.functional.interpolate(x, size=3, mode="area"),
    "interpolate": lambda t, x: t.nn.functional.interpolate(x, scale_factor=2),
    "pad": lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1)),
    "pad by reflection": lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pad by replication": lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1), mode="replicate"),
    "pad in a circle": lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1), mode="circular"),
    "pixel_shuffle": lambda t, x: t.nn.functional.pixel_shuffle(x, 2),
    "pixel_unshuffle": lambda t, x: t.nn.functional.pixel_unshuffle(x, 2),
    "channel_shuffle": lambda t, x: t.nn.functional.channel_shuffle(x, 2),
    "glu": lambda t, x: t.nn.functional.glu(x, 1),
    "roll": lambda t, x: x.roll(1, 2),
    "masked_fill": lambda t, x: x.masked_fill(x > 0, 0),
    "cat": lambda t, x: t.cat([x, x], 1),
    "softmax": lambda t, x: t.softmax(x, 1),
    "conv2d": lambda t, x: t.nn.functional.conv2d(x, t.ones(4, 8, 3, 3)),
}


def layout(t: Any, x: Any) -> tuple[bool, bool]:
    return x.is_contiguous(), x.is_contiguous(memory_format=t.channels_last)


@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES)
def test_channels_last_as_pytorch(name: str) -> None:
    def found(t: Any) -> Any:
        x = t.arange(2.0 * 8 * 6 * 6).reshape(2, 8, 6, 6).to(memory_format=t.channels_last).requires_grad_()
        y = CASES[name](t, x)
        if y.requires_grad:
            y.backward(t.ones_like(y))
        return tuple(y.shape), layout(t, y), layout(t, x.grad) if y.requires_grad else None

    assert found(rushlight) == found(pytest.importorskip("torch"))


# What PyTorch makes of several operators gives gradients of another layout there.
OTHERWISE = {"instance_norm", "layer_norm", "pad", "pad in a circle", "glu", "masked_fill"}


@pytest.mark.oracle
@pytest.mark.parametrize("name", sorted(CASES.keys() - OTHERWISE))
def test_gradients_are_channels_last_as_pytorchs(name: str) -> None:
    def found(t: Any) -> Any:
        x = t.arange(2.0 * 8 * 6 * 6).reshape(2, 8, 6, 6).to(memory_format=t.channels_last).requires_grad_()
        y = CASES[name](t, x)
        if not y.requires_grad:
            return None
        return layout(t, t.autograd.grad(y, x, t.ones(y.shape).to(memory_format=t.channels_last))[0])

    assert found(rushlight) == found(pytest.importorskip("torch"))


def test_a_network_stays_channels_last() -> None:
    nn = rushlight.nn
    x = rushlight.randn(2, 3, 16, 16).to(memory_format=rushlight.channels_last)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.GroupNorm(2, 8),
        nn.ZeroPad2d(1),
        nn.AvgPool2d(2),
    )
    for layer in model:
        x = layer(x)
        assert layout(rushlight, x) == (False, True), layer


def test_warnings_name_the_users_line() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rushlight.nn.functional.mse_loss(rushlight.ones(3, 7), rushlight.ones(1, 7))
    assert [str(w.message).split(". ")[0] for w in caught] == [
        "Using a target size (torch.Size([1, 7])) that is different to the input size (torch.Size([3, 7]))"
    ]
    assert caught[0].filename == __file__


def _losses() -> dict[str, Callable[[Any, Any, Any], Any]]:
    names = ("mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div",
             "poisson_nll_loss", "soft_margin_loss", "hinge_embedding_loss")  # fmt: skip

    def pair(name: str) -> Callable[[Any, Any, Any], Any]:
        return lambda t, x, y: getattr(t.nn.functional, name)(x, y, reduction="none")

    return {name: pair(name) for name in names} | {
        "gaussian_nll_loss": lambda t, x, y: t.nn.functional.gaussian_nll_loss(x, y, y, reduction="none"),
        "margin_ranking_loss": lambda t, x, y: t.nn.functional.margin_ranking_loss(x, y, y, reduction="none"),
        "addr": lambda t, x, y: t.addr(x, y[:, 0], y[0]),
        "cdist": lambda t, x, y: t.cdist(x, y),
        "one_hot": lambda t, x, y: t.nn.functional.one_hot((x * 0).long(), 3),
        "renorm": lambda t, x, y: x.renorm(2, 0, 1.0),
        "rms_norm": lambda t, x, y: t.nn.functional.rms_norm(x, x.shape[-1:]),
        "scaled_dot_product_attention": lambda t, x, y: t.nn.functional.scaled_dot_product_attention(x, x, x),
    }


STRIDES = _losses()


@pytest.mark.oracle
@pytest.mark.parametrize("laid", ["turned", "channels last", "first turned", "second turned"])
@pytest.mark.parametrize("name", STRIDES)
def test_strides_as_pytorch(name: str, laid: str) -> None:
    def found(t: Any) -> Any:
        x = (t.arange(1.0, 25.0) / 30).reshape(6, 4).t()
        if laid == "channels last":
            x = x.reshape(1, 2, 3, 4).to(memory_format=t.channels_last)
        first = x.contiguous() if laid == "second turned" else x
        second = x.contiguous() if laid == "first turned" else x
        return STRIDES[name](t, first, second).stride()

    real = pytest.importorskip("torch")
    try:
        expected = found(real)
    except (RuntimeError, IndexError):
        pytest.skip("not of so many dims")
    assert found(rushlight) == expected

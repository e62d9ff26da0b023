"""Resizing: against matrices of weights made with NumPy, against Pillow's numbers for bytes, and against PyTorch where it is installed."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

import rushlight as torch

F = torch.nn.functional


def triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def keys(x: np.ndarray) -> np.ndarray:
    x, a = np.abs(x), -0.5
    return np.where(x < 1, (a + 2) * x**3 - (a + 3) * x**2 + 1, np.where(x < 2, a * (x**3 - 5 * x**2 + 8 * x - 4), 0))


def lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)


def antialiasing(size: int, out: int, kernel: object, radius: float) -> np.ndarray:
    """The matrix of weights: the kernel around each output's centre, as wide as a step."""
    step = size / out
    wide = max(step, 1.0)
    centre = (np.arange(out)[:, None] + 0.5) * step
    at = np.arange(size)[None]
    taking = (at >= np.floor(centre - radius * wide + 0.5)) & (at < np.floor(centre + radius * wide + 0.5))
    weights = np.where(taking, kernel((at + 0.5 - centre) / wide), 0.0)  # type: ignore[operator]
    return weights / weights.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("mode", "kernel", "radius"), [("bilinear", triangle, 1), ("bicubic", keys, 2), ("lanczos", lanczos, 3)]
)
def test_antialiasing_is_a_product_of_matrices(mode: str, kernel: object, radius: float) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 13, 10))
    rows, columns = antialiasing(13, 4, kernel, radius), antialiasing(10, 17, kernel, radius)
    given = torch.tensor(x, requires_grad=True)
    made = F.interpolate(given, size=(4, 17), mode=mode, antialias=True)
    np.testing.assert_allclose(made.detach().numpy(), rows @ x @ columns.T, atol=1e-12)
    made.backward(torch.tensor(np.cos(made.detach().numpy())))
    np.testing.assert_allclose(given.grad.numpy(), rows.T @ np.cos(rows @ x @ columns.T) @ columns, atol=1e-12)


def test_bytes_are_resized_in_whole_numbers() -> None:
    image = torch.tensor(
        np.random.default_rng(1).integers(90, 166, (1, 3, 12, 9)).astype("uint8")
    )  # cubic weights stay in range
    constant = torch.full((1, 1, 7, 7), 201, dtype=torch.uint8)
    for mode, antialias in itertools.product(("bilinear", "bicubic"), (False, True)):
        made = F.interpolate(image, size=(5, 14), mode=mode, antialias=antialias)
        assert made.dtype is torch.uint8
        wide = F.interpolate(image.double(), size=(5, 14), mode=mode, antialias=antialias).clamp(0, 255)
        assert (made.double() - wide).abs().max() <= 1.3  # rounded once in each direction
        assert F.interpolate(constant, size=(3, 10), mode=mode, antialias=antialias).unique().tolist() == [201]


def test_memory_format_and_names() -> None:
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last).requires_grad_()
    y = F.interpolate(x, scale_factor=2, mode="bilinear")
    assert y.is_contiguous(memory_format=torch.channels_last) and "UpsampleBilinear2DBackward0" in str(y.grad_fn)
    assert "UpsampleBicubic2DAaBackward0" in str(F.interpolate(x, size=2, mode="bicubic", antialias=True).grad_fn)
    for bad, error in (
        ({"size": (0, 3)}, RuntimeError), ({"size": 3, "antialias": True}, ValueError), ({"size": 3, "mode": "lanczos"}, ValueError),
        ({"size": 3, "mode": "lanczos", "antialias": True, "align_corners": True}, ValueError), ({"size": 3, "mode": "other"}, NotImplementedError),
    ):  # fmt: skip
        with pytest.raises(error):
            F.interpolate(x, **bad)


@pytest.mark.oracle
@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
def test_every_mode_is_pytorchs(dtype: str) -> None:
    import torch as peer

    rng = np.random.default_rng(2)
    calls = [
        ((1, 2, 9, 11), {"size": size, "mode": mode, "antialias": antialias, "align_corners": corners})
        for mode, antialias, corners, size in itertools.product(
            ("bilinear", "bicubic"), (False, True), (False, True), ((5, 7), (17, 3))
        )
    ]
    calls += [
        ((1, 2, 9, 11), {"scale_factor": (0.3, 1.7), "mode": mode, "antialias": True})
        for mode in ("bilinear", "lanczos")
    ]
    calls += [((1, 2, 9), {"size": 4, "mode": mode}) for mode in ("nearest", "nearest-exact")]
    if dtype != "uint8":
        calls += [
            ((1, 2, 9), {"size": 4, "mode": "linear"}),
            ((1, 2, 4, 5, 3), {"size": (3, 7, 5), "mode": "trilinear"}),
        ]
    for shape, options in calls:
        x = rng.integers(0, 256, shape).astype("uint8") if dtype == "uint8" else rng.normal(size=shape).astype(dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want, got = (
                peer.nn.functional.interpolate(peer.tensor(x), **options),
                F.interpolate(torch.tensor(x), **options),
            )
        np.testing.assert_allclose(
            got.numpy(), want.numpy(), atol={"uint8": 0, "float32": 1e-5, "float64": 1e-13}[dtype], err_msg=str(options)
        )


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_signals_whose_channels_lie_together_are_resized_into_rows(mode: str) -> None:
    """The sums are made with the channels together, and the result of three dims is row-major nevertheless."""
    x = np.arange(2 * 4 * 5, dtype=np.float32).reshape(2, 5, 4).swapaxes(1, 2)
    made = F.interpolate(torch.tensor(np.ascontiguousarray(x.swapaxes(1, 2))).mT, size=10, mode=mode)
    at = (np.arange(10) + 0.5) / 2 - 0.5
    places = np.clip(at, 0, 4) if mode == "linear" else np.arange(10) // 2
    left = np.floor(places).astype(int)
    share = (places - left).astype(np.float32)
    wanted = x[:, :, left] * (1 - share) + x[:, :, np.minimum(left + 1, 4)] * share
    assert made.is_contiguous()
    np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-6)


def windows_of(size, out):
    return [slice(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize(
    "space, out", [((10, 9), (7, 4)), ((20, 20), (7, 7)), ((56, 12), (6, 5)), ((4, 3), (7, 5)), ((8, 10), (3, 5))]
)
def test_adaptive_means_of_windows_of_two_lengths(space, out, last):
    """Against their definition; the gradient shares each cotangent among its window; what is not finite stays in its windows; ones stay ones."""
    x = np.random.default_rng(3).standard_normal((2, 19, *space)).astype(np.float32)
    cells = [
        (i, j, h, w)
        for i, h in enumerate(windows_of(space[0], out[0]))
        for j, w in enumerate(windows_of(space[1], out[1]))
    ]
    want, back = np.empty((2, 19, *out)), np.zeros(x.shape)
    for i, j, h, w in cells:
        want[:, :, i, j] = x[:, :, h, w].mean((2, 3), dtype=np.float64)
        back[:, :, h, w] += want[:, :, i, j, None, None] / x[0, 0, h, w].size
    form = torch.channels_last if last else torch.contiguous_format
    leaf = torch.tensor(x).to(memory_format=form).requires_grad_()
    y = F.adaptive_avg_pool2d(leaf, out)
    np.testing.assert_allclose(y.detach().numpy(), want, rtol=1e-5, atol=1e-6)
    (gradient,) = torch.autograd.grad(y, leaf, torch.tensor(want.astype(np.float32)))
    np.testing.assert_allclose(gradient.numpy(), back, rtol=1e-5, atol=1e-6)
    x[...] = 1
    assert (F.adaptive_avg_pool2d(torch.tensor(x), out) == 1).all()
    x[1, 2, 3, 2] = np.inf
    found = F.adaptive_avg_pool2d(torch.tensor(x).to(memory_format=form), out).numpy()
    hit = {(i, j) for i, j, h, w in cells if h.start <= 3 < h.stop and w.start <= 2 < w.stop}
    assert {tuple(map(int, at)) for at in np.argwhere(np.isinf(found))} == {(1, 2, *at) for at in hit}
    assert (found[np.isfinite(found)] == 1).all()


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "uint8"])
def test_whole_enlargements_repeat_elements(mode, dtype):
    """Powers of two and others, from the ratio of sizes or a factor, in either layout; the gradient adds up what was repeated."""
    rng = np.random.default_rng(0)
    for space, times in (((5, 7), (2, 4)), ((3, 4), (3, 2)), ((6, 2), (1, 8)), ((2, 3, 4), (2, 2, 4)), ((9,), (2,))):
        whole = rng.integers(0, 100, (2, 3, *space))
        want = whole
        for dim, n in enumerate(times):
            want = np.repeat(want, n, 2 + dim)
        for last in (False, True):
            x = torch.tensor(whole).to(getattr(torch, dtype))
            if last and len(space) == 2:
                x = x.contiguous(memory_format=torch.channels_last)
            given = [{"scale_factor": times if len(set(times)) > 1 else times[0]}]
            given += [{"size": tuple(n * s for n, s in zip(times, space, strict=True))}]
            for how in given:
                y = F.interpolate(x, **how, mode=mode)
                np.testing.assert_array_equal(y.double().numpy(), want)
                assert y.dtype == x.dtype
            if dtype != "uint8":
                x.requires_grad_()
                weights = rng.integers(-2, 3, want.shape)
                F.interpolate(x, **given[0], mode=mode).backward(torch.tensor(weights).to(x.dtype))
                sums = weights
                for dim, n in enumerate(times):
                    sums = sums.reshape(*sums.shape[: 2 + dim], space[dim], n, *sums.shape[3 + dim :]).sum(3 + dim)
                np.testing.assert_array_equal(x.grad.double().numpy(), sums)


@pytest.mark.parametrize("recompute", [False, True])
def test_places_follow_the_factor_that_was_given_or_the_sizes(recompute: bool) -> None:
    x = np.random.default_rng(1).normal(size=5)
    found = F.interpolate(
        torch.tensor(x)[None, None],
        scale_factor=2.5,
        mode="linear",
        align_corners=False,
        recompute_scale_factor=recompute,
    )
    step = 5 / 12 if recompute else 1 / 2.5
    places = np.maximum((np.arange(12) + 0.5) * step - 0.5, 0.0)
    np.testing.assert_allclose(found[0, 0].numpy(), np.interp(places, np.arange(5), x), rtol=1e-12, atol=1e-12)

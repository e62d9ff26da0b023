"""Automatic casts: what PyTorch does in the same region (`regions.py`), stored and live, and that nothing is asked where they are off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from tests.amp import gpu_regions, regions

import rushlight as torch
from rushlight._engine.core.state import AUTOCAST, STATE
from rushlight._ops.precision import GPU_POLICIES, KEEP, POLICIES

EXPECTED: dict[str, Any] = json.loads(regions.FILE.read_text())


GPU_EXPECTED: dict[str, Any] = json.loads(gpu_regions.FILE.read_text())


def test_every_program_is_stored() -> None:
    assert list(EXPECTED) == list(regions.PROGRAMS)


@pytest.mark.parametrize("name", regions.PROGRAMS)
def test_as_stored(name: str) -> None:
    assert regions.run(torch, name) == EXPECTED[name]


@pytest.mark.oracle
@pytest.mark.parametrize("name", regions.PROGRAMS)
def test_what_is_stored_is_pytorchs(name: str) -> None:
    real = pytest.importorskip("torch")
    found = regions.run(real, name)
    if not real.ops.mkldnn._is_mkldnn_bf16_supported():
        found = _without_refusals(found, EXPECTED[name])
    assert found == EXPECTED[name]


def _without_refusals(found: Any, expected: Any) -> Any:
    """What PyTorch refuses on machines for which its library has no kernel of bfloat16 is not compared."""
    if isinstance(found, list):
        return [_without_refusals(f, e) for f, e in zip(found, expected, strict=True)]
    return expected if found == "RuntimeError" else found


def test_nothing_is_left_behind() -> None:
    before = STATE.word
    assert not before & AUTOCAST
    with torch.autocast("cpu"):
        assert STATE.word & AUTOCAST
        with torch.no_grad():
            torch.ones(2, 2) @ torch.ones(2, 2)
        assert STATE.word & AUTOCAST
    assert STATE.word == before


def test_a_plan_made_outside_serves_outside() -> None:
    x = torch.ones(3, 3)
    assert (x @ x).dtype is torch.float32
    with torch.autocast("cpu"):
        assert (x @ x).dtype is torch.bfloat16
    assert (x @ x).dtype is torch.float32


def test_one_rounding_of_products_with_a_bias() -> None:
    """A product with a bias is rounded once: the nearest bfloat16 to the exact sum."""
    import numpy as np

    rng = np.random.default_rng(0)
    a, w, b = (torch.tensor(rng.standard_normal(s)).bfloat16() for s in ((5, 16), (7, 16), (7,)))
    exact = a.double() @ w.double().T + b.double()
    assert torch.equal(torch.nn.functional.linear(a, w, b), exact.bfloat16())
    assert torch.equal(torch.addmm(b, a, w.T), exact.bfloat16())
    images, taps = a.reshape(1, 1, 8, 10), w[0, :9].reshape(1, 1, 3, 3)
    exact = torch.nn.functional.conv2d(images.double(), taps.double(), b[:1].double())
    assert torch.equal(torch.nn.functional.conv2d(images, taps, b[:1]), exact.bfloat16())


# What PyTorch registers under a name that nobody calls, or that is spelled otherwise here.
ELSEWHERE = {
    "_convolution": "conv2d", "_grid_sampler_2d_cpu_fallback": "grid_sampler_2d", "_lu_with_info": None, "_native_multi_head_attention": None,
    "cross_entropy_loss": "cross_entropy", "max_pool3d": "max_pool3d_values", "mkldnn_rnn_layer": None, "multilabel_margin_loss_forward":
    "multilabel_margin_loss", "nll_loss2d": "nll_loss", "reflection_pad1d": None, "reflection_pad2d": None, "replication_pad1d": None,
    "replication_pad2d": None, "replication_pad3d": None,
}  # fmt: skip


@pytest.mark.oracle
def test_the_lists_are_pytorchs() -> None:
    """All that PyTorch casts is in the lists, and nothing else but rows that stand for such."""
    real = pytest.importorskip("torch")
    registered = {
        name.partition("::")[2].partition(".")[0]
        for name in real._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU")
    }
    assert ELSEWHERE.keys() <= registered
    ours = {name for name, policy in POLICIES.items() if policy != KEEP}
    theirs = {ELSEWHERE.get(name, name) for name in registered} - {None}
    assert theirs <= ours
    # The functions of nn: one calls grid_sampler, the others multiply matrices.
    assert ours - theirs == {"grid_sample", "affine_grid", "affine_grid_generator"}


def test_regions_of_gpus() -> None:
    """Dtypes of fake tensors of a GPU, for all of which PyTorch could tell without one."""
    command = [sys.executable, gpu_regions.__file__, "--ours"]
    environment = {**os.environ, "RUSHLIGHT_CUDA": "emulated"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    ours = json.loads(done.stdout)
    differing = {
        (kind, name): (ours[kind].get(name), told)
        for kind, answers in GPU_EXPECTED.items()
        for name, told in answers.items()
        if told not in (gpu_regions.UNTOLD, ours[kind].get(name))
    }
    assert ours.keys() == GPU_EXPECTED.keys() and not differing


@pytest.mark.oracle
def test_what_is_stored_of_gpus_is_pytorchs() -> None:
    real = pytest.importorskip("torch")
    fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")
    assert gpu_regions.run(real, fake_tensor.FakeTensorMode) == GPU_EXPECTED


# Parts of what PyTorch registers for GPUs: inner forms of others, or names that are spelled otherwise here.
GPU_ELSEWHERE = {
    "_convolution": None, "_scaled_dot_product_flash_attention": None, "_thnn_fused_gru_cell": None, "_thnn_fused_lstm_cell": None,
    "convolution": None, "cudnn_convolution": None, "cudnn_convolution_transpose": None, "nll_loss2d": "nll_loss",
}  # fmt: skip


@pytest.mark.oracle
def test_the_lists_of_gpus_are_pytorchs() -> None:
    """All that PyTorch casts on GPUs is in the lists, and nothing else but compositions of such."""
    real = pytest.importorskip("torch")
    registered = {
        name.partition("::")[2].partition(".")[0]
        for name in real._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
    }
    resized = {name for name in registered if "upsample" in name}
    theirs = {GPU_ELSEWHERE.get(name, name) for name in registered - resized} - {None} | {"upsample"}
    ours = {name for name, policy in GPU_POLICIES.items() if policy != KEEP}
    assert resized and theirs <= ours
    assert ours - theirs == {
        "_addmm_activation", "affine_grid", "affine_grid_generator", "cross_entropy", "einsum_core", "gaussian_nll_loss", "grid_sample", "inner",
        "linalg_norm", "normalize", "pairwise_distance", "softmin", "tensordot_core",
    }  # fmt: skip


@pytest.mark.parametrize("rows", [1, 5, 700])
def test_casts_are_part_of_a_product_where_nothing_is_recorded(rows: int) -> None:
    """The bits of casts made by hand; a large product casts its operands while it packs them."""
    import numpy as np

    rng = np.random.default_rng(1)
    x, w, b = (torch.tensor(rng.standard_normal(s), dtype=torch.float32) for s in ((rows, 700), (650, 700), (650,)))
    by_hand = torch.nn.functional.linear(x.bfloat16(), w.bfloat16(), b.bfloat16())

    def product() -> Any:
        with torch.no_grad(), torch.autocast("cpu"):
            return torch.nn.functional.linear(x, w, b)

    assert torch.equal(product(), by_hand)
    assert ("is made while it is packed" in str(torch.explain(product)())) == (rows == 700)
    w.requires_grad_()
    assert torch.equal(product(), by_hand)
    with torch.autocast("cpu"):
        torch.nn.functional.linear(x, w, b).float().sum().backward()
    assert w.grad is not None and w.grad.dtype is torch.float32
    want = x.bfloat16().double().sum(0).expand(650, 700)
    assert (w.grad - want).abs().max() <= want.abs().max() / 128

"""Settings of libraries: checked, read back, put back; beside PyTorch's CPU build where it is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rushlight
from rushlight._surface.settings import FP32_PRECISION


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before, word = dict(FP32_PRECISION), rushlight.get_float32_matmul_precision()
    b = rushlight.backends
    yield
    rushlight.set_float32_matmul_precision(word)
    FP32_PRECISION.clear()
    FP32_PRECISION.update(before)
    b.cudnn.set_flags(True, False, 10, False, True)
    b.cudnn.depthwise_kernel = "auto"
    b.mkldnn.set_flags(True, False)
    b.mha.set_fastpath_enabled(True)


def test_nothing_is_there_and_says_so() -> None:
    b = rushlight.backends
    for page in (b.cudnn, b.mkldnn, b.mkl, b.openmp, b.mps, b.nnpack, b.opt_einsum):
        assert page.is_available() is False
    assert b.cudnn.version() is None and b.cuda.is_built() is False and b.mps.is_built() is False
    assert b.cpu.get_cpu_capability() in ("AVX512", "AVX2", "DEFAULT", "NEON")


def test_a_mistyped_setting_is_refused_as_a_wrong_value() -> None:
    b = rushlight.backends
    for set_wrong in (
        lambda: setattr(b.cudnn, "benchmark", 1),
        lambda: setattr(b.cudnn, "depthwise_kernel", "x"),
        lambda: setattr(b, "fp32_precision", "half"),
        lambda: setattr(b.quantized, "engine", "nonesuch"),
        lambda: b.cuda.preferred_linalg_library("lapack"),
        lambda: b.mps.is_macos_or_newer(13, 0),
        lambda: b.cuda.cufft_plan_cache[0],
        lambda: b.cudnn.rnn.get_cudnn_mode("X") and None,
    ):
        with pytest.raises(RuntimeError):
            set_wrong()
    for set_unknown in (
        lambda: setattr(b.cuda.matmul, "x", 1),
        lambda: setattr(b.mkldnn.matmul, "x", 1),
        lambda: b.cuda.matmul.x,
    ):
        with pytest.raises(AttributeError, match="Unknown attribute x"):
            set_unknown()
    with pytest.raises(ValueError, match="opt_einsum is not available"):
        b.opt_einsum.set_flags(True)
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        _ = b.cuda.cufft_plan_cache.size


def test_contexts_put_back() -> None:
    b = rushlight.backends
    with b.cudnn.flags(enabled=False, benchmark=True, deterministic=True, allow_tf32=False):
        assert (b.cudnn.enabled, b.cudnn.benchmark, b.cudnn.deterministic, b.cudnn.allow_tf32) == (
            False,
            True,
            True,
            False,
        )
    assert (b.cudnn.enabled, b.cudnn.benchmark, b.cudnn.deterministic, b.cudnn.allow_tf32) == (True, False, False, True)
    with b.flags(fp32_precision="tf32"):
        assert b.mkldnn.conv.fp32_precision == "tf32"
    assert b.fp32_precision == b.mkldnn.conv.fp32_precision == "none"
    with b.mkldnn.flags(enabled=False):
        assert not b.mkldnn.enabled
    with b.nnpack.flags(enabled=False), b.opt_einsum.flags(enabled=False), b.mkl.verbose(b.mkl.VERBOSE_OFF):
        pass
    assert b.mkldnn.enabled
    with pytest.warns(FutureWarning), b.cuda.sdp_kernel(enable_flash=False):
        assert not b.cuda.flash_sdp_enabled()
    assert b.cuda.flash_sdp_enabled()


def test_imports_of_pages() -> None:
    import rushlight.backends.cudnn as cudnn

    assert cudnn is rushlight.backends.cudnn
    cudnn.deterministic = True
    assert rushlight.backends.cudnn.deterministic


# ***** beside PyTorch *****

STEPS: list[Callable[[Any], Any]] = [
    lambda t: t.set_float32_matmul_precision("high"),
    lambda t: t.set_float32_matmul_precision("medium"),
    lambda t: t.set_float32_matmul_precision("highest"),
    lambda t: setattr(t.backends.cuda.matmul, "allow_tf32", True),
    lambda t: setattr(t.backends.cuda.matmul, "allow_tf32", False),
    lambda t: setattr(t.backends.cudnn, "allow_tf32", False),
    lambda t: setattr(t.backends.cudnn, "allow_tf32", True),
    lambda t: setattr(t.backends.cudnn, "benchmark", True),
    lambda t: setattr(t.backends.cudnn, "deterministic", "yes"),
    lambda t: setattr(t.backends.mkldnn.matmul, "fp32_precision", "none"),
    lambda t: setattr(t.backends.cuda.matmul, "fp32_precision", "bf16"),
    lambda t: setattr(t.backends.cuda.matmul, "fp32_precision", "none"),
    lambda t: setattr(t.backends, "fp32_precision", "ieee"),
    lambda t: setattr(t.backends, "fp32_precision", "none"),
    lambda t: t.backends.cuda.preferred_rocm_fa_library("ck") and None,
]


def state(torch: Any) -> list[Any]:
    b = torch.backends
    return [
        torch.get_float32_matmul_precision(), b.cuda.matmul.allow_tf32, b.cuda.matmul.fp32_precision, b.mkldnn.matmul.fp32_precision, b.fp32_precision,
        b.mkldnn.fp32_precision, b.mkldnn.conv.fp32_precision, b.cudnn.conv.fp32_precision, b.cudnn.rnn.fp32_precision, b.cudnn.fp32_precision,
        b.cudnn.allow_tf32, b.cudnn.benchmark, b.cudnn.enabled, b.cudnn.deterministic, b.cudnn.depthwise_kernel, b.mkldnn.allow_tf32,
        b.mkldnn.deterministic, b.cuda.flash_sdp_enabled(), b.cuda.fp16_bf16_reduction_math_sdp_allowed(), b.mha.get_fastpath_enabled(),
        str(b.cuda.preferred_linalg_library()), str(b.cuda.preferred_blas_library()), b.cuda.matmul.allow_fp16_accumulation,
    ]  # fmt: skip


@pytest.mark.oracle
def test_settings_are_read_back_as_in_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = pytest.importorskip("torch")
    monkeypatch.setattr(
        reference.backends.m, "__allow_nonbracketed_mutation_flag", True
    )  # PyTorch's own test modules freeze the settings
    assert state(rushlight) == state(reference)
    for number, step in enumerate(STEPS):
        results: list[Any] = []
        for torch in (rushlight, reference):
            try:
                results.append(step(torch))
            except Exception as error:
                results.append((type(error).__name__, str(error).lower()[:40]))
        assert results[0] == results[1], number
        assert state(rushlight) == state(reference), number
    reference.backends.cudnn.benchmark = False

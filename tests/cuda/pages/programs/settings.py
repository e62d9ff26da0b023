"""Settings that are changed between calls: neither plans that are kept nor compiled programs keep the old one."""

import pytest

import rushlight as torch
from rushlight._base.knobs import KNOBS

A, B = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")


def product(a, b):
    return a @ b


def both(function):
    """The function, and a compiled one."""
    return function, torch.compile(function)


def changes(function, args, turn):
    """Whether another setting gives other numbers, and the first one those of before."""
    turn(False)
    first = [function(*args).clone() for _ in range(2)][1]
    turn(True)
    other = function(*args).clone()
    turn(False)
    assert torch.equal(function(*args), first)
    return not torch.equal(first, other)


def page_precision_of_products() -> None:
    matmul, words = torch.backends.cuda.matmul, {True: "tf32", False: "ieee"}
    try:
        for call in both(product):
            assert changes(call, (A, B), lambda on: setattr(matmul, "allow_tf32", on))
            assert changes(call, (A, B), lambda on: setattr(matmul, "fp32_precision", words[on]))
            assert changes(call, (A, B), lambda on: torch.set_float32_matmul_precision("high" if on else "highest"))
            matmul.fp32_precision = "none"
            assert changes(call, (A, B), lambda on: setattr(torch.backends, "fp32_precision", words[on]))
    finally:
        torch.backends.fp32_precision = "none"
        torch.set_float32_matmul_precision("highest")


def page_precision_of_convolutions() -> None:
    x, w = torch.randn(1, 32, 8, 8, device="cuda"), torch.randn(64, 32, 3, 3, device="cuda")
    try:
        for call in both(torch.nn.functional.conv2d):
            assert changes(call, (x, w), lambda on: setattr(torch.backends.cudnn, "allow_tf32", on))
    finally:
        torch.backends.cudnn.allow_tf32 = True


def page_ways_of_attention() -> None:
    from rushlight.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(1, 2, 8, 16, device="cuda")
    for call in both(lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q)):
        wanted = call(q)
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available kernel"):
            call(q)
        assert torch.equal(call(q), wanted)


def page_knobs() -> None:
    a = torch.randn(300, 300, device="cuda")
    for call in both(product):
        wanted = call(a, a).clone()
        with KNOBS["cuda_gemm"].scoped("library"), pytest.raises(ImportError, match="RUSHLIGHT_CUDA_GEMM=library"):
            call(a, a)
        assert torch.equal(call(a, a), wanted)


def page_what_casts_go_to() -> None:
    def cast(a, b):
        with torch.autocast("cuda"):
            return a @ b

    for call in both(cast):
        assert call(A, B).dtype is torch.float16
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        try:
            assert call(A, B).dtype is torch.bfloat16
        finally:
            torch.set_autocast_dtype("cuda", torch.float16)
        assert call(A, B).dtype is torch.float16


def page_determinism() -> None:
    for call in both(lambda: torch.empty(3, device="cuda")):
        call(), call()
        torch.use_deterministic_algorithms(True)
        try:
            assert call().isnan().all()
        finally:
            torch.use_deterministic_algorithms(False)


def page_determinism_leaves_libraries_out() -> None:
    a = torch.randn(300, 300, device="cuda")
    wanted = (a @ a).clone()
    with KNOBS["cuda_gemm"].scoped("library"):
        torch.use_deterministic_algorithms(True)
        try:
            assert torch.equal(a @ a, wanted) and torch.equal(torch.compile(product)(a, a), wanted)
        finally:
            torch.use_deterministic_algorithms(False)
        with pytest.raises(ImportError, match="RUSHLIGHT_CUDA_GEMM=library"):
            a @ a

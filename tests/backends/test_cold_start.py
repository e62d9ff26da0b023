"""What workers are sent while a program is recorded is what the program asks for when it is linked."""

import pytest

from rushlight._backends.cpu import cold_start
from rushlight._backends.cpu.attention import attention
from rushlight._backends.cpu.conv import conv, conv_choice, winograd
from rushlight._backends.cpu.gemm import blas, product_choice
from rushlight._backends.cpu.runtime import generated, stubs
from rushlight._graph.core import trace
from rushlight._native import compiled, objectcode
from rushlight._native.objectcode import obtain
from rushlight._prims import PRIMITIVES, build
from rushlight._types.dtype import BFLOAT16, FLOAT32


class NothingNamed:
    """A cache that knows nothing by the names of routines."""

    def key(self, *parts):
        return b""

    def get(self, key):
        return None

    def put(self, key, data):
        pass


@pytest.fixture
def asked(monkeypatch):
    """What is sent, and what is asked for, in a process that has loaded nothing."""
    sent, found = [], []

    def noted(opt, make, *parts):
        found.append(parts)
        return obtain(opt, make, *parts)

    for page in (compiled, generated):
        monkeypatch.setattr(page, "wanted", lambda: True)
        monkeypatch.setattr(page, "ahead", lambda opt, make, *parts: sent.append(parts))
        monkeypatch.setattr(page, "obtain", noted)
    monkeypatch.setattr(cold_start, "wanted", lambda: True)
    monkeypatch.setattr(compiled, "default_cache", NothingNamed)
    for page in (attention, blas, conv, winograd):
        monkeypatch.setattr(page, "_LOADED", {})
        if hasattr(page, "_KERNELS"):
            monkeypatch.setattr(page, "_KERNELS", {})
    monkeypatch.setattr(conv, "_SYMBOLS", {})
    monkeypatch.setattr(stubs, "_ADDRESSES", {})
    functions = (attention.routine_ahead, conv.conv_ahead, winograd._ahead, winograd._kernels, conv_choice._bound)
    products = (f"_{name}_ahead" for name in ("kind", "form", "shared", "small"))
    caches = (*functions, *(getattr(product_choice, name) for name in products))
    for each in caches:
        each.cache_clear()
    yield sent, found
    for each in caches:
        each.cache_clear()


def test_what_is_sent_is_asked_for(asked):
    sent, found = asked
    dot = PRIMITIVES["dot"]
    for side in (512, 8):
        cold_start.expect(trace(lambda a, b: dot(a, b, dtype=FLOAT32), [((side, side), FLOAT32)] * 2))
    weights = ((512, 384), BFLOAT16)  # of a linear layer, whose kernel converts them
    turned = lambda w: build.transpose(build.convert(w, FLOAT32), (1, 0))
    linear = lambda x, w: dot(build.convert(x, FLOAT32), turned(w), dtype=FLOAT32)
    cold_start.expect(trace(linear, [((384, 384), BFLOAT16), weights]))
    form = conv.conv_form("f32", "f32")
    conv.conv_ahead(form)
    winograd.winograd_ahead(64, form)
    attention.routine_ahead("attention", FLOAT32)
    assert len(sent) > 20 and not found
    conv.conv_symbols(form)
    conv._sum_kernel("f32", form.target)
    blas.form_address(product_choice._product_forms(BFLOAT16, FLOAT32))
    winograd._kernels(form, winograd._tile(64, form))
    attention.routine_address("attention", FLOAT32, attention._tile(FLOAT32))
    for own in (True, False):
        blas.gemm_address("f32", own)
    blas.small_kernel("f32")
    forms = blas.host_forms(FLOAT32, FLOAT32)
    for shared in forms:
        blas.shared_addresses(shared)
    for function in (conv_choice.cut_windows, conv_choice.cut_tiles, conv_choice.cost_of_tiles, conv_choice.together):
        conv_choice._bound(function)
    assert set(sent) <= set(found)


@pytest.mark.parametrize("fresh", [True, False])
def test_code_of_half_types_calls_for_workers_where_nothing_is_kept(monkeypatch, fresh):
    class Kept:
        pass

    told = []
    Kept.fresh = fresh
    monkeypatch.setattr(cold_start, "wanted", lambda: False)
    monkeypatch.setattr(objectcode, "default_cache", lambda: Kept)
    monkeypatch.setattr(objectcode.workers, "expect_many", lambda: told.append("many"))
    dot = PRIMITIVES["dot"]
    cold_start.expect(trace(lambda a, b: dot(a, b, dtype=FLOAT32), [((8, 8), FLOAT32)] * 2))
    assert not told
    linear = lambda x, w: dot(build.convert(x, FLOAT32), build.convert(w, FLOAT32), dtype=FLOAT32)
    cold_start.expect(trace(linear, [((8, 8), BFLOAT16)] * 2))
    assert told == ["many"] * fresh

"""Who computes a product: what is measured, noted and kept."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight._backends.cpu.gemm import blas, choice, product_choice
from rushlight._backends.cpu.gemm.product_spec import ProductShape, ProductTypes
from rushlight._native import cache
from rushlight._types.dtype import BFLOAT16, FLOAT32

CLASS = "f32, nt, medium"


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """A kernel cache of its own, and nothing known."""
    monkeypatch.setattr(choice, "_KNOWN", {})
    if blas.blas().path is None:
        pytest.skip("needs a BLAS library")
    with cache.CACHE_DIR.scoped(str(tmp_path)), blas.GEMM.scoped("auto"):
        yield tmp_path


def test_a_class_is_measured_once_and_kept(empty, monkeypatch):
    found = choice.entry(CLASS, product_choice._maker)
    assert found.own_rate > 0 < found.library
    monkeypatch.setattr(choice, "_KNOWN", {})  # as another process finds it
    monkeypatch.setattr(choice, "CLOSE", 1.0)
    if not found.sure:
        choice._keep(choice._key(CLASS, "again"), CLASS, choice.Entry(found.own, found.own_rate, found.library))
        choice._KNOWN.clear()
    monkeypatch.setattr(choice, "_measured", lambda *args: pytest.fail("measured twice"))
    again = choice.entry(CLASS, product_choice._maker)
    assert (again.own, again.own_rate, again.library) == (found.own, found.own_rate, found.library)
    assert str(choice.known(CLASS)) == str(found)


def test_whoever_was_first_is_believed(empty, monkeypatch):
    monkeypatch.setattr(choice, "_measured", lambda *args: choice.Entry(False, 1.0, 2.0))
    original = cache.ObjectCache.get
    seen = []

    def late(self, key):
        found = original(self, key)
        if not seen and key == choice._key(CLASS):
            seen.append(key)
            self.put(key, choice.Entry(True, 3.0, 4.0).packed())  # another process writes while this one measures
        return found

    monkeypatch.setattr(cache.ObjectCache, "get", late)
    found = choice.entry(CLASS, product_choice._maker)
    assert (found.own, found.own_rate) == (True, 3.0)


class Clock:
    """Time that passes as it is told to: every call of a way takes the next of its `seconds`, and the last one from then on."""

    def __init__(self, monkeypatch):
        self.now, self.calls, self.seconds = 0.0, [0, 0], ([1.0], [1.0])
        monkeypatch.setattr(choice, "clock", lambda: self.now)

    def maker(self, kind, sizes, a_strides, b_strides, own):
        launches = product_choice._maker(kind, sizes, a_strides, b_strides, own)
        first = launches[0].call

        def timed(*given):
            way = 0 if own else 1
            self.now += self.seconds[way][min(self.calls[way], len(self.seconds[way]) - 1)]
            self.calls[way] += 1
            return first(*given)

        launches[0].call = timed
        return launches

    def process(self, own, library):
        """What a new process finds, where calls of the two ways take so long."""
        choice._KNOWN.clear()
        self.calls, self.seconds = [0, 0], (own, library)
        return choice.entry(CLASS, self.maker)


def test_the_shortest_time_of_each_way_counts(empty, monkeypatch):
    clock = Clock(monkeypatch)
    usual = choice._threshold(CLASS)
    found = clock.process([9.0, 9.0, 9.0, 1e-3, 9.0], [8.0, usual * 1e-3 * 3, 8.0])
    assert found.own and found.sure and clock.calls == [4, 4]


def test_a_close_choice_is_looked_at_longer_and_once_more_when_its_process_ends(empty, monkeypatch):
    clock, usual = Clock(monkeypatch), choice._threshold(CLASS)
    bad, good = [usual * 1.1e-4], [usual * 0.9e-4]
    found = clock.process(bad, [1e-4])  # a bad moment for our own kernels
    assert not found.own and not found.sure and clock.calls == [25, 25]
    assert choice.entry(CLASS, clock.maker) is found and clock.calls == [25, 25]  # holds for the process
    assert not clock.process(good, [1e-4]).own and clock.calls == [0, 0]  # nobody waits for the second look
    choice.look_again()
    assert clock.calls[0] > 0 and not choice.entry(CLASS, clock.maker).own  # which is for later processes
    again = clock.process(good, [1e-4])
    assert again.own and again.sure and clock.calls == [0, 0]
    last = clock.process(bad, [1e-4])  # from now on it holds
    assert last.own and clock.calls == [0, 0]


def test_what_is_clear_is_not_measured_again(empty, monkeypatch):
    clock, usual = Clock(monkeypatch), choice._threshold(CLASS)
    assert not clock.process([usual * 2e-4], [1e-4]).own and clock.calls == [4, 4]
    assert not clock.process([1e-6], [1e-4]).own and clock.calls == [0, 0]


def test_looking_longer_ends_with_the_time_for_it(empty, monkeypatch):
    clock, usual = Clock(monkeypatch), choice._threshold(CLASS)
    clock.process([usual * 1.0], [1.0])  # seconds
    assert clock.calls == [4, 4]


@pytest.mark.parametrize("broken", [0, 1])
def test_a_wrong_kernel_is_never_chosen(empty, broken):
    def maker(kind, sizes, a_strides, b_strides, own):
        launches = product_choice._maker(kind, sizes, a_strides, b_strides, own)
        last = launches[-1].call

        def fast(*given):
            made = last(*given)
            np.frombuffer(made, np.float32)[5] += 1
            return made

        if own == (broken == 0):
            launches[-1].call = fast
        return launches

    assert choice.entry(CLASS, maker).own == (broken == 1)


def test_nothing_is_measured_where_it_cannot_be_kept_or_is_not_wanted(monkeypatch):
    monkeypatch.setattr(choice, "_measured", lambda *args: pytest.fail("measured"))
    monkeypatch.setattr(choice, "_KNOWN", {})
    with cache.CACHE_DIR.scoped(""), blas.GEMM.scoped("auto"):
        assert choice.entry(CLASS, product_choice._maker).own == blas.prefers_own("f32")
    for wanted, own in (("fixed", None), ("generated", True), ("blas", blas.blas().path is None)):
        with blas.GEMM.scoped(wanted):
            assert choice.entry(CLASS, product_choice._maker).own == (blas.prefers_own("f32") if own is None else own)
    with blas.GEMM.scoped("fast"), pytest.raises(ValueError, match="must be auto, fixed, blas or generated"):
        choice.entry(CLASS, product_choice._maker)


def test_classes():
    assert choice.name_of("f32", (100, 100, 100), (100, 1), (1, 100)) == "f32, nt, medium"
    assert choice.name_of("f64", (900, 800, 700), (1, 900), (800, 1)) == "f64, tn, large"
    assert choice.name_of("f32", (900, 1, 700), (1, 1), (1, 1)) == "f32, nn, few columns"
    assert choice.name_of("f32", (900, 80, 7), (1, 900), (1, 7)) in choice.CLASSES


@pytest.mark.parametrize("size", [s for s in choice.SIZES if s.startswith("few")])
def test_thin_classes_are_measured_like_others(empty, size):
    for layout in choice.LAYOUTS:
        found = choice._measured(f"f64, {layout}, {size}", product_choice._maker)
        assert found.own_rate > 0 < found.library


def test_explain_tells_who_computed():
    with blas.GEMM.scoped("generated"):
        assert "generated tiles of" in str(rl.explain(lambda x: x @ x)(rl.ones(72, 72)))
    if blas.blas().path is not None:
        with blas.GEMM.scoped("blas"):
            note = product_choice.product_note(ProductTypes(FLOAT32, FLOAT32), ProductShape(72, 72, 72))
        assert note.startswith("float32 [72, 72] @ [72, 72] by the library")
    a = rl.ones(64, 64, dtype=rl.int8)
    assert "int8 [64, 64] @ [64, 64] by generated tiles" in str(rl.explain(lambda: rl._int_mm(a, a))())


def test_an_object_that_is_there_is_kept(tmp_path):
    kept = cache.ObjectCache(str(tmp_path), "machine")
    key = kept.key("name")
    assert kept.keep(key, b"first") == b"first"
    assert kept.keep(key, b"second") == b"first"
    kept.put(key, b"third", replace=False)
    assert kept.get(key) == b"first"
    with open(kept.path(key), "wb") as file:
        file.write(b"rubbish")
    assert kept.keep(key, b"fourth") == b"fourth"
    assert kept.get(key) == b"fourth"


# ***** matrix tiles *****


@pytest.fixture
def tiles(empty, monkeypatch):
    """A machine that says it has matrix tiles."""
    monkeypatch.setattr(choice, "_ALLOWED", [True])
    monkeypatch.setattr(
        choice.host_target(), "flags", choice.host_target().flags | {"amx_tile", "amx_bf16", "amx_int8"}, raising=False
    )
    if choice.host_target().vector_bytes != 64 or choice.host_target().arch != "x86_64":
        pytest.skip("no such machine has matrix tiles")


def test_matrix_tiles_are_used_only_where_they_were_seen_to_be_right(tiles, monkeypatch):
    monkeypatch.setattr(choice, "_apart", lambda name: choice.Entry(True, 900.0, 200.0))
    assert choice.amx_works("amx_bf16")
    forms = product_choice._product_forms(BFLOAT16, FLOAT32)
    assert [form.tile.kind for form in forms] == ["amx_bf16"]
    monkeypatch.setattr(choice, "_apart", lambda name: choice.Entry(False))
    assert not choice.amx_works("amx_i8")
    with blas.GEMM.scoped("fixed"):
        assert not choice.amx_works("amx_bf16")
    monkeypatch.setattr(choice, "_ALLOWED", [False])
    assert not choice.amx_works("amx_bf16")


def test_a_trial_that_fails_counts_as_wrong(tiles, monkeypatch):
    for trial in ("import os; os.abort()", "print('True')[0]", "print('False 1.0 2.0')", "raise SystemExit(3)"):
        monkeypatch.setattr(choice, "_TRIAL", trial)
        assert not choice._apart("amx_bf16, nn, large").own
    monkeypatch.setattr(choice, "_TRIAL", "print('True 3.0 2.0')")
    assert choice._apart("amx_bf16, nn, large").own


@pytest.mark.parametrize("kind", ["amx_bf16", "amx_i8"])
def test_what_a_trial_does(kind, monkeypatch):
    """On any machine: both ways without matrix tiles."""
    monkeypatch.setattr(choice, "_ALLOWED", [True])
    monkeypatch.setattr(choice, "MARGIN", 1e9)  # whatever the clock says
    own, rate, other = choice.tried(f"{kind}, nn, large", lambda *given: product_choice.amx_maker(*given[:-1], False))
    assert own and rate > 0 < other
    monkeypatch.setattr(choice, "_ALLOWED", [False])
    assert choice.tried(f"{kind}, nn, large", product_choice.amx_maker) == (False, 0.0, 0.0)

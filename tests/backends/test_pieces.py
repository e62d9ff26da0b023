"""Pieces of large products that are searched for: which are chosen, where they are kept, and that no bit depends on them."""

import pytest

import rushlight as torch
from rushlight._backends.cpu.gemm import pieces
from rushlight._backends.cpu.gemm.blas import host_forms
from rushlight._backends.cpu.gemm.product_choice import product_call
from rushlight._backends.cpu.gemm.product_spec import ProductShape, ProductTypes
from rushlight._backends.cpu.launches import joined
from rushlight._transforms.passes import PASSES, switches
from rushlight._types.dtype import FLOAT32


@pytest.fixture
def unsearched(monkeypatch):
    monkeypatch.setattr(pieces, "_KNOWN", {})
    monkeypatch.setattr(pieces, "_ANY", [])


def test_only_clearly_faster_pieces_are_chosen():
    def seconds(fast, by):
        return lambda found: by if found == fast else 1.0

    third = pieces.CANDIDATES[3]
    assert pieces.fastest(seconds(third, 0.9)) == third
    assert pieces.fastest(seconds(third, 0.99)) is None  # within what measurements differ
    turns = iter([1.0, *[0.8 if p == third else 1.0 for p in pieces.CANDIDATES], 1.0, 1.0])
    assert pieces.fastest(lambda found: next(turns)) is None  # fast once only


@pytest.mark.parametrize("wanted", pieces.CANDIDATES)
def test_results_keep_every_bit(unsearched, monkeypatch, wanted):
    monkeypatch.setenv("RUSHLIGHT_GEMM", "generated")
    torch.manual_seed(0)
    sizes = m, n, k = 200, 300, 170
    a, b = torch.randn(m, k), torch.randn(k, n)
    types, shape = ProductTypes(FLOAT32, FLOAT32), ProductShape(m, n, k, (k, 1), (n, 1))
    usual = joined(product_call(types, shape))(a.data_ptr(), b.data_ptr())
    for form in host_forms(FLOAT32, FLOAT32):
        monkeypatch.setitem(pieces._KNOWN, (form.key, sizes, torch.get_num_threads()), wanted)
    monkeypatch.setattr(pieces, "_ANY", [True])
    other = joined(product_call(types, shape))(a.data_ptr(), b.data_ptr())
    assert bytes(memoryview(other)) == bytes(memoryview(usual))


class Kept:
    """A cache on disk, in memory."""

    directory = "here"

    def __init__(self):
        self.held = {}

    def key(self, *words):
        return repr(words).encode()

    def get(self, key):
        return self.held.get(key)

    def keep(self, key, data):
        return self.held.setdefault(key, data)


def test_a_search_is_made_once_and_kept(unsearched, monkeypatch):
    kept = Kept()
    monkeypatch.setattr(pieces, "default_cache", lambda: kept)
    form, calls = host_forms(FLOAT32, FLOAT32)[0], []
    wanted, sizes = pieces.CANDIDATES[0], (513, 257, 131)

    def seconds():
        calls.append(pieces.known(form, sizes))
        return 0.5 if calls[-1] == wanted else 1.0

    assert pieces.known(form, sizes) is None
    assert pieces.search(form, sizes, seconds) == wanted and None in calls
    count = len(calls)
    assert pieces.search(form, sizes, seconds) == wanted == pieces.known(form, sizes) and len(calls) == count
    pieces._KNOWN.clear()
    pieces._ANY.clear()
    assert pieces.known(form, sizes) == wanted and len(calls) == count  # as another process would find it
    kept.held = dict.fromkeys(kept.held, b"no")
    pieces._KNOWN.clear()
    assert pieces.known(form, sizes) is None  # an entry that is none


def test_it_is_made_where_asked_for():
    assert not switches({"allow_reordering": True})["autotune"] and switches({"autotune": True})["autotune"]
    assert PASSES["autotune"].when == "where asked for"
    weight, x = torch.randn(192, 192), torch.randn(192, 192)
    compiled = torch.compile(lambda x: (x @ weight).relu(), options={"autotune": True})
    assert torch.equal(compiled(x), (x @ weight).relu())
    notes = compiled._compiled.entry.segments[0].program.compile().notes
    assert any(note.startswith("autotune: ") for note in notes)
    assert torch.compile(lambda x: x, mode="max-autotune")(x) is x

"""Storages, typed and untyped: making, casting, resizing under living tensors, sharing with other processes."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import re
import sys
from typing import Any

import numpy as np
import pytest

import rushlight as torch


def test_typed_storages_are_classes_for_isinstance() -> None:
    s = torch.FloatStorage([1, 2, 3])
    assert (
        isinstance(s, torch.FloatStorage) and isinstance(s, torch.TypedStorage) and not isinstance(s, torch.LongStorage)
    )
    assert (
        isinstance(torch.ones(2).storage(), torch.Storage)
        and torch.LongStorage.dtype is torch.int64
        and torch.ones(1).storage_type() is torch.FloatStorage
    )
    assert (s.tolist(), s.type(), s.pickle_storage_type(), len(s), s.nbytes(), s[1]) == (
        [1.0, 2.0, 3.0],
        "torch.FloatStorage",
        "FloatStorage",
        3,
        12,
        2.0,
    )
    assert (
        s.long().tolist() == [1, 2, 3]
        and s.double().dtype is torch.float64
        and s.float8_e5m2().tolist() == [1.0, 2.0, 3.0]
    )
    assert repr(s) == " 1.0\n 2.0\n 3.0\n[torch.storage.TypedStorage(dtype=torch.float32, device=cpu) of size 3]"
    for made in (copy.copy(s), copy.deepcopy(s), pickle.loads(pickle.dumps(s)), s.clone()):
        assert made.tolist() == s.tolist() and made != s
    assert s.cpu() == s and torch.FloatTensor(s).tolist() == [1.0, 2.0, 3.0] and torch.zeros(1).set_(s).numel() == 3
    with pytest.raises(RuntimeError, match="slices are only supported"):
        s[0:2]
    s[0:2] = 7
    assert s.fill_(2).tolist() == [2.0] * 3 and torch.storage.TypedStorage is torch.TypedStorage


def test_from_buffer_knows_byte_orders() -> None:
    assert torch.IntStorage.from_buffer(b"\0\0\0\1", "big").tolist() == [1]
    assert torch.FloatStorage.from_buffer(b"\0\0\x80?\0\0\0@", "little").tolist() == [1.0, 2.0]
    assert torch.UntypedStorage([1, 300]).tolist() == [1, 44]
    with pytest.raises(ValueError, match="are not 1 elements"):
        torch.ShortStorage.from_buffer(b"\0\0\0", "little")
    with pytest.raises(TypeError, match="byte_order"):
        torch.IntStorage.from_buffer(b"\0\0\0\1")


def test_a_storage_grows_under_its_tensors() -> None:
    x = torch.arange(6.0)
    tail, square = x[2:], x.view(2, 3)
    storage = x.untyped_storage()
    version = x._version
    storage.resize_(64)
    assert x.untyped_storage() == tail.untyped_storage() == square.untyped_storage() and storage.nbytes() == 64
    tail[0] = 9.0
    assert x.tolist() == [0.0, 1.0, 9.0, 3.0, 4.0, 5.0] and square[0, 2].item() == 9.0 and x._version == version + 1


def test_frozen_tensors_follow_memory_that_moves() -> None:
    # What gc.freeze() took out of the collector's sight is found all the same.
    x = torch.zeros(4)
    part = x[1:]
    gc.freeze()
    try:
        x.resize_(400)
        x.fill_(2)
        assert part.tolist() == [2, 2, 2]
    finally:
        gc.unfreeze()


def test_a_storage_is_one_object_while_anybody_holds_it() -> None:
    x = torch.zeros(4)
    s = x.untyped_storage()
    assert s is x[1:].untyped_storage() and s is x.storage().untyped() and s != x.clone().untyped_storage()
    s.note = "kept"  # type: ignore[attr-defined]
    assert x.untyped_storage().note == "kept"  # type: ignore[attr-defined]
    s.resize_(32)
    assert s is x.untyped_storage() and s._cdata == x.untyped_storage()._cdata
    y = torch.ones(2).set_(s)
    assert y.untyped_storage() is s and torch.zeros(0).untyped_storage() != torch.zeros(0).untyped_storage()
    empty = copy.deepcopy([torch.zeros(0), torch.zeros(0)])
    assert empty[0].untyped_storage() is not empty[1].untyped_storage()


def test_getsizeof_counts_the_memory() -> None:
    for kind in ("untyped_storage", "_typed_storage"):
        sizes = [sys.getsizeof(getattr(torch.zeros(n), kind)()) for n in (0, 10)]
        assert sizes[1] - sizes[0] == 40


def test_subclasses_of_storages_stay_what_they_are() -> None:
    class Marked(torch.UntypedStorage):
        pass

    s = Marked(4)
    x = torch.zeros(0, dtype=torch.uint8).set_(s)
    assert type(s.clone()) is Marked and x.untyped_storage() is s
    s.resize_(8)
    assert x.untyped_storage() is s and s.nbytes() == 8


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: torch.UntypedStorage("a"), RuntimeError, "one of the items was of type str instead of int"),
    (lambda: torch.UntypedStorage(2.5), RuntimeError, "Expected a sequence type, but got float"),
    (lambda: torch.UntypedStorage(2)["a"], TypeError, "can't index a torch.UntypedStorage with str"),
    (lambda: torch.UntypedStorage(2).__setitem__(0, "a"), RuntimeError, "can only set storage content with a int types, but got str"),
    (lambda: torch.UntypedStorage(4).__setitem__(slice(0, 4, 2), 1), RuntimeError, "Trying to slice with a step of 2"),
    (lambda: torch.FloatStorage(2)[2], IndexError, "index 2 out of range for storage of size 2"),
    (lambda: torch.FloatStorage(1, 2), RuntimeError, "Too many positional arguments"),
    (lambda: torch.FloatStorage(1, device="cpu"), RuntimeError, "Keyword argument 'device' cannot be specified"),
    (lambda: torch.FloatStorage("a"), TypeError, "Argument type not recognized: <class 'str'>"),
    (lambda: torch.TypedStorage(wrap_storage=torch.UntypedStorage(2)), RuntimeError, "Argument 'dtype' must be specified"),
])  # fmt: skip
def test_wrong_uses_of_storages_are_refused(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        call()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_shared_memory_is_seen_by_other_processes() -> None:
    x = torch.arange(4.0)
    view = x[1:]
    assert (
        not x.is_shared()
        and x.share_memory_() is x
        and x.is_shared()
        and view.is_shared()
        and view.untyped_storage().is_shared()
    )
    child = os.fork()
    if not child:
        view[0] = 77.0
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert x.tolist() == [0.0, 77.0, 2.0, 3.0]
    assert torch.zeros(0).share_memory_().is_shared() and pickle.loads(pickle.dumps(x)).tolist() == x.tolist()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_shared_memory_leaves_nothing_behind() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        torch.ones(100).share_memory_()
    assert len(os.listdir("/proc/self/fd")) == before


# ***** memory that was given back *****


def released(x: Any) -> Any:
    x = x.clone()
    x.untyped_storage().resize_(0)
    return x


@pytest.mark.parametrize("call", [
    lambda x: x + 1, lambda x: x.sum(), lambda x: x.add_(1), lambda x: x.fill_(0), lambda x: x.copy_(torch.ones(3, 4)), lambda x: torch.ones(3, 4).copy_(x),
    lambda x: x.tolist(), lambda x: x[1, 1].item(), lambda x: bool(x[0, 0]), lambda x: x.numpy(), repr, lambda x: x.normal_(), lambda x: x.clone(),
    lambda x: x.nonzero(), lambda x: x[torch.tensor([1])], lambda x: torch.ones(4, 2)[x.long()[:1]], lambda x: x.sort(), lambda x: x @ torch.ones(4, 2),
    lambda x: torch.add(torch.ones(3, 4), 1, out=x), lambda x: x.bernoulli(), lambda x: torch.nn.functional.dropout(x), lambda x: torch.linalg.svd(x),
    lambda x: torch.cat([torch.ones(3, 4), x]), lambda x: x.requires_grad_().exp(), lambda x: x.view(12)[3:].cumsum(0), lambda x: x.T.contiguous(),
    lambda x: torch.stft(x.view(12), 4, return_complex=True), lambda x: x.__setitem__(0, 1.0), lambda x: x.multinomial(1), lambda x: x.unique(),
    torch.poisson, lambda x: torch.poisson(x.double()), lambda x: torch.binomial(torch.ones(3, 4), x), lambda x: torch.ones(3, 4).bernoulli_(x),
    lambda x: torch.nn.functional.rrelu(x, training=True), lambda x: torch.stack([x, x]), lambda x: x[torch.ones(3, 4, dtype=torch.bool)],
    lambda x: x.view(12).unique_consecutive(), lambda x: torch._foreach_add_([x], 1.0), lambda x: torch.view_as_complex(x.view(3, 2, 2))[0, 0].item(),
    lambda x: torch.ones(3, 4)[(x > 0)], lambda x: x.cpu().sum(), lambda x: x.data.sum(), lambda x: x.detach().sum(), lambda x: x.conj().sum(),
    lambda x: x.to("cpu").sum(), lambda x: torch.optim.SGD([torch.ones(3, 4).requires_grad_()], lr=0.1) and x.unbind()[0].mul_(2),
    lambda x: pickle.loads(pickle.dumps(x)).sum(), lambda x: copy.deepcopy(x).sum(), lambda x: torch._standard_gamma(x), lambda x: x.random_(),
])  # fmt: skip
def test_elements_of_released_memory_are_refused(call: Any) -> None:
    with pytest.raises(RuntimeError, match="data is not allocated"):
        call(released(torch.ones(3, 4)))


def test_plans_that_were_made_before_do_not_read_released_memory() -> None:
    layer, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
    for _ in range(3):
        layer(x).sum().backward()
    layer.weight.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="not allocated"):
        layer(x)
    y = torch.ones(4, requires_grad=True)
    loss = (y * y).sum()
    y.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="not allocated"):
        loss.backward()
    for kept in (True, True, False):  # the plan of the backward pass was made by a backward pass of the same kind
        loss = (x * layer.bias).sum()
        if not kept:
            x.untyped_storage().resize_(0)
            with pytest.raises(RuntimeError, match="not allocated"):
                loss.backward()
        else:
            loss.backward()


_RESIZED_BESIDE = """
import threading
import rushlight as torch

n = 1 << 20
x, y, w = torch.ones(n), torch.ones(n), torch.ones(n, requires_grad=True)
done = threading.Event()

def computing():
    made = 0
    while not done.is_set():
        for call in (x.exp, lambda: x.sum().item(), lambda: y.copy_(x), lambda: x.view(1024, 1024).cumsum(0), lambda: (x * w).sum().backward()):
            try:
                call()
                made += 1
            except RuntimeError as error:
                assert "not allocated" in str(error) or "another thread" in str(error), error
    counts.append(made)

counts = []
threads = [threading.Thread(target=computing) for _ in range(2)]
for t in threads:
    t.start()
memory = x.untyped_storage()
for _ in range(60):
    memory.resize_(0)
    memory.resize_(4 * n)
done.set()
for t in threads:
    t.join()
x.fill_(1)
print(len(counts), x.sum().item())
"""


def test_memory_is_held_while_a_kernel_reads_it(run_python: Any) -> None:
    """Another thread takes the memory of a tensor away, over and over, while two compute with it."""
    done = run_python("-c", _RESIZED_BESIDE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "1048576.0"]


def test_released_memory_comes_back_to_all_views() -> None:
    x = torch.ones(3, 3)
    before = x[1:]
    x.untyped_storage().resize_(0)
    between = x.view(9)
    assert (x.device, x.shape, x.stride(), x.data_ptr()) == (torch.device("cpu"), (3, 3), (3, 1), 0)
    assert torch.zeros_like(x).sum() == 0 and x.to("meta").shape == (3, 3) and x.detach().requires_grad is False
    x.untyped_storage().resize_(36)
    x.fill_(2)
    assert (before.sum().item(), between.sum().item(), (x + 1).sum().item()) == (12, 18, 27)


def test_a_part_without_elements_needs_no_memory() -> None:
    assert released(torch.ones(3, 4))[:0].sum() == 0


def test_a_tensor_takes_other_memory_after_its_own_was_released() -> None:
    x = released(torch.ones(3, 4))
    assert x.set_(torch.full((2, 2), 3.0)).sum() == 12
    y = released(torch.ones(3, 4)).resize_(2, 7)
    assert y.fill_(1).sum() == 14


def test_lists_within_themselves_are_refused() -> None:
    inner: list[Any] = []
    inner.append(inner)
    for call in (lambda: torch.tensor(inner), lambda: torch.as_tensor([inner, inner]), lambda: torch.ones(3)[[inner]]):
        with pytest.raises((ValueError, TypeError), match="too many dimensions 'list'"):
            call()


@pytest.mark.parametrize("call", [
    lambda: torch.empty(1 << 62), lambda: torch.empty(1 << 62, 4), lambda: torch.zeros(0, 1 << 62).sum(0), lambda: torch.arange(1 << 60), lambda: torch.eye(1 << 40),
    lambda: torch.ones(3, 4).repeat(1 << 62, 4), lambda: torch.diag(torch.ones(2), 1 << 40), lambda: torch.randint(5, (2**63 - 1,)),
    lambda: torch.bincount(torch.tensor([0]), minlength=1 << 62), lambda: torch.nn.functional.pad(torch.ones(3), (2**63 - 1, 2**63 - 1)),
    lambda: torch.ones(3).resize_(1 << 62), lambda: torch.nn.Linear(1 << 40, 1 << 40), lambda: torch.repeat_interleave(torch.tensor([1 << 62])),
    lambda: torch.ones(1).expand(1 << 61).contiguous(),
])  # fmt: skip
def test_sizes_that_64_bits_do_not_count_are_refused(call: Any) -> None:
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
        call()


def test_memory_before_and_beyond_a_storage_is_not_shown() -> None:
    held = torch.arange(12.0).untyped_storage()
    for call in (
        lambda: torch.empty(0).set_(held, -1, (1,), (1,)), lambda: torch.empty(0).set_(held, 0, (3,), (-1,)), lambda: torch.empty(0).set_(held, 0, (-3,), (1,)),
        lambda: torch.empty(0).set_(held, 0, (3, 4), (1,)), lambda: torch.empty_strided((2,), (-1,)), lambda: torch.ones(1).new_empty_strided((2,), (-1,)),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="stride|offset|negative"):
            call()
    assert torch.empty(0).set_(held, 2, (2, 2), (4, 1)).tolist() == [[2, 3], [6, 7]]
    assert torch.empty_strided((0,), (-1,)).shape == (0,)


def test_places_that_do_not_fit_together_are_refused() -> None:
    table, places = torch.arange(12.0).reshape(3, 4), torch.tensor([0, 1, 2])
    bags = torch.nn.functional.embedding_bag
    for offsets in ([0, 2, 1], [0, -1], [0, -(2**63)], [0, 2**63 - 1]):
        for mode in ("sum", "mean", "max"):
            with pytest.raises(RuntimeError, match="offsets must not"):
                bags(places, table, torch.tensor(offsets), mode=mode)
    with pytest.raises(RuntimeError, match="offsets must not be greater"):
        bags(places, table, torch.tensor([0, 2, 4]), include_last_offset=True)
    with pytest.raises(RuntimeError, match="number of offset should be at least 1"):
        bags(places, table, torch.empty(0, dtype=torch.int64), include_last_offset=True)
    assert bags(places, table, torch.tensor([0, 3, 3]), mode="sum").tolist() == [
        table.sum(0).tolist(),
        [0.0] * 4,
        [0.0] * 4,
    ]
    with pytest.raises(RuntimeError, match="must have the same size"):
        torch.searchsorted(torch.tensor([1.0, 2.0]), torch.tensor([0.0]), sorter=torch.tensor([0]))
    for layer in (torch.nn.LSTM(1, 2), torch.nn.GRU(1, 2), torch.nn.RNN(1, 2)):
        with pytest.raises(RuntimeError, match="must not increase"):
            layer(torch.nn.utils.rnn.PackedSequence(torch.ones(3, 1), torch.tensor([1, 2])))


def test_a_single_sample_has_its_class_in_a_vector_or_not() -> None:
    x = torch.tensor([0.5, -1.5, 2.0], requires_grad=True)
    found = torch.nn.functional.nll_loss(x, torch.tensor([1]))
    found.backward()
    assert found.shape == () and found.item() == 1.5 and x.grad is not None and x.grad.tolist() == [0, -1, 0]


@pytest.mark.parametrize("call", ["Tensor", "FloatTensor", "LongTensor"])
def test_legacy_constructors_take_sizes_and_sequences(call: str) -> None:
    make = getattr(torch, call)
    assert make(2).shape == make(np.int64(2)).shape == (2,)
    assert make(2, True).shape == (2, 1)
    assert make((2, 3)).tolist() == [2, 3]
    for wrong, kind in (
        (2.5, "float"),
        (True, "bool"),
        (None, "NoneType"),
        (1j, "complex"),
        (np.float32(2), "numpy.float32"),
        ({1: 2}, "dict"),
        ({1}, "set"),
    ):
        with pytest.raises(TypeError, match=rf"new\(\): data must be a sequence \(got {kind}\)"):
            make(wrong)


def test_legacy_constructors_make_plain_tensors_of_subclasses() -> None:
    class Curious(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(f"nobody is to ask for {func}")

    class Quiet(torch.Tensor):
        pass

    for kind in (Curious, Quiet):
        given = torch.ones(2).as_subclass(kind)
        found = (torch.Tensor(given), torch.FloatTensor(given), Quiet(given))
        assert [type(t) for t in found] == [torch.Tensor, torch.Tensor, Quiet]
        found[0][0] = 5
        assert found[2].tolist() == [5, 1]  # all of them show one memory


def test_legacy_constructors_take_tensors_of_their_dtype() -> None:
    with pytest.raises(TypeError, match=r"expected a tensor of dtype torch.int64 \(got torch.float32\)"):
        torch.LongTensor(torch.ones(2))

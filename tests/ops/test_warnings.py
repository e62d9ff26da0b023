"""What users are told of: PyTorch's warnings, of its classes and at the user's line."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch

SAID: list[tuple[str, Callable[[Any], Any]]] = [
    (r"Tensor.T is deprecated on 0-D tensors", lambda torch: torch.tensor(1.0).T),
    (r"Tensor.mT is deprecated on 0-D tensors", lambda torch: torch.tensor(1.0).mT),
    (r"Tensor.H is deprecated on 0-D tensors. Consider using x.conj\(\)", lambda torch: torch.tensor(1.0).H),
    (r"Tensor.mH is deprecated on 0-D tensors. Consider using x.conj\(\)", lambda torch: torch.tensor(1.0).mH),
    (r"The use of `x.T` on tensors of dimension other than 2", lambda torch: torch.ones(3).T),
    (
        r"Casting complex values to real discards the imaginary part",
        lambda torch: torch.ones(7, dtype=torch.complex64).to(torch.float64),
    ),
    (
        r"Casting complex values to real discards the imaginary part",
        lambda torch: torch.ones(2).copy_(torch.ones(2, dtype=torch.complex64)),
    ),
    (
        r"where received a uint8 condition tensor",
        lambda torch: torch.where(torch.ones(11, dtype=torch.uint8), torch.ones(11), torch.zeros(11)),
    ),
    (
        r"number of elements in the out tensor of shape \[2\] is 2 which does not match the computed number of elements 5",
        lambda torch: torch.arange(5, out=torch.empty(2)),
    ),
    (
        r"affine_grid behavior has changed for unit-size grids",
        lambda torch: torch.nn.functional.affine_grid(torch.ones(1, 2, 3), (1, 1, 1, 1), align_corners=True),
    ),
    (
        r"A window was not provided.*Please provide the same window used by stft",
        lambda torch: torch.istft(torch.ones(3, 4, dtype=torch.complex64), 4),
    ),
    (
        r"torch.lu_solve is deprecated",
        lambda torch: torch.lu_solve(torch.ones(5, 1), *torch.linalg.lu_factor(torch.eye(5))),
    ),
]


@pytest.mark.parametrize(("text", "call"), SAID)
def test_what_a_program_does_is_warned_of(text: str, call: Callable[[Any], Any]) -> None:
    _warned(torch, text, call)


@pytest.mark.oracle
@pytest.mark.parametrize(("text", "call"), SAID)
def test_these_are_the_warnings_of_torch(text: str, call: Callable[[Any], Any]) -> None:
    import torch as original

    _warned(original, text, call)


def _warned(library: Any, text: str, call: Callable[[Any], Any]) -> None:
    before = library.is_warn_always_enabled()
    library.set_warn_always(True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            with pytest.warns(UserWarning, match=text) as found:
                call(library)
        assert found[0].filename == __file__
    finally:
        library.set_warn_always(before)


def test_warnings_are_given_once_or_always() -> None:
    def seen() -> int:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for _ in range(3):
                assert torch.tensor(1.0).mT == 1
        return len(found)

    seen()
    assert seen() == 0
    torch.set_warn_always(True)
    try:
        assert seen() == 3
    finally:
        torch.set_warn_always(False)


EVERY_TIME: list[tuple[str, Callable[[Any], Any]]] = [
    ("std", lambda torch: torch.std(torch.ones(1))),
    ("var", lambda torch: torch.ones(1, 3).var(0)),
    ("var that is recorded", lambda torch: torch.var(torch.ones(1, 3, requires_grad=True), 0)),
    ("to real", lambda torch: torch.ones(2, dtype=torch.complex64).float()),
    ("copy to real", lambda torch: torch.ones(2).copy_(torch.ones(2, dtype=torch.complex64))),
    ("where", lambda torch: torch.where(torch.ones(2, dtype=torch.uint8), torch.ones(2), torch.zeros(2))),
    ("byte mask", lambda torch: torch.ones(3)[torch.ones(3, dtype=torch.uint8)]),
    ("older arguments", lambda torch: torch.ones(2).addcdiv(1, torch.ones(2), torch.ones(2))),
    ("meshgrid", lambda torch: torch.meshgrid(torch.ones(2), torch.ones(2))),
    ("cross", lambda torch: torch.cross(torch.ones(3, 3), torch.ones(3, 3))),
    ("reduce", lambda torch: torch.nn.functional.mse_loss(torch.ones(2), torch.ones(2), reduce=False)),
    ("nested bodies", lambda torch: torch.nn.functional.multilabel_margin_loss(
        torch.ones(2, 2), torch.ones(2, 2, dtype=torch.int64), reduce=False)),
]  # fmt: skip


@pytest.mark.parametrize("call", [call for _, call in EVERY_TIME], ids=[name for name, _ in EVERY_TIME])
def test_each_call_warns_though_its_plan_is_cached(call: Callable[[Any], Any]) -> None:
    assert _counted(torch, call) == [1, 1, 1, 1]


@pytest.mark.oracle
@pytest.mark.parametrize("call", [call for _, call in EVERY_TIME], ids=[name for name, _ in EVERY_TIME])
def test_each_call_of_torch_warns(call: Callable[[Any], Any]) -> None:
    import torch as original

    assert _counted(original, call) == [1, 1, 1, 1]


def _counted(library: Any, call: Callable[[Any], Any]) -> list[int]:
    """The warnings of four calls, each."""
    library.set_warn_always(True)
    counts = []
    try:
        for _ in range(4):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                call(library)
            counts.append(len(found))
    finally:
        library.set_warn_always(False)
    return counts


def test_the_length_of_a_stream_counts_if_it_was_asked_for_before() -> None:
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            return iter(range(5))

        def __len__(self) -> int:
            return 2

    loader = torch.utils.data.DataLoader(Stream(), batch_size=None)
    assert len(list(loader)) == 5  # `list` asks when the pass has begun
    with pytest.warns(UserWarning, match="was reported to be 2"):
        assert len(list(loader)) == 5


def test_activities_that_are_not_there_are_told_of_and_left_out() -> None:
    names = torch.profiler.ProfilerActivity
    with (
        pytest.warns(UserWarning, match="CUDA is not available, disabling CUDA profiling"),
        torch.profiler.profile(activities=[names.CPU, names.CUDA]) as found,
    ):
        torch.ones(2).exp()
    assert any(e.key == "aten::exp" for e in found.key_averages())
    with (
        pytest.warns(UserWarning, match="CUDA is not available"),
        pytest.raises(AssertionError, match="No activities specified"),
    ):
        torch.profiler.profile(activities=[names.CUDA]).start()
    with pytest.raises(AssertionError, match="only with Kineto"):
        torch.autograd.profiler.profile(use_cpu=False)


def test_repeats_by_number() -> None:
    numpy = pytest.importorskip("numpy")
    x, counts = numpy.arange(12.0).reshape(3, 4), numpy.array([2, 0, 3])
    found = torch.repeat_interleave(torch.tensor(x), torch.tensor(counts, dtype=torch.int32), dim=0)
    assert found.tolist() == numpy.repeat(x, counts, axis=0).tolist()
    assert torch.repeat_interleave(torch.tensor(counts)).tolist() == numpy.repeat(numpy.arange(3), counts).tolist()
    assert (
        torch.repeat_interleave(torch.tensor(x), torch.tensor([2]), dim=1).tolist()
        == numpy.repeat(x, 2, axis=1).tolist()
    )
    assert torch.repeat_interleave(torch.ones(0), torch.ones(0, dtype=torch.int64)).shape == (0,)
    with pytest.raises(RuntimeError, match="negative"):
        torch.repeat_interleave(torch.ones(2), torch.tensor([1, -1]))
    with pytest.raises(RuntimeError, match="add up to 5"):
        torch.repeat_interleave(torch.ones(3), torch.tensor(counts), output_size=6)
    leaf = torch.ones(3, requires_grad=True)
    torch.repeat_interleave(leaf, torch.tensor(counts)).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [2, 0, 3]


@pytest.mark.parametrize(("options", "text"), [
    (dict(stride=0), "stride should be greater than zero"), (dict(dilation=0), "dilation should be greater"), (dict(padding=-1), "padding should be non-negative"),
])  # fmt: skip
def test_fold_refuses_steps_that_go_nowhere(options: dict[str, int], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        torch.nn.functional.fold(torch.ones(1, 4, 4), (3, 3), (2, 2), **options)


def test_powers_are_those_of_numpy() -> None:
    numpy = pytest.importorskip("numpy")
    x = numpy.array([1.5, -2.0, 0.0])
    assert torch.linalg.vander(torch.tensor(x), N=5).tolist() == numpy.vander(x, 5, increasing=True).tolist()
    for dtype in (numpy.bool_, numpy.int8, numpy.int32):  # whole numbers give int64
        whole = numpy.array([1, 0, 1 if dtype is numpy.bool_ else 100], dtype)
        found = torch.vander(torch.tensor(whole), 4)
        assert found.dtype is torch.int64 and found.tolist() == numpy.vander(whole.astype(numpy.int64), 4).tolist()
    leaf = torch.tensor(x, requires_grad=True)
    torch.linalg.vander(leaf, N=4).sum().backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [1 + 2 * v + 3 * v * v for v in x]

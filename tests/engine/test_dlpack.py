"""DLPack in both directions: what is shared, what is copied, what is refused."""

import numpy as np
import pytest

import rushlight as torch


def _shares(made, source):
    before = source[0].item()
    made[0] = before + 1
    return source[0].item() == before + 1


@pytest.mark.parametrize("make", (lambda: np.arange(4.0), lambda: torch.arange(4.0)))
def test_from_dlpack_copies_as_it_is_told(make):
    for keywords, shared in (({}, True), ({"copy": None}, True), ({"copy": False}, True), ({"copy": True}, False), ({"device": "cpu"}, True),
                             ({"device": torch.device("cpu"), "copy": True}, False), ({"device": "cpu", "copy": False}, True)):  # fmt: skip
        source = make()
        made = torch.from_dlpack(source, **keywords)
        assert made.tolist() == [0.0, 1.0, 2.0, 3.0] and _shares(made, source) is shared, keywords


def test_another_device_needs_a_copy():
    assert torch.from_dlpack(np.arange(3), device="meta").device.type == "meta"
    with pytest.raises(ValueError, match="without copying"):
        torch.from_dlpack(np.arange(3), device="meta", copy=False)


def test_capsules():
    x = torch.arange(3)
    assert _shares(torch.from_dlpack(x.__dlpack__()), x) and not _shares(torch.from_dlpack(x.__dlpack__(copy=True)), x)
    for keywords in ({"copy": True}, {"device": "cpu"}):
        with pytest.raises(AssertionError, match="already a DLPack capsule"):
            torch.from_dlpack(x.__dlpack__(), **keywords)
    for wrong in (3, None, "x"):
        with pytest.raises(RuntimeError, match="invalid capsule"):
            torch.from_dlpack(wrong)
    with pytest.raises(TypeError, match="stream must be"):
        x.__dlpack__(stream="a")


def test_numpy_reads_a_tensor():
    x = torch.arange(3)
    assert (
        _shares(np.from_dlpack(x), x)
        and _shares(np.from_dlpack(x, copy=False), x)
        and not _shares(np.from_dlpack(x, copy=True), x)
    )


def test_what_is_not_exported():
    for x, text in (
        (torch.ones(2, requires_grad=True), "require gradient"), ((torch.ones(2) * 1j).conj(), "conjugate bit"), (torch.empty(2, device="meta"), "no memory"),
    ):  # fmt: skip
        for call in (lambda x=x: torch.from_dlpack(x), lambda x=x: x.__dlpack__()):
            with pytest.raises(BufferError, match=text):
                call()

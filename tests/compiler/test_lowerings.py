"""Lowerings of Inductor that a user registers: they cannot be called, so programs that would want them say so."""

from __future__ import annotations

import warnings

import pytest

import rushlight as torch
from rushlight._inductor.lowering import lowerings, register_lowering


@pytest.fixture
def registered():
    yield register_lowering
    lowerings.clear()


def test_a_program_with_such_an_operator_warns_once(registered):
    @torch.library.custom_op("lowered_here::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    twice.register_fake(lambda x: torch.empty_like(x))
    operator = torch.ops.lowered_here.twice.default
    registered([torch.ops.aten.erfinv.default, operator, torch.ops.aten.tan])(lambda x: x)
    assert set(lowerings) == {torch.ops.aten.erfinv.default, operator, torch.ops.aten.tan}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.compile(lambda x: torch.sin(x))(torch.ones(3))  # has none of them
        torch.erfinv(torch.zeros(3))  # no program
    with pytest.warns(UserWarning) as caught:
        torch.compile(lambda x: torch.erfinv(x) + 1)(torch.zeros(3))
        torch.compile(lambda x: twice(x) + 1)(torch.zeros(3))
        torch.compile(lambda x: x.tan() + 1)(torch.zeros(3))
    texts = [str(each.message) for each in caught]
    assert [text.partition(" is not called")[0].rpartition(" ")[2] for text in texts] == [
        "aten.erfinv.default", "lowered_here.twice.default", "aten.tan"
    ], texts  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.compile(lambda x: torch.erfinv(x) + 2)(torch.zeros(3))

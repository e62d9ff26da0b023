"""Devices of architectures that the code generator does not name: they get PTX of an older one, or a refusal."""

from __future__ import annotations

import re

import pytest

from rushlight._backends.cuda.images import architecture_of
from rushlight._native.nvidia.nvptx import ARCHITECTURES, ptx_of


def own(major: int, minor: int) -> str:
    return architecture_of({"major": major, "minor": minor}, ARCHITECTURES)


@pytest.mark.parametrize(
    ("capability", "expected"),
    [
        ((7, 5), "sm_75"),
        ((8, 7), "sm_86"),  # Jetson Orin
        ((9, 0), "sm_90a"),
        ((10, 3), "sm_100"),  # instructions of an "a" run on that architecture alone
        ((12, 1), "sm_120"),
        ((19, 0), "sm_120"),  # a device of a time to come
    ],
)
def test_a_device_gets_the_newest_code_that_it_can_run(capability: tuple[int, int], expected: str) -> None:
    assert own(*capability) == expected


@pytest.mark.parametrize("capability", [(3, 5), (6, 1), (7, 0)])
def test_a_device_that_is_too_old_is_refused_with_what_would_work(capability: tuple[int, int]) -> None:
    name = re.escape(f"compute capability {capability[0]}.{capability[1]}")
    with pytest.raises(RuntimeError, match=rf"{name}.*7\.5 or newer"):
        own(*capability)


def test_code_for_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(ValueError, match="no code is made for 'sm_61'; known architectures: sm_75"):
        ptx_of("", "sm_61")

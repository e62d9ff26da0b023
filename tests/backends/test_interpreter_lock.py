"""Other Python threads run during calls that take longer than about 20 us."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rushlight as torch

F = torch.nn.functional


@pytest.fixture(autouse=True)
def never_switched() -> Iterator[None]:
    """The lock changes hands only where its holder lets it go."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e6)
    yield
    sys.setswitchinterval(before)


def ran_during(call: Callable[[], Any], tries: int) -> bool:
    """Whether another thread ran during one of the calls."""
    count, moved, ended = [0], [False], threading.Event()

    def work() -> None:
        for _ in range(tries):
            before = count[0]
            call()
            if count[0] != before:
                moved[0] = True
                break
        ended.set()

    call()
    thread = threading.Thread(target=work)
    thread.start()
    while not ended.is_set():
        count[0] += 1
        time.sleep(0)
    thread.join()
    return moved[0]


def _calls() -> dict[str, Callable[[], Any]]:
    row, rows, image = torch.ones(1, 768), torch.ones(128, 128), torch.ones(1, 16, 32, 32)
    weight, square, kernel = torch.ones(768, 768), torch.ones(128, 128), torch.ones(16, 16, 3, 3)
    queries, flat = torch.ones(1, 4, 128, 32), torch.ones(1 << 17)
    packed = torch._convert_weight_to_int4pack_for_cpu(torch.ones(1024, 1024, dtype=torch.int32), 1)
    scales, wide = torch.ones(8, 1024, 2), torch.ones(1, 1024)
    compiled = torch.compile(lambda x: (x.exp() + 1).sum())
    return {
        "thin product": lambda: F.linear(row, weight),
        "product": lambda: rows @ square,
        "convolution": lambda: F.conv2d(image, kernel, padding=1),
        "attention": lambda: F.scaled_dot_product_attention(queries, queries, queries),
        "elements": lambda: flat + flat,
        "expensive elements": lambda: flat[:20000].lgamma(),
        "weights of four bits": lambda: torch._weight_int4pack_mm_for_cpu(wide, packed, 128, scales),
        "compiled": lambda: compiled(flat),
    }


@pytest.mark.parametrize(
    "name",
    [
        "thin product",
        "product",
        "convolution",
        "attention",
        "elements",
        "expensive elements",
        "weights of four bits",
        "compiled",
    ],
)
def test_others_run_meanwhile(name: str) -> None:
    with torch.no_grad():
        assert ran_during(_calls()[name], 20000)


def test_short_calls_keep_the_lock() -> None:
    x = torch.ones(8)
    assert not ran_during(lambda: x + x, 200)

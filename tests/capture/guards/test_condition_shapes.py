"""Shapes of conditions: with its operands each gives what the text gives, however many these are."""

from __future__ import annotations

import ast

import pytest

from rushlight._capture.trace.guards import asking
from rushlight._capture.trace.segments.generated import functions

V = {f"v{k}": 7 * k for k in range(12)}
TEXTS = [
    "type({}) is v3 or {} == 99",
    "len({id(v1), id(v2), id(v3), id(v4), id(v5), id(v6), id(v7), id(v8), id(v9)}) == 9",
    "{} in (1, 2, 3, 4, 5, 6, 7, 8, 9, {}, 'a')",
    "(1, 2, 3, 4, 5, 6, 7, 8, 9)",
    "max(v1, v2, v3, v4, v5, v6, v7, v8, v9)",
    "(v1 + 1, 2, 3, 4, 5, 6, 7, 8 + v2, 10)",
    "(v1, (v2, (v3, (v4, (v5, (v6, (v7, (v8, v9))))))))",
    "(v1.real, v2.real, v3.real, v4.imag, v5.imag, v6.imag, v7.imag, str(v8), str(v9), str(v10), v11)",
    "[*range(99)][1:9] == [1, 2, 3, 4, 5, 6, 7, 8] and {1: 2, 3: 4, 5: 6, 7: 8} and ((1, 2), (1, 2), (1, 2))",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_shape_gives_what_the_text_gives(text: str) -> None:
    shape, operands = asking.shape_of(text)
    asked = asking._asked_for({shape: len(operands)}, V)[shape]
    values = [V[x] if x in V else ast.literal_eval(x) for x in operands]
    assert asked(99, *values) == functions(f"whole = {text.replace('{}', 'x')}", {**V, "x": 99}, "whole")["whole"]


def test_elements_are_not_repeated() -> None:
    """The shape of a condition of many objects is as long as that of few."""
    shapes = [asking.shape_of(f"len({{{', '.join(f'id(v{k})' for k in range(n))}}}) == {n}")[0] for n in (10, 1000)]
    assert shapes[0].replace("10", "1000") == shapes[1]

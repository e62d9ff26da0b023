"""`sys.getrefcount` of an object that only a variable holds: 2, and 1 from CPython 3.14 on, where a variable
lends its reference to a call.
"""

from __future__ import annotations

import sys

__all__ = ["BY_VARIABLE"]


def _of_a_variable() -> int:
    value = object()
    return sys.getrefcount(value)


BY_VARIABLE = _of_a_variable()

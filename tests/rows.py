"""A test over the rows of a table, run as one test for each group of rows.

To pytest a test of its own costs a millisecond and a half, more than most rows of the tables of operators and primitives take.  So the rows of one
operator are one test: `-k softplus` selects it, and a failure names its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def each_row(rows: Iterable[tuple[str, str, tuple[Any, ...]]]) -> Callable[[Test], Test]:
    """Call a test with the arguments of each row (group, name, arguments).  It is skipped where every row of the group skips."""
    groups: dict[str, list[tuple[str, tuple[Any, ...]]]] = {}
    for group, name, arguments in rows:
        groups.setdefault(group, []).append((name, arguments))

    def decorate(test: Test) -> Test:
        @pytest.mark.parametrize("group", groups)
        def over_rows(group: str) -> None:
            skipped = []
            for name, arguments in groups[group]:
                try:
                    test(*arguments)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"in the row {name}")
                    raise
            if len(skipped) == len(groups[group]):
                raise skipped[0]

        over_rows.__name__, over_rows.__qualname__ = test.__name__, test.__qualname__
        over_rows.__doc__, over_rows.__module__ = test.__doc__, test.__module__
        return over_rows

    return decorate

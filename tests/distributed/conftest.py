from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest
from tests.distributed.ranks import Ranks

WHY = "jobs of several processes need the extra: pip install 'rushlight[mpi]'"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long tests run where `-m` names them."""
    if "distributed" in (config.option.markexpr or ""):
        return
    for item in items:
        if "distributed" in item.keywords and item.get_closest_marker("distributed"):
            item.add_marker(pytest.mark.skip(reason="long: run by `make test-distributed`"))


@pytest.fixture(scope="session")
def mpi() -> None:
    """Skips where there is no MPI."""
    if find_spec("mpi4py") is None:
        pytest.skip(WHY)


@pytest.fixture(scope="session")
def four(mpi: None) -> Iterator[Ranks]:
    """Four ranks, started once."""
    ranks = Ranks(4)
    yield ranks
    ranks.close()

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.distributed.ranks import Ranks

NEEDS_MPI = pytest.mark.skipif(
    find_spec("mpi4py") is None, reason="jobs of several processes need the extra rushlight[mpi]"
)


@pytest.fixture(scope="session")
def four() -> Iterator[Ranks]:
    """Four ranks, started once."""
    if find_spec("mpi4py") is None:
        pytest.skip("jobs of several processes need the extra rushlight[mpi]")
    ranks = Ranks(4)
    yield ranks
    ranks.close()

"""The programs of other tests on two, three and eight ranks: long, as eight ranks share two cores."""

from __future__ import annotations

from typing import Any

import pytest
from tests.distributed.programs import collective_programs, compiled_programs, ddp_programs, tensor_programs
from tests.distributed.ranks import Ranks

ANY: dict[Any, str] = {
    collective_programs: "reductions moves uneven layouts asynchronous messages objects differentiable methods threads",
    ddp_programs: "unused buffers hooks batch_statistics joined compiled mixed",
    compiled_programs: "functional",
}
EVEN: dict[Any, str] = {ddp_programs: "accumulated", compiled_programs: "in_place", tensor_programs: "tensor_parallel"}
LARGE: dict[Any, str] = {collective_programs: "groups meshes", ddp_programs: "steps divided averaging"}


@pytest.mark.distributed
@pytest.mark.parametrize(("size", "tables"), [(2, (ANY, EVEN)), (3, (ANY,)), (8, (ANY, EVEN, LARGE))])
def test_as_on_four_ranks(mpi: None, size: int, tables: tuple[dict[Any, str], ...]) -> None:
    ranks = Ranks(size)
    try:
        for table in tables:
            for module, names in table.items():
                for name in names.split():
                    ranks.run(getattr(module, name), timeout=240)
    finally:
        ranks.close()

"""Two kinds of parallelism at once: the losses that PyTorch 2.13 gave for the same program on four ranks with gloo."""

from __future__ import annotations

import pytest
from tests.distributed.programs import llama_programs
from tests.distributed.ranks import Ranks

PYTORCH = [4.299956321716309, 4.365520000457764, 4.222926616668701, 4.320518493652344, 4.288811206817627]


@pytest.mark.distributed
@pytest.mark.parametrize("how", ["fsdp2", "fsdp1"])  # the second one PyTorch refuses on CPUs
def test_tensor_parallel_within_fsdp_gives_pytorchs_losses(four: Ranks, how: str) -> None:
    for found in four.run(llama_programs.losses, how, timeout=120):
        assert found == pytest.approx(PYTORCH, rel=1e-5)

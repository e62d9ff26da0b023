"""torchtitan's trainer between CPUs: `python titan_on_cpus.py OPTIONS`, started by `torchrun`.

torchtitan asks which accelerator there is, and takes CUDA where there is none.  Here the answer is the CPU, with the questions that its
report of memory asks answered by nothing; the package itself is as it was installed.
"""

from __future__ import annotations

from types import SimpleNamespace

import torch
import torch._utils

_NAMES = (
    "Event",
    "Stream",
    "current_device",
    "current_stream",
    "device_count",
    "is_available",
    "set_device",
    "stream",
    "synchronize",
)
device = SimpleNamespace(
    **{name: getattr(torch.cpu, name) for name in _NAMES},
    get_device_name=lambda device=None: "CPU",
    get_device_properties=lambda device=None: SimpleNamespace(total_memory=1 << 34),
    reset_peak_memory_stats=lambda: None,
    empty_cache=lambda: None,
    memory_stats=lambda device=None: {},
)  # fmt: skip
torch._utils._get_available_device_type = lambda: "cpu"
torch._utils._get_device_module = lambda device_type: device

if __name__ == "__main__":
    import torchtitan.train as train

    train.main(train.Trainer)

"""`torch.distributed.elastic.agent.server`: the agent of one machine as an object, to be run or derived from.

`torchrun` and `elastic_launch` have an agent of their own; these classes are for programs that build theirs.
"""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = [
    "ElasticAgent",
    "LocalElasticAgent",
    "RunResult",
    "SimpleElasticAgent",
    "Worker",
    "WorkerGroup",
    "WorkerSpec",
    "WorkerState",
]

_HOMES = dict.fromkeys((*__all__,), "api") | {
    "LocalElasticAgent": "local_elastic_agent",
    "TORCHELASTIC_ENABLE_FILE_TIMER": "local_elastic_agent",
    "TORCHELASTIC_TIMER_FILE": "local_elastic_agent",
}
__getattr__ = lazy_files(__name__, _HOMES, ("api", "health_check_server", "local_elastic_agent"))

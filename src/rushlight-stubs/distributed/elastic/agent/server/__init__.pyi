"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.distributed.elastic.agent.server.api import ElasticAgent as ElasticAgent
from rushlight.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent as LocalElasticAgent
from rushlight.distributed.elastic.agent.server.api import RunResult as RunResult
from rushlight.distributed.elastic.agent.server.api import SimpleElasticAgent as SimpleElasticAgent
from rushlight.distributed.elastic.agent.server.api import Worker as Worker
from rushlight.distributed.elastic.agent.server.api import WorkerGroup as WorkerGroup
from rushlight.distributed.elastic.agent.server.api import WorkerSpec as WorkerSpec
from rushlight.distributed.elastic.agent.server.api import WorkerState as WorkerState
from rushlight.distributed.elastic.agent.server import api as api
from rushlight.distributed.elastic.agent.server import health_check_server as health_check_server
from rushlight.distributed.elastic.agent.server import local_elastic_agent as local_elastic_agent

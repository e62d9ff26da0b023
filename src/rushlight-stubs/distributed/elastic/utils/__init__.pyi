"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.distributed.elastic.utils import api as api
from rushlight.distributed.elastic.utils import data as data
from rushlight.distributed.elastic.utils import distributed as distributed
from rushlight.distributed.elastic.utils.api import get_env_variable_or_raise as get_env_variable_or_raise
from rushlight.distributed.elastic.utils.api import get_socket_with_port as get_socket_with_port
from rushlight.distributed.elastic.utils import logging as logging
from rushlight.distributed.elastic.utils.api import macros as macros
from rushlight.distributed.elastic.utils import store as store

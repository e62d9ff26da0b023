"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.distributed.elastic.multiprocessing.logs import DefaultLogsSpecs as DefaultLogsSpecs
from rushlight.distributed.elastic.multiprocessing.logs import LogsDest as LogsDest
from rushlight.distributed.elastic.multiprocessing.logs import LogsSpecs as LogsSpecs
from rushlight.distributed.elastic.multiprocessing.api import MultiprocessContext as MultiprocessContext
from rushlight.distributed.elastic.multiprocessing.api import PContext as PContext
from rushlight._distributed.launch.failures import ProcessFailure as ProcessFailure
from rushlight.distributed.elastic.multiprocessing.api import RunProcsResult as RunProcsResult
from rushlight._distributed.launch.agent import SignalException as SignalException
from rushlight.distributed.elastic.multiprocessing.streams import Std as Std
from rushlight.distributed.elastic.multiprocessing.api import SubprocessContext as SubprocessContext
from rushlight.distributed.elastic.multiprocessing import api as api
from rushlight.distributed.elastic.multiprocessing import errors as errors
from rushlight.distributed.elastic.multiprocessing import logs as logs
from rushlight.distributed.elastic.multiprocessing import redirects as redirects
from rushlight.distributed.elastic.multiprocessing.api import start_processes as start_processes
from rushlight.distributed.elastic.multiprocessing import streams as streams
from rushlight.distributed.elastic.multiprocessing import tail_log as tail_log
from rushlight.distributed.elastic.multiprocessing.streams import to_map as to_map

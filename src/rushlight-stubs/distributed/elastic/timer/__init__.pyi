"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.distributed.elastic.timer.file_based_local_timer import FileTimerClient as FileTimerClient
from rushlight.distributed.elastic.timer.file_based_local_timer import FileTimerRequest as FileTimerRequest
from rushlight.distributed.elastic.timer.file_based_local_timer import FileTimerServer as FileTimerServer
from rushlight.distributed.elastic.timer.local_timer import LocalTimerClient as LocalTimerClient
from rushlight.distributed.elastic.timer.local_timer import LocalTimerServer as LocalTimerServer
from rushlight.distributed.elastic.timer.api import TimerClient as TimerClient
from rushlight.distributed.elastic.timer.api import TimerRequest as TimerRequest
from rushlight.distributed.elastic.timer.api import TimerServer as TimerServer
from rushlight.distributed.elastic.timer import api as api
from rushlight.distributed.elastic.timer.api import configure as configure
from rushlight.distributed.elastic.timer.api import expires as expires
from rushlight.distributed.elastic.timer import file_based_local_timer as file_based_local_timer
from rushlight.distributed.elastic.timer import local_timer as local_timer

"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool

from rushlight._engine.autograd.function import Function as Function
from rushlight.autograd.variable import Variable as Variable
from rushlight.autograd import anomaly_mode as anomaly_mode
from rushlight._engine.autograd.api import backward as backward
from rushlight._engine.autograd.anomaly import detect_anomaly as detect_anomaly
from rushlight._engine.dispatch.modes import enable_grad as enable_grad
from rushlight.autograd.grad_mode import enforce_grad_layout_policy as enforce_grad_layout_policy
from rushlight.autograd import forward_ad as forward_ad
from rushlight.autograd import function as function
from rushlight.autograd import functional as functional
from rushlight._engine.autograd.api import grad as grad
from rushlight.autograd import grad_mode as grad_mode
from rushlight.autograd.gradcheck import gradcheck as gradcheck
from rushlight.autograd.gradcheck import gradgradcheck as gradgradcheck
from rushlight.autograd import graph as graph
from rushlight._engine.dispatch.modes import inference_mode as inference_mode
def is_multithreading_enabled() -> _bool: ...
def is_view_replay_enabled() -> _bool: ...
from rushlight._engine.dispatch.modes import no_grad as no_grad
from rushlight.autograd import profiler as profiler
from rushlight.autograd import profiler_legacy as profiler_legacy
from rushlight.autograd import profiler_util as profiler_util
from rushlight._engine.autograd.anomaly import set_detect_anomaly as set_detect_anomaly
from rushlight._engine.dispatch.modes import set_grad_enabled as set_grad_enabled
from rushlight.autograd.grad_mode import set_multithreading_enabled as set_multithreading_enabled
from rushlight.autograd import variable as variable

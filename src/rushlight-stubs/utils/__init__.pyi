"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.utils.throughput_benchmark import ThroughputBenchmark as ThroughputBenchmark
from rushlight.utils import benchmark as benchmark
from rushlight.utils import checkpoint as checkpoint
from rushlight.utils import collect_env as collect_env
from rushlight.utils import cpp_extension as cpp_extension
from rushlight.utils import custom_device as custom_device
from rushlight.utils import data as data
from rushlight.utils import deterministic as deterministic
from rushlight.utils import dlpack as dlpack
from rushlight.utils import file_baton as file_baton
from rushlight.utils import flop_counter as flop_counter
from rushlight.utils.custom_device import generate_methods_for_privateuse1_backend as generate_methods_for_privateuse1_backend
from rushlight.utils.custom_device import get_cpp_backtrace as get_cpp_backtrace
from rushlight.utils import hooks as hooks
from rushlight.utils import mobile_optimizer as mobile_optimizer
from rushlight.utils import model_zoo as model_zoo
from rushlight.utils import module_tracker as module_tracker
from rushlight.utils.custom_device import rename_privateuse1_backend as rename_privateuse1_backend
from rushlight.utils import serialization as serialization
from rushlight.utils.swapping import set_module as set_module
from rushlight.utils.swapping import swap_tensors as swap_tensors
from rushlight.utils import swapping as swapping
from rushlight.utils import throughput_benchmark as throughput_benchmark
from rushlight.utils import weak as weak

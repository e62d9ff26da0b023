"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool, int as _int, set as _set, str as _str

accumulated_recompile_limit: _int
allow_unspec_int_on_nn_module: _bool
assume_static_by_default: _bool
automatic_dynamic_shapes: _bool
cache_key_tag: _str
capture_dynamic_output_shape_ops: _bool
capture_scalar_outputs: _bool
dynamic_shapes: _bool
dynamic_sources: _str
dynamic_values: _str
enable_cpp_symbolic_shape_guards: _bool
fail_on_recompile_limit_hit: _bool
force_cudagraph_gc: _bool
force_disable_caches: _bool
from rushlight.compiler.settings import install as install
job_id: None
log_file_name: None
pgo_extra_read_key: None
pgo_extra_write_key: None
recompile_limit: _int
reorderable_logging_functions: _set
skip_tensor_guards_with_matching_dict_tags: _bool
unbacked_sources: _str
verbose: _bool
wrap_top_frame: _bool

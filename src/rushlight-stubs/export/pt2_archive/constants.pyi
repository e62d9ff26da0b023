"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import str as _str

ARCHIVE_FORMAT_PATH: _str
ARCHIVE_FORMAT_VALUE: _str
ARCHIVE_VERSION_PATH: _str
ARCHIVE_VERSION_VALUE: _str
CONSTANTS_CONFIG_FILENAME_FORMAT: _str
CONSTANTS_DIR: _str
EXTRA_DIR: _str
MODELS_DIR: _str
MODELS_FILENAME_FORMAT: _str
SAMPLE_INPUTS_DIR: _str
SAMPLE_INPUTS_FILENAME_FORMAT: _str
TENSOR_CONSTANT_FILENAME_PREFIX: _str
WEIGHTS_CONFIG_FILENAME_FORMAT: _str
WEIGHTS_DIR: _str
WEIGHT_FILENAME_PREFIX: _str

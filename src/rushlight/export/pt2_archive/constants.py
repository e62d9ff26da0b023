"""`torch.export.pt2_archive.constants`: the names of the records of an archive."""

from __future__ import annotations

__all__ = [
    "ARCHIVE_FORMAT_PATH", "ARCHIVE_FORMAT_VALUE", "ARCHIVE_VERSION_PATH", "ARCHIVE_VERSION_VALUE", "CONSTANTS_CONFIG_FILENAME_FORMAT",
    "CONSTANTS_DIR", "EXTRA_DIR", "MODELS_DIR", "MODELS_FILENAME_FORMAT", "SAMPLE_INPUTS_DIR", "SAMPLE_INPUTS_FILENAME_FORMAT",
    "TENSOR_CONSTANT_FILENAME_PREFIX", "WEIGHTS_CONFIG_FILENAME_FORMAT", "WEIGHTS_DIR", "WEIGHT_FILENAME_PREFIX",
]  # fmt: skip

ARCHIVE_FORMAT_PATH, ARCHIVE_FORMAT_VALUE = "archive_format", "pt2"
ARCHIVE_VERSION_PATH, ARCHIVE_VERSION_VALUE = "archive_version", "0"
MODELS_DIR, MODELS_FILENAME_FORMAT = "models/", "models/{}.json"
WEIGHTS_DIR, WEIGHT_FILENAME_PREFIX = "data/weights/", "weight_"
WEIGHTS_CONFIG_FILENAME_FORMAT = "data/weights/{}_weights_config.json"
CONSTANTS_DIR, TENSOR_CONSTANT_FILENAME_PREFIX = "data/constants/", "tensor_"
CONSTANTS_CONFIG_FILENAME_FORMAT = "data/constants/{}_constants_config.json"
SAMPLE_INPUTS_DIR, SAMPLE_INPUTS_FILENAME_FORMAT = "data/sample_inputs/", "data/sample_inputs/{}.pt"
EXTRA_DIR = "extra/"

"""Files for TensorBoard, as `torch.utils.tensorboard`; needs the extra `tensorboard` (ImportError without)."""

from __future__ import annotations

from rushlight._interface.base import require

require("tensorboard", "tensorboard")
from rushlight.utils.tensorboard.writer import FileWriter, SummaryWriter

RecordWriter = require("tensorboard.summary.writer.record_writer", "tensorboard").RecordWriter

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]

"""The operators of `ai.onnx.ml`: classical models and what prepares their features."""

from __future__ import annotations

from rushlight.onnx.importing.operators.ml import learning as learning
from rushlight.onnx.importing.operators.ml import trees as trees
from rushlight.onnx.importing.operators.ml import vectors as vectors

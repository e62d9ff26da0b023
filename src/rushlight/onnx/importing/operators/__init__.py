"""The operators of ONNX over rushlight's, by subject; importing this package fills the table."""

from __future__ import annotations

from rushlight.onnx.importing.operators import casting as casting
from rushlight.onnx.importing.operators import control as control
from rushlight.onnx.importing.operators import convolution as convolution
from rushlight.onnx.importing.operators import elementwise as elementwise
from rushlight.onnx.importing.operators import images as images
from rushlight.onnx.importing.operators import indexing as indexing
from rushlight.onnx.importing.operators import linear as linear
from rushlight.onnx.importing.operators import microsoft as microsoft
from rushlight.onnx.importing.operators import ml as ml
from rushlight.onnx.importing.operators import normalization as normalization
from rushlight.onnx.importing.operators import pooling as pooling
from rushlight.onnx.importing.operators import quantized as quantized
from rushlight.onnx.importing.operators import random as random
from rushlight.onnx.importing.operators import recurrent as recurrent
from rushlight.onnx.importing.operators import reductions as reductions
from rushlight.onnx.importing.operators import sequences as sequences
from rushlight.onnx.importing.operators import shapes as shapes
from rushlight.onnx.importing.operators import sizes as sizes
from rushlight.onnx.importing.operators import spectral as spectral
from rushlight.onnx.importing.operators import texts as texts
from rushlight.onnx.importing.operators import training as training

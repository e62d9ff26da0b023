"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.ao.nn.qat.modules import Conv1d as Conv1d
from rushlight.ao.nn.qat.modules import Conv2d as Conv2d
from rushlight.ao.nn.qat.modules import Conv3d as Conv3d
from rushlight.ao.nn.qat.modules import Embedding as Embedding
from rushlight.ao.nn.qat.modules import EmbeddingBag as EmbeddingBag
from rushlight.ao.nn.qat.modules import Linear as Linear
from rushlight.ao.nn.qat import dynamic as dynamic
from rushlight.ao.nn.qat import modules as modules

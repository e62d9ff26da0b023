"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""


from rushlight.serialization.gguf.reading import GGUFError as GGUFError
from rushlight.serialization.gguf.reading import GGUFFile as GGUFFile
from rushlight.serialization.gguf.packed import PackedEmbedding as PackedEmbedding
from rushlight.serialization.gguf.packed import PackedLinear as PackedLinear
from rushlight.serialization.gguf.packed import PackedWeight as PackedWeight
from rushlight.serialization.gguf.reading import TensorInfo as TensorInfo
from rushlight.serialization.gguf import block_types as block_types
from rushlight.serialization.gguf.reading import load_file as load_file
from rushlight.serialization.gguf.packed import load_packed as load_packed
from rushlight.serialization.gguf.reading import open_file as open_file
from rushlight.serialization.gguf import packed as packed
from rushlight.serialization.gguf import reading as reading
from rushlight.serialization.gguf.writing import save_file as save_file
from rushlight.serialization.gguf import writing as writing

"""The device type `cuda`: NVIDIA's GPUs through the CUDA driver, or through one that is emulated on the host.

Nothing here is loaded before a program asks for a GPU; see docs/cuda.md.
"""

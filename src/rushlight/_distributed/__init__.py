"""Many processes below tensors: stores, launching, engines and groups over raw buffers (address, count, dtype).

Public packages (`rushlight.distributed`) put tensors on top of it.
"""

"""The GPU that the emulated driver pretends: an H200, with as much memory as was asked for."""

from __future__ import annotations

from rushlight._backends.cuda.driver.attributes import DEVICE

__all__ = ["ATTRIBUTES", "NAME", "VERSION", "identity"]

NAME = "NVIDIA H200 (emulated)"
VERSION = 13000  # of CUDA


def identity(number: int) -> bytes:
    """The 16 bytes that tell a device of the machine from others."""
    return number.to_bytes(2, "big") + b"rushlight-gpu" + b"\0"


_KNOWN = {
    "max_threads_per_block": 1024, "max_block_dim_x": 1024, "max_block_dim_y": 1024, "max_block_dim_z": 64, "max_grid_dim_x": 2**31 - 1,
    "max_grid_dim_y": 65535, "max_grid_dim_z": 65535, "max_shared_memory_per_block": 49152, "total_constant_memory": 65536, "warp_size": 32,
    "max_registers_per_block": 65536, "clock_rate": 1980000, "multiprocessor_count": 132, "kernel_exec_timeout": 0, "integrated": 0,
    "can_map_host_memory": 1, "compute_mode": 0, "concurrent_kernels": 1, "ecc_enabled": 1, "pci_device_id": 0, "tcc_driver": 0,
    "memory_clock_rate": 3201000, "global_memory_bus_width": 6144, "l2_cache_size": 60 << 20, "max_threads_per_multiprocessor": 2048,
    "async_engine_count": 3, "unified_addressing": 1, "pci_domain_id": 0, "compute_capability_major": 9, "compute_capability_minor": 0,
    "stream_priorities_supported": 1, "max_shared_memory_per_multiprocessor": 233472, "max_registers_per_multiprocessor": 65536,
    "managed_memory": 0, "multi_gpu_board": 0, "cooperative_launch": 1, "max_shared_memory_per_block_optin": 232448,
    "max_blocks_per_multiprocessor": 32, "reserved_shared_memory_per_block": 1024, "memory_pools_supported": 1, "cluster_launch": 1,
}  # fmt: skip
ATTRIBUTES = {DEVICE[name]: value for name, value in _KNOWN.items()}

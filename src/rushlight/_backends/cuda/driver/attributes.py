"""Numbers of the CUDA driver API: attributes of devices, kernels, launches and addresses; flags and modes."""

from __future__ import annotations

__all__ = [
    "CAPTURE_GLOBAL", "CAPTURE_MODES", "DEVICE", "EVENT_BLOCKING", "EVENT_INTERPROCESS", "EVENT_WITHOUT_TIMING", "FUNCTION",
    "LAUNCH", "POINTER", "STREAM_NON_BLOCKING",
]  # fmt: skip

STREAM_NON_BLOCKING = 1
EVENT_BLOCKING, EVENT_WITHOUT_TIMING, EVENT_INTERPROCESS = 1, 2, 4
CAPTURE_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}
CAPTURE_GLOBAL = 0

# CU_DEVICE_ATTRIBUTE_...
DEVICE = {
    "max_threads_per_block": 1, "max_block_dim_x": 2, "max_block_dim_y": 3, "max_block_dim_z": 4, "max_grid_dim_x": 5, "max_grid_dim_y": 6,
    "max_grid_dim_z": 7, "max_shared_memory_per_block": 8, "total_constant_memory": 9, "warp_size": 10, "max_registers_per_block": 12,
    "clock_rate": 13, "multiprocessor_count": 16, "kernel_exec_timeout": 17, "integrated": 18, "can_map_host_memory": 19, "compute_mode": 20,
    "concurrent_kernels": 31, "ecc_enabled": 32, "pci_bus_id": 33, "pci_device_id": 34, "tcc_driver": 35, "memory_clock_rate": 36,
    "global_memory_bus_width": 37, "l2_cache_size": 38, "max_threads_per_multiprocessor": 39, "async_engine_count": 40, "unified_addressing": 41,
    "pci_domain_id": 50, "compute_capability_major": 75, "compute_capability_minor": 76, "stream_priorities_supported": 78,
    "max_shared_memory_per_multiprocessor": 81, "max_registers_per_multiprocessor": 82, "managed_memory": 83, "multi_gpu_board": 84,
    "cooperative_launch": 95, "max_shared_memory_per_block_optin": 97, "max_blocks_per_multiprocessor": 106,
    "reserved_shared_memory_per_block": 111, "memory_pools_supported": 115, "cluster_launch": 120,
}  # fmt: skip

# CU_FUNC_ATTRIBUTE_...
FUNCTION = {
    "max_threads_per_block": 0, "shared_bytes": 1, "constant_bytes": 2, "local_bytes": 3, "registers": 4, "ptx_version": 5, "binary_version": 6,
    "max_dynamic_shared_bytes": 8, "preferred_shared_carveout": 9, "non_portable_cluster_size": 14,
}  # fmt: skip

# CU_LAUNCH_ATTRIBUTE_...: cooperative takes an int, cluster three, priority an int
LAUNCH = {"cooperative": 2, "cluster": 4, "programmatic_serialization": 6, "priority": 8}

# CU_POINTER_ATTRIBUTE_...
POINTER = {"memory_type": 2, "device_ordinal": 9, "range_start": 11, "range_size": 12}

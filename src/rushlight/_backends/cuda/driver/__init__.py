"""The CUDA driver API: what is called (`api`), NVIDIA's library (`library`), and one that is emulated (`emulated`)."""

"""Memory of GPUs: a caching allocator over the driver, its statistics and settings, and pinned memory of the host."""

"""NVIDIA's libraries by ctypes, from their own wheels; nothing here is loaded on emulated devices."""

"""Process groups over raw buffers: operations in order, a thread that runs those nobody waits for, and who is late."""

"""Key-value stores by which processes find one another: of one process, in a file, over TCP, under a prefix."""

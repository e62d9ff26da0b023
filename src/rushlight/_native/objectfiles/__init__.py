"""Object code in ELF: read, loaded into the process, linked to a library."""

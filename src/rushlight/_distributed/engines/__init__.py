"""Engines: what moves bytes between processes.  `mpi` between CPUs; `single` for a group of one process."""

"""Engines: what moves bytes between processes.  `mpi` between CPUs; `nccl` between GPUs; `single` for a group of one process."""

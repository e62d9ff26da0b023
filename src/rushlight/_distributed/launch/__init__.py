"""Processes of one job: how they find one another, become ranks of an MPI world, and learn who of them failed."""

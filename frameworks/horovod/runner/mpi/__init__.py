"""Ranks that an MPI launcher or jsrun starts: horovodrun --mpi, --jsrun."""

#pragma once

#include <string>

namespace hvd::mpi_backend {

// Gives the `bytes` of rank 0 of MPI_COMM_WORLD to all its ranks, each of which calls it. Returns
// why that failed, as where not all have called it within so many seconds; empty: it did not.
std::string Broadcast(char* data, int bytes, double seconds);

}  // namespace hvd::mpi_backend

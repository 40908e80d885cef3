#pragma once

namespace hvd::mpi_backend {

// MPI_Init waits for all ranks and cannot be ended. With a limit (`seconds`, not negative) it runs
// on a thread of its own, which MPI then holds for the main one: it finalises MPI, too. False: the
// time is over, and that thread is left behind.
bool InitializeWithin(double seconds, int needed, int* level);

// By the thread that has initialised MPI.
void Finalize();

}  // namespace hvd::mpi_backend

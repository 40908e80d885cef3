#pragma once

#include <mpi.h>

#include <functional>

#include "backend/library/library.h"

namespace hvd::mpi_backend {

// Waits until MPI has done it, or `abandoned` says that nobody wants it any more. Throws.
void Run(MPI_Comm communicator, LibraryCall call, CombineFunction combine,
         const std::function<bool()>& abandoned);

}  // namespace hvd::mpi_backend

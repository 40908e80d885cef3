#pragma once

#include <mpi.h>

#include "backend/library/library.h"

namespace hvd::mpi_backend {

// MPI moves elements by their size and leaves the arithmetic to `combine`, so that results are
// those of our own kernels, in types too that MPI does not have.
MPI_Datatype TypeOf(DataType dtype);
// Throws.
MPI_Op OperationOf(DataType dtype, ReduceOp op, CombineFunction combine);

}  // namespace hvd::mpi_backend

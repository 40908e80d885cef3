#pragma once

#include <mpi.h>

#include <vector>

#include "backend/library/library.h"

namespace hvd::mpi_backend {

// Of this process, for every other member. Throws.
void WriteAddress(int members, LibrarySet::Addresses* mine);

// The communicator of the members with these addresses, of the process set `id`. Waits for all of
// them when it is the first one of these members in this process; it is kept, so that a set which
// is made again has it at once. Throws.
MPI_Comm CommunicatorOf(const LibrarySet::Addresses& addresses, uint32_t id);

}  // namespace hvd::mpi_backend

#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/library/library.h"

namespace hvd {

// Collectives on host memory that a library runs. Their tensors are copied into memory of the
// backend's and out of it, in rounds, with factors and divisor applied on the way. `host` serves
// the set too, and outlives it: the members exchange the library's addresses by it. `name` is the
// library's.
std::unique_ptr<Backend> MakeStagedBackend(std::unique_ptr<LibrarySet> library, const char* name,
                                           Backend* host, int rank, int size);

}  // namespace hvd

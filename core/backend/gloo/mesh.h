#pragma once

#include <gloo/context.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/library/library.h"

namespace hvd::gloo_backend {

// Gloo's connections among the members of a process set. Their addresses come from the backend
// above, so no store of Gloo's is needed.
class Mesh : public gloo::Context {
 public:
  Mesh(int rank, int size);

  // Opens a socket for each other member, whose addresses are put into *mine. Throws.
  void Listen(const std::string& address, int64_t timeout_us, LibrarySet::Addresses* mine);
  // Waits for every member, each no longer than the timeout. Throws.
  void Connect(const LibrarySet::Addresses& theirs);
  void Close();
};

}  // namespace hvd::gloo_backend

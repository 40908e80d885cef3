#pragma once

#include <mpi.h>

#include <string>

// MPI in this process. The program may use it too, and may have initialised it.

namespace hvd::mpi_backend {

// Throws std::runtime_error for an error of the MPI function `name`.
void Check(int code, const char* name);

// Initialises MPI unless that is done already; what was initialised here is finalised at the end of
// the process. `one_thread`: calls come from one thread at a time, which is the same one while a
// job runs. Returns why MPI cannot be used, empty: it can.
std::string Initialize(bool one_thread);
bool has_one_thread();

// A call was left behind in MPI, or has failed: MPI is used no more here, and not finalised, since
// that could wait for ever.
void GiveUp();
bool given_up();

// For as long as it lives a call may wait in MPI that nothing can end.
class Uninterruptible {
 public:
  Uninterruptible();
  ~Uninterruptible();
  Uninterruptible(const Uninterruptible&) = delete;
  Uninterruptible& operator=(const Uninterruptible&) = delete;
};

}  // namespace hvd::mpi_backend

#pragma once

#include <mpi.h>

#include <string>

// MPI in this process. The program may use it too, and may have initialised it.

namespace hvd::mpi_backend {

// Throws std::runtime_error for an error of the MPI function `name`.
void Check(int code, const char* name);

// Initialises MPI unless that is done already; what was initialised here is finalised at the end of
// the process. `one_thread`: calls come from one thread at a time, which is the same one while a
// job runs. `seconds`: how long it may wait for the other ranks; negative: without a limit. Returns
// why MPI cannot be used, empty: it can.
std::string Initialize(bool one_thread, double seconds);
bool has_one_thread();

// A call was left behind in MPI, or has failed, or a rank is lost or stuck: MPI is used no more
// here, and
// not finalised, since that could wait for ever. A process that has initialised MPI does not end
// with status 0 then: what has started it takes it for failed and ends the other ranks.
void GiveUp();
bool given_up();

// For as long as one lives, an error of MPI_COMM_WORLD is returned, and does not end the process as
// MPI would have it. The program's handler is back when the last one has gone.
class ErrorsReturned {
 public:
  ErrorsReturned();
  ~ErrorsReturned();
  ErrorsReturned(const ErrorsReturned&) = delete;
  ErrorsReturned& operator=(const ErrorsReturned&) = delete;
};

// For as long as it lives a call may wait in MPI that nothing can end.
class Uninterruptible {
 public:
  Uninterruptible();
  ~Uninterruptible();
  Uninterruptible(const Uninterruptible&) = delete;
  Uninterruptible& operator=(const Uninterruptible&) = delete;
};

}  // namespace hvd::mpi_backend

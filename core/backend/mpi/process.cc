#include "backend/mpi/process.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <sstream>
#include <stdexcept>

#include "backend/mpi/starter.h"

namespace hvd::mpi_backend {

namespace {

std::atomic<bool> gave_up{false};
std::atomic<bool> one_thread_only{false};
std::atomic<int> uninterruptible{0};
pid_t initialized_by = 0;

bool Finalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

// A forked child ends by the same functions as its parent, whose MPI it is.
void EndAtExit(int status, void* /*unused*/) {
  if (getpid() != initialized_by || Finalized()) return;
  if (!given_up() && uninterruptible.load() == 0) return Finalize();
  if (status != 0) return;
  (void)std::fputs(
      "horovod: a call of MPI was left behind, or a rank is lost or stuck: this process ends "
      "without "
      "MPI_Finalize, and with status 1, as mpirun takes that for a failure\n",
      stderr);
  (void)std::fflush(nullptr);
  _exit(1);
}

struct Handlers {
  std::mutex mutex;  // guards what follows
  int users = 0;
  MPI_Errhandler programs = MPI_ERRHANDLER_NULL;
};
Handlers handlers;

}  // namespace

void Check(int code, const char* name) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw std::runtime_error(std::string(name) + ": " + text.data());
}

std::string Initialize(bool one_thread, double seconds) {
  one_thread_only = one_thread;
  const int needed = one_thread ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
  if (Finalized()) return "MPI was finalized in this process, and cannot be used again";
  if (given_up()) {
    return "MPI was given up in this process, because a call of it failed, a rank was lost or "
           "stuck, "
           "or shutdown() came while a collective was under way; start the job again";
  }
  int initialized = 0;
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    MPI_Query_thread(&level);
  } else {
    if (!InitializeWithin(seconds, needed, &level)) {
      GiveUp();
      std::ostringstream why;
      why << "not all ranks have initialized MPI, as hvd.init() does, within " << seconds << " s";
      return why.str();
    }
    initialized_by = getpid();
    on_exit(EndAtExit, nullptr);
  }
  if (level >= needed) return "";
  return std::string("MPI does not allow calls from ") +
         (one_thread ? "another thread than the main one here (MPI_THREAD_SERIALIZED)"
                     : "several threads here (MPI_THREAD_MULTIPLE)") +
         ". If the program initializes MPI itself, let it ask for that";
}

void GiveUp() { gave_up = true; }
bool given_up() { return gave_up; }
bool has_one_thread() { return one_thread_only; }

ErrorsReturned::ErrorsReturned() {
  const std::lock_guard<std::mutex> lock(handlers.mutex);
  if (handlers.users++ > 0) return;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handlers.programs);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

ErrorsReturned::~ErrorsReturned() {
  const std::lock_guard<std::mutex> lock(handlers.mutex);
  if (--handlers.users > 0) return;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handlers.programs);
  MPI_Errhandler_free(&handlers.programs);
}

Uninterruptible::Uninterruptible() { ++uninterruptible; }
Uninterruptible::~Uninterruptible() { --uninterruptible; }

}  // namespace hvd::mpi_backend

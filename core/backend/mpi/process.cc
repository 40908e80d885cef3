#include "backend/mpi/process.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <stdexcept>

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
void FinalizeAtExit() {
  if (getpid() != initialized_by) return;
  if (!given_up() && uninterruptible.load() == 0 && !Finalized()) MPI_Finalize();
}

}  // namespace

void Check(int code, const char* name) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  throw std::runtime_error(std::string(name) + ": " + text.data());
}

std::string Initialize(bool one_thread) {
  one_thread_only = one_thread;
  const int needed = one_thread ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
  if (Finalized()) return "MPI was finalized in this process, and cannot be used again";
  int initialized = 0;
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    MPI_Query_thread(&level);
  } else {
    MPI_Init_thread(nullptr, nullptr, needed, &level);
    initialized_by = getpid();
    std::atexit(FinalizeAtExit);
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

Uninterruptible::Uninterruptible() { ++uninterruptible; }
Uninterruptible::~Uninterruptible() { --uninterruptible; }

}  // namespace hvd::mpi_backend

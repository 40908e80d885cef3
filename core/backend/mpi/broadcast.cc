#include "backend/mpi/broadcast.h"

#include <mpi.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "backend/mpi/process.h"

namespace hvd::mpi_backend {

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause(1);

// Whether all have come.
bool Await(MPI_Request* request, double seconds) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    int done = 0;
    Check(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return true;
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

std::string Broadcast(char* data, int bytes, double seconds) try {
  auto memory = std::make_unique<std::vector<char>>(data, data + bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  const ErrorsReturned returned;
  Check(MPI_Ibcast(memory->data(), bytes, MPI_CHAR, 0, MPI_COMM_WORLD, &request), "MPI_Ibcast");
  if (!Await(&request, seconds)) {
    GiveUp();
    (void)memory.release();  // MPI may still write there
    return "not all ranks of MPI_COMM_WORLD have called hvd.init";
  }
  std::memcpy(data, memory->data(), memory->size());
  return "";
} catch (const std::exception& error) {
  GiveUp();
  return error.what();
}

}  // namespace hvd::mpi_backend

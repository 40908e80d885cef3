#include "backend/mpi/starter.h"

#include <mpi.h>
#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace hvd::mpi_backend {

namespace {

// Shared with the thread, which may be left behind.
struct Starter {
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  int level = MPI_THREAD_SINGLE;
  bool initialized = false;
  bool ends = false;
  std::thread thread;  // of the one that starts it
};
std::shared_ptr<Starter> starter;  // null: MPI was initialised without a limit

void Run(Starter* own, int needed) {
  pthread_setname_np(pthread_self(), "hvd-mpi-start");
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, needed, &level);
  std::unique_lock<std::mutex> lock(own->mutex);
  own->level = level;
  own->initialized = true;
  own->changed.notify_all();
  own->changed.wait(lock, [own] { return own->ends; });
  lock.unlock();
  MPI_Finalize();
}

}  // namespace

bool InitializeWithin(double seconds, int needed, int* level) {
  if (seconds < 0) {
    MPI_Init_thread(nullptr, nullptr, needed, level);
    return true;
  }
  auto made = std::make_shared<Starter>();
  made->thread = std::thread([made, needed] { Run(made.get(), needed); });
  std::unique_lock<std::mutex> lock(made->mutex);
  const auto limit = std::chrono::duration<double>(seconds);
  if (!made->changed.wait_for(lock, limit, [&] { return made->initialized; })) {
    made->thread.detach();
    return false;
  }
  *level = made->level;
  starter = made;
  return true;
}

void Finalize() {
  if (starter == nullptr) {
    MPI_Finalize();
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(starter->mutex);
    starter->ends = true;
    starter->changed.notify_all();
  }
  starter->thread.join();
}

}  // namespace hvd::mpi_backend

#include <array>
#include <cctype>
#include <cstring>
#include <sstream>
#include <string>
#include <utility>

#include "backend/library/library.h"
#include "backend/library/worker.h"
#include "backend/mpi/broadcast.h"
#include "backend/mpi/calls.h"
#include "backend/mpi/communicator.h"
#include "backend/mpi/process.h"

namespace hvd::mpi_backend {

namespace {

class MpiSet : public LibrarySet {
 public:
  // `is_served`: false for a set that is left to our own backend.
  MpiSet(CombineFunction combine, uint32_t id, int size, bool is_served)
      : combine_(combine),
        id_(id),
        size_(size),
        is_served_(is_served),
        communicator_(std::make_shared<MPI_Comm>(MPI_COMM_NULL)),
        worker_("hvd-mpi", 0, [] {}) {}

  // Reducescatter and Adasum are our own: MPI's have no order that gives all ranks the same bits.
  bool Has(OpKind kind, ReduceOp op) const override {
    if (!is_served_) return false;
    if (kind == OpKind::kAllreduce) return op != ReduceOp::kAdasum;
    return kind == OpKind::kAllgather || kind == OpKind::kBroadcast || kind == OpKind::kAlltoall ||
           kind == OpKind::kBarrier;
  }

  void BeginToListen(const Waker& waker, std::shared_ptr<Addresses> mine) override {
    waker_ = &waker;
    BeginJob([size = size_, mine = std::move(mine)] { WriteAddress(size, mine.get()); });
  }
  void BeginToConnect(std::shared_ptr<const Addresses> theirs) override {
    BeginJob([communicator = communicator_, id = id_, theirs = std::move(theirs)] {
      *communicator = CommunicatorOf(*theirs, id);
    });
  }
  void Begin(LibraryCall call) override {
    BeginJob([communicator = communicator_, combine = combine_, abandoned = worker_.abandoned(),
              call = std::move(call)] { Run(*communicator, call, combine, abandoned); });
  }

  Step Look() override { return worker_.Look(); }
  Status status() const override { return worker_.status(); }
  void Abandon() noexcept override {
    // At once: the process may end before the thread notices.
    if (worker_.Look() == Step::kBlocked) GiveUp();
    worker_.Abandon();
  }

 private:
  void BeginJob(std::function<void()> job) { worker_.Begin(*waker_, std::move(job)); }

  const CombineFunction combine_;
  const uint32_t id_;
  const int size_;
  const bool is_served_;
  const std::shared_ptr<MPI_Comm> communicator_;  // of the worker alone
  const Waker* waker_ = nullptr;
  Worker worker_;
};

class Mpi : public Library {
 public:
  explicit Mpi(const LibraryOptions& options)
      : combine_(options.combine), job_size_(options.job_size) {}
  const char* name() const override { return "MPI"; }
  void LoseRank() noexcept override { GiveUp(); }
  std::unique_ptr<LibrarySet> MakeSet(uint32_t id, int /*rank*/, int size) override {
    // A set has a thread of its own.
    return std::make_unique<MpiSet>(combine_, id, size, !has_one_thread() || size == job_size_);
  }

 private:
  const CombineFunction combine_;
  const int job_size_;
};

// Of MPI's own words, as "Open MPI v4.1.4, package: ..." or "MPICH Version:\t4.0.2\n...", those
// before what says where and when it was built: "Open MPI 4.1.4", "MPICH 4.0.2".
std::string Version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  std::istringstream line(std::string(text.data(), std::strcspn(text.data(), ",\n")));
  std::string words;
  for (std::string word; line >> word;) {
    if (word == "Version:") continue;
    const bool is_number = word.size() > 1 && word[0] == 'v' && std::isdigit(word[1]) != 0;
    words += (words.empty() ? "" : " ") + (is_number ? word.substr(1) : word);
  }
  return words;
}

}  // namespace

}  // namespace hvd::mpi_backend

#define HVD_EXPORT extern "C" __attribute__((visibility("default")))

HVD_EXPORT const hvd::LibraryModule hvd_library_module = {
    HVD_LIBRARY_STAMP,
    [](const hvd::LibraryOptions& options) -> hvd::Library* {
      return new hvd::mpi_backend::Mpi(options);
    },
};

// For Python, which asks them without an engine.
HVD_EXPORT const char* hvd_library_version() {
  static const std::string version = hvd::mpi_backend::Version();
  return version.c_str();
}

// By the main thread. Why MPI cannot be used; null: it can. See Initialize.
HVD_EXPORT const char* hvd_library_initialize(int one_thread, double seconds) {
  static std::string why;
  why = hvd::mpi_backend::Initialize(one_thread != 0, seconds);
  return why.empty() ? nullptr : why.c_str();
}

// By the main thread, once it is initialized. See Broadcast; null: it went well.
HVD_EXPORT const char* hvd_library_broadcast(char* data, int bytes, double seconds) {
  static std::string why;
  why = hvd::mpi_backend::Broadcast(data, bytes, seconds);
  return why.empty() ? nullptr : why.c_str();
}

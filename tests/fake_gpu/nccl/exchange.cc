#include "nccl/exchange.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>

#include "nccl/abi.h"

namespace fake_gpu {

struct Exchange::Seat {
  alignas(64) std::atomic<uint64_t> arrived;  // rounds whose barrier the rank has come to
  std::atomic<uint32_t> taken;
  std::atomic<int32_t> device;
  Operation told[2];
};

struct Exchange::Header {
  std::atomic<int32_t> nranks;  // 0: nobody has attached
  std::atomic<int32_t> attached;
  Seat seats[kMaxRanks];
};

namespace {

// Files of this process that may still be there at its end.
struct Names {
  std::mutex mutex;  // guards names
  std::set<std::string> names;
  pid_t owner = getpid();
};

Names& TheNames() {
  static auto* names = new Names;
  return *names;
}

void RemoveAll() {
  if (getpid() != TheNames().owner) return;  // a child that was forked
  for (const std::string& name : TheNames().names) unlink(name.c_str());
}

void Remember(const std::string& name) {
  static const int registered = std::atexit(RemoveAll);
  static_cast<void>(registered);
  std::lock_guard<std::mutex> lock(TheNames().mutex);
  TheNames().names.insert(name);
}

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  const int fd_;
};

size_t WholePages(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

std::byte* Map(int fd, size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

std::string Errno(const std::string& what) { return what + ": " + std::strerror(errno); }

}  // namespace

void Pause(int times) {
  if (times < 64) {
    sched_yield();
  } else {
    usleep(times < 1000 ? 50 : 500);
  }
}

Exchange::~Exchange() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

std::string Exchange::Create() {
  const char* folder = std::getenv("TMPDIR");
  std::string name =
      std::string(folder == nullptr || *folder == 0 ? "/tmp" : folder) + "/fake-nccl-XXXXXX";
  const File file(mkostemp(name.data(), O_CLOEXEC));  // O_EXCL and 0600
  if (file.fd() < 0) return "";
  Remember(name);
  if (ftruncate(file.fd(), WholePages(sizeof(Header))) != 0) return "";
  return name;
}

void Exchange::Remove(const std::string& name) {
  unlink(name.c_str());
  std::lock_guard<std::mutex> lock(TheNames().mutex);
  TheNames().names.erase(name);
}

int Exchange::Attach(const std::string& name, int nranks, int rank, int device, std::string* why) {
  name_ = name;
  rank_ = rank;
  const File file(open(name.c_str(), O_RDWR | O_CLOEXEC));
  if (file.fd() < 0) {
    *why = Errno("cannot open " + name);
    return kSystem;
  }
  if (const int result = MapHeader(file.fd(), nranks, why)) return result;
  Seat& seat = header()->seats[rank];
  if (seat.taken.exchange(1) != 0) {
    *why = "two ranks of a communicator have the number " + std::to_string(rank);
    return kInvalidUsage;
  }
  seat.device.store(device);
  if (const int result = MapAll(file.fd(), why)) return result;
  header()->attached.fetch_add(1);
  return kSuccess;
}

// The ranks agree on their number first, because the size of the file follows from it.
int Exchange::MapHeader(int fd, int nranks, std::string* why) {
  bytes_ = WholePages(sizeof(Header));
  data_ = Map(fd, bytes_);
  if (data_ == nullptr) {
    *why = Errno("cannot map " + name_);
    return kSystem;
  }
  int expected = 0;
  if (!header()->nranks.compare_exchange_strong(expected, nranks) && expected != nranks) {
    *why = "a communicator has " + std::to_string(nranks) + " ranks here and " +
           std::to_string(expected) + " elsewhere";
    return kInvalidUsage;
  }
  nranks_ = nranks;
  return kSuccess;
}

int Exchange::MapAll(int fd, std::string* why) {
  munmap(data_, bytes_);
  const size_t boxes = static_cast<size_t>(nranks_) * nranks_ * sizeof(Mailbox);
  bytes_ = WholePages(sizeof(Header)) + 2 * kSlotBytes * nranks_ + boxes;
  data_ = ftruncate(fd, bytes_) == 0 ? Map(fd, bytes_) : nullptr;
  if (data_ != nullptr) return kSuccess;
  *why = Errno("cannot map " + name_);
  return kSystem;
}

Exchange::Header* Exchange::header() const { return reinterpret_cast<Header*>(data_); }

bool Exchange::AwaitAll(const Stopped& stopped) {
  for (int times = 0; header()->attached.load() < nranks_; ++times) {
    if (stopped()) return false;
    Pause(times);
  }
  Remove(name_);
  return true;
}

int Exchange::SameDevice() const {
  for (int rank = 0; rank < nranks_; ++rank) {
    const bool same = header()->seats[rank].device.load() == header()->seats[rank_].device.load();
    if (rank != rank_ && same) return rank;
  }
  return -1;
}

std::byte* Exchange::Slot(int rank) const {
  return data_ + WholePages(sizeof(Header)) + (2 * rank + round_ % 2) * kSlotBytes;
}

Operation* Exchange::Told(int rank) const { return &header()->seats[rank].told[round_ % 2]; }

bool Exchange::Barrier(const Stopped& stopped) {
  header()->seats[rank_].arrived.store(round_, std::memory_order_release);
  for (int rank = 0, times = 0; rank < nranks_; ++rank) {
    while (header()->seats[rank].arrived.load(std::memory_order_acquire) < round_) {
      if (stopped()) return false;
      Pause(times++);
    }
  }
  return true;
}

Mailbox* Exchange::Box(int from, int to) const {
  std::byte* boxes = data_ + WholePages(sizeof(Header)) + 2 * kSlotBytes * nranks_;
  return reinterpret_cast<Mailbox*>(boxes) + static_cast<size_t>(from) * nranks_ + to;
}

}  // namespace fake_gpu

#pragma once

// What the ranks of a communicator share: a file that each maps, whether they are threads or
// processes. A round of a collective: each rank fills its slot, all pass a barrier, each reads the
// slots of the others. Two slots a rank are used by turns, so one barrier a round is enough.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "nccl/operation.h"

namespace fake_gpu {

constexpr int kMaxRanks = 64;
constexpr size_t kSlotBytes = 256 << 10;
constexpr size_t kMessageBytes = 64 << 10;  // of a chunk of a send

// From one rank to another: one chunk at a time.
struct Mailbox {
  alignas(64) std::atomic<uint64_t> written;  // chunks, ever
  alignas(64) std::atomic<uint64_t> read;
  Operation message;  // as the sender called it
  uint64_t bytes;     // of this chunk
  std::byte data[kMessageBytes];
};

class Exchange {
 public:
  // Whether to give up waiting.
  using Stopped = std::function<bool()>;

  Exchange() = default;
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Makes the file; empty where that fails.
  static std::string Create();
  // Removes it, where somebody has not come and will not.
  static void Remove(const std::string& name);

  // A NcclResult; what is wrong in *why.
  int Attach(const std::string& name, int nranks, int rank, int device, std::string* why);
  // Until all ranks have attached; the last removes the file. False where stopped.
  bool AwaitAll(const Stopped& stopped);
  // Another rank of this host that has the same device, or -1.
  int SameDevice() const;

  std::byte* Slot(int rank) const;  // of this round
  Operation* Told(int rank) const;  // what the rank carries out in this round
  bool Barrier(const Stopped& stopped);
  void NextRound() { ++round_; }

  Mailbox* Box(int from, int to) const;

 private:
  struct Seat;
  struct Header;

  int MapHeader(int fd, int nranks, std::string* why);
  int MapAll(int fd, std::string* why);
  Header* header() const;

  std::string name_;
  int nranks_ = 0;
  int rank_ = 0;
  uint64_t round_ = 1;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Waits a little, longer the more often it was called for one wait.
void Pause(int times);

}  // namespace fake_gpu

#pragma once

// Device memory: host memory of which the fake knows where it begins, how long it is, and whether a
// stream may use it yet, or no more.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/stream.h"

namespace fake_gpu {

enum class Origin { kCuda, kNccl };

// All but the constants is guarded by the lock in memory.cc.
struct Block {
  Block(int number, size_t bytes, int device, Origin origin);
  ~Block();
  std::string Name() const { return "m" + std::to_string(number); }

  const int number;
  const size_t bytes;
  const int device;
  const Origin origin;
  std::byte* const base;
  bool reached = false;          // by the stream that allocates it
  bool closed = false;           // the program has called free
  bool freed = false;            // the stream has come to that call
  int users = 0;                 // pieces of work that run on it
  int writer = 0;                // key of the stream that wrote to it last
  uint64_t written = 0;          // its piece of work; 0: none
  std::map<int, uint64_t> read;  // by stream, since it was written to
  int registrations = 0;         // with communicators
};
using BlockPtr = std::shared_ptr<Block>;

// Null where FAKE_CUDA_NO_MEMORY_AT says so. Memory of a stream is `reached` only later.
BlockPtr Allocate(size_t bytes, int device, Origin origin, bool reached);
void Reach(const BlockPtr& block, const Stream& stream);

// The block that holds the whole range on `device`, for a call made now; null with the reason. Work
// called for after a free can never run before it, so a block that is closed is none.
BlockPtr FindBlock(uint64_t address, size_t bytes, int device, std::string* why);

// A call to free: closes the block that begins there; null with the reason.
BlockPtr CloseBlock(uint64_t address, int device, Origin origin, std::string* why);
// The free takes effect; false with the reason where work runs on the memory.
bool Release(const BlockPtr& block, std::string* why);

bool Register(const BlockPtr& block, int change);

// Whether work runs on it.
bool IsInUse(const BlockPtr& block);

// "m3+128", or the bare address where it is no device memory.
std::string NameOf(uint64_t address);

// Memory in use by a piece of work that `stream` runs. It must come after whatever has written to
// what it reads, and after whatever has read or written what it writes: by the order of its stream,
// or by an event that the stream has waited for.
class Use {
 public:
  Use(const Stream& stream, std::vector<BlockPtr> read, std::vector<BlockPtr> written);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  // Empty, or why the work must not touch the memory now.
  const std::string& why() const { return why_; }

 private:
  void Begin(const Stream& stream, const BlockPtr& block, bool writes);

  std::vector<BlockPtr> blocks_;
  std::string why_;
};

}  // namespace fake_gpu

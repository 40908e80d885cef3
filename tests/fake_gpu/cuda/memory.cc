#include "cuda/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <sstream>
#include <utility>

#include "cuda/record.h"
#include "cuda/settings.h"

namespace fake_gpu {
namespace {

constexpr size_t kAlignment = 512;
constexpr size_t kPoisonBytes = size_t{1} << 20;  // of a block's begin: enough to show a misuse
constexpr size_t kKeptBlocks = 32;                // freed ones, whose addresses nothing else gets

struct Memory {
  std::mutex mutex;  // guards all below, and the members of every block
  int last = 0;
  std::map<uint64_t, BlockPtr> blocks;  // by the address they begin at, also those closed
  std::deque<BlockPtr> kept;
};

Memory& TheMemory() {
  static auto* memory = new Memory;
  return *memory;
}

uint64_t AddressOf(const Block& block) { return reinterpret_cast<uint64_t>(block.base); }

std::byte* HostMemory(size_t bytes) {
  const size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return static_cast<std::byte*>(std::aligned_alloc(kAlignment, whole));
}

void Poison(const Block& block, int value) {
  std::memset(block.base, value, std::min(block.bytes, kPoisonBytes));
}

std::string Hex(uint64_t address) {
  std::ostringstream text;
  text << "0x" << std::hex << address;
  return text.str();
}

// The block that the address lies in, or null. The lock is held.
BlockPtr At(uint64_t address) {
  auto next = TheMemory().blocks.upper_bound(address);
  if (next == TheMemory().blocks.begin()) return nullptr;
  const BlockPtr& block = std::prev(next)->second;
  return address - AddressOf(*block) < block->bytes ? block : nullptr;
}

}  // namespace

Block::Block(int number, size_t bytes, int device, Origin origin)
    : number(number), bytes(bytes), device(device), origin(origin), base(HostMemory(bytes)) {
  Poison(*this, 0xcd);
}

Block::~Block() { std::free(base); }

BlockPtr Allocate(size_t bytes, int device, Origin origin, bool reached) {
  if (bytes >= TheSettings().no_memory_at) return nullptr;
  Memory& memory = TheMemory();
  std::lock_guard<std::mutex> lock(memory.mutex);
  auto block = std::make_shared<Block>(++memory.last, bytes, device, origin);
  block->reached = reached;
  memory.blocks[AddressOf(*block)] = block;
  Own("memory", block->Name());
  return block;
}

void Reach(const BlockPtr& block, const Stream& stream) {
  std::lock_guard<std::mutex> lock(TheMemory().mutex);
  block->writer = stream.key();
  block->written = stream.order().Of(stream.key());
  block->reached = true;
}

BlockPtr FindBlock(uint64_t address, size_t bytes, int device, std::string* why) {
  std::lock_guard<std::mutex> lock(TheMemory().mutex);
  BlockPtr block = At(address);
  if (block == nullptr) {
    *why = Hex(address) + " is not device memory";
  } else if (block->closed) {
    *why = block->Name() + " was freed before this call";
  } else if (address - AddressOf(*block) + bytes > block->bytes) {
    *why = std::to_string(bytes) + " bytes at " + std::to_string(address - AddressOf(*block)) +
           " do not fit into the " + std::to_string(block->bytes) + " bytes of " + block->Name();
  } else if (block->device != device) {
    *why = block->Name() + " is memory of device " + std::to_string(block->device) +
           ", the call is for device " + std::to_string(device);
  }
  return why->empty() ? block : nullptr;
}

BlockPtr CloseBlock(uint64_t address, int device, Origin origin, std::string* why) {
  std::lock_guard<std::mutex> lock(TheMemory().mutex);
  const BlockPtr block = At(address);
  if (block == nullptr || AddressOf(*block) != address) {
    *why = Hex(address) + " is not the begin of device memory";
  } else if (block->closed) {
    *why = block->Name() + " is freed twice";
  } else if (block->device != device) {
    *why = block->Name() + " is memory of device " + std::to_string(block->device) +
           ", and is freed on device " + std::to_string(device);
  } else if (block->origin != origin) {
    *why = block->Name() + " is freed by another library than allocated it";
  } else if (block->registrations > 0) {
    *why = block->Name() + " is freed while it is registered with a communicator";
  }
  if (!why->empty()) return nullptr;
  block->closed = true;
  Disown("memory", block->Name());
  return block;
}

bool Release(const BlockPtr& block, std::string* why) {
  Memory& memory = TheMemory();
  std::lock_guard<std::mutex> lock(memory.mutex);
  if (block->users > 0) {
    *why = block->Name() + " is freed while a stream uses it";
    return false;
  }
  block->freed = true;
  Poison(*block, 0xdd);
  memory.kept.push_back(block);
  if (memory.kept.size() > kKeptBlocks) {
    memory.blocks.erase(AddressOf(*memory.kept.front()));
    memory.kept.pop_front();
  }
  return true;
}

bool Register(const BlockPtr& block, int change) {
  std::lock_guard<std::mutex> lock(TheMemory().mutex);
  block->registrations += change;
  return !block->closed;
}

bool IsInUse(const BlockPtr& block) {
  std::lock_guard<std::mutex> lock(TheMemory().mutex);
  return block->users > 0;
}

std::string NameOf(uint64_t address) {
  std::lock_guard<std::mutex> lock(TheMemory().mutex);
  const BlockPtr block = At(address);
  if (block == nullptr) return Hex(address);
  const uint64_t offset = address - AddressOf(*block);
  return offset == 0 ? block->Name() : block->Name() + "+" + std::to_string(offset);
}

Use::Use(const Stream& stream, std::vector<BlockPtr> read, std::vector<BlockPtr> written) {
  std::lock_guard<std::mutex> lock(TheMemory().mutex);
  for (const BlockPtr& block : read) Begin(stream, block, false);
  for (const BlockPtr& block : written) Begin(stream, block, true);
}

void Use::Begin(const Stream& stream, const BlockPtr& block, bool writes) {
  blocks_.push_back(block);
  ++block->users;
  if (!block->reached) why_ = block->Name() + " is used before its stream has allocated it";
  if (block->freed) why_ = block->Name() + " is used after its stream has freed it";
  if (!why_.empty()) return;
  const auto follows = [&](int key, uint64_t piece, const char* what) {
    if (stream.order().Has(key, piece) || IsGone(key)) return;
    why_ = block->Name() + (writes ? " is written to" : " is read") + " on stream " +
           stream.Name() + ", which has not waited for stream " +
           (key < 0 ? "default" : std::to_string(key)) + ", which " + what + " it";
  };
  if (block->written > 0) follows(block->writer, block->written, "wrote to");
  const uint64_t now = stream.order().Of(stream.key());
  if (!writes) {
    if (why_.empty()) block->read[stream.key()] = now;
    return;
  }
  for (const auto& [key, piece] : block->read) follows(key, piece, "read");
  if (!why_.empty()) return;
  block->read.clear();
  block->writer = stream.key();
  block->written = now;
}

Use::~Use() {
  std::lock_guard<std::mutex> lock(TheMemory().mutex);
  for (const BlockPtr& block : blocks_) --block->users;
}

}  // namespace fake_gpu

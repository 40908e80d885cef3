// The driver's functions for memory. Copies from and to the host are asynchronous, as with
// page-locked memory: what a program must not touch before the stream has done the copy.

#include <cstring>
#include <string>

#include "cuda/abi.h"
#include "cuda/context.h"
#include "cuda/memory.h"
#include "cuda/record.h"
#include "cuda/stream.h"

namespace fake_gpu {
namespace {

// Of work that a stream runs, long after its call.
void FailLater(int device, const std::string& message) {
  Break(device, Fail(kCudaIllegalAddress, message));
}

CudaAddress AddressOf(const BlockPtr& block) { return reinterpret_cast<CudaAddress>(block->base); }

// The blocks of a call, found one by one; remembers the first that is wrong.
class Ranges {
 public:
  Ranges(std::string call, int device) : call_(std::move(call)), device_(device) {}

  // No device reaches the memory of another.
  void Reads(CudaAddress address, size_t bytes) { Add(address, bytes, device_, &read_); }
  void Writes(CudaAddress address, size_t bytes) { Add(address, bytes, device_, &written_); }
  void Reads(CudaAddress address, size_t bytes, int device) { Add(address, bytes, device, &read_); }
  void Writes(CudaAddress address, size_t bytes, int device) {
    Add(address, bytes, device, &written_);
  }

  // Queues `work`, which may touch the ranges.
  template <typename Work>
  int Enqueue(const StreamPtr& stream, Work work) {
    if (!why_.empty()) return Fail(kCudaInvalidValue, call_ + ": " + why_);
    stream->Enqueue([work, on = stream.get(), read = read_, written = written_, call = call_,
                     device = device_] {
      const Use use(*on, read, written);
      if (!use.why().empty()) return FailLater(device, call + ": " + use.why());
      work();
    });
    return kCudaOk;
  }

 private:
  void Add(CudaAddress address, size_t bytes, int device, std::vector<BlockPtr>* blocks) {
    if (bytes == 0 || !why_.empty()) return;
    if (BlockPtr block = FindBlock(address, bytes, device, &why_)) blocks->push_back(block);
  }

  const std::string call_;
  const int device_;
  std::vector<BlockPtr> read_;
  std::vector<BlockPtr> written_;
  std::string why_;
};

void Free(const BlockPtr& block) {
  std::string why;
  if (!Release(block, &why)) FailLater(block->device, why);
}

}  // namespace
}  // namespace fake_gpu

using namespace fake_gpu;

int cuMemAlloc_v2(CudaAddress* address, size_t bytes) {
  int device;
  if (const int result = NeedDevice(&device)) return result;
  if (bytes == 0) return kCudaInvalidValue;
  const BlockPtr block = Allocate(bytes, device, Origin::kCuda, true);
  Record("cuMemAlloc", "memory", block ? block->Name() : "none", "bytes", bytes, "device", device);
  if (block == nullptr) return kCudaOutOfMemory;
  *address = AddressOf(block);
  return kCudaOk;
}

int cuMemFree_v2(CudaAddress address) {
  int device;
  if (const int result = NeedDevice(&device)) return result;
  Record("cuMemFree", "memory", NameOf(address));
  std::string why;
  const BlockPtr block = CloseBlock(address, device, Origin::kCuda, &why);
  if (block == nullptr) return Fail(kCudaInvalidValue, "cuMemFree: " + why);
  WaitForDevice(device);
  Free(block);
  return kCudaOk;
}

int cuMemAllocAsync(CudaAddress* address, size_t bytes, void* handle) {
  int result;
  const StreamPtr stream = StreamForWork("cuMemAllocAsync", handle, &result);
  if (stream == nullptr) return result;
  if (bytes == 0) return kCudaInvalidValue;
  const BlockPtr block = Allocate(bytes, stream->device(), Origin::kCuda, false);
  Record("cuMemAllocAsync", "memory", block ? block->Name() : "none", "bytes", bytes, "stream",
         stream->Name());
  if (block == nullptr) return kCudaOutOfMemory;
  *address = AddressOf(block);
  stream->Enqueue([block, on = stream.get()] { Reach(block, *on); });
  return kCudaOk;
}

int cuMemFreeAsync(CudaAddress address, void* handle) {
  int result;
  const StreamPtr stream = StreamForWork("cuMemFreeAsync", handle, &result);
  if (stream == nullptr) return result;
  Record("cuMemFreeAsync", "memory", NameOf(address), "stream", stream->Name());
  std::string why;
  const BlockPtr block = CloseBlock(address, stream->device(), Origin::kCuda, &why);
  if (block == nullptr) return Fail(kCudaInvalidValue, "cuMemFreeAsync: " + why);
  stream->Enqueue([block, on = stream.get()] {
    {
      const Use use(*on, {}, {block});  // the next one that gets the memory writes to it
      if (!use.why().empty()) return FailLater(block->device, "cuMemFreeAsync: " + use.why());
    }
    Free(block);
  });
  return kCudaOk;
}

int cuMemcpyDtoDAsync_v2(CudaAddress to, CudaAddress from, size_t bytes, void* handle) {
  int result;
  const StreamPtr stream = StreamForWork("cuMemcpyDtoDAsync", handle, &result);
  if (stream == nullptr) return result;
  Record("cuMemcpyDtoDAsync", "to", NameOf(to), "from", NameOf(from), "bytes", bytes, "stream",
         stream->Name());
  Ranges ranges("cuMemcpyDtoDAsync", stream->device());
  ranges.Writes(to, bytes);
  ranges.Reads(from, bytes);
  return ranges.Enqueue(stream, [=] {
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
}

int cuMemcpyPeerAsync(CudaAddress to, void* to_context, CudaAddress from, void* from_context,
                      size_t bytes, void* handle) {
  int result;
  const StreamPtr stream = StreamForWork("cuMemcpyPeerAsync", handle, &result);
  if (stream == nullptr) return result;
  const int to_device = DeviceOf(to_context);
  const int from_device = DeviceOf(from_context);
  Record("cuMemcpyPeerAsync", "to", NameOf(to), "device", to_device, "from", NameOf(from), "device",
         from_device, "bytes", bytes, "stream", stream->Name());
  if (to_device < 0 || from_device < 0) {
    return Fail(kCudaInvalidContext, "cuMemcpyPeerAsync with what is no context");
  }
  Ranges ranges("cuMemcpyPeerAsync", stream->device());
  ranges.Writes(to, bytes, to_device);
  ranges.Reads(from, bytes, from_device);
  return ranges.Enqueue(stream, [=] {
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  });
}

int cuMemcpyHtoDAsync_v2(CudaAddress to, const void* from, size_t bytes, void* handle) {
  int result;
  const StreamPtr stream = StreamForWork("cuMemcpyHtoDAsync", handle, &result);
  if (stream == nullptr) return result;
  Record("cuMemcpyHtoDAsync", "to", NameOf(to), "bytes", bytes, "stream", stream->Name());
  Ranges ranges("cuMemcpyHtoDAsync", stream->device());
  ranges.Writes(to, bytes);
  return ranges.Enqueue(stream, [=] { std::memmove(reinterpret_cast<void*>(to), from, bytes); });
}

int cuMemcpyDtoHAsync_v2(void* to, CudaAddress from, size_t bytes, void* handle) {
  int result;
  const StreamPtr stream = StreamForWork("cuMemcpyDtoHAsync", handle, &result);
  if (stream == nullptr) return result;
  Record("cuMemcpyDtoHAsync", "from", NameOf(from), "bytes", bytes, "stream", stream->Name());
  Ranges ranges("cuMemcpyDtoHAsync", stream->device());
  ranges.Reads(from, bytes);
  return ranges.Enqueue(stream,
                        [=] { std::memmove(to, reinterpret_cast<const void*>(from), bytes); });
}

int cuMemsetD8Async(CudaAddress to, unsigned char value, size_t bytes, void* handle) {
  int result;
  const StreamPtr stream = StreamForWork("cuMemsetD8Async", handle, &result);
  if (stream == nullptr) return result;
  Record("cuMemsetD8Async", "to", NameOf(to), "value", static_cast<int>(value), "bytes", bytes,
         "stream", stream->Name());
  Ranges ranges("cuMemsetD8Async", stream->device());
  ranges.Writes(to, bytes);
  return ranges.Enqueue(stream, [=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
}

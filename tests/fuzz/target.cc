#include "target.h"

#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

thread_local size_t live = 0;
thread_local size_t peak = 0;

void* Counted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  live += malloc_usable_size(memory);
  peak = std::max(peak, live);
  return memory;
}

void* Allocate(size_t bytes) {
  if (bytes > hvd::fuzz::kLargestBlock) throw std::bad_alloc();
  return Counted(std::malloc(std::max<size_t>(bytes, 1)));
}

void* AllocateOrNull(size_t bytes) noexcept {
  try {
    return Allocate(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* Allocate(size_t bytes, std::align_val_t alignment) {
  if (bytes > hvd::fuzz::kLargestBlock) throw std::bad_alloc();
  const auto unit = static_cast<size_t>(alignment);
  return Counted(std::aligned_alloc(unit, (bytes / unit + 1) * unit));
}

void Free(void* memory) {
  if (memory == nullptr) return;
  live -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes); }
void* operator new[](size_t bytes) { return Allocate(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return AllocateOrNull(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return AllocateOrNull(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) { return Allocate(bytes, alignment); }
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, alignment);
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

namespace hvd::fuzz {

void Fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: the input shows that this does not hold: %s\n", file, line,
               what.c_str());
  std::abort();
}

size_t Memory::Live() { return live; }
size_t Memory::Peak() { return peak; }
void Memory::Restart() { peak = live; }

uint8_t Input::Byte() {
  if (rest_.empty()) return 0;
  const auto byte = static_cast<uint8_t>(rest_[0]);
  rest_.remove_prefix(1);
  return byte;
}

uint64_t Input::Number() {
  constexpr uint64_t kOne = 1;
  constexpr uint64_t kEnds[] = {
      ~uint64_t{0},     ~uint64_t{0} - 1, kOne << 63,       (kOne << 63) - 1,
      (kOne << 63) + 1, kOne << 62,       kOne << 60,       (kOne << 48) + 1,
      kOne << 48,       kOne << 32,       (kOne << 32) - 1, kOne << 31,
      (kOne << 31) - 1, kOne << 20,       kOne << 16,       (kOne << 16) - 1};
  const uint8_t first = Byte();
  if (first < 0xE0) return first;
  if (first < 0xF0) return kEnds[first & 0xF];
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value = value << 8 | Byte();
  return value;
}

std::string_view Input::Text(size_t most) {
  const size_t wanted = Byte() | (most > 0xFF ? size_t{Byte()} << 8 : 0);
  const std::string_view text = rest_.substr(0, std::min(wanted % (most + 1), rest_.size()));
  rest_.remove_prefix(text.size());
  return text;
}

std::string_view Input::Rest() {
  const std::string_view rest = rest_;
  rest_ = {};
  return rest;
}

}  // namespace hvd::fuzz

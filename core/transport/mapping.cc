#include "transport/mapping.h"

#include <sys/mman.h>

#include <string>

namespace hvd {

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Status Mapping::Anonymous(size_t bytes, Mapping* out) {
  return Map(MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, bytes, out);
}

Status Mapping::Shared(int fd, size_t bytes, Mapping* out) { return Map(MAP_SHARED, fd, bytes, out); }

// Reads, because for a read the kernel brings in what lies around it too, writable where the mapping is.
void Mapping::Touch() const {
  for (size_t at = 0; at < bytes_; at += kPageBytes) {
    [[maybe_unused]] const std::byte byte = static_cast<const volatile std::byte*>(data_)[at];
  }
}

Status Mapping::Map(int flags, int fd, size_t bytes, Mapping* out) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (data == MAP_FAILED) return Status::Errno("cannot map " + std::to_string(bytes) + " bytes");
  Mapping mapping;
  mapping.data_ = static_cast<std::byte*>(data);
  mapping.bytes_ = bytes;
  *out = std::move(mapping);
  return Status::Ok();
}

}  // namespace hvd

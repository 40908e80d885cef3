#include "backend/gloo/mesh.h"

#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <cstring>
#include <stdexcept>

namespace hvd::gloo_backend {

namespace {

// An address is its length, in one byte, and its bytes.
constexpr size_t kLongest = LibrarySet::kAddressBytes - 1;

void Write(const std::vector<char>& address, std::byte* to) {
  if (address.size() > kLongest) throw std::length_error("Gloo's address is too long");
  to[0] = static_cast<std::byte>(address.size());
  std::memcpy(to + 1, address.data(), address.size());
}

std::vector<char> Read(const std::byte* from) {
  const auto* const text = reinterpret_cast<const char*>(from + 1);
  return {text, text + std::to_integer<size_t>(from[0])};
}

}  // namespace

Mesh::Mesh(int rank, int size) : gloo::Context(rank, size) {}

void Mesh::Listen(const std::string& address, int64_t timeout_us, LibrarySet::Addresses* mine) {
  setTimeout(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::microseconds(timeout_us)));
  device_ = gloo::transport::tcp::CreateDevice(gloo::transport::tcp::attr(address.c_str()));
  transportContext_ = device_->createContext(rank, size);
  transportContext_->setTimeout(getTimeout());
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const auto& pair = transportContext_->createPair(peer);
    Write(pair->address().bytes(),
          mine->data() + static_cast<size_t>(peer) * LibrarySet::kAddressBytes);
  }
}

void Mesh::Connect(const LibrarySet::Addresses& theirs) {
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const size_t at = static_cast<size_t>(peer) * LibrarySet::kAddressBytes;
    transportContext_->getPair(peer)->connect(Read(theirs.data() + at));
  }
}

void Mesh::Close() {
  if (transportContext_ != nullptr) closeConnections();
}

}  // namespace hvd::gloo_backend

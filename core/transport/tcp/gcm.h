#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/link.h"
#include "base/status.h"

namespace hvd::tcp {

// AES-256-GCM by libcrypto of OpenSSL, one way of one link. Messages are numbered, and the number
// is the nonce: a key belongs to one way of one connection, so no nonce is used twice with it.
class Gcm {
 public:
  enum class Way { kSeal, kOpen };

  // kUnavailable: this machine has no libcrypto that can be loaded.
  static Status Make(Way way, const Key& key, std::unique_ptr<Gcm>* out);
  Gcm(const Gcm&) = delete;
  Gcm& operator=(const Gcm&) = delete;
  ~Gcm();

  // Begins the next message. `header` travels as it is, and the seal covers it, too.
  void Begin(const void* header, size_t bytes);
  // Translates the next bytes of it; `out` may be `in`.
  void Add(const std::byte* in, size_t bytes, std::byte* out);
  // Ends it. False: libcrypto has refused something, and nothing of it may be used.
  bool Seal(std::byte* seal);         // of kSealBytes
  bool Opens(const std::byte* seal);  // and whether it is the seal of what was translated

 private:
  struct Library;
  static Status Load(const Library** out);
  Gcm(const Library& library, Way way, const Key& key);

  const Library& call_;
  void* const context_;
  uint64_t number_ = 0;
  bool sound_;
};

}  // namespace hvd::tcp

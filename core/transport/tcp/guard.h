#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/link.h"
#include "base/seal.h"

namespace hvd::tcp {

// How the frames of a transport are protected: control frames by a keyed seal (nobody else can make one,
// repeat one or leave one out), data frames by a CRC32C (a bit that flipped is found).
enum class Integrity { kSealed, kChecksum };

using Seal = std::array<std::byte, kSealBytes>;

// Makes the seals of everything that goes one way on one link, in order. Used by both ends alike.
class Guard {
 public:
  Guard(Integrity integrity, const Key& key) : integrity_(integrity), sealer_(key) {}

  // Adds the next bytes of the part that is being sealed. Its pieces lie one after the other in memory, and
  // stay there until Finish.
  void Add(const std::byte* data, size_t bytes);

  // The bytes added so far lie here from now on.
  void Move(const std::byte* begin) { begin_ = begin; }

  // The seal of what was added since the last Finish.
  Seal Finish();
  bool Accepts(const std::byte* received);  // whether it is that seal

 private:
  Integrity integrity_;
  Sealer sealer_;
  uint32_t checksum_ = 0;
  const std::byte* begin_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace hvd::tcp

#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hvd::negotiate {

// Appends little-endian bytes and LEB128 varints.
class Encoder {
 public:
  explicit Encoder(std::string* out) : out_(out) {}

  void Byte(uint8_t value) { out_->push_back(static_cast<char>(value)); }

  void Varint(uint64_t value) {
    while (value >= 0x80) {
      Byte(static_cast<uint8_t>(value) | 0x80);
      value >>= 7;
    }
    Byte(static_cast<uint8_t>(value));
  }

  void Signed(int64_t value) {  // zigzag: -1 is one byte
    Varint((static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63));
  }

  void Double(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    for (int shift = 0; shift < 64; shift += 8) Byte(static_cast<uint8_t>(bits >> shift));
  }

  void Text(std::string_view text) {
    Varint(text.size());
    out_->append(text);
  }

 private:
  std::string* out_;
};

// Reads what Encoder wrote. The first odd byte makes it fail for good: every later read returns
// zero, so a decoder reads on without checks, tests ok() where it loops, and asks for status()
// once.
class Decoder {
 public:
  explicit Decoder(std::string_view bytes)
      : next_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool ok() const { return field_ == nullptr; }
  size_t left() const { return static_cast<size_t>(end_ - next_); }

  uint8_t Byte(const char* field, uint8_t max = 0xff) {
    if (next_ == end_) return Fail(field);
    const auto value = static_cast<uint8_t>(*next_++);
    return value <= max ? value : Fail(field);
  }

  uint64_t Varint(const char* field, uint64_t max = ~uint64_t{0}) {
    if (next_ != end_ && static_cast<int8_t>(*next_) >= 0) {
      const auto value = static_cast<uint8_t>(*next_++);
      return value <= max ? value : Fail(field);
    }
    return LongVarint(field, max);
  }

  // How many elements follow, each of which takes at least `least` bytes: so nothing is allocated
  // that the bytes at hand could not fill.
  size_t Count(const char* field, size_t least, size_t max) {
    const uint64_t count = Varint(field, max);
    return count <= left() / least ? static_cast<size_t>(count) : Fail(field);
  }

  int64_t Signed(const char* field, int64_t min, int64_t max) {
    const uint64_t zigzag = Varint(field);
    const auto value = static_cast<int64_t>((zigzag >> 1) ^ (~(zigzag & 1) + 1));
    return value >= min && value <= max ? value : Fail(field);
  }

  double Double(const char* field) {
    if (left() < 8) return Fail(field);
    uint64_t bits = 0;
    for (int shift = 0; shift < 64; shift += 8)
      bits |= uint64_t{static_cast<uint8_t>(*next_++)} << shift;
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  std::string_view Text(const char* field, size_t max) {
    const size_t size = Count(field, 1, max);
    const std::string_view text(next_, size);
    next_ += size;
    return text;
  }

  uint8_t Fail(const char* field) {
    if (ok()) field_ = field;
    next_ = end_;
    return 0;
  }

  Status status(const char* message) const {
    if (!ok()) return Status::Aborted(std::string("corrupt ") + message + ": bad " + field_);
    if (next_ != end_)
      return Status::Aborted(std::string("corrupt ") + message + ": trailing bytes");
    return Status::Ok();
  }

 private:
  uint64_t LongVarint(const char* field, uint64_t max) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && next_ != end_; shift += 7) {
      const auto byte = static_cast<uint8_t>(*next_++);
      if (shift == 63 && byte > 1) break;
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte & 0x80) continue;
      // One value has one encoding: a longer one is not ours.
      return (byte == 0 && shift > 0) || value > max ? Fail(field) : value;
    }
    return Fail(field);
  }

  const char* next_;
  const char* end_;
  const char* field_ = nullptr;  // the first bad one
};

}  // namespace hvd::negotiate

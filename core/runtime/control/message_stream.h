#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace hvd {

constexpr size_t kMaxControlMessage = 256 << 20;

// Messages in a byte stream: a 32-bit length before each.
inline void AppendMessage(const std::string& message, std::string* stream) {
  const uint32_t length = static_cast<uint32_t>(message.size());
  stream->append(reinterpret_cast<const char*>(&length), sizeof length);
  stream->append(message);
}

// Cuts a stream that arrives in pieces back into messages.
class MessageAssembler {
 public:
  enum class Next { kNone, kMessage, kCorrupt };

  // Room for `bytes` more of the stream, to be written by the caller.
  char* Extend(size_t bytes) {
    // Also where pieces never end with a message: what is kept is at most twice what is not yet taken.
    if (taken_ > buffer_.size() / 2) {
      buffer_.erase(0, taken_);
      taken_ = 0;
    }
    buffer_.resize(buffer_.size() + bytes);
    return buffer_.data() + buffer_.size() - bytes;
  }

  Next Take(std::string* message) {
    uint32_t length;
    const size_t available = buffer_.size() - taken_;
    if (available < sizeof length) return Next::kNone;
    std::memcpy(&length, buffer_.data() + taken_, sizeof length);
    if (length > kMaxControlMessage) return Next::kCorrupt;
    if (available - sizeof length < length) return Next::kNone;
    message->assign(buffer_, taken_ + sizeof length, length);
    taken_ += sizeof length + length;
    return Next::kMessage;
  }

 private:
  std::string buffer_;
  size_t taken_ = 0;  // of buffer_
};

}  // namespace hvd

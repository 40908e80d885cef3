#include "transport/tcp/records.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace hvd::tcp {

namespace {

constexpr size_t kLengthBytes = 4;
constexpr size_t kOverhead = kLengthBytes + kSealBytes;
constexpr size_t kRecords = 4;  // that are made, or received, at once
constexpr size_t kRoom = kRecords * (kRecordBytes + kOverhead);

void PutLength(size_t length, std::byte* out) {
  for (size_t i = 0; i < kLengthBytes; ++i) out[i] = static_cast<std::byte>(length >> (8 * i));
}

size_t LengthAt(const std::byte* in) {
  size_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<size_t>(in[i]) << (8 * i);
  return length;
}

ssize_t Fail(int error) {
  errno = error;
  return -1;
}

// Walks through the memory of some parts.
class Walk {
 public:
  Walk(const iovec* parts, size_t count) : part_(parts), end_(parts + count) {}

  // The next bytes that lie together, at most `most`.
  std::byte* Next(size_t most, size_t* bytes) {
    while (part_ != end_ && at_ == part_->iov_len) ++part_, at_ = 0;
    *bytes = part_ == end_ ? 0 : std::min(most, part_->iov_len - at_);
    if (*bytes == 0) return nullptr;
    at_ += *bytes;
    return static_cast<std::byte*>(part_->iov_base) + at_ - *bytes;
  }

 private:
  const iovec* part_;
  const iovec* const end_;
  size_t at_ = 0;
};

size_t BytesOf(const iovec* parts, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += parts[i].iov_len;
  return bytes;
}

}  // namespace

ssize_t RecordWriter::Send(int socket, const iovec* parts, size_t count) {
  if (begin_ == end_ && !Encrypt(parts, count)) return Fail(EPROTO);
  while (begin_ < end_) {
    const ssize_t sent =
        send(socket, records_.get() + begin_, end_ - begin_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return -1;
    begin_ += static_cast<size_t>(sent);
  }
  return static_cast<ssize_t>(taken_);
}

bool RecordWriter::Encrypt(const iovec* parts, size_t count) {
  if (records_ == nullptr) records_.reset(new std::byte[kRoom]);
  size_t left = std::min(BytesOf(parts, count), kRecords * kRecordBytes);
  taken_ = left;
  Walk walk(parts, count);
  std::byte* to = records_.get();
  while (left > 0) {
    size_t length = std::min(left, kRecordBytes);
    left -= length;
    PutLength(length, to);
    gcm_->Begin(to, kLengthBytes);
    to += kLengthBytes;
    while (length > 0) {
      size_t bytes;
      const std::byte* from = walk.Next(length, &bytes);
      gcm_->Add(from, bytes, to);
      to += bytes;
      length -= bytes;
    }
    if (!gcm_->Seal(to)) return false;
    to += kSealBytes;
  }
  begin_ = 0;
  end_ = static_cast<size_t>(to - records_.get());
  return true;
}

ssize_t RecordReader::Read(int socket, const iovec* parts, size_t count) {
  if (received_ == nullptr) {
    received_.reset(new std::byte[kRoom]);
    rest_.reset(new std::byte[kRecordBytes]);
  }
  if (rest_begin_ < rest_end_) return HandOut(parts, count);
  while (!HoldsRecord()) {
    const ssize_t got = Receive(socket);
    if (got == 0 && begin_ < end_) return Fail(EPROTO);
    if (got <= 0) return got;
  }
  return Decrypt(parts, count);
}

ssize_t RecordReader::Receive(int socket) {
  std::memmove(received_.get(), received_.get() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const ssize_t got = recv(socket, received_.get() + end_, kRoom - end_, MSG_DONTWAIT);
  if (got > 0) end_ += static_cast<size_t>(got);
  return got;
}

// A length that cannot be counts as one: Decrypt says so.
bool RecordReader::HoldsRecord() const {
  const size_t held = end_ - begin_;
  if (held < kLengthBytes) return false;
  const size_t length = LengthAt(received_.get() + begin_);
  return length > kRecordBytes || held >= length + kOverhead;
}

// To the caller's memory as far as it goes. Nobody may use that before the seal has been looked at,
// which is done before this returns.
ssize_t RecordReader::Decrypt(const iovec* parts, size_t count) {
  const std::byte* from = received_.get() + begin_;
  const size_t length = LengthAt(from);
  if (length == 0 || length > kRecordBytes) return Fail(EBADMSG);
  gcm_->Begin(from, kLengthBytes);
  from += kLengthBytes;
  const size_t fit = std::min(length, BytesOf(parts, count));
  Walk walk(parts, count);
  for (size_t left = fit; left > 0;) {
    size_t bytes;
    std::byte* const to = walk.Next(left, &bytes);
    gcm_->Add(from, bytes, to);
    from += bytes;
    left -= bytes;
  }
  gcm_->Add(from, length - fit, rest_.get());
  from += length - fit;
  if (!gcm_->Opens(from)) return Fail(EBADMSG);
  rest_begin_ = 0;
  rest_end_ = length - fit;
  begin_ += length + kOverhead;
  return static_cast<ssize_t>(fit);
}

ssize_t RecordReader::HandOut(const iovec* parts, size_t count) {
  const size_t start = rest_begin_;
  Walk walk(parts, count);
  size_t bytes;
  while (std::byte* const to = walk.Next(rest_end_ - rest_begin_, &bytes)) {
    std::memcpy(to, rest_.get() + rest_begin_, bytes);
    rest_begin_ += bytes;
  }
  return static_cast<ssize_t>(rest_begin_ - start);
}

}  // namespace hvd::tcp

#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "transport/tcp/gcm.h"

namespace hvd::tcp {

// What a link that is encrypted carries in place of the bytes of its frames: records, each a
// length, so many encrypted bytes, and a seal over both.
//
// The two halves stand where a connection calls sendmsg and readv, and answer as these do on a
// socket that does not block.
constexpr size_t kRecordBytes = 64 << 10;  // most bytes in one

class RecordWriter {
 public:
  explicit RecordWriter(std::unique_ptr<Gcm> gcm) : gcm_(std::move(gcm)) {}

  // How many of the bytes have left. As long as it answers EAGAIN, the next call must bring the
  // same bytes again: records of them are on their way.
  ssize_t Send(int socket, const iovec* parts, size_t count);

 private:
  bool Encrypt(const iovec* parts, size_t count);

  const std::unique_ptr<Gcm> gcm_;
  std::unique_ptr<std::byte[]> records_;  // from the first Send on
  size_t begin_ = 0;                      // of what is to be sent
  size_t end_ = 0;
  size_t taken_ = 0;  // bytes that these records hold
};

class RecordReader {
 public:
  explicit RecordReader(std::unique_ptr<Gcm> gcm) : gcm_(std::move(gcm)) {}

  // EBADMSG: what has come is no record of the peer's. EPROTO: the stream ends within one.
  ssize_t Read(int socket, const iovec* parts, size_t count);

 private:
  ssize_t Receive(int socket);
  bool HoldsRecord() const;
  ssize_t Decrypt(const iovec* parts, size_t count);
  ssize_t HandOut(const iovec* parts, size_t count);

  const std::unique_ptr<Gcm> gcm_;
  std::unique_ptr<std::byte[]> received_;  // from the first Read on
  size_t begin_ = 0;                       // of what is not decrypted
  size_t end_ = 0;
  std::unique_ptr<std::byte[]> rest_;  // of a record: what the caller had no room for
  size_t rest_begin_ = 0;
  size_t rest_end_ = 0;
};

}  // namespace hvd::tcp

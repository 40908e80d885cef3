#include "transport/tcp/reader.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace hvd::tcp {

namespace {
constexpr size_t kReadAhead = 16 << 10;
constexpr size_t kSlice = 256 << 10;  // guarded while still in the cache
}  // namespace

void FrameReader::Open(const Guard& guard, std::unique_ptr<RecordReader> records) {
  buffer_.reset(new std::byte[kReadAhead]);
  guard_.emplace(guard);
  records_ = std::move(records);
}

Status FrameReader::Progress(int socket, size_t budget, bool* moved) {
  const size_t start = budget;
  bool more = true;
  Status status;
  while (more && budget > 0 && status.ok()) {
    const State before = state_;
    status = Advance(socket, &budget, &more);
    *moved = *moved || state_ != before;
  }
  *moved = *moved || budget != start;
  tried_ = !more;
  return status;
}

Status FrameReader::Advance(int socket, size_t* budget, bool* more) {
  switch (state_) {
    case State::kHeader:
      return TakeHeader(socket, budget, more);
    case State::kHeld:
      return Match(more);
    case State::kPayload:
      return TakePayload(socket, budget, more);
    default:
      return TakeTrailer(socket, budget, more);
  }
}

Status FrameReader::TakeHeader(int socket, size_t* budget, bool* more) {
  *more = inbox_.waiting();
  if (!*more) return Status::Ok();
  HVD_RETURN_IF_ERROR(Fill(socket, kPrefixBytes, budget, more));
  if (!*more) return Status::Ok();
  HVD_RETURN_IF_ERROR(Decode(buffer_.get() + begin_, generation_, &*guard_, &header_));
  begin_ += kPrefixBytes;
  state_ = State::kHeld;
  return Status::Ok();
}

Status FrameReader::Match(bool* more) {
  aside_ = !inbox_.Take(header_.tag, &recv_);
  if (aside_) {
    *more = inbox_.Forgotten(header_.tag) || inbox_.MustMakeWay(header_.tag);
    if (!*more) return Status::Ok();
    SetAside();
  }
  HVD_RETURN_IF_ERROR(CheckFits(header_.length, recv_));
  received_ = 0;
  state_ = State::kPayload;
  return header_.length == 0 ? Complete() : Status::Ok();
}

// The payload goes into memory of the reader's.
void FrameReader::SetAside() {
  aside_ = true;
  aside_payload_.resize(header_.length);
  recv_ = {header_.tag, aside_payload_.data(), header_.length, nullptr};
}

void FrameReader::Forget(uint32_t set) {
  tried_ = false;
  inbox_.Forget(set);
  const bool arriving = state_ == State::kPayload || state_ == State::kTrailer;
  if (!arriving || aside_ || recv_.tag.set != set) return;
  // A seal covers bytes where they lie, so what has come moves along.
  const std::byte* before = recv_.data;
  SetAside();
  std::memcpy(recv_.data, before, received_);
  guard_->Move(recv_.data);
}

Status FrameReader::TakePayload(int socket, size_t* budget, bool* more) {
  std::byte* at = recv_.data + received_;
  const size_t wanted = std::min<size_t>(header_.length - received_, kSlice);
  size_t got = std::min(wanted, end_ - begin_);
  if (got > 0) {
    std::memcpy(at, buffer_.get() + begin_, got);
    begin_ += got;
  } else {
    HVD_RETURN_IF_ERROR(Read(socket, at, wanted, budget, &got, more));
  }
  guard_->Add(at, got);
  received_ += got;
  if (received_ == header_.length) state_ = State::kTrailer;
  return Status::Ok();
}

Status FrameReader::TakeTrailer(int socket, size_t* budget, bool* more) {
  HVD_RETURN_IF_ERROR(Fill(socket, kSealBytes, budget, more));
  if (!*more) return Status::Ok();
  const bool intact = guard_->Accepts(buffer_.get() + begin_);
  begin_ += kSealBytes;
  if (!intact) return Status::Aborted("corrupt frame payload");
  return Complete();
}

Status FrameReader::Complete() {
  state_ = State::kHeader;
  if (aside_) return inbox_.Park(header_.tag, std::exchange(aside_payload_, {}));
  recv_.transfer->bytes = header_.length;
  recv_.transfer->done = true;
  return Status::Ok();
}

Status FrameReader::Fill(int socket, size_t bytes, size_t* budget, bool* more) {
  *more = true;
  while (end_ - begin_ < bytes && *more) {
    size_t none;
    HVD_RETURN_IF_ERROR(Read(socket, nullptr, 0, budget, &none, more));
  }
  return Status::Ok();
}

Status FrameReader::Read(int socket, std::byte* payload, size_t bytes, size_t* budget, size_t* got,
                         bool* more) {
  *got = 0;
  *more = readable_;
  if (!readable_) return Status::Ok();
  std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const iovec parts[2] = {{payload, bytes}, {buffer_.get() + end_, kReadAhead - end_}};
  ssize_t result;
  do {
    result = records_ != nullptr ? records_->Read(socket, parts, 2) : readv(socket, parts, 2);
  } while (result < 0 && errno == EINTR);
  *more = result > 0;
  if (result == 0 || (result < 0 && errno == ECONNRESET)) {
    const bool between_frames = state_ == State::kHeader && begin_ == end_;
    return {between_frames ? Code::kShutdown : Code::kUnavailable, "the connection was closed"};
  }
  if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    readable_ = false;
    return Status::Ok();
  }
  if (result < 0 && errno == EBADMSG) {
    return Status::Aborted(
        "it is not what was encrypted there. HOROVOD_ENCRYPT must be the same on all ranks");
  }
  if (result < 0) return {Code::kUnavailable, Status::Errno("receive").message()};
  const auto read = static_cast<size_t>(result);
  *got = std::min(read, bytes);
  end_ += read - *got;
  *budget -= std::min(*budget, read);
  return Status::Ok();
}

}  // namespace hvd::tcp

#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transport/inbox.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/records.h"

namespace hvd::tcp {

// The receiving half of a connection: payloads go straight into the posted buffers. A frame whose
// receive is not posted is held: its header is known, its payload and what follows stay in the
// socket, until it must make way (Inbox).
class FrameReader {
 public:
  // `forgotten`: sets that are no more already.
  FrameReader(uint32_t generation, IdRanges forgotten)
      : generation_(generation), inbox_(Inbox::Limits(), std::move(forgotten)) {}

  // Before the first Progress: what is posted waits for it. `records`: null if the frames travel as
  // they are.
  void Open(const Guard& guard, std::unique_ptr<RecordReader> records);

  Status Post(const PostedRecv& recv) {
    tried_ = false;
    return inbox_.Post(recv);
  }
  void Forget(uint32_t set);  // see Transport

  // Whether bytes from the socket could be used now. Nothing is read before a receive is posted, so
  // a peer that closes after its last frame is no error to who expects no more of it.
  bool wants() const {
    return state_ == State::kHeader ? inbox_.waiting() : state_ != State::kHeld;
  }

  // The socket has bytes, or is at its end. It is not asked again after it had none, until this is
  // called.
  void SetReadable() {
    readable_ = true;
    tried_ = false;
  }

  // Whether Progress may do something: it stopped at its budget, or something has changed since.
  bool movable() const { return !tried_; }

  // Receives at most about `budget` bytes without waiting.
  Status Progress(int socket, size_t budget, bool* moved);

 private:
  enum class State { kHeader, kHeld, kPayload, kTrailer };

  // One move of the state machine. *more is false when it can go no further now.
  Status Advance(int socket, size_t* budget, bool* more);
  Status TakeHeader(int socket, size_t* budget, bool* more);
  Status Match(bool* more);
  void SetAside();
  Status TakePayload(int socket, size_t* budget, bool* more);
  Status TakeTrailer(int socket, size_t* budget, bool* more);
  Status Complete();

  // Reads into `payload` first and then ahead into the buffer.
  Status Read(int socket, std::byte* payload, size_t bytes, size_t* budget, size_t* got,
              bool* more);
  // Reads ahead until the buffer holds `bytes`; *more is false while it does not.
  Status Fill(int socket, size_t bytes, size_t* budget, bool* more);

  const uint32_t generation_;
  std::optional<Guard> guard_;  // none: not open
  std::unique_ptr<RecordReader> records_;
  Inbox inbox_;
  State state_ = State::kHeader;
  bool readable_ = false;
  bool tried_ = true;  // Progress went as far as it could

  // Bytes read ahead: small frames arrive many at a time.
  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;

  FrameHeader header_;
  PostedRecv recv_{};
  // Where a payload goes that has no receive: it is parked, or belongs to a set that is no more.
  bool aside_ = false;
  std::vector<std::byte> aside_payload_;
  size_t received_ = 0;  // of the payload
};

}  // namespace hvd::tcp

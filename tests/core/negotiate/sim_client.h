#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "negotiate/message.h"
#include "negotiate/response_cache.h"

namespace hvd::negotiate {

// One rank's side of the negotiation in one set as an engine does it: announce in full or by id,
// learn ids from the responses, carry the responses out in the order of their numbers.
class SimClient {
 public:
  static constexpr size_t kNone = ~size_t{0};

  struct Done {
    size_t operation = kNone;  // as given to Announce; kNone: this rank had joined instead
    Request request;  // its own; that of the others if it had joined, empty if that is an error
    Decision decision;
  };

  explicit SimClient(int rank) : rank_(rank) {}

  // The operation goes out with the next Send.
  void Announce(Request request, size_t operation);

  // `block`: the program waits for all that it has announced. Encoded.
  std::string Send(bool block, bool joins = false);

  // What a response tells this rank to do, in order. What goes wrong is added to `violations`.
  std::vector<Done> Receive(const std::string& bytes, std::vector<std::string>* violations);

  bool idle() const { return pending_.empty() && !joined_; }
  bool joined() const { return joined_; }  // and waits for the others to join
  int full() const { return full_; }       // so many of the latest Send's announcements are in full
  uint64_t stream() const { return stream_; }  // hash of all responses

 private:
  struct Entry {
    size_t operation;
    Request request;
  };
  using Key = std::pair<std::string, uint64_t>;  // name or ordinal

  std::string CarryOut(Decision decision, std::vector<Done>* done);
  std::string Learn(const Decision& decision, const Request& request);
  std::string EndJoin();

  const int rank_;
  ResponseCache cache_{1 << 20};
  std::map<Key, Entry> pending_;
  AnnounceMessage message_;  // collected since the latest Send
  bool joined_ = false;
  int full_ = 0;
  uint64_t ordinal_ = 0;
  uint64_t announced_ = 0;
  uint64_t urgent_ = 0;
  uint64_t number_ = 0;
  uint64_t stream_ = 0;
};

// FNV-1a, for traces.
uint64_t HashBytes(uint64_t hash, const std::string& bytes);

}  // namespace hvd::negotiate

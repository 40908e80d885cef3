#pragma once

#include <vector>

#include "base/collective.h"
#include "collective/communicator.h"
#include "collective/links/moves.h"

namespace hvd {

// Who takes part in an exchange, and what is done to the data.
struct LinkGroup {
  const Communicator* comm = nullptr;
  uint64_t sequence = 0;
  std::vector<int> places;  // of the members, in the set
  Reduction reduction;
};

// An allreduce of one stretch of memory among the members of a group, in place: what one member
// does of it.
//
// All its receives are posted at once, by Post, and depend on nothing that the rank has yet to do.
// So nothing that its members send each other is ever in the way. Its sends begin with Send, when
// the data are there. What arrives in place of data is sent after those have been read: by who has
// combined them.
class LinkExchange {
 public:
  // `number` names it among the exchanges of the operation. Group, moves, data and scratch stay
  // until it is done.
  void Post(const LinkGroup& group, const Moves& moves, uint32_t number, std::byte* data,
            std::byte* scratch);
  void Send();
  // Goes on with what has arrived. True: something was done; *status is an error, or stays.
  bool Advance(Status* status);
  bool done() const { return sent_ && at_ == moves_->list.size() && AllSent(); }

 private:
  const Move& move() const { return moves_->list[at_]; }
  void Begin();
  bool Arrived(Status* status);
  bool MoveIsSent() const;
  bool AllSent() const;
  bool Combine();
  void Next();

  const LinkGroup* group_ = nullptr;
  const Moves* moves_ = nullptr;
  uint32_t number_ = 0;
  std::byte* data_ = nullptr;
  std::byte* scratch_ = nullptr;
  bool sent_ = false;    // Send was called
  size_t at_ = 0;        // the move that is under way
  size_t first_in_ = 0;  // its transfers
  size_t first_out_ = 0;
  bool arrived_ = false;            // all that comes with it
  int64_t combined_ = 0;            // bytes of it
  std::vector<Transfer> in_, out_;  // of all moves
  std::vector<const void*> operands_;
};

}  // namespace hvd

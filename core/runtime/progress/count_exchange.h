#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/collective.h"
#include "base/rank.h"
#include "base/status.h"

namespace hvd {

// What the members of a set tell each other before alltoalls that travel together: how many rows
// each sends to each. It is an alltoall itself, of parts of one size that all know. Rows that are
// few come along in it; where that is so of all members, nothing is left to send.
//
// A part, as numbers of 64 bits: what AlltoallSender has, the rows of each tensor; and then perhaps
// the rows themselves, one tensor after the other.
class CountExchange {
 public:
  // `of` is of this rank's own: pieces with inputs, and of shares what it sends. `rows`: the
  // same as numbers of rows. Of a GPU no rows come along.
  CountExchange(const CollectiveSpec& of, const std::vector<const std::vector<int64_t>*>& rows,
                int rank, int members);
  CountExchange(const CountExchange&) = delete;
  CountExchange& operator=(const CountExchange&) = delete;

  // The collective, on the host. Its memory is here.
  CollectiveSpec& spec() { return spec_; }

  // The rest is for when it is done. What the others say is no more than numbers until it is
  // checked.

  // Rows of a tensor from each member.
  std::vector<int64_t> RowsFrom(size_t tensor) const;
  // Fills in the senders of `of`, whose shares are complete and checked. An error (kAborted):
  // *culprit says what cannot be.
  Status FillSenders(CollectiveSpec* of, Position* culprit) const;

  // Whether all rows of all members have come along; equal on every member.
  bool HasAllRows(const CollectiveSpec& of) const;
  // Then: copies them to the outputs of `of`.
  void TakeRows(const CollectiveSpec& of) const;

 private:
  // What a member has said. Of its own parts a rank believes itself.
  const std::byte* From(size_t member) const {
    return (member == rank_ ? sent_ : received_).data() + member * part_;
  }
  int64_t Number(size_t member, size_t index) const;
  void Tell(const CollectiveSpec& of, const std::vector<const std::vector<int64_t>*>& rows);
  void AddRows(const CollectiveSpec& of);

  const size_t rank_;
  const size_t members_;
  const bool takes_rows_;
  const size_t head_;  // bytes of a part before the rows
  const size_t part_;  // all bytes of it
  std::vector<std::byte> sent_;
  std::vector<std::byte> received_;
  CollectiveSpec spec_;
};

}  // namespace hvd

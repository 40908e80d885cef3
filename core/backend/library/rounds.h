#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "backend/library/library.h"
#include "collective/piece_stream.h"
#include "transport/mapping.h"

namespace hvd {

// The memory that a set's collectives pass through; grows to what the largest round needs. A call
// that was left behind keeps it.
struct Staging {
  Mapping input;
  Mapping output;
};

// A collective as a series of calls of a library. Lane: what goes to one member, or comes from one,
// end to end (of kinds in which all members get the same, one lane). A round carries the same
// window of every lane, so that all members come to the same number of rounds.
class Rounds {
 public:
  Rounds(CollectiveSpec spec, int rank, int size);

  // Whether there is another one; *call is what it asks of the library.
  bool Next(LibraryCall* call);
  // Its memory, all pages present.
  Status Allocate(Staging* staging, LibraryCall* call) const;

  // Each takes one step of copying what this round needs; false: nothing was left to copy.
  bool Pack(LibraryCall* call);
  bool Unpack(const LibraryCall& call);

 private:
  using Lanes = std::vector<PieceStream>;
  // A step's place within a round.
  struct Cursor {
    size_t lane = 0;
    int64_t at = 0;         // in the lane, from the round's begin
    int64_t in_memory = 0;  // where that lies in the staging memory
  };

  std::vector<int64_t> Lengths(const Lanes& lanes) const;
  template <typename Copy>
  bool Walk(const Lanes& lanes, Cursor* cursor, Copy copy) const;
  void Scale(const Reduction& reduction, const void* from, void* to, int64_t bytes) const;

  const CollectiveSpec spec_;
  const bool in_place_;  // one memory for both
  const bool packs_;
  Lanes inputs_;
  Lanes outputs_;
  int64_t longest_ = 0;  // lane of any member
  int64_t window_;
  int64_t begin_ = 0;
  int64_t next_ = 0;
  bool began_ = false;
  Cursor packed_;
  Cursor unpacked_;
};

}  // namespace hvd

#pragma once

#include "base/collective.h"
#include "collective/window/operation.h"

namespace hvd {

// What the large operations over a window have in common in which nobody works for others: every
// rank streams what it gives through its staging in chunks, and takes what it needs of the others'
// chunks.
class StagedExchange : public StepMachine {
 protected:
  // Of `chunks` chunks, a number equal on all members, this rank gives the first `given` and needs
  // something of the first `needed` of the others.
  StagedExchange(Board* board, uint64_t chunks, uint64_t given, uint64_t needed);

  Step TakeStep() override;

  int rank() const { return board_->rank(); }
  int size() const { return board_->size(); }
  std::byte* Staging(int rank, uint64_t chunk) const { return operation_.Staging(rank, chunk); }
  bool HasStaged(int rank, uint64_t chunk) const {
    return operation_.Has(rank, Phase::kCopied, chunk);
  }

  // Whether a chunk can be given: its data are here.
  virtual bool Has(uint64_t /*chunk*/) const { return true; }
  // Fills this rank's staging.
  virtual void Stage(uint64_t chunk, std::byte* staging) = 0;
  // The chunk has been given; it is still in the cache.
  virtual void Given(uint64_t /*chunk*/) {}

  enum class Taken { kNothing, kPart, kAll };
  // Takes a bounded part of what this rank needs of a chunk; kNothing: it has not arrived.
  virtual Taken Take(uint64_t chunk) = 0;

  // Work that concerns no other rank. False: none is left.
  virtual bool WorkAlone() { return false; }

  // Whether later operations on the board may have this rank's input. Asked before the last of
  // the chunks that it does not give is passed over.
  virtual bool MayLeave() const { return true; }

 private:
  bool TakeNext();
  bool GiveNext();

  Board* const board_;
  ChunkedOperation operation_;
  const uint64_t given_;
  const uint64_t needed_;
  uint64_t staged_ = 0;  // chunks given so far
  uint64_t taken_ = 0;   // chunks of which all that is needed is taken
};

}  // namespace hvd

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transport/descriptor.h"
#include "transport/shm/share_tree.h"
#include "transport/shm/shared_memory.h"

namespace hvd::shm {

// Where in the arena shared memory lies, as its maker tells the other members.
struct Place {
  uint64_t offset = 0;
  Identity identity;
};
static_assert(std::is_trivially_copyable_v<Place> && sizeof(Place) == 56,
              "the struct is sent as it lies");

// A file that all ranks of a host have from the start: windows can be made in it later on by their
// members alone, to whom no descriptor has to travel. Each rank has a range of its own, from which
// it gives places away without asking anybody; one that all members have left it gives again. The
// file is far larger than memory, and takes none but for what is reserved of it.
class Arena {
 public:
  // Of the file that so many ranks need at least.
  static size_t LeastFileBytes(int ranks) { return kLeastBytes * static_cast<size_t>(ranks); }

  // Collective among all ranks of the tree and blocking, as ShmWindow::Make.
  static Status Make(ShareTree* tree, Deadline deadline, std::unique_ptr<Arena>* out);

  // Makes shared memory for `identity`, which gets its nonce, in this rank's range. Thread safe.
  Status Make(Identity identity, Place* place);
  // Of what this rank has made: nobody may attach it any more who has not. Thread safe.
  void Close(const Place& place) const;
  // Gives the memory of places back that all have left, so that they can be given again; looks at
  // a few of them each time. Thread safe.
  void Reclaim();

  // Maps what another rank (or this one) has made, if it is what `expected` says but for the nonce.
  // Of the own part so many bytes are reserved. kTimeout: its maker has closed it.
  Status Attach(const Identity& expected, const Place& place, int member, size_t reserved,
                SharedMemory* out) const;

 private:
  static constexpr uint64_t kLeastBytes = uint64_t{16} << 20;  // of each rank

  Arena(Descriptor memfd, size_t bytes, size_t begin, size_t end)
      : memfd_(std::move(memfd)), bytes_(bytes), end_(end), next_(begin) {}

  const Descriptor memfd_;
  const size_t bytes_;  // of the file
  const size_t end_;    // of the own range
  std::mutex mutex_;    // guards what follows, of the own range
  size_t next_;         // from here on nothing was given yet
  std::vector<Place> given_;
  size_t looked_ = 0;                            // so many of them lately
  std::map<size_t, std::vector<size_t>> again_;  // by bytes: offsets of what was given back
};

}  // namespace hvd::shm

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "negotiate/message.h"

namespace hvd::negotiate {

// The simulator's own account of who has announced what, kept apart from the sequencer's: by it the
// published decisions are judged.
class Ledger {
 public:
  Ledger(uint64_t seed, int ranks, int steps, const std::vector<Request>* workload,
         int64_t batch_bytes);

  void Arrived(int rank, int step, const std::vector<size_t>& operations);

  // Everything wrong with a response is added to `violations`.
  void Judge(const Response& response, std::vector<std::string>* violations);

  // Public names of what others have announced in this step and `rank` has not.
  std::set<std::string> Lacking(int rank, int step) const;

 private:
  size_t OperationOf(const Decision& decision);
  int64_t BytesOf(size_t operation, int step) const;

  const uint64_t seed_;
  const int ranks_;
  const std::vector<Request>* workload_;
  const int64_t batch_bytes_;
  std::map<std::string, size_t> named_;
  std::vector<size_t> unnamed_;                        // operations in their order
  std::map<uint32_t, std::string> name_of_id_;         // as the stream says
  std::vector<std::vector<std::set<int>>> announced_;  // [step][operation]
  std::vector<int> decided_;                           // by operation: in so many steps
};

}  // namespace hvd::negotiate

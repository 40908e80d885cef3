#include "ledger.h"

#include "requests.h"
#include "sim_member.h"

namespace hvd::negotiate {

Ledger::Ledger(uint64_t seed, int ranks, int steps, const std::vector<Request>* workload,
               int64_t batch_bytes)
    : seed_(seed),
      ranks_(ranks),
      workload_(workload),
      batch_bytes_(batch_bytes),
      decided_(workload->size(), 0) {
  for (size_t i = 0; i < workload->size(); ++i) {
    if ((*workload)[i].name.empty()) {
      unnamed_.push_back(i);
    } else {
      named_[(*workload)[i].name] = i;
    }
  }
  announced_.assign(static_cast<size_t>(steps), std::vector<std::set<int>>(workload->size()));
}

void Ledger::Arrived(int rank, int step, const std::vector<size_t>& operations) {
  for (size_t operation : operations) announced_[static_cast<size_t>(step)][operation].insert(rank);
}

size_t Ledger::OperationOf(const Decision& decision) {
  if (decision.ordinal != 0) return unnamed_[(decision.ordinal - 1) % unnamed_.size()];
  if (decision.id != kNoId && !decision.known) name_of_id_[decision.id] = decision.name;
  return named_.at(decision.known ? name_of_id_.at(decision.id) : decision.name);
}

int64_t Ledger::BytesOf(size_t operation, int step) const {
  const Request& request = (*workload_)[operation];
  int64_t bytes = 0;
  for (size_t t = 0; t < request.tensors.size(); ++t) {
    Shape shape = request.tensors[t].shape;
    if (request.kind == OpKind::kAllgather) {
      shape[0] = 0;
      for (int rank = 0; rank < ranks_; ++rank)
        shape[0] += FirstDim(seed_, rank, step, operation, t);
    }
    bytes += NumElements(shape) * static_cast<int64_t>(SizeOf(request.tensors[t].dtype));
  }
  return bytes;
}

void Ledger::Judge(const Response& response, std::vector<std::string>* violations) {
  if (response.decisions.empty()) violations->push_back("an empty response");
  int64_t bytes = 0;
  const std::vector<Decision> decisions = EachOf(response);
  for (const Decision& decision : decisions) {
    if (bytes >= batch_bytes_) violations->push_back("a batch went on after it was full");
    const size_t operation = OperationOf(decision);
    const auto step = static_cast<size_t>(decided_[operation]++);
    if (step >= announced_.size() ||
        announced_[step][operation].size() != static_cast<size_t>(ranks_)) {
      violations->push_back("a decision that not all ranks have asked for, or a second one");
    }
    const bool last = &decision == &decisions.back();
    if (!decision.error.empty() && !last) violations->push_back("an error did not close its batch");
    bytes += BytesOf(operation, static_cast<int>(step));
  }
}

std::set<std::string> Ledger::Lacking(int rank, int step) const {
  std::set<std::string> names;
  uint64_t ordinal = unnamed_.size() * static_cast<uint64_t>(step);
  for (size_t i = 0; i < workload_->size(); ++i) {
    const Request& request = (*workload_)[i];
    if (request.name.empty()) ++ordinal;
    const std::set<int>& ranks = announced_[static_cast<size_t>(step)][i];
    if (ranks.empty() || ranks.count(rank) > 0) continue;
    names.insert(request.name.empty() ? PublicName(request.kind, ordinal) : request.name);
  }
  return names;
}

}  // namespace hvd::negotiate

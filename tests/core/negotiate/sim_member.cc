#include "sim_member.h"

#include <algorithm>

namespace hvd::negotiate {
namespace {

Request RandomOperation(Random* random) {
  Request request;
  request.kind = static_cast<OpKind>(random->Below(3));
  if (random->OneIn(3)) request.kind = OpKind::kAllreduce;
  if (random->OneIn(4)) request.reduce_op = ReduceOp::kMax;
  if (random->OneIn(4)) request.prescale = 0.25;
  request.tensors.resize(random->OneIn(4) ? 1 + random->Below(4) : 1);
  for (TensorMeta& tensor : request.tensors) {
    tensor.dtype = static_cast<DataType>(random->Below(kDataTypes));
    tensor.shape.resize(1 + random->Below(3));
    for (int64_t& dim : tensor.shape) dim = static_cast<int64_t>(random->Below(20));
  }
  return request;
}

}  // namespace

std::vector<Request> Workload(uint64_t seed, int named, int unnamed) {
  Random random(seed);
  std::vector<Request> workload;
  for (int i = 0; i < named; ++i) {
    workload.push_back(RandomOperation(&random));
    workload.back().name = "layer." + std::to_string(i) + ".weight";
  }
  for (int i = 0; i < unnamed; ++i) {
    workload.push_back(RandomOperation(&random));
    if (i % 3 == 1) {
      workload.back() = Request{};
      workload.back().kind = OpKind::kBarrier;
    }
    if (i % 3 == 2) workload.back() = workload[workload.size() - 3];  // the same description again
  }
  return workload;
}

int64_t FirstDim(uint64_t seed, int rank, int step, size_t operation, size_t tensor) {
  const auto mixed =
      (static_cast<uint64_t>(rank) << 40) ^ (static_cast<uint64_t>(step) << 30) ^ (operation << 8) ^ tensor;
  return static_cast<int64_t>(Random(seed ^ mixed).Below(50));
}

uint64_t HashBytes(uint64_t hash, const std::string& bytes) {
  for (char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return hash;
}

SimMember::SimMember(uint64_t seed, int rank, int ranks, const std::vector<Request>* workload)
    : seed_(seed),
      rank_(rank),
      ranks_(ranks),
      workload_(workload),
      random_(seed ^ (static_cast<uint64_t>(rank) << 32)) {}

void SimMember::BeginStep(int step) {
  step_ = step;
  next_ = 0;
  order_.resize(workload_->size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = i;
  random_.Shuffle(&order_);
  // The unnamed ones keep their order: that is what matches them.
  std::vector<size_t> unnamed;
  for (size_t i : order_) {
    if ((*workload_)[i].name.empty()) unnamed.push_back(i);
  }
  std::sort(unnamed.begin(), unnamed.end());
  auto in_order = unnamed.begin();
  for (size_t& i : order_) {
    if ((*workload_)[i].name.empty()) i = *in_order++;
  }
}

std::string SimMember::Submit(size_t count, bool block) {
  AnnounceMessage message;
  announced_.clear();
  full_ = 0;
  for (; count > 0 && !submitted(); --count) {
    announced_.push_back(order_[next_]);
    message.announcements.push_back(Announce(order_[next_++]));
  }
  submitted_ += announced_.size();
  if (block) urgent_ = submitted_;
  message.urgent = urgent_;
  std::string bytes;
  Encode(message, &bytes);
  return bytes;
}

Announcement SimMember::Announce(size_t operation) {
  Request request = (*workload_)[operation];
  for (size_t t = 0; t < request.tensors.size() && request.kind == OpKind::kAllgather; ++t) {
    request.tensors[t].shape[0] = FirstDim(seed_, rank_, step_, operation, t);
  }
  const auto spoiled = std::find(spoiled_.begin(), spoiled_.end(), operation);
  if (spoiled != spoiled_.end()) {
    request.tensors.push_back({DataType::kFloat32, {1}});
    spoiled_.erase(spoiled);
  }
  Announcement announcement;
  if (request.name.empty()) announcement.ordinal = ++ordinal_;
  announcement.sizes = SizesOf(request);
  announcement.id = cache_.Find(request);
  const bool in_full = announcement.id == kNoId;
  if (in_full) announcement.request = request;
  full_ += in_full;
  const Key key{request.name, announcement.ordinal};
  pending_[key] = {operation, in_full, std::move(request)};
  return announcement;
}

void SimMember::Receive(const std::string& bytes, std::vector<std::string>* violations) {
  stream_ = HashBytes(stream_, bytes);
  Response response;
  const Status status = Decode(bytes, &response);
  if (!status.ok()) violations->push_back(status.message());
  if (response.number != ++number_) violations->push_back("response numbers have a gap");
  for (const Decision& decision : response.decisions) {
    const std::string wrong = CarryOut(decision);
    if (!wrong.empty()) violations->push_back("rank " + std::to_string(rank_) + ": " + wrong);
  }
}

std::string SimMember::CarryOut(const Decision& decision) {
  if (decision.known && decision.id >= cache_.size()) return "a known id was never learned";
  const bool by_id = decision.known && decision.ordinal == 0;
  const auto found = pending_.find({by_id ? cache_.At(decision.id).name : decision.name, decision.ordinal});
  if (found == pending_.end()) return "told to run '" + decision.name + "', which is not pending";
  Entry entry = std::move(found->second);
  pending_.erase(found);
  if (!decision.error.empty()) return "";
  if (!decision.known && decision.id != kNoId) {
    const Status learned = cache_.Learn(decision.id, entry.request);
    if (!learned.ok()) return learned.message();
  }
  if (decision.id != kNoId && !cache_.At(decision.id).SameAs(entry.request))
    return "the id means another request";
  return CheckDims(entry, decision);
}

std::string SimMember::CheckDims(const Entry& entry, const Decision& decision) const {
  std::vector<int64_t> expected;
  const size_t tensors = entry.request.kind == OpKind::kAllgather ? entry.request.tensors.size() : 0;
  for (size_t t = 0; t < tensors; ++t) {
    for (int rank = 0; rank < ranks_; ++rank)
      expected.push_back(FirstDim(seed_, rank, step_, entry.operation, t));
  }
  return decision.sizes == expected ? "" : "wrong first dimensions for '" + entry.request.name + "'";
}

}  // namespace hvd::negotiate

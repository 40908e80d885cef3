// What the other ranks say before an alltoall: refused with the sender, or within the bounds by
// which memory is read and sized.

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/operation/result_sizes.h"
#include "runtime/progress/count_exchange.h"
#include "target.h"

namespace hvd {
namespace {

using namespace fuzz;
using Wide = __int128;

// One rank of a few, with its own tensors.
class Rank {
 public:
  explicit Rank(Input* input)
      : members_(2 + input->Below(3)),
        rank_(input->Below(members_)),
        tensors_(1 + input->Below(3)) {
    of_.kind = OpKind::kAlltoall;
    of_.device = input->Below(4) == 0 ? 0 : kHostDevice;
    std::vector<const std::vector<int64_t>*> rows;
    sizes_.resize(tensors_);
    inputs_.resize(tensors_);
    for (size_t t = 0; t < tensors_; ++t) {
      constexpr int64_t kColumns[] = {0, 1, 3, 1000};
      negotiate::Request& request = requests_.emplace_back();
      request.kind = OpKind::kAlltoall;
      for (size_t m = 0; m < members_; ++m)
        request.splits.push_back(static_cast<int64_t>(input->Below(8)));
      request.tensors.push_back({DataType::kUint8, {64, kColumns[input->Below(4)]}});
      REQUIRE(FindResultSizes(request, "w", 0, {}, static_cast<int>(members_),
                              static_cast<int>(rank_), &sizes_[t])
                  .ok());
      inputs_[t].resize(static_cast<size_t>(sizes_[t].input_bytes));
      of_.pieces.push_back({inputs_[t].data(), nullptr, sizes_[t].input_bytes});
      of_.shares.push_back(sizes_[t].shares);
    }
    for (const ResultSizes& sizes : sizes_) rows.push_back(&sizes.sent);
    counts_ = std::make_unique<CountExchange>(of_, rows, static_cast<int>(rank_),
                                              static_cast<int>(members_));
  }

  // What a sound sender says, or nearly.
  void Hear(Input* input) {
    const Piece parts = counts_->spec().pieces[0];
    const size_t part = static_cast<size_t>(parts.bytes) / members_;
    std::memcpy(parts.output, parts.input, static_cast<size_t>(parts.bytes));
    for (size_t m = 0; m < members_; ++m) {
      for (size_t i = 0; i < 3 + tensors_; ++i) {
        constexpr int64_t kUsual[] = {20000, 100, 15000, 3};
        const size_t what = input->Below(8);
        int64_t number = kUsual[std::min<size_t>(i, 3)];
        if (what > 5) number = input->Signed();
        if (what == 5) number = static_cast<int64_t>(input->Byte());
        std::memcpy(parts.output + m * part + i * sizeof number, &number, sizeof number);
      }
    }
  }

  // As the executor does.
  Status Use(Position* culprit) {
    for (size_t t = 0; t < tensors_; ++t) {
      HVD_RETURN_IF_ERROR(
          AddReceived(requests_[t], "w", 0, counts_->RowsFrom(t), &sizes_[t], culprit));
      of_.shares[t] = sizes_[t].shares;
    }
    return counts_->FillSenders(&of_, culprit);
  }

  void CheckAll() {
    REQUIRE(of_.senders.size() == members_);
    for (size_t m = 0; m < members_; ++m) {
      Wide part = 0;
      for (const Shares& shares : of_.shares) part += shares.from[m];
      const AlltoallSender& sender = of_.senders[m];
      REQUIRE(sender.before >= 0 && part <= sender.largest && sender.largest < INT64_MAX / 2);
      REQUIRE(m == rank_ || sender.before + part <= sender.stream);
      REQUIRE(sender.stream < INT64_MAX / 2);
    }
    for (size_t t = 0; t < tensors_; ++t) {
      Wide rows = 0;
      for (const int64_t one : sizes_[t].received) rows += one;
      REQUIRE(rows == sizes_[t].shape[0]);
      REQUIRE(sizes_[t].received[rank_] == sizes_[t].sent[rank_]);
    }
  }

  void TakeRows() {
    if (!counts_->HasAllRows(of_)) return;
    std::vector<std::vector<std::byte>> outputs(tensors_);
    for (size_t t = 0; t < tensors_; ++t) {
      int64_t bytes = 0;
      for (size_t m = 0; m < members_; ++m) bytes += of_.shares[t].from[m];
      REQUIRE(bytes <= 1 << 20);
      outputs[t].resize(static_cast<size_t>(bytes));
      of_.pieces[t].output = outputs[t].data();
    }
    counts_->TakeRows(of_);
  }

  size_t members() const { return members_; }
  size_t rank() const { return rank_; }

 private:
  const size_t members_;
  const size_t rank_;
  const size_t tensors_;
  std::vector<negotiate::Request> requests_;
  std::vector<ResultSizes> sizes_;
  std::vector<std::vector<std::byte>> inputs_;
  CollectiveSpec of_;
  std::unique_ptr<CountExchange> counts_;
};

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hvd;
  fuzz::Input input(data, size);
  Rank rank(&input);
  rank.Hear(&input);
  Position culprit;
  const Status status = rank.Use(&culprit);
  if (!status.ok()) {
    REQUIRE(status.code() == Code::kAborted && culprit.known());
    REQUIRE(culprit.index() < rank.members() && culprit.index() != rank.rank());
    return 0;
  }
  rank.CheckAll();
  rank.TakeRows();
  return 0;
}

#include "collective/links/exchange.h"

#include <algorithm>

#include "collective/kernels/kernels.h"

namespace hvd {

void LinkExchange::Post(const LinkGroup& group, const Moves& moves, uint32_t number,
                        std::byte* data, std::byte* scratch) {
  group_ = &group;
  moves_ = &moves;
  number_ = number;
  data_ = data;
  scratch_ = scratch;
  sent_ = false;
  at_ = first_in_ = first_out_ = 0;
  size_t ins = 0;
  size_t outs = 0;
  for (const Move& move : moves.list) {
    ins += move.in.size();
    outs += move.out.size();
  }
  in_.assign(ins, {});
  out_.assign(outs, {});
  Transfer* transfer = in_.data();
  for (const Move& move : moves.list) {
    for (const Parcel& parcel : move.in) {
      std::byte* to = move.combines ? scratch + parcel.scratch : data + parcel.begin;
      group.comm->Recv(group.places[parcel.member], group.sequence, number * kMoveTags + move.tag,
                       to, parcel.bytes(), transfer++);
    }
  }
}

void LinkExchange::Send() {
  sent_ = true;
  if (at_ < moves_->list.size()) Begin();
}

void LinkExchange::Begin() {
  arrived_ = false;
  combined_ = 0;
  Transfer* transfer = out_.data() + first_out_;
  for (const Parcel& parcel : move().out) {
    group_->comm->Send(group_->places[parcel.member], group_->sequence,
                       number_ * kMoveTags + move().tag, data_ + parcel.begin, parcel.bytes(),
                       transfer++);
  }
}

bool LinkExchange::Advance(Status* status) {
  if (!sent_ || at_ == moves_->list.size()) return false;
  if (!arrived_ && !Arrived(status)) return false;
  if (move().combines) {
    // What is combined in place may not be on its way any more.
    if (move().sends_it_too && !MoveIsSent()) return false;
    if (!Combine()) return true;
  }
  Next();
  return true;
}

bool LinkExchange::Arrived(Status* status) {
  const std::vector<Parcel>& parcels = move().in;
  const Transfer* transfers = in_.data() + first_in_;
  for (size_t i = 0; i < parcels.size(); ++i) {
    if (!transfers[i].done) return false;
  }
  for (size_t i = 0; i < parcels.size() && status->ok(); ++i) {
    *status =
        group_->comm->Check(transfers[i], parcels[i].bytes(), group_->places[parcels[i].member]);
  }
  arrived_ = status->ok();
  return arrived_;
}

bool LinkExchange::MoveIsSent() const {
  const auto begin = out_.begin() + static_cast<int64_t>(first_out_);
  return std::all_of(begin, begin + static_cast<int64_t>(move().out.size()),
                     [](const Transfer& transfer) { return transfer.done; });
}

bool LinkExchange::AllSent() const {
  return std::all_of(out_.begin(), out_.end(), [](const Transfer& t) { return t.done; });
}

// As much as one step may; true when all of it is combined.
bool LinkExchange::Combine() {
  const std::vector<Parcel>& parcels = move().in;
  const auto element = static_cast<int64_t>(SizeOf(group_->reduction.dtype));
  const int64_t begin = move().begin + combined_;
  const int64_t most = static_cast<int64_t>(kStepBytes / (parcels.size() + 2)) / 128 * 128;
  const int64_t bytes = std::min(move().end - begin, std::max<int64_t>(most, 128));
  operands_.clear();
  for (const Parcel& parcel : parcels) operands_.push_back(scratch_ + parcel.scratch + combined_);
  operands_.insert(operands_.begin() + move().own_place, data_ + begin);
  void* destination = data_ + begin;
  const Reduction& whole = group_->reduction;
  const Reduction last = moves_->combines_once ? whole : whole.Last();
  kernels::Reduce(move().finishes ? last : whole.Between(), operands_.data(),
                  static_cast<int>(operands_.size()), &destination, 1, bytes / element);
  combined_ += bytes;
  return begin + bytes == move().end;
}

void LinkExchange::Next() {
  first_in_ += move().in.size();
  first_out_ += move().out.size();
  ++at_;
  if (at_ < moves_->list.size()) Begin();
}

}  // namespace hvd

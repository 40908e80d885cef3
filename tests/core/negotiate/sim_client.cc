#include "sim_client.h"

#include <algorithm>

#include "requests.h"

namespace hvd::negotiate {

uint64_t HashBytes(uint64_t hash, const std::string& bytes) {
  for (char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return hash;
}

void SimClient::Announce(Request request, size_t operation) {
  const uint32_t id = cache_.Find(request);
  const uint64_t ordinal = request.name.empty() ? ++ordinal_ : 0;
  const Shape sizes = SizesOf(request);
  const bool plain = id != kNoId && ordinal == 0 && sizes.empty();
  ++announced_;
  if (!plain || !Extend(id, {}, 0, &message_.announcements)) {
    message_.announcements.push_back(id == kNoId ? Full(request, ordinal)
                                                 : Cached(id, ordinal, sizes));
  }
  const Key key{request.name, ordinal};
  pending_[key] = {operation, std::move(request)};
}

std::string SimClient::Send(bool block, bool joins) {
  if (block) urgent_ = announced_;
  message_.some_urgent = message_.all_urgent = urgent_;
  message_.joins = joins;
  joined_ |= joins;
  full_ =
      static_cast<int>(std::count_if(message_.announcements.begin(), message_.announcements.end(),
                                     [](const Announcement& a) { return a.id == kNoId; }));
  std::string bytes;
  Encode(message_, &bytes);
  message_ = {};
  return bytes;
}

std::vector<SimClient::Done> SimClient::Receive(const std::string& bytes,
                                                std::vector<std::string>* violations) {
  const auto check = [&](const std::string& wrong) {
    if (!wrong.empty()) violations->push_back("rank " + std::to_string(rank_) + ": " + wrong);
  };
  std::vector<Done> done;
  stream_ = HashBytes(stream_, bytes);
  Response response;
  check(Decode(bytes, &response).message());
  if (response.number != ++number_) check("response numbers have a gap");
  for (Decision& decision : EachOf(response)) check(CarryOut(std::move(decision), &done));
  if (response.last_joined.known()) check(EndJoin());
  return done;
}

std::string SimClient::CarryOut(Decision decision, std::vector<Done>* done) {
  if (decision.known && decision.id >= cache_.size()) return "a known id was never learned";
  const bool by_id = decision.known && decision.ordinal == 0;
  const auto found =
      pending_.find({by_id ? cache_.At(decision.id).name : decision.name, decision.ordinal});
  Done& one = done->emplace_back();
  one.decision = std::move(decision);
  if (found != pending_.end()) {
    one.operation = found->second.operation;
    one.request = std::move(found->second.request);
    pending_.erase(found);
  } else if (!one.decision.partial || !joined_) {
    return "told to run '" + one.decision.name + "', which is not pending";
  } else if (one.decision.known) {
    one.request = cache_.At(one.decision.id);
  } else if (one.decision.request) {
    one.request = *one.decision.request;
  }
  return one.decision.error.empty() ? Learn(one.decision, one.request) : "";
}

std::string SimClient::Learn(const Decision& decision, const Request& request) {
  if (decision.id == kNoId) return "";
  if (!decision.known) {
    const Status learned = cache_.Learn(decision.id, request);
    if (!learned.ok()) return learned.message();
  }
  return cache_.At(decision.id).SameAs(request) ? "" : "the id means another request";
}

std::string SimClient::EndJoin() {
  if (!joined_) return "the end of a join that it has not asked for";
  joined_ = false;
  ordinal_ = 0;
  return pending_.empty() ? "" : "a join ended with operations pending";
}

}  // namespace hvd::negotiate

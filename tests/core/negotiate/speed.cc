// Nanoseconds per tensor of the steady state: 1,000 known tensors that 2 members announce and one
// response decides.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "negotiate/coordinator.h"
#include "negotiate/response_cache.h"
#include "requests.h"

namespace hvd::negotiate {
namespace {

constexpr int kTensors = 1000;
constexpr int kRounds = 300;

void Time(const char* what, const std::function<void()>& round) {
  double best = 1e18;
  for (int i = 0; i < kRounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    round();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    best = took.count() < best ? took.count() : best;
  }
  std::printf("%-32s %6.1f ns per tensor\n", what, best / kTensors);
}

std::vector<Request> Model() {
  std::vector<Request> model;
  for (int i = 0; i < kTensors; ++i) {
    model.push_back(
        Allreduce("model.layers." + std::to_string(i) + ".attention.weight", {64, i + 1}));
  }
  return model;
}

void Codec() {
  AnnounceMessage announce;
  Response response;
  for (uint32_t id = 0; id < kTensors; ++id) {
    announce.announcements.push_back(Cached(id));
    response.decisions.emplace_back().id = id;
    response.decisions.back().known = true;
  }
  std::string bytes;
  Time("encode cached announcement", [&] { bytes.clear(), Encode(announce, &bytes); });
  Time("decode cached announcement", [&] { (void)Decode(bytes, &announce).ok(); });
  std::string published;
  Time("encode known decision", [&] { published.clear(), Encode(response, &published); });
  Time("decode known decision", [&] { (void)Decode(published, &response).ok(); });
}

void Cache() {
  const std::vector<Request> model = Model();
  ResponseCache cache(kTensors);
  for (uint32_t id = 0; id < kTensors; ++id) (void)cache.Learn(id, model[id]).ok();
  uint64_t sum = 0;
  Time("find in cache", [&] {
    for (const Request& request : model) sum += cache.Find(request);
  });
  if (sum == 0) std::abort();  // keeps the loop
}

// What a node whose children announce one run each spends on each operation of it: for each child,
// and for the response.
void MergeRuns(size_t children) {
  MergerOptions options;
  for (int c = 0; c < static_cast<int>(children); ++c)
    options.children.push_back({GlobalRank(c), Positions{c}});
  Merger node(std::move(options));
  AnnounceMessage full;
  Response response;
  for (const Request& request : Model()) {
    full.announcements.push_back(Full(request));
    Decision& decision = response.decisions.emplace_back();
    decision.id = static_cast<uint32_t>(response.decisions.size()) - 1;
    decision.name = request.name;
  }
  AnnounceMessage run = Message({Run(0, kTensors)});
  double announce = 1e18;
  double pass = 1e18;
  for (int round = 0; round <= kRounds; ++round) {
    run.some_urgent = run.all_urgent = static_cast<uint64_t>(round + 1) * kTensors;
    const auto begin = std::chrono::steady_clock::now();
    for (size_t c = 0; c < children; ++c) {
      AnnounceMessage message = round == 0 ? full : run;
      if (!node.Announce(c, std::move(message), 0).ok()) std::abort();
    }
    AnnounceMessage merged;
    while (node.Take(&merged)) continue;
    const auto middle = std::chrono::steady_clock::now();
    if (!node.Pass(response).ok()) std::abort();
    const auto end = std::chrono::steady_clock::now();
    announce = std::min(announce, std::chrono::duration<double, std::nano>(middle - begin).count());
    pass = std::min(pass, std::chrono::duration<double, std::nano>(end - middle).count());
    response.decisions.assign(1, {});
    response.decisions[0].id = 0;
    response.decisions[0].count = kTensors;
    response.decisions[0].known = true;
  }
  const std::string what = "of " + std::to_string(children) + " children";
  std::printf("%-32s %6.1f ns per tensor and child\n", ("merge runs " + what).c_str(),
              announce / kTensors / static_cast<double>(children));
  std::printf("%-32s %6.1f ns per tensor\n", ("pass a run " + what).c_str(), pass / kTensors);
}

// `runs`: the named ones are announced as one run.
void Sequence(bool named, bool runs, int members) {
  SequencerOptions options;
  options.batch_bytes = int64_t{1} << 40;
  options.members = Members::Everybody(members);
  options.learning.repeats = 0;  // they follow no schedule
  Coordinator root(options);
  const std::vector<Request> model = Model();
  AnnounceMessage message;
  uint64_t ordinal = 0;
  for (int i = 0; i < kTensors; ++i) {
    const auto at = static_cast<size_t>(i);
    message.announcements.push_back(named ? Full(model[at]) : Full(Allreduce("", {4}), ++ordinal));
  }
  for (int member = 0; member < members; ++member)
    (void)root.Announce(static_cast<size_t>(member), message, 0).ok();
  while (root.Next(1 << 20)) continue;
  uint64_t announced = kTensors;
  std::vector<AnnounceMessage> messages;
  const std::string what = std::string("sequence ") +
                           (!named ? "unnamed, "
                            : runs ? "run, "
                                   : "named, ") +
                           std::to_string(members);
  double best = 1e18;
  for (int round = 0; round < (members > 2 ? 5 : kRounds); ++round) {
    messages.assign(static_cast<size_t>(members), {});
    announced += kTensors;
    for (AnnounceMessage& one : messages) {
      one.some_urgent = one.all_urgent = announced;
      for (uint32_t i = 0; i < kTensors; ++i) {
        const Announcement next = named ? Cached(i) : Cached(0, ordinal + i + 1);
        const bool extends = named && runs && Extend(i, {}, 0, &one.announcements);
        if (!extends) one.announcements.push_back(next);
      }
    }
    ordinal += kTensors;
    const auto begin = std::chrono::steady_clock::now();
    for (int member = 0; member < members; ++member) {
      const auto at = static_cast<size_t>(member);
      (void)root.Announce(at, std::move(messages[at]), 1 << 21).ok();
    }
    const auto response = root.Next(1 << 21);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    if (!response || OperationsIn(*response) != kTensors) std::abort();
    best = took.count() < best ? took.count() : best;
  }
  std::printf("%-32s %6.1f ns per tensor\n", (what + " members").c_str(), best / kTensors);
}

}  // namespace
}  // namespace hvd::negotiate

int main() {
  hvd::negotiate::Codec();
  hvd::negotiate::Cache();
  for (const size_t children : {2, 8, 32}) hvd::negotiate::MergeRuns(children);
  for (int members : {2, 1000}) {
    hvd::negotiate::Sequence(true, true, members);
    hvd::negotiate::Sequence(true, false, members);
    hvd::negotiate::Sequence(false, false, members);
  }
}

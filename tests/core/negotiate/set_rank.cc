#include "set_rank.h"

#include <algorithm>

namespace hvd::negotiate {

SetRank::SetRank(const SetProgram* program, int rank, SetLedger* ledger,
                 std::vector<std::string>* violations)
    : program_(program),
      rank_(rank),
      ledger_(ledger),
      violations_(violations),
      random_(program->seed ^ (static_cast<uint64_t>(rank + 1) << 32)) {
  clients_.emplace(0, rank);
  BeginAct(0);
}

bool SetRank::idle() const {
  return std::all_of(clients_.begin(), clients_.end(),
                     [](const auto& client) { return client.second.idle(); });
}

// After the barrier.
void SetRank::EnterSets() {
  for (auto client = clients_.begin(); client != clients_.end();) {
    const bool removed = epoch().sets.count(client->first) == 0;
    client = removed ? clients_.erase(client) : std::next(client);
  }
  for (const auto& [set, members] : epoch().sets) {
    if (std::binary_search(members.begin(), members.end(), rank_)) clients_.emplace(set, rank_);
  }
}

void SetRank::BeginAct(int act) {
  act_ = act;
  phase_ = Phase::kSubmitting;
  order_.clear();
  const int last = epoch().acts[static_cast<size_t>(rank_)] + 1;
  for (size_t i = 0; i < epoch().operations.size(); ++i) {
    const SetOperation& operation = epoch().operations[i];
    if (std::min(operation.act, last) != act) continue;
    if (!std::binary_search(operation.ranks.begin(), operation.ranks.end(), rank_)) continue;
    order_.push_back(i);
    if (operation.waits) awaited_.insert(i);
  }
  random_.Shuffle(&order_);
  KeepOrder();
  holds_ = last_act() && random_.OneIn(2);
}

// The unnamed operations keep their order: that is what matches them.
void SetRank::KeepOrder() {
  const auto unnamed = [&](size_t i) { return epoch().operations[i].request.name.empty(); };
  std::vector<size_t> in_order;
  std::copy_if(order_.begin(), order_.end(), std::back_inserter(in_order), unnamed);
  std::sort(in_order.rbegin(), in_order.rend());
  auto next = in_order.begin();
  for (size_t& i : order_) {
    if (unnamed(i)) i = *next++;
  }
}

std::vector<SetRank::Mail> SetRank::Go() {
  if (phase_ == Phase::kJoining) return Join();
  if (!order_.empty()) return Submit();
  if (!last_act()) return Block();
  for (const auto& [set, client] : clients_) {
    to_join_.push_back(set);
    joining_.insert(set);
  }
  random_.Shuffle(&to_join_);
  phase_ = Phase::kJoining;
  return Join();
}

SetRank::Mail SetRank::Send(int set, bool block, bool joins) {
  Mail mail{set, clients_.at(set).Send(block, joins), std::move(unsent_[set]), joins};
  unsent_[set].clear();
  return mail;
}

std::vector<SetRank::Mail> SetRank::Submit() {
  std::set<int> sets;
  for (uint64_t burst = 1 + random_.Below(5); burst > 0 && !order_.empty(); --burst) {
    const size_t operation = order_.back();
    order_.pop_back();
    const int set = epoch().operations[operation].set;
    clients_.at(set).Announce(RequestOf(*program_, epoch_, operation, rank_), operation);
    unsent_[set].push_back(operation);
    sets.insert(set);
  }
  std::vector<Mail> mails;
  const bool block = random_.OneIn(8);
  for (int set : sets) {
    if (!holds_) mails.push_back(Send(set, block));
  }
  return mails;
}

std::vector<SetRank::Mail> SetRank::Block() {
  std::set<int> sets;
  for (size_t operation : awaited_) sets.insert(epoch().operations[operation].set);
  std::vector<Mail> mails;
  for (int set : sets) mails.push_back(Send(set, true));
  phase_ = Phase::kWaiting;
  Proceed();
  return mails;
}

std::vector<SetRank::Mail> SetRank::Join() {
  std::vector<Mail> mails;
  for (bool all = random_.OneIn(2), first = true; !to_join_.empty() && (all || first);
       first = false) {
    mails.push_back(Send(to_join_.back(), random_.OneIn(2), true));
    to_join_.pop_back();
  }
  if (to_join_.empty()) phase_ = Phase::kJoined;
  return mails;
}

void SetRank::Receive(int set, const std::string& bytes) {
  const auto client = clients_.find(set);
  if (client == clients_.end())
    return violations_->push_back("a response of a set that is not there");
  const bool joined = client->second.joined();
  for (const SimClient::Done& done : client->second.Receive(bytes, violations_)) {
    ledger_->Completed(set, rank_, epoch_, done);
    awaited_.erase(done.operation);
  }
  if (joined && !client->second.joined()) joining_.erase(set);
  Proceed();
}

void SetRank::Proceed() {
  if (phase_ == Phase::kWaiting && awaited_.empty()) {
    if (act_ == 0) EnterSets();
    return BeginAct(act_ + 1);
  }
  if (phase_ != Phase::kJoined || !joining_.empty()) return;
  if (++epoch_ < program_->epochs.size()) return BeginAct(0);
  phase_ = Phase::kFinished;
}

}  // namespace hvd::negotiate

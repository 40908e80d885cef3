#include "set_ledger.h"

#include <algorithm>

#include "requests.h"

namespace hvd::negotiate {

SetLedger::SetLedger(const SetProgram* program, std::vector<std::string>* violations)
    : program_(program), violations_(violations) {}

void SetLedger::Formed(int set, size_t epoch) {
  Account& account = accounts_[set];
  account.members = program_->epochs[epoch].sets.at(set);
  account.epoch = epoch;
  BeginEpoch(set, &account);
}

void SetLedger::BeginEpoch(int set, Account* account) {
  account->announced.clear();
  account->joined.clear();
  if (account->epoch == program_->epochs.size()) return;
  const std::vector<SetOperation>& operations = program_->epochs[account->epoch].operations;
  uint64_t ordinal = 0;
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].set != set) continue;
    const std::string& name = operations[i].request.name;
    account->awaited[{name, name.empty() ? ++ordinal : 0}].push_back(i);
  }
}

void SetLedger::Announced(int set, int rank, const std::vector<size_t>& operations) {
  for (size_t operation : operations) accounts_.at(set).announced[operation].insert(rank);
}

void SetLedger::Joined(int set, int rank) {
  Account& account = accounts_.at(set);
  account.joined.insert(rank);
  account.last_joined = rank;
}

void SetLedger::Published(int set, const Response& response) {
  Account& account = accounts_.at(set);
  for (const Decision& decision : EachOf(response)) Judge(decision, &account);
  if (response.last_joined.known()) return EndEpoch(set, response, &account);
  if (response.decisions.empty()) Violation("an empty response");
}

void SetLedger::Judge(const Decision& decision, Account* account) {
  ++decisions_;
  if (decision.id != kNoId && !decision.known) account->name_of_id[decision.id] = decision.name;
  const bool by_id = decision.known && decision.ordinal == 0;
  const auto found = account->awaited.find(
      {by_id ? account->name_of_id[decision.id] : decision.name, decision.ordinal});
  if (found == account->awaited.end()) return Violation("a decision that nobody awaits");
  const size_t operation = found->second.front();
  found->second.pop_front();
  if (found->second.empty()) account->awaited.erase(found);
  account->stream.push_back({account->epoch, operation});
  JudgeContent(decision, operation, *account);
  epochs_ += operation == 0;
}

void SetLedger::JudgeContent(const Decision& decision, size_t operation, const Account& account) {
  const SetOperation& planned = At({account.epoch, operation});
  const auto announced = account.announced.find(operation);
  const std::set<int> expected(planned.ranks.begin(), planned.ranks.end());
  if (announced == account.announced.end() || announced->second != expected)
    Violation("a decision before all its ranks have announced it");
  for (int member : account.members) {
    if (expected.count(member) + account.joined.count(member) == 0)
      Violation("a decision without a member that has not joined");
  }
  if (decision.partial != (expected.size() < account.members.size()))
    Violation("partial or not, wrongly");
  partial_ += decision.partial;
  const std::string error = ErrorOf(planned);
  errors_ += !error.empty();
  if (decision.error.substr(0, error.size()) != error || error.empty() != decision.error.empty())
    Violation("'" + decision.error + "' instead of '" + error + "'");
  if (!error.empty()) return;
  if (decision.sizes != SizesOf(*program_, account.epoch, operation)) Violation("wrong sizes");
}

void SetLedger::EndEpoch(int set, const Response& response, Account* account) {
  ++joins_;
  if (account->joined.size() != account->members.size())
    Violation("a join ended before all had joined");
  // On a tree of several nodes, others may seem to be the last.
  const bool star = *std::max_element(program_->hosts.begin(), program_->hosts.end()) == 0;
  const int last = response.last_joined.value();
  if (star ? last != account->last_joined : account->joined.count(last) == 0)
    Violation("a join named the wrong rank as the last");
  if (!account->awaited.empty()) Violation("a join ended before all was decided");
  ++account->epoch;
  BeginEpoch(set, account);
}

// In the order of the stream, so that nothing is done twice or left out.
void SetLedger::Completed(int set, int rank, size_t epoch, const SimClient::Done& done) {
  Account& account = accounts_.at(set);
  size_t& next = account.completed[rank];
  if (next == account.stream.size()) return Violation("a completion that was never decided");
  const Place place = account.stream[next++];
  const std::vector<int>& ranks = At(place).ranks;
  const bool takes_part = std::binary_search(ranks.begin(), ranks.end(), rank);
  if (place.first != epoch) Violation("an operation of another epoch completed");
  if (done.operation != (takes_part ? place.second : SimClient::kNone))
    Violation("rank " + std::to_string(rank) + " completed something else");
  if (!takes_part && done.decision.error.empty() && done.request.kind != At(place).request.kind)
    Violation("rank " + std::to_string(rank) + ", which has joined, takes part in something else");
}

void SetLedger::Finish() {
  for (const auto& [set, account] : accounts_) {
    const std::string name = "set " + std::to_string(set);
    if (!account.awaited.empty()) Violation(name + " has undecided operations");
    for (int member : account.members) {
      const auto completed = account.completed.find(member);
      const size_t count = completed == account.completed.end() ? 0 : completed->second;
      if (count != account.stream.size())
        Violation(name + " has operations that not all have completed");
    }
  }
  if (epochs_ != program_->epochs.size()) Violation("not all epochs began");
}

}  // namespace hvd::negotiate

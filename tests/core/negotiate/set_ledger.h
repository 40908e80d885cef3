#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "set_program.h"
#include "sim_client.h"

namespace hvd::negotiate {

// The simulator's own account of who has submitted and joined what, kept apart from the
// sequencers': by it their decisions, and what the ranks make of them, are judged.
class SetLedger {
 public:
  SetLedger(const SetProgram* program, std::vector<std::string>* violations);

  // At the sequencer.
  void Formed(int set, size_t epoch);
  void Announced(int set, int rank, const std::vector<size_t>& operations);
  void Joined(int set, int rank);
  void Published(int set, const Response& response);

  // At a member.
  void Completed(int set, int rank, size_t epoch, const SimClient::Done& done);

  // Nothing happens any more.
  void Finish();

  size_t epochs() const { return epochs_; }  // whose barrier is published
  int64_t decisions() const { return decisions_; }
  int64_t partial() const { return partial_; }
  int64_t errors() const { return errors_; }
  int64_t joins() const { return joins_; }  // that ended

 private:
  using Key = std::pair<std::string, uint64_t>;  // name or ordinal
  using Place = std::pair<size_t, size_t>;       // epoch and operation
  struct Account {
    std::vector<int> members;
    size_t epoch = 0;
    std::map<Key, std::deque<size_t>> awaited;  // operations in their order
    std::map<size_t, std::set<int>> announced;  // of this epoch
    std::set<int> joined;
    int last_joined = -1;
    std::map<uint32_t, std::string> name_of_id;  // as the stream says
    std::vector<Place> stream;                   // all that was published
    std::map<int, size_t> completed;             // by rank: so many of them
  };

  void BeginEpoch(int set, Account* account);
  void EndEpoch(int set, const Response& response, Account* account);
  void Judge(const Decision& decision, Account* account);
  void JudgeContent(const Decision& decision, size_t operation, const Account& account);
  const SetOperation& At(const Place& place) const {
    return program_->epochs[place.first].operations[place.second];
  }
  void Violation(const std::string& what) { violations_->push_back(what); }

  const SetProgram* program_;
  std::vector<std::string>* violations_;
  std::map<int, Account> accounts_;  // of removed sets, too
  size_t epochs_ = 0;
  int64_t decisions_ = 0;
  int64_t partial_ = 0;
  int64_t errors_ = 0;
  int64_t joins_ = 0;
};

}  // namespace hvd::negotiate

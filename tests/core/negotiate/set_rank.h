#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "random.h"
#include "set_ledger.h"
#include "set_program.h"
#include "sim_client.h"

namespace hvd::negotiate {

// One rank that runs its part of a program over all its sets: submits an act in an order of its own
// and in bursts, waits for it, and joins all its sets at the end of the epoch.
class SetRank {
 public:
  // To the sequencer of a set.
  struct Mail {
    int set;
    std::string bytes;
    std::vector<size_t> operations;  // announced by `bytes`
    bool joins = false;
  };

  SetRank(const SetProgram* program, int rank, SetLedger* ledger,
          std::vector<std::string>* violations);

  // The next thing that it does.
  std::vector<Mail> Go();

  void Receive(int set, const std::string& bytes);

  bool waiting() const {
    return phase_ == Phase::kWaiting || phase_ == Phase::kJoined || finished();
  }
  bool finished() const { return phase_ == Phase::kFinished; }
  bool idle() const;  // nothing is pending in any set

 private:
  enum class Phase : uint8_t { kSubmitting, kWaiting, kJoining, kJoined, kFinished };

  const Epoch& epoch() const { return program_->epochs[epoch_]; }
  bool last_act() const { return act_ > epoch().acts[static_cast<size_t>(rank_)]; }
  void BeginEpoch();
  void EnterSets();
  void BeginAct(int act);
  void KeepOrder();
  void Proceed();
  std::vector<Mail> Submit();
  std::vector<Mail> Block();
  std::vector<Mail> Join();
  Mail Send(int set, bool block, bool joins = false);

  const SetProgram* program_;
  const int rank_;
  SetLedger* ledger_;
  std::vector<std::string>* violations_;
  Random random_;
  std::map<int, SimClient> clients_;  // by set
  std::map<int, std::vector<size_t>> unsent_;
  Phase phase_ = Phase::kSubmitting;
  size_t epoch_ = 0;
  int act_ = 0;
  std::vector<size_t> order_;  // of this act's operations, the next one last
  std::set<size_t> awaited_;
  std::vector<int> to_join_;
  std::set<int> joining_;  // sets whose join has not ended
  bool holds_ = false;     // the last act goes out with the joins
};

}  // namespace hvd::negotiate

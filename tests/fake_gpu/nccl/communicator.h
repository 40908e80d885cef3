#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "nccl/collective.h"
#include "nccl/exchange.h"
#include "nccl/operation.h"

namespace fake_gpu {

struct CreatedOp {
  int dtype;
  unsigned char scale[kScaleBytes];
};

// One rank's end of a communicator. What takes time is done by streams and by one helper thread.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  Communicator(int number, int nranks, int rank, int device, bool blocking)
      : number_(number), nranks_(nranks), rank_(rank), device_(device), blocking_(blocking) {}
  ~Communicator();

  int nranks() const { return nranks_; }
  int rank() const { return rank_; }
  int device() const { return device_; }
  bool blocking() const { return blocking_; }
  std::string Name() const { return std::to_string(number_); }

  // The async error. An error stays; kInProgress ends by itself.
  int state() const { return state_; }
  void SetError(int result, const std::string& why);
  std::string LastError();
  bool IsFinalized() const { return finalized_; }

  // Starts to meet the other ranks at `id`.
  void Init(const std::string& id);
  void AwaitHelper();

  // All calls of a group. A communicator that does not block connects when a kind of call comes for
  // the first time, as NCCL does: kInProgress, and the streams have the calls only later.
  int Launch(std::vector<Call> calls);

  int Finalize();
  void Destroy();  // once all is done
  void Abort();

  int AddOp(const CreatedOp& op);
  bool FindOp(int op, CreatedOp* created);
  bool RemoveOp(int op);
  void DropOps();

 private:
  void Help(std::function<void()> work);
  void Meet(const std::string& id);
  void Connect(const std::vector<Call>& calls);
  bool IsNew(const std::vector<Call>& calls);
  void Enqueue(const std::vector<Call>& calls);
  void EnqueueUnit(std::vector<Call> calls);
  void Carry(uint64_t ticket, const std::vector<Call>& calls);
  bool AwaitTurn(uint64_t ticket);
  void Run(const std::vector<Call>& calls);
  void AwaitAllDone();
  void AwaitAbort();
  void End(int expected, int result);

  const int number_;
  const int nranks_;
  const int rank_;
  const int device_;
  const bool blocking_;
  Exchange exchange_;
  std::atomic<int> state_{0};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> finalized_{false};

  std::mutex helper_mutex_;  // guards helper_, which does not take it
  std::thread helper_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::string last_error_;
  std::set<Kind> connected_;
  std::map<int, CreatedOp> ops_;
  uint64_t called_ = 0;  // units of calls; they run in this order, whichever streams they are on
  uint64_t done_ = 0;
  bool running_ = false;
};
using CommunicatorPtr = std::shared_ptr<Communicator>;

}  // namespace fake_gpu

#include "nccl/communicator.h"

#include <chrono>
#include <cstdio>
#include <utility>

#include "cuda/record.h"
#include "cuda/settings.h"
#include "nccl/abi.h"

namespace fake_gpu {
namespace {

// Of what a communicator that does not block does meanwhile: long enough to be noticed.
constexpr std::chrono::milliseconds kConnectTime{3};

bool Hits(int rank, int whom) { return whom == kEverybody || whom == rank; }

std::set<Stream*> StreamsOf(const std::vector<Call>& calls) {
  std::set<Stream*> streams;
  for (const Call& call : calls) streams.insert(call.stream.get());
  return streams;
}

}  // namespace

Communicator::~Communicator() { AwaitHelper(); }

void Communicator::SetError(int result, const std::string& why) {
  std::fprintf(stderr, "fake NCCL: %s\n", why.c_str());
  Record("error: " + why);
  std::lock_guard<std::mutex> lock(mutex_);
  last_error_ = why;
  if (state_ == kSuccess || state_ == kInProgress) state_ = result;
}

std::string Communicator::LastError() {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_error_;
}

void Communicator::Help(std::function<void()> work) {
  std::lock_guard<std::mutex> lock(helper_mutex_);
  if (helper_.joinable()) helper_.join();
  helper_ = std::thread(std::move(work));
}

void Communicator::AwaitHelper() {
  std::lock_guard<std::mutex> lock(helper_mutex_);
  if (helper_.joinable()) helper_.join();
}

// An error that came in between stays.
void Communicator::End(int expected, int result) {
  state_.compare_exchange_strong(expected, result);
}

void Communicator::Init(const std::string& id) {
  state_ = kInProgress;
  Help([this, id] { Meet(id); });
}

void Communicator::Meet(const std::string& id) {
  if (!blocking_) std::this_thread::sleep_for(kConnectTime);
  if (Hits(rank_, TheSettings().nccl_init_fails)) {
    return SetError(kSystem, "FAKE_NCCL_INIT_FAILS at rank " + std::to_string(rank_));
  }
  const bool hangs = Hits(rank_, TheSettings().nccl_init_hangs);
  if (hangs) AwaitAbort();
  std::string why;
  if (!hangs) {
    if (const int result = exchange_.Attach(id, nranks_, rank_, device_, &why)) {
      return SetError(result, why);
    }
  }
  if (hangs || !exchange_.AwaitAll([this] { return aborted_.load(); })) return Exchange::Remove(id);
  const int other = TheSettings().nccl_refuses_duplicates ? exchange_.SameDevice() : -1;
  if (other >= 0) {
    return SetError(kInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(rank_) +
                                       " and rank " + std::to_string(other) + " both on device " +
                                       std::to_string(device_));
  }
  End(kInProgress, kSuccess);
}

int Communicator::Launch(std::vector<Call> calls) {
  if (blocking_ || !IsNew(calls)) {
    Enqueue(calls);
    return kSuccess;
  }
  state_ = kInProgress;
  for (Stream* stream : StreamsOf(calls)) stream->Hold(1);
  Help([this, calls = std::move(calls)] { Connect(calls); });
  return kInProgress;
}

bool Communicator::IsNew(const std::vector<Call>& calls) {
  bool any = false;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const Call& call : calls) any |= connected_.insert(call.what.kind).second;
  return any;
}

void Communicator::Connect(const std::vector<Call>& calls) {
  std::this_thread::sleep_for(kConnectTime);
  Enqueue(calls);
  for (Stream* stream : StreamsOf(calls)) stream->Hold(-1);
  End(kInProgress, kSuccess);
}

// Collectives one by one; the sends and receives of a group together, since each may wait for
// another.
void Communicator::Enqueue(const std::vector<Call>& calls) {
  std::vector<Call> transfers;
  for (const Call& call : calls) {
    if (call.what.IsPointToPoint()) {
      transfers.push_back(call);
    } else {
      EnqueueUnit({call});
    }
  }
  if (!transfers.empty()) EnqueueUnit(std::move(transfers));
}

void Communicator::EnqueueUnit(std::vector<Call> calls) {
  const StreamPtr stream = calls.front().stream;
  std::lock_guard<std::mutex> lock(mutex_);
  stream->Enqueue([self = shared_from_this(), ticket = called_++, calls = std::move(calls)] {
    self->Carry(ticket, calls);
  });
}

void Communicator::Carry(uint64_t ticket, const std::vector<Call>& calls) {
  if (AwaitTurn(ticket)) Run(calls);
  std::lock_guard<std::mutex> lock(mutex_);
  ++done_;
  running_ = false;
  changed_.notify_all();
}

// False where the call must do nothing, because of an abort or an error.
bool Communicator::AwaitTurn(uint64_t ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return done_ == ticket || aborted_; });
  const bool works = state_ == kSuccess || state_ == kInProgress;
  running_ = works && !aborted_;
  return running_;
}

void Communicator::Run(const std::vector<Call>& calls) {
  std::vector<BlockPtr> read;
  std::vector<BlockPtr> written;
  for (const Call& call : calls) {
    read.insert(read.end(), call.read.begin(), call.read.end());
    written.insert(written.end(), call.written.begin(), call.written.end());
    if (!call.fails) continue;
    SetError(kRemote, "FAKE_NCCL_ASYNC_FAIL_AT at rank " + std::to_string(rank_));
    return AwaitAbort();
  }
  const Operation& first = calls.front().what;
  const Use use(*calls.front().stream, std::move(read), std::move(written));
  if (!use.why().empty()) {
    return SetError(Fail(kUnhandledCuda, NameOf(first.kind) + (": " + use.why())), use.why());
  }
  std::string why;
  const Seating seating{&exchange_, nranks_, rank_, [this] { return aborted_.load(); }};
  const int result = first.IsPointToPoint() ? RunPointToPoint(seating, calls, &why)
                                            : RunCollective(seating, calls.front(), &why);
  if (result != kSuccess) SetError(result, why);
}

void Communicator::AwaitAbort() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return aborted_.load(); });
}

void Communicator::AwaitAllDone() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return done_ == called_ || aborted_; });
}

int Communicator::Finalize() {
  finalized_ = true;
  if (blocking_) {
    AwaitAllDone();
    return state_;
  }
  state_ = kInProgress;
  Help([this] {
    AwaitAllDone();
    End(kInProgress, kSuccess);
  });
  return kInProgress;
}

void Communicator::Destroy() {
  AwaitAllDone();
  AwaitHelper();
}

// Calls that a stream has not come to yet will do nothing; the one that runs is waited for.
void Communicator::Abort() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }
  AwaitHelper();
  std::this_thread::sleep_for(std::chrono::milliseconds(TheSettings().nccl_abort_ms));
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return !running_; });
}

int Communicator::AddOp(const CreatedOp& op) {
  static std::atomic<int> next{kFirstCreated};
  const int number = next++;
  std::lock_guard<std::mutex> lock(mutex_);
  ops_[number] = op;
  Own("reduce op", std::to_string(number));
  return number;
}

bool Communicator::FindOp(int op, CreatedOp* created) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = ops_.find(op);
  if (found == ops_.end()) return false;
  *created = found->second;
  return true;
}

bool Communicator::RemoveOp(int op) {
  std::lock_guard<std::mutex> lock(mutex_);
  Disown("reduce op", std::to_string(op));
  return ops_.erase(op) > 0;
}

void Communicator::DropOps() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& op : ops_) Disown("reduce op", std::to_string(op.first));
  ops_.clear();
}

}  // namespace fake_gpu

#include "trace/timeline.h"

#include <pthread.h>
#include <strings.h>

#include <algorithm>
#include <csignal>
#include <exception>

#include "base/clock.h"
#include "base/status.h"
#include "base/waker.h"
#include "settings/log.h"

namespace hvd {

namespace {

constexpr int64_t kGatherMicros = 100'000;
constexpr std::string_view kRankMark = "{rank}";

// Signals are for the program's threads. This also makes the one that a file grown too large raises
// harmless.
std::thread ThreadWithoutSignals(void (*body)(void*), void* argument) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(body, argument);
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

void KeepShape(const Shape* shape, Contents* contents) {
  if (shape == nullptr || shape->size() > Contents::kMostDims) return;
  contents->dims = static_cast<uint8_t>(shape->size());
  std::copy(shape->begin(), shape->end(), contents->shape);
}

Contents ContentsOf(const OperationInfo& info) {
  Contents contents;
  contents.bytes = info.bytes;
  contents.tensors = info.tensors;
  contents.dtype = info.dtype;
  contents.kind = info.kind;
  KeepShape(info.shape, &contents);
  return contents;
}

Contents ContentsOf(const MessageInfo& info) {
  Contents contents;
  contents.bytes = info.bytes;
  contents.tensors = 1;
  contents.dtype = info.dtype;
  contents.message = info.sends ? Contents::kSend : Contents::kReceive;
  contents.peer = info.peer.value();
  contents.tag = info.tag;
  KeepShape(info.shape, &contents);
  return contents;
}

}  // namespace

bool Timeline::IsDynamic(const std::string& setting) {
  return strcasecmp(setting.c_str(), "DYNAMIC") == 0;
}

bool Timeline::Wanted(const std::string& setting, int rank) {
  return IsDynamic(setting) || !FileOf(setting, rank).empty();
}

std::string Timeline::FileOf(const std::string& path, int rank) {
  std::string file = path;
  size_t at = file.find(kRankMark);
  if (at == std::string::npos) return rank == 0 ? file : "";
  const std::string number = std::to_string(rank);
  for (; at != std::string::npos; at = file.find(kRankMark, at + number.size())) {
    file.replace(at, kRankMark.size(), number);
  }
  return file;
}

Status Timeline::Start(const std::string& path, bool mark_cycles) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string file = FileOf(path, rank_);
  if (file.empty() || thread_.joinable()) return Status::Ok();
  auto writer = std::make_unique<TraceWriter>(rank_);
  HVD_RETURN_IF_ERROR(writer->Open(file));
  writer_ = std::move(writer);
  ring_.Allocate();
  ring_.Drain([](const Record&, const Contents&, std::string_view) {
  });  // of a recorder that was late for the last one
  stopping_.store(false);
  reported_ = refused_.load();
  warned_ = false;
  thread_ =
      ThreadWithoutSignals([](void* self) { static_cast<Timeline*>(self)->WriteLoop(); }, this);
  marking_.store(mark_cycles);
  recording_.store(true);
  return Status::Ok();
}

Status Timeline::Stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable()) return Status::Ok();
  recording_.store(false);
  stopping_.store(true);
  Wake();
  thread_.join();
  return Status::Ok();
}

void Timeline::Begin(uint64_t operation, uint32_t process_set, const OperationInfo& info) {
  if (!recording_.load(std::memory_order_relaxed)) return;
  const Contents contents = ContentsOf(info);
  Add({0, operation, info.scheduled ? GatePhase(info.kind) : NegotiatePhase(info.kind), process_set,
       0, 0, Record::kBegin},
      &contents, info.name.substr(0, EventRing::kLongestName), EventRing::kReserve);
}

void Timeline::BeginMessage(uint64_t operation, uint32_t process_set, const MessageInfo& info) {
  if (!recording_.load(std::memory_order_relaxed)) return;
  const Contents contents = ContentsOf(info);
  Add({0, operation, AwaitPhase(info.sends), process_set, 0, 0, Record::kBegin}, &contents, {},
      EventRing::kReserve);
}

void Timeline::Phase(uint64_t operation, const char* phase) {
  Add({0, operation, phase, 0, 0, 0, Record::kPhase}, nullptr, {}, 0);
}

void Timeline::End(uint64_t operation) {
  Add({0, operation, nullptr, 0, 0, 0, Record::kEnd}, nullptr, {}, 0);
}

void Timeline::Ready(uint32_t process_set, OpKind kind, std::string_view name, GlobalRank rank) {
  if (name.empty()) return;
  Add({0, static_cast<uint64_t>(rank.value()), Name(kind), process_set, 0, 0, Record::kReady},
      nullptr, name.substr(0, EventRing::kLongestName), EventRing::kReserve);
}

void Timeline::MarkCycle() {
  if (!marking_.load(std::memory_order_relaxed)) return;
  Add({0, 0, nullptr, 0, 0, 0, Record::kCycle}, nullptr, {}, EventRing::kReserve);
}

void Timeline::Add(Record record, const Contents* contents, std::string_view name, size_t free) {
  if (!recording_.load(std::memory_order_acquire)) return;
  record.time_ns = NowNanos();
  if (!ring_.Push(record, contents, name, free)) refused_.fetch_add(1, std::memory_order_relaxed);
  const uint32_t state = state_.load(std::memory_order_seq_cst);
  if (state == kIdle || (state == kGathering && ring_.Crowded())) Wake();
}

void Timeline::Wake() {
  if (state_.exchange(kWorking) != kWorking) WakeFutex(state_);
}

void Timeline::WriteLoop() {
  PrepareToThrow();
  pthread_setname_np(pthread_self(), "hvd-timeline");
  // The library throws when memory runs out. Outside the thread that would end the whole process.
  try {
    WriteUntilStopped();
  } catch (const std::exception& error) {
    GiveUp(error);
  }
}

void Timeline::GiveUp(const std::exception& error) {
  recording_.store(false);
  try {
    Log(LogLevel::kWarning, std::string("the timeline: ") + error.what() +
                                "; it ends here, the job goes on without it");
  } catch (const std::exception&) {
    return;  // not even for the warning is there memory
  }
}

void Timeline::WriteUntilStopped() {
  while (!stopping_.load()) {
    Sleep(kIdle, -1);
    Sleep(kGathering, kGatherMicros);
    WritePending();
  }
  WritePending();
  writer_->Close(NowNanos());
  WarnOnce();
  if (writer_->lost() == 0) return;
  Log(LogLevel::kWarning, "the timeline lacks " + std::to_string(writer_->lost()) + " events");
}

// Returns early: a little less is gathered then.
void Timeline::Sleep(State state, int64_t limit_us) {
  state_.store(state);
  const bool awaited = state == kGathering || ring_.empty();
  if (awaited && !stopping_.load()) WaitOnFutex(state_, state, limit_us);
  state_.store(kWorking);
}

void Timeline::WritePending() {
  ring_.Drain([this](const Record& record, const Contents& contents, std::string_view name) {
    writer_->Write(record, contents, name);
  });
  const uint64_t refused = refused_.load(std::memory_order_relaxed);
  if (refused != reported_) writer_->Lost(refused - reported_);
  reported_ = refused;
  writer_->Flush();
  WarnOnce();
}

void Timeline::WarnOnce() {
  if (writer_->status().ok() || warned_) return;
  warned_ = true;
  recording_.store(false);
  Log(LogLevel::kWarning,
      writer_->status().message() + "; the timeline ends here, the job goes on without it");
}

}  // namespace hvd

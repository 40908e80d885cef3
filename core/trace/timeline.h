#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/event_sink.h"
#include "base/status.h"
#include "trace/event_ring.h"
#include "trace/trace_writer.h"

namespace hvd {

// Writes the events as Chrome trace JSON (array format), which chrome://tracing and Perfetto open.
// Recording puts a few bytes into a ring; a thread of its own does everything else. When that is
// slower than the job, or the disk is full, events are dropped, and the job is not held up.
class Timeline : public EventSink {
 public:
  explicit Timeline(int rank) : rank_(rank) {}
  ~Timeline() override { (void)Stop(); }

  // Whether `setting` asks to wait for the program to name the file.
  static bool IsDynamic(const std::string& setting);
  // Whether a rank may ever write something by that setting.
  static bool Wanted(const std::string& setting, int rank);
  // `path` with the rank in place of every "{rank}". Empty where this rank writes none: without
  // "{rank}" there is one file, and rank 0 writes it.
  static std::string FileOf(const std::string& path, int rank);

  // Nothing is recorded until started. While a timeline is being written, that one goes on. An
  // error when the file cannot be opened. `mark_cycles`: the batches too.
  Status Start(const std::string& path, bool mark_cycles);
  // What went wrong while writing has been logged: it is no error of the program that stops.
  Status Stop();

  void Begin(uint64_t operation, uint32_t process_set, const OperationInfo& info) override;
  void BeginMessage(uint64_t operation, uint32_t process_set, const MessageInfo& info) override;
  void Phase(uint64_t operation, const char* phase) override;
  void End(uint64_t operation) override;
  void Ready(uint32_t process_set, OpKind kind, std::string_view name, GlobalRank rank) override;
  void MarkCycle() override;

 private:
  // What the writer thread does. It is woken from kIdle by the first event, from kGathering when
  // the ring fills.
  enum State : uint32_t { kWorking, kGathering, kIdle };

  void Add(Record record, const Contents* contents, std::string_view name, size_t free);
  void Wake();
  void WriteLoop();
  void WriteUntilStopped();
  void GiveUp(const std::exception& error);
  void Sleep(State state, int64_t limit_us);
  void WritePending();
  void WarnOnce();

  const int rank_;
  std::mutex mutex_;  // held by Start and Stop
  std::thread thread_;
  std::unique_ptr<TraceWriter> writer_;  // the thread's while it runs

  std::atomic<bool> recording_{false};
  std::atomic<bool> marking_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<uint32_t> state_{kWorking};
  std::atomic<uint64_t> refused_{0};
  uint64_t reported_ = 0;  // of refused_; this and the next are the thread's
  bool warned_ = false;
  EventRing ring_;
};

}  // namespace hvd

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/event_sink.h"
#include "base/status.h"

namespace hvd {

// Writes the events as Chrome trace JSON (array format), which chrome://tracing and Perfetto open. Each
// tensor is a row. Events are kept in memory for a moment and written by a thread of its own; when the disk
// is slower than the job, events are dropped and counted rather than the job held up.
class Timeline : public EventSink {
 public:
  explicit Timeline(int rank) : rank_(rank) {}
  ~Timeline() override { (void)Stop(); }

  // Nothing is recorded until started. An error when the file cannot be made or one is being written.
  // `mark_cycles`: the batches too.
  Status Start(const std::string& path, bool mark_cycles);
  Status Stop();

  void Begin(std::string_view tensor, std::string_view phase) override;
  void End(std::string_view tensor) override;
  void MarkCycle() override;

 private:
  struct Event {
    int64_t time_us;
    int row;
    char type;  // Chrome's: 'B', 'E', 'i' for an instant, or 'M' for the name of a row
    std::string text;
  };

  void Add(char type, std::string_view tensor, std::string_view phase);
  int RowOf(std::string_view tensor, int64_t now_us);
  void WriteLoop();
  void Write(const std::vector<Event>& events);

  const int rank_;
  std::atomic<bool> recording_{false};
  std::atomic<bool> marking_{false};
  std::mutex mutex_;  // guards what follows up to file_
  std::condition_variable changed_;
  std::vector<Event> pending_;
  std::map<std::string, int, std::less<>> rows_;
  uint64_t dropped_ = 0;
  bool stopping_ = false;
  FILE* file_ = nullptr;  // the writer thread's while it runs
  bool first_ = true;
  std::thread writer_;
};

}  // namespace hvd

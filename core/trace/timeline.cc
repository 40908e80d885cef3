#include "trace/timeline.h"

#include <chrono>

#include "base/clock.h"
#include "base/log.h"

namespace hvd {

namespace {

constexpr size_t kMostPending = 1 << 20;
constexpr auto kWritePeriod = std::chrono::milliseconds(100);

std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace

Status Timeline::Start(const std::string& path, bool mark_cycles) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (file_ != nullptr)
    return Status::Invalid("a timeline is being written already; call stop_timeline() first");
  file_ = std::fopen(path.c_str(), "we");
  if (file_ == nullptr) return Status::Errno("cannot write the timeline " + path);
  std::fputs("[\n", file_);
  first_ = true;
  stopping_ = false;
  rows_.clear();
  writer_ = std::thread([this] { WriteLoop(); });
  marking_.store(mark_cycles);
  recording_.store(true);
  return Status::Ok();
}

Status Timeline::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (file_ == nullptr) return Status::Ok();
    recording_.store(false);
    stopping_ = true;
  }
  changed_.notify_all();
  writer_.join();
  std::fputs("\n]\n", file_);
  const bool failed = std::ferror(file_) != 0;
  std::fclose(file_);
  file_ = nullptr;
  if (dropped_ > 0) Log(LogLevel::kWarning, "the timeline lacks " + std::to_string(dropped_) + " events");
  return failed ? Status::Errno("the timeline is not complete") : Status::Ok();
}

void Timeline::Begin(std::string_view tensor, std::string_view phase) { Add('B', tensor, phase); }
void Timeline::End(std::string_view tensor) { Add('E', tensor, {}); }

void Timeline::MarkCycle() {
  if (marking_.load(std::memory_order_relaxed)) Add('i', "cycles", "CYCLE_START");
}

void Timeline::Add(char type, std::string_view tensor, std::string_view phase) {
  if (!recording_.load(std::memory_order_relaxed)) return;
  const int64_t now = NowMicros();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (pending_.size() >= kMostPending) {
    ++dropped_;
    return;
  }
  const int row = RowOf(tensor, now);
  pending_.push_back({now, row, type, std::string(phase)});
}

int Timeline::RowOf(std::string_view tensor, int64_t now_us) {
  const auto found = rows_.find(tensor);
  if (found != rows_.end()) return found->second;
  const int row = static_cast<int>(rows_.size()) + 1;
  rows_.emplace(tensor, row);
  pending_.push_back({now_us, row, 'M', std::string(tensor)});
  return row;
}

void Timeline::WriteLoop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (bool last = false; !last;) {
    changed_.wait_for(lock, kWritePeriod, [this] { return stopping_; });
    last = stopping_;
    std::vector<Event> events;
    events.swap(pending_);
    lock.unlock();
    Write(events);
    lock.lock();
  }
}

void Timeline::Write(const std::vector<Event>& events) {
  for (const Event& event : events) {
    std::fprintf(file_, "%s{\"ph\":\"%c\",\"ts\":%lld,\"pid\":%d,\"tid\":%d", first_ ? "" : ",\n", event.type,
                 static_cast<long long>(event.time_us), rank_, event.row);
    first_ = false;
    if (event.type == 'M') {
      std::fprintf(file_, ",\"name\":\"thread_name\",\"args\":{\"name\":%s}", Quote(event.text).c_str());
    } else if (event.type != 'E') {
      std::fprintf(file_, ",\"name\":%s", Quote(event.text).c_str());
    }
    std::fputs("}", file_);
  }
  std::fflush(file_);
}

}  // namespace hvd

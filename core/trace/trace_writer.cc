#include "trace/trace_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "base/clock.h"
#include "base/event_sink.h"

namespace hvd {

namespace {

// Thread 0 means an idle processor to some viewers.
constexpr int kCyclesRow = 1;

std::string Quoted(std::string_view text) {
  std::string json;
  AppendQuoted(text, &json);
  return json;
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// Processes that read this same text read the same monotonic clock.
std::string ClockName() {
  char boot[64] = "";
  if (FILE* file = std::fopen("/proc/sys/kernel/random/boot_id", "re")) {
    if (std::fgets(boot, sizeof boot, file) == nullptr) boot[0] = '\0';
    std::fclose(file);
  }
  char space[64] = "";
  const ssize_t length = readlink("/proc/self/ns/time", space, sizeof space - 1);
  return std::string(boot, strcspn(boot, "\n")) + "/" +
         std::string(space, std::max<ssize_t>(length, 0));
}

// What the wall clock shows at 0 of the monotonic clock: of several readings the one that took
// least.
int64_t WallMinusMonotonic() {
  int64_t offset = 0;
  int64_t shortest = INT64_MAX;
  for (int i = 0; i < 10; ++i) {
    timespec wall;
    const int64_t before = NowNanos();
    clock_gettime(CLOCK_REALTIME, &wall);
    const int64_t after = NowNanos();
    if (after - before >= shortest) continue;
    shortest = after - before;
    offset = int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec - (before + shortest / 2);
  }
  return offset;
}

std::string InSet(std::string label, uint32_t process_set) {
  if (process_set != 0) label += " [process set " + std::to_string(process_set) + "]";
  return label;
}

std::string LabelOf(const Contents& message) {
  const std::string peer = message.peer < 0 ? "any rank" : "rank " + std::to_string(message.peer);
  return (message.message == Contents::kSend ? "send to " : "recv from ") + peer;
}

// What a slice says when it is clicked on; `name` only where the row does not say it.
void AppendArguments(const Contents& contents, std::string_view name, std::string* json) {
  *json += "{\"bytes\":";
  AppendNumber(contents.bytes, json);
  if (contents.tensors > 0) {
    *json += ",\"dtype\":";
    AppendQuoted(Name(contents.dtype), json);
  }
  if (contents.dims != Contents::kNoShape) {
    *json += ",\"shape\":[";
    for (int i = 0; i < contents.dims; ++i) {
      if (i > 0) *json += ',';
      AppendNumber(contents.shape[i], json);
    }
    *json += ']';
  } else if (contents.tensors > 0) {
    *json += ",\"tensors\":";
    AppendNumber(contents.tensors, json);
  }
  if (contents.message != Contents::kNone) {
    *json += ",\"tag\":";
    AppendNumber(contents.tag, json);
  }
  if (!name.empty()) {
    *json += ",\"tensor\":";
    AppendQuoted(name, json);
  }
  *json += '}';
}

}  // namespace

Status TraceWriter::Open(const std::string& path) {
  rows_.resize(kCyclesRow + 1);
  const std::string process = "rank " + std::to_string(rank_);
  HVD_RETURN_IF_ERROR(file_.Open(path, MetadataText("process_name", 0, "name", Quoted(process))));
  DescribeProcess();
  file_.Flush();
  return Status::Ok();
}

void TraceWriter::DescribeProcess() {
  Metadata("process_sort_index", 0, "sort_index", std::to_string(rank_));
  Metadata("process_labels", 0, "labels", Quoted(HostName()));
  std::string clock = "{\"name\":" + Quoted(ClockName()) + ",\"now_us\":";
  AppendMicros(NowNanos(), &clock);
  clock += ",\"wall_minus_now_us\":";
  AppendMicros(WallMinusMonotonic(), &clock);
  Metadata("horovod_clock", 0, "clock", clock + "}");
  Metadata("thread_name", kCyclesRow, "name", Quoted("cycles"));
}

void TraceWriter::Write(const Record& record, const Contents& contents, std::string_view name) {
  latest_ns_ = record.time_ns;
  switch (record.type) {
    case Record::kBegin:
      return Begin(record, contents, name);
    case Record::kPhase:
    case Record::kEnd:
      return Next(record);
    case Record::kReady:
      return Ready(record, name);
    case Record::kCycle:
      return Instant(kCyclesRow, record.time_ns, "CYCLE_START", "p");
    case Record::kSkip:
      return;
  }
}

void TraceWriter::Lost(uint64_t count) {
  lost_ += count;
  Instant(kCyclesRow, latest_ns_, "LOST_EVENTS " + std::to_string(count), "p");
}

void TraceWriter::Begin(const Record& record, const Contents& contents, std::string_view name) {
  if (operation_at_.size() >= kMostOpen) return Lost(1);
  const bool is_message = contents.message != Contents::kNone;
  Pool* const pool = is_message     ? PoolOf(record.process_set, contents)
                     : name.empty() ? &unnamed_
                                    : nullptr;
  int row = pool != nullptr ? RowFrom(pool) : RowOf(record.process_set, Name(contents.kind), name);
  const bool shared = row < 0;
  if (shared) row = RowFrom(&others_);
  // The end of the operation before has been lost.
  if (rows_[row].operation != 0) End(row, record.time_ns);
  rows_[row].operation = record.operation;
  operation_at_[record.operation] = row;
  rows_[row].arguments.clear();
  AppendArguments(contents, shared ? name : std::string_view{}, &rows_[row].arguments);
  Slice('B', row, record.time_ns, record.phase);
}

void TraceWriter::Next(const Record& record) {
  const auto found = operation_at_.find(record.operation);
  if (found == operation_at_.end()) return;
  const int row = found->second;
  if (record.type == Record::kEnd) return End(row, record.time_ns);
  Slice('E', row, record.time_ns, nullptr);
  Slice('B', row, record.time_ns, record.phase);
}

void TraceWriter::End(int row, int64_t time_ns) {
  Slice('E', row, time_ns, nullptr);
  operation_at_.erase(rows_[row].operation);
  rows_[row].operation = 0;
  if (rows_[row].pool != nullptr) rows_[row].pool->free.push_back(row);
}

void TraceWriter::Ready(const Record& record, std::string_view name) {
  const int row = RowOf(record.process_set, record.phase, name);
  if (row >= 0)
    Instant(row, record.time_ns, "rank " + std::to_string(record.operation) + " ready", "t");
}

int TraceWriter::RowOf(uint32_t process_set, const char* kind, std::string_view name) {
  key_ = kind;
  key_ += '.';
  key_ += name;
  const size_t label_length = key_.size();
  key_.append(reinterpret_cast<const char*>(&process_set), sizeof process_set);
  const auto found = row_of_.find(key_);
  if (found != row_of_.end()) return found->second;
  if (row_of_.size() >= kMostRows) return -1;
  const int row = NewRow(InSet(key_.substr(0, label_length), process_set), nullptr);
  row_of_.emplace(key_, row);
  return row;
}

TraceWriter::Pool* TraceWriter::PoolOf(uint32_t process_set, const Contents& message) {
  const std::string label = InSet(LabelOf(message), process_set);
  const auto found = messages_.find(label);
  if (found != messages_.end()) return &found->second;
  if (messages_.size() >= kMostRows) return &others_;
  return &messages_.emplace(label, Pool{label, 0, {}}).first->second;
}

int TraceWriter::RowFrom(Pool* pool) {
  if (pool->free.empty()) {
    const size_t number = ++pool->made;
    return NewRow(number == 1 ? pool->label : pool->label + " " + std::to_string(number), pool);
  }
  const int row = pool->free.back();
  pool->free.pop_back();
  return row;
}

int TraceWriter::NewRow(std::string_view label, Pool* pool) {
  const int row = static_cast<int>(rows_.size());
  rows_.push_back({0, pool, {}});
  Metadata("thread_name", row, "name", Quoted(label));
  return row;
}

void TraceWriter::Close(int64_t now_ns) {
  for (size_t row = 0; row < rows_.size(); ++row) {
    if (rows_[row].operation != 0) End(static_cast<int>(row), now_ns);
  }
  file_.Close();
}

void TraceWriter::StartEvent(char type, int row, int64_t time_ns) {
  text_ = "{\"ph\":\"";
  text_ += type;
  text_ += "\",\"ts\":";
  AppendMicros(time_ns, &text_);
  text_ += ",\"pid\":";
  AppendNumber(rank_, &text_);
  text_ += ",\"tid\":";
  AppendNumber(row, &text_);
}

void TraceWriter::Slice(char type, int row, int64_t time_ns, const char* phase) {
  StartEvent(type, row, time_ns);
  if (phase != nullptr) {
    text_ += ",\"name\":";
    AppendQuoted(phase, &text_);
    if (std::string_view(phase) != kQueuePhase) text_ += ",\"args\":" + rows_[row].arguments;
  }
  text_ += '}';
  file_.Append(text_);
}

void TraceWriter::Instant(int row, int64_t time_ns, std::string_view label, const char* scope) {
  StartEvent('i', row, time_ns);
  text_ += ",\"s\":\"";
  text_ += scope;
  text_ += "\",\"name\":";
  AppendQuoted(label, &text_);
  text_ += '}';
  file_.Append(text_);
}

void TraceWriter::Metadata(std::string_view kind, int row, std::string_view argument,
                           std::string_view json_value) {
  file_.Append(MetadataText(kind, row, argument, json_value));
}

std::string TraceWriter::MetadataText(std::string_view kind, int row, std::string_view argument,
                                      std::string_view json_value) const {
  std::string text =
      "{\"ph\":\"M\",\"pid\":" + std::to_string(rank_) + ",\"tid\":" + std::to_string(row);
  text += ",\"name\":" + Quoted(kind) + ",\"args\":{" + Quoted(argument) + ":";
  text += json_value;
  return text + "}}";
}

}  // namespace hvd

#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "trace/event_ring.h"
#include "trace/trace_file.h"

namespace hvd {

// Turns records into the elements of a Chrome trace. The operations of one kind, name and process
// set have a row of their own, "allreduce.NAME", in which one is shown at a time. Messages of one
// direction, peer and process set have as many rows as there are of them in flight, "send to rank
// 1" and so on. Unnamed operations, and names and peers beyond kMostRows, take any row that is
// free: so memory is bounded however many names there are, and the slices of a row always nest.
class TraceWriter {
 public:
  static constexpr size_t kMostRows = 1 << 14;
  static constexpr size_t kMostOpen = 1 << 15;  // operations in flight that are followed

  explicit TraceWriter(int rank) : rank_(rank) {}

  Status Open(const std::string& path);
  void Write(const Record& record, const Contents& contents, std::string_view name);
  // `count` events were not recorded; the file shows where.
  void Lost(uint64_t count);
  void Flush() { file_.Flush(); }
  // Ends what is under way.
  void Close(int64_t now_ns);

  const Status& status() const { return file_.status(); }
  uint64_t lost() const { return lost_; }

 private:
  // The free rows of operations without a row of their own.
  struct Pool {
    std::string label;
    size_t made = 0;
    std::vector<int> free;
  };
  struct Row {
    uint64_t operation = 0;  // that is shown; 0 = none
    Pool* pool = nullptr;
    std::string arguments;  // of that operation's slices
  };

  void Begin(const Record& record, const Contents& contents, std::string_view name);
  void Next(const Record& record);
  void End(int row, int64_t time_ns);
  void Ready(const Record& record, std::string_view name);

  int RowOf(uint32_t process_set, const char* kind,
            std::string_view name);  // -1: there are too many
  Pool* PoolOf(uint32_t process_set, const Contents& message);
  int RowFrom(Pool* pool);
  int NewRow(std::string_view label, Pool* pool);
  void DescribeProcess();

  void StartEvent(char type, int row, int64_t time_ns);
  void Slice(char type, int row, int64_t time_ns, const char* phase);
  void Instant(int row, int64_t time_ns, std::string_view label, const char* scope);
  void Metadata(std::string_view kind, int row, std::string_view argument,
                std::string_view json_value);
  std::string MetadataText(std::string_view kind, int row, std::string_view argument,
                           std::string_view json_value) const;

  const int rank_;
  TraceFile file_;
  std::string text_;  // the element in the making
  std::vector<Row> rows_;
  std::string key_;
  std::unordered_map<std::string, int> row_of_;     // by kind, name and process set
  std::unordered_map<uint64_t, int> operation_at_;  // the row of an operation in flight
  std::unordered_map<std::string, Pool> messages_;  // by label; elements stay where they are
  Pool unnamed_{"unnamed", 0, {}};
  Pool others_{"others", 0, {}};
  uint64_t lost_ = 0;
  int64_t latest_ns_ = 0;  // of the records
};

}  // namespace hvd

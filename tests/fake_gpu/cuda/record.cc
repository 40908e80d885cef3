#include "cuda/record.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "cuda/context.h"
#include "cuda/settings.h"
#include "fake_gpu.h"

namespace fake_gpu {
namespace {

struct Records {
  std::mutex mutex;  // guards all below
  std::string calls;
  std::map<std::string, int> counters;
  std::map<std::pair<std::string, std::string>, int> ledger;  // kind and name: how many
};

// Never destroyed: threads of the fakes outlive main().
Records& TheRecords() {
  static auto* records = new Records;
  return *records;
}

}  // namespace

void Record(const std::string& line) {
  Records& records = TheRecords();
  std::lock_guard<std::mutex> lock(records.mutex);
  records.calls += line + "\n";
}

int Fail(int code, const std::string& message) {
  Record("error: " + message);
  if (!TheSettings().strict) return code;
  std::fprintf(stderr, "fake GPU: %s\n", message.c_str());
  std::abort();
}

void Own(const std::string& kind, const std::string& name) {
  Records& records = TheRecords();
  std::lock_guard<std::mutex> lock(records.mutex);
  ++records.ledger[{kind, name}];
}

void Disown(const std::string& kind, const std::string& name) {
  Records& records = TheRecords();
  std::lock_guard<std::mutex> lock(records.mutex);
  const auto held = records.ledger.find({kind, name});
  if (held != records.ledger.end() && --held->second == 0) records.ledger.erase(held);
}

int CountCall(const std::string& counter) {
  Records& records = TheRecords();
  std::lock_guard<std::mutex> lock(records.mutex);
  return ++records.counters[counter];
}

}  // namespace fake_gpu

using fake_gpu::TheRecords;

const char* fake_gpu_calls() {
  static thread_local std::string copy;
  std::lock_guard<std::mutex> lock(TheRecords().mutex);
  copy = TheRecords().calls;
  return copy.c_str();
}

void fake_gpu_forget() {
  fake_gpu::ReadSettings();
  fake_gpu::MendAll();
  std::lock_guard<std::mutex> lock(TheRecords().mutex);
  TheRecords().calls.clear();
  TheRecords().counters.clear();
}

int fake_gpu_leaks(char* text, size_t bytes) {
  std::string list;
  int count = 0;
  std::lock_guard<std::mutex> lock(TheRecords().mutex);
  for (const auto& [object, times] : TheRecords().ledger) {
    count += times;
    list += object.first + " " + object.second;
    list += times > 1 ? ", " + std::to_string(times) + " times\n" : "\n";
  }
  if (text != nullptr && bytes > 0) std::snprintf(text, bytes, "%s", list.c_str());
  return count;
}

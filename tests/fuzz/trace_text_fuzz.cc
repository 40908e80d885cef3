// The JSON of the timeline: whatever a tensor is called, what is written is JSON, and reading it
// gives back the name, with U+FFFD for what is no UTF-8.

#include <cmath>
#include <cstdlib>

#include "json_check.h"
#include "target.h"
#include "trace/event_ring.h"
#include "trace/trace_file.h"
#include "utf8.h"

namespace hvd {
namespace {

using namespace fuzz;

void AppendUtf8(uint32_t value, std::string* text) {
  const auto tail = [&](int shift) { *text += static_cast<char>(0x80 | (value >> shift & 0x3F)); };
  if (value < 0x80) return text->push_back(static_cast<char>(value));
  if (value < 0x800) return *text += static_cast<char>(0xC0 | value >> 6), tail(0);
  if (value < 0x10000) return *text += static_cast<char>(0xE0 | value >> 12), tail(6), tail(0);
  *text += static_cast<char>(0xF0 | value >> 18), tail(12), tail(6), tail(0);
}

// What a JSON string of ASCII says.
std::string Unquoted(std::string_view json) {
  std::string text;
  uint32_t high = 0;
  for (size_t i = 1; i + 1 < json.size(); ++i) {
    if (json[i] != '\\') {
      text += json[i];
    } else if (json[++i] != 'u') {
      text += json[i];
    } else {
      const auto unit =
          static_cast<uint32_t>(std::stoul(std::string(json.substr(i + 1, 4)), nullptr, 16));
      i += 4;
      if (unit >= 0xD800 && unit < 0xDC00) {
        high = unit;
      } else if (unit >= 0xDC00 && unit < 0xE000) {
        AppendUtf8(0x10000 + ((high - 0xD800) << 10) + (unit - 0xDC00), &text);
      } else {
        AppendUtf8(unit, &text);
      }
    }
  }
  return text;
}

void CheckQuoted(std::string_view name) {
  std::string json;
  AppendQuoted(name, &json);
  REQUIRE(check::JsonCheck(json).Whole());
  REQUIRE(json.size() <= 6 * name.size() + 2);
  for (const char c : json) REQUIRE(c >= 0x20 && c < 0x7F);
  const std::string read = Unquoted(json);
  REQUIRE(CountUtf8(read) >= 0);
  if (CountUtf8(name) >= 0) REQUIRE(read == name);
}

void CheckNumbers(Input* input) {
  const int64_t number = input->Signed();
  std::string json;
  AppendNumber(number, &json);
  REQUIRE(check::JsonCheck(json).Whole() && std::strtoll(json.c_str(), nullptr, 10) == number);
  const int64_t nanos = input->Signed();
  json.clear();
  AppendMicros(nanos, &json);
  REQUIRE_THAT(check::JsonCheck(json).Whole() && !Contains(json.substr(1), "-"), json);
  const double micros = static_cast<double>(nanos) / 1000;
  REQUIRE_THAT(
      std::fabs(std::strtod(json.c_str(), nullptr) - micros) <= 1e-3 + std::fabs(micros) * 1e-12,
      json);
}

// What goes into the ring comes out of it, in order.
void CheckRing(Input* input) {
  static EventRing& ring = *new EventRing;
  ring.Allocate();
  struct Pushed {
    Record record;
    Contents contents;
    std::string_view name;
  };
  std::vector<Pushed> pushed;
  while (!input->empty() && pushed.size() < 16) {
    Pushed one;
    one.record.type = static_cast<Record::Type>(1 + input->Below(5));
    one.record.operation = input->Number();
    one.contents.bytes = input->Signed();
    one.contents.dims = static_cast<uint8_t>(input->Below(10));
    if (one.contents.dims > Contents::kMostDims) one.contents.dims = Contents::kNoShape;
    for (int64_t& dim : one.contents.shape) dim = input->Byte();
    one.name = input->Text(EventRing::kLongestName);
    if (ring.Push(one.record, &one.contents, one.name, EventRing::kReserve)) pushed.push_back(one);
  }
  size_t next = 0;
  ring.Drain([&](const Record& record, const Contents& contents, std::string_view name) {
    REQUIRE(next < pushed.size());
    const Pushed& one = pushed[next++];
    REQUIRE(record.type == one.record.type && record.operation == one.record.operation);
    REQUIRE(contents.bytes == one.contents.bytes && contents.dims == one.contents.dims &&
            name == one.name);
    const int dims = contents.dims == Contents::kNoShape ? 0 : contents.dims;
    for (int d = 0; d < dims; ++d) REQUIRE(contents.shape[d] == one.contents.shape[d]);
  });
  REQUIRE(next == pushed.size());
}

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hvd::fuzz::Input input(data, size);
  hvd::CheckNumbers(&input);
  hvd::CheckQuoted(input.Text(600));
  hvd::CheckRing(&input);
  return 0;
}

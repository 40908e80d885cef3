#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hvd {

// A JSON string of plain ASCII, at most six characters per byte. What is no UTF-8 becomes U+FFFD.
void AppendQuoted(std::string_view text, std::string* json);

void AppendNumber(int64_t number, std::string* json);

// Microseconds, to the nanosecond: "1234.567".
void AppendMicros(int64_t nanos, std::string* json);

}  // namespace hvd

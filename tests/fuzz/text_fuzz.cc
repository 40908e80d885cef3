// Text that leaves the process: whatever comes in, what comes out is UTF-8 that steers no terminal,
// within the length that was promised.

#include "base/text.h"
#include "settings/log.h"
#include "target.h"
#include "utf8.h"

namespace hvd {
namespace {

using namespace fuzz;

void CheckEscaped(std::string_view text) {
  for (const bool keeps_lines : {false, true}) {
    const std::string escaped = Escaped(text, keeps_lines);
    REQUIRE(IsHarmless(escaped, keeps_lines));
    REQUIRE(escaped.size() <= 10 * text.size());
    REQUIRE(Escaped(escaped, keeps_lines) == escaped);
  }
}

void CheckShown(std::string_view name) {
  const std::string shown = Shown(name);
  REQUIRE(IsHarmless(shown));
  REQUIRE(CountUtf8(shown) <= static_cast<int64_t>(kLongestShown));
}

void CheckFitted(std::string_view name) {
  constexpr size_t kLongest = 4 * kLongestShown;
  const std::string fitted = Fitted(std::string(name), kLongest);
  REQUIRE(fitted.size() <= kLongest);
  if (name.size() <= kLongest) {
    REQUIRE(fitted == name);
  } else {
    REQUIRE(IsHarmless(fitted));
    std::string other(name);
    other[name.size() / 2] ^= 1;
    REQUIRE(Fitted(other, kLongest) != fitted);
  }
}

void CheckLogLine(std::string_view text) {
  const std::string line = FormatLogLine(LogLevel::kWarning, text, 1'700'000'000'000'000);
  REQUIRE(!line.empty() && line.back() == '\n');
  REQUIRE(IsHarmless(std::string_view(line).substr(0, line.size() - 1)));
}

}  // namespace
}  // namespace hvd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hvd::fuzz::Input input(data, size);
  // Long names come from short inputs: the text is repeated.
  constexpr size_t kMost = 64;
  const uint8_t many = input.Byte();
  const size_t times = many < 0xF8 ? 1 : 2 + 2 * (many & 7);
  const std::string_view part = input.Text(kMost);
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  hvd::CheckEscaped(part);
  hvd::CheckLogLine(part);
  hvd::CheckShown(text);
  hvd::CheckFitted(text);
  return 0;
}

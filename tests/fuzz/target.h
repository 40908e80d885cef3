#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// A fuzz target is one function, LLVMFuzzerTestOneInput, in one file. libFuzzer calls it (make
// fuzz), and so does replay.cc, with the inputs that are kept, in every build of the tests. What it
// demands of the product it says with REQUIRE.

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace hvd::fuzz {

[[noreturn]] void Fail(const char* file, int line, const std::string& what);

// Cuts an input into the numbers and texts that a target needs. At its end everything is zero or
// empty.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte();
  size_t Below(size_t bound) { return Byte() % bound; }  // bound <= 256
  // Small ones mostly, the ends of all ranges often, and any.
  uint64_t Number();
  int64_t Signed() { return static_cast<int64_t>(Number()); }
  std::string_view Text(size_t most);  // its length stands before it
  std::string_view Rest();

 private:
  std::string_view rest_;
};

// What this thread has allocated by `new` and not freed; and the most of it since the last Restart.
// Nothing larger than kLargestBlock can be allocated: std::bad_alloc.
constexpr size_t kLargestBlock = 256 << 20;
struct Memory {
  static size_t Live();
  static size_t Peak();
  static void Restart();  // Peak counts from what is live now
};

inline bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace hvd::fuzz

#define REQUIRE(x)                                       \
  do {                                                   \
    if (!(x)) ::hvd::fuzz::Fail(__FILE__, __LINE__, #x); \
  } while (0)
#define REQUIRE_THAT(x, what)                                                       \
  do {                                                                              \
    if (!(x)) ::hvd::fuzz::Fail(__FILE__, __LINE__, std::string(#x ": ") + (what)); \
  } while (0)

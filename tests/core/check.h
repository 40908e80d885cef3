#pragma once

// A test program in 70 lines: the names are those that C++ programmers know, so that a test reads
// the same under a larger framework, and a bare machine needs none.

#include <cstdio>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace hvd::check {

struct Case {
  const char* name;
  void (*body)();
};

std::vector<Case>& Cases();
void Fail(const char* file, int line, const std::string& message);  // thread safe

struct Register {
  Register(const char* name, void (*body)()) { Cases().push_back({name, body}); }
};

template <typename T>
std::string Show(const T& value) {
  std::ostringstream text;
  if constexpr (std::is_enum_v<T>) {
    text << static_cast<long long>(value);
  } else {
    text << value;
  }
  return text.str();
}

template <typename A, typename B>
bool Equal(const char* file, int line, const char* a_text, const char* b_text, const A& a,
           const B& b) {
  if (a == b) return true;
  Fail(file, line,
       std::string(a_text) + " == " + b_text + "\n    left:  " + Show(a) +
           "\n    right: " + Show(b));
  return false;
}

inline bool True(const char* file, int line, const char* text, bool value) {
  if (!value) Fail(file, line, text);
  return value;
}

// The limit on this machine and now for what takes `seconds` at most on one that is idle: so many
// times longer as runnable threads share a core, three times at most.
double Within(double seconds);

}  // namespace hvd::check

#define TEST(suite, name)                                                                       \
  static void suite##_##name();                                                                 \
  static ::hvd::check::Register suite##_##name##_registered(#suite "." #name, &suite##_##name); \
  static void suite##_##name()

#define EXPECT_EQ(a, b) ::hvd::check::Equal(__FILE__, __LINE__, #a, #b, (a), (b))
#define EXPECT_TRUE(x) ::hvd::check::True(__FILE__, __LINE__, #x, static_cast<bool>(x))
#define EXPECT_FALSE(x) ::hvd::check::True(__FILE__, __LINE__, "!(" #x ")", !static_cast<bool>(x))
#define ASSERT_EQ(a, b) \
  if (!EXPECT_EQ(a, b)) return
#define ASSERT_TRUE(x) \
  if (!EXPECT_TRUE(x)) return
#define ASSERT_OK(expr)                                                   \
  do {                                                                    \
    const ::hvd::Status ok_ = (expr);                                     \
    if (!ok_.ok()) {                                                      \
      ::hvd::check::Fail(__FILE__, __LINE__, #expr ": " + ok_.message()); \
      return;                                                             \
    }                                                                     \
  } while (0)

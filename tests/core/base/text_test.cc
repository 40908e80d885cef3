#include "base/text.h"

#include <random>
#include <set>

#include "check.h"

namespace hvd {
namespace {

bool IsHarmless(std::string_view text, bool with_lines = false) {
  while (!text.empty()) {
    const CodePoint point = FirstCodePoint(text);
    if (!point.valid) return false;
    const bool control = point.value < 0x20 || (point.value >= 0x7F && point.value < 0xA0);
    const bool turns = (point.value >= 0x200B && point.value <= 0x200F) ||
                       (point.value >= 0x2028 && point.value <= 0x202E) ||
                       (point.value >= 0x2060 && point.value <= 0x206F) || point.value == 0x61C ||
                       point.value == 0xFEFF;
    if (turns || (control && !(with_lines && point.value == '\n'))) return false;
    text.remove_prefix(point.bytes);
  }
  return true;
}

size_t Characters(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(FirstCodePoint(text).bytes);
  return count;
}

// Any bytes, with those that matter more often than by chance.
std::string RandomText(std::mt19937* random, size_t longest) {
  static const std::vector<std::string> kParts = {"\x1b[2J",
                                                  "\a",
                                                  "\n",
                                                  "\r\n",
                                                  "\t",
                                                  std::string(1, '\0'),
                                                  "\x7f",
                                                  "\xc2\x9b",
                                                  "\xe2\x80\xae",
                                                  "\xe2\x81\xa6",
                                                  "\xd8\x9c",
                                                  "\xef\xbb\xbf",
                                                  "\xf3\xa0\x81\x81",
                                                  "\xed\xa0\x80",
                                                  "\xc0\x80",
                                                  "\xe2\x80",
                                                  "layer",
                                                  ".weight",
                                                  "\xc3\xa9",
                                                  "\xe6\xbc\xa2",
                                                  "\xf0\x9f\x9a\x80",
                                                  "\\x1b",
                                                  "'"};
  std::string text;
  const size_t wanted = (*random)() % (longest + 1);
  while (text.size() < wanted) {
    if ((*random)() % 4 == 0) {
      text += static_cast<char>((*random)() % 256);
    } else {
      text += kParts[(*random)() % kParts.size()];
    }
  }
  return text.substr(0, wanted);
}

TEST(text, Escaped) {
  EXPECT_EQ(Escaped("layer.0/w [1], 'x'"), "layer.0/w [1], 'x'");
  EXPECT_EQ(Escaped("\x1b]0;x\a"), "\\x1b]0;x\\x07");
  EXPECT_EQ(Escaped("a\nb\r\tc"), "a\\nb\\r\\tc");
  EXPECT_EQ(Escaped("a\nb\r", true), "a\nb\\r");
  EXPECT_EQ(Escaped(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Escaped("\x7f\xc2\x9b[1m"), "\\x7f\\x9b[1m");
  EXPECT_EQ(Escaped("\xe2\x80\xaegnp.exe"), "\\u202egnp.exe");
  EXPECT_EQ(Escaped("\xf3\xa0\x80\x81"), "\\U000e0001");
  EXPECT_EQ(Escaped("\xff\xed\xa0\x80\xe2\x80"), "\\xff\\xed\\xa0\\x80\\xe2\\x80");
  EXPECT_EQ(Escaped("caf\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x9a\x80"),
            "caf\xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x9a\x80");
  EXPECT_EQ(Escaped(""), "");
}

TEST(text, Shown) {
  EXPECT_EQ(Shown(std::string(200, 'x')), std::string(200, 'x'));
  EXPECT_EQ(Shown(std::string(201, 'x')),
            std::string(91, 'x') + "...(201 bytes)..." + std::string(91, 'x'));
  const std::string shown = Shown("begin" + std::string(10000, '\n') + "end");
  EXPECT_TRUE(shown.find("begin\\n\\n") == 0 && shown.find("\\nend") == shown.size() - 5);
  EXPECT_TRUE(shown.find("...(10008 bytes)...") != std::string::npos);
  // Characters count, not bytes.
  std::string accents;
  for (int i = 0; i < 200; ++i) accents += "\xc3\xa9";
  EXPECT_EQ(Shown(accents), accents);
}

TEST(text, Fitted) {
  const std::string longest(1024, 'x');
  EXPECT_EQ(Fitted(longest, 1024), longest);
  const std::string one = Fitted(longest + "x", 1024);
  EXPECT_TRUE(one.find("...(1025 bytes, sha256 ") != std::string::npos &&
              one.size() <= kLongestShown);
  std::string other(1025, 'x');
  other[512] = 'y';
  EXPECT_TRUE(Fitted(other, 1024) != one);
  EXPECT_EQ(Fitted(longest + "x", 1024), one);
}

TEST(text, AnyBytes) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = RandomText(&random, i % 50 == 0 ? 3000 : 60);
    const std::string line = Escaped(text);
    const std::string lines = Escaped(text, true);
    const std::string shown = Shown(text);
    const std::string fitted = Fitted(text, kLongestShown);
    if (!EXPECT_TRUE(IsHarmless(line) && IsHarmless(lines, true) && IsHarmless(shown))) return;
    if (!EXPECT_TRUE(Escaped(line) == line && Escaped(lines, true) == lines &&
                     Shown(shown) == shown))
      return;
    if (!EXPECT_TRUE(Characters(shown) <= kLongestShown)) return;
    if (Characters(line) <= kLongestShown && !EXPECT_EQ(shown, line)) return;
    if (text.size() > kLongestShown && !EXPECT_EQ(Shown(fitted), fitted)) return;
  }
}

TEST(text, DifferentNamesStayDifferent) {
  std::mt19937 random(8);
  std::set<std::string> names;
  std::set<std::string> fitted;
  for (int i = 0; i < 2000; ++i) {
    const std::string name = RandomText(&random, 600);
    names.insert(name);
    fitted.insert(Fitted(name, kLongestShown));
  }
  EXPECT_EQ(names.size(), fitted.size());
}

TEST(text, SizesAreExact) {
  EXPECT_EQ(SizeText(0), "0 bytes");
  EXPECT_EQ(SizeText(1023), "1023 bytes");
  EXPECT_EQ(SizeText(1024), "1 KiB");
  EXPECT_EQ(SizeText(1536), "1536 bytes");
  EXPECT_EQ(SizeText(int64_t{8} << 20), "8 MiB");
  EXPECT_EQ(SizeText(int64_t{1} << 42), "4096 GiB");
  EXPECT_EQ(SecondsText(2'590'000), "2.5 s");
  EXPECT_EQ(SecondsText(0), "0.0 s");
}

}  // namespace
}  // namespace hvd

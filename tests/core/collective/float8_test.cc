// Floats of eight bits: there are so few that every value, and every pair, is tried.

#include "base/float8.h"

#include <random>
#include <vector>

#include "check.h"
#include "collective/kernels/kernels.h"
#include "collective/kernels_reference.h"

namespace hvd {
namespace {

using reference::E4m3fnCodec;
using reference::E5m2Codec;

constexpr int kValues = 256;
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

Float8E4m3fn Convert(float value, E4m3fnCodec /*codec*/) { return ToFloat8E4m3fn(value); }
Float8E5m2 Convert(float value, E5m2Codec /*codec*/) { return ToFloat8E5m2(value); }
float Widen(uint8_t bits, E4m3fnCodec /*codec*/) { return ToFloat(Float8E4m3fn{bits}); }
float Widen(uint8_t bits, E5m2Codec /*codec*/) { return ToFloat(Float8E5m2{bits}); }

template <typename Visit>
void ForEachType(Visit visit) {
  visit(DataType::kFloat8E4m3fn, E4m3fnCodec());
  visit(DataType::kFloat8E5m2, E5m2Codec());
}

TEST(float8, EveryValueIsWhatTheFormatSays) {
  ForEachType([](DataType, auto codec) {
    for (int bits = 0; bits < kValues; ++bits) {
      const double expected = codec.Load(static_cast<uint8_t>(bits));
      const float got = Widen(static_cast<uint8_t>(bits), codec);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(got));
        EXPECT_EQ(int{Convert(got, codec).bits}, (bits & 0x80) | 0x7f);
      } else {
        EXPECT_TRUE(expected == got && std::signbit(expected) == std::signbit(got));
        EXPECT_EQ(int{Convert(got, codec).bits}, bits);
      }
    }
  });
}

// All exponents; and the neighbourhood of ties, where rounding goes wrong first.
TEST(float8, IsTheNearestOfAFloat) {
  std::mt19937_64 random(31);
  ForEachType([&](DataType, auto codec) {
    for (int i = 0; i < (1 << 17); ++i) {
      uint32_t bits = static_cast<uint32_t>(random());
      if (i % 2 == 0) bits = (bits & ~0x7ffffu) | (0x7ffff + bits % 3);
      if (i % 4 == 0) bits = (bits & 0x80ffffffu) | (0x3c000000 + (bits & 0x07000000));
      const float value = BitsToFloat(bits);
      if (!EXPECT_EQ(int{Convert(value, codec).bits}, int{codec.Save(value)})) return;
    }
  });
}

// What PyTorch 2.13 makes of these.
TEST(float8, IsAsOfPyTorch) {
  EXPECT_EQ(int{ToFloat8E4m3fn(464).bits}, 0x7e);
  EXPECT_EQ(int{ToFloat8E4m3fn(480).bits}, 0x7e);
  EXPECT_EQ(int{ToFloat8E4m3fn(-INFINITY).bits}, 0xfe);
  EXPECT_EQ(int{ToFloat8E4m3fn(NAN).bits}, 0x7f);
  EXPECT_EQ(int{ToFloat8E4m3fn(0x1p-10f).bits}, 0x00);
  EXPECT_EQ(int{ToFloat8E4m3fn(0x1.04p-10f).bits}, 0x01);
  EXPECT_EQ(int{ToFloat8E5m2(61439).bits}, 0x7b);
  EXPECT_EQ(int{ToFloat8E5m2(61440).bits}, 0x7c);
  EXPECT_EQ(int{ToFloat8E5m2(-INFINITY).bits}, 0xfc);
  EXPECT_EQ(int{ToFloat8E5m2(NAN).bits}, 0x7f);
  EXPECT_EQ(int{ToFloat8E5m2(-0x1p-18f).bits}, 0x80);
}

// Both operands of all pairs, one after the other.
struct Pairs {
  std::vector<uint8_t> left;
  std::vector<uint8_t> right;

  Pairs() {
    for (int a = 0; a < kValues; ++a) {
      for (int b = 0; b < kValues; ++b) {
        left.push_back(static_cast<uint8_t>(a));
        right.push_back(static_cast<uint8_t>(b));
      }
    }
  }
};

template <typename Codec>
void CheckPairs(const Reduction& reduction, const Pairs& pairs, Codec codec) {
  std::vector<uint8_t> first;
  for (const kernels::Table* table : kernels::UsableTables()) {
    std::vector<uint8_t> result(pairs.left.size());
    const void* sources[] = {pairs.left.data(), pairs.right.data()};
    void* destinations[] = {result.data()};
    kernels::ReduceWith(*table, reduction, sources, 2, destinations, 1,
                        static_cast<int64_t>(result.size()));
    for (size_t i = 0; i < result.size(); ++i) {
      const uint8_t expected =
          reference::FloatElement<Codec>(reduction, {pairs.left[i], pairs.right[i]});
      const bool nan = std::isnan(codec.Load(expected)) && std::isnan(codec.Load(result[i]));
      if (!nan && !EXPECT_EQ(int{result[i]}, int{expected})) return;
      if (!first.empty() && !nan && !EXPECT_EQ(int{result[i]}, int{first[i]})) return;
    }
    first = result;
  }
}

TEST(float8, EveryPair) {
  const Pairs pairs;
  ForEachType([&](DataType dtype, auto codec) {
    for (const ReduceOp op : kOps) CheckPairs({dtype, op, 1.0, 1.0, 1}, pairs, codec);
    CheckPairs({dtype, ReduceOp::kAverage, 1.0, 1.0, 2}, pairs, codec);
    CheckPairs({dtype, ReduceOp::kSum, 0.3, 1.7, 3}, pairs, codec);
  });
}

// An average that fits is not spoilt by a sum that does not.
TEST(float8, IsRoundedAfterTheAverage) {
  const uint8_t largest = 0x7e;
  const void* sources[] = {&largest, &largest, &largest};
  uint8_t result = 0;
  void* destinations[] = {&result};
  kernels::Reduce({DataType::kFloat8E4m3fn, ReduceOp::kAverage, 1.0, 1.0, 3}, sources, 3,
                  destinations, 1, 1);
  EXPECT_EQ(int{result}, int{largest});
}

}  // namespace
}  // namespace hvd

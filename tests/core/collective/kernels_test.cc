#include "collective/kernels/kernels.h"

#include <algorithm>
#include <random>

#include "base/float8.h"
#include "base/half.h"
#include "check.h"
#include "collective/kernels_reference.h"

namespace hvd {
namespace {

using reference::BfloatCodec;
using reference::E4m3fnCodec;
using reference::E5m2Codec;
using reference::HalfCodec;
using reference::NumberCodec;
using Bytes = std::vector<uint8_t>;

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax,
                             ReduceOp::kProduct};
constexpr int kMaxSources = 8;
constexpr int64_t kMaxElements = 4097;
constexpr uint8_t kGuard = 0xa5;

// Any bits, and often values whose sums and products are ordinary or special.
template <typename Codec>
typename Codec::Storage RandomFloat(std::mt19937_64& random) {
  const double kSpecial[] = {NAN,  INFINITY, -INFINITY, 0.0, -0.0, 6e-8,  -6e-8, 1e-39,     65504,
                             3e38, 1,        -1,        448, 464,  57344, 61440, 1.0 / 1024};
  switch (random() % 8) {
    case 0: {
      typename Codec::Storage any;
      const uint64_t bits = random();
      std::memcpy(&any, &bits, sizeof any);
      return any;
    }
    case 1:
      return Codec::Save(kSpecial[random() % std::size(kSpecial)]);
    default:
      return Codec::Save(std::ldexp(static_cast<double>(static_cast<int64_t>(random())), -62));
  }
}

template <typename T>
T RandomInteger(std::mt19937_64& random) {
  return random() % 4 == 0 ? static_cast<T>(random() % 16) : static_cast<T>(random());
}

// Fills `inputs[source]` and computes the expected bytes of every reduction of the first `count`
// sources.
template <typename T>
struct Sample {
  std::vector<std::vector<T>> inputs{kMaxSources, std::vector<T>(kMaxElements)};

  template <typename Draw>
  explicit Sample(Draw draw) {
    for (auto& input : inputs) std::generate(input.begin(), input.end(), draw);
  }

  template <typename Element>
  std::vector<T> Expect(const Reduction& r, int count, Element element) const {
    std::vector<T> expected(kMaxElements);
    std::vector<T> column(count);
    for (int64_t i = 0; i < kMaxElements; ++i) {
      for (int s = 0; s < count; ++s) column[s] = inputs[s][i];
      expected[i] = element(r, column);
    }
    return expected;
  }
};

// The payload of a NaN is not part of the contract.
template <typename T>
bool SameValue(DataType dtype, T a, T b) {
  if (std::memcmp(&a, &b, sizeof a) == 0) return true;
  if (dtype == DataType::kFloat32 || dtype == DataType::kFloat64) return a != a && b != b;
  if constexpr (std::is_same_v<T, uint8_t>) {
    if (dtype == DataType::kFloat8E4m3fn)
      return std::isnan(E4m3fnCodec::Load(a)) && std::isnan(E4m3fnCodec::Load(b));
    if (dtype == DataType::kFloat8E5m2)
      return std::isnan(E5m2Codec::Load(a)) && std::isnan(E5m2Codec::Load(b));
  }
  const auto format = dtype == DataType::kBfloat16 ? reference::kBfloat : reference::kHalf;
  if (dtype != DataType::kFloat16 && dtype != DataType::kBfloat16) return false;
  return std::isnan(reference::Decode(a, format)) && std::isnan(reference::Decode(b, format));
}

struct Layout {
  int sources;
  int destinations;
  int64_t elements;
  bool in_place;  // destination d is source d
};

// Runs one reduction on buffers of odd addresses with guarded ends and compares every destination.
template <typename T>
bool Matches(const kernels::Table& table, const Reduction& r, const Layout& layout,
             const Sample<T>& sample, const std::vector<T>& expected) {
  const size_t bytes = layout.elements * sizeof(T);
  std::vector<Bytes> storage(layout.sources + layout.destinations, Bytes(bytes + 16, kGuard));
  std::vector<const void*> sources;
  for (int s = 0; s < layout.sources; ++s) {
    std::memcpy(storage[s].data() + 1 + s, sample.inputs[s].data(), bytes);
    sources.push_back(storage[s].data() + 1 + s);
  }
  std::vector<void*> destinations;
  for (int d = 0; d < layout.destinations; ++d) {
    const int buffer = layout.in_place && d < layout.sources ? d : layout.sources + d;
    destinations.push_back(storage[buffer].data() + 1 + (buffer == d ? d : 2 * d));
  }
  kernels::ReduceWith(table, r, sources.data(), layout.sources, destinations.data(),
                      layout.destinations, layout.elements);
  for (void* destination : destinations) {
    const auto* at = static_cast<const uint8_t*>(destination);
    if (at[-1] != kGuard || at[bytes] != kGuard) return false;
    for (int64_t i = 0; i < layout.elements; ++i) {
      T got;
      std::memcpy(&got, at + i * sizeof(T), sizeof got);
      if (!SameValue(r.dtype, got, expected[i])) return false;
    }
  }
  return true;
}

template <typename T>
void CheckLayouts(const Reduction& r, int sources, const Sample<T>& sample,
                  const std::vector<T>& expected) {
  for (const kernels::Table* table : kernels::UsableTables()) {
    for (int64_t elements : {0, 1, 7, 1023, 4097}) {
      for (int destinations : {1, 2, 3}) {
        for (bool in_place : {false, true}) {
          const Layout layout{sources, destinations, elements, in_place};
          if (Matches(*table, r, layout, sample, expected)) continue;
          check::Fail(__FILE__, __LINE__,
                      std::string(table->instruction_set) + " " + Name(r.dtype) + " " + Name(r.op) +
                          ", " + std::to_string(sources) + " sources, " +
                          std::to_string(destinations) + " destinations, " +
                          std::to_string(elements) + " elements" + (in_place ? ", in place" : "") +
                          ", prescale " + std::to_string(r.prescale));
        }
      }
    }
  }
}

struct Factors {
  double prescale;
  double postscale;
};

template <typename T, typename Draw, typename Element>
void CheckType(DataType dtype, Draw draw, Element element) {
  const Sample<T> sample(draw);
  for (ReduceOp op : kOps) {
    for (int sources : {1, 2, 3, 5, 8}) {
      for (Factors factors : {Factors{1, 1}, Factors{1, 0.3}, Factors{1.7, 1}, Factors{-0.25, 3}}) {
        const int64_t divisor = op == ReduceOp::kAverage ? sources : 1;
        const Reduction r{dtype, op, factors.prescale, factors.postscale, divisor};
        CheckLayouts(r, sources, sample, sample.Expect(r, sources, element));
      }
    }
  }
}

template <typename Codec>
void CheckFloat(DataType dtype) {
  std::mt19937_64 random(17);
  CheckType<typename Codec::Storage>(
      dtype, [&] { return RandomFloat<Codec>(random); }, reference::FloatElement<Codec>);
}

template <typename T>
void CheckInteger(DataType dtype) {
  std::mt19937_64 random(19);
  CheckType<T>(
      dtype, [&] { return RandomInteger<T>(random); }, reference::IntegerElement<T>);
}

TEST(kernels, Float16) { CheckFloat<HalfCodec>(DataType::kFloat16); }
TEST(kernels, Bfloat16) { CheckFloat<BfloatCodec>(DataType::kBfloat16); }
TEST(kernels, Float8E4m3fn) { CheckFloat<E4m3fnCodec>(DataType::kFloat8E4m3fn); }
TEST(kernels, Float8E5m2) { CheckFloat<E5m2Codec>(DataType::kFloat8E5m2); }
TEST(kernels, Float32) { CheckFloat<NumberCodec<float>>(DataType::kFloat32); }
TEST(kernels, Float64) { CheckFloat<NumberCodec<double>>(DataType::kFloat64); }
TEST(kernels, Uint8) { CheckInteger<uint8_t>(DataType::kUint8); }
TEST(kernels, Int8) { CheckInteger<int8_t>(DataType::kInt8); }
TEST(kernels, Uint16) { CheckInteger<uint16_t>(DataType::kUint16); }
TEST(kernels, Int16) { CheckInteger<int16_t>(DataType::kInt16); }
TEST(kernels, Uint32) { CheckInteger<uint32_t>(DataType::kUint32); }
TEST(kernels, Int32) { CheckInteger<int32_t>(DataType::kInt32); }
TEST(kernels, Uint64) { CheckInteger<uint64_t>(DataType::kUint64); }
TEST(kernels, Int64) { CheckInteger<int64_t>(DataType::kInt64); }

TEST(kernels, Bool) {
  std::mt19937_64 random(23);
  CheckType<uint8_t>(
      DataType::kBool, [&] { return static_cast<uint8_t>(random() % 2); }, reference::BoolElement);
}

// Any byte but 0 is true.
TEST(kernels, BoolNormalises) {
  const uint8_t a[] = {2, 0, 255, 0};
  const uint8_t b[] = {1, 4, 0, 0};
  const void* sources[] = {a, b};
  uint8_t result[4];
  void* destinations[] = {result};
  kernels::Reduce({DataType::kBool, ReduceOp::kSum}, sources, 2, destinations, 1, 4);
  EXPECT_TRUE(std::equal(result, result + 4, std::begin({1, 1, 1, 0})));
  kernels::Reduce({DataType::kBool, ReduceOp::kMin}, sources, 2, destinations, 1, 4);
  EXPECT_TRUE(std::equal(result, result + 4, std::begin({1, 0, 0, 0})));
}

TEST(kernels, DivisorLargerThanTheType) {
  const int8_t a[] = {-128, 127, 0};
  const int8_t zero[] = {0, 0, 0};
  const void* sources[] = {a, zero};
  int8_t result[] = {1, 1, 1};
  void* destinations[] = {result};
  kernels::Reduce({DataType::kInt8, ReduceOp::kAverage, 1, 1, 1 << 20}, sources, 2, destinations, 1,
                  3);
  EXPECT_TRUE(std::all_of(result, result + 3, [](int8_t x) { return x == 0; }));
}

// Every half value, through every instruction set, is itself again; a signalling NaN becomes quiet.
TEST(half, EveryValueSurvives) {
  std::vector<uint16_t> all(1 << 16);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (DataType dtype : {DataType::kFloat16, DataType::kBfloat16}) {
    const auto format = dtype == DataType::kFloat16 ? reference::kHalf : reference::kBfloat;
    for (const kernels::Table* table : kernels::UsableTables()) {
      std::vector<uint16_t> result(all.size());
      const void* sources[] = {all.data(), all.data()};
      void* destinations[] = {result.data()};
      kernels::ReduceWith(*table, {dtype, ReduceOp::kMax}, sources, 2, destinations, 1, all.size());
      for (size_t i = 0; i < all.size(); ++i) {
        const bool nan = std::isnan(reference::Decode(all[i], format));
        const uint16_t quiet = nan ? 1 << (format.mantissa - 1) : 0;
        if (!EXPECT_EQ(result[i], all[i] | quiet)) return;
      }
    }
  }
}

TEST(half, ScalarConversionsMatchTheReference) {
  std::mt19937_64 random(29);
  for (int i = 0; i < (1 << 21); ++i) {
    // All exponents; and the neighbourhood of ties, where rounding goes wrong first.
    uint32_t bits = static_cast<uint32_t>(random());
    if (i % 2 == 0) bits = (bits & ~0x1fffu) | (0x0fff + bits % 3);
    const float value = BitsToFloat(bits);
    if (std::isnan(value)) continue;
    if (!EXPECT_EQ(ToFloat16(value).bits, reference::Encode(value, reference::kHalf))) return;
    if (!EXPECT_EQ(ToBfloat16(value).bits, reference::Encode(value, reference::kBfloat))) return;
  }
  for (uint32_t i = 0; i < (1 << 16); ++i) {
    const double expected = reference::Decode(static_cast<uint16_t>(i), reference::kHalf);
    const float got = ToFloat(Float16{static_cast<uint16_t>(i)});
    if (!EXPECT_TRUE(std::isnan(expected) ? std::isnan(got) : expected == got)) return;
  }
}

// NaN payloads included: the conversions of all instruction sets agree.
TEST(half, NanPayloadsAgreeAcrossInstructionSets) {
  std::vector<uint16_t> nans;
  for (uint32_t i = 0; i < (1 << 16); ++i) nans.push_back(static_cast<uint16_t>(i));
  const Reduction r{DataType::kFloat16, ReduceOp::kSum, 1.0, 0.5, 1};
  std::vector<uint16_t> first;
  for (const kernels::Table* table : kernels::UsableTables()) {
    std::vector<uint16_t> result(nans.size());
    const void* sources[] = {nans.data()};
    void* destinations[] = {result.data()};
    kernels::ReduceWith(*table, r, sources, 1, destinations, 1, nans.size());
    if (first.empty()) first = result;
    EXPECT_TRUE(first == result);
  }
}

TEST(kernels, TablesAreFoundByName) {
  EXPECT_TRUE(kernels::TableFor("baseline") == &kernels::kBaselineTable);
  EXPECT_TRUE(kernels::TableFor("no such") == nullptr);
  EXPECT_TRUE(kernels::TableFor(kernels::InstructionSet()) == kernels::UsableTables().front());
}

}  // namespace
}  // namespace hvd

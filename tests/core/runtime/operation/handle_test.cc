#include "runtime/operation/handle.h"

#include <cstring>
#include <vector>

#include "check.h"

namespace hvd::test {
namespace {

uint64_t SampleOf(std::vector<float>* values) {
  Entry entry;
  entry.buffers.push_back(
      TensorBuffer::InPlace(values->data(), static_cast<int64_t>(values->size()) * 4));
  return Sample(entry);
}

TEST(Sample, EveryByteOfASmallTensorCounts) {
  for (const size_t size : {1u, 2u, 7u, 64u, 256u}) {
    std::vector<float> values(size, 0.5f);
    const uint64_t before = SampleOf(&values);
    EXPECT_EQ(SampleOf(&values), before);
    for (size_t bit = 0; bit < 32 * size; ++bit) {
      std::byte& changed = reinterpret_cast<std::byte*>(values.data())[bit / 8];
      changed ^= std::byte{1} << (bit % 8);
      EXPECT_TRUE(SampleOf(&values) != before);
      changed ^= std::byte{1} << (bit % 8);
    }
  }
}

TEST(Sample, WhatChangesATenthOfALargeTensorIsSeen) {
  std::vector<float> values(1'000'003);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 10);
  const uint64_t before = SampleOf(&values);
  for (float& value : values) value = value < 9 ? value : 8;
  EXPECT_TRUE(SampleOf(&values) != before);
}

TEST(Sample, StaysWithinTheTensor) {
  // Sizes around what is read completely, in memory of exactly that size, under AddressSanitizer.
  for (int64_t bytes = 1000; bytes < 1200; ++bytes) {
    const std::vector<std::byte> values(static_cast<size_t>(bytes));
    Entry entry;
    entry.buffers.push_back({values.data(), bytes, const_cast<std::byte*>(values.data()), bytes});
    EXPECT_EQ(Sample(entry), Sample(entry));
  }
}

}  // namespace
}  // namespace hvd::test

#pragma once

#include "collective/kernels/kernels.h"
#include "collective/kernels/lanes.h"
#include "collective/kernels/ops.h"

// The loops, as templates over lane and operation. "omp simd" states what the contract of Reduce
// gives: a destination is a source's very address or does not overlap, so no iteration depends on
// another.
namespace hvd::kernels {
namespace {

constexpr int64_t kBlockBytes = 8192;  // scratch that stays in L1 beside a source

HVD_INLINE const std::byte* Source(const Task& task, int i) {
  return static_cast<const std::byte*>(task.sources[i]);
}
HVD_INLINE std::byte* Destination(const Task& task, int i) {
  return static_cast<std::byte*>(task.destinations[i]);
}

template <typename Lane, bool kScaled>
HVD_INLINE typename Lane::Value Fetch(const std::byte* source, int64_t i, double scale) {
  using Compute = typename Lane::Compute;
  const typename Lane::Value value = Lane::Load(source, i);
  if constexpr (!kScaled) {
    return value;
  } else if constexpr (std::is_integral_v<Compute>) {
    return Saturate<Compute>(static_cast<double>(value) * scale);
  } else {
    return value * static_cast<Compute>(scale);
  }
}

// Calls loop(lane, begin, end) with the wide lane as far as it goes, then with the narrow one.
template <typename Wide, typename Narrow, typename Loop>
HVD_INLINE void Split(int64_t count, Loop loop) {
  const int64_t whole = count - count % Wide::kWidth;
  loop(Wide{}, int64_t{0}, whole);
  if constexpr (Wide::kWidth > 1) loop(Narrow{}, whole, count);
}

template <typename Wide, typename Narrow, typename Op>
struct Loops {
  using Compute = typename Narrow::Compute;
  static constexpr int64_t kBlock = kBlockBytes / sizeof(Compute);
  static constexpr bool kFloating = !std::is_integral_v<Compute>;

  // Two sources straight into one or two destinations, without scratch: what two ranks of a host
  // do.
  template <int kDestinations, bool kScaled>
  static void Pair(const Task& task, Compute factor) {
    const std::byte* first = Source(task, 0);
    const std::byte* second = Source(task, 1);
    std::byte* to = Destination(task, 0);
    std::byte* also_to = Destination(task, kDestinations - 1);
    Split<Wide, Narrow>(task.elements, [=](auto lane, int64_t begin, int64_t end) {
      using Lane = decltype(lane);
#pragma omp simd
      for (int64_t i = begin; i < end; i += Lane::kWidth) {
        auto value = Op::Apply(Lane::Load(first, i), Lane::Load(second, i));
        if constexpr (kScaled) value = value * factor;
        Lane::Store(to, i, value);
        if constexpr (kDestinations == 2) Lane::Store(also_to, i, value);
      }
    });
  }

  // The passes over a block stay out of line: in one nest with the loop over sources, the compiler
  // unrolls that loop instead and vectorises none.
  template <bool kScaled>
  [[gnu::noinline]] static void First(Compute* block, const std::byte* source, int64_t count,
                                      double scale) {
    Split<Wide, Narrow>(count, [=](auto lane, int64_t begin, int64_t end) {
      using Lane = decltype(lane);
#pragma omp simd
      for (int64_t i = begin; i < end; i += Lane::kWidth)
        Put<Lane>(block, i, Fetch<Lane, kScaled>(source, i, scale));
    });
  }

  template <bool kScaled>
  [[gnu::noinline]] static void Next(Compute* block, const std::byte* source, int64_t count,
                                     double scale) {
    Split<Wide, Narrow>(count, [=](auto lane, int64_t begin, int64_t end) {
      using Lane = decltype(lane);
#pragma omp simd
      for (int64_t i = begin; i < end; i += Lane::kWidth) {
        Put<Lane>(block, i, Op::Apply(Get<Lane>(block, i), Fetch<Lane, kScaled>(source, i, scale)));
      }
    });
  }

  [[gnu::noinline]] static void Finish(Compute* block, int64_t count, const Task& task) {
    if constexpr (kFloating) {
      const double exact = task.postscale / static_cast<double>(task.divisor);
      if (exact == 1.0) return;
      const auto factor = static_cast<Compute>(exact);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) block[i] = block[i] * factor;
    } else {
      if (task.divisor != 1) Quotient(block, count, task.divisor);
      if (task.postscale != 1.0) Scale(block, count, task.postscale);
    }
  }

  static void Quotient(Compute* block, int64_t count, int64_t divisor) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) block[i] = Divide(block[i], divisor);
  }

  static void Scale(Compute* block, int64_t count, double scale) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i)
      block[i] = Saturate<Compute>(static_cast<double>(block[i]) * scale);
  }

  [[gnu::noinline]] static void Spread(const Compute* block, std::byte* destination,
                                       int64_t count) {
    Split<Wide, Narrow>(count, [=](auto lane, int64_t begin, int64_t end) {
      using Lane = decltype(lane);
#pragma omp simd
      for (int64_t i = begin; i < end; i += Lane::kWidth)
        Lane::Store(destination, i, Get<Lane>(block, i));
    });
  }

  // Any number of sources and destinations: each source is read once and each destination written
  // once, and the partial results stay in L1.
  template <bool kScaled>
  static void Blocks(const Task& task) {
    alignas(64) Compute block[kBlock];
    for (int64_t start = 0; start < task.elements; start += kBlock) {
      const int64_t rest = task.elements - start;
      const int64_t count = rest < kBlock ? rest : kBlock;
      const int64_t offset = start * Narrow::kBytes;
      First<kScaled>(block, Source(task, 0) + offset, count, task.prescale);
      for (int s = 1; s < task.source_count; ++s) {
        Next<kScaled>(block, Source(task, s) + offset, count, task.prescale);
      }
      Finish(block, count, task);
      for (int d = 0; d < task.destination_count; ++d)
        Spread(block, Destination(task, d) + offset, count);
    }
  }

  static void Run(const Task& task) {
    const double factor = task.postscale / static_cast<double>(task.divisor);
    const bool finished = kFloating ? factor == 1.0 : task.divisor == 1 && task.postscale == 1.0;
    const bool pair =
        task.source_count == 2 && (task.destination_count == 1 || task.destination_count == 2);
    if (task.prescale != 1.0) return Blocks<true>(task);
    if (!pair) return Blocks<false>(task);
    if (finished)
      return task.destination_count == 1 ? Pair<1, false>(task, 1) : Pair<2, false>(task, 1);
    if constexpr (kFloating) {
      const auto cast = static_cast<Compute>(factor);
      return task.destination_count == 1 ? Pair<1, true>(task, cast) : Pair<2, true>(task, cast);
    }
    return Blocks<false>(task);
  }
};

}  // namespace
}  // namespace hvd::kernels

#define HVD_KERNEL_ROW(Wide, Narrow)                                                             \
  {                                                                                              \
    Loops<Wide, Narrow, Sum>::Run, Loops<Wide, Narrow, Min>::Run, Loops<Wide, Narrow, Max>::Run, \
        Loops<Wide, Narrow, Product>::Run                                                        \
  }
#define HVD_NUMBER_ROW(T) HVD_KERNEL_ROW(NumberLane<T>, NumberLane<T>)

// In the order of DataType, with the wide lanes of float16 and bfloat16. A bool's sum is "or" and
// its product "and".
#define HVD_KERNEL_ROWS(WideHalf, WideBfloat)                                              \
  {                                                                                        \
    HVD_NUMBER_ROW(uint8_t), HVD_NUMBER_ROW(int8_t), HVD_NUMBER_ROW(uint16_t),             \
        HVD_NUMBER_ROW(int16_t), HVD_NUMBER_ROW(int32_t), HVD_NUMBER_ROW(int64_t),         \
        HVD_KERNEL_ROW(WideHalf, HalfLane), HVD_NUMBER_ROW(float), HVD_NUMBER_ROW(double), \
        {Loops<BoolLane, BoolLane, Max>::Run, Loops<BoolLane, BoolLane, Min>::Run,         \
         Loops<BoolLane, BoolLane, Max>::Run, Loops<BoolLane, BoolLane, Min>::Run},        \
        HVD_KERNEL_ROW(WideBfloat, BfloatLane), HVD_NUMBER_ROW(uint32_t),                  \
        HVD_NUMBER_ROW(uint64_t), HVD_KERNEL_ROW(Float8E4m3fnLane, Float8E4m3fnLane),      \
        HVD_KERNEL_ROW(Float8E5m2Lane, Float8E5m2Lane),                                    \
  }

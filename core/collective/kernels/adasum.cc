#include "collective/kernels/adasum.h"

#include <cstring>

#include "base/float8.h"
#include "base/half.h"

namespace hvd {

namespace {

float Widen(Float16 raw) { return ToFloat(raw); }
float Widen(Bfloat16 raw) { return ToFloat(raw); }
float Widen(Float8E4m3fn raw) { return ToFloat(raw); }
float Widen(Float8E5m2 raw) { return ToFloat(raw); }
float Widen(float raw) { return raw; }
double Widen(double raw) { return raw; }

void Narrow(float value, Float16* raw) { *raw = ToFloat16(value); }
void Narrow(float value, Bfloat16* raw) { *raw = ToBfloat16(value); }
void Narrow(float value, Float8E4m3fn* raw) { *raw = ToFloat8E4m3fn(value); }
void Narrow(float value, Float8E5m2* raw) { *raw = ToFloat8E5m2(value); }
void Narrow(float value, float* raw) { *raw = value; }
void Narrow(double value, double* raw) { *raw = value; }

template <typename Raw>
struct Kernels {
  using Work = decltype(Widen(Raw()));

  static const Work* In(const std::byte* at) { return reinterpret_cast<const Work*>(at); }
  static Work* Out(std::byte* at) { return reinterpret_cast<Work*>(at); }

  static void Load(const std::byte* raw, std::byte* work, int64_t elements, double factor) {
    if (raw == work && factor == 1.0) return;
    const Raw* from = reinterpret_cast<const Raw*>(raw);
    Work* to = Out(work);
    for (int64_t i = 0; i < elements; ++i) to[i] = static_cast<Work>(Widen(from[i]) * factor);
  }

  // Four sums side by side, so that additions need not wait for each other.
  static void Measure(const std::byte* first, const std::byte* second, int64_t elements,
                      Dots* dots) {
    constexpr int kLanes = 4;
    const Work* a = In(first);
    const Work* b = In(second);
    double ab[kLanes] = {};
    double aa[kLanes] = {};
    double bb[kLanes] = {};
    const int64_t whole = elements - elements % kLanes;
    const auto add = [&](int64_t i, int lane) {
      const double x = a[i];
      const double y = b[i];
      ab[lane] += x * y;
      aa[lane] += x * x;
      bb[lane] += y * y;
    };
    for (int64_t i = 0; i < whole; i += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
    }
    for (int64_t i = whole; i < elements; ++i) add(i, 0);
    for (int lane = 0; lane < kLanes; ++lane) {
      dots->ab += ab[lane];
      dots->aa += aa[lane];
      dots->bb += bb[lane];
    }
  }

  static void Combine(std::byte* first, const std::byte* second, int64_t elements, double a_share,
                      double b_share) {
    Work* a = Out(first);
    const Work* b = In(second);
    for (int64_t i = 0; i < elements; ++i)
      a[i] = static_cast<Work>(a_share * a[i] + b_share * b[i]);
  }

  static void Store(const std::byte* work, std::byte* result, int64_t elements, double factor) {
    const Work* from = In(work);
    for (int64_t i = 0; i < elements; ++i) {
      Raw raw;
      Narrow(static_cast<Work>(from[i] * factor), &raw);
      std::memcpy(result + static_cast<size_t>(i) * sizeof raw, &raw, sizeof raw);
    }
  }

  static const AdasumKernels* Table() {
    static constexpr AdasumKernels kTable{sizeof(Work), Load, Measure, Combine, Store};
    return &kTable;
  }
};

}  // namespace

const AdasumKernels* AdasumKernelsFor(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return Kernels<Float16>::Table();
    case DataType::kBfloat16:
      return Kernels<Bfloat16>::Table();
    case DataType::kFloat8E4m3fn:
      return Kernels<Float8E4m3fn>::Table();
    case DataType::kFloat8E5m2:
      return Kernels<Float8E5m2>::Table();
    case DataType::kFloat32:
      return Kernels<float>::Table();
    case DataType::kFloat64:
      return Kernels<double>::Table();
    default:
      return nullptr;
  }
}

}  // namespace hvd

#include <cpuid.h>

#include "collective/kernels/kernels.h"

namespace hvd::kernels {

namespace {

// __builtin_cpu_supports does not know this name in every compiler that we support.
bool SupportsF16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

bool SupportsAvx2() { return __builtin_cpu_supports("avx2") && SupportsF16c(); }

bool SupportsAvx512() {
  return SupportsAvx2() && __builtin_cpu_supports("avx512f") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq");
}

}  // namespace

std::vector<const Table*> UsableTables() {
  std::vector<const Table*> tables;
  if (SupportsAvx512()) tables.push_back(&kAvx512Table);
  if (SupportsAvx2()) tables.push_back(&kAvx2Table);
  tables.push_back(&kBaselineTable);
  return tables;
}

}  // namespace hvd::kernels

#include "backend/mpi/arithmetic.h"

#include <array>
#include <mutex>
#include <utility>

#include "backend/mpi/process.h"

namespace hvd::mpi_backend {

namespace {

constexpr size_t kPairs = static_cast<size_t>(kDataTypes) * kReduceOps;

// The function of an MPI_Op is told neither type nor operation of ours: there is one for each pair.
CombineFunction combine_with = nullptr;

template <size_t kPair>
void Apply(void* in, void* in_and_out, int* count, MPI_Datatype* /*type*/) {
  combine_with(static_cast<DataType>(kPair / kReduceOps), static_cast<ReduceOp>(kPair % kReduceOps),
               in, in_and_out, in_and_out, *count);
}

template <size_t... kPair>
constexpr std::array<MPI_User_function*, kPairs> Functions(std::index_sequence<kPair...> /*all*/) {
  return {&Apply<kPair>...};
}

// A minimum of numbers that are equal, such as 0 and -0, is the left one: every rank must reduce
// them in one order to get the same bits.
bool Commutes(DataType dtype, ReduceOp op) {
  const bool sum = op != ReduceOp::kMin && op != ReduceOp::kMax;
  return sum || !IsFloating(dtype);
}

}  // namespace

MPI_Datatype TypeOf(DataType dtype) {
  switch (SizeOf(dtype)) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    default:
      return MPI_UINT64_T;
  }
}

MPI_Op OperationOf(DataType dtype, ReduceOp op, CombineFunction combine) {
  static constexpr auto kFunctions = Functions(std::make_index_sequence<kPairs>());
  static std::mutex mutex;
  static std::array<MPI_Op, kPairs> made = [] {
    std::array<MPI_Op, kPairs> none{};
    none.fill(MPI_OP_NULL);
    return none;
  }();
  const size_t pair = static_cast<size_t>(dtype) * kReduceOps + static_cast<size_t>(op);
  const std::lock_guard<std::mutex> lock(mutex);
  combine_with = combine;
  if (made[pair] == MPI_OP_NULL) {
    const int commutes = Commutes(dtype, op) ? 1 : 0;
    Check(MPI_Op_create(kFunctions[pair], commutes, &made[pair]), "MPI_Op_create");
  }
  return made[pair];
}

}  // namespace hvd::mpi_backend

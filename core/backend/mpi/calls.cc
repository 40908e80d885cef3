#include "backend/mpi/calls.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <thread>
#include <utility>

#include "backend/mpi/arithmetic.h"
#include "backend/mpi/process.h"

namespace hvd::mpi_backend {

namespace {

// MPI's progress is made by whoever asks for it. Short calls are asked about at once and again; the
// longer one takes, the longer the pauses: a rank may wait for another one that computes.
constexpr int kYields = 200;
constexpr auto kShortestPause = std::chrono::microseconds(20);
constexpr auto kLongestPause = std::chrono::microseconds(500);

// What goes to each member, or comes from it, end to end.
struct Parts {
  std::vector<int> bytes;
  std::vector<int> offsets;

  explicit Parts(const std::vector<int64_t>& lengths) {
    int64_t at = 0;
    for (const int64_t length : lengths) {
      offsets.push_back(static_cast<int>(at));
      bytes.push_back(static_cast<int>(length));
      at += length;
      if (at > std::numeric_limits<int>::max()) throw std::length_error("too much for one call");
    }
  }
};

// What MPI uses until a call's end.
struct UnderWay {
  LibraryCall call;
  Parts input;
  Parts output;
  MPI_Request request = MPI_REQUEST_NULL;

  explicit UnderWay(LibraryCall what)
      : call(std::move(what)), input(call.input_bytes), output(call.output_bytes) {}
};

void Begin(MPI_Comm to, CombineFunction combine, UnderWay* way) {
  const LibraryCall& call = way->call;
  const Parts& in = way->input;
  const Parts& out = way->output;
  MPI_Request* const request = &way->request;
  switch (call.kind) {
    case OpKind::kAllreduce:
      return Check(
          MPI_Iallreduce(MPI_IN_PLACE, call.output,
                         out.bytes[0] / static_cast<int>(SizeOf(call.dtype)), TypeOf(call.dtype),
                         OperationOf(call.dtype, call.op, combine), to, request),
          "MPI_Iallreduce");
    case OpKind::kAllgather:
      return Check(MPI_Iallgatherv(call.input, in.bytes[0], MPI_BYTE, call.output, out.bytes.data(),
                                   out.offsets.data(), MPI_BYTE, to, request),
                   "MPI_Iallgatherv");
    case OpKind::kBroadcast:
      return Check(MPI_Ibcast(call.output, out.bytes[0], MPI_BYTE, call.root, to, request),
                   "MPI_Ibcast");
    case OpKind::kAlltoall:
      return Check(
          MPI_Ialltoallv(call.input, in.bytes.data(), in.offsets.data(), MPI_BYTE, call.output,
                         out.bytes.data(), out.offsets.data(), MPI_BYTE, to, request),
          "MPI_Ialltoallv");
    case OpKind::kBarrier:
      return Check(MPI_Ibarrier(to, request), "MPI_Ibarrier");
    case OpKind::kReducescatter:
    case OpKind::kJoin:
      break;
  }
  throw std::logic_error("a collective that this backend does not have");
}

// False: abandoned before its end.
bool Await(MPI_Request* request, const std::function<bool()>& abandoned) {
  auto pause = kShortestPause;
  for (int asked = 0;; ++asked) {
    int done = 0;
    Check(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) return true;
    if (abandoned()) return false;
    if (asked < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min<std::chrono::microseconds>(2 * pause, kLongestPause);
    }
  }
}

}  // namespace

void Run(MPI_Comm communicator, LibraryCall call, CombineFunction combine,
         const std::function<bool()>& abandoned) {
  auto way = std::make_unique<UnderWay>(std::move(call));
  try {
    Begin(communicator, combine, way.get());
    if (Await(&way->request, abandoned)) return;
  } catch (...) {
    GiveUp();
    (void)way.release();
    throw;
  }
  GiveUp();
  (void)way.release();  // never freed: MPI may still write to it
}

}  // namespace hvd::mpi_backend

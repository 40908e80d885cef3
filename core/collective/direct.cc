// A small reducescatter goes directly from everybody to everybody.

#include "collective/frame_flow.h"
#include "collective/piece_stream.h"
#include "collective/reducer.h"
#include "collective/transport_collectives.h"

namespace hvd {

namespace {

class DirectReducescatter : public StepMachine {
 public:
  DirectReducescatter(const Communicator& comm, const CollectiveSpec& spec)
      : parts_(ScatterParts(spec, comm.rank(), comm.size())),
        own_(parts_[static_cast<size_t>(comm.rank())]),
        arrivals_(static_cast<size_t>(comm.size())),
        reducer_(spec.reduction, comm.size()),
        exchange_(comm, spec.sequence) {
    status_ = comm.scratch->Borrow(static_cast<size_t>(own_.bytes() * comm.size()), &scratch_);
    if (!status_.ok()) return;
    for (int step = 1; step < comm.size(); ++step) {
      const int from = (comm.rank() - step + comm.size()) % comm.size();
      const int to = (comm.rank() + step) % comm.size();
      std::byte* const arrival = scratch_.data() + own_.bytes() * from;
      reducer_.Set(from, arrival);
      arrivals_[static_cast<size_t>(from)].Add({nullptr, arrival, own_.bytes()});
      // To a rank whose part is empty nothing is sent.
      exchange_.Receive(from, Cut(arrivals_[static_cast<size_t>(from)], kFrameBytes, 0));
      exchange_.Send(to, Cut(parts_[static_cast<size_t>(to)], kFrameBytes, 0));
    }
    status_ = exchange_.BorrowRoom();
  }

 private:
  Step TakeStep() override {
    bool moved = exchange_.PostReceives();
    while (exchange_.SendNext({true})) moved = true;
    while (exchange_.Take(&status_) != nullptr) moved = true;
    if (!status_.ok()) return Step::kFailed;
    if (!exchange_.done()) return moved ? Step::kProgressed : Step::kBlocked;
    reducer_.IntoOutputs(own_, 0, own_.bytes());
    return Step::kDone;
  }

  const std::vector<PieceStream> parts_;  // by the position that gets it reduced
  const PieceStream& own_;
  std::vector<PieceStream> arrivals_;  // by position: where its input of the own part goes
  Reducer reducer_;
  FrameExchange exchange_;
  ScratchPool::Lease scratch_;
};

}  // namespace

std::unique_ptr<StepMachine> MakeDirectReducescatter(const Communicator& comm,
                                                     const CollectiveSpec& spec) {
  return std::make_unique<DirectReducescatter>(comm, spec);
}

}  // namespace hvd

#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "base/collective.h"
#include "base/range.h"

namespace hvd {

// Whole cache lines, of elements of every type.
constexpr int64_t WholeLines(int64_t bytes) { return RoundUp(bytes, 128); }
// That so much has, in all parts but the last.
constexpr int64_t LinesOfPart(int64_t bytes, int parts) {
  return WholeLines((bytes + parts - 1) / parts);
}

// How many chunks of so many bytes at most.
constexpr uint64_t CountChunks(int64_t bytes, int64_t chunk_bytes) {
  return static_cast<uint64_t>((bytes + chunk_bytes - 1) / chunk_bytes);
}

// A stream of so many bytes that is cut in chunks, and each chunk in parts.
class Chunks {
 public:
  Chunks(int64_t bytes, int64_t chunk_bytes, int parts)
      : bytes_(bytes), chunk_bytes_(chunk_bytes), parts_(parts) {}

  uint64_t count() const { return CountChunks(bytes_, chunk_bytes_); }
  Range operator[](uint64_t chunk) const {
    const int64_t begin = static_cast<int64_t>(chunk) * chunk_bytes_;
    return {begin, std::min(begin + chunk_bytes_, bytes_)};
  }
  // Counted from the start of the chunk.
  Range Part(uint64_t chunk, int part) const {
    const int64_t bytes = (*this)[chunk].length();
    const int64_t each = LinesOfPart(bytes, parts_);
    return {std::min(each * part, bytes), std::min(each * (part + 1), bytes)};
  }

 private:
  int64_t bytes_;
  int64_t chunk_bytes_;
  int parts_;
};

// The pieces of a collective laid end to end, so that algorithms cut chunks without regard to
// tensors and nothing is copied together first.
class PieceStream {
 public:
  PieceStream() = default;
  explicit PieceStream(const std::vector<Piece>& pieces);
  void Add(const Piece& piece);  // at its end
  void Append(const PieceStream& other);

  int64_t bytes() const { return ends_.empty() ? 0 : ends_.back(); }
  // The same outputs, which are the inputs too: of what has arrived, to be handed on.
  PieceStream Relayed() const;

  // Whether [begin, end), which is not empty, lies in one piece, and the memory where it does.
  bool HasInOne(int64_t begin, int64_t end) const { return Holder(begin, end) != nullptr; }
  const std::byte* Input(int64_t begin, int64_t end) const {
    const Piece* piece = Holder(begin, end);
    return piece == nullptr || piece->input == nullptr ? nullptr
                                                       : piece->input + Inside(piece, begin);
  }
  std::byte* Output(int64_t begin, int64_t end) const {
    const Piece* piece = Holder(begin, end);
    return piece == nullptr || piece->output == nullptr ? nullptr
                                                        : piece->output + Inside(piece, begin);
  }

  // Calls visit(input, output, at, bytes) for each part of a piece in [begin, end); `at` is its
  // distance from `begin`.
  template <typename Visit>
  void ForEach(int64_t begin, int64_t end, Visit visit) const {
    size_t i = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
    for (int64_t from = begin; from < end; ++i) {
      const int64_t to = std::min(end, ends_[i]);
      const int64_t inside = from - (ends_[i] - pieces_[i].bytes);
      const Piece& piece = pieces_[i];
      // Another rank's part has no input here when it is gathered, no output when it is scattered.
      visit(piece.input == nullptr ? nullptr : piece.input + inside,
            piece.output == nullptr ? nullptr : piece.output + inside, from - begin, to - from);
      from = to;
    }
  }

  // Whether the pieces are so small that to gather them first is cheaper than to compute on each.
  bool small_pieces() const {
    return pieces_.size() > 1 && bytes() / static_cast<int64_t>(pieces_.size()) < kSmallPiece;
  }

  void Pack(int64_t begin, int64_t end, std::byte* to) const;            // inputs -> to
  void Unpack(int64_t begin, int64_t end, const std::byte* from) const;  // from -> outputs
  void Keep(int64_t begin, int64_t end) const;  // inputs -> outputs, where they differ

 private:
  static constexpr int64_t kSmallPiece = 16 << 10;

  const Piece* Holder(int64_t begin, int64_t end) const {
    const size_t i = std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin();
    return end <= ends_[i] ? &pieces_[i] : nullptr;
  }
  int64_t Inside(const Piece* piece, int64_t at) const {
    return at - (ends_[static_cast<size_t>(piece - pieces_.data())] - piece->bytes);
  }

  std::vector<Piece> pieces_;  // without the empty ones
  std::vector<int64_t> ends_;  // where each ends in the stream
};

// The largest of some parts, not counting that of rank `but`.
int64_t LargestBytes(const std::vector<PieceStream>& parts, int but = -1);

// The stream of each rank's part of an allgather, with the places in this rank's outputs where it
// goes. Only the part of `rank` has inputs.
std::vector<PieceStream> GatherParts(const CollectiveSpec& spec, int rank, int size);

// The stream of each rank's part of a reducescatter, with the places in this rank's inputs. Only
// the part of `rank` has outputs.
std::vector<PieceStream> ScatterParts(const CollectiveSpec& spec, int rank, int size);

// A broadcast is an allgather to which only the root contributes.
std::vector<PieceStream> BroadcastParts(const CollectiveSpec& spec, int size);

// What the rank `sender` tells each rank of what it sends, `row` to each.
std::vector<AlltoallSender> DescribeSender(const std::vector<int64_t>& row, int sender);

// Adds the sizes of an alltoall of one piece in which all ranks send alike, `row` to each, as
// `rank` knows it.
void AddAlikeRows(const std::vector<int64_t>& row, int rank, CollectiveSpec* spec);

// An alltoall as one rank sees it: what goes to each rank, what comes from each, all tensors
// together.
struct AlltoallParts {
  AlltoallParts(const CollectiveSpec& spec, int rank, int size);

  std::vector<AlltoallSender> senders;  // by rank
  std::vector<PieceStream> to;          // by receiver, without outputs; to itself nothing
  std::vector<PieceStream> from;        // by sender, without inputs; from itself nothing
  PieceStream own;                      // from the own inputs to the own outputs
};

// What stays on this rank, copied from inputs to outputs a step at a time.
class StraightCopy {
 public:
  StraightCopy() = default;
  explicit StraightCopy(PieceStream stream) : stream_(std::move(stream)) {}

  bool done() const { return at_ == stream_.bytes(); }
  // Copies the next stretch; false when there is none.
  bool Next() {
    if (done()) return false;
    const int64_t end = std::min(at_ + kStretch, stream_.bytes());
    stream_.Keep(at_, end);
    at_ = end;
    return true;
  }

 private:
  static constexpr int64_t kStretch = kStepBytes / 2;  // read once, written once

  PieceStream stream_;
  int64_t at_ = 0;  // copied so far
};

}  // namespace hvd

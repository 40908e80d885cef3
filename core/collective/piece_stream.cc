#include "collective/piece_stream.h"

#include <cstring>
#include <numeric>

namespace hvd {

PieceStream::PieceStream(const std::vector<Piece>& pieces) {
  pieces_.reserve(pieces.size());
  ends_.reserve(pieces.size());
  for (const Piece& piece : pieces) Add(piece);
}

void PieceStream::Add(const Piece& piece) {
  if (piece.bytes == 0) return;
  ends_.push_back(bytes() + piece.bytes);
  pieces_.push_back(piece);
}

void PieceStream::Append(const PieceStream& other) {
  for (const Piece& piece : other.pieces_) Add(piece);
}

PieceStream PieceStream::Relayed() const {
  PieceStream relayed = *this;
  for (Piece& piece : relayed.pieces_) piece.input = piece.output;
  return relayed;
}

void PieceStream::Pack(int64_t begin, int64_t end, std::byte* to) const {
  ForEach(begin, end, [to](const std::byte* input, std::byte*, int64_t at, int64_t bytes) {
    std::memcpy(to + at, input, static_cast<size_t>(bytes));
  });
}

void PieceStream::Unpack(int64_t begin, int64_t end, const std::byte* from) const {
  ForEach(begin, end, [from](const std::byte*, std::byte* output, int64_t at, int64_t bytes) {
    std::memcpy(output, from + at, static_cast<size_t>(bytes));
  });
}

void PieceStream::Keep(int64_t begin, int64_t end) const {
  ForEach(begin, end, [](const std::byte* input, std::byte* output, int64_t, int64_t bytes) {
    // An input may lie inside its own output.
    if (input != output) std::memmove(output, input, static_cast<size_t>(bytes));
  });
}

int64_t LargestBytes(const std::vector<PieceStream>& parts, int but) {
  int64_t largest = 0;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    if (static_cast<int>(rank) != but) largest = std::max(largest, parts[rank].bytes());
  }
  return largest;
}

std::vector<PieceStream> GatherParts(const CollectiveSpec& spec, int rank, int size) {
  std::vector<PieceStream> parts(static_cast<size_t>(size));
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    std::byte* output = spec.pieces[i].output;
    for (int q = 0; q < size; ++q) {
      const int64_t bytes = spec.shares[i].from[q];
      parts[q].Add({q == rank ? spec.pieces[i].input : nullptr, output, bytes});
      output += bytes;
    }
  }
  return parts;
}

std::vector<PieceStream> ScatterParts(const CollectiveSpec& spec, int rank, int size) {
  std::vector<PieceStream> parts(static_cast<size_t>(size));
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const std::byte* input = spec.pieces[i].input;
    for (int q = 0; q < size; ++q) {
      const int64_t bytes = spec.shares[i].to[q];
      parts[q].Add({input, q == rank ? spec.pieces[i].output : nullptr, bytes});
      input += bytes;
    }
  }
  return parts;
}

std::vector<PieceStream> BroadcastParts(const CollectiveSpec& spec, int size) {
  std::vector<PieceStream> parts(static_cast<size_t>(size));
  parts[spec.root.index()] = PieceStream(spec.pieces);
  return parts;
}

std::vector<AlltoallSender> DescribeSender(const std::vector<int64_t>& row, int sender) {
  const size_t size = row.size();
  std::vector<AlltoallSender> told(size);
  int64_t stream = 0;
  for (size_t step = 1; step < size; ++step) {
    const size_t receiver = (static_cast<size_t>(sender) + step) % size;
    told[receiver].before = stream;
    stream += row[receiver];
  }
  const int64_t largest = *std::max_element(row.begin(), row.end());
  for (AlltoallSender& one : told) {
    one.stream = stream;
    one.largest = largest;
  }
  return told;
}

void AddAlikeRows(const std::vector<int64_t>& row, int rank, CollectiveSpec* spec) {
  const size_t size = row.size();
  const auto me = static_cast<size_t>(rank);
  const int64_t largest = *std::max_element(row.begin(), row.end());
  std::vector<int64_t> ends(size);  // of each part, where all lie in the order of the receivers
  std::partial_sum(row.begin(), row.end(), ends.begin());
  const int64_t all = ends.back();
  const int64_t mine = ends[me] - row[me];
  spec->senders.clear();
  for (size_t sender = 0; sender < size; ++sender) {
    const int64_t round = sender > me ? all - ends[sender] + mine : mine - ends[sender];
    spec->senders.push_back({all - row[sender], sender == me ? 0 : round, largest});
  }
  spec->shares.push_back({row, std::vector<int64_t>(size, row[me])});
}

AlltoallParts::AlltoallParts(const CollectiveSpec& spec, int rank, int size)
    : senders(spec.senders), to(static_cast<size_t>(size)), from(static_cast<size_t>(size)) {
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const Shares& shares = spec.shares[i];
    const std::byte* input = spec.pieces[i].input;
    std::byte* output = spec.pieces[i].output;
    Piece stays;
    for (int peer = 0; peer < size; ++peer) {
      const int64_t sent = shares.to[static_cast<size_t>(peer)];
      const int64_t received = shares.from[static_cast<size_t>(peer)];
      if (peer == rank) {
        stays = {input, output, received};
      } else {
        to[peer].Add({input, nullptr, sent});
        from[peer].Add({nullptr, output, received});
      }
      input += sent;
      output += received;
    }
    own.Add(stays);
  }
}

}  // namespace hvd

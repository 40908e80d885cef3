#include "collective/piece_stream.h"

#include <cstring>

namespace hvd {

PieceStream::PieceStream(const std::vector<Piece>& pieces) {
  pieces_.reserve(pieces.size());
  ends_.reserve(pieces.size());
  int64_t end = 0;
  for (const Piece& piece : pieces) {
    if (piece.bytes == 0) continue;
    pieces_.push_back(piece);
    ends_.push_back(end += piece.bytes);
  }
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
  std::vector<std::vector<Piece>> parts(static_cast<size_t>(size));
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    std::byte* output = spec.pieces[i].output;
    for (int q = 0; q < size; ++q) {
      const int64_t bytes = spec.rank_bytes[i][q];
      parts[q].push_back({q == rank ? spec.pieces[i].input : nullptr, output, bytes});
      output += bytes;
    }
  }
  return {parts.begin(), parts.end()};
}

std::vector<std::vector<Piece>> ScatterParts(const CollectiveSpec& spec, int rank, int size) {
  std::vector<std::vector<Piece>> parts(static_cast<size_t>(size));
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const std::byte* input = spec.pieces[i].input;
    for (int q = 0; q < size; ++q) {
      const int64_t bytes = spec.rank_bytes[i][q];
      parts[q].push_back({input, q == rank ? spec.pieces[i].output : nullptr, bytes});
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

AlltoallParts::AlltoallParts(const CollectiveSpec& spec, int rank, int size)
    : size(size),
      bytes(static_cast<size_t>(size) * static_cast<size_t>(size)),
      to(static_cast<size_t>(size)),
      from(static_cast<size_t>(size)) {
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const std::vector<int64_t>& piece_bytes = spec.rank_bytes[i];
    for (size_t pair = 0; pair < bytes.size(); ++pair) bytes[pair] += piece_bytes[pair];
    const std::byte* input = spec.pieces[i].input;
    std::byte* output = spec.pieces[i].output;
    const std::byte* own_input = nullptr;
    std::byte* own_output = nullptr;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) own_input = input;
      if (peer == rank) own_output = output;
      const int64_t sent = piece_bytes[static_cast<size_t>(rank * size + peer)];
      const int64_t received = piece_bytes[static_cast<size_t>(peer * size + rank)];
      to[peer].push_back({input, nullptr, sent});
      from[peer].push_back({nullptr, output, received});
      input += sent;
      output += received;
    }
    own.push_back({own_input, own_output, from[rank].back().bytes});
  }
  to[rank].clear();
  from[rank].clear();
}

}  // namespace hvd

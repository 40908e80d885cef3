#include <algorithm>
#include <cmath>
#include <random>

#include "check.h"
#include "collective/adasum.h"
#include "collective/collective_reference.h"
#include "ranks.h"

namespace hvd::test {
namespace {

const std::vector<int> kRanks{1, 2, 3, 4, 5, 7, 8};
constexpr DataType kTypes[] = {DataType::kFloat32,  DataType::kFloat64,      DataType::kFloat16,
                               DataType::kBfloat16, DataType::kFloat8E4m3fn, DataType::kFloat8E5m2};

using Vector = std::vector<double>;

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Vector Combined(const Vector& a, const Vector& b) {
  const double ab = Dot(a, b);
  const double a_share = Dot(a, a) == 0 ? 1 : 1 - ab / (2 * Dot(a, a));
  const double b_share = Dot(b, b) == 0 ? 1 : 1 - ab / (2 * Dot(b, b));
  Vector result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = a_share * a[i] + b_share * b[i];
  return result;
}

// By the definition: the halves of a power of two are combined each by itself, then with each
// other; with any other number of vectors the last ones are first combined with the first ones.
Vector AdasumOf(std::vector<Vector> vectors) {
  if (vectors.size() == 1) return vectors[0];
  size_t power = 1;
  while (power * 2 <= vectors.size()) power *= 2;
  for (size_t i = power; i < vectors.size(); ++i) {
    vectors[i - power] = Combined(vectors[i - power], vectors[i]);
  }
  vectors.resize(power);
  const auto middle = vectors.begin() + static_cast<int64_t>(power / 2);
  return Combined(AdasumOf({vectors.begin(), middle}), AdasumOf({middle, vectors.end()}));
}

Vector Decoded(DataType dtype, const Bytes& tensor) {
  Vector values(tensor.size() / SizeOf(dtype));
  WithCodec(dtype, [&](auto codec) {
    using Storage = typename decltype(codec)::Storage;
    for (size_t i = 0; i < values.size(); ++i) values[i] = codec.Load(Get<Storage>(tensor, i));
  });
  return values;
}

Bytes Encoded(DataType dtype, const Vector& values) {
  Bytes tensor(values.size() * SizeOf(dtype));
  WithCodec(dtype, [&](auto codec) {
    for (size_t i = 0; i < values.size(); ++i) Put(&tensor, i, codec.Save(values[i]));
  });
  return tensor;
}

// What one rounding to the type may do, with room for the arithmetic of the work type.
double Precision(DataType dtype) {
  if (dtype == DataType::kFloat64) return 1e-13;
  if (dtype == DataType::kFloat32) return 2e-6;
  if (dtype == DataType::kFloat8E4m3fn) return 0x1p-4 + 2e-6;
  if (dtype == DataType::kFloat8E5m2) return 0x1p-3 + 2e-6;
  return dtype == DataType::kFloat16 ? 0x1p-11 + 2e-6 : 0x1p-8 + 2e-6;
}

// Half of what lies between subnormal numbers, where that is more than the room above.
double SubnormalRoom(DataType dtype) {
  if (dtype == DataType::kFloat8E4m3fn) return 0x1p-10;
  return dtype == DataType::kFloat8E5m2 ? 0x1p-17 : 0;
}

bool Close(DataType dtype, const Bytes& tensor, const Vector& expected) {
  const Vector values = Decoded(dtype, tensor);
  double largest = 0;
  for (double value : expected) largest = std::max(largest, std::fabs(value));
  // An element may be small because large ones cancel out.
  const double floor =
      SubnormalRoom(dtype) + largest * (dtype == DataType::kFloat64 ? 1e-13 : 2e-6);
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(std::fabs(values[i] - expected[i]) <= Precision(dtype) * std::fabs(expected[i]) + floor))
      return false;
  }
  return values.size() == expected.size();
}

CollectiveSpec SpecOf(const Reduction& reduction, uint64_t sequence, const Bytes& input,
                      Bytes* output) {
  CollectiveSpec spec;
  spec.sequence = sequence;
  spec.reduction = reduction;
  spec.pieces.push_back({input.data(), output->data(), static_cast<int64_t>(input.size())});
  return spec;
}

Reduction Plain(DataType dtype) { return {dtype, ReduceOp::kAdasum, 1.0, 1.0, 1}; }

// Runs one Adasum of the ranks' inputs after the other in a world; outputs by [operation][rank].
struct Case {
  Reduction reduction;
  std::vector<Bytes> inputs;  // by rank
};

std::vector<std::vector<Bytes>> RunAll(Medium medium, int ranks, const std::vector<Case>& cases) {
  std::vector<std::vector<Bytes>> outputs(cases.size(),
                                          std::vector<Bytes>(static_cast<size_t>(ranks)));
  World world(medium, ranks);
  RunRanks(ranks, [&](int r) {
    Rank rank(&world, r);
    Backend* backend = nullptr;
    ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
    for (size_t i = 0; i < cases.size(); ++i) {
      const bool in_place = i % 2 == 1;
      Bytes& output = outputs[i][r];
      output = in_place ? cases[i].inputs[r] : Bytes(cases[i].inputs[r].size());
      const Bytes& input = in_place ? output : cases[i].inputs[r];
      ASSERT_OK(rank.Run(backend, SpecOf(cases[i].reduction, i, input, &output)));
    }
  });
  return outputs;
}

bool AllEqual(const std::vector<Bytes>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const Bytes& t) { return t == tensors[0]; });
}

Vector Expected(const Case& one) {
  std::vector<Vector> vectors;
  for (const Bytes& input : one.inputs) {
    vectors.push_back(Decoded(one.reduction.dtype, input));
    for (double& value : vectors.back()) value *= one.reduction.prescale;
  }
  Vector result = AdasumOf(vectors);
  for (double& value : result) value *= one.reduction.postscale;
  return result;
}

TEST(Adasum, IsThePublishedOneAndEqualEverywhere) {
  constexpr int64_t kElements[] = {0, 1, 5, 97, 1000, 60'001};
  for (int ranks : kRanks) {
    std::mt19937_64 random(static_cast<uint64_t>(ranks));
    std::vector<Case> cases;
    for (DataType dtype : kTypes) {
      for (int64_t elements : kElements) {
        const bool scaled = elements % 2 == 1;
        Case one{{dtype, ReduceOp::kAdasum, scaled ? 0.5 : 1.0, scaled ? 3.0 : 1.0, 1}, {}};
        for (int rank = 0; rank < ranks; ++rank) {
          one.inputs.push_back(RandomTensor(dtype, elements, Values::kAny, random));
        }
        cases.push_back(std::move(one));
      }
    }
    for (Medium medium : AllMedia()) {
      const auto outputs = RunAll(medium, ranks, cases);
      for (size_t i = 0; i < cases.size(); ++i) {
        EXPECT_TRUE(AllEqual(outputs[i]));
        EXPECT_TRUE(Close(cases[i].reduction.dtype, outputs[i][0], Expected(cases[i])));
      }
    }
  }
}

// Vectors whose result is known without any arithmetic; it must come out exactly.
TEST(Adasum, ZeroIsNeutralEqualOnesStayOrthogonalOnesAdd) {
  constexpr size_t kElements = 3001;
  for (DataType dtype : kTypes) {
    for (int ranks : kRanks) {
      std::mt19937_64 random(7);
      const Bytes vector = RandomTensor(dtype, kElements, Values::kAny, random);
      const Vector values = Decoded(dtype, vector);
      std::vector<Case> cases;
      const Bytes zero(vector.size());
      for (int owner : {0, ranks / 2, ranks - 1}) {
        Case one{Plain(dtype), std::vector<Bytes>(static_cast<size_t>(ranks), zero)};
        one.inputs[owner] = vector;
        cases.push_back(std::move(one));
      }
      cases.push_back({Plain(dtype), std::vector<Bytes>(static_cast<size_t>(ranks), vector)});
      Case orthogonal{Plain(dtype), {}};  // every rank has the elements that no other has
      for (int rank = 0; rank < ranks; ++rank) {
        Vector part(values.size());
        for (size_t i = static_cast<size_t>(rank); i < part.size();
             i += static_cast<size_t>(ranks)) {
          part[i] = values[i];
        }
        orthogonal.inputs.push_back(Encoded(dtype, part));
      }
      cases.push_back(std::move(orthogonal));
      cases.push_back({Plain(dtype), std::vector<Bytes>(static_cast<size_t>(ranks), zero)});
      for (Medium medium : {Medium::kInprocWindow, Medium::kInprocTransport}) {
        const auto outputs = RunAll(medium, ranks, cases);
        for (size_t i = 0; i < cases.size(); ++i) {
          EXPECT_TRUE(AllEqual(outputs[i]));
          EXPECT_TRUE(Decoded(dtype, outputs[i][0]) ==
                      (i + 1 == cases.size() ? Vector(kElements) : values));
        }
      }
    }
  }
}

// An Adasum is several collectives; others of the set, and of sets that overlap, come in between.
TEST(Adasum, AmongOtherCollectivesInAnyOrder) {
  const std::vector<std::vector<int>> sets{{0, 1, 2, 3}, {3, 1, 0}, {2, 3}};
  constexpr size_t kOperations = 4;
  for (Medium medium : AllMedia()) {
    World world(medium, 4);
    RunRanks(4, [&](int r) {
      Rank rank(&world, r);
      std::vector<Backend*> backends(sets.size());
      for (size_t set = 0; set < sets.size(); ++set) {
        if (std::find(sets[set].begin(), sets[set].end(), r) == sets[set].end()) continue;
        ASSERT_OK(rank.Join(static_cast<uint32_t>(set), sets[set], &backends[set]));
      }
      for (uint32_t round = 0; round < 10; ++round) {
        std::vector<Case> cases;
        std::vector<Bytes> outputs;
        outputs.reserve(sets.size() * kOperations);
        Machines machines;
        for (size_t set = 0; set < sets.size(); ++set) {
          if (backends[set] == nullptr) continue;
          for (uint64_t i = 0; i < kOperations; ++i) {
            const uint64_t sequence = round * kOperations + i;
            std::mt19937_64 random(sequence * 8 + set);
            Case one{Plain(DataType::kFloat32), {}};
            if (i % 2 == 1) one.reduction.op = ReduceOp::kMax;
            const auto elements = static_cast<int64_t>(random() % (i < 2 ? 100'000 : 300));
            for (size_t member = 0; member < sets[set].size(); ++member) {
              one.inputs.push_back(
                  RandomTensor(DataType::kFloat32, elements, Values::kAny, random));
            }
            const auto own = std::find(sets[set].begin(), sets[set].end(), r) - sets[set].begin();
            outputs.push_back(one.inputs[own]);
            machines.push_back(backends[set]->Start(
                SpecOf(one.reduction, sequence, outputs.back(), &outputs.back())));
            cases.push_back(std::move(one));
          }
        }
        ASSERT_OK(rank.Drive(machines, 1 + round * 4 + static_cast<uint32_t>(r)));
        for (size_t i = 0; i < cases.size(); ++i) {
          if (cases[i].reduction.op == ReduceOp::kMax) {
            ASSERT_TRUE(outputs[i] == Reduced(cases[i].reduction, cases[i].inputs));
          } else {
            ASSERT_TRUE(Close(DataType::kFloat32, outputs[i], Expected(cases[i])));
          }
        }
      }
    });
  }
}

TEST(Adasum, RefusesWhatItIsNotDefinedFor) {
  World world(Medium::kInprocWindow, 2);
  RunRanks(2, [&](int r) {
    Rank rank(&world, r);
    Backend* backend = nullptr;
    ASSERT_OK(rank.Join(1, world.Everybody(), &backend));
    Bytes data(8);
    CollectiveSpec spec = SpecOf(Plain(DataType::kInt32), 0, data, &data);
    EXPECT_EQ(rank.Run(backend, spec).code(), Code::kInternal);
    spec.reduction.dtype = DataType::kFloat32;
    spec.pieces.push_back(spec.pieces[0]);
    EXPECT_EQ(rank.Run(backend, spec).code(), Code::kInternal);
  });
}

TEST(Adasum, FailsWithoutMemory) {
  CollectiveSpec spec;
  spec.reduction = Plain(DataType::kFloat32);
  spec.pieces.push_back({nullptr, nullptr, int64_t{1} << 52});
  const auto machine = MakeAdasum(spec, 0, 2, ScratchPool::Make(), [](const CollectiveSpec&) {
    check::Fail(__FILE__, __LINE__, "nothing to be started");
    return std::unique_ptr<StepMachine>();
  });
  EXPECT_EQ(machine->Advance(), Step::kFailed);
  EXPECT_FALSE(machine->status().ok());
}

}  // namespace
}  // namespace hvd::test

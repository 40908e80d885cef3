#include "runtime/tune/gaussian_process.h"

#include <cmath>

#include "check.h"

namespace hvd {
namespace {

bool Near(double a, double b, double tolerance = 1e-5) { return std::abs(a - b) < tolerance; }

TEST(GaussianProcess, KnowsNothingWithoutPoints) {
  const GaussianProcess process(1.0, 0.0);
  EXPECT_EQ(process.At({0.5}).mean, 0.0);
  EXPECT_EQ(process.At({0.5}).deviation, 1.0);
}

TEST(GaussianProcess, OneExactPoint) {
  GaussianProcess process(1.0, 0.0);
  process.Fit({{0.0}}, {1.0});
  EXPECT_TRUE(Near(process.At({0.0}).mean, 1.0));
  EXPECT_TRUE(Near(process.At({0.0}).deviation, 0.0, 2e-3));
  EXPECT_TRUE(Near(process.At({1.0}).mean, std::exp(-0.5)));
  EXPECT_TRUE(Near(process.At({1.0}).deviation, std::sqrt(1 - std::exp(-1.0))));
  EXPECT_TRUE(Near(process.At({100.0}).mean, 0.0));
  EXPECT_TRUE(Near(process.At({100.0}).deviation, 1.0));
}

// Against the inverse of a 2 x 2 matrix written out.
TEST(GaussianProcess, TwoNoisyPoints) {
  const double noise = 0.25, length = 0.5;
  GaussianProcess process(length, noise);
  process.Fit({{0.0, 0.2}, {0.4, 0.5}}, {2.0, -1.0});
  const auto k = [length](double dx, double dy) {
    return std::exp(-(dx * dx + dy * dy) / (2 * length * length));
  };
  const double a = 1 + noise, b = k(0.4, 0.3), determinant = a * a - b * b;
  const double u = k(0.1, 0.1), v = k(0.3, 0.2);
  const GaussianProcess::Prediction at = process.At({0.1, 0.3});
  EXPECT_TRUE(Near(at.mean, (u * (a * 2 + b * 1) + v * (-b * 2 - a * 1)) / determinant, 1e-9));
  const double explained = (u * (a * u - b * v) + v * (a * v - b * u)) / determinant;
  EXPECT_TRUE(Near(at.deviation, std::sqrt(1 - explained), 1e-9));
}

TEST(GaussianProcess, EqualPointsAreAveraged) {
  GaussianProcess process(0.3, 0.0);
  process.Fit({{0.5}, {0.5}}, {1.0, 3.0});
  EXPECT_TRUE(Near(process.At({0.5}).mean, 2.0, 1e-3));
}

TEST(GaussianProcess, ExpectedImprovement) {
  EXPECT_TRUE(Near(ExpectedImprovement({0.0, 1.0}, 0.0), 0.398942));
  EXPECT_TRUE(Near(ExpectedImprovement({1.0, 0.5}, 0.5), 0.541658));
  EXPECT_EQ(ExpectedImprovement({2.0, 0.0}, 0.5), 1.5);
  EXPECT_EQ(ExpectedImprovement({0.0, 0.0}, 0.5), 0.0);
  EXPECT_TRUE(ExpectedImprovement({-5.0, 0.5}, 0.5) < 1e-9);
}

}  // namespace
}  // namespace hvd

#include "runtime/tune/gaussian_process.h"

#include <algorithm>
#include <cmath>

namespace hvd {

namespace {

constexpr double kLeastNoise = 1e-6;

}  // namespace

GaussianProcess::GaussianProcess(double length_scale, double noise)
    : length_scale_(length_scale), noise_(std::max(noise, kLeastNoise)) {}

double GaussianProcess::Kernel(const Point& a, const Point& b) const {
  double squares = 0;
  for (size_t d = 0; d < a.size(); ++d) squares += (a[d] - b[d]) * (a[d] - b[d]);
  return std::exp(-squares / (2 * length_scale_ * length_scale_));
}

void GaussianProcess::Fit(std::vector<Point> points, const std::vector<double>& values) {
  points_ = std::move(points);
  Factorize();
  weights_ = Backward(Forward(values));
}

void GaussianProcess::Factorize() {
  const size_t n = points_.size();
  factor_.assign(n * n, 0.0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = Kernel(points_[i], points_[j]) + (i == j ? noise_ : 0.0);
      for (size_t k = 0; k < j; ++k) sum -= L(i, k) * L(j, k);
      // Rounding may take what little the noise has added.
      factor_[i * n + j] = i == j ? std::sqrt(std::max(sum, kLeastNoise)) : sum / L(j, j);
    }
  }
}

// The solution of L x = right.
std::vector<double> GaussianProcess::Forward(std::vector<double> right) const {
  for (size_t i = 0; i < right.size(); ++i) {
    for (size_t k = 0; k < i; ++k) right[i] -= L(i, k) * right[k];
    right[i] /= L(i, i);
  }
  return right;
}

// The solution of transposed(L) x = right.
std::vector<double> GaussianProcess::Backward(std::vector<double> right) const {
  for (size_t i = right.size(); i-- > 0;) {
    for (size_t k = i + 1; k < right.size(); ++k) right[i] -= L(k, i) * right[k];
    right[i] /= L(i, i);
  }
  return right;
}

GaussianProcess::Prediction GaussianProcess::At(const Point& point) const {
  std::vector<double> covariance;
  covariance.reserve(points_.size());
  Prediction prediction{0.0, 1.0};
  for (size_t i = 0; i < points_.size(); ++i) {
    covariance.push_back(Kernel(points_[i], point));
    prediction.mean += covariance[i] * weights_[i];
  }
  double variance = 1.0;
  for (const double v : Forward(std::move(covariance))) variance -= v * v;
  prediction.deviation = std::sqrt(std::max(variance, 0.0));
  return prediction;
}

double ExpectedImprovement(const GaussianProcess::Prediction& prediction, double best) {
  const double gain = prediction.mean - best;
  if (prediction.deviation <= 0) return std::max(gain, 0.0);
  const double z = gain / prediction.deviation;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
  const double probability = std::erfc(-z / std::sqrt(2.0)) / 2;
  return gain * probability + prediction.deviation * density;
}

}  // namespace hvd

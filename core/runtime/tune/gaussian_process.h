#pragma once

#include <cstddef>
#include <vector>

namespace hvd {

// A Gaussian process over points of the unit box: what measured values say about a place where
// nothing was measured. Squared-exponential kernel of unit variance, so the values should be
// standardised. Dense, for a few hundred points. After Rasmussen and Williams, Gaussian Processes
// for Machine Learning, algorithm 2.1.
class GaussianProcess {
 public:
  using Point = std::vector<double>;

  struct Prediction {
    double mean;
    double deviation;  // of the value itself, without the noise of measuring it
  };

  // `noise` is the variance of one measurement. It is at least 1e-6, or two measurements of one
  // point would make the matrix singular.
  GaussianProcess(double length_scale, double noise);

  void Fit(std::vector<Point> points, const std::vector<double>& values);

  // Without points: mean 0, deviation 1.
  Prediction At(const Point& point) const;

 private:
  double Kernel(const Point& a, const Point& b) const;
  double L(size_t row, size_t column) const { return factor_[row * points_.size() + column]; }
  void Factorize();
  std::vector<double> Forward(std::vector<double> right) const;
  std::vector<double> Backward(std::vector<double> right) const;

  const double length_scale_;
  const double noise_;
  std::vector<Point> points_;
  std::vector<double>
      factor_;  // lower triangle of the Cholesky factor of the covariance, row by row
  std::vector<double> weights_;  // covariance^-1 * values
};

// By how much a value of this distribution exceeds `best` on average, counting falls short as
// nothing. After Jones, Schonlau and Welch, Efficient Global Optimization of Expensive Black-Box
// Functions (1998).
double ExpectedImprovement(const GaussianProcess::Prediction& prediction, double best);

}  // namespace hvd

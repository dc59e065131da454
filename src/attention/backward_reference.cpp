#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/backward_schedule.h"
#include "attention/operands.h"
#include "core/parallel.h"

namespace attend::inline v1 {

namespace {

void store_values(const MutableView& x, std::int64_t b, std::int64_t h, std::int64_t i, const double* values) {
  const auto to = operand_at(x, b, h, i);
  store_elements(to.dtype, to.data, to.column, x.size(3), values);
}

double at(const View& x, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t d = 0) {
  const auto from = operand_at(x, b, h, i, d);
  return load_element(from.dtype, from.data);
}

// The query heads of one key head of one sequence.
class ReferenceBackward {
 public:
  // Makes room for every sequence: a caller's memory is whole or untouched.
  explicit ReferenceBackward(BackwardProblem& x) : x_(x), p_(x.forward) {
    dk_.resize(static_cast<std::size_t>(p_.Tk * p_.D));
    dv_.resize(static_cast<std::size_t>(p_.Tk * p_.Dv));
    steps_.resize(p_.Tk, p_.D, p_.Dv);
    gradient_.dcontext.resize(p_.Dv);
    gradient_.dlogits.resize(p_.Tk);
    gradient_.dquery.resize(p_.D);
  }

  void run(const Sequence& s, std::int64_t kv_head) {
    dk_.assign(static_cast<std::size_t>(s.Tk * p_.D), 0);
    dv_.assign(static_cast<std::size_t>(s.Tk * p_.Dv), 0);
    for (std::int64_t h = kv_head * p_.G(); h < (kv_head + 1) * p_.G(); ++h) {
      const kernels::Head head = p_.head(s, h);
      for (std::int64_t i = 0; i < s.Tq; ++i) take_row(s, h, head, i);
    }
    for (std::int64_t j = 0; j < s.Tk; ++j) {
      store_values(x_.dk, s.b, kv_head, s.key_start + j, dk_.data() + j * p_.D);
      store_values(x_.dv, s.b, kv_head, s.key_start + j, dv_.data() + j * p_.Dv);
    }
  }

 private:
  void take_row(const Sequence& s, std::int64_t h, const kernels::Head& head, std::int64_t i) {
    const std::int64_t row = s.query_start + i;
    gradient_.lse = at(x_.lse, s.b, h, row);
    if (x_.lse_low) gradient_.lse_low = at(*x_.lse_low, s.b, h, row);
    gradient_.delta = x_.dlse ? -at(*x_.dlse, s.b, h, row) : 0;
    for (std::int64_t d = 0; d < p_.Dv; ++d) {
      gradient_.dcontext[d] = at(x_.dout, s.b, h, row, d);
      // Not 0 * dout: the row may see no key, and have a sink.
      const double out = at(x_.out, s.b, h, row, d);
      if (out != 0) gradient_.delta += gradient_.dcontext[d] * out;
    }
    kernels::reference_row_backward(head, i, steps_, gradient_, dk_.data(), dv_.data());
    store_values(x_.dq, s.b, h, row, gradient_.dquery.data());
    add_options(s, h, head, i);
  }

  void add_options(const Sequence& s, std::int64_t h, const kernels::Head& head, std::int64_t i) {
    const auto H = static_cast<std::size_t>(h);
    if (!x_.options.sinks.empty()) x_.options.sinks[H] += gradient_.dsink;
    for (std::int64_t j = 0; j < s.Tk; ++j) {
      const double dlogit = gradient_.dlogits[j];
      if (!x_.options.distance_bias.empty()) {
        const std::int64_t columns = 2 * head.reach + 1;
        x_.options.distance_bias[static_cast<std::size_t>(
            h * columns + kernels::distance_entry(i + head.rules.offset, j, head.reach))] += dlogit;
      }
      if (!x_.options.alibi_slopes.empty()) {
        x_.options.alibi_slopes[H] -= dlogit * static_cast<double>(std::abs(i + head.rules.offset - j));
      }
      if (!x_.options.bias) continue;
      const MutableView& bias = *x_.options.bias;
      const Dims& strides = bias.strides();
      const std::int64_t place =
          s.b * strides[0] + h * strides[1] + (s.query_start + i) * strides[2] + (s.key_start + j) * strides[3];
      bias.data<double>()[place] += dlogit;
    }
  }

  BackwardProblem& x_;
  const Problem& p_;
  std::vector<double> dk_, dv_;
  kernels::Row steps_;
  kernels::RowGradient gradient_;
};

}  // namespace

std::int64_t reference_bytes(const Problem& p) {
  const std::int64_t sums = p.Tk * (p.D + p.Dv),
                     row = 5 * p.Tk + 2 * p.D + 2 * p.Dv + kernels::keys_together * std::max(p.D, p.Dv);
  return 8 * (sums + row);
}

void run_reference(BackwardProblem& x, const BackwardSchedule& s) {
  std::vector<ReferenceBackward> workers;
  workers.reserve(static_cast<std::size_t>(s.workers));
  for (int worker = 0; worker < s.workers; ++worker) workers.emplace_back(x);
  x.options.clear();
  parallel_items(std::ssize(s.items), s.workers, [&](int worker, std::int64_t item) {
    const BackwardSchedule::Item& at = s.items[static_cast<std::size_t>(item)];
    workers[static_cast<std::size_t>(worker)].run(x.forward.sequence(at.sequence), at.head);
  });
}

}  // namespace attend::inline v1

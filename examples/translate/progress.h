// How a training is getting on: a bar on a terminal, else a line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace translate {

class Progress {
 public:
  // To standard error. `first` of `steps` steps are done already; without a terminal, a line each `line_every` steps.
  Progress(std::int64_t first, std::int64_t steps, std::int64_t line_every);
  // Ends the bar's line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::int64_t step, double train_loss, std::optional<double> valid_loss, std::int64_t tokens);

 private:
  using Clock = std::chrono::steady_clock;

  bool terminal_;
  std::int64_t first_, steps_, line_every_;
  std::int64_t tokens_ = 0;
  double loss_ = 0;  // averaged over the last steps
  Clock::time_point start_ = Clock::now(), shown_ = {};
  std::optional<double> valid_loss_;
};

// "12:34", "1:02:03".
std::string duration(double seconds);

}  // namespace translate

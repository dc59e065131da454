#include "progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace translate {
namespace {

// Columns of the terminal on standard error; 0 where that is none.
int terminal_width() {
  winsize size{};
  if (isatty(STDERR_FILENO) == 0) return 0;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string bar(double share, int width) {
  const int eighths = static_cast<int>(share * width * 8);
  std::string text;
  for (int i = 0; i < width; ++i) {
    static constexpr const char* blocks[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    text += blocks[std::clamp(eighths - 8 * i, 0, 8)];
  }
  return text;
}

}  // namespace

std::string duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

Progress::Progress(std::int64_t first, std::int64_t steps, std::int64_t line_every)
    : terminal_(terminal_width() > 0), first_(first), steps_(steps), line_every_(line_every) {}

Progress::~Progress() {
  if (terminal_ && shown_ != Clock::time_point{}) (void)std::fputs("\n", stderr);
}

void Progress::show(std::int64_t step, double train_loss, std::optional<double> valid_loss, std::int64_t tokens) {
  tokens_ += tokens;
  const std::int64_t done = step - first_;
  const double weight = std::max(0.02, 1 / static_cast<double>(done));
  loss_ += weight * (train_loss - loss_);
  if (valid_loss) valid_loss_ = valid_loss;

  const Clock::time_point now = Clock::now();
  const bool due = terminal_ ? now - shown_ >= std::chrono::milliseconds(100) : step % line_every_ == 0;
  if (!due && step != steps_) return;
  shown_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double left = seconds / static_cast<double>(done) * static_cast<double>(steps_ - step);
  const std::string valid = valid_loss_ ? fmt::format(" valid {:.3f}", *valid_loss_) : "";
  const std::string text = fmt::format("{}/{} loss {:.3f}{} {:.0f} tokens/s {} left", step, steps_, loss_, valid,
                                       static_cast<double>(tokens_) / seconds, duration(left));
  if (!terminal_) {
    (void)std::fputs((text + "\n").c_str(), stderr);
    return;
  }
  const int room = terminal_width() - 1;
  const int width = std::clamp(room - static_cast<int>(text.size()) - 3, 0, 40);
  const double share = static_cast<double>(step) / static_cast<double>(steps_);
  const std::string line =
      (width >= 5 ? "▕" + bar(share, width) + "▏ " : "") + text.substr(0, static_cast<std::size_t>(room));
  (void)std::fputs(("\r\x1b[K" + line).c_str(), stderr);
}

}  // namespace translate

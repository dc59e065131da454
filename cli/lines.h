// A file of texts, one on each line.
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attend/error.h"

namespace attend::cli {

// Lines of a file, or of standard input, one after another. A line end at the end of all is none of a line's.
class Lines {
 public:
  explicit Lines(const std::string& file);

  // False: there are no more.
  bool next(std::string& line);
  // The next ones, as many as may be in memory at once. False: there are no more behind them.
  bool next(std::vector<std::string>& lines);
  // How much has been read of it, from 0 to 1; none where that is not known.
  std::optional<double> share() const;

 private:
  std::string name_;
  std::ifstream file_;
  double size_ = 0, read_ = 0;
};

// What the library says of sentences[3], texts[3] or passages[3] is of a line, counted from 1, of those that came
// before it too.
[[noreturn]] void fail_for_line(const Error& error, std::int64_t before);

// use(lines, how many came before) of some lines of the file at a time, so that memory does not grow with it. progress
// becomes what is to be told the share that is done of them, by use(); it is shown of the file. What is wrong with a
// line names it.
void for_each_lines(Lines& lines, std::function<void(double)>& progress,
                    const std::function<void(const std::vector<std::string>&, std::int64_t)>& use);

// Text in a table, on a line of at most so many columns (20 at least).
std::string shortened(const std::string& text, int columns);

}  // namespace attend::cli

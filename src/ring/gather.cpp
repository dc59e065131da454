#include "ring/gather.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <thread>

#include "core/message.h"
#include "core/parallel.h"
#include "ring/conveyor.h"

namespace attend::inline v1 {

namespace {

// Beyond what a pass uses.
constexpr int size_tag = 32765, text_tag = 32766;

// From the left neighbour, to the right one, at once.
void exchange(RingTransport& ranks, int tag, const void* out, std::int64_t out_bytes, void* in, std::int64_t in_bytes) {
  const int P = ranks.size(), right = (ranks.rank() + 1) % P, left = (ranks.rank() + P - 1) % P;
  const std::int64_t receive = ranks.receive(left, tag, in, in_bytes), send = ranks.send(right, tag, out, out_bytes);
  wait_for(ranks, receive);
  wait_for(ranks, send);
}

// The first line of a statement without an error; of the others it is the error's code, and the rest what it says.
constexpr std::string_view fine = "fine";

std::vector<std::string> lines_of(const std::string& text, char separator) {
  std::vector<std::string> list;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.size(), text.find(separator, begin));
    list.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return list;
}

// Throws what is wrong between a rank's statement, in lines, and this one's.
void compare_statements(const char* function, const Facts& own, int rank, const std::vector<std::string>& theirs,
                        int self) {
  if (theirs.front() != fine)
    fail(static_cast<ErrorCode>(std::stoi(theirs.front())), function, "rank {}: {}", rank, theirs.back());
  for (std::size_t at = 0; at < own.size() && at + 1 < theirs.size(); ++at) {
    const auto& [name, value] = own[at];
    const std::string& line = theirs[at + 1];
    if (line == fmt::format("{}\t{}", name, value)) continue;
    const std::string other = line.substr(std::min(line.size(), line.find('\t') + 1));
    // The same words on both.
    const auto [first, second] = rank < self ? std::pair(rank, self) : std::pair(self, rank);
    fail(ErrorCode::bad_value, function, "ranks disagree: {} is {} on rank {}, {} on rank {}", name,
         first == self ? value : other, first, second == self ? value : other, second);
  }
}

}  // namespace

void wait_for(RingTransport& ranks, std::int64_t request) {
  Patience patience;
  while (!ranks.test(request)) {
    if (interrupt_requested()) fail(ErrorCode::interrupted, "", "interrupted: the call was asked to stop");
    std::this_thread::sleep_for(patience.next());
  }
}

std::vector<std::string> gather(RingTransport& ranks, const std::string& own) {
  const int P = ranks.size();
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(P));
  std::vector<std::string> texts(static_cast<std::size_t>(P));
  const auto at = [P](int rank) { return static_cast<std::size_t>((rank % P + P) % P); };
  try {
    sizes[at(ranks.rank())] = std::ssize(own), texts[at(ranks.rank())] = own;
    for (int step = 0; step + 1 < P; ++step) {
      const std::size_t out = at(ranks.rank() - step), in = at(ranks.rank() - step - 1);
      exchange(ranks, size_tag, &sizes[out], 8, &sizes[in], 8);
      texts[in].resize(static_cast<std::size_t>(sizes[in]));
      exchange(ranks, text_tag, texts[out].data(), sizes[out], texts[in].data(), sizes[in]);
    }
  } catch (const std::exception& error) {
    ranks.abandon(error.what());  // before the texts are gone, which others may be about to read
    throw;
  }
  return texts;
}

std::string Statement::text() const {
  const auto of_error = [](ErrorCode code, std::string detail) {
    std::ranges::replace(detail, '\n', ' ');
    return fmt::format("{}\n{}\n", static_cast<int>(code), detail);
  };
  if (!failure) {
    std::string text = fmt::format("{}\n", fine);
    for (const auto& [name, value] : facts) text += fmt::format("{}\t{}\n", name, value);
    return text;
  }
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return of_error(error.code(), std::string(error.detail()));
  } catch (const std::exception& error) {  // std::bad_alloc
    return of_error(ErrorCode::out_of_memory, error.what());
  }
}

int most_threads(RingTransport& ranks, const char* function) {
  int most = 1;
  guard(ranks, function, [&] {
    for (const std::string& text : gather(ranks, std::to_string(num_threads()))) most = std::max(most, std::stoi(text));
  });
  return most;
}

void compare(RingTransport& ranks, const char* function, const Statement& own) {
  std::optional<Error> verdict;
  guard(ranks, function, [&] {
    const std::vector<std::string> texts = gather(ranks, own.text());
    try {
      for (int rank = 0; rank < ranks.size() && !own.failure; ++rank)
        compare_statements(function, own.facts, rank, lines_of(texts[static_cast<std::size_t>(rank)], '\n'),
                           ranks.rank());
    } catch (const Error& error) {
      verdict = error;
    }
  });
  // All ranks throw now, or none.
  if (own.failure) std::rethrow_exception(own.failure);
  if (verdict) throw Error(*verdict);
}

}  // namespace attend::inline v1

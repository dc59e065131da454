// What a translator reads: cross-attention, in a recording that `make translate` made (examples/translate/).
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include <fmt/ranges.h>

#include "class/experiments.h"
#include "class/measures.h"
#include "core/message.h"

// translation.S
extern "C" const char attend_translation_begin[], attend_translation_end[];

namespace attend::inline v1 {

namespace {

using nlohmann::ordered_json;

// Recordings are read from files: in one without a name, which is gone with the process, however that ends.
Recording kept_recording() {
  constexpr const char* function = "class_pages";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  const auto size = static_cast<std::size_t>(attend_translation_end - attend_translation_begin);
  if (!file || std::fwrite(attend_translation_begin, 1, size, file.get()) != size || std::fflush(file.get()) != 0)
    fail(ErrorCode::bad_file, function, "no temporary file: {}", std::strerror(errno));
  return Recording::load(fmt::format("/dev/fd/{}", fileno(file.get())));
}

}  // namespace

Experiment translation_experiment() {
  constexpr const char* layer = "decoder.0.cross";
  constexpr std::int64_t head = 3, query = 4;  // "file", after which "selezionato" follows
  Recording recording = kept_recording();
  const Tensor weights = recording.weights(recording.layer(layer), 0, head);
  const std::vector<std::string>&read = recording.tokens[0], &written = recording.decoder_tokens[0];
  ordered_json numbers = {{"source", fmt::format("{}", fmt::join(read.begin(), read.end() - 1, " "))},  // but for <end>
                          {"tokens", read},
                          {"written", written},
                          {"query", query},
                          {"next", written[query + 1]},
                          {"head", head_name(layer, head)},
                          {"weights", rounded(weights.view().select(0, query))},
                          {"matrix", rows_of(weights)}};
  return {.id = "translation",
          .numbers = std::move(numbers),
          .place = place_of({{"head", head_name(layer, head)}, {"query", std::to_string(query)}, {"key", "3"}}),
          .recording = std::move(recording)};
}

}  // namespace attend::inline v1

// Recording::load() of any metadata over a file's tensors: whatever it takes can be asked for everything, and written.
//
// The input is the JSON of "attend.recording". The tensors are those of a small recording with a mask, so that what
// little changes in it is read far.
#include "attend/recording.h"
#include "tests/fuzz/input.h"

using namespace attend;

namespace {

TensorMap tensors_of_a_recording(bool sized) {
  Generator generator(1);
  const Tensor q = generator.randn({2, 2, 5, 3}), k = generator.randn({2, 1, 5, 3});
  Tensor mask({2, 1, 1, 5}, DType::boolean);
  std::fill_n(mask.data<bool>(), 9, true);
  const AttentionOptions options{.causal = true, .mask = mask};
  const AttentionResult result = attention(q, k, k, options, {.lse_low = true});
  Recorder recorder({.top = 2, .map = {3, 2}, .keep_qk = true});
  const Tensor sizes = generator.uniform({2, 2, 5}, 0, 1);
  RecordCall call{"0.self"};
  if (sized) call.key_sizes = sizes;
  recorder.add(call, q, k, result.lse, *result.lse_low, options);
  const fuzz::MemoryFile file;
  recorder.finish().save(file.path());
  return read_tensors(file.path());
}

void ask(const Recording& recording) {
  for (std::int64_t layer = 0; layer < static_cast<std::int64_t>(recording.layers().size()); ++layer) {
    const RecordedLayer& of = recording.layers()[static_cast<std::size_t>(layer)];
    fuzz::require(recording.layer(of.name) == layer, "a layer is found by its name");
    for (const char* name : {"lse", "top_keys", "received", "map", "q", "k", "key_sizes", "carried_map"}) {
      fuzz::error_of([&] { recording.numbers(layer, name); });
    }
    recording.scores(layer);
    fuzz::error_of([&] { recording.scores(layer, WeighedBy::norm); });
    recording.query_tokens(layer), recording.key_tokens(layer);
    for (std::int64_t item = 0; item < of.batch; ++item) {
      for (const std::int64_t head : of.heads) {
        for (const WeighedBy by : {WeighedBy::weight, WeighedBy::norm})
          fuzz::error_of([&] { recording.weights(layer, item, head, {}, {}, by); });
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const TensorMap plain = tensors_of_a_recording(false), sized = tensors_of_a_recording(true);
  const fuzz::MemoryFile file, copy;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const TensorMap& tensors = text.find("key_sizes") == std::string::npos ? plain : sized;
  // What is no UTF-8 can't be written into a file; read_safetensors() has a function of its own.
  if (fuzz::error_of([&] { write_safetensors(file.path(), views_of(tensors), {{"attend.recording", text}}); }))
    return 0;
  std::optional<Recording> recording;
  if (const auto code = fuzz::error_of([&] { recording = Recording::load(file.path()); })) {
    fuzz::require(code == ErrorCode::bad_file, "a file is refused as bad_file");
    return 0;
  }
  ask(*recording);
  recording->save(copy.path());
  fuzz::require(Recording::load(copy.path()).layers().size() == recording->layers().size(), "what was written is read");
  return 0;
}

// A pretrained model's head: where each token of a text looks.
//
//     model FOLDER "the cat sat on the mat because it was tired" 3 1
#include <attend/error.h>
#include <attend/models.h>

#include <cstdlib>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc != 5) return std::cerr << "usage: model FOLDER TEXT LAYER HEAD\n", 2;
  try {
    const attend::Model model = attend::Model::load(argv[1]);
    const attend::Tokenizer tokenizer = attend::Model::load_tokenizer(argv[1]);
    const attend::Encoding encoding = tokenizer.encode(argv[2]);

    attend::Recorder recorder;
    model.forward(encoding.ids, {.recorder = &recorder});
    const attend::Recording recording = recorder.finish();

    const std::int64_t layer = std::strtoll(argv[3], nullptr, 10);
    const std::int64_t head = recording.head(layer, std::strtoll(argv[4], nullptr, 10));
    const attend::Tensor keys = recording.numbers(layer, "top_keys"), weights = recording.numbers(layer, "top_weights");
    const auto token = [&](std::int64_t place) { return tokenizer.token(encoding.ids.at(std::size_t(place))); };
    for (std::int64_t query = 0; query < keys.size(2); ++query) {
      const auto key = std::int64_t(keys.item({0, head, query, 0}));
      std::cout << token(query) << " -> " << token(key) << "  " << weights.item({0, head, query, 0}) << '\n';
    }
  } catch (const attend::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

// attend_convert IN OUT: reads any tensor file and writes its tensors in the format of OUT's ending. For the tests that
// compare files with NumPy's and the safetensors package's.
#include <cstdio>
#include <stdexcept>

#include "attend/attend.h"

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::invalid_argument("usage: attend_convert IN OUT");
    const std::filesystem::path in = argv[1];
    const std::filesystem::path out = argv[2];
    attend::Safetensors file;
    if (in.extension() == ".safetensors") {
      file = attend::read_safetensors(in);
    } else {
      file.tensors = attend::read_tensors(in);
    }
    const attend::NamedViews views = attend::views_of(file.tensors);
    if (out.extension() == ".npy") {
      if (views.size() != 1) throw std::invalid_argument("an .npy file takes one tensor");
      attend::write_npy(out, views[0].second);
    } else if (out.extension() == ".npz") {
      attend::write_npz(out, views);
    } else {
      attend::write_safetensors(out, views, file.metadata);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

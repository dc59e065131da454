#include "io/npz.h"

#include "io/element_bytes.h"
#include "io/names.h"
#include "io/npy.h"
#include "io/zip.h"

namespace attend::inline v1 {

namespace {

constexpr std::string_view ending = ".npy";

// NumPy's name of the member: without the ending.
std::string tensor_name(const std::string& member) {
  return member.ends_with(ending) ? member.substr(0, member.size() - ending.size()) : member;
}

}  // namespace

TensorMap read_npz(const InputFile& file) {
  TensorMap tensors;
  for (const ZipMember& member : read_zip_directory(file)) {
    ZipMemberStream stream(file, member, file.place().in("member " + quote(member.name)));
    Tensor tensor = read_npy(stream);
    stream.finish();
    const std::string name = tensor_name(member.name);
    if (!tensors.emplace(name, std::move(tensor)).second) fail_at(file.place(), "tensor {} comes twice", quote(name));
  }
  return tensors;
}

TensorMap read_npz(const std::filesystem::path& path) {
  return read_npz(InputFile("read_npz", path, Pipes::read));
}

void write_npz(const std::filesystem::path& path, const NamedViews& tensors) {
  constexpr std::size_t longest = 0xffff - ending.size();
  check_names("write_npz", tensors);
  std::vector<std::string> headers;
  for (const auto& [name, tensor] : tensors) {
    const Place place{"write_npz", "tensor " + quote(name)};
    if (name.size() > longest) fail(ErrorCode::bad_value, place, "a zip's names have at most 65535 bytes");
    headers.push_back(npy_header(tensor, place));
  }
  OutputFile file("write_npz", path);
  ZipWriter zip(file);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const RowMajor elements(tensors[i].second);
    zip.add(tensors[i].first + std::string(ending), headers[i], elements.data(), elements.bytes());
  }
  zip.finish();
  file.commit();
}

}  // namespace attend::inline v1

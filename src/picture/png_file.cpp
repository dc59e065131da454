#include "picture/png_file.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <new>

#include "core/message.h"

namespace attend::inline v1 {

namespace {

static_assert(sizeof(Colour) == 3, "rows of colours are handed to libpng as they are");

// What libpng's callbacks see.
struct Sink {
  std::string bytes;
  std::string error;
  bool out_of_memory = false;
};

// libpng leaves through longjmp, which must not pass over a C++ exception or a destructor: callbacks catch what they
// throw, and write_png holds no object of its own.
[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* sink = static_cast<Sink*>(png_get_error_ptr(png));
  try {
    sink->error = message;
  } catch (const std::bad_alloc&) {
    sink->out_of_memory = true;
  }
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

// libpng's and zlib's memory. Refused it, they give an error like any other, which does not say what it was.
png_voidp on_malloc(png_structp png, png_alloc_size_t size) {
  void* memory = ::operator new(size, std::nothrow);
  if (memory == nullptr) static_cast<Sink*>(png_get_mem_ptr(png))->out_of_memory = true;
  return memory;
}

void on_free(png_structp, png_voidp memory) {
  ::operator delete(memory);
}

void on_write(png_structp png, png_bytep data, png_size_t size) {
  auto* sink = static_cast<Sink*>(png_get_io_ptr(png));
  try {
    sink->bytes.append(reinterpret_cast<const char*>(data), size);
    return;
  } catch (const std::bad_alloc&) {
    sink->out_of_memory = true;
  }
  png_error(png, "no memory");
}

void on_flush(png_structp) {}

bool write_png(png_structp png, png_infop info, const Pixels& pixels, png_text* title, int pixels_per_metre) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;  // NOLINT(cert-err52-cpp): libpng has no other way
  png_set_IHDR(png, info, static_cast<png_uint_32>(pixels.width), static_cast<png_uint_32>(pixels.height), 8,
               PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_sRGB(png, info, PNG_sRGB_INTENT_PERCEPTUAL);
  if (pixels_per_metre > 0) {
    const auto density = static_cast<png_uint_32>(pixels_per_metre);
    png_set_pHYs(png, info, density, density, PNG_RESOLUTION_METER);
  }
  if (title != nullptr) png_set_text(png, info, title, 1);
  // Large flat areas compress best unfiltered, and as small as level 9 makes them in a fraction of its time.
  png_set_filter(png, 0, PNG_FILTER_NONE);
  png_set_compression_level(png, 7);
  png_write_info(png, info);
  for (int y = 0; y < pixels.height; ++y) {
    const Colour* row = pixels.colours.data() + static_cast<std::ptrdiff_t>(y) * pixels.width;
    png_write_row(png, reinterpret_cast<png_const_bytep>(row));
  }
  png_write_end(png, info);
  return true;
}

}  // namespace

std::string encode_png(const Pixels& pixels, const std::string& title, int pixels_per_metre) {
  Sink sink;
  std::string key = "Title";
  std::string text = title;
  std::string none;
  png_text chunk{};
  const bool ascii =
      std::all_of(title.begin(), title.end(), [](char c) { return static_cast<unsigned char>(c) < 128; });
  // tEXt is Latin-1; iTXt is UTF-8.
  chunk.compression = ascii ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
  chunk.key = key.data();
  chunk.text = text.data();
  (ascii ? chunk.text_length : chunk.itxt_length) = text.size();
  chunk.lang = none.data();
  chunk.lang_key = none.data();

  png_structp png =
      png_create_write_struct_2(PNG_LIBPNG_VER_STRING, &sink, on_error, on_warning, &sink, on_malloc, on_free);
  png_infop info = png == nullptr ? nullptr : png_create_info_struct(png);
  bool written = false;
  if (info != nullptr) {
    png_set_write_fn(png, &sink, on_write, on_flush);
    written = write_png(png, info, pixels, title.empty() ? nullptr : &chunk, pixels_per_metre);
  }
  png_destroy_write_struct(&png, &info);
  if (!written && (sink.out_of_memory || sink.error.empty())) {
    fail(ErrorCode::out_of_memory, "png", "no memory to encode {} x {} pixels", pixels.width, pixels.height);
  }
  if (!written) fail(ErrorCode::bad_value, "png", "{} ({} x {} pixels)", sink.error, pixels.width, pixels.height);
  return std::move(sink.bytes);
}

}  // namespace attend::inline v1

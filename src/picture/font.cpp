#include "picture/font.h"

#include <ft2build.h>
#include FT_FREETYPE_H
#include FT_OUTLINE_H

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "core/message.h"
#include "core/utf8.h"

extern "C" {
extern const unsigned char attend_font_begin[];
extern const unsigned char attend_font_end[];
}

namespace attend::inline v1 {

namespace {

constexpr double missing_em = 0.62;    // how wide the box of a missing character is
constexpr double missing_wide_em = 1;  // East Asian characters and emoji are as wide as they are high

FT_Pos fixed26_6(double value) {
  return std::lround(value * 64);
}

// A hollow box on the baseline, as glyph outlines are: y upwards, 26.6. The inner contour runs the other way round, so
// that it is a hole.
class MissingGlyph {
 public:
  MissingGlyph(double em, double size) {
    const double pen = std::max(size * 0.06, 1.0);
    const double left = em * size * 0.12;
    const double right = em * size * 0.88;
    const double top = size * 0.72;
    const double outer[] = {left, 0, left, top, right, top, right, 0};
    const double inner[] = {left + pen, pen, right - pen, pen, right - pen, top - pen, left + pen, top - pen};
    for (std::size_t i = 0; i < 4; ++i) {
      points_[i] = {fixed26_6(outer[2 * i]), fixed26_6(outer[2 * i + 1])};
      points_[i + 4] = {fixed26_6(inner[2 * i]), fixed26_6(inner[2 * i + 1])};
    }
    tags_.fill(FT_CURVE_TAG_ON);
    outline_.n_contours = 2;
    outline_.n_points = 8;
    outline_.points = points_.data();
    outline_.tags = reinterpret_cast<decltype(outline_.tags)>(tags_.data());
    outline_.contours = contours_.data();
  }
  MissingGlyph(const MissingGlyph&) = delete;
  MissingGlyph& operator=(const MissingGlyph&) = delete;
  FT_Outline* outline() { return &outline_; }

 private:
  std::array<FT_Vector, 8> points_{};
  std::array<unsigned char, 8> tags_{};
  std::array<std::remove_pointer_t<decltype(FT_Outline::contours)>, 2> contours_{3, 7};
  FT_Outline outline_{};
};

// Where a glyph's own origin lies on the canvas. FreeType's rasteriser holds coordinates in 16 bits, so a glyph is
// drawn near its origin and moved here.
struct Placement {
  const Font::Span* span;
  int x;
  int y;
};

// FreeType counts rows upwards; row -1 is the first below the origin.
void report_spans(int y, int count, const FT_Span* spans, void* user) {
  const auto& at = *static_cast<const Placement*>(user);
  for (int i = 0; i < count; ++i) (*at.span)(at.x + spans[i].x, at.y - 1 - y, spans[i].len, spans[i].coverage);
}

int clip(int value) {
  return std::clamp(value, -16000, 16000);
}

}  // namespace

struct Font::Face {
  FT_Library library = nullptr;
  FT_Face face = nullptr;
  std::string path;  // empty: the built-in font

  Face() {
    if (FT_Init_FreeType(&library) != 0) fail(ErrorCode::out_of_memory, "font", "FreeType can't start");
  }
  ~Face() { FT_Done_FreeType(library); }  // and its faces
  Face(const Face&) = delete;
  Face& operator=(const Face&) = delete;

  [[noreturn]] void refuse(const char* why) const {
    fail(ErrorCode::bad_file, "", "font '{}' {}", path.empty() ? "DejaVu Sans" : path, why);
  }

  // Kerning and advance, in parts of an em. The glyph is 0 where the font lacks the character.
  struct Step {
    FT_UInt glyph;
    double kerning;
    double advance;
  };
  Step step(FT_UInt before, char32_t point) const {
    const FT_UInt glyph = FT_Get_Char_Index(face, point);
    if (glyph == 0) {
      const bool wide = display_width({&point, 1}) == 2;
      return {0, 0, extends_character(point) ? 0 : wide ? missing_wide_em : missing_em};
    }
    const double em = face->units_per_EM;
    if (FT_Load_Glyph(face, glyph, FT_LOAD_NO_SCALE) != 0) refuse("has a glyph that can't be read");
    FT_Vector kerning{};
    if (before != 0 && FT_HAS_KERNING(face)) FT_Get_Kerning(face, before, glyph, FT_KERNING_UNSCALED, &kerning);
    return {glyph, static_cast<double>(kerning.x) / em, static_cast<double>(face->glyph->metrics.horiAdvance) / em};
  }
};

Font::Font() : face_(std::make_unique<Face>()) {
  const auto size = static_cast<FT_Long>(attend_font_end - attend_font_begin);
  if (FT_New_Memory_Face(face_->library, attend_font_begin, size, 0, &face_->face) != 0) {
    face_->refuse("can't be opened");
  }
}

Font::Font(const std::string& path) : face_(std::make_unique<Face>()) {
  face_->path = path;
  if (FT_New_Face(face_->library, path.c_str(), 0, &face_->face) != 0) {
    face_->refuse("can't be opened as a .ttf or .otf file");
  }
  if (!FT_IS_SCALABLE(face_->face)) face_->refuse("has no outlines, only bitmaps");
  if (face_->face->charmap == nullptr) face_->refuse("has no Unicode character map");
}

Font::~Font() = default;

bool Font::has(char32_t point) const {
  const Face::Step step = face_->step(0, point);
  return step.glyph != 0 || step.advance == 0;
}

double Font::width(std::u32string_view text, double size) const {
  double em = 0;
  FT_UInt before = 0;
  for (const char32_t point : text) {
    const Face::Step step = face_->step(before, point);
    em += step.kerning + step.advance;
    before = step.glyph;
  }
  return em * size;
}

void Font::draw(std::u32string_view text, double x, double y, double size, double degrees, const Canvas& canvas,
                const Span& span) const {
  const double angle = degrees * std::numbers::pi / 180;
  const double cosine = std::cos(angle);
  const double sine = std::sin(angle);
  const auto fixed16_16 = [](double value) { return static_cast<FT_Fixed>(std::lround(value * 65536)); };
  const FT_Matrix turn{fixed16_16(cosine), fixed16_16(-sine), fixed16_16(sine), fixed16_16(cosine)};
  FT_Face face = face_->face;
  if (FT_Set_Char_Size(face, 0, fixed26_6(size), 72, 72) != 0) face_->refuse("can't be scaled");
  double pen = 0;
  FT_UInt before = 0;
  for (const char32_t point : text) {
    const Face::Step step = face_->step(before, point);
    before = step.glyph;
    pen += step.kerning * size;
    MissingGlyph missing(step.advance, size);
    FT_Outline* outline = missing.outline();
    if (step.glyph != 0) {
      // Unhinted, so that turned and level text have the same shapes and the widths are those that were measured.
      if (FT_Load_Glyph(face, step.glyph, FT_LOAD_NO_HINTING | FT_LOAD_NO_BITMAP) != 0) {
        face_->refuse("has a glyph that can't be read");
      }
      outline = &face->glyph->outline;
    }
    if (step.glyph != 0 || step.advance > 0) {
      FT_Outline_Transform(outline, &turn);
      // Quarters of a pixel along a level line, and whole ones across: sharper, and equal glyphs have equal pixels.
      const bool level = degrees == 0;
      const double left = level ? std::round((x + pen) * 4) / 4 : x + pen * cosine;
      const double base = level ? std::round(y) : y - pen * sine;
      Placement at{&span, static_cast<int>(std::floor(left)), static_cast<int>(std::floor(base))};
      FT_Outline_Translate(outline, fixed26_6(left - at.x), fixed26_6(at.y - base));
      FT_Raster_Params raster{};
      raster.flags = FT_RASTER_FLAG_AA | FT_RASTER_FLAG_DIRECT | FT_RASTER_FLAG_CLIP;
      raster.gray_spans = report_spans;
      raster.user = &at;
      raster.clip_box = {clip(-at.x), clip(at.y - canvas.height), clip(canvas.width - at.x), clip(at.y)};
      if (FT_Outline_Render(face_->library, outline, &raster) != 0) face_->refuse("has a glyph that can't be drawn");
    }
    pen += step.advance * size;
  }
}

bool extends_character(char32_t point) {
  return (point >= 0x0300 && point < 0x0370) || (point >= 0x0591 && point < 0x05be) ||
         (point >= 0x0610 && point < 0x061b) || (point >= 0x064b && point < 0x0660) ||
         (point >= 0x093a && point < 0x093d) || (point >= 0x093e && point < 0x0950) || point == 0x0e31 ||
         (point >= 0x0e34 && point < 0x0e3b) || (point >= 0x0e47 && point < 0x0e4f) ||
         (point >= 0x1ab0 && point < 0x1b00) || (point >= 0x1dc0 && point < 0x1e00) ||
         (point >= 0x200b && point < 0x2010) || (point >= 0x202a && point < 0x202f) ||
         (point >= 0x2060 && point < 0x2070) || (point >= 0x20d0 && point < 0x2100) ||
         (point >= 0xfe00 && point < 0xfe10) || (point >= 0xfe20 && point < 0xfe30) || point == 0xfeff ||
         (point >= 0x1f3fb && point < 0x1f400) || (point >= 0xe0000 && point < 0xe0200);
}

}  // namespace attend::inline v1

class Attend < Formula
  desc "Transformer attention on a CPU: exact, fast, and explained"
  homepage "https://example.org/attend"
  url "https://example.org/attend/attend-1.0.0-rc1.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "cli11" => :build
  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "nlohmann-json" => :build
  depends_on "pkgconf" => :build
  depends_on "fmt"
  depends_on "freetype"
  depends_on "libpng"
  depends_on :linux # macOS: packaging/README.md has what is missing
  depends_on "pcre2"
  depends_on "tbb"
  depends_on "utf8proc"
  depends_on "zlib"

  # The labels of pictures are drawn in DejaVu Sans, which becomes part of the library.
  resource "dejavu" do
    url "https://github.com/dejavu-fonts/dejavu-fonts/releases/download/version_2_37/dejavu-fonts-ttf-2.37.tar.bz2"
    sha256 "fa9ca4d13871dd122f61258a80d01751d603b4d3ee14095d65453b4e846e17d7"
  end

  def install
    resource("dejavu").stage { buildpath.install "ttf/DejaVuSans.ttf" }
    args = %W[
      -DATTEND_BUILD_EXAMPLES=OFF
      -DATTEND_FONT_FILE=#{buildpath}/DejaVuSans.ttf
      -DATTEND_UNITY_BUILD=ON
    ]
    system "cmake", "-S", ".", "-B", "build/brew", "-G", "Ninja", *args, *std_cmake_args
    system "cmake", "--build", "build/brew"
    system "cmake", "--install", "build/brew"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/attend --version")
    system bin/"attend", "explain", "the cat sat", "-o", "cat.png"
    (testpath/"program.cpp").write <<~CPP
      #include <attend/attend.h>
      int main() {
        const attend::Tensor x = attend::Tensor::from({2, 2}, {1, 0, 0, 1});
        return attend::attention(x, x, x).out.item({0, 0}) > 0.5 ? 0 : 1;
      }
    CPP
    system ENV.cxx, "-std=c++20", "program.cpp", "-I#{include}", "-L#{lib}", "-lattend", "-o", "program"
    system "./program"
  end
end

# For trying the recipe where no remote can be had: the libraries are Debian's (scripts/setup.sh build). Conan knows of these no
# more than their versions, so attend is shared: a static one would leave it to Conan to link them to a program.
include(default)

[settings]
compiler.cppstd=20

[options]
attend/*:shared=True

[platform_requires]
cli11/2.1.2
fmt/9.1.0
freetype/2.12.1
libpng/1.6.39
nlohmann_json/3.11.2
onetbb/2021.8.0
pcre2/10.42
utf8proc/2.8.0
zlib/1.2.13

[platform_tool_requires]
cmake/3.25.1
pkgconf/2.2.0

[conf]
tools.cmake.cmaketoolchain:generator=Ninja
user.attend:font_file=/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf

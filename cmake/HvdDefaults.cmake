# One standard, one set of warnings and one visibility for every target.
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(HVD_CCACHE ccache)
if(HVD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Paths that begin at the sources let ccache know the files again in every other copy of them: a build of pip's,
  # another clone, the folder of another Python.
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${HVD_CCACHE})
endif()

find_package(Threads REQUIRED)

# The family whose files are compiled: x86, arm, or any, which every other processor can run.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(HVD_PROCESSOR x86)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(HVD_PROCESSOR arm)
else()
  set(HVD_PROCESSOR any)
endif()

# -ffp-contract=off: kernels of every instruction set must give equal bits.
add_compile_options(-Wall -Wextra -ffp-contract=off)
if(HVD_WERROR)
  add_compile_options(-Werror)
endif()
if(HVD_SANITIZE)
  add_compile_options(-fsanitize=${HVD_SANITIZE} -fno-omit-frame-pointer -g)
  add_link_options(-fsanitize=${HVD_SANITIZE})
  if(HVD_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The sanitizer does not see fences. What they order is published by release and acquire all the same.
    add_compile_options(-Wno-tsan)
  endif()
endif()
if(HVD_BUILD_FUZZERS)
  # Every finding ends the program, so that libFuzzer keeps the input.
  add_compile_options(-fsanitize=fuzzer-no-link -fno-sanitize-recover=all)
  add_link_options(-fno-sanitize-recover=all)
endif()

# hvd_targets(<result> <layers>): the libraries of layers, hvd_<folder> with / as _.
function(hvd_targets result)
  list(TRANSFORM ARGN REPLACE / _)
  list(TRANSFORM ARGN PREPEND hvd_)
  set(${result} ${ARGN} PARENT_SCOPE)
endfunction()

# hvd_layer(<folder> SOURCES <files> [USES <layers>])
# One folder of core/ is one layer is one static library. USES are the layers it may include;
# tests/unit/test_layers.py checks the includes themselves.
function(hvd_layer name)
  cmake_parse_arguments(LAYER "" "" "SOURCES;USES" ${ARGN})
  hvd_targets(target ${name})
  hvd_targets(uses ${LAYER_USES})
  add_library(${target} STATIC ${LAYER_SOURCES})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/core)
  target_link_libraries(${target} PUBLIC ${uses} Threads::Threads)
endfunction()

# hvd_test(<name> SOURCES <files> USES <layers>): one test program, run by ctest.
function(hvd_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;USES" ${ARGN})
  add_executable(test_${name} ${TEST_SOURCES})
  hvd_targets(uses ${TEST_USES})
  target_link_libraries(test_${name} PRIVATE hvd_check ${uses})
  if(NOT "ranks" IN_LIST TEST_USES)
    # They are compiled more often than they run. Those of backends compute for long what must come out.
    target_compile_options(test_${name} PRIVATE -O1)
  endif()
  add_test(NAME core.${name} COMMAND test_${name})
  set(limit 1200)  # only a hang takes so long, also on a busy machine
  if(HVD_SANITIZE)
    set(limit 3600)  # instrumented code runs up to twenty times slower
  endif()
  set_tests_properties(core.${name} PROPERTIES TIMEOUT ${limit})
endfunction()

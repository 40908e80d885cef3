# hvd_layer(<folder> SOURCES <files> [USES <layers>])
# One folder of core/ is one layer is one static library, hvd_<folder>. USES are the layers it may
# include; tests/unit/test_layers.py checks the includes themselves.
function(hvd_layer name)
  cmake_parse_arguments(LAYER "" "" "SOURCES;USES" ${ARGN})
  add_library(hvd_${name} STATIC ${LAYER_SOURCES})
  target_include_directories(hvd_${name} PUBLIC ${PROJECT_SOURCE_DIR}/core)
  list(TRANSFORM LAYER_USES PREPEND hvd_)
  target_link_libraries(hvd_${name} PUBLIC ${LAYER_USES} Threads::Threads)
endfunction()

# hvd_test(<name> SOURCES <files> USES <layers>): one test program, run by ctest.
function(hvd_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;USES" ${ARGN})
  add_executable(test_${name} ${TEST_SOURCES})
  list(TRANSFORM TEST_USES PREPEND hvd_)
  target_link_libraries(test_${name} PRIVATE hvd_check ${TEST_USES})
  add_test(NAME core.${name} COMMAND test_${name})
  set(limit 1200)  # only a hang takes so long, also on a busy machine
  if(HVD_SANITIZE)
    set(limit 3600)  # instrumented code runs up to twenty times slower
  endif()
  set_tests_properties(core.${name} PROPERTIES TIMEOUT ${limit})
endfunction()

hvd_test(kernels SOURCES collective/kernels_test.cc USES collective)
hvd_test(collective SOURCES collective/collective_test.cc USES collective)
hvd_test(links SOURCES collective/links_test.cc USES collective)
hvd_test(float8 SOURCES collective/float8_test.cc USES collective)

# Not a test: prints milliseconds by the number of ranks.
add_executable(latency_allreduce collective/latency.cc)
target_link_libraries(latency_allreduce PRIVATE hvd_check hvd_collective)

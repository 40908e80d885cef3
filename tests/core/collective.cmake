hvd_test(kernels SOURCES collective/kernels_test.cc USES collective)
hvd_test(collective SOURCES collective/collective_test.cc USES collective)
hvd_test(links SOURCES collective/links_test.cc USES collective)
hvd_test(float8 SOURCES collective/float8_test.cc USES collective)

hvd_test(kernels SOURCES kernels_test.cc USES collective)
hvd_test(collective SOURCES collective_test.cc USES collective)

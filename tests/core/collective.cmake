hvd_test(kernels SOURCES collective/kernels_test.cc USES collective)
hvd_test(collective SOURCES collective/collective_test.cc USES collective)

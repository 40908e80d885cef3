hvd_test(sha256 SOURCES digest/sha256_test.cc USES digest)
hvd_test(crc32c SOURCES digest/crc32c_test.cc USES digest)

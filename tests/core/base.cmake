hvd_test(seal SOURCES base/seal_test.cc USES base)
hvd_test(topology SOURCES base/topology_test.cc USES base)
hvd_test(text SOURCES base/text_test.cc USES base)
hvd_test(positions SOURCES base/positions_test.cc USES base)

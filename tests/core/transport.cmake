hvd_test(farewell SOURCES farewell_test.cc USES transport)
hvd_test(window SOURCES window_test.cc USES transport)
hvd_test(transport SOURCES transport_test.cc USES transport)
hvd_test(transport_faults SOURCES transport_faults_test.cc USES transport)

hvd_test(output_file SOURCES settings/output_file_test.cc USES settings)
hvd_test(log SOURCES settings/log_test.cc USES settings)
hvd_test(failpoint SOURCES settings/failpoint_test.cc USES settings)
hvd_test(config SOURCES settings/config_test.cc USES settings)

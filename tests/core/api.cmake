hvd_test(api SOURCES api_test.cc USES api)

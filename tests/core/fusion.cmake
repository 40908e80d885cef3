hvd_test(fusion_plan SOURCES fusion/plan_test.cc USES fusion)

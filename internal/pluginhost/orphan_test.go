package pluginhost_test

const hostEnv = "PLUGINHOST_TEST_HOST"

func hostMain() {}

package sdk

// NewLogger is the logger of a plugin process.
var NewLogger = newLogger

// MetricsWanted reports whether an environment asks for metrics.
var MetricsWanted = metricsWanted

package sdk

// NewLogger is the logger of a plugin process.
var NewLogger = newLogger

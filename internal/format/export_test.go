package format

const MaxBrackets = maxBrackets

func Valid(text []byte) bool { return valid(text) }

package format

import (
	"slices"

	"github.com/tidwall/gjson"
)

// texts are the members that hold what is said in a prompt, in all formats.
// Others are names, types and identifiers, of which a model may see nothing.
var texts = []string{"content", "text", "arguments", "output", "thinking"}

// words counts the words of a prompt: the runs without a space in the texts of
// a JSON value, or in the value itself if it is a string. A model has at least
// one token for each: tokenizers cut text into words before anything else, and
// merge within them. That is what the patterns of OpenAI's cl100k_base and
// o200k_base do (github.com/openai/tiktoken, openai_public.py), those of Llama 3
// and Qwen, which were made of them, and SentencePiece (github.com/google/
// sentencepiece), whose pieces do not go on after a space by default.
func words(v gjson.Result) int64 {
	if v.Type == gjson.String {
		n, _ := wordsOf(v.Raw[1:])
		return n
	}
	raw, said := v.Raw, false // whether a string here would be a text
	var total int64
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			continue
		}
		n, length := wordsOf(raw[i+1:])
		name := raw[i+1 : i+1+length]
		i += 1 + length
		switch {
		case isName(raw[i+1:]):
			said = slices.Contains(texts, name)
		case said:
			total += n
		}
	}
	return total
}

// isName reports whether the string that ended before rest is the name of a
// member.
func isName(rest string) bool {
	for i := range len(rest) {
		switch rest[i] {
		case ' ', '\t', '\r', '\n':
		default:
			return rest[i] == ':'
		}
	}
	return false
}

// wordsOf counts the words of a JSON string, which begins behind its quote, and
// returns its length without the other one.
func wordsOf(s string) (n int64, length int) {
	inWord := false
	for i := 0; i < len(s); i++ {
		space := s[i] == ' '
		switch s[i] {
		case '"':
			return n, i
		case '\\':
			i++
			space = i < len(s) && (s[i] == 'n' || s[i] == 't' || s[i] == 'r')
		}
		if !space && !inWord {
			n++
		}
		inWord = !space
	}
	return n, len(s)
}

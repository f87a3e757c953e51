package simulator

import "maps"

// dialect is what differs between chat completions and the older completions.
type dialect struct {
	prefix      string                           // of the answer's ID
	whole, part string                           // names of the objects
	wholeChoice func(text string) map[string]any // the choice of a whole answer
	partChoice  func(text string) map[string]any // that of an event; "" ends the text
	opening     map[string]any                   // the choice before the text, or nil
}

var chatDialect = dialect{
	prefix: "chatcmpl-", whole: "chat.completion", part: "chat.completion.chunk",
	wholeChoice: func(text string) map[string]any {
		return map[string]any{"message": map[string]any{"role": "assistant", "content": text, "refusal": nil}}
	},
	partChoice: func(text string) map[string]any {
		delta := map[string]any{}
		if text != "" {
			delta["content"] = text
		}
		return map[string]any{"delta": delta}
	},
	opening: map[string]any{"delta": map[string]any{"role": "assistant", "content": ""}},
}

var completionDialect = dialect{
	prefix: "cmpl-", whole: "text_completion", part: "text_completion",
	wholeChoice: textChoice, partChoice: textChoice,
}

func textChoice(text string) map[string]any { return map[string]any{"text": text} }

func (x *exchange) chat() error       { return x.complete(chatDialect) }
func (x *exchange) completion() error { return x.complete(completionDialect) }

// complete answers in a dialect.
func (x *exchange) complete(d dialect) error {
	if x.body.Stream {
		return x.stream(d)
	}
	tokens, cut := x.tokens()
	if !x.wait(len(tokens) - 1) {
		return nil
	}
	answer := x.completionObject(d.prefix, d.whole, d.wholeChoice(join(tokens)), finishReason(cut))
	answer["usage"] = x.usage(len(tokens))
	return x.json(answer)
}

func (x *exchange) stream(d dialect) error {
	tokens, cut := x.tokens()
	ev := x.events(false)
	event := func(choice map[string]any, finish any) {
		ev.send("", x.completionObject(d.prefix, d.part, choice, finish))
	}
	if !x.wait(0) {
		return nil
	}
	if d.opening != nil {
		event(d.opening, nil)
	}
	if !ev.each(tokens, func(token string) { event(d.partChoice(token), nil) }) {
		return nil
	}
	ev.end()
	event(d.partChoice(""), finishReason(cut))
	if x.body.StreamOptions.IncludeUsage {
		last := x.completionObject(d.prefix, d.part, nil, nil)
		last["usage"] = x.usage(len(tokens))
		ev.send("", last)
	}
	ev.sendRaw("", "[DONE]")
	return nil
}

// completionObject returns an answer, or a part of one, with one choice or none.
func (x *exchange) completionObject(prefix, object string, choice map[string]any, finish any) map[string]any {
	choices := []any{}
	if choice != nil {
		full := map[string]any{"index": 0, "finish_reason": finish, "logprobs": nil}
		maps.Copy(full, choice)
		choices = append(choices, full)
	}
	return map[string]any{
		"id": x.id(prefix), "object": object, "created": x.call.record.Start.Unix(),
		"model": x.body.Model, "choices": choices,
	}
}

package simulator

// response answers in the Responses API.
func (x *exchange) response() error {
	if x.body.Stream {
		return x.responseStream()
	}
	tokens, cut := x.tokens()
	if !x.wait(len(tokens) - 1) {
		return nil
	}
	return x.json(x.responseObject(endStatus(cut), tokens))
}

func endStatus(cut bool) string {
	if cut {
		return "incomplete"
	}
	return "completed"
}

// responseStream sends the events of a response that has one message with one
// part of text.
func (x *exchange) responseStream() error {
	tokens, cut := x.tokens()
	ev := x.events(true)
	number := 0
	event := func(kind string, fields map[string]any) {
		fields["type"], fields["sequence_number"] = kind, number
		number++
		ev.send(kind, fields)
	}
	ofItem := func(fields map[string]any) map[string]any {
		fields["item_id"], fields["output_index"], fields["content_index"] = x.id("msg_"), 0, 0
		return fields
	}
	begun := x.responseObject("in_progress", nil)
	event("response.created", map[string]any{"response": begun})
	event("response.in_progress", map[string]any{"response": begun})
	ev.flush()
	if !x.wait(0) {
		return nil
	}
	event("response.output_item.added", map[string]any{"output_index": 0, "item": x.messageObject("in_progress", nil)})
	event("response.content_part.added", ofItem(map[string]any{"part": textPart("")}))
	if !ev.each(tokens, func(token string) {
		event("response.output_text.delta", ofItem(map[string]any{"delta": token, "logprobs": []any{}}))
	}) {
		return nil
	}
	ev.end()
	status, text := endStatus(cut), join(tokens)
	event("response.output_text.done", ofItem(map[string]any{"text": text, "logprobs": []any{}}))
	event("response.content_part.done", ofItem(map[string]any{"part": textPart(text)}))
	event("response.output_item.done", map[string]any{"output_index": 0, "item": x.messageObject(status, tokens)})
	event("response."+status, map[string]any{"response": x.responseObject(status, tokens)})
	return nil
}

// responseObject returns the response; it has no output while it has no tokens.
func (x *exchange) responseObject(status string, tokens []string) map[string]any {
	r := map[string]any{
		"id": x.id("resp_"), "object": "response", "created_at": x.call.record.Start.Unix(),
		"model": x.body.Model, "status": status, "error": nil, "incomplete_details": nil,
		"instructions": nil, "metadata": map[string]any{}, "parallel_tool_calls": true,
		"temperature": 1, "top_p": 1, "tool_choice": "auto", "tools": []any{},
		"output": []any{}, "usage": nil,
	}
	if status == "incomplete" {
		r["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	if tokens != nil {
		in, out := x.inputTokens(), len(tokens)
		r["output"] = []any{x.messageObject(status, tokens)}
		r["usage"] = map[string]any{
			"input_tokens": in, "input_tokens_details": map[string]int{"cached_tokens": 0},
			"output_tokens": out, "output_tokens_details": map[string]int{"reasoning_tokens": 0},
			"total_tokens": in + out,
		}
	}
	return r
}

func (x *exchange) messageObject(status string, tokens []string) map[string]any {
	content := []any{}
	if tokens != nil {
		content = append(content, textPart(join(tokens)))
	}
	return map[string]any{
		"id": x.id("msg_"), "type": "message", "role": "assistant", "status": status, "content": content,
	}
}

func textPart(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": []any{}}
}

package simulator

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"math"
	"math/rand/v2"
)

const (
	defaultDimensions = 16
	maxDimensions     = 4096
	maxImages         = 10
)

// onePixel is a PNG.
const onePixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// modelsCreated is when all models were made: the answer must not change.
const modelsCreated = 1_700_000_000

func (x *exchange) embeddings() error {
	if !x.wait(0) {
		return nil
	}
	size := min(max(x.body.Dimensions, 0), maxDimensions)
	if size == 0 {
		size = defaultDimensions
	}
	data := []any{}
	for i, text := range inputs(x.body.Input) {
		var vector any = embed(text, size)
		if x.body.EncodingFormat == "base64" {
			vector = encodeVector(embed(text, size))
		}
		data = append(data, map[string]any{"object": "embedding", "index": i, "embedding": vector})
	}
	in := x.inputTokens()
	return x.json(map[string]any{
		"object": "list", "model": x.body.Model, "data": data,
		"usage": map[string]int{"prompt_tokens": in, "total_tokens": in},
	})
}

// inputs returns the texts of an input: a text, a list of texts, or token
// numbers as one list or several.
func inputs(raw json.RawMessage) []string {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return []string{string(raw)}
	}
	if len(list) > 0 && list[0][0] != '"' && list[0][0] != '[' {
		return []string{string(raw)}
	}
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i] = string(item)
	}
	return texts
}

// embed returns a vector of length 1 that depends on the text only.
func embed(text string, size int) []float32 {
	h := fnv.New64a()
	h.Write([]byte(text))
	rnd := rand.New(rand.NewPCG(h.Sum64(), 0))
	v := make([]float32, size)
	sum := 0.0
	for i := range v {
		v[i] = float32(rnd.NormFloat64())
		sum += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

func encodeVector(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return base64.StdEncoding.EncodeToString(b)
}

func (x *exchange) moderations() error {
	if !x.wait(0) {
		return nil
	}
	results := []any{}
	for range inputs(x.body.Input) {
		flags, scores := map[string]bool{}, map[string]float64{}
		for _, c := range []string{"harassment", "hate", "illicit", "self-harm", "sexual", "violence"} {
			flags[c], scores[c] = false, 0
		}
		results = append(results, map[string]any{"flagged": false, "categories": flags, "category_scores": scores})
	}
	return x.json(map[string]any{"id": x.id("modr-"), "model": x.body.Model, "results": results})
}

func (x *exchange) images() error {
	if !x.wait(0) {
		return nil
	}
	data := []any{}
	for range min(max(x.body.N, 1), maxImages) {
		data = append(data, map[string]any{"b64_json": onePixel})
	}
	in := x.inputTokens()
	return x.json(map[string]any{
		"created": x.call.record.Start.Unix(), "data": data,
		"usage": map[string]int{"input_tokens": in, "output_tokens": len(data), "total_tokens": in + len(data)},
	})
}

func (x *exchange) models() error {
	return x.json(map[string]any{"object": "list", "data": []any{modelObject(x.provider.Name, x.provider.Name)}})
}

func modelObject(owner, id string) map[string]any {
	return map[string]any{"id": id, "object": "model", "created": modelsCreated, "owned_by": owner}
}

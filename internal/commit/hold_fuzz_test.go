package commit_test

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/usherproxy/usher/internal/commit"
	"github.com/usherproxy/usher/policy"
)

// FuzzHold holds that the bytes that come out are those that went in, and that
// the decision does not depend on how they come.
func FuzzHold(f *testing.F) {
	f.Add([]byte(ping+role+text+fault), true, false, uint64(1))
	f.Add([]byte(ping+role+fault+text), true, true, uint64(2))
	f.Add([]byte(`{"usage":{"prompt_tokens":1}}`), false, false, uint64(3))
	f.Fuzz(func(t *testing.T, body []byte, stream, cut bool, seed uint64) {
		media, err := json, io.EOF
		if stream {
			media = events
		}
		if cut {
			err = errCut
		}
		dice := rand.New(rand.NewPCG(seed, seed))
		small := commit.Gate{MaxBytes: len(body) + 1 + dice.IntN(100), MaxWait: time.Minute}
		hold := func(g commit.Gate, s *source) (commit.Cause, policy.Disposition) {
			resp := answer(media, s)
			o := g.Hold(t.Context(), chat(t), resp, stream)
			var got bytes.Buffer
			for got.Len() <= len(body) {
				p := make([]byte, 1+dice.IntN(50))
				n, readErr := resp.Body.Read(p)
				got.Write(p[:n])
				if readErr != nil {
					if readErr != err {
						t.Fatalf("the body ends with %v, want %v", readErr, err)
					}
					break
				}
			}
			if !bytes.Equal(got.Bytes(), body) {
				t.Fatalf("read %q, want %q", got.Bytes(), body)
			}
			_ = resp.Body.Close()
			return o.Cause, o.Disposition
		}
		cause, d := hold(gate, &source{pieces: [][]byte{body}, err: err, early: true})
		if len(body) >= commit.DefaultMaxBytes {
			return
		}
		cause2, d2 := hold(small, &source{pieces: pieces(body, dice), err: err})
		if cause != cause2 || d != d2 {
			t.Fatalf("whole: %s by %s; in pieces: %s by %s", d, cause, d2, cause2)
		}
	})
}

// pieces cuts p at random.
func pieces(p []byte, dice *rand.Rand) (out [][]byte) {
	for len(p) > 0 {
		n := 1 + dice.IntN(min(len(p), 40))
		out = append(out, p[:n])
		p = p[n:]
	}
	return out
}

package fifo_test

import (
	"context"
	"fmt"

	"github.com/usherproxy/usher/plugins/fifo"
	"github.com/usherproxy/usher/policy"
)

// A key that may run one request at a time is busy, so the second request takes
// the other key, and the third has to wait or, as here, to go.
func Example() {
	p, err := fifo.New().Definition().Build(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	key := func(name string) policy.Candidate {
		return policy.Candidate{ID: name, Scopes: []policy.Scope{{ID: "key:" + name, Kind: policy.ScopeConcurrency, Limit: 1}}}
	}
	for i := range int64(3) {
		req := &policy.AdmitRequest{
			Request:    &policy.Request{ID: fmt.Sprint("r", i), Arrival: i},
			Attempt:    1,
			Candidates: []policy.Candidate{key("k1"), key("k2")},
			NoWait:     true,
		}
		lease, err := p.Admission.Admit(context.Background(), req)
		if err != nil {
			fmt.Println(req.Request.ID, err)
			continue
		}
		fmt.Println(req.Request.ID, "runs on", req.Candidates[lease.Candidate()].ID)
	}
	// Output:
	// r0 runs on k1
	// r1 runs on k2
	// r2 request rejected: key_concurrency
}

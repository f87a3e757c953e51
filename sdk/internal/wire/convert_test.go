package wire_test

import (
	"fmt"
	"math"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/internal/policypb"
	"github.com/usherproxy/usher/sdk/internal/wire"
)

// filled returns a T in which no field has its zero value, so that a field
// that a conversion forgets is seen.
func filled[T any](t *testing.T) T {
	t.Helper()
	var v T
	f := filler{t: t}
	f.fill(reflect.ValueOf(&v).Elem())
	return v
}

type filler struct {
	t *testing.T
	n int // makes values distinct
}

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(int64(f.n), 5).UTC()))
		return
	case time.Duration:
		v.SetInt(int64(time.Duration(f.n) * time.Microsecond))
		return
	case policy.ScopeKind:
		v.Set(reflect.ValueOf(policy.ScopeKinds()[f.n%len(policy.ScopeKinds())]))
		return
	case policy.Status:
		v.Set(reflect.ValueOf([]policy.Status{policy.Eligible, policy.Busy, policy.Skipped}[f.n%3]))
		return
	case policy.Reason:
		v.Set(reflect.ValueOf(policy.ReasonCooldown))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString(fmt.Sprintf("string %d", f.n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint8:
		v.SetUint(uint64(f.n % 256))
	case reflect.Float64:
		v.SetFloat(float64(f.n) / 3)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		f.fill(v.Index(0))
		f.fill(v.Index(1))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key)
		f.fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for _, field := range v.Fields() {
			f.fill(field)
		}
	default:
		f.t.Fatalf("cannot fill a %s", v.Type())
	}
}

// sent returns m as the other side gets it, which is the same by reflection
// and by generated code.
func sent[M proto.Message](t *testing.T, m M) M {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatalf("marshal %T: %v", m, err)
	}
	got := m.ProtoReflect().New().Interface()
	if err := proto.Unmarshal(b, got); err != nil {
		t.Fatalf("unmarshal %T: %v", m, err)
	}
	fast, ok := any(m).(interface {
		MarshalVT() ([]byte, error)
	})
	if !ok {
		return got.(M)
	}
	if b, err = fast.MarshalVT(); err != nil {
		t.Fatalf("marshal %T by generated code: %v", m, err)
	}
	faster := m.ProtoReflect().New().Interface()
	if err := faster.(interface{ UnmarshalVTUnsafe([]byte) error }).UnmarshalVTUnsafe(b); err != nil {
		t.Fatalf("unmarshal %T by generated code: %v", m, err)
	}
	if !proto.Equal(got, faster) {
		t.Errorf("generated code lets %T arrive as\n%v, want\n%v", m, faster, got)
	}
	return faster.(M)
}

func same(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%T was changed on its way (-sent +received):\n%s", want, diff)
	}
}

func TestEveryFieldSurvives(t *testing.T) {
	t.Parallel()
	request := filled[policy.Request](t)
	same(t, &request, wire.RequestFromProto(sent(t, wire.RequestToProto(&request))))

	candidate := filled[policy.Candidate](t)
	catalog := []policy.Candidate{{}, {}, wire.CandidateFromProto(sent(t, wire.CandidateToProto(candidate)))}
	got, ok := wire.CandidateFromRef(catalog, sent(t, wire.RefToProto(2, candidate)))
	if !ok {
		t.Fatal("the candidate is not in its catalog")
	}
	same(t, candidate, got)

	outcome := filled[policy.Outcome](t)
	same(t, outcome, wire.OutcomeFromProto(sent(t, wire.OutcomeToProto(outcome))))

	result := filled[policy.AttemptResult](t)
	message := sent(t, wire.ResultToProto("catalog", 2, result))
	if message.GetCatalog() != "catalog" || message.GetIndex() != 2 {
		t.Errorf("result on candidate %d of %s, want 2 of catalog", message.GetIndex(), message.GetCatalog())
	}
	same(t, result, wire.ResultFromProto(result.Candidate, message))

	rejection := filled[policy.Rejection](t)
	same(t, &rejection, wire.RejectionFromProto(sent(t, wire.RejectionToProto(&rejection))))

	for range 3 { // of the statuses
		verdict := filled[policy.Verdict](t)
		messages, err := wire.VerdictsToProto(nil, []policy.Verdict{verdict}, func(string) (uint32, bool) { return 1, true })
		if err != nil {
			t.Fatal(err)
		}
		verdicts, err := wire.VerdictsFromProto([]*policypb.Verdict{sent(t, messages[0])}, []policy.Candidate{{}, {ID: verdict.Candidate}})
		if err != nil {
			t.Fatal(err)
		}
		same(t, []policy.Verdict{verdict}, verdicts)
	}
}

func TestZeroValuesSurvive(t *testing.T) {
	t.Parallel()
	same(t, &policy.Request{}, wire.RequestFromProto(sent(t, wire.RequestToProto(&policy.Request{}))))
	same(t, policy.Outcome{}, wire.OutcomeFromProto(sent(t, wire.OutcomeToProto(policy.Outcome{}))))
	same(t, policy.AttemptResult{}, wire.ResultFromProto(policy.Candidate{}, sent(t, wire.ResultToProto("", 0, policy.AttemptResult{}))))
	catalog := []policy.Candidate{wire.CandidateFromProto(sent(t, wire.CandidateToProto(policy.Candidate{})))}
	got, _ := wire.CandidateFromRef(catalog, sent(t, wire.RefToProto(0, policy.Candidate{})))
	same(t, policy.Candidate{}, got)
}

func TestClosedSetsSurvive(t *testing.T) {
	t.Parallel()
	for _, kind := range policy.ScopeKinds() {
		r := policy.Request{Scopes: []policy.Scope{{ID: "s", Kind: kind, Limit: 1}}}
		same(t, &r, wire.RequestFromProto(sent(t, wire.RequestToProto(&r))))
	}
	for _, s := range []policy.Status{policy.Eligible, policy.Busy, policy.Skipped} {
		messages, err := wire.VerdictsToProto(nil, []policy.Verdict{{Status: s}}, func(string) (uint32, bool) { return 0, true })
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.VerdictsFromProto(messages, make([]policy.Candidate, 1))
		if err != nil || got[0].Status != s {
			t.Errorf("status %s became %v (%v)", s, got, err)
		}
	}
}

// What is in a catalog does not change with a request, and what a reference
// says does not stay in the catalog.
func TestReferencesCarryWhatChanges(t *testing.T) {
	t.Parallel()
	c := filled[policy.Candidate](t)
	catalog := []policy.Candidate{wire.CandidateFromProto(wire.CandidateToProto(c))}
	idle := c
	idle.Load = policy.Load{}
	idle.Scopes = []policy.Scope{c.Scopes[0], c.Scopes[1]}
	idle.Scopes[0].Used, idle.Scopes[1].Used = 0, 7
	for _, want := range []policy.Candidate{c, idle, c} {
		got, ok := wire.CandidateFromRef(catalog, sent(t, wire.RefToProto(0, want)))
		if !ok {
			t.Fatal("the candidate is not in its catalog")
		}
		same(t, want, got)
	}
	idle.Scopes[1].Used = 0
	got, _ := wire.CandidateFromRef(catalog, sent(t, wire.RefToProto(0, idle)))
	same(t, idle, got)
}

func TestWrongIndexesAreFound(t *testing.T) {
	t.Parallel()
	catalog := make([]policy.Candidate, 2)
	for _, i := range []uint32{2, 3, math.MaxUint32} {
		if _, ok := wire.CandidateFromRef(catalog, &policypb.CandidateRef{Index: i}); ok {
			t.Errorf("candidate %d of 2 was found", i)
		}
		if _, err := wire.VerdictsFromProto([]*policypb.Verdict{{Index: i}}, catalog); err == nil {
			t.Errorf("a verdict on candidate %d of 2 was taken", i)
		}
	}
	if _, err := wire.VerdictsToProto(nil, []policy.Verdict{{Candidate: "x"}}, func(string) (uint32, bool) { return 0, false }); err == nil {
		t.Error("a verdict on an unknown candidate was sent")
	}
	ref := &policypb.CandidateRef{Used: []int64{1, 2, 3}} // of no scope
	if _, ok := wire.CandidateFromRef(catalog, ref); !ok {
		t.Error("more scopes in use than there are: not found")
	}
}

func TestAnyBytesOfCallersCanBeSent(t *testing.T) {
	t.Parallel()
	const bad = "caf\xe9"
	got := wire.RequestFromProto(sent(t, wire.RequestToProto(&policy.Request{
		Model: bad, Affinity: bad, Format: bad, Operation: bad, Caller: policy.Caller{ID: bad, Group: bad},
		Header: http.Header{"X-Team": {bad, "red"}}, Scopes: []policy.Scope{{ID: "caller:" + bad}}, Body: []byte(bad),
	})))
	const good = "caf\uFFFD"
	same(t, &policy.Request{
		Model: good, Affinity: good, Format: good, Operation: good, Caller: policy.Caller{ID: good, Group: good},
		Header: http.Header{"X-Team": {good, "red"}}, Scopes: []policy.Scope{{ID: "caller:" + good}}, Body: []byte(bad),
	}, got)
}

func TestRejectionsHaveAReasonOfTheClosedSet(t *testing.T) {
	t.Parallel()
	for _, r := range policy.Reasons() {
		if got := wire.RejectionFromProto(wire.RejectionToProto(&policy.Rejection{Reason: r})).Reason; got != r {
			t.Errorf("reason %s became %s", r, got)
		}
	}
	for _, r := range []policy.Reason{"", "budget", "caf\xe9"} {
		got := wire.RejectionFromProto(sent(t, wire.RejectionToProto(&policy.Rejection{Reason: r, RetryAfter: -1})))
		same(t, &policy.Rejection{Reason: policy.ReasonPolicy}, got)
	}
}

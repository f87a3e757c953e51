package fifo

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/usherproxy/usher/plugins/fifo/internal/outage"
	"github.com/usherproxy/usher/policy"
)

// The names of what the policy measures, and of what tells the figures apart.
const (
	scopeName        = "github.com/usherproxy/usher/plugins/fifo"
	metricAdmissions = "usher.fifo.admissions"
	metricUp         = "usher.fifo.store.up"
	metricRequests   = "usher.fifo.requests"

	attrStore   = attribute.Key("usher.fifo.store")
	attrOnError = attribute.Key("usher.fifo.on_store_error")
	attrSchema  = attribute.Key("usher.fifo.schema")
	attrState   = attribute.Key("usher.fifo.state")
	attrResult  = attribute.Key("usher.fifo.result")
)

// What a result may be besides a reason of a rejection.
const (
	resultAdmitted = "admitted"
	resultLeft     = "left" // its caller has, or the host
)

// awayWord is in place of the states of package outage where nobody goes on without the store.
const awayWord = "away"

// A meter tells who decides on requests, and counts the answers. Without a provider of
// metrics, which is the process's, it costs next to nothing.
type meter struct {
	admissions metric.Int64Counter
	reads      metric.Registration
}

// newMeter also lets status be read from time to time, until it is closed.
func newMeter(status func() Status) (*meter, error) {
	source := otel.Meter(scopeName)
	admissions, err := source.Int64Counter(metricAdmissions, metric.WithUnit("{request}"),
		metric.WithDescription("Answers of the policy, by who decided and by result."))
	if err != nil {
		return nil, err
	}
	up, err := source.Int64ObservableGauge(metricUp,
		metric.WithDescription("1 while the shared store decides, 0 while on_store_error does."))
	if err != nil {
		return nil, err
	}
	requests, err := source.Int64ObservableGauge(metricRequests, metric.WithUnit("{request}"),
		metric.WithDescription("Requests of this replica that run and that wait."))
	if err != nil {
		return nil, err
	}
	reads, err := source.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := status()
		var of []attribute.KeyValue
		if s.Shared != nil {
			of = []attribute.KeyValue{attrSchema.String(s.Shared.Schema), attrOnError.String(string(s.Shared.OnError))}
			o.ObserveInt64(up, s.Shared.decides(), metric.WithAttributes(of...))
		}
		o.ObserveInt64(requests, int64(s.Running), metric.WithAttributes(append(of, attrState.String("running"))...))
		o.ObserveInt64(requests, int64(s.Waiting), metric.WithAttributes(append(of, attrState.String("waiting"))...))
		return nil
	}, up, requests)
	return &meter{admissions, reads}, err
}

func (m *meter) close() error { return m.reads.Unregister() }

// count counts an answer, and says on the span of the request who gave it if it was not
// the store.
func (m *meter) count(ctx context.Context, store Store, err error) {
	by := decided(store, err)
	if by == awayWord {
		trace.SpanFromContext(ctx).SetAttributes(attrStore.String(by))
	}
	if m.admissions.Enabled(ctx) {
		m.admissions.Add(context.WithoutCancel(ctx), 1, metric.WithAttributes(attrStore.String(by), attrResult.String(result(err))))
	}
}

func result(err error) string {
	if err == nil {
		return resultAdmitted
	}
	if r, ok := errors.AsType[*policy.Rejection](err); ok {
		return string(r.Reason)
	}
	return resultLeft
}

// decides returns 1 if the store does.
func (s *SharedStatus) decides() int64 {
	if s.State != stateUp || s.Alone != nil && s.Alone.State != outage.Shared {
		return 0
	}
	return 1
}

// decided returns who decided on a request that was answered just now: the store, whose
// name it is if it is of this process alone, or whoever is in its place.
func decided(store Store, err error) string {
	s, ok := store.(*shared)
	switch {
	case !ok:
		return storeMemory
	case s.ladder != nil:
		return string(s.ladder.State())
	case result(err) == string(policy.ReasonStoreUnavailable):
		return awayWord
	}
	return string(outage.Shared)
}

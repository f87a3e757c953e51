package conformance

import (
	"fmt"
	"strings"

	"github.com/usherproxy/usher/policy"
	"github.com/usherproxy/usher/sdk/host"
)

// largeCatalog is how many candidates a large catalog has. Together they take
// more than the 4 MiB that gRPC servers allow a message unless told otherwise.
const largeCatalog = 5000

// takesLargeCatalogs checks that the plugin takes catalogs as large as they
// come, in parts or as a whole, and knows all of their candidates.
func (x Target) takesLargeCatalogs(t T) {
	client := x.Connect(t)
	if _, err := client.Info(t.Context(), "conformance"); err != nil { // tells whether it takes parts
		t.Fatalf("GetInfo: %v", err)
	}
	p, name := x.instance(t, client)
	all := make([]policy.Candidate, largeCatalog)
	for i := range all {
		all[i] = candidate(fmt.Sprintf("k%d", i))
		all[i].Labels = map[string]string{"note": strings.Repeat("long ", 200)}
	}
	catalog := send(t, client, all)
	w := newWorld()
	ask := &host.DecideRequest{
		Request: w.request(), Catalog: catalog, Candidates: []policy.Candidate{all[largeCatalog-1], all[0]}, Attempt: 1, NoWait: true,
	}
	if p.Selection != nil {
		ask.Select = []string{name}
	}
	if p.Admission != nil {
		ask.Admit = name
	}
	d, err := client.Decide(t.Context(), ask)
	if err != nil {
		t.Fatalf("Decide about the last of %d candidates: %v", largeCatalog, err)
	}
	for _, s := range d.Selections {
		if s.Err != nil {
			t.Errorf("Decide about the last of %d candidates: the selection failed: %v", largeCatalog, s.Err)
		}
	}
	if a := d.Admission; a != nil && a.Err != nil {
		t.Errorf("Decide about the last of %d candidates: the admission failed: %v", largeCatalog, a.Err)
	}
	if p.Admission != nil {
		if err := client.Cancel(t.Context(), name, ticketOf(ask.Request)); err != nil {
			t.Errorf("Cancel: %v", err)
		}
	}
	if err := client.SyncCatalog(t.Context(), nil, catalog.Name); err != nil {
		t.Fatalf("forget the catalog: %v", err)
	}
	ask.Request = w.request()
	if _, err := client.Decide(t.Context(), ask); !host.Unknown(err) {
		t.Errorf("Decide with a catalog that was to be forgotten: %v; want FAILED_PRECONDITION", err)
	}
}

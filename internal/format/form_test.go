package format_test

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strings"
	"testing"

	"github.com/usherproxy/usher/internal/format"
)

const transcriptions = "/v1/audio/transcriptions"

// form writes a form with the boundary "x": each part is its header and its
// value.
func form(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--x\r\n" + p + "\r\n")
	}
	return b.String() + "--x--\r\n"
}

// text is a field of a form, and file a file.
func text(name, value string) string {
	return `Content-Disposition: form-data; name="` + name + "\"\r\n\r\n" + value
}

func file(name, filename, media, content string) string {
	return `Content-Disposition: form-data; name="` + name + `"; filename="` + filename + "\"\r\nContent-Type: " + media + "\r\n\r\n" + content
}

const formType = "multipart/form-data; boundary=x"

// Whatever the order is, the model is found, and only its name is replaced.
func TestModelIsFoundInAForm(t *testing.T) {
	t.Parallel()
	sound := strings.Repeat("\x00\r\n--y\r\n\xff", 10_000)
	for name, c := range map[string]struct {
		path, body, model string
		stream            bool
	}{
		"model first":   {transcriptions, form(text("model", "§"), file("file", "a.wav", "audio/wav", sound)), "m", false},
		"model last":    {transcriptions, form(file("file", "a.wav", "audio/wav", sound), text("stream", "true"), text("model", "§")), "m", true},
		"empty values":  {transcriptions, form(text("prompt", ""), text("model", "§"), file("file", "", "audio/wav", "")), "m", false},
		"no stream":     {transcriptions, form(text("model", "§"), text("stream", "false")), "m", false},
		"odd filename":  {"/v1/images/edits", form(file("image[]", `C:\ü; name=.png`, "image/png", "\r\n"), text("model", "§")), "m", false},
		"odd header":    {transcriptions, form("content-disposition:form-data;  name = model\r\nX-Other:\r\n\r\n§"), "m", false},
		"a path's":      {"/openai/deployments/m/audio/transcriptions", form(text("model", "§")), "m", false},
		"CRLF before":   {transcriptions, "\r\n" + form(text("model", "§")), "m", false},
		"no CRLF after": {transcriptions, strings.TrimSuffix(form(text("model", "§")), "\r\n"), "m", false},
		"a JSON body":   {"/v1/images/edits", `{"images":[],"model":"§"}`, "m", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			media := formType
			if name == "a JSON body" {
				media = "application/json"
			}
			body := strings.Replace(c.body, "§", "m", 1)
			b, err := operation(t, "POST", c.path).Scan(c.path, media, []byte(body))
			if err != nil || b.Model != c.model || b.Stream != c.stream {
				t.Fatalf("model %q, stream %v, %v; want %q and %v", b.Model, b.Stream, err, c.model, c.stream)
			}
			if got, want := string(spliced(t, b, []byte(body), "up/stream-1")), strings.Replace(c.body, "§", "up/stream-1", 1); got != want {
				t.Errorf("spliced:\n%.300q, want\n%.300q", got, want)
			}
			if edits := b.Edits("m"); len(edits) > 0 {
				t.Errorf("the same model takes edits: %v", edits)
			}
		})
	}
}

func TestFormsThatMayBeReadInTwoWaysAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ media, body, param string }{
		"no model":             {formType, form(text("prompt", "p")), "model"},
		"no part":              {formType, "--x--\r\n", "model"},
		"two models":           {formType, form(text("model", "a"), text("model", "b")), "model"},
		"another spelling":     {formType, form(text("Model", "a")), "model"},
		"a file as model":      {formType, form(file("model", "a", "text/plain", "a")), "model"},
		"an empty model":       {formType, form(text("model", "")), "model"},
		"a long model":         {formType, form(text("model", strings.Repeat("x", 257))), "model"},
		"a model with a line":  {formType, form(text("model", "a\r\nb")), "model"},
		"nothing":              {formType, "", ""},
		"no end":               {formType, "--x\r\n" + text("model", "a") + "\r\n", ""},
		"a cut boundary":       {formType, "--x\r\n" + text("model", "a") + "\r\n--", ""},
		"no boundary":          {"multipart/form-data", form(text("model", "a")), ""},
		"another boundary":     {"multipart/form-data; boundary=y", form(text("model", "a")), ""},
		"a preamble":           {formType, "hello\r\n" + form(text("model", "a")), ""},
		"an epilogue":          {formType, form(text("model", "a")) + "--x\r\n" + text("model", "b") + "\r\n--x--", ""},
		"lines with LF":        {formType, strings.ReplaceAll(form(text("model", "a")), "\r\n", "\n"), ""},
		"a boundary after LF":  {formType, form(text("prompt", "\n--x\n"+text("model", "b")), text("model", "a")), ""},
		"a longer boundary":    {formType, form(text("prompt", "\r\n--xy"), text("model", "a")), ""},
		"no value":             {formType, "--x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n--x--", ""},
		"no name":              {formType, form("Content-Disposition: form-data\r\n\r\na"), ""},
		"two names":            {formType, form("Content-Disposition: form-data; name=a; name=model\r\n\r\na"), ""},
		"an encoded name":      {formType, form("Content-Disposition: form-data; filename*=utf-8''x; name*=utf-8''model\r\n\r\na"), ""},
		"two dispositions":     {formType, form("Content-Disposition: form-data; name=a\r\nContent-Disposition: form-data; name=model\r\n\r\na"), ""},
		"an attachment":        {formType, form("Content-Disposition: attachment; name=model\r\n\r\na"), ""},
		"an encoded value":     {formType, form("Content-Disposition: form-data; name=model\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ=="), ""},
		"a header without end": {formType, "--x\r\nContent-Disposition: form-data; name=model\r\n--x--", ""},
		"a long header":        {formType, form("X: " + strings.Repeat("x", 10_000) + "\r\n" + text("model", "a")), ""},
		"many parts":           {formType, form(strings.Split(strings.Repeat(text("p", "")+"§", 1001), "§")[:1001]...), ""},
		"JSON":                 {formType, `{"model":"m"}`, ""},
		"a form as JSON":       {"application/json", form(text("model", "a")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := operation(t, "POST", transcriptions).Scan(transcriptions, c.media, []byte(c.body))
			if bad, ok := errors.AsType[*format.BadRequest](err); !ok || bad.Param != c.param || bad.Message == "" {
				t.Errorf("%+v, %#v; want a *BadRequest with the param %q", b, err, c.param)
			}
		})
	}
	if _, err := operation(t, "POST", chatPath).Scan(chatPath, formType, []byte(form(text("model", "a")))); err == nil {
		t.Error("a chat may be a form")
	}
}

func TestFormsAreEstimatedByTheirTextsAndImages(t *testing.T) {
	t.Parallel()
	body := form(text("model", "m"), text("prompt", strings.Repeat("x", 300)), file("image", "a.png", "image/png", strings.Repeat("x", 9000)))
	b, err := operation(t, "POST", "/v1/images/edits").Scan("/v1/images/edits", formType, []byte(body))
	if err != nil || b.InputTokens != 100+1500 {
		t.Errorf("%d tokens, %v; want 1600", b.InputTokens, err)
	}
}

// Azure's clients need not name the model in the body; it is named there where
// it is sent.
func TestModelOfADeploymentIsPutIntoTheBody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ target, media, body, want string }{
		{"/openai/deployments/m/chat/completions?api-version=2024-10-21", "", ` { "n":1}`, ` {"model":"up", "n":1}`},
		{"/openai/deployments/m/chat/completions", "", `{ }`, `{"model":"up" }`},
		{"/openai/deployments/m/chat/completions", "", `{"n":1, "model" : "other"}`, `{"n":1, "model" : "up"}`},
		{"/openai/deployments/m/chat/completions", "", `{"model":null}`, `{"model":"up"}`},
		{"/openai/deployments/m/completions", "", `{"model":"m"}`, `{"model":"up"}`},
		{"/openai/v1/chat/completions", "", `{"model":"m"}`, `{"model":"up"}`},
		{
			"/openai/deployments/m/images/edits", formType, form(text("prompt", "p")),
			form(text("model", "up"), text("prompt", "p")),
		},
		{
			"/openai/deployments/m/audio/translations", formType, form(text("prompt", "p"), text("model", "o")),
			form(text("prompt", "p"), text("model", "up")),
		},
	} {
		op, u := target(t, "POST", c.target)
		b, err := op.Scan(u.Path, c.media, []byte(c.body))
		if err != nil || b.Model != "m" {
			t.Fatalf("%s: model %q, %v", c.target, b.Model, err)
		}
		if got := string(spliced(t, b, []byte(c.body), "up")); got != c.want {
			t.Errorf("%s: %s, want %s", c.target, got, c.want)
		}
		same := strings.Contains(c.body, `"model":"m"`)
		if edits := b.Edits("m"); (len(edits) == 0) != same {
			t.Errorf("%s %s: edits %v for the model of the path", c.target, c.body, edits)
		}
	}
}

// FuzzForm holds that the standard library finds the same fields in a form that
// is accepted, and in the form after a splice.
func FuzzForm(f *testing.F) {
	f.Add(form(text("model", "a"), file("file", "f", "audio/wav", "\r\n\x00")), formType, "b")
	f.Add("\r\n"+form(file("file", "f", "", "--y"), text("model", "a"))+" \r\n", "multipart/form-data; boundary=\"x\"", "b c")
	f.Add("--x \t\r\nContent-Disposition: form-data;\r\n name=model\r\n\r\na\r\n--x--", formType, "m")
	f.Fuzz(func(t *testing.T, body, media, model string) {
		op := operation(t, "POST", "/v1/images/edits")
		kind, params, err := mime.ParseMediaType(media)
		if err != nil || kind != "multipart/form-data" {
			return
		}
		b, err := op.Scan("/v1/images/edits", media, []byte(body))
		if err != nil {
			return
		}
		was := readForm(t, []byte(body), params["boundary"])
		if !sameValues(was["model"], []string{b.Model}) {
			t.Fatalf("model %q, but %q in %q", b.Model, was["model"], body)
		}
		if model == "" || strings.ContainsAny(model, "\r\n") || strings.Contains(model, params["boundary"]) {
			return
		}
		now := readForm(t, spliced(t, b, []byte(body), model), params["boundary"])
		if !sameValues(now["model"], []string{model}) {
			t.Fatalf("after the splice of %q: %q", model, now["model"])
		}
		delete(was, "model")
		delete(now, "model")
		if len(was) != len(now) {
			t.Fatalf("%v became %v", was, now)
		}
		for name, values := range was {
			if !sameValues(values, now[name]) {
				t.Fatalf("%s: %q became %q", name, values, now[name])
			}
		}
	})
}

// readForm reads a form with the standard library.
func readForm(t *testing.T, body []byte, boundary string) map[string][]string {
	t.Helper()
	found := make(map[string][]string)
	r := multipart.NewReader(bytes.NewReader(body), boundary)
	for {
		part, err := r.NextRawPart()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		value, err := io.ReadAll(part)
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		found[part.FormName()] = append(found[part.FormName()], string(value))
	}
}

func sameValues(a, b []string) bool {
	return strings.Join(a, "\x00") == strings.Join(b, "\x00") && len(a) == len(b)
}

package caddymodule

// Caller is somebody who may send requests. A caller is identified by a key,
// sent as a bearer token (`Authorization`), in the header `X-Api-Key`,
// `Api-Key` or `X-Goog-Api-Key`, or as `?key=`, or by the placeholder
// `caller_id`.
type Caller struct {
	// The name of the caller. It appears in traces and logs.
	ID string `json:"id"`

	// Where the caller's key is: `{env.NAME}` or `{file./path}`. It is read
	// when the configuration is loaded, and only its hash is kept. The key
	// itself is an error, because whoever may read the configuration could
	// read it.
	Key string `json:"key,omitempty"`

	// The SHA-256 hash of the caller's key, 64 hexadecimal digits, as from
	// `printf %s "$KEY" | sha256sum`. It may be set besides `key`: then either
	// key is good, as while one replaces the other. One of both is required,
	// unless `caller_id` names callers.
	KeySHA256 string `json:"key_sha256,omitempty"`

	// The group that the caller belongs to, one of `groups`. Default: none.
	Group string `json:"group,omitempty"`

	// The highest priority that the caller may ask for with the header
	// `X-Usher-Priority`, and the one it gets without. A higher number is
	// served first. Default: 0.
	Priority int `json:"priority,omitempty"`

	// The limits of the caller. Default: none.
	Limits []Limit `json:"limits,omitempty"`
}

// Group is a tenant or a team of callers.
type Group struct {
	// The name under which callers refer to the group.
	Name string `json:"name"`

	// The limits of the group, over all its callers. Default: none.
	Limits []Limit `json:"limits,omitempty"`
}

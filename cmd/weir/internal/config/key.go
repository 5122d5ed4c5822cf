package config

import "strings"

// KeyFrom says where a job's key is.
type KeyFrom string

// The places of a key.
const (
	KeyFromSubject KeyFrom = "subject"
	KeyFromHeader  KeyFrom = "header"
	KeyFromJSON    KeyFrom = "json"
)

// KeySource is where to read a job's key from.
type KeySource struct {
	From    KeyFrom
	Name    string // of the job's header, as written, when From is KeyFromHeader
	Pointer string // RFC 6901, into the job's body, when From is KeyFromJSON
	// TenantUntil ends the part of the key that names its tenant; "" if every key is a tenant of its own.
	TenantUntil string
}

// String writes the source as the file does: subject, header:NAME or json:/pointer. The tenant is not in it.
func (k KeySource) String() string {
	switch k.From {
	case KeyFromHeader:
		return "header:" + k.Name
	case KeyFromJSON:
		return "json:" + k.Pointer
	default:
		return string(k.From)
	}
}

// readKey reads {from: source, tenant_until: separator}, or the source alone.
func readKey(v value) KeySource {
	if v.isScalar() {
		return readValue(v, KeySource{}, parseKey)
	}
	f, ok := v.fields("from", "tenant_until")
	if ok {
		f.require("from", "write {from: subject}")
	}
	k := read(f, "from", KeySource{}, parseKey)
	k.TenantUntil = read(f, "tenant_until", "", parseSeparator)
	return k
}

// mostSeparator bounds a separator, in bytes.
const mostSeparator = 8

func parseSeparator(text string) (string, error) {
	if text == "" || len(text) > mostSeparator {
		return "", refuse(`write what stands behind the tenant in a key, as in "."`, "%s cannot end the tenant's part of a key", quote(text))
	}
	return text, nil
}

func parseKey(text string) (KeySource, error) {
	if text == "subject" {
		return KeySource{From: KeyFromSubject}, nil
	}
	header, pointer, err := parseSource(text)
	switch {
	case err != nil:
		return KeySource{}, err
	case header != "":
		return KeySource{From: KeyFromHeader, Name: header}, nil
	case pointer != "":
		return KeySource{From: KeyFromJSON, Pointer: pointer}, nil
	default:
		return KeySource{}, refuse("write subject, header:NAME or json:/pointer", "%s is no place of a key", quote(text))
	}
}

// parseSource reads header:NAME or json:/pointer; it returns neither for any other text.
func parseSource(text string) (header, pointer string, err error) {
	if rest, ok := strings.CutPrefix(text, "header:"); ok {
		header, err = headerName(strings.TrimSpace(rest))
		return header, "", err
	}
	if rest, ok := strings.CutPrefix(text, "json:"); ok {
		pointer, err = parsePointer(strings.TrimSpace(rest))
		return "", pointer, err
	}
	return "", "", nil
}

// parsePointer reads an RFC 6901 pointer to a part of a document, at most 256 bytes.
func parsePointer(text string) (string, error) {
	const fix = "write json:/field/subfield; ~0 stands for ~ and ~1 for /"
	if !strings.HasPrefix(text, "/") || len(text) > 256 {
		return "", refuse(fix, "%s is not a JSON pointer", quote(text))
	}
	for i := range len(text) {
		if text[i] == '~' && (i+1 == len(text) || text[i+1] != '0' && text[i+1] != '1') {
			return "", refuse(fix, "%s has a ~ that is neither ~0 nor ~1", quote(text))
		}
	}
	return text, nil
}

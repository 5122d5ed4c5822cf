package config

import (
	"strings"

	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/problem"
)

// KeyFrom says where a job's key is.
type KeyFrom string

// The places of a key.
const (
	KeyFromSubject KeyFrom = "subject"
	KeyFromHeader  KeyFrom = "header"
	KeyFromJSON    KeyFrom = "json"
)

// KeySource says where to read a job's key.
type KeySource struct {
	From    KeyFrom
	Name    string // the job's header, in the case of the file; only for KeyFromHeader
	Pointer string // RFC 6901, into the job's body; only for KeyFromJSON
	// TenantUntil is the separator behind the tenant's part of a key; "" if every key is a tenant of its own.
	TenantUntil string
}

// String writes the source as the file does: subject, header:NAME or json:/pointer. It leaves out TenantUntil.
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

// section returns the fields of a key's place.
func (k *KeySource) section() field.Section {
	place := field.Type[KeySource]{
		Parse: func(text string) (KeySource, error) {
			at, err := parseKey(text)
			at.TenantUntil = k.TenantUntil
			return at, err
		},
		Show:   KeySource.String,
		Words:  "`subject`, `header:NAME` or a pointer",
		Schema: field.Pattern("subject|" + sourcePattern),
	}
	return field.Section{Fields: []field.Field{
		{
			Name: "from", Is: field.One(k, place), Or: "subject", Needs: "write {from: subject}",
			Means: "where a job has its key. With a header or a pointer, publish jobs to `weir.jobs.<api>`",
		},
		{
			Name:      "tenant_until",
			Is:        field.One(&k.TenantUntil, field.Free("1 to 8 bytes, as in `\".\"`", parseSeparator)),
			Otherwise: "none",
			Means: "the text that ends the tenant's part of a key. The keys of a tenant share its turn at shared limits. " +
				"Absent: every key is a tenant",
		},
	}}
}

// mostSeparator bounds TenantUntil, in bytes.
const mostSeparator = 8

func parseSeparator(text string) (string, error) {
	if text == "" || len(text) > mostSeparator {
		return "",
			problem.Refuse(`write what stands behind the tenant in a key, as in "."`, "%s cannot end the tenant's part of a key",
				problem.Quote(text))
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
		return KeySource{},
			problem.Refuse("write subject, header:NAME or json:/pointer", "%s is no place of a key", problem.Quote(text))
	}
}

// sourcePattern matches what parseSource reads.
const sourcePattern = `header:.+|json:.*`

// parseSource reads header:NAME or json:/pointer. For any other text it returns two empty strings and no error.
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

// parsePointer reads an RFC 6901 pointer of at most 256 bytes. The pointer must not be empty.
func parsePointer(text string) (string, error) { return parsePointerAs("json:/field/subfield", text) }

// parsePointerAs is parsePointer for a pointer that the configuration spells as in example.
func parsePointerAs(example, text string) (string, error) {
	fix := "write " + example + "; ~0 stands for ~ and ~1 for /"
	if !strings.HasPrefix(text, "/") || len(text) > 256 {
		return "", problem.Refuse(fix, "%s is not a JSON pointer", problem.Quote(text))
	}
	for i := range len(text) {
		if text[i] == '~' && (i+1 == len(text) || text[i+1] != '0' && text[i+1] != '1') {
			return "", problem.Refuse(fix, "%s has a ~ that is neither ~0 nor ~1", problem.Quote(text))
		}
	}
	return text, nil
}

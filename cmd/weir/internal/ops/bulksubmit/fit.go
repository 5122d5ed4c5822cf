package bulksubmit

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/config"
	"weir/ingest"
)

// Fit puts the job's key where the api reads it, and separates the headers for the api from those of the job itself. If
// the job names no key, the key must already be where the api reads it. If the api reads keys from the subject, Fit
// then fails.
func Fit(s *ingest.Submission, api *config.API, hasBody bool) error {
	s.Header = slices.DeleteFunc(s.Header, func(h ingest.HeaderField) bool {
		if api.Forwards(h.Name) || !isJobs(h.Name, api) {
			return false
		}
		s.JobHeader[h.Name] = append(s.JobHeader[h.Name], h.Value)
		return true
	})
	key := s.Key
	switch {
	case key == "" && api.Key.From == config.KeyFromSubject:
		return errors.New("it has no key: name it in the line, or as an argument")
	case key == "":
		return nil
	}
	switch api.Key.From {
	case config.KeyFromHeader:
		s.Key = ""
		for name, values := range s.JobHeader {
			if strings.EqualFold(name, api.Key.Name) && (len(values) != 1 || values[0] != key) {
				return fmt.Errorf("api %s takes the key from header %s, which says %q: leave the header out, or say the same key", api.Name, name, values)
			}
			if strings.EqualFold(name, api.Key.Name) {
				return nil
			}
		}
		s.JobHeader[api.Key.Name] = []string{key}
	case config.KeyFromJSON:
		s.Key = ""
		if !hasBody {
			var err error
			s.Body, err = pointedBody(api.Key.Pointer, key)
			return err
		}
		return checkPointed(s.Body, api, key)
	}
	return nil
}

// isJobs reports whether a header belongs to the job itself: whether weir reads it and the api does not get it.
func isJobs(name string, api *config.API) bool {
	lower := strings.ToLower(name)
	if strings.HasPrefix(lower, "weir-") || lower == ingest.HeaderTrace || lower == ingest.HeaderTraceState || lower == ingest.HeaderBaggage {
		return true
	}
	if api.Key.From == config.KeyFromHeader && strings.EqualFold(name, api.Key.Name) {
		return true
	}
	for _, l := range api.Rules.Shared {
		if l.Cost.Reads(name) {
			return true
		}
	}
	return api.Prices.Reads(name)
}

// checkPointed fails if the key in the body differs from key.
func checkPointed(body []byte, api *config.API, key string) error {
	value, err := ingest.Pointed(body, api.Key.Pointer)
	if err != nil {
		return fmt.Errorf("api %s takes the key from the body, and %w", api.Name, err)
	}
	text, ok := value.(string)
	if number, isNumber := value.(json.Number); isNumber {
		text, ok = number.String(), true
	}
	if !ok || text != key {
		return fmt.Errorf("api %s takes the key from %s of the body, which is not %q", api.Name, api.Key.Pointer, key)
	}
	return nil
}

// pointedBody returns the smallest JSON object that has the key at pointer.
func pointedBody(pointer, key string) ([]byte, error) {
	var value any = key
	for _, name := range slices.Backward(ingest.PointerNames(pointer)) {
		if _, err := strconv.Atoi(name); err == nil {
			return nil, errors.New("the api takes the key from an array in the body: write the body yourself")
		}
		value = map[string]any{name: value}
	}
	body, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("make a body for the key: %w", err)
	}
	return body, nil
}

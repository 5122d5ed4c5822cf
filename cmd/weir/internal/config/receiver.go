package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"weir/bucket"
)

// Receiver is an address to which weir posts messages, signed as Standard Webhooks specifies.
type Receiver struct {
	URL    Template
	Secret Template    // a single reference, which Key resolves for each post; empty if posts are not signed
	Rate   bucket.Rate // of posts
}

// Bounds of a webhook's secret, as in Standard Webhooks.
const (
	leastWebhookKey = 24
	mostWebhookKey  = 64
	webhookFix      = "write whsec_ and 24 to 64 bytes in base64, as `echo whsec_$(openssl rand -base64 32)` makes them"
)

// Target returns the present address. It reads the variables or files that the address refers to. The error contains no
// part of the address.
func (r *Receiver) Target() (string, error) {
	text, err := r.URL.Resolve()
	if err == nil {
		_, err = webhookURL(text)
	}
	if err != nil && r.URL.HasReference() {
		return "", errors.New("the receiver's url refers to what is missing, or is not like https://host/path")
	}
	return text, err
}

// Key returns the present signing key, or nil if posts are not signed. It reads a variable or a file. The error
// contains no part of the key.
func (r *Receiver) Key() ([]byte, error) {
	if !r.Secret.HasReference() {
		return nil, nil
	}
	text, err := r.Secret.Resolve()
	if err != nil {
		return nil, err
	}
	encoded, ok := strings.CutPrefix(text, "whsec_")
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < leastWebhookKey || len(key) > mostWebhookKey {
		return nil, fmt.Errorf("%s is no secret of a webhook: %s", r.Secret, webhookFix)
	}
	return key, nil
}

// address returns the kind of a receiver's url.
func (r *Receiver) address() kind {
	return secret(&r.URL, "an address like `https://host/path`, or `http`; no user, no fragment; `${env:NAME}` and `${file:/path}` "+
		"stand for what is secret in it", webhookTarget, func() error {
		_, err := r.Target()
		return err
	})
}

// key returns the kind of a receiver's secret.
func (r *Receiver) key() kind {
	return secret(&r.Secret, "one `${env:NAME}` or `${file:/path}`", tokenReference, func() error {
		_, err := r.Key()
		return err
	})
}

// pace returns the kind of a receiver's rate.
func (r *Receiver) pace() kind {
	return one(&r.Rate, rate().but("a rate from 1/min to 1000/s", webhookRate))
}

// warnOfPlainText warns if weir posts to the address over plain http, and the address contains a secret.
func (r *Receiver) warnOfPlainText(f fields) {
	if r.URL.inPlainText() {
		f.place("url").warn("a secret goes over the network in plain text", "write https")
	}
}

// webhookRate reads the rate of posts, from 1/min to 1000/s.
func webhookRate(text string) (bucket.Rate, error) {
	r, err := ParseRate(text)
	if err == nil && (r.Per/time.Duration(r.Count) > time.Minute || r.Per/time.Duration(r.Count) < time.Millisecond) {
		return r, refuse("write 1/min to 1000/s", "%s is no rate for posts", quote(text))
	}
	r.Burst = 1
	return r, err
}

// webhookTarget reads an address. References in it stand for secret parts.
func webhookTarget(text string) (Template, error) {
	t, err := ParseTemplate(text)
	if err != nil || t.HasReference() {
		return t, err
	}
	_, err = webhookURL(text)
	return t, err
}

func webhookURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, refuse("write https://host/path, without user and fragment; one that is a secret itself as ${env:NAME}", "this is no address to post to")
	}
	return u, nil
}

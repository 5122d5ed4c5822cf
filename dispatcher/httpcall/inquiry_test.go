package httpcall

import (
	"net/http"
	"testing"
)

// TestInquiryReads checks that only configured answers say anything, that the first match counts, and that an
// answer that is incomplete or not JSON never lets a later, broader rule decide that nothing was processed.
func TestInquiryReads(t *testing.T) {
	q := Inquiry{Answers: []InquiryAnswer{
		{Status: 200, JSON: "/state", Values: []string{"paid", "7", "true"}, Means: Processed},
		{Status: 200, JSON: "/data/0/id", Means: Processed},
		{Status: 200, Means: NotProcessed},
		{Status: 404, Means: NotProcessed},
	}}
	for _, c := range []struct {
		what string
		r    Response
		want Finding
	}{
		{"a value", Response{Status: 200, Body: []byte(`{"state":"paid"}`)}, Processed},
		{"a number", Response{Status: 200, Body: []byte(`{"state":7}`)}, Processed},
		{"a truth", Response{Status: 200, Body: []byte(`{"state":true}`)}, Processed},
		{"something in a list", Response{Status: 200, Body: []byte(`{"data":[{"id":"x"}]}`)}, Processed},
		{"an object", Response{Status: 200, Body: []byte(`{"data":[{"id":{}}]}`)}, Processed},
		{"an empty list", Response{Status: 200, Body: []byte(`{"data":[]}`)}, NotProcessed},
		{"null", Response{Status: 200, Body: []byte(`{"state":null,"data":[{"id":null}]}`)}, NotProcessed},
		{"no JSON", Response{Status: 200, Body: []byte(`<html>`)}, StillUnknown},
		{"nothing", Response{Status: 200}, StillUnknown},
		{"too long", Response{Status: 200, Body: []byte(`{}`), More: true}, StillUnknown},
		{"broken off", Response{Status: 404, Cut: true}, StillUnknown},
		{"not there", Response{Status: 404}, NotProcessed},
		{"another status", Response{Status: 204}, StillUnknown},
		{"a fault", Response{Status: 500}, StillUnknown},
		{"no answer", Response{Sent: true, Err: errTimeout}, StillUnknown},
	} {
		c.r.Sent, c.r.Header = true, http.Header{}
		if got, detail := q.Answers.Read(c.r); got != c.want || detail == "" {
			t.Errorf("%s: %s (%s), want %s", c.what, got, detail, c.want)
		}
	}
}

// TestInquiryPath checks that the job's values are escaped, whatever they hold, and that the api cannot be asked
// about a job that lacks a named value.
func TestInquiryPath(t *testing.T) {
	for _, c := range []struct {
		path  string
		about Asked
		want  string // "": it cannot be asked
	}{
		{"/orders/{job}", Asked{Job: "a/b ?#é"}, "/orders/a%2Fb%20%3F%23%C3%A9"},
		{"/o?k={key}&r={json:/order/id}", Asked{Key: "x&y=1", Body: []byte(`{"order":{"id":17}}`)}, "/o?k=x%26y%3D1&r=17"},
		{"/o/{json:/a~1b}", Asked{Body: []byte(`{"a/b":"z"}`)}, "/o/z"},
		{"/o/{job}", Asked{Job: ".."}, ""},
		{"/o/{job}", Asked{}, ""},
		{"/o/{json:/id}", Asked{Body: []byte(`{}`)}, ""},
		{"/o/{json:/id}", Asked{Body: []byte(`{"id":{}}`)}, ""},
		{"/o/{json:/id}", Asked{Body: []byte(`no`)}, ""},
	} {
		got, err := expand(c.path, c.about)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s of %+v: %q, %v; want %q", c.path, c.about, got, err, c.want)
		}
	}
}

package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// signature returns the v1 signature of a message, as Standard Webhooks defines it.
func signature(key []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// messageID returns an event's id with underscores instead of dots, because dots separate the parts of the signed text.
func messageID(id string) string { return strings.ReplaceAll(id, ".", "_") }

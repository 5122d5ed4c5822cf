package config_test

import (
	"fmt"

	"weir/cmd/weir/internal/config"
)

// ExampleParse shows that Parse reports all problems at once.
func ExampleParse() {
	_, err := config.Parse([]byte(`
apis:
  sms:
    url: https://sms.example.com
    bucket: {rate: 10, capcity: 500}
`), config.Options{Name: "weir.yaml"})
	fmt.Println(err)
	// Output:
	// weir.yaml:5: apis.sms.bucket.capcity: there is no such field: did you mean "capacity"?
	// weir.yaml:5: apis.sms.bucket.capacity: is missing: write how many jobs of one key may wait, as in 500
	// weir.yaml:5: apis.sms.bucket.rate: "10" has no unit: write 10/s, 300/3h or 1000/24h
}

// ExampleConfig_Diff shows the changes that an operator is asked to confirm.
func ExampleConfig_Diff() {
	before, err := config.Parse([]byte(`apis: {sms: {url: "https://sms.example.com", bucket: {rate: 10/s, capacity: 500}}}`), config.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	after, err := config.Parse([]byte(`apis: {sms: {url: "https://sms.example.com", bucket: {rate: 5/s, capacity: 500}}}`), config.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, change := range before.Diff(after) {
		fmt.Println(change)
	}
	// Output:
	// apis.sms.bucket.rate: 10/s -> 5/s
}
